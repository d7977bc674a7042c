//! Bad days of volumes on their way back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use bowline_api::{
    names::DEFAULT_NAMESPACE,
    v1::{BackupPhase, DataPathPhase, Restore, RestorePhase},
};
use serde_json::{Value, json};

use super::{
    super::stage::{Copy, pod},
    LIMIT, Play, phase,
};
use crate::{
    servers,
    tree::{self, Tree},
};

impl Play<'_> {
    /// Backs both namespaces up and deletes them; gives what the good volume was.
    async fn take_away(&self) -> anyhow::Result<Tree> {
        let calm = self.stage.folder(&self.good, "pod", "calm").await?;
        let expected = tree::read(&calm, &[])?;
        let backup = self.end(&self.create().await?).await?;
        phase(&backup, BackupPhase::Completed)?;
        for namespace in [&self.good, &self.bad] {
            self.stage.forget(namespace).await?;
        }
        Ok(expected)
    }

    async fn restore(&self, name: &str, spec: &Value) -> anyhow::Result<Restore> {
        let client = self.stage.scene.client();
        let made = servers::create_restore(&client, name, spec).await?;
        servers::ended(&client, &made, LIMIT).await
    }

    /// A restore of both: the bad volume fails with these words, the good one is as it was. Gives
    /// what is said of the bad one.
    async fn restored_partly(
        &self,
        spec: &Value,
        good: &Tree,
        words: &[&str],
    ) -> anyhow::Result<String> {
        let stage = self.stage;
        let name = format!("{}-back", self.backup);
        let status = self.restore(&name, spec).await?.status.unwrap_or_default();
        ensure!(
            status.phase == Some(RestorePhase::PartiallyFailed),
            "the restore ended as {status:?}"
        );
        let returns = stage.returns(&name).await?;
        let bad = returns
            .iter()
            .find(|copy| copy.spec.source_namespace == self.bad)
            .context("no copy for the bad volume")?;
        let said = bad.message();
        ensure!(bad.phase() == DataPathPhase::Failed, "{:?}", bad.phase());
        for words in words {
            ensure!(said.contains(words), "no {words:?} in {said:?}");
        }
        stage.ready(&self.good).await?;
        let calm = stage.folder(&self.good, "pod", "calm").await?;
        tree::same(good, &tree::read(&calm, &[".velero"])?).context("the good volume")?;
        self.unharmed().await?;
        Ok(said)
    }

    /// The largest file in a part of the bad repository is harmed: something else is left of it,
    /// or nothing. Once it is back as it was, so is the volume.
    async fn harmed(
        &self,
        part: &str,
        left: fn(Vec<u8>) -> Option<Vec<u8>>,
        words: &[&str],
    ) -> anyhow::Result<String> {
        let stage = self.stage;
        let data = stage.folder(&self.bad, "pod", "data").await?;
        let bad = tree::read(&data, &[])?;
        let good = self.take_away().await?;
        let file = largest(&stage.repository_folder(&self.bad).join(part))?;
        let kept = stage.scene.folder().join("kept");
        fs::rename(&file, &kept)?;
        if let Some(left) = left(fs::read(&kept)?) {
            fs::write(&file, left)?;
        }
        let said = self.restored_partly(&self.whole(), &good, words).await;
        fs::rename(&kept, &file)?;
        let said = said?;

        stage.is_clean(&self.bad).await?;
        stage.forget(&self.bad).await?;
        let mut spec = self.whole();
        spec["includedNamespaces"] = json!([self.bad]);
        let name = format!("{}-again", self.backup);
        let status = self.restore(&name, &spec).await?.status.unwrap_or_default();
        ensure!(
            status.phase == Some(RestorePhase::Completed),
            "of the mended repository: {status:?}, {:?}",
            stage.returns(&name).await?
        );
        stage.ready(&self.bad).await?;
        let data = stage.folder(&self.bad, "pod", "data").await?;
        tree::same(&bad, &tree::read(&data, &[".velero"])?).context("the bad volume, mended")?;
        Ok(said)
    }

    fn whole(&self) -> Value {
        json!({ "backupName": self.backup })
    }

    /// The largest pack holds the noise.
    pub(super) async fn missing_pack(&self) -> anyhow::Result<String> {
        self.set(8 << 20).await?;
        self.harmed("data", |_| None, &["pack"]).await
    }

    pub(super) async fn damaged_index(&self) -> anyhow::Result<String> {
        self.set(1 << 20).await?;
        let damage = |mut index: Vec<u8>| {
            index.get_mut(20..35)?.copy_from_slice(b"not what it was");
            Some(index)
        };
        self.harmed("index", damage, &["index", "damaged"]).await
    }

    /// The volume of the restored pod is a quarter of what is in it.
    pub(super) async fn full_disk(&self) -> anyhow::Result<String> {
        let scene = self.stage.scene;
        let memory = json!({ "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } });
        let bad = [pod(&self.bad, "pod", &[("data", memory)])];
        self.stage.pods(&self.bad, &bad).await?;
        self.set_good().await?;
        let dd = "dd if=/dev/urandom of=/data/noise bs=1M count=32";
        let exec = ["-n", &self.bad, "exec", "pod", "--", "sh", "-c", dd];
        scene.kubectl(&exec).await?;
        let modifiers = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "smaller", "namespace": DEFAULT_NAMESPACE },
            "data": { "modifiers.yaml": json!({
                "version": "v1",
                "resourceModifierRules": [{
                    "conditions": { "groupResource": "pods", "namespaces": [self.bad] },
                    "patches": [{
                        "operation": "replace",
                        "path": "/spec/volumes/0/emptyDir/sizeLimit",
                        "value": "8Mi",
                    }],
                }],
            }).to_string() },
        });
        scene.apply(&[modifiers]).await?;
        let mut spec = self.whole();
        spec["resourceModifier"] = json!({ "kind": "ConfigMap", "name": "smaller" });
        let good = self.take_away().await?;
        let words = ["noise", "space"];
        let said = self.restored_partly(&spec, &good, &words).await?;
        self.stage.is_clean(&self.bad).await?;
        Ok(said)
    }
}

/// The largest file below a folder.
fn largest(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut best = None;
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else {
                best = best.max(Some((metadata.len(), entry.path())));
            }
        }
    }
    best.map(|(_, path)| path).context("there is no file")
}
