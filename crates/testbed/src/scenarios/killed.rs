//! Our server dies at every place where that could matter, and the next one finishes the backup;
//! restores likewise.

pub(super) mod restore;

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{names::DEFAULT_NAMESPACE, v1::Backup};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    bed::Bucket,
    contents::Contents,
    fill::Fill,
    peer,
    scene::Scene,
    servers::{self, Ended, Server},
    wait_for,
};

const LEASE: &str = "bowline-server";
/// A server is reached, and a small backup made, in much less.
const SOON: Duration = Duration::from_secs(60);

/// For every place in the making of a backup: killed there, finished by the next server.
pub(super) async fn in_the_middle(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("killed")?;
    peer::prepare(scene, &bucket).await?;
    let namespace = scene.namespace("shop").await?;
    let fill = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": namespace },
            "data": { "a": "b" },
        })
    };
    scene.apply(&[fill("one"), fill("two")]).await?;
    let spec = json!({ "includedNamespaces": [namespace] });

    let trace = scene.folder().join("trace");
    let env = [("BOWLINE_CRASH_TRACE", &*trace.to_string_lossy())];
    let server = Server::Ours.start_with(scene, &[], &env).await?;
    let whole = scene.fresh("whole");
    servers::back_up(&scene.client(), &whole, &spec)
        .await?
        .completed()?;
    server.kill().await?;
    let expected = Contents::read(&bucket, &whole)?;
    let places = places(&trace)?;
    ensure!(places.len() >= 10, "only {places:?} were passed");

    let mut names = vec![whole];
    let mut failures = Vec::new();
    for (n, place) in places.iter().enumerate() {
        let name = scene.fresh(&format!("killed-{n}"));
        let told = killed_at(scene, place, &name, &spec).await;
        match told.and_then(|ended| like(&bucket, &name, &expected, ended)) {
            Ok(()) => names.push(name),
            Err(error) => failures.push(format!("{place}: {error:#}")),
        }
    }
    ensure!(failures.is_empty(), "killed\n{}", failures.join("\n"));
    velero_finds(scene, &names).await?;
    peer::remove(scene).await?;
    Ok(format!(
        "{} places, each finished by the next server",
        places.len()
    ))
}

/// The places passed, each once.
fn places(trace: &Path) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(trace).context("no place was passed")?;
    let mut seen = BTreeSet::new();
    let places = text.lines().filter(|place| seen.insert(*place));
    Ok(places.map(str::to_owned).collect())
}

/// A backup whose server dies at a place, to its end by another server.
async fn killed_at(scene: &Scene, place: &str, name: &str, spec: &Value) -> anyhow::Result<Ended> {
    let made = dies_at(scene, place, name, async || {
        servers::create_backup(&scene.client(), name, spec).await
    })
    .await?;
    let server = servers::launch(scene, &[], &[])?;
    let backup = servers::ended(&scene.client(), &made, SOON).await;
    server.kill().await?;
    Ok(Ended {
        backup: backup?,
        took: Duration::ZERO,
    })
}

/// Starts a server, gives it work, and sees it die at a place.
async fn dies_at<T>(
    scene: &Scene,
    place: &str,
    name: &str,
    work: impl AsyncFnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let note = scene.folder().join(format!("{name}.note"));
    let env = [
        ("BOWLINE_CRASH_AT", place),
        ("BOWLINE_CRASH_NOTE", &*note.to_string_lossy()),
    ];
    free_lease(scene).await?;
    let server = servers::launch(scene, &[], &env)?;
    let made = work().await?;
    let died = wait_for("the server to die", SOON, async || {
        Ok((!server.is_alive()).then_some(()))
    });
    died.await.context("the place was not reached")?;
    let noted = fs::read_to_string(&note).unwrap_or_default();
    ensure!(noted.trim() == place, "it died elsewhere, at {noted:?}");
    free_lease(scene).await?;
    Ok(made)
}

/// A server that is killed leaves its lease, which others respect for its time; that they do is
/// another story.
pub(super) async fn free_lease(scene: &Scene) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    match leases.delete(LEASE, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).context("remove the lease"),
    }
}

/// Completed, with the files and the archive of a backup that nothing happened to.
fn like(bucket: &Bucket, name: &str, expected: &Contents, ended: Ended) -> anyhow::Result<()> {
    ended.completed()?;
    let contents = Contents::read(bucket, name)?;
    ensure!(
        contents.file_names() == expected.file_names(),
        "the files are {:?}",
        contents.file_names()
    );
    let paths = |contents: &Contents| -> Vec<String> {
        let all = contents.archive.keys().cloned();
        all.filter(|path| !path.contains("/events")).collect()
    };
    ensure!(
        paths(&contents) == paths(expected),
        "the archive has {:?}",
        paths(&contents)
    );
    Ok(())
}

/// Velero takes these backups, and no others, from the bucket.
async fn velero_finds(scene: &Scene, names: &[String]) -> anyhow::Result<()> {
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    backups
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let server = Server::Velero.start(scene, &[]).await?;
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    wait_for(
        "velero to find the backups",
        Duration::from_secs(100),
        async || {
            let found = backups.list(&ListParams::default()).await?;
            let found: BTreeSet<&str> = found
                .iter()
                .filter_map(|backup| backup.metadata.name.as_deref())
                .collect();
            ensure!(
                found == wanted,
                "it has {} of {}",
                found.len(),
                wanted.len()
            );
            Ok(Some(()))
        },
    )
    .await?;
    server.stop().await
}

/// Two servers of ours: when the one that acts is killed, the other goes on.
pub(super) async fn two_servers(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("two")?;
    peer::prepare(scene, &bucket).await?;
    let fill = Fill::of(&scene.fresh("fill"), 2000);
    fill.make(&scene.client()).await?;
    let spec = json!({ "includedNamespaces": [format!("{}-*", fill.prefix)] });

    // Killed when all is written but what makes it a backup.
    let dies = [("BOWLINE_CRASH_AT", "before put velero-backup.json")];
    let first = Server::Ours.start_with(scene, &[], &dies).await?;
    let second = servers::launch(scene, &[], &[])?;
    let name = scene.fresh("two");
    let made = servers::create_backup(&scene.client(), &name, &spec).await?;
    wait_for("the first server to die", SOON, async || {
        Ok((!first.is_alive()).then_some(()))
    })
    .await?;
    let began = std::time::Instant::now();
    second.check()?;
    let backup = servers::ended(&scene.client(), &made, SOON).await?;
    let took = began.elapsed();
    Ended { backup, took }.completed()?;
    let contents = Contents::read(&bucket, &name)?;
    let maps = contents
        .archive
        .keys()
        .filter(|path| path.starts_with("resources/configmaps/namespaces/") && path.contains("/o"))
        .count();
    ensure!(maps == 400, "{maps} ConfigMaps in the archive");
    second.stop().await?;
    peer::remove(scene).await?;
    Ok(format!(
        "taken over and completed {:.1} s after the first server was killed",
        took.as_secs_f64()
    ))
}

/// Our server does not start beside a Velero server, which knows no lease; unless it is told to.
pub(super) async fn beside_velero(scene: &Scene) -> anyhow::Result<String> {
    let bucket = scene.bucket("beside")?;
    peer::prepare(scene, &bucket).await?;
    let velero = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "velero-0", "namespace": DEFAULT_NAMESPACE },
        "spec": { "containers": [{
            "name": "velero",
            "image": "velero/velero:v1.18.3",
            "command": ["/velero"],
            "args": ["server", "--uploader-type=kopia"],
        }] },
    });
    scene.apply(&[velero]).await?;
    let refused = servers::launch(scene, &[], &[])?;
    wait_for("the server to refuse", SOON, async || {
        Ok((!refused.is_alive()).then_some(()))
    })
    .await?;
    let why = format!("{:#}", refused.check().expect_err("it has ended"));
    ensure!(
        why.contains("a Velero server runs in namespace velero (pod velero-0)"),
        "it said: {why}"
    );
    let told = Server::Ours.start(scene, &["--beside-velero"]).await?;
    told.stop().await?;
    scene
        .kubectl(&[
            "-n",
            DEFAULT_NAMESPACE,
            "delete",
            "pod",
            "velero-0",
            "--force",
            "--grace-period=0",
        ])
        .await?;
    peer::remove(scene).await?;
    Ok("refused, and says why; --beside-velero starts it".to_owned())
}
