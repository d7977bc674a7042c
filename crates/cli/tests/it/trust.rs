//! Files behind HTTPS: whose certificate is believed, and by whose word.

use std::fs;

use base64::{Engine, prelude::BASE64_STANDARD};
use bowline_api::v1::{BackupStorageLocation, DownloadRequest};
use bowline_apiserver::{ApiServer, Identity};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::bed::Bed;

/// A store with a certificate of its own making, which has none of the files; being told so is as
/// good as trust.
async fn bed() -> (Bed, String) {
    let bed = Bed::start()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = Identity::self_signed(address.ip()).unwrap();
    let certificate = identity.certificate.clone();
    tokio::spawn(async move {
        let store = ApiServer::default();
        let forever = std::future::pending();
        store
            .serve(listener, Some(&identity), forever)
            .await
            .unwrap();
    });
    let requests: Api<DownloadRequest> = Api::namespaced(bed.client.clone(), "velero");
    tokio::spawn(async move {
        let events = watcher::watcher(requests.clone(), watcher::Config::default());
        let mut fresh = events.default_backoff().applied_objects().boxed();
        while let Some(request) = fresh.next().await {
            let request = request.unwrap();
            if request.status.is_none() {
                let url = format!("https://{address}/no/such/file?signature=secret");
                let status = json!({"status": {"phase": "Processed", "downloadURL": url}});
                let params = PatchParams::default();
                requests
                    .patch(&request.name_any(), &params, &Patch::Merge(&status))
                    .await
                    .unwrap();
            }
        }
    });
    (bed, certificate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strange_certificate_is_refused_with_the_way_out_and_without_the_address() {
    let (bed, certificate) = bed().await;
    let refusal = bed.run(&["backup", "logs", "basic"]).await.refused();
    assert!(refusal.contains("certificate"), "{refusal}");
    assert!(
        refusal.contains("\nhint: trust the store with `--cacert <file>`"),
        "{refusal}"
    );
    assert!(
        !refusal.contains("secret"),
        "a signed address is a credential: {refusal}"
    );

    fs::write(bed.folder.path().join("ca.pem"), &certificate).unwrap();
    for flag in ["--cacert=ca.pem", "--insecure-skip-tls-verify"] {
        let trusted = bed.run(&["backup", "logs", "basic", flag]).await.refused();
        assert!(
            trusted.starts_with("bowline: file not found\n"),
            "{flag}: {trusted}"
        );
    }
    bed.run(&["client", "config", "set", "cacert=ca.pem"])
        .await
        .well();
    let trusted = bed.run(&["backup", "logs", "basic"]).await.refused();
    assert!(
        trusted.starts_with("bowline: file not found\n"),
        "{trusted}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_location_s_own_certificate_is_believed() {
    let (bed, certificate) = bed().await;
    fs::write(bed.folder.path().join("ca.pem"), &certificate).unwrap();
    bed.run(&["backup-location", "set", "default", "--cacert", "ca.pem"])
        .await
        .well();
    let logs = ["backup", "logs", "basic"];
    let trusted = bed.run(&logs).await.refused();
    assert!(
        trusted.starts_with("bowline: file not found\n"),
        "{trusted}"
    );

    let absent = bed
        .run(&["backup", "logs", "basic", "--cacert", "/no/such"])
        .await
        .refused();
    let warning = "Warning: Failed to open CA certificate file /no/such: ";
    assert!(absent.starts_with(warning), "{absent}");
    assert!(absent.contains("bowline: file not found"), "{absent}");

    // A Secret goes before what is inline.
    bed.server
        .load(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "velero"},
            "data": {"ca.crt": BASE64_STANDARD.encode(&certificate)},
        }))
        .unwrap();
    let api: Api<BackupStorageLocation> = Api::namespaced(bed.client.clone(), "velero");
    let reference = json!({"spec": {"objectStorage": {
        "caCert": null, "caCertRef": {"name": "ca", "key": "ca.crt"},
    }}});
    api.patch(
        "default",
        &PatchParams::default(),
        &Patch::Merge(&reference),
    )
    .await
    .unwrap();
    let trusted = bed.run(&logs).await.refused();
    assert!(
        trusted.starts_with("bowline: file not found\n"),
        "{trusted}"
    );
}
