//! Bowline in the cluster: put there by its own `bowline install`, from an image of the program that
//! scenarios run.

use std::path::PathBuf;

use anyhow::ensure;
use bowline_api::names::DEFAULT_NAMESPACE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    bed::Bucket,
    image::Image,
    peer, pki, requirements,
    scene::{Scene, run},
};

/// The image's name, as `bowline install` has it.
const IMAGE: &str = concat!("docker.io/bowline/bowline:v", env!("CARGO_PKG_VERSION"));

/// Installs server and node processes, backing up into the bucket at an address that pods reach,
/// and waits until they can.
pub async fn install(
    scene: &Scene,
    bucket: &Bucket,
    endpoint: &str,
    flags: &[&str],
) -> anyhow::Result<()> {
    let since = Timestamp::now();
    let program = PathBuf::from(scene.bowline().get_program());
    requirements::is_static(&program)?;
    scene.bed().import(&Image::bowline(IMAGE, &program))?;
    let credentials = scene.folder().join("credentials");
    pki::write_private(&credentials, &bucket.credentials())?;
    let config =
        format!("region=us-east-1,s3ForcePathStyle=true,s3Url={endpoint},checksumAlgorithm=");
    let mut install = scene.bowline();
    install
        .args(["install", "--provider", "aws", "--use-node-agent"])
        .args(["--use-volume-snapshots=false", "--image", IMAGE, "--wait"])
        .args([
            "--bucket",
            &bucket.name,
            "--backup-location-config",
            &config,
        ])
        .arg("--secret-file")
        .arg(&credentials)
        .args(flags);
    run(install).await?;
    peer::location_available(scene.bed(), since).await
}

/// Takes it out of the cluster again. None of its pods has been started twice.
pub async fn uninstall(scene: &Scene) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.name_any();
        let containers = pod.status.and_then(|s| s.container_statuses);
        let starts = containers.unwrap_or_default();
        let again: i32 = starts.iter().map(|container| container.restart_count).sum();
        ensure!(again == 0, "{name} was started again {again} times");
    }
    remove(scene).await
}

/// The same, whatever its pods have been through.
pub async fn remove(scene: &Scene) -> anyhow::Result<()> {
    let mut uninstall = scene.bowline();
    uninstall.args(["uninstall", "--force"]);
    run(uninstall).await.map(drop)
}
