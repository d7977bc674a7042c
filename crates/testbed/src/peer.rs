//! The real Velero: its command line, its server as a process, or all of it in the cluster.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, bail};
use bowline_api::{
    names::{
        CLOUD_CREDENTIALS_KEY, CLOUD_CREDENTIALS_SECRET, DEFAULT_LOCATION, DEFAULT_NAMESPACE,
        SERVER,
    },
    v1::{BackupStorageLocation, BackupStorageLocationPhase, Restore},
};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    Bed, Process,
    bed::Bucket,
    build::{VELERO, VELERO_PLUGIN_FOR_AWS},
    image::Image,
    pki, requirements,
    scene::{Scene, run},
    wait_for,
};

/// Puts Velero into the bed's cluster with its own `velero install`, node agents included, backing
/// up into the bucket, and waits until it can.
pub async fn install(bed: &Bed, bucket: &Bucket, flags: &[&str]) -> anyhow::Result<()> {
    let since = Timestamp::now();
    import(bed)?;
    let credentials = bed.folder().join("velero-credentials");
    pki::write_private(&credentials, &bucket.credentials())?;
    let mut velero = bed.program("velero");
    velero
        .args([
            "install",
            "--provider",
            "aws",
            "--use-node-agent",
            "--use-volume-snapshots=false",
        ])
        .args(["--image", &format!("velero/velero:v{VELERO}")])
        .args([
            "--plugins",
            &format!("velero/velero-plugin-for-aws:v{VELERO_PLUGIN_FOR_AWS}"),
        ])
        .args(["--bucket", &bucket.name, "--secret-file"])
        .arg(&credentials)
        .args([
            "--backup-location-config",
            &location_config(bucket),
            "--wait",
        ])
        .args(flags);
    run(velero).await?;
    location_available(bed, since).await
}

/// Gives the node Velero's images.
pub fn import(bed: &Bed) -> anyhow::Result<()> {
    images(bed)?.iter().try_for_each(|image| bed.import(image))
}

/// Takes Velero out of the cluster again.
pub async fn uninstall(scene: &Scene) -> anyhow::Result<()> {
    let mut velero = scene.program("velero");
    velero.args(["uninstall", "--force"]);
    run(velero).await.map(drop)
}

/// What Velero's server needs in the cluster when it runs as a process outside: CRDs, its
/// namespace, a Deployment of its name, credentials and a location.
pub async fn prepare(scene: &Scene, bucket: &Bucket) -> anyhow::Result<()> {
    let crds = scene.folder().join("velero-crds.yaml");
    fs::write(&crds, run(crds_of_velero(scene)).await?)?;
    scene
        .kubectl(&["apply", "-f", &crds.to_string_lossy()])
        .await?;
    scene
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "-l",
            "component=velero",
        ])
        .await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": DEFAULT_NAMESPACE } });
    scene.apply(&[namespace]).await?;
    let meta = |name: &str| json!({ "name": name, "namespace": DEFAULT_NAMESPACE });
    scene
        .apply(&[
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": meta(SERVER),
                "spec": {
                    "replicas": 0,
                    "selector": { "matchLabels": { "deploy": SERVER } },
                    "template": {
                        "metadata": { "labels": { "deploy": SERVER } },
                        "spec": { "containers": [{
                            "name": SERVER,
                            "image": format!("velero/velero:v{VELERO}"),
                        }] },
                    },
                },
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": meta(CLOUD_CREDENTIALS_SECRET),
                "stringData": { CLOUD_CREDENTIALS_KEY: bucket.credentials() },
            }),
            json!({
                "apiVersion": "velero.io/v1",
                "kind": "BackupStorageLocation",
                "metadata": meta(DEFAULT_LOCATION),
                "spec": {
                    "provider": "aws",
                    "default": true,
                    "objectStorage": { "bucket": bucket.name },
                    "credential": { "name": CLOUD_CREDENTIALS_SECRET, "key": CLOUD_CREDENTIALS_KEY },
                    "config": {
                        "region": "us-east-1",
                        "s3ForcePathStyle": "true",
                        "s3Url": bucket.s3.endpoint,
                        "checksumAlgorithm": "",
                    },
                },
            }),
        ])
        .await
}

/// A folder of the scene with plugins: some of the built programs.
pub fn plugins(scene: &Scene, folder: &str, programs: &[&str]) -> anyhow::Result<PathBuf> {
    let folder = scene.folder().join(folder);
    fs::create_dir_all(&folder)?;
    for program in programs {
        let file = folder.join(program);
        if !file.exists() {
            fs::copy(scene.bed().program_file(program), &file)?;
        }
    }
    Ok(folder)
}

/// Velero's server as a process outside the cluster, with its plugin for S3, more flags and
/// environment variables; back once it can reach its location.
pub async fn serve(scene: &Scene, flags: &[&str], env: &[(&str, &str)]) -> anyhow::Result<Process> {
    let plugins = plugins(scene, "plugins", &["velero-plugin-for-aws"])?;
    let mut command = scene.program("velero");
    command
        .args(["server", "--plugin-dir"])
        .arg(&plugins)
        .args([
            "--namespace",
            DEFAULT_NAMESPACE,
            "--metrics-address",
            "127.0.0.1:0",
            "--profiler-address",
            "",
        ])
        .args(flags)
        .envs(env.iter().copied())
        .env("VELERO_NAMESPACE", DEFAULT_NAMESPACE)
        .current_dir(scene.folder());
    let since = Timestamp::now();
    let server = scene.start("velero-server", command)?;
    if let Err(error) = location_available(scene.bed(), since).await {
        server.check()?;
        return Err(error);
    }
    Ok(server)
}

/// The command that prints Velero's own CRDs.
#[must_use]
pub fn crds_of_velero(scene: &Scene) -> Command {
    let mut command = scene.program("velero");
    command.args(["install", "--crds-only", "--dry-run", "-o", "yaml"]);
    command
}

/// Removes Velero's namespace and CRDs, and with them every object of its kinds.
pub async fn remove(scene: &Scene) -> anyhow::Result<()> {
    release(scene).await?;
    for what in [
        [
            "delete",
            "crd",
            "-l",
            "component=velero",
            "--ignore-not-found",
        ],
        [
            "delete",
            "namespace",
            DEFAULT_NAMESPACE,
            "--ignore-not-found",
            "--timeout=120s",
        ],
    ] {
        scene.kubectl(&what).await?;
    }
    Ok(())
}

/// Lets restores go that a server would have let go, if there were one.
async fn release(scene: &Scene) -> anyhow::Result<()> {
    let restores: Api<Restore> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let found = match restores.list(&ListParams::default()).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error).context("list restores"),
    };
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for restore in found {
        let name = restore.name_any();
        match restores.patch(&name, &PatchParams::default(), &free).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done.with_context(|| format!("let restore {name} go"))?),
        }
    }
    Ok(())
}

fn location_config(bucket: &Bucket) -> String {
    format!(
        "region=us-east-1,s3ForcePathStyle=true,s3Url={},checksumAlgorithm=",
        bucket.s3.endpoint
    )
}

/// Waits until a server has validated the default location since then.
pub(crate) async fn location_available(bed: &Bed, since: Timestamp) -> anyhow::Result<()> {
    let locations: Api<BackupStorageLocation> = Api::namespaced(bed.client(), DEFAULT_NAMESPACE);
    wait_for(
        "the location to be available",
        Duration::from_secs(120),
        async || {
            let Some(location) = locations.get_opt(DEFAULT_LOCATION).await? else {
                bail!("there is no location {DEFAULT_LOCATION}");
            };
            let status = location.status.context("no status yet")?;
            let looked = status.last_validation_time.is_some_and(|time| {
                // Whole seconds on the wire.
                time.0.as_second() >= since.as_second()
            });
            if looked && status.phase == Some(BackupStorageLocationPhase::Available) {
                return Ok(Some(()));
            }
            bail!(
                "phase {:?}, {}",
                status.phase,
                status.message.unwrap_or_default()
            )
        },
    )
    .await
}

fn images(bed: &Bed) -> anyhow::Result<[Image; 2]> {
    let busybox = requirements::busybox()?;
    let program = |name: &str, to: &str| (bed.program_file(name), to.to_owned());
    Ok([
        Image {
            name: format!("docker.io/velero/velero:v{VELERO}"),
            entrypoint: vec!["/velero".to_owned()],
            files: vec![
                program("velero", "/velero"),
                program("velero-restore-helper", "/velero-restore-helper"),
                program("restic", "/usr/bin/restic"),
                (busybox.clone(), "/bin/busybox".to_owned()),
            ],
            links: vec![("bin/sh".to_owned(), "/bin/busybox".to_owned())],
            ..Default::default()
        },
        Image {
            name: format!("docker.io/velero/velero-plugin-for-aws:v{VELERO_PLUGIN_FOR_AWS}"),
            entrypoint: [
                "/bin/busybox",
                "sh",
                "-c",
                "/bin/busybox cp /plugins/velero-plugin-for-aws /target/",
            ]
            .map(String::from)
            .to_vec(),
            files: vec![
                program("velero-plugin-for-aws", "/plugins/velero-plugin-for-aws"),
                (busybox, "/bin/busybox".to_owned()),
            ],
            ..Default::default()
        },
    ])
}
