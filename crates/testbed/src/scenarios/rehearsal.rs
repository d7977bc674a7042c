//! A rehearsal on a cluster that half exists: what it says is what the restore then does, object by
//! object.

use std::{collections::BTreeMap, fs::File, io::Read, time::Duration};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    files::{ResourceList, restore_suffix},
    names::DEFAULT_NAMESPACE,
    v1::{Restore, RestorePhase},
};
use bowline_vault::bucket::restore_file;
use flate2::read::GzDecoder;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::{
    bed::Bucket,
    peer,
    scene::{Scene, run},
    servers::{self, Server},
    wait_for, zoo,
};

/// Words of a plan, and what the resource list may say then.
const WORDS: [(&str, &[&str]); 6] = [
    ("create", &["created"]),
    ("update", &["updated"]),
    ("unchanged", &["skipped"]),
    // What is over, or none of the cluster's business, is not in the list at all.
    ("skip", &["skipped", ""]),
    ("conflict", &["failed"]),
    ("refused", &["failed"]),
];

/// The story.
pub(super) async fn comes_true(scene: &Scene) -> anyhow::Result<String> {
    let client = scene.client();
    let bucket = scene.bucket("rehearsal")?;
    peer::prepare(scene, &bucket).await?;
    zoo::make(&client).await?;
    let server = Server::Ours.start(scene, &[]).await?;
    let backup = scene.fresh("whole");
    let spec = json!({ "includedNamespaces": zoo::NAMESPACES, "includeClusterResources": true });
    servers::back_up(&client, &backup, &spec)
        .await?
        .completed()?;
    let mut told = Vec::new();
    for (n, policy) in ["none", "update"].into_iter().enumerate() {
        damage(scene, n).await?;
        let flags = [
            "--from-backup",
            &backup,
            "--existing-resource-policy",
            policy,
        ];
        let (plan, clean) = rehearse(scene, &flags).await?;
        let restore = scene.fresh(policy);
        carry_out(scene, &restore, &flags).await?;
        let done = list(&bucket, &restore)?;
        let count = compare(&plan, &done)?;
        ensure!(!clean, "a cluster with changed objects is no clean one");
        told.push(format!("{count} objects with {policy}"));
    }
    server.stop().await?;
    peer::remove(scene).await?;
    Ok(format!("as planned: {}", told.join(", ")))
}

/// Deletes and changes some of what was backed up.
async fn damage(scene: &Scene, round: usize) -> anyhow::Result<()> {
    let zoo = |args: &[&str]| {
        let args: Vec<String> = ["-n", "zoo"]
            .iter()
            .chain(args)
            .map(|s| (*s).to_owned())
            .collect();
        async move {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            scene.kubectl(&args).await
        }
    };
    zoo(&["delete", "secrets", "--all"]).await?;
    let deleted = ["delete", "service", "--all"];
    zoo(&deleted).await?;
    let patch = json!({ "data": { "round": round.to_string() } }).to_string();
    zoo(&[
        "patch",
        "configmap",
        "empty",
        "--type",
        "merge",
        "-p",
        &patch,
    ])
    .await?;
    scene
        .kubectl(&["delete", "clusterrole", "zoo-unbound", "--ignore-not-found"])
        .await?;
    scene
        .kubectl(&["delete", "parrots.zoo.example.com", "--all", "-n", "zoo"])
        .await?;
    Ok(())
}

/// What our command line says would happen, by object.
async fn rehearse(
    scene: &Scene,
    flags: &[&str],
) -> anyhow::Result<(BTreeMap<String, String>, bool)> {
    let versions = || async {
        let restores: Api<Restore> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
        let found = restores.list(&ListParams::default()).await?;
        anyhow::Ok(found.items.len())
    };
    let before = versions().await?;
    let mut command = scene.bowline();
    command
        .args(["restore", "create", "plan", "--dry-run", "-o", "json"])
        .args(flags);
    // Its exit code says that the restore would not be clean.
    let output = tokio::process::Command::from(command).output().await?;
    let value: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("it said {}", String::from_utf8_lossy(&output.stderr)))?;
    let clean = value["clean"] == true;
    ensure!(
        output.status.success() == clean,
        "the exit code is {}",
        output.status
    );
    ensure!(versions().await? == before, "a restore was made");
    let items = value["items"].as_array().context("no items")?;
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
    let plan = items.iter().map(|item| {
        let key = key(
            &text(item, "resource"),
            &text(item, "namespace"),
            &text(item, "name"),
        );
        (key, text(item, "action"))
    });
    Ok((plan.collect(), clean))
}

/// Objects are compared by the plural of their kind, which the list does not have.
fn key(resource: &str, namespace: &str, name: &str) -> String {
    let plural = resource.split('.').next().unwrap_or_default();
    format!("{plural} {namespace}/{name}")
}

async fn carry_out(scene: &Scene, name: &str, flags: &[&str]) -> anyhow::Result<()> {
    let mut command = scene.bowline();
    command.args(["restore", "create", name]).args(flags);
    run(command).await?;
    let restores: Api<Restore> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let soon = Duration::from_secs(120);
    wait_for("the restore to end", soon, async || {
        let status = restores.get(name).await?.status.unwrap_or_default();
        match status.phase {
            Some(RestorePhase::Completed | RestorePhase::PartiallyFailed) => Ok(Some(())),
            Some(RestorePhase::Failed | RestorePhase::FailedValidation) => bail!("{status:?}"),
            phase => bail!("it is {phase:?}"),
        }
    })
    .await
}

fn list(bucket: &Bucket, restore: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let file = restore_file(restore, restore_suffix::RESOURCE_LIST);
    let mut text = String::new();
    GzDecoder::new(File::open(bucket.folder().join(file))?).read_to_string(&mut text)?;
    let list: ResourceList = serde_json::from_str(&text)?;
    let mut done = BTreeMap::new();
    for (kind, entries) in list {
        let kind = kind.rsplit('/').next().unwrap_or_default().to_lowercase();
        for entry in entries {
            let (name, word) = entry
                .strip_suffix(')')
                .and_then(|entry| entry.rsplit_once('('))
                .with_context(|| format!("the list has {entry:?}"))?;
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            done.insert(format!("{kind} {namespace}/{name}"), word.to_owned());
        }
    }
    Ok(done)
}

/// Plurals begin as kinds do.
fn is_of(plan: &str, done: &str) -> bool {
    let (Some((plural, at)), Some((kind, there))) = (plan.split_once(' '), done.split_once(' '))
    else {
        return false;
    };
    let stem = kind.strip_suffix('y').unwrap_or(kind);
    at == there && plural.starts_with(stem)
}

fn compare(
    plan: &BTreeMap<String, String>,
    done: &BTreeMap<String, String>,
) -> anyhow::Result<usize> {
    let mut wrong = Vec::new();
    // Controllers make and unmake these while we look.
    let is_ours = |key: &&String| !key.starts_with("endpoint");
    for (key, planned) in plan.iter().filter(|(key, _)| is_ours(key)) {
        let found = done.iter().find(|(other, _)| is_of(key, other));
        let word = found.map_or("", |(_, word)| word.as_str());
        let allowed = WORDS.iter().find(|(name, _)| name == planned);
        let allowed = allowed.map(|(_, words)| *words).unwrap_or_default();
        // Namespaces that are there already are not in the list.
        let existing = key.starts_with("namespaces ") && planned == "unchanged" && word.is_empty();
        if !allowed.contains(&word) && !existing {
            wrong.push(format!("{key}: planned {planned}, done {word:?}"));
        }
    }
    for key in done.keys().filter(is_ours) {
        if !plan.keys().any(|other| is_of(other, key)) {
            wrong.push(format!("{key} was not planned"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(plan.len())
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn plurals_and_kinds_are_matched() {
        for (plan, done, same) in [
            ("pods a/x", "pod a/x", true),
            ("networkpolicies a/x", "networkpolicy a/x", true),
            ("storageclasses /x", "storageclass /x", true),
            ("endpoints a/x", "endpoints a/x", true),
            ("pods a/x", "pod a/y", false),
            ("pods a/x", "secret a/x", false),
        ] {
            assert_eq!(is_of(plan, done), same, "{plan} {done}");
        }
    }
}
