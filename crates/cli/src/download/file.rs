//! Small files of the bucket as values, for descriptions: that one cannot be had is part of what is
//! described, not the end of it.

use std::time::Duration;

use bowline_api::v1::DownloadTargetKind;
use serde::de::DeserializeOwned;

use super::Downloader;

/// How long to wait for one file.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A file of the bucket, or why it could not be had.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum File<T> {
    /// Its content.
    Found(T),
    /// The bucket has no such file.
    Missing,
    /// It could not be fetched.
    Failed(String),
    /// It could be fetched, but not read.
    Unreadable(String),
}

impl<T> File<T> {
    /// The same for a file that has to be there: that it is missing is a failure.
    pub(crate) fn required(self) -> Self {
        match self {
            Self::Missing => Self::Failed("file not found".to_owned()),
            other => other,
        }
    }
}

/// Where the files come from, or why they cannot come; none if there can be no files yet.
pub(crate) struct Files(Option<Result<Downloader, String>>);

impl Files {
    /// There are none yet, and nobody would answer.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Files from there; or from nowhere, for a reason.
    pub(crate) fn from(downloader: anyhow::Result<Downloader>) -> Self {
        Self(Some(downloader.map_err(|error| format!("{error:#}"))))
    }

    /// A file, if it is wanted.
    pub(crate) async fn read_if<T: DeserializeOwned + Default>(
        &self,
        wanted: bool,
        kind: DownloadTargetKind,
    ) -> Option<File<T>> {
        match wanted {
            true => Some(self.read(kind).await),
            false => None,
        }
    }

    /// A file.
    pub(crate) async fn read<T: DeserializeOwned + Default>(
        &self,
        kind: DownloadTargetKind,
    ) -> File<T> {
        let downloader = match &self.0 {
            Some(Ok(downloader)) => downloader,
            Some(Err(why)) => return File::Failed(why.clone()),
            None => return File::Missing,
        };
        match downloader.fetch_bytes(kind, TIMEOUT).await {
            Ok(None) => File::Missing,
            Err(error) => File::Failed(format!("{error:#}")),
            // Velero writes an empty list as `null`.
            Ok(Some(bytes)) => match serde_json::from_slice::<Option<T>>(&bytes) {
                Ok(content) => File::Found(content.unwrap_or_default()),
                Err(error) => File::Unreadable(error.to_string()),
            },
        }
    }
}
