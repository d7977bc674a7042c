//! ServerStatusRequest: says which version runs here and what it can do.

use std::{sync::Arc, time::Duration};

use bowline_api::{
    Time,
    v1::{
        PluginInfo, PluginKind, ServerStatusRequest, ServerStatusRequestPhase as Phase,
        ServerStatusRequestStatus,
    },
};
use bowline_plugin::{
    host::{Entry, Registry},
    kinds::Kind,
};
use jiff::Timestamp;
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, at};
use crate::{Context, Result};

/// The controller's name.
pub const NAME: &str = "server-status-request";

/// The server's version, spelled as Velero spells its own.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What is built in, by kind and the name that Velero registers for the same thing. Stores come
/// first, then what works on items. Pods that share a claim are one block, hence the block actions.
pub const BUILT_IN: &[(PluginKind, &[&str])] = &[
    (
        PluginKind::ObjectStore,
        &[
            "velero.io/aws",
            "velero.io/azure",
            "velero.io/filesystem",
            "velero.io/gcp",
        ],
    ),
    (
        PluginKind::BackupItemAction,
        &["velero.io/pod", "velero.io/pv", "velero.io/service-account"],
    ),
    (
        PluginKind::BackupItemActionV2,
        &[
            "velero.io/csi-pvc-backupper",
            "velero.io/csi-volumesnapshot-backupper",
            "velero.io/csi-volumesnapshotclass-backupper",
            "velero.io/csi-volumesnapshotcontent-backupper",
        ],
    ),
    (
        PluginKind::DeleteItemAction,
        &["velero.io/csi-volumesnapshotcontent-delete"],
    ),
    (
        PluginKind::RestoreItemAction,
        &[
            "velero.io/add-pvc-from-pod",
            "velero.io/admission-webhook-configuration",
            "velero.io/apiservice",
            "velero.io/change-image-name",
            "velero.io/change-storage-class",
            "velero.io/cluster-role-bindings",
            "velero.io/crd-preserve-fields",
            "velero.io/dataupload",
            "velero.io/init-restore-hook",
            "velero.io/job",
            "velero.io/pod",
            "velero.io/pod-volume-restore",
            "velero.io/pvc",
            "velero.io/role-bindings",
            "velero.io/secret",
            "velero.io/service",
            "velero.io/service-account",
        ],
    ),
    (
        PluginKind::RestoreItemActionV2,
        &[
            "velero.io/csi-pvc-restorer",
            "velero.io/csi-volumesnapshot-restorer",
            "velero.io/csi-volumesnapshotclass-restorer",
            "velero.io/csi-volumesnapshotcontent-restorer",
        ],
    ),
    (
        PluginKind::ItemBlockAction,
        &["velero.io/pod", "velero.io/pvc"],
    ),
];

/// Whether something of these kinds is built in; a plugin with its name is not used.
pub(crate) fn is_built_in(kinds: &[Kind], name: &str) -> bool {
    let mut built_in = BUILT_IN.iter();
    built_in.any(|(kind, names)| {
        let is_wanted = kinds.iter().any(|wanted| wanted.name() == kind.as_str());
        is_wanted && names.contains(&name)
    })
}

/// How long an answer waits for plugins that have not yet said what they are.
const PATIENCE: Duration = Duration::from_secs(3);

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

fn answer(now: Timestamp, found: &[Entry]) -> ServerStatusRequestStatus {
    ServerStatusRequestStatus {
        phase: Some(Phase::Processed),
        processed_timestamp: Some(Time(now)),
        server_version: Some(VERSION.to_owned()),
        plugins: Some(plugins(found)),
        ..Default::default()
    }
}

/// What is built in, and what plugins there are; each once.
fn plugins(found: &[Entry]) -> Vec<PluginInfo> {
    let built_in = BUILT_IN
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| (kind.clone(), *name)));
    let found = found
        .iter()
        .map(|entry| (PluginKind::from(entry.kind.name()), entry.name.as_str()));
    let mut plugins: Vec<PluginInfo> = Vec::new();
    for (kind, name) in built_in.chain(found) {
        if !plugins.iter().any(|it| it.kind == kind && it.name == name) {
            plugins.push(PluginInfo {
                name: name.to_owned(),
                kind,
                ..Default::default()
            });
        }
    }
    plugins
}

impl Requests {
    /// The plugins, or none while they are still being asked: whoever wants to know the version
    /// need not wait for them all.
    async fn registry(&self) -> Arc<Registry> {
        let registry = tokio::time::timeout(PATIENCE, self.ctx.plugins.registry()).await;
        registry.unwrap_or_else(|_| {
            tracing::warn!("a status is asked for, and plugins are still being looked for");
            Arc::default()
        })
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
                new.status = Some(answer(now, self.registry().await.entries()));
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
    use bowline_apiserver::ApiServer;
    use bowline_engine::{action, restore};
    use bowline_plugin::kinds::Kind;
    use bowline_vault::store::is_built_in;

    use super::*;

    fn names(kind: &PluginKind) -> Vec<&'static str> {
        let of = |(it, names): &(PluginKind, &'static [&'static str])| {
            (it == kind).then_some(names.to_vec())
        };
        BUILT_IN.iter().find_map(of).unwrap()
    }

    fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names
    }

    #[tokio::test]
    async fn what_is_listed_as_built_in_is_there_and_nothing_else() {
        let client = kube::Client::new(ApiServer::default(), "default");
        let backup = action::built_in(&client).await.unwrap();
        assert_eq!(
            names(&PluginKind::BackupItemAction),
            sorted(backup.iter().map(|action| action.name()))
        );
        let cluster = restore::action::Cluster {
            client,
            namespace: "velero".to_owned(),
            image: None,
            image_tag: String::new(),
            copies: Arc::default(),
            hooks: Arc::default(),
        };
        let restore = restore::action::built_in(&cluster).await.unwrap();
        assert_eq!(
            names(&PluginKind::RestoreItemAction),
            sorted(restore.iter().map(|action| action.name()))
        );
        for store in names(&PluginKind::ObjectStore) {
            assert!(is_built_in(store), "{store}");
        }
    }

    #[test]
    fn plugins_are_listed_once_and_after_what_is_built_in() {
        let entry = |kind, name: &str| Entry {
            kind,
            name: name.to_owned(),
            program: "/plugins/p".into(),
        };
        let plugins = plugins(&[
            entry(Kind::ObjectStore, "velero.io/aws"),
            entry(Kind::VolumeSnapshotter, "velero.io/aws"),
        ]);
        let is_aws = |plugin: &&PluginInfo| plugin.name == "velero.io/aws";
        let kinds: Vec<&str> = plugins
            .iter()
            .filter(is_aws)
            .map(|plugin| plugin.kind.as_str())
            .collect();
        assert_eq!(kinds, ["ObjectStore", "VolumeSnapshotter"]);
    }

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
        let answer = answer(Timestamp::UNIX_EPOCH, &[]);
        assert!(answer.server_version.unwrap().starts_with("v0."));
        assert!(!answer.plugins.unwrap().is_empty());
    }
}
