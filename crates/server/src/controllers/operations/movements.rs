//! Operations that wait for data to be moved: no plugin is asked, but the DataUploads and DataDownloads
//! themselves, all of a backup or restore with one call.

use std::{collections::HashMap, time::Duration};

use bowline_api::{
    Time, VeleroResource,
    names::label,
    v1::{DataMoveProgress, DataPathPhase},
    v2alpha1::{DataDownload, DataUpload},
};
use bowline_engine::movement::{DOWNLOAD_ACTION, UPLOAD_ACTION};
use bowline_plugin::{Error, kinds::Progress};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Asked, is_over, take_in};
use crate::{Context, Result};

/// How often movements are looked at, at the longest.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// What is counted.
const UNITS: &str = "Bytes";

/// A movement of data, in either direction.
pub(crate) trait Movement:
    VeleroResource + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug
{
    /// The action whose operations they are.
    const ACTION: &'static str;
    /// The label that has the uid of the backup or restore.
    const OWNER: &'static str;

    /// How far it is.
    fn state(&self) -> State;
    /// Whether it is to be stopped.
    fn is_cancelled(&self) -> bool;
}

/// How far a movement is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    phase: DataPathPhase,
    message: String,
    bytes: DataMoveProgress,
    started: Option<Time>,
    completed: Option<Time>,
}

macro_rules! movement {
    ($kind:ty, $action:expr, $owner:expr) => {
        impl Movement for $kind {
            const ACTION: &'static str = $action;
            const OWNER: &'static str = $owner;

            fn state(&self) -> State {
                let status = self.status.clone().unwrap_or_default();
                State {
                    phase: status.phase.unwrap_or_default(),
                    message: status.message.unwrap_or_default(),
                    bytes: status.progress.unwrap_or_default(),
                    started: status.start_timestamp,
                    completed: status.completion_timestamp,
                }
            }

            fn is_cancelled(&self) -> bool {
                self.spec.cancel == Some(true)
            }
        }
    };
}

movement!(DataUpload, UPLOAD_ACTION, label::BACKUP_UID);
movement!(DataDownload, DOWNLOAD_ACTION, label::RESTORE_UID);

/// Whether an operation is of this kind.
pub(crate) fn is_movement(action: &str) -> bool {
    [UPLOAD_ACTION, DOWNLOAD_ACTION].contains(&action)
}

/// Looks at all movements of a backup or restore whose operations are not over; whether anything has
/// changed. Those that take too long are cancelled.
pub(crate) async fn ask<'a, K: Movement>(
    ctx: &Context,
    owner: &str,
    operations: impl Iterator<Item = Asked<'a>>,
    limit: Duration,
) -> bool {
    let is_open = |asked: &Asked<'_>| asked.action == K::ACTION && !is_over(asked.status);
    let open: Vec<Asked<'_>> = operations.filter(is_open).collect();
    if open.is_empty() {
        return false;
    }
    let found = match of::<K>(ctx, owner).await {
        Ok(found) => found,
        // Nobody can tell now, and what is late could not be ended either.
        Err(error) => {
            tracing::debug!("{}", error.chain());
            return false;
        }
    };
    let now = Timestamp::now();
    let mut is_changed = false;
    for asked in open {
        let movement = found.get(asked.id);
        let answer = match movement {
            Some(movement) => Ok(progress::<K>(&movement.state(), now)),
            None => Err(gone::<K>(&asked)),
        };
        let told = take_in(asked.status, Some(answer), limit, now);
        is_changed |= told.is_changed;
        if told.is_late
            && let Some(movement) = movement
            && let Err(error) = cancel(ctx, movement).await
        {
            tracing::warn!("{}", error.chain());
        }
    }
    is_changed
}

/// Ends all movements of a backup or restore that are not over.
pub(crate) async fn cancel_all<K: Movement>(ctx: &Context, owner: &str) -> Result<()> {
    let found = match of::<K>(ctx, owner).await {
        // A cluster need not have the kind.
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    for movement in found.values() {
        cancel(ctx, movement).await?;
    }
    Ok(())
}

/// The movements of a backup or restore, by their operations.
async fn of<K: Movement>(ctx: &Context, owner: &str) -> Result<HashMap<String, K>> {
    let labels = format!("{}={owner}", K::OWNER);
    let mut all = ctx.list::<K>(&labels).await?;
    // Of two of one operation, the one that goes is of a try before.
    all.sort_by_key(|movement| {
        let is_going = movement.meta().deletion_timestamp.is_some();
        (!is_going, movement.creation_timestamp().map(|time| time.0))
    });
    let all = all.into_iter();
    let by_operation = |movement: K| {
        let operation = movement.labels().get(label::ASYNC_OPERATION_ID).cloned();
        Some((operation?, movement))
    };
    Ok(all.filter_map(by_operation).collect())
}

/// Asks for a movement to be given up, unless it is over or was asked for before.
async fn cancel<K: Movement>(ctx: &Context, movement: &K) -> Result<()> {
    if movement.is_cancelled() || movement.state().phase.is_over() {
        return Ok(());
    }
    let name = movement.name_any();
    let patch = Patch::Merge(json!({"spec": {"cancel": true}}));
    let api = ctx.api::<K>();
    match api.patch(&name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done
            .map(drop)
            .map_err(crate::Error::api(format!("cancel {} {name}", K::KIND))),
    }
}

/// How far a movement is, as plugins say it.
fn progress<K: Movement>(state: &State, now: Timestamp) -> Progress {
    let phase = match &state.phase {
        DataPathPhase::New => return Progress::default(),
        DataPathPhase::Other(other) if other.is_empty() => return Progress::default(),
        phase => phase,
    };
    let going = Progress {
        done: state.bytes.bytes_done.unwrap_or_default(),
        total: state.bytes.total_bytes.unwrap_or_default(),
        units: UNITS.to_owned(),
        description: phase.as_str().to_owned(),
        started: state.started.map(|time| time.0),
        ..Progress::default()
    };
    let over = |error: String| Progress {
        is_completed: true,
        updated: Some(state.completed.map_or(now, |time| time.0)),
        error,
        ..going.clone()
    };
    let message = state.message.as_str();
    match phase {
        DataPathPhase::Completed => over(String::new()),
        DataPathPhase::Failed if message.is_empty() => over(format!("{} failed", K::KIND)),
        DataPathPhase::Failed => over(message.to_owned()),
        DataPathPhase::Canceled if message.is_empty() => over(format!("{} is canceled", K::KIND)),
        DataPathPhase::Canceled => over(format!("{} is canceled: {message}", K::KIND)),
        _ => going,
    }
}

fn gone<K: Movement>(asked: &Asked<'_>) -> Error {
    let item = asked.item;
    Error::new(format!(
        "the {} of {} {}/{} is gone",
        K::KIND,
        item.resource,
        item.namespace,
        item.name
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn told(status: Value) -> Progress {
        let download = json!({"spec": {}, "status": status});
        let download: DataDownload = serde_json::from_value(download).unwrap();
        progress::<DataDownload>(&download.state(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn phases_become_progress() {
        let at = |second: i64| Some(Timestamp::from_second(second).unwrap());
        let going = Progress {
            done: 3,
            total: 9,
            units: "Bytes".to_owned(),
            description: "InProgress".to_owned(),
            started: at(60),
            ..Progress::default()
        };
        let bytes = json!({"bytesDone": 3, "totalBytes": 9});
        let status = |phase: &str, rest: Value| {
            let mut status = json!({"phase": phase, "progress": bytes, "startTimestamp": "1970-01-01T00:01:00Z"});
            let rest = rest.as_object().unwrap().clone();
            status.as_object_mut().unwrap().extend(rest);
            status
        };
        for nothing in [json!(null), json!({}), json!({"phase": "New"})] {
            assert_eq!(told(nothing), Progress::default());
        }
        assert_eq!(told(status("InProgress", json!({}))), going);
        assert!(!told(status("Canceling", json!({}))).is_completed);
        let end = json!({"completionTimestamp": "1970-01-01T00:02:00Z"});
        let over = |phase: &str, error: &str| Progress {
            description: phase.to_owned(),
            is_completed: true,
            updated: at(120),
            error: error.to_owned(),
            ..going.clone()
        };
        let with = |message: &str| {
            let mut end = end.clone();
            end["message"] = json!(message);
            end
        };
        for (phase, rest, error) in [
            ("Completed", with("a remark"), ""),
            ("Failed", with("disk on fire"), "disk on fire"),
            ("Failed", end.clone(), "DataDownload failed"),
            ("Canceled", end.clone(), "DataDownload is canceled"),
            (
                "Canceled",
                with("no time"),
                "DataDownload is canceled: no time",
            ),
        ] {
            assert_eq!(told(status(phase, rest)), over(phase, error));
        }
        let upload = serde_json::from_value::<DataUpload>(
            json!({"spec": {}, "status": {"phase": "Canceled"}}),
        );
        let state = upload.unwrap().state();
        let told = progress::<DataUpload>(&state, Timestamp::UNIX_EPOCH);
        assert_eq!(told.error, "DataUpload is canceled");
        assert_eq!(told.updated, Some(Timestamp::UNIX_EPOCH));
    }
}
