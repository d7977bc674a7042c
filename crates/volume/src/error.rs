/// What can go wrong with a repository or a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no repository there.
    #[error("there is no repository at {0}")]
    NoRepository(String),
    /// There is one already.
    #[error("there is a repository at {0} already")]
    Exists(String),
    /// The password opens none of its keys.
    #[error("wrong password for the repository at {0}")]
    WrongPassword(String),
    /// Somebody else has locked it.
    #[error("the repository is locked: {0}")]
    Locked(String),
    /// There is no such snapshot, or more than one whose id begins like that.
    #[error("no single snapshot {0} in the repository")]
    NoSnapshot(String),
    /// A file of the repository is not what it should be.
    #[error("{file} of the repository is damaged: {reason}")]
    Damaged {
        /// Which.
        file: String,
        /// In what way.
        reason: String,
    },
    /// The repository's bucket.
    #[error(transparent)]
    Store(#[from] bowline_vault::Error),
    /// A file of the volume.
    #[error("{action} {path}")]
    File {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: String,
        /// What came of it.
        source: std::io::Error,
    },
    /// What should be a block device is not.
    #[error("{path} is {what}, not a block device")]
    NotADevice {
        /// Where it is.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A block device without a single byte.
    #[error("{0} has no bytes")]
    Empty(String),
    /// A snapshot that should be of a block device is not.
    #[error("snapshot {0} is of files, not of a block device")]
    NoImage(String),
    /// A block device is smaller than what was on the one before.
    #[error("the volume has {has} bytes, and its data needs {needs}")]
    TooSmall {
        /// What it has.
        has: u64,
        /// What it would have to have.
        needs: u64,
    },
    /// The restic program.
    #[error("{0}")]
    Program(String),
    /// The volume is not where it was any more: what was not found in it may be elsewhere.
    #[error("the volume disappeared while it was read")]
    Disappeared,
    /// What should not happen: a thread that broke off, a library that refuses.
    #[error("unexpected: {0}")]
    Unexpected(String),
    /// Somebody ended it.
    #[error("cancelled")]
    Cancelled,
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::unexpected(error)
    }
}

impl Error {
    pub(crate) fn unexpected(error: impl ToString) -> Self {
        Self::Unexpected(error.to_string())
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
