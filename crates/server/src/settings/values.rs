//! What flags can say, in Go's spelling.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;

/// From which level on things are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// What helps to find a fault.
    Debug,
    /// The story of the day.
    Info,
    /// What may go wrong.
    #[value(alias = "warn")]
    Warning,
    /// What went wrong.
    Error,
    /// As `error`.
    Fatal,
    /// As `error`.
    Panic,
}

impl LogLevel {
    /// The same for `tracing`, which knows nothing above an error.
    #[must_use]
    pub fn filter(self) -> LevelFilter {
        match self {
            Self::Trace => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Warning => LevelFilter::WARN,
            Self::Error | Self::Fatal | Self::Panic => LevelFilter::ERROR,
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum LogFormat {
    /// `key=value`.
    Text,
    /// One JSON object a line.
    Json,
}

/// The default snapshot location of each provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderLocations(pub BTreeMap<String, String>);

impl FromStr for ProviderLocations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |pair: &str| {
            let (provider, location) = pair
                .split_once(':')
                .ok_or_else(|| format!("error parsing {pair:?}: expected provider:location"))?;
            Ok((provider.trim().to_owned(), location.trim().to_owned()))
        };
        text.split(',')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(pair)
            .collect::<Result<_, String>>()
            .map(Self)
    }
}

/// Whether snapshots of a provider are uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotType {
    /// The provider, as locations name it.
    pub provider: String,
    /// Whether its plugin is to upload them.
    pub uploads: bool,
}

impl FromStr for SnapshotType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected PROVIDER=local or PROVIDER=cloud, found {text:?}");
        let (provider, word) = text.split_once('=').ok_or_else(expected)?;
        let uploads = uploads(word).filter(|_| !provider.is_empty());
        Ok(Self {
            provider: provider.to_owned(),
            uploads: uploads.ok_or_else(expected)?,
        })
    }
}

/// Whether snapshots of a type are uploaded; none for a word that is no type.
pub(crate) fn uploads(word: &str) -> Option<bool> {
    match word {
        "local" => Some(false),
        "cloud" => Some(true),
        _ => None,
    }
}

/// A length of time that is not negative.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration: bowline_api::Duration = text.parse().map_err(|bad| format!("{bad}"))?;
    match duration.nanos() {
        Ok(nanos) => u64::try_from(nanos)
            .map(Duration::from_nanos)
            .map_err(|_| "must not be negative".to_owned()),
        Err(bad) => Err(bad.to_string()),
    }
}

/// A length of time; zero and less stand for the default, as in Velero.
pub(super) fn duration_or_default(
    default: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let duration: bowline_api::Duration = text.parse().map_err(|bad| format!("{bad}"))?;
        match duration.nanos() {
            Ok(..=0) => self::duration(default),
            Ok(nanos) => Ok(Duration::from_nanos(nanos.unsigned_abs())),
            Err(bad) => Err(bad.to_string()),
        }
    }
}

/// What Go takes for a boolean.
pub(super) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}
