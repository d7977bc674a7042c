//! A plugin for tests, which does as it is told, badly too. What the host sets `PRETEND` to, the volume
//! it asks for, or the label `act` of an object says how.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    io::Write as _,
    path::Path,
    process::ExitCode,
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use bowline_plugin::{
    Error, Result,
    kinds::{
        BackedUp, BackupItemAction, Body, Config, NewVolume, ObjectStore, Progress, Selector,
        VolumeSnapshotter,
    },
    serve::Server,
};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

#[derive(Default)]
struct Pretend {
    config: Mutex<Config>,
    objects: Mutex<HashMap<String, Bytes>>,
}

impl Pretend {
    fn say(&self, text: &str) -> String {
        let config = self.config.lock();
        let config = config.ok().and_then(|config| config.get(text).cloned());
        config.unwrap_or_default()
    }
}

#[async_trait]
impl VolumeSnapshotter for Pretend {
    async fn init(&self, config: &Config) -> Result<()> {
        if let Some(refusal) = config.get("refuse") {
            return Err(Error::new(refusal));
        }
        if let Ok(mut own) = self.config.lock() {
            own.clone_from(config);
        }
        Ok(())
    }

    async fn create_volume(&self, volume: &NewVolume) -> Result<String> {
        Ok(format!("{volume:?}"))
    }

    async fn volume_info(&self, volume: &str, _: &str) -> Result<(String, Option<i64>)> {
        Ok((volume.to_owned(), volume.parse().ok()))
    }

    async fn create_snapshot(
        &self,
        volume: &str,
        zone: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String> {
        match volume {
            "die" => std::process::exit(9),
            "panic" => panic!("no more"),
            "fail" => Err(Error::new("no room: disk full")),
            "hang" => std::future::pending().await,
            "pid" => Ok(std::process::id().to_string()),
            "config" => Ok(self.say("key")),
            "loud" => {
                // More than any pipe holds.
                let mut out = std::io::stdout().lock();
                for _ in 0..4096 {
                    let _ = writeln!(out, "{}", "words ".repeat(100));
                }
                tracing::error!(volume, "loud");
                Ok("heard".to_owned())
            }
            _ => Ok(format!("{volume} in {zone} {tags:?}")),
        }
    }

    async fn delete_snapshot(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn volume_id(&self, volume: &Value) -> Result<Option<String>> {
        let id = volume.pointer("/spec/disk").and_then(Value::as_str);
        Ok(id.map(str::to_owned))
    }

    async fn set_volume_id(&self, volume: &Value, id: &str) -> Result<Value> {
        let mut volume = volume.clone();
        volume["spec"]["disk"] = id.into();
        Ok(volume)
    }

    async fn progress(&self, snapshot: &str, volume: Option<&str>) -> Result<Progress> {
        Ok(Progress {
            done: 3,
            total: 4,
            units: "Bytes".to_owned(),
            description: format!("{snapshot} {volume:?}"),
            ..Progress::default()
        })
    }
}

/// Makes objects larger, by as much as they ask for.
struct Grow;

#[async_trait]
impl BackupItemAction for Grow {
    async fn applies_to(&self) -> Result<Selector> {
        Ok(Selector {
            included_resources: vec!["pods".to_owned()],
            label_selector: "app=web".to_owned(),
            ..Selector::default()
        })
    }

    async fn execute(&self, item: &Bytes, _: &Bytes) -> Result<BackedUp> {
        let mut object: Value = serde_json::from_slice(item).map_err(Error::new)?;
        let Some(bytes) = object.get("grow").and_then(Value::as_u64) else {
            return Ok(BackedUp::default());
        };
        let bytes = usize::try_from(bytes).map_err(Error::new)?;
        object["grown"] = "x".repeat(bytes).into();
        Ok(BackedUp {
            item: Some(object.to_string().into()),
            operation: "op-1".to_owned(),
            ..BackedUp::default()
        })
    }
}

/// Does with an object what its label `act` says.
struct Act;

#[async_trait]
impl BackupItemAction for Act {
    async fn applies_to(&self) -> Result<Selector> {
        Ok(Selector {
            included_resources: vec!["configmaps".to_owned()],
            label_selector: "act".to_owned(),
            ..Selector::default()
        })
    }

    async fn execute(&self, item: &Bytes, _: &Bytes) -> Result<BackedUp> {
        let mut object: Value = serde_json::from_slice(item).map_err(Error::new)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let act = object["metadata"]["labels"]["act"].as_str();
        let mut done = BackedUp::default();
        match act.unwrap_or_default() {
            "die" => std::process::exit(9),
            "hang" => {
                if let Some(file) = object["data"]["began"].as_str() {
                    std::fs::write(file, "").map_err(Error::new)?;
                }
                until(object["data"]["until"].as_str()).await;
            }
            "nonsense" => done.item = Some(Bytes::from_static(b"this is no object")),
            "loud" => tracing::error!(name, "this does not look good"),
            "large" => {
                object["data"]["grown"] = "x".repeat(100 << 20).into();
                done.item = Some(object.to_string().into());
            }
            operation @ ("end" | "fall" | "stay") => done.operation = format!("{operation}/{name}"),
            _ => {
                object["data"]["seen"] = "yes".into();
                done.item = Some(object.to_string().into());
            }
        }
        Ok(done)
    }

    async fn progress(&self, operation: &str, _: &Bytes) -> Result<Progress> {
        let (how, _) = operation.split_once('/').unwrap_or_default();
        if how == "fall" {
            std::process::exit(9);
        }
        Ok(Progress {
            is_completed: how == "end",
            ..Progress::default()
        })
    }

    async fn cancel(&self, operation: &str, _: &Bytes) -> Result<()> {
        tracing::info!("cancelled {operation}");
        Ok(())
    }
}

/// Waits until there is such a file, or for ever.
async fn until(file: Option<&str>) {
    let Some(file) = file else {
        return std::future::pending().await;
    };
    while !Path::new(file).exists() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[async_trait]
impl ObjectStore for Pretend {
    async fn init(&self, _: &Config) -> Result<()> {
        Ok(())
    }

    async fn put(&self, _: &str, key: &str, body: Body) -> Result<()> {
        let whole = body.try_fold(BytesMut::new(), |mut all, part| async move {
            all.extend_from_slice(&part);
            Ok(all)
        });
        let whole = whole.await?.freeze();
        if let Ok(mut objects) = self.objects.lock() {
            objects.insert(key.to_owned(), whole);
        }
        Ok(())
    }

    async fn exists(&self, _: &str, key: &str) -> Result<bool> {
        Ok(self.objects.lock().is_ok_and(|all| all.contains_key(key)))
    }

    async fn get(&self, _: &str, key: &str) -> Result<Body> {
        let found = self
            .objects
            .lock()
            .ok()
            .and_then(|all| all.get(key).cloned());
        let mut bytes = found.ok_or_else(|| Error::new("no such object"))?;
        let parts = std::iter::from_fn(move || {
            let length = bytes.len().min(16 << 10);
            (length > 0).then(|| Ok(bytes.split_to(length)))
        });
        Ok(stream::iter(parts).boxed())
    }

    async fn common_prefixes(&self, _: &str, delimiter: &str, prefix: &str) -> Result<Vec<String>> {
        Ok(vec![format!("{prefix}a{delimiter}")])
    }

    async fn list(&self, _: &str, prefix: &str) -> Result<Vec<String>> {
        let objects = self.objects.lock();
        let keys = objects.map(|all| all.keys().cloned().collect::<Vec<_>>());
        let keys = keys.unwrap_or_default().into_iter();
        Ok(keys.filter(|key| key.starts_with(prefix)).collect())
    }

    async fn delete(&self, _: &str, key: &str) -> Result<()> {
        if let Ok(mut objects) = self.objects.lock() {
            objects.remove(key);
        }
        Ok(())
    }

    async fn sign(&self, bucket: &str, key: &str, ttl: Duration) -> Result<String> {
        Ok(format!("https://{bucket}/{key}?{}", ttl.as_secs()))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match env::var("PRETEND").as_deref() {
        Ok("exit") => return ExitCode::from(3),
        Ok("garbage") => {
            let _ = writeln!(std::io::stdout(), "what do you want?");
            return std::future::pending().await;
        }
        Ok("teapot") => {
            let teapot = Server::default().only_listed("Teapot", "example.com/teapot");
            return teapot.run().await;
        }
        _ => {}
    }
    Server::default()
        .volume_snapshotter("example.com/pretend", Pretend::default())
        .object_store("example.com/pretend", Pretend::default())
        .backup_item_action("example.com/grow", Grow)
        .backup_item_action("example.com/act", Act)
        .run()
        .await
}
