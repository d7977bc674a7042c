//! Velero and we back up the same cluster with the same specs, and what is in the bucket afterwards
//! is the same, but for differences that are wanted.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{bail, ensure};
use bowline_api::{files::backup_suffix as suffix, names::DEFAULT_NAMESPACE};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::{
    bed::Bucket,
    contents::{Contents, differences},
    peer,
    scene::Scene,
    servers::{self, Ended, Server},
    wait_for, zoo,
};

/// How our backup relates to Velero's of the same spec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Same,
    /// The same, and we say that a name in the spec means nothing.
    SameWithARemark,
    /// Velero leaves out cluster-scoped objects that nobody asked it to leave out.
    OursHasAllOfTheCluster,
}

struct Try {
    name: &'static str,
    spec: Value,
    expected: Expected,
}

/// The specs to try while no namespace is hidden by label.
fn tries() -> Vec<Try> {
    let same = |name, spec| Try {
        name,
        spec,
        expected: Expected::Same,
    };
    let remark = |name, spec| Try {
        name,
        spec,
        expected: Expected::SameWithARemark,
    };
    let zoo = zoo::NAMESPACES;
    vec![
        same("whole", json!({ "includeClusterResources": true })),
        Try {
            name: "unfiltered",
            spec: json!({}),
            expected: Expected::OursHasAllOfTheCluster,
        },
        same("namespace", json!({ "includedNamespaces": ["zoo"] })),
        same(
            "selector",
            json!({ "labelSelector": { "matchLabels": { "app": "web" } } }),
        ),
        same(
            "or-selectors",
            json!({
                "includedNamespaces": zoo,
                "orLabelSelectors": [
                    { "matchLabels": { "app": "web" } },
                    { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db", "web"] }] },
                ],
            }),
        ),
        remark(
            "old-include",
            json!({ "includedNamespaces": zoo, "includedResources": ["cm", "Secret", "prt", "nonesuch"] }),
        ),
        same(
            "old-exclude",
            json!({ "includedNamespaces": zoo, "excludedResources": ["cm", "roles.rbac.authorization.k8s.io"], "includeClusterResources": false }),
        ),
        remark(
            "new-include",
            json!({
                "includedNamespaces": zoo,
                "includedNamespaceScopedResources": ["pods", "parrots.zoo.example.com", "storageclasses"],
                "includedClusterScopedResources": ["cages", "clusterroles"],
            }),
        ),
        same(
            "new-exclude",
            json!({
                "includedClusterScopedResources": ["*"],
                "excludedClusterScopedResources": ["apiservices", "clusterrolebindings"],
                "excludedNamespaceScopedResources": ["*.example.com", "secrets"],
            }),
        ),
        same(
            "globs",
            json!({ "includedNamespaces": ["zoo*"], "excludedNamespaces": ["zoo-l*"] }),
        ),
        same("nothing", json!({ "includedNamespaces": ["nonesuch-*"] })),
        same(
            "ordered",
            json!({
                "includedNamespaces": ["zoo"],
                "orderedResources": { "configmaps": "zoo/settings.v1.example,zoo/nonesuch,zoo/frozen" },
            }),
        ),
        same(
            "policy",
            json!({ "includedNamespaces": ["zoo*"], "resourcePolicy": { "kind": "configmap", "name": "zoo-policy" } }),
        ),
        same(
            "missing-namespace",
            json!({ "includedNamespaces": ["zoo-annex", "nonesuch"] }),
        ),
        same(
            "overlap",
            json!({ "includedNamespaces": ["zoo"], "excludedNamespaces": ["zoo"] }),
        ),
        same(
            "old-and-new",
            json!({ "includedResources": ["pods"], "includedClusterScopedResources": ["nodes"] }),
        ),
    ]
}

/// With a namespace that a label keeps out of backups.
fn hidden_tries() -> Vec<Try> {
    vec![
        Try {
            name: "hidden-whole",
            spec: json!({ "includeClusterResources": true }),
            expected: Expected::Same,
        },
        Try {
            name: "hidden-all-resources",
            spec: json!({ "includedResources": ["*"] }),
            expected: Expected::OursHasAllOfTheCluster,
        },
    ]
}

fn policy() -> Value {
    let text = "version: v1\n\
        volumePolicies:\n\
        - conditions: { storageClass: [zoo-slow] }\n  action: { type: skip }\n\
        namespacedFilterPolicies:\n\
        - namespaces: [zoo]\n  resourceFilters:\n\
        \x20 - kinds: [ConfigMap]\n    names: [\"settings*\", frozen]\n\
        \x20 - kinds: [Pod, Service]\n    labelSelector: { matchLabels: { app: web } }\n\
        - namespaces: [\"zoo-an*\"]\n  resourceFilters:\n\
        \x20 - kinds: []\n    labelSelector: { matchLabels: { app: web } }\n";
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "zoo-policy", "namespace": DEFAULT_NAMESPACE },
        "data": { "policy": text },
    })
}

/// The story.
pub(super) async fn same(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("same")?;
    peer::prepare(scene, &bucket).await?;
    no_namespace_is_going(scene).await?;
    zoo::make(&scene.client()).await?;
    let missing = zoo::missing(&scene.client()).await?;
    ensure!(missing.is_empty(), "the zoo has no object of {missing:?}");
    scene.apply(&[policy()]).await?;

    let label = "velero.io/exclude-from-backup";
    let mut ended = BTreeMap::new();
    for server in Server::BOTH {
        let process = server.start(scene, &[]).await?;
        scene
            .kubectl(&["label", "namespace", "zoo-empty", &format!("{label}-")])
            .await?;
        for one in &tries() {
            ended.insert((server, one.name), make(scene, server, one).await?);
        }
        let hide = format!("{label}=true");
        scene
            .kubectl(&["label", "namespace", "zoo-empty", &hide])
            .await?;
        for one in &hidden_tries() {
            ended.insert((server, one.name), make(scene, server, one).await?);
        }
        process.stop().await?;
    }

    let mut report = Vec::new();
    let mut entries = 0;
    let all: Vec<Try> = tries().into_iter().chain(hidden_tries()).collect();
    for one in &all {
        let theirs = &ended[&(Server::Velero, one.name)];
        let ours = &ended[&(Server::Ours, one.name)];
        let (lines, seen) = judge(scene, &bucket, one, theirs, ours)?;
        entries += seen;
        report.extend(
            lines
                .into_iter()
                .map(|line| format!("{}: {line}", one.name)),
        );
    }
    peer::remove(scene).await?;
    if !report.is_empty() {
        bail!("velero | bowline differ:\n{}", report.join("\n"));
    }
    Ok(format!(
        "{} specs, {entries} archive entries alike",
        all.len()
    ))
}

fn name(scene: &Scene, server: Server, one: &Try) -> String {
    scene.fresh(&format!("{}-{}", one.name, server.name()))
}

async fn make(scene: &Scene, server: Server, one: &Try) -> anyhow::Result<Ended> {
    servers::back_up(&scene.client(), &name(scene, server, one), &one.spec).await
}

/// What differs that should not, and how many archive entries were compared.
fn judge(
    scene: &Scene,
    bucket: &Bucket,
    one: &Try,
    theirs: &Ended,
    ours: &Ended,
) -> anyhow::Result<(Vec<String>, usize)> {
    let mut lines = Vec::new();
    let (their_object, our_object) = (essence(theirs)?, essence(ours)?);
    let object = differences(&their_object, &our_object);
    let fuller = one.expected == Expected::OursHasAllOfTheCluster;
    lines.extend(
        object
            .into_iter()
            .filter(|line| !is_wanted(one, line))
            .map(|line| format!("the object{line}")),
    );
    let folder = |server| {
        bucket
            .folder()
            .join("backups")
            .join(name(scene, server, one))
    };
    if !folder(Server::Velero).exists() && !folder(Server::Ours).exists() {
        return Ok((lines, 0));
    }
    let theirs = Contents::read(bucket, &name(scene, Server::Velero, one))?;
    let ours = Contents::read(bucket, &name(scene, Server::Ours, one))?;
    if theirs.file_names() != ours.file_names() {
        lines.push(format!(
            "files: {:?} | {:?}",
            theirs.file_names(),
            ours.file_names()
        ));
    }
    let (their_entries, our_entries) = (entries(&theirs), entries(&ours));
    let missing: Vec<&String> = keys_without(&their_entries, &our_entries);
    let added: Vec<&String> = keys_without(&our_entries, &their_entries);
    lines.extend(missing.iter().map(|path| format!("only velero has {path}")));
    match one.expected {
        Expected::Same | Expected::SameWithARemark => {
            lines.extend(added.iter().map(|path| format!("only bowline has {path}")))
        }
        Expected::OursHasAllOfTheCluster => {
            let cluster = |path: &&&String| path.contains("/cluster/");
            let odd = added.iter().filter(|path| !cluster(path));
            lines.extend(odd.map(|path| format!("only bowline has {path}")));
            for kind in ["storageclasses.storage.k8s.io", "cages.zoo.example.com"] {
                let start = format!("resources/{kind}/");
                if !added.iter().any(|path| path.starts_with(&start)) {
                    lines.push(format!("no {kind} more than velero has"));
                }
            }
        }
    }
    for (path, theirs) in &their_entries {
        if let Some(ours) = our_entries.get(path) {
            let found = differences(theirs, ours);
            lines.extend(
                found
                    .into_iter()
                    .take(5)
                    .map(|line| format!("{path}{line}")),
            );
        }
    }
    for file in theirs.file_names().intersection(&ours.file_names()) {
        let comparable = match *file {
            suffix::RESOURCE_LIST => !fuller,
            suffix::RESULTS => true,
            suffix::VOLUME_INFO | suffix::ITEM_OPERATIONS => true,
            suffix::POD_VOLUME_BACKUPS | suffix::VOLUME_SNAPSHOTS => true,
            _ => false,
        };
        if comparable {
            let theirs = plain(file, &theirs);
            let mut ours = plain(file, &ours);
            // We name what was left out and why, and names that mean nothing.
            if *file == suffix::RESULTS
                && let Some(results) = ours.as_object_mut()
            {
                results.remove("skipped");
                if one.expected == Expected::SameWithARemark {
                    results.insert("warnings".to_owned(), json!({}));
                }
            }
            let found = differences(&theirs, &ours);
            lines.extend(found.into_iter().map(|line| format!("{file}{line}")));
        }
    }
    let remarks = ours.files[suffix::RESULTS]["warnings"].to_string();
    if (one.expected == Expected::SameWithARemark) != remarks.contains("means nothing") {
        lines.push(format!("our warnings are {remarks}"));
    }
    Ok((lines, their_entries.len()))
}

/// What earlier scenarios have deleted is gone: both servers shall see the same cluster.
async fn no_namespace_is_going(scene: &Scene) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(scene.client());
    wait_for(
        "deleted namespaces to go",
        Duration::from_secs(180),
        async || {
            let all = namespaces.list(&ListParams::default()).await?;
            let going = all
                .iter()
                .find(|ns| ns.metadata.deletion_timestamp.is_some());
            match going {
                Some(ns) => bail!("{} is going", ns.name_any()),
                None => Ok(Some(())),
            }
        },
    )
    .await
}

/// Differences of the objects that are as they should be.
fn is_wanted(one: &Try, line: &str) -> bool {
    // Backups of Velero's namespace have one backup more with each backup.
    let of_the_servers = one.spec["includedNamespaces"].is_null();
    let is_about = |field: &str| line.starts_with(field);
    (of_the_servers && is_about(".status.progress"))
        // A label hides a namespace, and the spec stays as its author wrote it.
        || (one.name.starts_with("hidden-") && is_about(".spec.excludedNamespaces"))
        || (one.expected == Expected::SameWithARemark && line == ".status.warnings: absent | 1")
}

fn keys_without<'a>(
    one: &'a BTreeMap<String, Value>,
    other: &BTreeMap<String, Value>,
) -> Vec<&'a String> {
    one.keys().filter(|key| !other.contains_key(*key)).collect()
}

/// What of the object must be the same.
fn essence(ended: &Ended) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(&ended.backup)?;
    let metadata = object["metadata"].take();
    object["metadata"] =
        json!({ "labels": metadata["labels"], "annotations": metadata["annotations"] });
    // Nothing to do is left out or zero.
    if let Some(progress) = object["status"]["progress"].as_object_mut() {
        progress.retain(|_, count| *count != 0);
    }
    for volatile in ["startTimestamp", "completionTimestamp", "expiration"] {
        if !object["status"][volatile].is_null() {
            object["status"][volatile] = json!("some time");
        }
    }
    Ok(object)
}

/// The archive without what changes by itself or belongs to the servers.
fn entries(contents: &Contents) -> BTreeMap<String, Value> {
    contents
        .archive
        .iter()
        .filter(|(path, _)| !is_volatile(path))
        .map(|(path, value)| {
            let mut value = value.clone();
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
                metadata.remove("managedFields");
            }
            // Nobody beats for these, and the cluster notices by and by.
            let has_a_life = ["leases.", "nodes/", "horizontalpodautoscalers."];
            if has_a_life
                .iter()
                .any(|kind| path.starts_with(&format!("resources/{kind}")))
            {
                value["spec"] = Value::Null;
                value["status"] = Value::Null;
            }
            (path.clone(), value)
        })
        .collect()
}

/// Events come and go; backups and what belongs to them are the servers' own.
fn is_volatile(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let resource = parts.next().unwrap_or_default();
    resource.starts_with("events") || resource.ends_with(".velero.io") || {
        resource.starts_with("leases.") && path.contains(&format!("/{DEFAULT_NAMESPACE}/"))
    }
}

/// A file without the same.
fn plain(file: &str, contents: &Contents) -> Value {
    let mut value = contents.files[file].clone();
    if file == suffix::VOLUME_INFO {
        // What was done to volumes is not told yet.
        return Value::Null;
    }
    if file == suffix::RESOURCE_LIST
        && let Some(kinds) = value.as_object_mut()
    {
        kinds.retain(|kind, _| !kind.starts_with("velero.io/") && !kind.ends_with("/Event"));
        for names in kinds.values_mut() {
            let own = format!("{DEFAULT_NAMESPACE}/bowline-server");
            if let Some(names) = names.as_array_mut() {
                names.retain(|name| *name != own);
            }
        }
        kinds.retain(|_, names| names.as_array().is_none_or(|names| !names.is_empty()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::is_volatile;

    #[test]
    fn what_servers_make_is_not_compared() {
        for (path, expected) in [
            ("resources/events/namespaces/zoo/e.json", true),
            ("resources/backups.velero.io/namespaces/velero/b.json", true),
            (
                "resources/leases.coordination.k8s.io/namespaces/velero/bowline-server.json",
                true,
            ),
            (
                "resources/leases.coordination.k8s.io/namespaces/zoo/still.json",
                false,
            ),
            (
                "resources/secrets/namespaces/velero/cloud-credentials.json",
                false,
            ),
            ("metadata/version", false),
        ] {
            assert_eq!(is_volatile(path), expected, "{path}");
        }
    }
}
