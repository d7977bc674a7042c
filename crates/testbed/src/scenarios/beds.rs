//! Beds themselves: any number of API-only ones, each with its own secrets.

use std::fs;

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};
use serde_json::Value;

use crate::{Bed, Cache, Mode, Process, bed, scene::Scene};

/// A second bed starts beside this one, knows nothing of it, and leaves it alone when it ends.
pub(super) async fn side_by_side(scene: &Scene) -> anyhow::Result<String> {
    let here = scene.namespace("here").await?;
    let cache = Cache::open()?;
    let other = Bed::up(&cache, Mode::Api, Some(Process::me()?), &|_| ()).await?;
    let seen = look_at(scene, &other, &here).await;
    let api = other.process("kube-apiserver").cloned();
    let folder = other.folder().to_owned();
    other.down().await?;
    seen?;
    ensure!(
        !api.is_some_and(|process| process.is_alive()),
        "the other API server still runs"
    );
    ensure!(!folder.exists(), "{} is still there", folder.display());

    let namespaces: Api<Namespace> = Api::all(scene.client());
    ensure!(
        namespaces.get_opt(&here).await?.is_some(),
        "this bed forgot its namespace"
    );
    Ok("2 API servers, own tokens, own objects".to_owned())
}

async fn look_at(scene: &Scene, other: &Bed, here: &str) -> anyhow::Result<()> {
    let there: Api<Namespace> = Api::all(other.client());
    let names = there.list(&ListParams::default()).await?;
    ensure!(
        !names.items.is_empty(),
        "the other bed has no namespaces at all"
    );
    ensure!(
        there.get_opt(here).await?.is_none(),
        "the other bed has our namespace"
    );

    let mut config: Value = serde_json::from_slice(&fs::read(other.kubeconfig())?)?;
    let ours: Value = serde_json::from_slice(&fs::read(scene.bed().kubeconfig())?)?;
    config["users"] = ours["users"].clone();
    let mixed = scene.folder().join("mixed-kubeconfig");
    fs::write(&mixed, serde_json::to_vec(&config)?)?;
    let stranger: Api<Namespace> = Api::all(bed::client(&mixed).await?);
    match stranger.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 401 => {}
        other => bail!("our token was not refused there: {other:?}"),
    }
    Ok(())
}
