//! Operations that wait for CSI snapshots: no plugin is asked, but the snapshots themselves.

use std::time::Duration;

use bowline_engine::csi::operation::{ACTION, Id, State, state};
use bowline_plugin::{Error, kinds::Progress};
use futures::future;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{Asked, is_over, take_in};
use crate::{
    Context,
    csi::{content_of, snapshots, value},
};

/// How often snapshots are looked at, at the longest.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// Snapshots that are looked at at the same time.
const PARALLEL: usize = 16;

/// Whether an operation is of this kind.
pub(crate) fn is_snapshot(asked: &Asked<'_>) -> bool {
    asked.action == ACTION
}

/// Looks at all that are not over; whether anything has changed.
pub(crate) async fn ask<'a>(
    ctx: &Context,
    operations: impl Iterator<Item = Asked<'a>>,
    limit: Duration,
) -> bool {
    let room = Semaphore::new(PARALLEL);
    let room = &room;
    let open = operations.filter(|asked| is_snapshot(asked) && !is_over(asked.status));
    let looks = open.map(|asked| async move {
        let _room = room.acquire().await;
        let answer = progress(ctx, asked.id).await;
        take_in(asked.status, answer, limit, Timestamp::now()).is_changed
    });
    let looks = future::join_all(looks).await;
    looks.contains(&true)
}

/// How far a snapshot is; none when nobody can tell now.
async fn progress(ctx: &Context, id: &str) -> Option<Result<Progress, Error>> {
    let Some(id) = Id::parse(id) else {
        return Some(Err(Error::new(format!("invalid operation ID {id}"))));
    };
    let found = snapshots(&ctx.client, &id.namespace)
        .get_opt(&id.name)
        .await;
    let snapshot = match found {
        Ok(Some(snapshot)) => value(&snapshot),
        Ok(None) => {
            let why = format!("volumesnapshot {}/{} not found", id.namespace, id.name);
            return Some(Err(Error::new(why)));
        }
        Err(error) => {
            tracing::debug!(name = id.name, "read VolumeSnapshot: {error}");
            return None;
        }
    };
    let content = match content_of(&ctx.client, &snapshot).await {
        Ok(content) => content,
        Err(error) => {
            tracing::debug!(name = id.name, "{}", error.chain());
            return None;
        }
    };
    let going = Progress {
        started: Some(id.started),
        ..Progress::default()
    };
    let over = Progress {
        is_completed: true,
        updated: Some(Timestamp::now()),
        ..going.clone()
    };
    Some(Ok(match state(&snapshot, content.as_ref()) {
        State::Going(wrong) => Progress {
            description: wrong.unwrap_or_default(),
            ..going
        },
        State::Ready => over,
        State::Failed(error) => Progress { error, ..over },
    }))
}
