//! Object stores that others wrote, and a folder: each does what a bucket must do, and keeps a
//! backup from its making to its deletion.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupStorageLocation, BackupStorageLocationPhase},
};
use bowline_vault::{Location, behaviour};
use kube::Api;
use serde_json::{Value, json};

use crate::{
    Process,
    azurite::{self, Azurite},
    contents, peer,
    scene::{Scene, run},
    servers, wait_for,
};

/// A store and how a location describes it.
struct Store {
    name: &'static str,
    spec: Value,
    /// What the location's Secret holds.
    credential: Option<String>,
    /// Whether the store itself answers to signed URLs.
    signs: bool,
}

/// Every store that can be had here.
pub(super) async fn behave(scene: &Scene) -> anyhow::Result<String> {
    let mut stores = vec![folder(scene)?, s3(scene)?];
    match azurite::install(scene.bed().cache(), &|_| {}).await {
        Ok(main) => stores.push(azure(scene, &Azurite::start(scene, &main)?).await?),
        Err(why) => scene.skip("azure", &why),
    }
    for store in &stores {
        let behaves = store.behaves().await;
        behaves.with_context(|| format!("{} is not as a store must be", store.name))?;
    }
    let server = serve(scene, &stores).await?;
    let namespace = scene.namespace("shop").await?;
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "settings", "namespace": namespace },
        "data": { "mode": "<fast> & safe" },
    });
    scene.apply(&[map]).await?;
    for store in &stores {
        let kept = store.keeps_a_backup(scene, &namespace).await;
        kept.with_context(|| format!("a backup in {}", store.name))?;
    }
    server.stop().await?;
    peer::remove(scene).await?;
    let names: Vec<&str> = stores.iter().map(|store| store.name).collect();
    Ok(format!(
        "{}: the suite, signed URLs, a backup made, downloaded and deleted",
        names.join(", ")
    ))
}

fn folder(scene: &Scene) -> anyhow::Result<Store> {
    let path = scene.folder().join("store");
    fs::create_dir_all(&path)?;
    Ok(Store {
        name: "folder",
        spec: json!({
            "provider": "filesystem",
            "objectStorage": { "bucket": "bowl" },
            "config": { "path": path },
        }),
        credential: None,
        signs: false,
    })
}

fn s3(scene: &Scene) -> anyhow::Result<Store> {
    let bucket = scene.bucket("store")?;
    Ok(Store {
        name: "s3",
        spec: json!({
            "provider": "aws",
            "objectStorage": { "bucket": bucket.name },
            "config": {
                "region": "us-east-1",
                "s3ForcePathStyle": "true",
                "s3Url": bucket.s3.endpoint,
            },
        }),
        credential: Some(bucket.credentials()),
        signs: true,
    })
}

async fn azure(scene: &Scene, azurite: &Azurite) -> anyhow::Result<Store> {
    let container = scene.fresh("store");
    azurite.container(&container).await?;
    Ok(Store {
        name: "azure",
        spec: json!({
            "provider": "azure",
            "objectStorage": { "bucket": container },
            "config": {
                "storageAccount": azurite::ACCOUNT,
                "storageAccountURI": azurite.endpoint,
                "storageAccountKeyEnvVar": "KEY",
            },
        }),
        credential: Some(format!("KEY={}\n", azurite::KEY)),
        signs: true,
    })
}

/// Our server with a location for each store, all of them available.
async fn serve(scene: &Scene, stores: &[Store]) -> anyhow::Result<Process> {
    let mut install = scene.bowline();
    install.args(["install", "--crds-only"]);
    run(install).await?;
    let velero = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": DEFAULT_NAMESPACE } });
    scene.apply(&[velero]).await?;
    let objects: Vec<Value> = stores.iter().flat_map(Store::objects).collect();
    scene.apply(&objects).await?;
    let server = servers::launch(scene, &[], &[])?;
    let locations: Api<BackupStorageLocation> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    for store in stores {
        wait_for("the location", Duration::from_secs(60), async || {
            server.check()?;
            let status = locations.get(store.name).await?.status.unwrap_or_default();
            ensure!(
                status.phase == Some(BackupStorageLocationPhase::Available),
                "{} is {:?}, {}",
                store.name,
                status.phase,
                status.message.unwrap_or_default()
            );
            Ok(Some(()))
        })
        .await?;
    }
    Ok(server)
}

impl Store {
    /// Its location and the location's Secret.
    fn objects(&self) -> Vec<Value> {
        let meta = json!({ "name": self.name, "namespace": DEFAULT_NAMESPACE });
        let mut spec = self.spec.clone();
        let mut objects = Vec::new();
        if let Some(credential) = &self.credential {
            spec["credential"] = json!({ "name": self.name, "key": "cloud" });
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": meta,
                "stringData": { "cloud": credential },
            }));
        }
        objects.push(json!({
            "apiVersion": "velero.io/v1",
            "kind": "BackupStorageLocation",
            "metadata": meta,
            "spec": spec,
        }));
        objects
    }

    /// Its bucket, without a cluster.
    fn bucket(&self) -> anyhow::Result<bowline_vault::Bucket> {
        let location = json!({ "metadata": { "name": self.name }, "spec": self.spec });
        Ok(bowline_vault::open(&Location {
            object: serde_json::from_value(location)?,
            credential: self.credential.clone().map(String::into_bytes),
            ..Default::default()
        })?)
    }

    /// Runs the suite that all stores share, which panics where one differs.
    async fn behaves(&self) -> anyhow::Result<()> {
        let (bucket, signs) = (self.bucket()?, self.signs);
        let suite = tokio::spawn(async move {
            behaviour::suite(&bucket).await;
            if signs {
                behaviour::signed_urls(&bucket).await;
            }
        });
        Ok(suite.await?)
    }

    /// A backup goes into it, comes back whole, and is gone when it is deleted.
    async fn keeps_a_backup(&self, scene: &Scene, namespace: &str) -> anyhow::Result<()> {
        let name = scene.fresh(self.name);
        let spec = json!({ "includedNamespaces": [namespace], "storageLocation": self.name });
        let made = servers::back_up(&scene.client(), &name, &spec).await?;
        made.completed()?;

        let file = scene.folder().join(format!("{name}.tar.gz"));
        let mut download = scene.bowline();
        download.args(["backup", "download", &name, "--output"]);
        download.arg(&file);
        run(download).await?;
        let archive = contents::archive(&file)?;
        let path = format!("resources/configmaps/namespaces/{namespace}/settings.json");
        let settings = archive.get(&path).context("the ConfigMap is not in it")?;
        ensure!(
            settings["data"]["mode"] == "<fast> & safe",
            "the ConfigMap is {settings}"
        );

        let mut delete = scene.bowline();
        delete.args(["backup", "delete", &name, "--confirm"]);
        run(delete).await?;
        let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
        wait_for("the backup to go", Duration::from_secs(60), async || {
            Ok(backups.get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
        let left = self.bucket()?.list("").await?;
        ensure!(left.is_empty(), "left of it: {left:?}");
        Ok(())
    }
}
