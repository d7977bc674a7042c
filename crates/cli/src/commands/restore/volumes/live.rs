//! Volumes whose end the file does not know: Velero writes it before data is moved and claims are bound,
//! and leaves phases out. The cluster is asked; what it does not say stays open.

use bowline_api::{
    names::{label, label_value},
    v1::{PodVolumeRestore, Restore},
    v2alpha1::DataDownload,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, ResourceExt};

use crate::{
    context::Context,
    output::volumes::{Copied, Method, Outcome, Volume},
    select::labelled,
};

/// Claims that are asked for at the same time.
const PARALLEL: usize = 16;

/// All copies of a restore.
pub(super) async fn copies(ctx: &Context, client: &Client, restore: &Restore) -> Vec<Volume> {
    let (of, now) = (labels(restore), ctx.clock().now);
    let (mut copies, downloads) = futures::join!(
        pods(ctx, client, &of, now),
        downloads(ctx, client, &of, now),
    );
    copies.extend(downloads);
    copies
}

async fn pods(ctx: &Context, client: &Client, of: &str, now: Timestamp) -> Vec<Volume> {
    let copies = labelled::<PodVolumeRestore>(ctx, client, of, "PodVolumeRestores").await;
    copies.iter().map(|copy| copy.volume(now)).collect()
}

async fn downloads(ctx: &Context, client: &Client, of: &str, now: Timestamp) -> Vec<Volume> {
    let downloads = labelled::<DataDownload>(ctx, client, of, "DataDownloads").await;
    let downloads = downloads.iter();
    downloads.map(|download| download.volume(now)).collect()
}

fn labels(restore: &Restore) -> String {
    format!(
        "{}={}",
        label::RESTORE_NAME,
        label_value(&restore.name_any())
    )
}

/// Fills in how far volumes are and how they ended, as far as the cluster knows.
pub(super) async fn settle(
    ctx: &Context,
    client: &Client,
    restore: &Restore,
    volumes: &mut [Volume],
) {
    let is_open = |volume: &Volume| matches!(volume.result, Outcome::Unknown | Outcome::Pending);
    let has = |method: Method| volumes.iter().any(|v| v.method == method && is_open(v));
    let (of, now) = (labels(restore), ctx.clock().now);
    let copies: Vec<Volume> = match has(Method::PodVolume) {
        true => pods(ctx, client, &of, now).await,
        false => Vec::new(),
    };
    let downloads: Vec<Volume> = match has(Method::DataMovement) {
        true => downloads(ctx, client, &of, now).await,
        false => Vec::new(),
    };
    let open = volumes.iter_mut().filter(|volume| is_open(volume));
    let end = |volume: &mut Volume| match volume.method {
        Method::PodVolume => {
            let mut copies = copies.iter();
            if let Some(copy) = copies.find(|copy| copy.pod_volume == volume.pod_volume) {
                volume.learn(copy);
            }
        }
        Method::DataMovement => {
            let mut downloads = downloads.iter();
            if let Some(download) = downloads.find(|download| download.claim == volume.claim) {
                volume.learn(download);
            }
        }
        _ => {}
    };
    stream::iter(open)
        .for_each_concurrent(PARALLEL, |volume| async {
            end(&mut *volume);
            if volume.method == Method::CsiSnapshot && is_bound(client, volume).await {
                volume.ends(Outcome::Succeeded, None);
            }
        })
        .await;
}

/// Whether a volume's claim is bound by now. Who may not be asked is not.
async fn is_bound(client: &Client, volume: &Volume) -> bool {
    let Some((namespace, name)) = volume.claim.as_deref().and_then(|c| c.split_once('/')) else {
        return false;
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = claims.get_opt(name).await.ok().flatten();
    let status = found.and_then(|claim| claim.status);
    status.and_then(|status| status.phase).as_deref() == Some("Bound")
}
