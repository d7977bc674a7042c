//! What can go wrong with a store or an archive.

/// The result of a call here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call to a store or a look into an archive failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings of a location cannot be used; the text names the setting.
    #[error("{0}")]
    Settings(String),
    /// There is no such object.
    #[error("{key} not found")]
    NotFound {
        /// The object's key.
        key: String,
    },
    /// The store answered, and not as hoped; or did not answer.
    #[error("{action}: {reason}")]
    Store {
        /// What was being done, to what: `put backups/b/b.tar.gz`.
        action: String,
        /// The reason, without secrets.
        reason: String,
        /// Whether the same call may work later.
        retryable: bool,
    },
    /// The call was given up because its work was.
    #[error("{action}: cancelled")]
    Cancelled {
        /// What was being done, to what.
        action: String,
    },
    /// The bucket holds folders that are not ours.
    #[error("{0}")]
    ForeignFolders(String),
    /// A file of ours in the bucket cannot be understood.
    #[error("{key}: {reason}")]
    Damaged {
        /// The object's key, with the archive's entry where there is one.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Whether trying again cannot help.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(
            self,
            Self::Store {
                retryable: true,
                ..
            }
        )
    }

    /// Whether the object is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
