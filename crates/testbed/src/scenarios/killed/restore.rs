//! Restores whose server dies at every place where that could matter: the next server finishes them,
//! and what comes out is what comes out of one that nothing happened to.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{
    files::restore_suffix as suffix,
    names::label,
    v1::{Restore, RestorePhase},
};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{SOON, dies_at, free_lease, places};
use crate::{
    bed::Bucket,
    contents::{Contents, differences},
    fill, peer,
    scenarios::exchange::{essence, in_namespaces},
    scene::Scene,
    servers::{self, Server},
    wait_for,
};

/// ConfigMaps that are restored when the server is killed among them.
const WAVE: usize = 300;
/// What every cluster makes in a namespace by itself, sooner or later than a restore.
const OF_THE_CLUSTER: [&str; 2] = ["kube-root-ca.crt", "default"];

/// For every place in the making of a restore: killed there, finished by the next server.
pub(in crate::scenarios) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("killed")?;
    peer::prepare(scene, &bucket).await?;
    let trace = scene.folder().join("trace");
    let env = [("BOWLINE_CRASH_TRACE", &*trace.to_string_lossy())];
    let server = Server::Ours.start_with(scene, &[], &env).await?;
    let mut stage = Stage::set(scene, bucket).await?;
    stage.clear().await?;
    std::fs::remove_file(&trace).context("forget the backup's places")?;
    let whole = scene.fresh("whole");
    let made = servers::create_restore(&scene.client(), &whole, &stage.spec(&whole)).await?;
    let ended = servers::ended(&scene.client(), &made, SOON).await?;
    let expected = stage.outcome(&ended).await?;
    server.kill().await?;
    stage.is_a_fair_test(&expected)?;
    let places = places(&trace)?;
    ensure!(places.len() >= 26, "only {places:?} were passed");

    let mut failures = Vec::new();
    for (n, place) in places.iter().enumerate() {
        stage.clear().await?;
        let name = scene.fresh(&format!("killed-{n}"));
        let told = match stage.killed_at(place, &name).await {
            Ok(outcome) => differences(&without_updates(&expected), &without_updates(&outcome)),
            Err(error) => vec![format!("{error:#}")],
        };
        failures.extend(told.into_iter().map(|line| format!("{place}: {line}")));
    }
    ensure!(
        failures.is_empty(),
        "undisturbed | killed\n{}",
        failures.join("\n")
    );
    let half = stage.in_a_wave().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "{} places, each finished by the next server; {half} of {WAVE} were there when it was killed among them, and stayed",
        places.len()
    ))
}

/// The same, without telling what was put right from what was right. An object that was there before
/// the restore, and that it has put right before it was killed, is right when the next server looks.
fn without_updates(outcome: &Value) -> Value {
    let mut outcome = outcome.clone();
    let list = outcome["list"]
        .to_string()
        .replace("(updated)", "(skipped)");
    outcome["list"] = serde_json::from_str(&list).unwrap_or_default();
    outcome
}

/// A backup with something of everything, and the cluster that it is restored into.
struct Stage<'a> {
    scene: &'a Scene,
    bucket: Bucket,
    /// A namespace of the backup that is restored under another name each time.
    shop: String,
    /// One that is there.
    kept: String,
    /// The API group of a kind that only the backup knows.
    group: String,
    volume: String,
    role: String,
    backup: String,
    /// Where the last restore went.
    last: String,
}

impl<'a> Stage<'a> {
    async fn set(scene: &'a Scene, bucket: Bucket) -> anyhow::Result<Self> {
        let shop = scene.namespace("shop").await?;
        let stage = Self {
            scene,
            bucket,
            kept: scene.namespace("kept").await?,
            group: scene.fresh("example.com"),
            volume: scene.fresh("disk"),
            role: scene.fresh("role"),
            backup: scene.fresh("backup"),
            last: shop.clone(),
            shop,
        };
        let (kinds, objects) = (stage.definition(), stage.objects());
        scene.apply(&[kinds]).await?;
        let crd = format!("crd/widgets.{}", stage.group);
        let established = "--for=condition=Established";
        scene
            .kubectl(&["wait", established, "--timeout=60s", &crd])
            .await?;
        scene.apply(&objects).await?;
        stage.apply_as_a_tool().await?;
        let widgets = format!("widgets.{}", stage.group);
        scene
            .kubectl(&[
                "-n",
                &stage.shop,
                "patch",
                &widgets,
                "w",
                "--subresource=status",
                "--type=merge",
                "-p",
                r#"{"status":{"ready":true}}"#,
            ])
            .await?;
        stage.bound(&stage.shop).await?;
        let spec = json!({
            "includedNamespaces": [stage.shop, stage.kept],
            "includeClusterResources": true,
            "labelSelector": { "matchLabels": { "part-of": "killed" } },
            // Controllers give them the labels of their services.
            "excludedResources": ["endpoints", "endpointslices.discovery.k8s.io"],
        });
        servers::back_up(&scene.client(), &stage.backup, &spec)
            .await?
            .completed()?;
        Ok(stage)
    }

    fn meta(&self, namespace: &str, name: &str) -> Value {
        let mut meta = json!({ "name": name, "labels": { "part-of": "killed" } });
        if !namespace.is_empty() {
            meta["namespace"] = json!(namespace);
        }
        meta
    }

    fn definition(&self) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": self.meta("", &format!("widgets.{}", self.group)),
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                    } },
                }],
            },
        })
    }

    fn objects(&self) -> Vec<Value> {
        let (shop, kept) = (self.shop.as_str(), self.kept.as_str());
        let map = |namespace: &str, name: &str| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": self.meta(namespace, name),
                "data": { "of": name },
            })
        };
        let object = |version: &str, kind: &str, namespace: &str, name: &str, more: Value| {
            let mut object = more;
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            object["metadata"] = self.meta(namespace, name);
            object
        };
        let rbac = "rbac.authorization.k8s.io/v1";
        let rules =
            json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] });
        let mut objects: Vec<Value> = (0..40).map(|n| map(shop, &format!("c{n}"))).collect();
        objects.extend([
            map(kept, "same"),
            map(kept, "other"),
            object(
                "v1",
                "ServiceAccount",
                kept,
                "keeper",
                json!({ "imagePullSecrets": [{ "name": "registry" }] }),
            ),
            object("v1", "Namespace", "", shop, json!({})),
            object("v1", "ServiceAccount", shop, "robot", json!({})),
            object("v1", "Secret", shop, "key", json!({ "stringData": { "k": "v" } })),
            object(
                "v1",
                "Service",
                shop,
                "web",
                json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
            ),
            object(rbac, "Role", shop, "reader", rules.clone()),
            object(rbac, "ClusterRole", "", &self.role, rules),
            object(
                rbac,
                "RoleBinding",
                shop,
                "robot-reads",
                json!({
                    "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
                    "subjects": [{ "kind": "ServiceAccount", "name": "robot", "namespace": shop }],
                }),
            ),
            object(
                "apps/v1",
                "Deployment",
                shop,
                "web",
                json!({ "spec": {
                    "replicas": 0,
                    // Its controller would add a ReplicaSet, sooner or later.
                    "paused": true,
                    "selector": { "matchLabels": { "app": "web" } },
                    "template": {
                        "metadata": { "labels": { "app": "web" } },
                        "spec": { "containers": [{ "name": "c", "image": "x" }] },
                    },
                } }),
            ),
            object(
                "v1",
                "PersistentVolume",
                "",
                &self.volume,
                json!({ "spec": {
                    "capacity": { "storage": "1Gi" },
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": { "path": "/nonesuch" },
                } }),
            ),
            object(
                "v1",
                "PersistentVolumeClaim",
                shop,
                "data",
                json!({ "spec": {
                    "storageClassName": "",
                    "volumeName": self.volume,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                } }),
            ),
            object(
                &format!("{}/v1", self.group),
                "Widget",
                shop,
                "w",
                json!({ "spec": { "size": 5 } }),
            ),
        ]);
        objects
    }

    /// An object of somebody who applies on the server's side.
    async fn apply_as_a_tool(&self) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.meta(&self.shop, "applied"),
            "data": { "by": "a tool" },
        });
        let file = self.scene.folder().join("applied.json");
        std::fs::write(&file, serde_json::to_vec(&object)?)?;
        let file = file.to_string_lossy();
        let args = [
            "apply",
            "--server-side",
            "--field-manager=tool",
            "-f",
            &file,
        ];
        self.scene.kubectl(&args).await.map(drop)
    }

    async fn bound(&self, namespace: &str) -> anyhow::Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.scene.client(), namespace);
        wait_for("the claim to be bound", SOON, async || {
            let phase = claims.get("data").await?.status.and_then(|s| s.phase);
            ensure!(phase.as_deref() == Some("Bound"), "it is {phase:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Where a restore goes.
    fn target(restore: &str) -> String {
        format!("{restore}-shop")
    }

    fn spec(&self, restore: &str) -> Value {
        json!({
            "backupName": self.backup,
            "namespaceMapping": { self.shop.as_str(): Self::target(restore) },
            "existingResourcePolicy": "update",
            "restoreStatus": { "includedResources": [format!("widgets.{}", self.group)] },
        })
    }

    /// Takes away what the next restore is to bring back, and changes what it is to put right.
    async fn clear(&mut self) -> anyhow::Result<()> {
        let scene = self.scene;
        let claim = [
            "-n",
            &self.last,
            "delete",
            "pvc",
            "data",
            "--ignore-not-found",
        ];
        scene.kubectl(&claim).await?;
        let volume = format!("pv/{}", self.volume);
        let role = format!("clusterrole/{}", self.role);
        let definition = format!("crd/widgets.{}", self.group);
        scene
            .kubectl(&["delete", "--ignore-not-found", &volume, &role, &definition])
            .await?;
        let unlabelled = json!({ label::BACKUP_NAME: null, label::RESTORE_NAME: null });
        let params = PatchParams::default();
        let maps: Api<ConfigMap> = Api::namespaced(scene.client(), &self.kept);
        for (name, data) in [
            ("same", json!({})),
            ("other", json!({ "of": "changed", "more": "x" })),
        ] {
            let patch = json!({ "metadata": { "labels": unlabelled }, "data": data });
            maps.patch(name, &params, &Patch::Merge(patch)).await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(scene.client(), &self.kept);
        let patch = json!({ "metadata": { "labels": unlabelled }, "imagePullSecrets": null });
        accounts
            .patch("keeper", &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// A restore whose server dies at a place, to its end by another server.
    async fn killed_at(&mut self, place: &str, name: &str) -> anyhow::Result<Value> {
        let client = self.scene.client();
        let spec = self.spec(name);
        self.last = Self::target(name);
        let made = dies_at(self.scene, place, name, async || {
            servers::create_restore(&client, name, &spec).await
        })
        .await?;
        let server = servers::launch(self.scene, &[], &[])?;
        let ended = servers::ended(&client, &made, SOON).await;
        server.kill().await?;
        self.outcome(&ended?).await
    }

    /// All that a restore left, without what must differ from one to the next.
    async fn outcome(&mut self, restore: &Restore) -> anyhow::Result<Value> {
        let (client, name) = (self.scene.client(), restore.name_any());
        let target = Self::target(&name);
        self.last.clone_from(&target);
        let status = restore.status.clone().unwrap_or_default();
        ensure!(
            status.phase == Some(RestorePhase::Completed),
            "ended as {}",
            serde_json::to_string(&status)?
        );
        self.bound(&target).await?;
        let mut objects = in_namespaces(&client, &[&target, &self.kept]).await?;
        objects.retain(|_, object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            !OF_THE_CLUSTER.contains(&name)
        });
        objects.extend(self.cluster_scoped().await?);
        let widget = &objects[&format!("Widget {target}/w")]["status"];
        // A service account that is merged gets none, unless it is looked at again.
        let merged = format!("ServiceAccount {}/keeper", self.kept);
        let unlabelled: Vec<&String> = objects
            .iter()
            .filter(|(key, _)| !key.starts_with("Namespace ") && **key != merged)
            .filter(|(_, object)| object["metadata"]["labels"][label::RESTORE_NAME] != *name)
            .map(|(key, _)| key)
            .collect();
        let files = Contents::of_restore(&self.bucket, &name)?;
        let essence: BTreeMap<&String, Value> = objects
            .iter()
            .map(|(key, object)| (key, essence(object, &self.backup)))
            .collect();
        let outcome = json!({
            "progress": status.progress,
            "warnings": status.warnings,
            "errors": status.errors,
            "files": files.file_names(),
            "results": files.files[suffix::RESULTS],
            "list": files.files[suffix::RESOURCE_LIST],
            "objects": essence,
            "status of the widget": widget,
            "without labels": unlabelled,
        });
        let text = outcome.to_string().replace(&target, "<target>");
        Ok(serde_json::from_str(&text.replace(&name, "<restore>"))?)
    }

    async fn cluster_scoped(&self) -> anyhow::Result<BTreeMap<String, Value>> {
        let volume = format!("pv/{}", self.volume);
        let role = format!("clusterrole/{}", self.role);
        let definition = format!("crd/widgets.{}", self.group);
        let args = ["get", "-o", "json", &volume, &role, &definition];
        let list: Value = serde_json::from_str(&self.scene.kubectl(&args).await?)?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let key = |item: &Value| format!("{} {}", item["kind"], item["metadata"]["name"]);
        Ok(items.into_iter().map(|item| (key(&item), item)).collect())
    }

    /// The undisturbed restore did all that can be interrupted.
    fn is_a_fair_test(&self, outcome: &Value) -> anyhow::Result<()> {
        let (list, kept) = (outcome["list"].to_string(), &self.kept);
        for entry in [
            format!("{kept}/other(updated)"),
            format!("{kept}/keeper(updated)"),
            format!("{kept}/same(skipped)"),
            "<target>/applied(created)".to_owned(),
            "<target>/w(created)".to_owned(),
            format!("{}(created)", self.volume),
            "\"<target>(created)\"".to_owned(),
        ] {
            ensure!(list.contains(&entry), "{entry} is not in {list}");
        }
        let clean = json!({ "errors": {}, "warnings": {} });
        ensure!(outcome["results"] == clean, "{}", outcome["results"]);
        let (widget, unlabelled) = ("status of the widget", "without labels");
        ensure!(outcome[widget] == json!({ "ready": true }), "{outcome}");
        ensure!(outcome[unlabelled] == json!([]), "{}", outcome[unlabelled]);
        Ok(())
    }

    /// Killed when about half of a wave exists. Returns how many existed.
    async fn in_a_wave(&self) -> anyhow::Result<usize> {
        let (scene, client) = (self.scene, self.scene.client());
        let namespace = scene.namespace("wave").await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let load = "some words of no consequence ".repeat(400);
        let map = |n: usize| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": self.meta(&namespace, &format!("m{n}")),
                "data": { "load": load },
            })
        };
        fill::create(&client, (0..WAVE).map(|n| (path.clone(), map(n)))).await?;
        let (backup, name) = (scene.fresh("wave-backup"), scene.fresh("wave-restore"));
        free_lease(scene).await?;
        let server = servers::launch(scene, &[], &[])?;
        let spec = json!({
            "includedNamespaces": [namespace],
            "includedResources": ["configmaps"],
            "labelSelector": { "matchLabels": { "part-of": "killed" } },
        });
        servers::back_up(&client, &backup, &spec)
            .await?
            .completed()?;

        let target = Self::target(&name);
        let spec = json!({ "backupName": backup, "namespaceMapping": { namespace: target } });
        let made = servers::create_restore(&client, &name, &spec).await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &target);
        let ours = ListParams::default().labels(&format!("{}={name}", label::RESTORE_NAME));
        let uids = async || -> anyhow::Result<BTreeMap<String, Option<String>>> {
            let list = maps.list_metadata(&ours).await?;
            Ok(list.iter().map(|map| (map.name_any(), map.uid())).collect())
        };
        let half = async {
            // No pause: half of it does not last.
            while uids().await?.len() < WAVE / 2 {}
            anyhow::Ok(())
        };
        tokio::time::timeout(SOON, half)
            .await
            .context("half of the wave")??;
        server.kill().await?;
        let before = uids().await?;
        ensure!(before.len() < WAVE, "it was too late: all are there");

        free_lease(scene).await?;
        let server = servers::launch(scene, &[], &[])?;
        let ended = servers::ended(&client, &made, SOON + Duration::from_secs(30)).await;
        server.kill().await?;
        let status = ended?.status.unwrap_or_default();
        ensure!(
            status.phase == Some(RestorePhase::Completed) && status.warnings.is_none(),
            "ended as {}",
            serde_json::to_string(&status)?
        );
        let after = uids().await?;
        let changed = before
            .iter()
            .filter(|(map, uid)| after.get(*map) != Some(uid));
        ensure!(changed.count() == 0, "some were made twice");
        let files = Contents::of_restore(&self.bucket, &name)?;
        let list = &files.files[suffix::RESOURCE_LIST];
        let created = |kind: &str| {
            let entries = list[kind].as_array().into_iter().flatten();
            let words = entries.filter_map(Value::as_str);
            words.filter(|entry| entry.ends_with("(created)")).count()
        };
        let progress = status.progress.unwrap_or_default();
        let counts = (progress.total_items, progress.items_restored);
        // The namespace counts too.
        let all = i64::try_from(WAVE + 1)?;
        ensure!(
            after.len() == WAVE
                && created("v1/ConfigMap") == WAVE
                && created("v1/Namespace") == 1
                && counts == (Some(all), Some(all)),
            "{} are there, {} listed as created, progress {counts:?}",
            after.len(),
            created("v1/ConfigMap")
        );
        Ok(before.len())
    }
}
