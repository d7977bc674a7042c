//! Bad days of the API server, of the store and of archives: a restore ends right, or says what went
//! wrong.

mod days;

use std::fs;

use anyhow::{Context, bail, ensure};
use bowline_api::{
    files::{backup_suffix, restore_suffix},
    names::DEFAULT_NAMESPACE,
    v1::{Restore, RestorePhase},
};
use bowline_apiserver::{Fault, When};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use self::days::{End, MAPS, Spoilt};
use super::{
    LIMIT,
    archives::map,
    stage::{Stage, on},
};
use crate::{
    contents::{Contents, differences},
    fill,
    scene::Scene,
    servers, wait_for,
};

/// What every cluster makes in a namespace by itself.
const OF_THE_CLUSTER: &str = "kube-root-ca.crt";

/// The claim in the backup.
const CLAIM: &str = "data";

/// The story.
pub(in crate::scenarios) async fn are_survived(scene: &Scene) -> anyhow::Result<String> {
    let flags = [
        "--terminating-resource-timeout=2s",
        "--resource-timeout=10s",
    ];
    let play = Play {
        stage: Stage::set(scene, &flags, objects()).await?,
        backup: scene.fresh("backup"),
        scene,
    };
    let spec = json!({
        "includedNamespaces": ["shop"],
        "labelSelector": { "matchLabels": { "part-of": "faults" } },
    });
    servers::back_up(&play.stage.client, &play.backup, &spec)
        .await?
        .completed()?;
    let quiet = play.restore("quiet", &play.backup).await?;
    let expected = play.outcome(&quiet)?;
    ensure!(
        expected["list"]["v1/ConfigMap"]
            .as_array()
            .is_some_and(|list| list.len() == MAPS),
        "{expected}"
    );

    let mut told = Vec::new();
    for (name, rules, end) in days::of_the_api() {
        play.stage.api.set_faults(rules, 7);
        let ended = play.restore(name, &play.backup).await;
        play.stage.api.set_faults(Vec::new(), 7);
        told.push((name, play.judge(name, ended, &end, &expected).await));
    }
    for (name, rules, end) in days::of_the_store() {
        play.stage.proxy.set(&rules);
        let ended = play.restore(name, &play.backup).await;
        let left = play.stage.proxy.left();
        play.stage.proxy.set(&[]);
        let judged = play.judge(name, ended, &end, &expected).await;
        let happened = judged.and_then(|()| {
            let all = !matches!(end, End::Completed) || left == 0;
            ensure!(all, "{left} faults did not happen");
            Ok(())
        });
        told.push((name, happened));
    }
    for (name, spoilt, end) in days::of_the_bucket()? {
        let copy = format!("{}-copy", play.name(name));
        play.copy(&copy, spoilt).await?;
        let ended = play.restore(name, &copy).await;
        told.push((name, play.judge(name, ended, &end, &expected).await));
    }
    told.push(("an old namespace", play.terminating(&expected).await));
    told.push(("a claim nobody reads", play.untold(&expected).await));
    play.stage.close().await?;
    let count = told.len();
    let failures: Vec<String> = told
        .into_iter()
        .filter_map(|(name, told)| Some(format!("{name}: {:#}", told.err()?)))
        .collect();
    if !failures.is_empty() {
        let number = failures.len();
        bail!("{number} of {count} bad days:\n{}", failures.join("\n"));
    }
    Ok(format!("{count} bad days"))
}

/// A stage, and a backup to restore from.
struct Play<'a> {
    stage: Stage,
    scene: &'a Scene,
    backup: String,
}

impl Play<'_> {
    /// Makes a restore, into a namespace of its own name.
    async fn restore(&self, what: &str, backup: &str) -> anyhow::Result<Restore> {
        let name = self.name(what);
        self.restore_into(&name, backup, &name).await
    }

    fn name(&self, what: &str) -> String {
        self.scene
            .fresh(&what.replace([' ', '\''], "-").to_lowercase())
    }

    async fn restore_into(
        &self,
        name: &str,
        backup: &str,
        namespace: &str,
    ) -> anyhow::Result<Restore> {
        let spec = json!({ "backupName": backup, "namespaceMapping": { "shop": namespace } });
        let made = servers::create_restore(&self.stage.client, name, &spec).await?;
        servers::ended(&self.stage.client, &made, LIMIT).await
    }

    /// What a restore says of itself, without its name.
    fn outcome(&self, restore: &Restore) -> anyhow::Result<Value> {
        let name = restore.metadata.name.as_deref().unwrap_or_default();
        let files = Contents::of_restore(&self.stage.bucket, name)?;
        let mut status = serde_json::to_value(&restore.status)?;
        for time in ["startTimestamp", "completionTimestamp"] {
            status[time] = Value::Null;
        }
        let outcome = json!({
            "status": status,
            "results": files.files[restore_suffix::RESULTS],
            "list": files.files[restore_suffix::RESOURCE_LIST],
        });
        Ok(serde_json::from_str(
            &outcome.to_string().replace(name, "<restore>"),
        )?)
    }

    /// How many of the ConfigMaps are in a namespace; none when there is no such namespace.
    async fn maps(&self, namespace: &str) -> anyhow::Result<Option<usize>> {
        let namespaces: Api<Namespace> = Api::all(self.stage.client.clone());
        if namespaces.get_opt(namespace).await?.is_none() {
            return Ok(None);
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.stage.client.clone(), namespace);
        let list = maps.list(&ListParams::default()).await?;
        let names = list.iter().filter_map(|map| map.metadata.name.as_deref());
        Ok(Some(names.filter(|name| *name != OF_THE_CLUSTER).count()))
    }

    async fn judge(
        &self,
        what: &str,
        ended: anyhow::Result<Restore>,
        end: &End,
        expected: &Value,
    ) -> anyhow::Result<()> {
        let restore = ended?;
        let status = restore.status.clone().unwrap_or_default();
        let shown = serde_json::to_string(&status)?;
        let phase = |wanted| {
            ensure!(status.phase == Some(wanted), "ended as {shown}");
            Ok(())
        };
        let reason = status.failure_reason.clone().unwrap_or_default();
        let maps = self.maps(&self.name(what)).await?;
        match end {
            End::Completed => {
                let lines = differences(expected, &self.outcome(&restore)?);
                ensure!(lines.is_empty(), "quiet | this\n{}", lines.join("\n"));
                ensure!(maps == Some(MAPS), "{maps:?} ConfigMaps");
            }
            End::Partly(count, text) => {
                phase(RestorePhase::PartiallyFailed)?;
                ensure!(maps == Some(*count), "{maps:?} ConfigMaps");
                let results = self.outcome(&restore)?["results"].take();
                let texts = strings(&results["errors"]);
                ensure!(
                    texts.iter().any(|error| error.contains(text)),
                    "the errors are {texts:?}"
                );
                let counted = status.errors.unwrap_or_default();
                ensure!(counted == i64::try_from(texts.len())?, "{counted} errors");
            }
            End::Failed(text) => {
                phase(RestorePhase::Failed)?;
                ensure!(
                    reason.starts_with("restore execution failed: ") && reason.contains(text),
                    "the reason is {reason:?}"
                );
                ensure!(maps.is_none(), "something was restored");
            }
            End::Untold(text) => {
                phase(RestorePhase::PartiallyFailed)?;
                ensure!(reason.contains(text), "the reason is {reason:?}");
                ensure!(maps == Some(MAPS), "{maps:?} ConfigMaps");
            }
        }
        Ok(())
    }

    /// Another backup with the same files, but for what is done to it.
    async fn copy(&self, to: &str, spoilt: Spoilt) -> anyhow::Result<()> {
        let folder = self.stage.bucket.folder().join("backups");
        fs::create_dir(folder.join(to))?;
        for entry in fs::read_dir(folder.join(&self.backup))? {
            let entry = entry?;
            let name = entry
                .file_name()
                .to_string_lossy()
                .replace(&self.backup, to);
            fs::copy(entry.path(), folder.join(to).join(name))?;
        }
        let path = |suffix: &str| folder.join(to).join(format!("{to}{suffix}"));
        let object = folder.join(to).join("velero-backup.json");
        let text = fs::read_to_string(&object)?.replace(&self.backup, to);
        let mut backup: Value = serde_json::from_str(&text)?;
        match spoilt {
            Spoilt::Archive(bytes) => fs::write(path(backup_suffix::CONTENTS), bytes)?,
            Spoilt::Cut(bytes) => fs::File::options()
                .write(true)
                .open(path(backup_suffix::CONTENTS))?
                .set_len(bytes as u64)?,
            Spoilt::Without(suffix) => fs::remove_file(path(suffix))?,
            Spoilt::Other(suffix, bytes) => fs::write(path(suffix), bytes)?,
            Spoilt::Format(version) => backup["status"]["formatVersion"] = json!(version),
        }
        fs::write(&object, backup.to_string())?;
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            backup["metadata"][field] = Value::Null;
        }
        let backups = format!("/apis/velero.io/v1/namespaces/{DEFAULT_NAMESPACE}/backups");
        fill::create(&self.stage.client, [(backups, backup)]).await
    }

    /// What became of a volume cannot be found out: the restore is as good as any, its log says what is
    /// missing, and who asks is told what is known. The file goes with the restore.
    async fn untold(&self, expected: &Value) -> anyhow::Result<()> {
        let what = "a claim nobody reads";
        let refuse = Fault::Refuse(403, "claims are private");
        let reads = on(
            Method::GET,
            "/persistentvolumeclaims/",
            When::Always,
            refuse,
        );
        self.stage.api.set_faults(vec![reads], 7);
        let ended = self.restore(what, &self.backup).await;
        self.stage.api.set_faults(Vec::new(), 7);
        self.judge(what, ended, &End::Completed, expected).await?;

        let name = self.name(what);
        let ask = |args: &[&str]| {
            let mut command = self.scene.bowline();
            command.env("KUBECONFIG", &self.stage.kubeconfig).args(args);
            tokio::process::Command::from(command).output()
        };
        for (args, code, word) in [
            (
                ["restore", "logs", &name, ""],
                0,
                "volume info: the claim cannot be read",
            ),
            (["restore", "describe", &name, "--details"], 0, CLAIM),
            // It has no copy that anybody knows of.
            (["restore", "volumes", &name, ""], 1, CLAIM),
        ] {
            let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
            let said = ask(&args).await?;
            let text = String::from_utf8_lossy(&said.stdout);
            ensure!(
                said.status.code() == Some(code) && text.contains(word),
                "{args:?}: {:?}\n{text}{}",
                said.status,
                String::from_utf8_lossy(&said.stderr)
            );
        }
        let folder = self.stage.bucket.folder().join("restores").join(&name);
        let file = folder.join(format!("{name}{}", restore_suffix::VOLUME_INFO));
        ensure!(file.exists(), "{} is not there", file.display());
        ask(&["restore", "delete", &name, "--confirm"]).await?;
        wait_for("the file to go", LIMIT, async || {
            Ok((!file.exists()).then_some(()))
        })
        .await
    }

    /// A namespace that is on its way out, and does not go.
    async fn terminating(&self, expected: &Value) -> anyhow::Result<()> {
        let held = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "held", "namespace": "going", "finalizers": ["example.com/hold"] },
        });
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": "going" },
            "spec": { "finalizers": ["kubernetes"] },
        });
        for object in [namespace, held] {
            let refused = self.stage.api.load(&object).err();
            ensure!(refused.is_none(), "load: {refused:?}");
        }
        let delete = Request::delete("/api/v1/namespaces/going").body(Vec::new())?;
        self.stage.client.request::<Value>(delete).await?;
        let name = self.name("into-old");
        let restore = self.restore_into(&name, &self.backup, "going").await?;
        let results = self.outcome(&restore)?["results"].take();
        let texts = strings(&results["errors"]["velero"]);
        let timed_out =
            "timed out waiting for terminating namespace going to disappear before restoring";
        let skipped = format!("skipping polling for terminating namespace going: {timed_out}");
        let count = |text: &str| texts.iter().filter(|error| *error == text).count();
        // All that would have gone into it, once.
        let all = expected["status"]["progress"]["totalItems"].as_u64();
        let all = usize::try_from(all.context("no total")?)?;
        ensure!(
            count(timed_out) == 1 && count(&skipped) == all - 1,
            "the errors are {texts:?}"
        );
        let phase = restore.status.and_then(|s| s.phase);
        ensure!(
            phase == Some(RestorePhase::PartiallyFailed),
            "ended as {phase:?}"
        );
        // The one that holds it.
        ensure!(
            self.maps("going").await? == Some(1),
            "something was restored"
        );
        Ok(())
    }
}

/// All texts in a value.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// What the backup holds: ConfigMaps, one of them of somebody who applies, a Secret and a claim.
fn objects() -> Vec<Value> {
    let labels = json!({ "part-of": "faults" });
    let mut objects: Vec<Value> = (1..MAPS).map(|n| map(&format!("m{n}"))).collect();
    let mut applied = map("applied");
    applied["metadata"]["managedFields"] = json!([{
        "manager": "tool",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": { "f:data": { "f:of": {} } },
    }]);
    objects.push(applied);
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "key", "namespace": "shop" },
        "type": "Opaque",
        "data": { "k": "dg==" },
    }));
    objects.push(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": CLAIM, "namespace": "shop" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Pending" },
    }));
    for object in &mut objects {
        object["metadata"]["labels"] = labels.clone();
    }
    objects
}
