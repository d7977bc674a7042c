//! Volumes whose end the file does not know: Velero writes it before data is moved and claims are bound,
//! and leaves phases out. The cluster is asked; what it does not say stays open.

use bowline_api::{
    names::{label, label_value},
    v1::{PodVolumeRestore, Restore},
    v2alpha1::DataDownload,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, ResourceExt};

use crate::{
    context::Context,
    output::volumes::{Method, Outcome, Volume},
    select::labelled,
};

/// Claims that are asked for at the same time.
const PARALLEL: usize = 16;

/// Fills in how volumes ended, as far as the cluster knows.
pub(super) async fn settle(
    ctx: &Context,
    client: &Client,
    restore: &Restore,
    volumes: &mut [Volume],
) {
    let is_open = |volume: &Volume| matches!(volume.result, Outcome::Unknown | Outcome::Pending);
    let has = |method: Method| volumes.iter().any(|v| v.method == method && is_open(v));
    let of = format!(
        "{}={}",
        label::RESTORE_NAME,
        label_value(&restore.name_any())
    );
    let copies = match has(Method::PodVolume) {
        true => labelled::<PodVolumeRestore>(ctx, client, &of, "PodVolumeRestores").await,
        false => Vec::new(),
    };
    let downloads = match has(Method::DataMovement) {
        true => labelled::<DataDownload>(ctx, client, &of, "DataDownloads").await,
        false => Vec::new(),
    };
    let open = volumes.iter_mut().filter(|volume| is_open(volume));
    let end = |volume: &mut Volume| match volume.method {
        Method::PodVolume => {
            let mut copies = copies.iter().map(Volume::from);
            if let Some(copy) = copies.find(|copy| copy.pod_volume == volume.pod_volume) {
                volume.ends(copy.result, copy.reason);
            }
        }
        Method::DataMovement => {
            let is_its = |download: &&DataDownload| {
                let target = &download.spec.target_volume;
                let claim = format!("{}/{}", target.namespace, target.pvc);
                volume.claim.as_ref() == Some(&claim)
            };
            if let Some(download) = downloads.iter().find(is_its) {
                let status = download.status.clone().unwrap_or_default();
                let phase = status.phase.unwrap_or_default();
                volume.ends(Outcome::from(&phase), status.message);
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
