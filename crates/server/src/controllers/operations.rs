//! What plugins go on with after a backup or restore has called them: asked how far they are, ended
//! when they take too long.

pub(super) mod movements;
pub(super) mod snapshots;

use std::time::Duration;

use bowline_api::{
    Time,
    files::{
        BackupOperation, OperationPhase, OperationStatus, ResourceIdentifier, RestoreOperation,
    },
};
use bowline_plugin::{Error, host::Plugins, kinds::Progress};
use bytes::Bytes;
use futures::future;
use jiff::{SignedDuration, Timestamp};

const TIMED_OUT: &str = "Asynchronous action timed out";
/// A plugin that hangs is left alone for now after this, so that others have their turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whose operations they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Backup,
    Restore,
}

/// An operation to ask about.
pub(super) struct Asked<'a> {
    pub(super) action: &'a str,
    pub(super) id: &'a str,
    pub(super) item: &'a ResourceIdentifier,
    pub(super) status: &'a mut OperationStatus,
}

impl<'a> From<&'a mut BackupOperation> for Asked<'a> {
    fn from(operation: &'a mut BackupOperation) -> Self {
        Self {
            action: &operation.spec.backup_item_action,
            id: &operation.spec.operation_id,
            item: &operation.spec.resource_identifier,
            status: &mut operation.status,
        }
    }
}

impl<'a> From<&'a mut RestoreOperation> for Asked<'a> {
    fn from(operation: &'a mut RestoreOperation) -> Self {
        Self {
            action: &operation.spec.restore_item_action,
            id: &operation.spec.operation_id,
            item: &operation.spec.resource_identifier,
            status: &mut operation.status,
        }
    }
}

impl Asked<'_> {
    /// Whether a plugin is to be asked; else the server sees for itself.
    fn is_of_plugin(&self) -> bool {
        !snapshots::is_snapshot(self) && !movements::is_movement(self.action)
    }
}

/// Whether an operation is over.
pub(super) fn is_over(status: &OperationStatus) -> bool {
    let phase = status.phase.as_ref();
    matches!(
        phase,
        Some(OperationPhase::Completed | OperationPhase::Failed)
    )
}

/// How many there are in a phase; none for zero, as statuses have it.
pub(super) fn count<'a>(
    statuses: impl Iterator<Item = &'a OperationStatus>,
    phase: &OperationPhase,
) -> Option<i64> {
    let found = statuses.filter(|status| status.phase.as_ref() == Some(phase));
    i64::try_from(found.count()).ok().filter(|n| *n > 0)
}

/// Asks about all of plugins that are not over; whether anything has changed. `owner` is the backup or restore as
/// plugins read it.
pub(super) async fn ask<'a>(
    plugins: &Plugins,
    of: Of,
    owner: &Bytes,
    operations: impl Iterator<Item = Asked<'a>>,
    limit: Duration,
) -> bool {
    let open = operations.filter(|asked| !is_over(asked.status) && asked.is_of_plugin());
    let questions = open.map(|asked| async move {
        let answer = progress(plugins, of, &asked, owner);
        let answer = tokio::time::timeout(PATIENCE, answer).await.ok();
        let told = take_in(asked.status, answer, limit, Timestamp::now());
        if told.is_late {
            try_cancel(plugins, of, &asked, owner).await;
        }
        told.is_changed
    });
    let answers = future::join_all(questions).await;
    answers.contains(&true)
}

/// Ends all of plugins that are not over.
pub(super) async fn cancel_all<'a>(
    plugins: &Plugins,
    of: Of,
    owner: &Bytes,
    operations: impl Iterator<Item = Asked<'a>>,
) {
    let open = operations.filter(|asked| !is_over(asked.status) && asked.is_of_plugin());
    let cancelling = open.map(|asked| async move {
        try_cancel(plugins, of, &asked, owner).await;
    });
    future::join_all(cancelling).await;
}

async fn try_cancel(plugins: &Plugins, of: Of, asked: &Asked<'_>, owner: &Bytes) {
    let cancelling = cancel(plugins, of, asked, owner);
    let done = tokio::time::timeout(PATIENCE, cancelling).await;
    if !matches!(done, Ok(Ok(()))) {
        tracing::warn!(action = asked.action, id = asked.id, "cannot be cancelled");
    }
}

async fn progress(
    plugins: &Plugins,
    of: Of,
    asked: &Asked<'_>,
    owner: &Bytes,
) -> Result<Progress, Error> {
    match of {
        Of::Backup => {
            let action = plugins.backup_item_action(asked.action)?;
            action.progress(asked.id, owner).await
        }
        Of::Restore => {
            let action = plugins.restore_item_action(asked.action)?;
            action.progress(asked.id, owner).await
        }
    }
}

async fn cancel(plugins: &Plugins, of: Of, asked: &Asked<'_>, owner: &Bytes) -> Result<(), Error> {
    match of {
        Of::Backup => {
            let action = plugins.backup_item_action(asked.action)?;
            action.cancel(asked.id, owner).await
        }
        Of::Restore => {
            let action = plugins.restore_item_action(asked.action)?;
            action.cancel(asked.id, owner).await
        }
    }
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    is_changed: bool,
    /// It has taken too long and is to be ended.
    is_late: bool,
}

/// Takes an answer in; none if there was no answer yet.
fn take_in(
    status: &mut OperationStatus,
    answer: Option<Result<Progress, Error>>,
    limit: Duration,
    now: Timestamp,
) -> Told {
    let old = status.clone();
    let mut is_late = false;
    match answer {
        Some(Err(error)) => fail(status, error.to_string(), now),
        Some(Ok(progress)) => {
            adopt(status, &progress);
            if progress.is_completed && progress.error.is_empty() {
                status.phase = Some(OperationPhase::Completed);
            } else if progress.is_completed {
                fail(status, progress.error, now);
            }
        }
        None => {}
    }
    if !is_over(status) {
        let created = status.created.as_ref().map(|time| time.0);
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        is_late = created.is_some_and(|created| now.duration_since(created) > limit);
        if is_late {
            fail(status, TIMED_OUT.to_owned(), now);
        } else if status.started.is_some() {
            status.phase = Some(OperationPhase::InProgress);
        }
    }
    Told {
        is_changed: *status != old,
        is_late,
    }
}

fn adopt(status: &mut OperationStatus, progress: &Progress) {
    let number = |n: i64| (n != 0).then_some(n);
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    status.n_completed = number(progress.done);
    status.n_total = number(progress.total);
    status.operation_units = text(&progress.units);
    status.description = text(&progress.description);
    status.started = progress.started.map(Time).or(status.started);
    status.updated = progress.updated.map(Time).or(status.updated);
}

fn fail(status: &mut OperationStatus, why: String, now: Timestamp) {
    status.phase = Some(OperationPhase::Failed);
    status.error = Some(why);
    status.updated = status.updated.or(Some(Time(now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(100);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn new() -> OperationStatus {
        OperationStatus {
            phase: Some(OperationPhase::New),
            created: Some(Time(at(1000))),
            ..OperationStatus::default()
        }
    }

    #[test]
    fn answers_move_an_operation_on() {
        let going = Progress {
            done: 3,
            total: 9,
            units: "Bytes".to_owned(),
            ..Progress::default()
        };
        let begun = Progress {
            started: Some(at(1001)),
            ..going.clone()
        };
        let over = Progress {
            is_completed: true,
            ..begun.clone()
        };
        let broken = Progress {
            error: "no room".to_owned(),
            ..over.clone()
        };
        let cases = [
            (None, 1010, OperationPhase::New, None, false, false),
            (
                Some(Ok(going)),
                1010,
                OperationPhase::New,
                None,
                true,
                false,
            ),
            (
                Some(Ok(begun.clone())),
                1010,
                OperationPhase::InProgress,
                None,
                true,
                false,
            ),
            (
                Some(Ok(begun)),
                1101,
                OperationPhase::Failed,
                Some(TIMED_OUT),
                true,
                true,
            ),
            (
                None,
                1101,
                OperationPhase::Failed,
                Some(TIMED_OUT),
                true,
                true,
            ),
            (
                Some(Ok(over)),
                1101,
                OperationPhase::Completed,
                None,
                true,
                false,
            ),
            (
                Some(Ok(broken)),
                1010,
                OperationPhase::Failed,
                Some("no room"),
                true,
                false,
            ),
            (
                Some(Err(Error::new("gone"))),
                1010,
                OperationPhase::Failed,
                Some("gone"),
                true,
                false,
            ),
        ];
        for (answer, now, phase, error, is_changed, is_late) in cases {
            let mut status = new();
            let told = take_in(&mut status, answer, LIMIT, at(now));
            let expected = Told {
                is_changed,
                is_late,
            };
            assert_eq!(told, expected, "{status:?}");
            assert_eq!(
                (status.phase, status.error.as_deref()),
                (Some(phase), error)
            );
        }
    }

    #[test]
    fn the_same_answer_twice_changes_nothing() {
        let going = || {
            Some(Ok(Progress {
                done: 3,
                started: Some(at(1001)),
                ..Progress::default()
            }))
        };
        let mut status = new();
        assert!(take_in(&mut status, going(), LIMIT, at(1002)).is_changed);
        assert!(!take_in(&mut status, going(), LIMIT, at(1003)).is_changed);
    }
}
