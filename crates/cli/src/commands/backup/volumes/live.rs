//! Copies that go on, or that the bucket's file does not know: the cluster is asked.

use bowline_api::{
    names::{label, label_value},
    v1::{Backup, PodVolumeBackup},
    v2alpha1::DataUpload,
};
use kube::{Client, ResourceExt};

use crate::{
    context::Context,
    output::volumes::{Copied, Method, Volume},
    select::labelled,
};

/// All copies of a backup.
pub(super) async fn copies(ctx: &Context, client: &Client, backup: &Backup) -> Vec<Volume> {
    let (of, now) = (labels(backup), ctx.clock().now);
    let (pods, uploads) = futures::join!(
        labelled::<PodVolumeBackup>(ctx, client, &of, "PodVolumeBackups"),
        labelled::<DataUpload>(ctx, client, &of, "DataUploads"),
    );
    let pods = pods.iter().map(|copy| copy.volume(now));
    let uploads = uploads.iter().map(|upload| upload.volume(now));
    pods.chain(uploads).collect()
}

/// Fills in how far movements of data are, or why they failed: the file is written before they end, and
/// has no messages.
pub(super) async fn settle(
    ctx: &Context,
    client: &Client,
    backup: &Backup,
    volumes: &mut [Volume],
) {
    let is_open = |volume: &Volume| volume.method == Method::DataMovement && !volume.good;
    if !volumes.iter().any(is_open) {
        return;
    }
    let (of, now) = (labels(backup), ctx.clock().now);
    let uploads = labelled::<DataUpload>(ctx, client, &of, "DataUploads").await;
    let uploads: Vec<Volume> = uploads.iter().map(|upload| upload.volume(now)).collect();
    for volume in volumes.iter_mut().filter(|volume| is_open(volume)) {
        let mut uploads = uploads.iter();
        if let Some(upload) = uploads.find(|upload| upload.claim == volume.claim) {
            volume.learn(upload);
        }
    }
}

fn labels(backup: &Backup) -> String {
    format!("{}={}", label::BACKUP_NAME, label_value(&backup.name_any()))
}
