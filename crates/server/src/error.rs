//! Why a reconciler could not do its work.

/// The result of a call here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was being done, and why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the Kubernetes API failed.
    #[error("{action}")]
    Api {
        /// What was being done, to what: `patch backup b`.
        action: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A call to the bucket failed, or its settings are of no use.
    #[error(transparent)]
    Vault(#[from] bowline_vault::Error),
    /// A volume repository cannot be used.
    #[error(transparent)]
    Volume(#[from] bowline_volume::Error),
    /// A location's Secret cannot be used.
    #[error("{0}")]
    Credentials(String),
    /// The server cannot start as it is set up.
    #[error("{0}")]
    Setup(String),
}

impl Error {
    /// For `map_err`: what was being done.
    pub fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api {
            action: action.into(),
            source: Box::new(source),
        }
    }

    /// Whether the object changed or went while it was looked at.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(
            &**source,
            kube::Error::Api(status) if status.is_conflict() || status.is_not_found()
        ))
    }

    /// Whether there is no such object, or no such kind.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(
            &**source,
            // What is said of kinds that are not there is no status.
            kube::Error::Api(status) if status.code == 404
        ))
    }

    /// The error and its causes in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        if let Self::Api { action, source } = self
            && let kube::Error::Api(status) = &**source
        {
            // What the API server said; the rest of its answer is for programs.
            return format!("{action}: {}", status.message);
        }
        chain(self)
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
