//! What the cluster says of the claims of a restore: their volumes, the snapshots that they are made of,
//! and the movements of their data. Many are asked for at a time, and none of them for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    future::Future,
    time::Duration,
};

use bowline_api::{
    names::{label, label_value},
    v1::Restore,
    v2alpha1::DataDownload,
};
use bowline_engine::log::About;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use tokio::time::Instant;

use super::csi::{self, Csi};
use crate::{Context, error::chain};

/// Claims that are looked at at the same time.
const PARALLEL: usize = 32;
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The group of snapshots.
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// Told what could not be found out.
pub(super) type Warn<'a> = dyn Fn(&str, &About) + Sync + 'a;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Claims by namespace and name; those that could not be read are not in it.
    pub(super) claims: BTreeMap<(String, String), Option<Live>>,
    /// Movements of data into volumes.
    pub(super) downloads: Vec<DataDownload>,
}

/// A claim that is there.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) claim: PersistentVolumeClaim,
    /// The snapshot that it is made of, as far as it is known.
    pub(super) csi: Option<Csi>,
}

/// Asks for all of it.
pub(super) async fn look(
    ctx: &Context,
    restore: &Restore,
    claims: &BTreeSet<(String, String)>,
    warn: &Warn<'_>,
) -> Seen {
    let until = Instant::now() + LIMIT;
    let reading = stream::iter(claims.iter().cloned())
        .map(|of| async move {
            let live = live(ctx, &of, until, warn).await?;
            Some((of, live))
        })
        .buffer_unordered(PARALLEL)
        .filter_map(std::future::ready)
        .collect();
    let listing = async {
        match claims.is_empty() {
            true => Vec::new(),
            false => downloads(ctx, restore, until, warn).await,
        }
    };
    let (claims, downloads) = futures::join!(reading, listing);
    Seen { claims, downloads }
}

/// An answer in time, or why there is none.
async fn in_time<T, E: Display + std::error::Error + 'static>(
    until: Instant,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout_at(until, asked).await {
        Ok(answer) => answer.map_err(|error| chain(&error)),
        Err(_) => Err("there is no time left".to_owned()),
    }
}

/// A claim; the outer none is one that could not be read.
async fn live(
    ctx: &Context,
    (namespace, name): &(String, String),
    until: Instant,
    warn: &Warn<'_>,
) -> Option<Option<Live>> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), namespace);
    let claim = match in_time(until, claims.get_opt(name)).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return Some(None),
        Err(why) => {
            let what = "volume info: the claim cannot be read, so what it is bound to is missing";
            let about = About::object("persistentvolumeclaims", namespace, name);
            warn(what, &about.because(why));
            return None;
        }
    };
    let csi = match csi::source(&claim) {
        Some(snapshot) => csi(ctx, namespace, &snapshot, until, warn).await,
        None => None,
    };
    Some(Some(Live { claim, csi }))
}

/// The snapshot that a claim is made of.
async fn csi(
    ctx: &Context,
    namespace: &str,
    name: &str,
    until: Instant,
    warn: &Warn<'_>,
) -> Option<Csi> {
    let resource = |kind: &str, plural: &str| ApiResource {
        group: SNAPSHOTS.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{SNAPSHOTS}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let client = || ctx.client.clone();
    let of = resource("VolumeSnapshot", "volumesnapshots");
    let snapshots: Api<DynamicObject> = Api::namespaced_with(client(), namespace, &of);
    let what = "volume info: the snapshot that the claim is made of cannot be read";
    let about = About::object("volumesnapshots.snapshot.storage.k8s.io", namespace, name);
    let snapshot = match in_time(until, snapshots.get_opt(name)).await {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => {
            warn(what, &about.because("it is gone"));
            return Some(Csi::default());
        }
        Err(why) => {
            warn(what, &about.because(why));
            return Some(Csi::default());
        }
    };
    let mut csi = Csi::of(&snapshot.data, snapshot.annotations());
    let content = csi.info.vsc_name.clone();
    if content.is_empty() {
        return Some(csi);
    }
    let of = resource("VolumeSnapshotContent", "volumesnapshotcontents");
    let contents: Api<DynamicObject> = Api::all_with(client(), &of);
    match in_time(until, contents.get_opt(&content)).await {
        Ok(Some(found)) => csi.with_content(&found.data),
        // What the snapshot says of it is enough.
        Ok(None) => {}
        Err(why) => {
            let what = "volume info: the content of the claim's snapshot cannot be read";
            let about = About::object(
                "volumesnapshotcontents.snapshot.storage.k8s.io",
                "",
                &content,
            );
            warn(what, &about.because(why));
        }
    }
    Some(csi)
}

async fn downloads(
    ctx: &Context,
    restore: &Restore,
    until: Instant,
    warn: &Warn<'_>,
) -> Vec<DataDownload> {
    let name = label_value(&restore.name_any());
    let labels = format!("{}={name}", label::RESTORE_NAME);
    let listed = tokio::time::timeout_at(until, ctx.list::<DataDownload>(&labels)).await;
    let why = match listed {
        Ok(Ok(found)) => return found,
        // A cluster need not have the kind.
        Ok(Err(error)) if error.is_not_found() => return Vec::new(),
        Ok(Err(error)) => error.chain(),
        Err(_) => "there is no time left".to_owned(),
    };
    let what = "volume info: DataDownloads cannot be listed, so moved data is missing";
    warn(what, &About::default().because(why));
    Vec::new()
}
