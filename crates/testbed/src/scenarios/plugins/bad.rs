//! Plugins that misbehave, at the start and in calls: each is named with its reason, and costs no more
//! than it must.

mod calls;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bowline_api::{names::DEFAULT_NAMESPACE, v1::Backup};
use kube::Api;
use serde_json::{Value, json};

use super::{ours, said, script};
use crate::{
    Process,
    bed::{self, Bucket},
    peer,
    scene::Scene,
    servers::{self, Server},
    wait_for,
};

/// The plugin that works, and what it is called.
const SOUND: &str = "sound";
const ACTION: &str = "example.com/act";
/// A server is up, and most backups are made, in much less.
const SOON: Duration = Duration::from_secs(60);
/// How long a plugin may take to say that it is there, and then some.
const START: Duration = Duration::from_secs(75);

/// Programs that are no plugins, and what the server's log says of each.
const BAD: &[(&str, &str, &[&str])] = &[
    (
        "crasher",
        "echo 'no settings' >&2; exit 3",
        &["plugin exited before we could connect: it exited with code 3"],
    ),
    (
        "garbage",
        "PRETEND=garbage exec PROGRAM",
        &["Unrecognized remote plugin message: \"what do you want?\""],
    ),
    (
        "hanger",
        "exec sleep 600",
        &["timeout while waiting for plugin to start"],
    ),
    (
        "older",
        "echo '1|1|unix|/nowhere|grpc|'; exec sleep 600",
        &["incompatible API version with plugin: 1, not 2"],
    ),
    (
        "teapot",
        "PRETEND=teapot exec PROGRAM",
        &["invalid plugin kind: Teapot"],
    ),
    (
        "twice",
        "exec PROGRAM",
        &[
            "(kind=BackupItemActionV2, name=example.com/act, command=",
            "because another plugin is already registered for this kind and name",
        ],
    ),
];

/// A bad start, and then bad calls.
pub(in crate::scenarios) async fn are_survived(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("bad")?;
    peer::prepare(scene, &bucket).await?;
    let plugins = folder(scene)?;
    let began = Instant::now();
    let flags = [
        "--plugin-dir",
        &*plugins.to_string_lossy(),
        "--item-operation-sync-frequency=1s",
        "--concurrent-backups=4",
    ];
    let server = Server::Ours.start(scene, &flags).await?;
    let up = began.elapsed();
    ensure!(up < Duration::from_secs(30), "up only after {up:?}");
    let stage = Stage {
        scene,
        bucket,
        server,
    };
    let first = stage.start().await?;
    stage.calls().await?;
    stage.server.check()?;
    stage.server.stop().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "up after {:.1} s beside {} bad plugins, first backup after {:.0} s; then crashes, hangs, \
         100 MB, errors, nonsense and operations without end",
        up.as_secs_f64(),
        BAD.len() + 1,
        first.as_secs_f64(),
    ))
}

/// A plugin folder with one that is sound.
fn folder(scene: &Scene) -> anyhow::Result<PathBuf> {
    let folder = scene.folder().join("bad-plugins");
    let program = bed::example("pretend")?.display().to_string();
    script(&folder, SOUND, &format!("exec {program} \"$@\""))?;
    for (name, text, _) in BAD {
        script(&folder, name, &text.replace("PROGRAM", &program))?;
    }
    fs::write(folder.join("notes.txt"), "not for running")?;
    Ok(folder)
}

/// A server with such plugins.
struct Stage<'a> {
    scene: &'a Scene,
    bucket: Bucket,
    server: Process,
}

impl Stage<'_> {
    /// The first backup waits for all plugins, since an action may matter; nobody else does. How long
    /// it took.
    async fn start(&self) -> anyhow::Result<Duration> {
        let namespace = self.maps("first", &[("a", "mark")]).await?;
        let began = Instant::now();
        let made = self.create("first", &namespace, json!({})).await?;
        // Whoever asks meanwhile gets an answer.
        let early = ours(self.scene, &["plugin", "get"]).await?;
        let waited = began.elapsed();
        ensure!(early.contains("velero.io/pod"), "{early}");
        ensure!(waited < Duration::from_secs(20), "asked for {waited:?}");

        let backup = servers::ended(&self.scene.client(), &made, START).await?;
        let first = began.elapsed();
        let phase = backup.status.unwrap_or_default().phase.unwrap_or_default();
        ensure!(phase.as_str() == "Completed", "the first is {phase:?}");
        let map = self.stored("first", &namespace, "a")?;
        ensure!(map["data"]["seen"] == "yes", "no action saw it: {map}");

        let log = said(&self.server)?;
        let line = |program: &str, reason: &str| {
            let mut lines = log.lines();
            let file = format!("/bad-plugins/{program}");
            lines.any(|line| line.contains(reason) && line.contains(&file))
        };
        for (program, _, reasons) in BAD {
            for reason in *reasons {
                ensure!(line(program, reason), "{program}: {reason}:\n{log}");
            }
        }
        ensure!(line("notes.txt", "it is not executable"), "{log}");
        let listed = ours(self.scene, &["plugin", "get"]).await?;
        ensure!(listed.contains(ACTION), "{listed}");
        ensure!(!listed.contains("teapot"), "{listed}");
        Ok(first)
    }

    /// A namespace with ConfigMaps, each with what the plugin is to do with it.
    async fn maps(&self, name: &str, maps: &[(&str, &str)]) -> anyhow::Result<String> {
        let maps: Vec<_> = maps
            .iter()
            .map(|(name, act)| (*name, *act, json!({})))
            .collect();
        self.maps_with(name, &maps).await
    }

    /// The same, with data.
    async fn maps_with(&self, name: &str, maps: &[(&str, &str, Value)]) -> anyhow::Result<String> {
        let namespace = self.scene.namespace(name).await?;
        let maps: Vec<Value> = maps
            .iter()
            .map(|(name, act, data)| {
                json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": { "name": name, "namespace": namespace, "labels": { "act": act } },
                    "data": data,
                })
            })
            .collect();
        self.scene.apply(&maps).await?;
        Ok(namespace)
    }

    /// Asks for a backup of a namespace.
    async fn create(&self, name: &str, namespace: &str, more: Value) -> anyhow::Result<Backup> {
        let mut spec = json!({ "includedNamespaces": [namespace] });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        servers::create_backup(&self.scene.client(), &self.scene.fresh(name), &spec).await
    }

    /// A ConfigMap as it is in a backup.
    fn stored(&self, backup: &str, namespace: &str, map: &str) -> anyhow::Result<Value> {
        let name = self.scene.fresh(backup);
        let file = self.bucket.folder().join("backups").join(&name);
        let archive = crate::contents::archive(&file.join(format!("{name}.tar.gz")))?;
        let path = format!("resources/configmaps/namespaces/{namespace}/{map}.json");
        let found = archive.get(&path).cloned();
        found.with_context(|| format!("{path} is not in the archive of {name}"))
    }

    /// Waits until the server's log has a text.
    async fn says(&self, text: &str, limit: Duration) -> anyhow::Result<()> {
        wait_for(&format!("{text:?} in the log"), limit, async || {
            self.server.check()?;
            Ok(said(&self.server)?.contains(text).then_some(()))
        })
        .await
    }

    fn backups(&self) -> Api<Backup> {
        Api::namespaced(self.scene.client(), DEFAULT_NAMESPACE)
    }
}
