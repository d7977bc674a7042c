//! What became of each volume of a backup or a restore, in one shape for every method: a row of a table,
//! a part of a description, an object for programs.

mod backup;
mod moved;
mod print;
mod restore;

pub(crate) use print::{Source, VolumesArgs, print};

use std::{cmp::Reverse, fmt};

use bowline_api::{Time, files::VolumeResult, v1::DataPathPhase};
use indicatif::HumanBytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::pace::{Pace, State, Transfer};

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
    /// Bytes that were new to the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incremental_bytes: Option<i64>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<i64>,
    /// The driver of a CSI snapshot, or the type of a native one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// Who moved the data of a CSI snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mover: Option<String>,
    /// The format of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uploader: Option<String>,
    /// The snapshot, as whoever has it names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot_handle: Option<String>,
    /// Why there is no data, or what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// How far the copy is, while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
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
            incremental_bytes: None,
            seconds: None,
            driver: None,
            mover: None,
            uploader: None,
            snapshot_handle: None,
            reason: None,
            progress: None,
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

    /// The cluster knows more of it: how far it is, or how it ended.
    pub(crate) fn learn(&mut self, live: &Self) {
        let reason = match live.good {
            true => live.reason.clone(),
            false => live.reason.clone().or_else(|| self.reason.clone()),
        };
        self.ends(live.result, reason);
        self.progress.clone_from(&live.progress);
        self.bytes = live.bytes.or(self.bytes);
        self.incremental_bytes = live.incremental_bytes.or(self.incremental_bytes);
        self.seconds = live.seconds.or(self.seconds);
        if live.snapshot_handle.is_some() {
            self.snapshot_handle.clone_from(&live.snapshot_handle);
        }
    }

    /// Whoever has the data: driver, type, uploader, or `<mover>/<uploader>`.
    fn by(&self) -> Option<String> {
        match (self.method, &self.mover, &self.uploader) {
            (Method::DataMovement, Some(mover), Some(uploader)) => {
                Some(format!("{mover}/{uploader}"))
            }
            (Method::DataMovement, Some(mover), None) => Some(mover.clone()),
            _ => self.driver.clone().or_else(|| self.uploader.clone()),
        }
    }

    fn size(&self) -> Option<String> {
        human(self.bytes)
    }

    /// `300.00 MiB (12.00 MiB new)`.
    fn sizes(&self) -> Option<String> {
        let size = self.size()?;
        Some(match self.incremental() {
            Some(new) => format!("{size} ({new} new)"),
            None => size,
        })
    }

    fn incremental(&self) -> Option<String> {
        human(self.incremental_bytes.filter(|bytes| *bytes > 0))
    }

    /// How far it is, why there is no data, or what went wrong.
    fn remark(&self) -> String {
        let progress = self.progress.as_ref().map(ToString::to_string);
        let reason = self
            .reason
            .as_ref()
            .and_then(|reason| reason.lines().next());
        let words = [progress, reason.map(str::to_owned)];
        words.into_iter().flatten().collect::<Vec<_>>().join("; ")
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

fn human(bytes: Option<i64>) -> Option<String> {
    let bytes = u64::try_from(bytes?).ok()?;
    Some(HumanBytes(bytes).to_string())
}

/// How far a copy is that goes on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    /// Where it stands.
    phase: String,
    /// The node that does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(flatten)]
    pace: Pace,
}

impl Progress {
    /// Nothing if it is over.
    fn of(phase: &str, node: Option<&str>, transfer: &Transfer, now: Timestamp) -> Option<Self> {
        (transfer.state != State::Over).then(|| Self {
            phase: phase.to_owned(),
            node: some(node),
            pace: transfer.pace(now),
        })
    }
}

/// `InProgress on n1: 33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phase)?;
        if let Some(node) = &self.node {
            write!(f, " on {node}")?;
        }
        match self.pace.words() {
            Some(words) => write!(f, ": {words}"),
            None => Ok(()),
        }
    }
}

/// A copy that is an object of the cluster.
pub(crate) trait Copied {
    /// Its volume, as it is now.
    fn volume(&self, now: Timestamp) -> Volume;
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
        ("Incremental Size", volume.incremental()),
        ("Driver", volume.driver.clone()),
        ("Data Mover", volume.mover.clone()),
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
