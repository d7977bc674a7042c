//! What can go wrong, with the thing named.

use rustix::io::Errno;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that came in is not as it must be.
    #[error("{0}")]
    Refused(String),
    /// A file or folder of the node.
    #[error("{action} {path}")]
    File {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: String,
        /// What came of it.
        source: std::io::Error,
    },
    /// The Kubernetes API.
    #[error("{action}")]
    Api {
        /// What was being done.
        action: String,
        /// What came of it.
        source: Box<kube::Error>,
    },
    /// The backup location.
    #[error(transparent)]
    Vault(#[from] bowline_vault::Error),
    /// The repository in it.
    #[error(transparent)]
    Volume(#[from] bowline_volume::Error),
    /// A thread that broke off.
    #[error("unexpected: {0}")]
    Unexpected(#[from] tokio::task::JoinError),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    /// For `map_err`: what was being done, and to what.
    pub(crate) fn file(action: &'static str, path: impl ToString) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::File {
            action,
            path: path.to_string(),
            source: errno.into(),
        }
    }
}

/// Hosts are told the whole chain in one line.
impl From<Error> for bowline_plugin::Error {
    fn from(error: Error) -> Self {
        Self::new(chain(&error))
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let why = cause.to_string();
        // Some errors tell their cause themselves.
        if !text.ends_with(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        next = cause.source();
    }
    text
}
