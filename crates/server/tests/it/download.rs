//! A request brings an address, and the address the file.

use std::fs;

use bowline_api::v1::{Backup, DownloadRequest, DownloadRequestPhase as Phase, Restore};
use bowline_server::{controllers::download, http};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use crate::scene::{Scene, eventually};

/// The status line and the body.
async fn fetch(url: &str) -> (String, Vec<u8>) {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    // HTTP/1.0: the body ends with the connection.
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let line = head.lines().next().unwrap().to_owned();
    (line, answer[end + 4..].to_vec())
}

/// Serves over HTTP; the address without a slash at its end.
async fn serve(scene: &Scene) -> (String, watch::Sender<bool>) {
    let listener = http::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (ready, is_ready) = watch::channel(false);
    let router = http::router(scene.ctx.clone(), is_ready);
    tokio::spawn(http::serve(listener, router, scene.ctx.stop.clone()));
    (address, ready)
}

async fn ask(scene: &Scene, name: &str, kind: &str, target: &str) {
    let spec = json!({"target": {"kind": kind, "name": target}});
    let _: DownloadRequest = scene
        .create(json!({"metadata": {"name": name}, "spec": spec}))
        .await;
}

async fn address(scene: &Scene, name: &str) -> String {
    eventually("an address", async || {
        let request = scene.get::<DownloadRequest>(name).await.unwrap();
        request.status.is_some_and(|s| s.download_url.is_some())
    })
    .await;
    let request = scene.get::<DownloadRequest>(name).await.unwrap();
    let status = request.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Processed));
    assert!(status.expiration.is_some());
    status.download_url.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_downloaded_through_signed_addresses() {
    let scene = Scene::new();
    let (server, _ready) = serve(&scene).await;
    // In a folder of the bucket, so that the whole key is what is signed.
    scene.golden("default/team", "backups/basic");
    scene.golden("default/team", "restores/mapped");
    let spec = json!({"config": {"publicUrl": server}, "objectStorage": {"prefix": "team"}});
    scene.available("default", json!({"spec": spec}));
    let spec: Value = json!({"spec": {"storageLocation": "default"}});
    scene.load::<Backup>("basic", spec);
    scene.load::<Restore>("mapped", json!({"spec": {"backupName": "basic"}}));
    scene.start(download::run);

    for (request, kind, target, file) in [
        (
            "one",
            "BackupContents",
            "basic",
            "backups/basic/basic.tar.gz",
        ),
        (
            "two",
            "RestoreLog",
            "mapped",
            "restores/mapped/restore-mapped-logs.gz",
        ),
    ] {
        ask(&scene, request, kind, target).await;
        let url = address(&scene, request).await;
        let (line, body) = fetch(&url).await;
        assert_eq!(line, "HTTP/1.0 200 OK");
        let file = scene.bucket("default/team").join(file);
        assert!(body == fs::read(file).unwrap(), "{kind}");
        let (line, _) = fetch(&url.replace("signature=", "signature=00")).await;
        assert_eq!(line, "HTTP/1.0 403 Forbidden");
        let (line, _) = fetch(&url.replace("expires=", "expires=9")).await;
        assert_eq!(line, "HTTP/1.0 403 Forbidden");
    }
    // An address is given out whether or not there is such a file, as with Velero.
    ask(&scene, "three", "CSIBackupVolumeSnapshots", "basic").await;
    let (line, _) = fetch(&address(&scene, "three").await).await;
    assert_eq!(line, "HTTP/1.0 404 Not Found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_stays_unanswered_and_goes_in_the_end() {
    let scene = Scene::new();
    ask(&scene, "hopeless", "BackupLog", "nosuch").await;
    let spec = json!({"target": {"kind": "BackupLog", "name": "nosuch"}});
    let status = json!({"expiration": "2020-01-01T00:00:00Z"});
    scene.load::<DownloadRequest>("expired", json!({"spec": spec, "status": status}));
    scene.start(download::run);
    eventually("an expiration", async || {
        let request = scene.get::<DownloadRequest>("hopeless").await.unwrap();
        request
            .status
            .is_some_and(|s| s.expiration.is_some() && s.phase.is_none())
    })
    .await;
    eventually("the expired one to go", async || {
        scene.names::<DownloadRequest>().await == ["hopeless"]
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_are_served() {
    let scene = Scene::new();
    let (server, ready) = serve(&scene).await;
    let (line, body) = fetch(&format!("{server}/metrics")).await;
    assert_eq!(line, "HTTP/1.0 200 OK");
    let text = String::from_utf8(body).unwrap();
    assert!(text.contains("velero_backup_attempt_total{schedule=\"\"} 0\n"));
    let (line, _) = fetch(&format!("{server}/healthz")).await;
    assert_eq!(line, "HTTP/1.0 200 OK");
    let (line, _) = fetch(&format!("{server}/readyz")).await;
    assert_eq!(line, "HTTP/1.0 503 Service Unavailable");
    ready.send(true).unwrap();
    let (line, _) = fetch(&format!("{server}/readyz")).await;
    assert_eq!(line, "HTTP/1.0 200 OK");
}
