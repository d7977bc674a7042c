//! Calls that go wrong, in a backup each.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use bowline_api::v1::{Backup, BackupPhase, BackupStatus};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    super::{files, ours},
    ACTION, SOON, Stage,
};
use crate::{contents::Contents, servers, wait_for};

/// After this a call without an answer is reported.
const STALLED: Duration = Duration::from_secs(60);

/// A backup that is over.
struct Over {
    status: BackupStatus,
    contents: Contents,
}

impl Over {
    fn errors(&self) -> &Value {
        &self.contents.files["-results.gz"]["errors"]
    }

    fn log(&self) -> String {
        let log = &self.contents.files["-logs.gz"];
        log.as_str().map_or_else(|| log.to_string(), str::to_owned)
    }

    fn is(&self, phase: &BackupPhase, errors: i64) -> anyhow::Result<()> {
        ensure!(
            self.status.phase.as_ref() == Some(phase)
                && self.status.errors.unwrap_or_default() == errors,
            "it is {:?} with {:?} errors: {}",
            self.status.phase,
            self.status.errors,
            self.errors()
        );
        Ok(())
    }
}

impl Stage<'_> {
    /// All of them; the one that hangs for a minute goes on beside the others.
    pub(super) async fn calls(&self) -> anyhow::Result<()> {
        let file = self.scene.folder().join("go-on");
        let maps = [("slow", "hang", json!({ "until": file }))];
        let namespace = self.maps_with("hang", &maps).await?;
        let made = self.create("hang", &namespace, json!({})).await?;
        let hang = async {
            let hangs = self.hang(&made, &namespace, &file).await;
            hangs.context("a call that hangs")
        };
        let others = async {
            self.crash().await.context("a crash in a call")?;
            self.nonsense().await.context("an answer that is no JSON")?;
            self.loud().await.context("an error in the plugin's log")?;
            self.large().await.context("an answer of 100 MB")?;
            self.operations().await.context("operations")?;
            self.fallen().await.context("a crash when asked how far")?;
            self.ended().await.context("a hanging backup, deleted")?;
            self.cancelled().await.context("an operation, deleted")
        };
        tokio::try_join!(hang, others).map(drop)
    }

    async fn over(&self, made: &Backup) -> anyhow::Result<Over> {
        let backup = servers::ended(&self.scene.client(), made, 2 * SOON).await?;
        Ok(Over {
            contents: Contents::read(&self.bucket, &made.name_any())?,
            status: backup.status.unwrap_or_default(),
        })
    }

    /// What the plugin was at when it died is missing, by name; everything else is there.
    async fn crash(&self) -> anyhow::Result<()> {
        let names: Vec<String> = (0..40).map(|n| format!("m{n:02}")).collect();
        let mut maps = vec![("bomb", "die")];
        maps.extend(names.iter().map(|name| (&**name, "mark")));
        let namespace = self.maps("crash", &maps).await?;
        let made = self.create("crash", &namespace, json!({})).await?;
        let over = self.over(&made).await?;
        let errors = over.errors()["namespaces"][&namespace].clone();
        let errors: Vec<String> = serde_json::from_value(errors)?;
        over.is(
            &BackupPhase::PartiallyFailed,
            i64::try_from(errors.len()).unwrap_or_default(),
        )?;
        let named = |map: &str| {
            let mut errors = errors.iter();
            errors.any(|error| error.contains(&format!("/{map}")) && error.contains(ACTION))
        };
        ensure!(
            named("bomb") && errors.iter().any(|e| e.contains("it exited with code 9")),
            "{errors:?}"
        );
        let path = |map: &str| format!("resources/configmaps/namespaces/{namespace}/{map}.json");
        let mut seen = 0;
        for name in &names {
            match over.contents.archive.get(&path(name)) {
                Some(map) => {
                    ensure!(map["data"]["seen"] == "yes", "{name} was not seen: {map}");
                    seen += 1;
                }
                // It was in the same process at that moment.
                None => ensure!(named(name), "{name} is missing without a word: {errors:?}"),
            }
        }
        ensure!(seen >= 24, "only {seen} of {} are there", names.len());
        Ok(())
    }

    /// Reported after a minute, with the object; others have gone on meanwhile.
    async fn hang(&self, made: &Backup, namespace: &str, file: &Path) -> anyhow::Result<()> {
        let what = format!("has not answered Execute for 60 s (ConfigMap {namespace}/slow)");
        self.says(&what, STALLED + SOON).await?;
        fs::write(file, "")?;
        let over = self.over(made).await?;
        over.is(&BackupPhase::Completed, 0)?;
        ensure!(over.log().contains(&what), "its log is {}", over.log());
        Ok(())
    }

    async fn nonsense(&self) -> anyhow::Result<()> {
        let maps = [("odd", "nonsense"), ("even", "mark")];
        let namespace = self.maps("nonsense", &maps).await?;
        let made = self.create("nonsense", &namespace, json!({})).await?;
        let over = self.over(&made).await?;
        over.is(&BackupPhase::PartiallyFailed, 1)?;
        let errors = over.errors().to_string();
        for word in ["/odd", ACTION, "it gives an object that is none"] {
            ensure!(errors.contains(word), "{word}: {errors}");
        }
        let even = self.stored("nonsense", &namespace, "even")?;
        ensure!(even["data"]["seen"] == "yes", "{even}");
        Ok(())
    }

    /// As with Velero, an error in a plugin's log is an error of the backup.
    async fn loud(&self) -> anyhow::Result<()> {
        let namespace = self.maps("loud", &[("noise", "loud")]).await?;
        let made = self.create("loud", &namespace, json!({})).await?;
        let over = self.over(&made).await?;
        over.is(&BackupPhase::PartiallyFailed, 1)?;
        let errors = over.errors().to_string();
        ensure!(
            errors.contains("this does not look good (plugin sound)"),
            "{errors}"
        );
        self.stored("loud", &namespace, "noise").map(drop)
    }

    async fn large(&self) -> anyhow::Result<()> {
        let namespace = self.maps("large", &[("whale", "large")]).await?;
        let made = self.create("large", &namespace, json!({})).await?;
        self.over(&made).await?.is(&BackupPhase::Completed, 0)?;
        let whale = self.stored("large", &namespace, "whale")?;
        let length = whale["data"]["grown"].as_str().map(str::len);
        ensure!(length == Some(100 << 20), "it has {length:?} bytes");
        Ok(())
    }

    /// One ends, one never does and is cancelled when its time is over.
    async fn operations(&self) -> anyhow::Result<()> {
        let maps = [("quick", "end"), ("endless", "stay")];
        let namespace = self.maps("operations", &maps).await?;
        let limit = json!({ "itemOperationTimeout": "5s" });
        let made = self.create("operations", &namespace, limit).await?;
        let over = self.over(&made).await?;
        over.is(&BackupPhase::PartiallyFailed, 1)?;
        let status = &over.status;
        let counts = (
            status.backup_item_operations_attempted,
            status.backup_item_operations_completed,
            status.backup_item_operations_failed,
        );
        ensure!(counts == (Some(2), Some(1), Some(1)), "{counts:?}");
        let errors = over.errors().to_string();
        let why = format!("Asynchronous action timed out, plugin: {ACTION}");
        ensure!(errors.contains(&why), "{errors}");
        self.says("cancelled stay/endless", SOON).await
    }

    async fn fallen(&self) -> anyhow::Result<()> {
        let namespace = self.maps("fallen", &[("fragile", "fall")]).await?;
        let made = self.create("fallen", &namespace, json!({})).await?;
        let over = self.over(&made).await?;
        over.is(&BackupPhase::PartiallyFailed, 1)?;
        let errors = over.errors().to_string();
        let why = format!("is gone: it exited with code 9, plugin: {ACTION}");
        ensure!(errors.contains(&why), "{errors}");
        Ok(())
    }

    /// Whoever does not want to wait for a plugin that hangs deletes the backup.
    async fn ended(&self) -> anyhow::Result<()> {
        for by_request in [true, false] {
            let name = if by_request { "ended" } else { "dropped" };
            let began = self.scene.folder().join(format!("{name}-began"));
            let maps = [("stuck", "hang", json!({ "began": began }))];
            let namespace = self.maps_with(name, &maps).await?;
            let made = self.create(name, &namespace, json!({})).await?;
            wait_for("the plugin to hang", SOON, async || {
                Ok(began.exists().then_some(()))
            })
            .await?;
            if by_request {
                let name = made.name_any();
                ours(self.scene, &["backup", "delete", &name, "--confirm"]).await?;
            } else {
                let api = self.backups();
                api.delete(&made.name_any(), &Default::default()).await?;
            }
            self.gone(&made).await?;
        }
        Ok(())
    }

    async fn cancelled(&self) -> anyhow::Result<()> {
        let namespace = self.maps("cancelled", &[("eternal", "stay")]).await?;
        let made = self.create("cancelled", &namespace, json!({})).await?;
        let waits = BackupPhase::WaitingForPluginOperations;
        self.reaches(&made, &waits).await?;
        let name = made.name_any();
        ours(self.scene, &["backup", "delete", &name, "--confirm"]).await?;
        self.gone(&made).await?;
        self.says("cancelled stay/eternal", SOON).await
    }

    async fn reaches(&self, made: &Backup, phase: &BackupPhase) -> anyhow::Result<()> {
        wait_for(&format!("phase {}", phase.as_str()), SOON, async || {
            let found = self.backups().get(&made.name_any()).await?;
            let status = found.status.unwrap_or_default();
            Ok((status.phase.as_ref() == Some(phase)).then_some(()))
        })
        .await
    }

    /// Neither the object nor anything in the bucket is left, and nobody works on it.
    async fn gone(&self, made: &Backup) -> anyhow::Result<()> {
        let name = made.name_any();
        let folder = self.bucket.folder().join("backups").join(&name);
        wait_for(&format!("backup {name} to go"), SOON, async || {
            let is_there = self.backups().get_opt(&name).await?.is_some();
            let left = files(&folder).unwrap_or_default();
            ensure!(!is_there && left.is_empty(), "there is {left:?}");
            Ok(Some(()))
        })
        .await?;
        self.says(
            &format!("given up, since it is deleted backup={name}"),
            SOON,
        )
        .await
    }
}
