//! ServerStatusRequest: says which version runs here and what it can do.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    Time,
    v1::{
        PluginInfo, PluginKind, ServerStatusRequest, ServerStatusRequestPhase as Phase,
        ServerStatusRequestStatus,
    },
};
use jiff::Timestamp;
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, at};
use crate::{Context, Result};

/// The controller's name.
pub const NAME: &str = "server-status-request";

/// The server's version, spelled as Velero spells its own.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What is built in, by kind and registered name. Stores come first, then what works on items.
pub const BUILT_IN: &[(PluginKind, &str)] = &[
    (PluginKind::ObjectStore, "velero.io/aws"),
    (PluginKind::ObjectStore, "velero.io/azure"),
    (PluginKind::ObjectStore, "velero.io/filesystem"),
    (PluginKind::ObjectStore, "velero.io/gcp"),
    (PluginKind::BackupItemAction, "velero.io/pod"),
    (PluginKind::BackupItemAction, "velero.io/pv"),
    (PluginKind::BackupItemAction, "velero.io/service-account"),
];

/// How long an answer can be read.
const KEPT: Duration = Duration::from_secs(60);

/// Answers requests until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let requests = Requests {
        ctx: Arc::clone(&ctx),
    };
    super::run(&ctx, requests).await;
}

struct Requests {
    ctx: Arc<Context>,
}

#[derive(Debug, PartialEq)]
enum Step {
    Answer,
    Keep(Timestamp),
    Delete,
}

fn next(request: &ServerStatusRequest, now: Timestamp) -> Step {
    let status = request.status.as_ref();
    if status.and_then(|status| status.phase.as_ref()) != Some(&Phase::Processed) {
        return Step::Answer;
    }
    let processed = status.and_then(|status| status.processed_timestamp);
    match processed.and_then(|time| time.0.checked_add(KEPT).ok()) {
        Some(end) if end > now => Step::Keep(end),
        _ => Step::Delete,
    }
}

fn answer(now: Timestamp) -> ServerStatusRequestStatus {
    let plugin = |(kind, name): &(PluginKind, &str)| PluginInfo {
        name: (*name).to_owned(),
        kind: kind.clone(),
        ..Default::default()
    };
    ServerStatusRequestStatus {
        phase: Some(Phase::Processed),
        processed_timestamp: Some(Time(now)),
        server_version: Some(VERSION.to_owned()),
        plugins: Some(BUILT_IN.iter().map(plugin).collect()),
        ..Default::default()
    }
}

impl Reconciler for Requests {
    type Object = ServerStatusRequest;
    const NAME: &'static str = NAME;

    async fn reconcile(self: Arc<Self>, request: Arc<ServerStatusRequest>) -> Result<Action> {
        let now = self.ctx.now();
        match next(&request, now) {
            Step::Answer => {
                let mut new = ServerStatusRequest::clone(&request);
                new.status = Some(answer(now));
                self.ctx.update(&*request, &new).await?;
                Ok(Action::requeue(KEPT))
            }
            Step::Keep(end) => Ok(at(end, now)),
            Step::Delete => {
                self.ctx.delete(&*request).await?;
                tracing::debug!(request = request.name_any(), "status request deleted");
                Ok(Action::await_change())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_a_minute() {
        let now = Timestamp::from_second(1000).unwrap();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (phase, processed, expected) in [
            (None, None, Step::Answer),
            (Some(Phase::New), None, Step::Answer),
            (Some(Phase::Processed), Some(990), Step::Keep(at(1050))),
            (Some(Phase::Processed), Some(940), Step::Delete),
            (Some(Phase::Processed), None, Step::Delete),
        ] {
            let mut request = ServerStatusRequest::default();
            request.status_mut().phase = phase;
            request.status_mut().processed_timestamp = processed.map(|time| Time(at(time)));
            assert_eq!(next(&request, now), expected);
        }
    }

    #[test]
    fn the_version_has_a_v() {
        let answer = answer(Timestamp::UNIX_EPOCH);
        assert!(answer.server_version.unwrap().starts_with("v0."));
        assert!(!answer.plugins.unwrap().is_empty());
    }
}
