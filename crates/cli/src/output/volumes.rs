//! What became of each volume of a backup or a restore, in one shape for every method: a row of a table,
//! a part of a description, an object for programs.

mod backup;
mod print;
mod restore;

pub(crate) use print::{Source, VolumesArgs, print};

use std::{cmp::Reverse, fmt};

use bowline_api::{Time, files::VolumeResult, v1::DataPathPhase};
use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::Value;

/// How a volume's data was kept or came back, in the order of headings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Method {
    /// Copied file by file.
    PodVolume,
    /// A snapshot by a plugin.
    NativeSnapshot,
    /// A CSI snapshot.
    #[serde(rename = "CSISnapshot")]
    CsiSnapshot,
    /// A CSI snapshot whose data is in the bucket.
    DataMovement,
    /// Not at all.
    None,
}

impl Method {
    /// The heading in a description.
    fn heading(self) -> &'static str {
        match self {
            Self::PodVolume => "Pod Volumes",
            Self::NativeSnapshot => "Native Snapshots",
            Self::CsiSnapshot => "CSI Snapshots",
            Self::DataMovement => "Data Movements",
            Self::None => "Not Copied",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PodVolume => "PodVolume",
            Self::NativeSnapshot => "NativeSnapshot",
            Self::CsiSnapshot => "CSISnapshot",
            Self::DataMovement => "DataMovement",
            Self::None => "None",
        })
    }
}

/// How it ended for a volume; the worst comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// It was tried and did not work.
    Failed,
    /// There is no data, for a reason.
    NoData,
    /// Nobody said.
    #[default]
    Unknown,
    /// It goes on, or waits for something.
    Pending,
    /// The volume itself is there, with its data.
    Kept,
    /// The data is there.
    Succeeded,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Failed => "failed",
            Self::NoData => "no data",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Kept => "kept",
            Self::Succeeded => "succeeded",
        })
    }
}

impl From<&VolumeResult> for Outcome {
    fn from(result: &VolumeResult) -> Self {
        match result {
            VolumeResult::Succeeded => Self::Succeeded,
            VolumeResult::Failed => Self::Failed,
            VolumeResult::Other(_) => Self::Unknown,
        }
    }
}

impl From<&DataPathPhase> for Outcome {
    fn from(phase: &DataPathPhase) -> Self {
        match phase {
            DataPathPhase::Completed => Self::Succeeded,
            DataPathPhase::Failed | DataPathPhase::Canceled => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Volume {
    /// How people tell it apart: its claim, its place in a pod, or itself.
    pub(crate) name: String,
    /// The claim, `<namespace>/<name>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<String>,
    /// The claim in the backup, if that was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) original_claim: Option<String>,
    /// The volume of a pod, `<namespace>/<pod>:<volume>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod_volume: Option<String>,
    /// The persistent volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) persistent_volume: Option<String>,
    /// The persistent volume in the backup, if that was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) original_persistent_volume: Option<String>,
    /// How its data was kept or came back.
    pub(crate) method: Method,
    /// How that ended.
    pub(crate) result: Outcome,
    /// Whether there is a good copy.
    pub(crate) good: bool,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<i64>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<i64>,
    /// The driver of a CSI snapshot, or the type of a native one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// The format of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uploader: Option<String>,
    /// The snapshot, as whoever has it names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot_handle: Option<String>,
    /// Why there is no data, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// All that the file or the cluster says.
    pub(crate) info: Value,
}

impl Volume {
    /// One that nothing is known of but its names.
    fn named(names: Names<'_>, info: Value) -> Self {
        let claim = pair(names.namespace, names.claim);
        let pod_volume = names
            .pod
            .map(|(namespace, pod, volume)| format!("{namespace}/{pod}:{volume}"));
        let volume = some(names.volume).or_else(|| some(names.original_volume));
        let name = claim.clone().or_else(|| pod_volume.clone()).or(volume);
        Self {
            name: name.unwrap_or_else(|| "<unknown>".to_owned()),
            claim,
            original_claim: None,
            pod_volume,
            persistent_volume: some(names.volume),
            original_persistent_volume: some(names.original_volume),
            method: Method::None,
            result: Outcome::Unknown,
            good: false,
            bytes: None,
            seconds: None,
            driver: None,
            uploader: None,
            snapshot_handle: None,
            reason: None,
            info,
        }
    }

    /// The same with how it ended.
    fn ended(mut self, result: Outcome) -> Self {
        self.result = result;
        self.good = matches!(result, Outcome::Succeeded | Outcome::Kept);
        self
    }

    /// It is known after all how it ended. One that goes on may be good already.
    pub(crate) fn ends(&mut self, result: Outcome, reason: Option<String>) {
        self.result = result;
        self.good |= matches!(result, Outcome::Succeeded | Outcome::Kept);
        self.reason = reason.filter(|reason| !reason.is_empty());
    }

    /// Whoever has the data: driver, type or uploader.
    fn by(&self) -> Option<&str> {
        self.driver.as_deref().or(self.uploader.as_deref())
    }

    fn size(&self) -> Option<String> {
        let bytes = u64::try_from(self.bytes?).ok()?;
        Some(HumanBytes(bytes).to_string())
    }

    fn time(&self) -> Option<String> {
        let seconds = self.seconds?;
        Some(match seconds {
            ..60 => format!("{seconds}s"),
            60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
            _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        })
    }
}

/// What a volume is called.
#[derive(Default)]
struct Names<'a> {
    namespace: Option<&'a str>,
    claim: Option<&'a str>,
    /// Namespace, pod, volume.
    pod: Option<(&'a str, &'a str, &'a str)>,
    volume: Option<&'a str>,
    original_volume: Option<&'a str>,
}

/// `<namespace>/<name>`, if there is a name.
fn pair(namespace: Option<&str>, name: Option<&str>) -> Option<String> {
    let name = name.filter(|name| !name.is_empty())?;
    Some(format!("{}/{name}", namespace.unwrap_or_default()))
}

fn some(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

fn whole_seconds(from: Option<Time>, to: Option<Time>) -> Option<i64> {
    let seconds = to?.0.as_second() - from?.0.as_second();
    (seconds >= 0).then_some(seconds)
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortBy {
    /// Names of claims
    #[default]
    Name,
    /// Persistent volumes
    Volume,
    /// Methods, and names
    Method,
    /// Results, the worst first
    Result,
    /// Sizes, the largest first
    Size,
    /// Times, the longest first
    Time,
}

/// Puts volumes into an order; what is equal is in the order of names.
pub(crate) fn sort(volumes: &mut [Volume], by: SortBy) {
    volumes.sort_by(|a, b| (&a.name, &a.pod_volume).cmp(&(&b.name, &b.pod_volume)));
    match by {
        SortBy::Name => {}
        SortBy::Volume => volumes.sort_by_cached_key(|v| v.persistent_volume.clone()),
        SortBy::Method => volumes.sort_by_key(|volume| volume.method),
        SortBy::Result => volumes.sort_by_key(|volume| volume.result),
        SortBy::Size => volumes.sort_by_key(|volume| Reverse(volume.bytes)),
        SortBy::Time => volumes.sort_by_key(|volume| Reverse(volume.seconds)),
    }
}

/// Volumes by their methods, each group in the order of names; those without data come last.
pub(crate) fn by_method(volumes: &[Volume]) -> Vec<(&'static str, Vec<&Volume>)> {
    let mut sorted: Vec<&Volume> = volumes.iter().collect();
    sorted.sort_by(|a, b| (a.method, &a.name).cmp(&(b.method, &b.name)));
    let mut groups: Vec<(&'static str, Vec<&Volume>)> = Vec::new();
    for volume in sorted {
        let heading = volume.method.heading();
        match groups.last_mut() {
            Some((of, group)) if *of == heading => group.push(volume),
            _ => groups.push((heading, vec![volume])),
        }
    }
    groups
}

/// What a description says of a volume: labels and values.
pub(crate) fn facts(volume: &Volume) -> Vec<(&'static str, String)> {
    let pod = volume.pod_volume.clone().filter(|pod| *pod != volume.name);
    [
        ("From Claim", volume.original_claim.clone()),
        ("Pod Volume", pod),
        ("Persistent Volume", volume.persistent_volume.clone()),
        (
            "Old Persistent Volume",
            volume.original_persistent_volume.clone(),
        ),
        ("Snapshot", volume.snapshot_handle.clone()),
        ("Size", volume.size()),
        ("Driver", volume.driver.clone()),
        ("Uploader", volume.uploader.clone()),
        ("Duration", volume.time()),
        ("Result", Some(volume.result.to_string())),
        ("Reason", volume.reason.clone()),
    ]
    .into_iter()
    .filter_map(|(label, value)| Some((label, value?)))
    .collect()
}

#[cfg(test)]
mod tests;
