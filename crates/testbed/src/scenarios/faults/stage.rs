//! Where bad days happen: a cluster in this process, a store behind a proxy, and our server between
//! them.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use anyhow::ensure;
use bowline_api::{
    names::{DEFAULT_LOCATION, DEFAULT_NAMESPACE},
    v1::{BackupStorageLocation, BackupStorageLocationPhase},
};
use bowline_apiserver::{ApiServer, Fault, Rule, When};
use http::Method;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{
    Process,
    bed::{self, Bucket},
    fill,
    proxy::Proxy,
    scene::Scene,
    servers, wait_for,
};

/// A cluster in this process, a store behind a proxy, and our server between them.
pub(super) struct Stage {
    pub(super) api: ApiServer,
    pub(super) client: Client,
    pub(super) proxy: Proxy,
    pub(super) bucket: Bucket,
    /// For programs that ask the cluster.
    pub(super) kubeconfig: PathBuf,
    server: Process,
    end: oneshot::Sender<()>,
}

/// What goes wrong with requests like this.
pub(super) fn on(method: Method, path: &str, when: When, fault: Fault) -> Rule {
    Rule {
        method: Some(method),
        path: path.to_owned(),
        when,
        fault,
    }
}

impl Stage {
    /// A cluster with a namespace `shop` and these objects, and a server with these flags.
    pub(super) async fn set(
        scene: &Scene,
        flags: &[&str],
        objects: Vec<Value>,
    ) -> anyhow::Result<Self> {
        let bucket = scene.bucket("faults")?;
        let proxy = Proxy::start(&bucket.s3.endpoint).await?;
        let api = ApiServer::new("");
        for object in ours(&bucket, &proxy).into_iter().chain(objects) {
            let refused = api.load(&object).err();
            ensure!(refused.is_none(), "load {}: {refused:?}", object["kind"]);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (end, ended) = oneshot::channel::<()>();
        let served = api.clone();
        tokio::spawn(async move {
            served
                .serve(listener, None, async { drop(ended.await) })
                .await
        });
        let kubeconfig = scene.folder().join("faults-kubeconfig");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }],
        });
        std::fs::write(&kubeconfig, serde_json::to_vec(&config)?)?;
        let client = bed::client(&kubeconfig).await?;
        // What is loaded is taken as it is; a request makes `data` of it.
        let keys = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "keys", "namespace": DEFAULT_NAMESPACE },
            "stringData": { "cloud": bucket.credentials() },
        });
        let secrets = format!("/api/v1/namespaces/{DEFAULT_NAMESPACE}/secrets");
        fill::create(&client, [(secrets, keys)]).await?;
        let env = [("KUBECONFIG", &*kubeconfig.to_string_lossy())];
        let server = servers::launch(scene, flags, &env)?;
        let locations: Api<BackupStorageLocation> =
            Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        let available = wait_for("the location", Duration::from_secs(60), async || {
            server.check()?;
            let status = locations
                .get(DEFAULT_LOCATION)
                .await?
                .status
                .unwrap_or_default();
            Ok((status.phase == Some(BackupStorageLocationPhase::Available)).then_some(()))
        });
        available.await?;
        Ok(Self {
            api,
            client,
            proxy,
            bucket,
            kubeconfig,
            server,
            end,
        })
    }

    /// Ends it all; the server must have lived until now.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        let alive = self.server.check();
        self.server.kill().await?;
        let _ = self.end.send(());
        alive
    }
}

/// Our kinds, a location behind the proxy, and a namespace.
fn ours(bucket: &Bucket, proxy: &Proxy) -> Vec<Value> {
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let mut objects = bowline_api::crd::all();
    objects.extend([namespace(DEFAULT_NAMESPACE), namespace("shop")]);
    objects.push(json!({
        "apiVersion": "velero.io/v1",
        "kind": "BackupStorageLocation",
        "metadata": { "name": DEFAULT_LOCATION, "namespace": DEFAULT_NAMESPACE },
        "spec": {
            "provider": "aws",
            "default": true,
            "objectStorage": { "bucket": bucket.name },
            "credential": { "name": "keys", "key": "cloud" },
            "config": {
                "region": "us-east-1",
                "s3ForcePathStyle": "true",
                "s3Url": format!("http://{}", proxy.address),
                "checksumAlgorithm": "",
            },
        },
    }));
    objects
}
