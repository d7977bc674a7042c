//! A restore of thousands of objects tells how far it is, and ends when its object goes.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, annotation, label},
    v1::{Restore, RestorePhase},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt, api::ListParams, config::Kubeconfig};
use serde_json::json;

use super::exchange::velero;
use crate::{
    fill::Fill,
    peer,
    relay::Relay,
    scene::Scene,
    servers::{self, Server},
    wait_for,
};

const OBJECTS: usize = 3000;
/// What a call takes longer than on this machine: a restore should not be over too soon.
const DELAY: Duration = Duration::from_millis(40);
const SOON: Duration = Duration::from_secs(60);

/// What a watch saw of a restore.
struct Seen {
    phase: RestorePhase,
    total: i64,
    done: i64,
    stage: Option<String>,
}

/// The story: Velero's command line restores with our server.
pub(super) async fn is_told(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("progress")?;
    peer::prepare(scene, &bucket).await?;
    let fill = Fill::of(&scene.fresh("fill"), OBJECTS);
    fill.make(&scene.client()).await?;
    let mut config = Kubeconfig::read_from(scene.bed().kubeconfig())?;
    let cluster = config.clusters.first_mut().and_then(|c| c.cluster.as_mut());
    let server = &mut cluster.context("no cluster")?.server;
    let to = server
        .as_deref()
        .and_then(|url| url.strip_prefix("https://"));
    let relay = Relay::start(to.context("no https address")?, DELAY).await?;
    *server = Some(format!("https://{}", relay.address));
    let kubeconfig = scene.folder().join("far-kubeconfig");
    std::fs::write(&kubeconfig, serde_json::to_vec(&config)?)?;
    let env = [("KUBECONFIG", &*kubeconfig.to_string_lossy())];
    let process = Server::Ours.start_with(scene, &[], &env).await?;
    let spec = json!({ "includedNamespaces": [format!("{}-*", fill.prefix)] });
    let backup = scene.fresh("backup");
    let ended = servers::back_up(&scene.client(), &backup, &spec)
        .await?
        .completed()?;

    let play = Play {
        scene,
        fill,
        backup,
    };
    let told = play.watched(ended.items()).await?;
    // Asked to go; and gone without being asked.
    for (name, force) in [("deleted", false), ("torn", true)] {
        let began = play.deleted(name, force).await?;
        let folder = bucket.folder().join("restores").join(scene.fresh(name));
        ensure!(!folder.exists(), "{} is there", folder.display());
        play.works(&format!("after-{name}")).await?;
        let left = play.restored(name).await?;
        ensure!(
            (began..OBJECTS / 5).contains(&left),
            "{name} has gone on: {began} ConfigMaps, and then {left}"
        );
    }
    process.check()?;
    process.stop().await?;
    peer::remove(scene).await?;
    Ok(told)
}

struct Play<'a> {
    scene: &'a Scene,
    fill: Fill,
    backup: String,
}

impl Play<'_> {
    /// Where a restore's objects go, as `--namespace-mappings` has it.
    fn mappings(&self, restore: &str, namespaces: usize) -> String {
        let pairs = (0..namespaces).map(|n| {
            let (from, to) = (&self.fill.prefix, self.scene.fresh(restore));
            format!("{from}-{n}:{to}-{n}")
        });
        pairs.collect::<Vec<_>>().join(",")
    }

    fn restores(&self) -> Api<Restore> {
        Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE)
    }

    /// A restore with Velero's command line, watched from its first to its last phase.
    async fn watched(&self, items: i64) -> anyhow::Result<String> {
        let name = self.scene.fresh("watched");
        let mappings = self.mappings("watched", self.fill.namespaces);
        let create = [
            "restore",
            "create",
            &name,
            "--from-backup",
            &self.backup,
            "--namespace-mappings",
            &mappings,
            "--wait",
        ];
        let (printed, seen) = tokio::join!(velero(self.scene, &create), self.watch(&name));
        let (printed, seen) = (printed?, seen?);
        ensure!(
            printed.contains("Restore completed with status: Completed"),
            "create --wait says {printed:?}"
        );
        let told = judge(&seen, items)?;
        let last = seen.last().context("nothing was seen")?;

        let describe = velero(self.scene, &["restore", "describe", &name]).await?;
        for text in [
            format!("Total items to be restored:  {}\n", last.total),
            format!("Items restored:              {}\n", last.done),
        ] {
            ensure!(describe.contains(&text), "no {text:?} in\n{describe}");
        }
        let logs = velero(self.scene, &["restore", "logs", &name]).await?;
        ensure!(logs.contains("level=info"), "the log is {logs:?}");
        let get = velero(self.scene, &["restore", "get", &name]).await?;
        ensure!(get.contains("Completed"), "get says {get}");
        Ok(told)
    }

    /// Everything that is seen of a restore. While it runs, `describe` says so.
    async fn watch(&self, name: &str) -> anyhow::Result<Vec<Seen>> {
        let mut last = wait_for("the restore", SOON, async || {
            Ok(self.restores().get_opt(name).await?)
        })
        .await?;
        let mut seen = Vec::new();
        let client = self.scene.client();
        let following = servers::follow(&client, &mut last, |restore: &Restore| {
            let status = restore.status.clone().unwrap_or_default();
            let progress = status.progress.unwrap_or_default();
            seen.push(Seen {
                phase: status.phase.unwrap_or_default(),
                total: progress.total_items.unwrap_or_default(),
                done: progress.items_restored.unwrap_or_default(),
                stage: restore
                    .annotations()
                    .get(annotation::RESTORE_STAGE)
                    .cloned(),
            });
        });
        let described = async {
            self.runs(name).await?;
            let text = velero(self.scene, &["restore", "describe", name]).await?;
            for part in ["InProgress", "Estimated total items to be restored:"] {
                ensure!(text.contains(part), "no {part:?} in\n{text}");
            }
            anyhow::Ok(())
        };
        let (followed, described) = tokio::join!(following, described);
        followed?;
        described?;
        Ok(seen)
    }

    /// Waits until a restore has done something. Returns it.
    async fn runs(&self, name: &str) -> anyhow::Result<Restore> {
        wait_for("the restore to tell something", SOON, async || {
            let restore = self.restores().get(name).await?;
            let status = restore.status.clone().unwrap_or_default();
            ensure!(!servers::Work::is_over(&restore), "it is over");
            let done = status.progress.and_then(|p| p.items_restored);
            Ok((done.unwrap_or_default() > 0).then_some(restore))
        })
        .await
    }

    /// Removes a restore while it runs. Returns the ConfigMaps that it had made.
    async fn deleted(&self, name: &str, force: bool) -> anyhow::Result<usize> {
        let (scene, full) = (self.scene, self.scene.fresh(name));
        let mappings = self.mappings(name, self.fill.namespaces);
        let create = [
            "restore",
            "create",
            &full,
            "--from-backup",
            &self.backup,
            "--namespace-mappings",
            &mappings,
        ];
        velero(scene, &create).await?;
        self.runs(&full).await?;
        let at = ["-n", DEFAULT_NAMESPACE];
        if force {
            let none = r#"{"metadata":{"finalizers":null}}"#;
            let patch = ["patch", "restore", &full, "--type=merge", "-p", none];
            scene.kubectl(&[&at[..], &patch].concat()).await?;
        }
        let made = self.restored(name).await?;
        let delete = ["delete", "restore", &full, "--timeout=30s"];
        scene.kubectl(&[&at[..], &delete].concat()).await?;
        let gone = self.restores().get_opt(&full).await?.is_none();
        ensure!(gone, "the restore is there");
        Ok(made)
    }

    /// ConfigMaps that a restore has made.
    async fn restored(&self, name: &str) -> anyhow::Result<usize> {
        let maps: Api<ConfigMap> = Api::all(self.scene.client());
        let of = format!("{}={}", label::RESTORE_NAME, self.scene.fresh(name));
        let list = maps
            .list_metadata(&ListParams::default().labels(&of))
            .await?;
        Ok(list.items.len())
    }

    /// Another restore, of one namespace, as if nothing had happened.
    async fn works(&self, name: &str) -> anyhow::Result<()> {
        let (full, namespace) = (self.scene.fresh(name), format!("{}-0", self.fill.prefix));
        let mappings = self.mappings(name, 1);
        let create = [
            "restore",
            "create",
            &full,
            "--from-backup",
            &self.backup,
            "--include-namespaces",
            &namespace,
            "--namespace-mappings",
            &mappings,
            "--wait",
        ];
        velero(self.scene, &create).await?;
        let status = self.restores().get(&full).await?.status.unwrap_or_default();
        let maps = self.restored(name).await?;
        ensure!(
            status.phase == Some(RestorePhase::Completed) && maps == self.fill.each / 5,
            "{maps} ConfigMaps, ended as {}",
            serde_json::to_string(&status)?
        );
        Ok(())
    }
}

/// Whether what was seen makes sense to somebody who watches.
fn judge(seen: &[Seen], items: i64) -> anyhow::Result<String> {
    let running: Vec<&Seen> = seen
        .iter()
        .filter(|seen| seen.phase == RestorePhase::InProgress && seen.total > 0)
        .collect();
    let (Some(first), Some(last)) = (running.first(), seen.last()) else {
        bail!("no progress was seen");
    };
    ensure!(
        running.len() >= 5,
        "progress was seen {} times",
        running.len()
    );
    // All of it is counted before the first object is sent.
    ensure!(first.total >= items, "{} of {items} at first", first.total);
    let early = seen.iter().find(|seen| seen.done > 0 && seen.total == 0);
    ensure!(early.is_none(), "items are done before they are counted");
    for pair in seen.windows(2) {
        let steps = [(pair[0].total, pair[1].total), (pair[0].done, pair[1].done)];
        for (before, after) in steps {
            ensure!(before <= after, "from {before} back to {after}");
        }
    }
    for seen in &running {
        ensure!(
            seen.done < seen.total,
            "all {} are done, and it runs",
            seen.total
        );
        ensure!(seen.stage.is_some(), "nothing says what is being done");
    }
    ensure!(
        last.phase == RestorePhase::Completed,
        "ended as {:?}",
        last.phase
    );
    ensure!(
        last.done == last.total && last.stage.is_none(),
        "the end is not told"
    );
    Ok(format!(
        "{} items, progress seen {} times; deleted while they ran, restores end",
        last.done,
        running.len()
    ))
}
