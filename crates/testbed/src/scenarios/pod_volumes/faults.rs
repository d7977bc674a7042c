//! Bad days of volumes: the copy that it happens to fails by name, its backup or restore partly,
//! other volumes come to no harm, and the repository stays clean.

use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, REPO_CREDENTIALS_SECRET},
    v1::{Backup, BackupPhase, DataPathPhase, PodVolumeBackup, RestorePhase},
};
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::stage::{Copy, Stage, Watch, passing, pod};
use crate::{
    Process,
    bed::NODE,
    contents::Contents,
    machine,
    proxy::{Mishap, Proxy, Rule},
    relay::Relay,
    scene::Scene,
    servers, tree,
};

/// Bytes of the volume that something happens to, unless it takes no more than a moment.
const LARGE: usize = 48 << 20;
const DELAY: Duration = Duration::from_millis(15);
/// Whatever happens, a backup or a restore is over by then.
const LIMIT: Duration = Duration::from_secs(150);
const FOREVER: usize = usize::MAX / 2;

/// A bad day.
type Day = for<'a> fn(&'a Play<'a>) -> LocalBoxFuture<'a, anyhow::Result<()>>;

const DAYS: &[(&str, Day)] = &[
    ("a wrong password", |play| Box::pin(play.wrong_password())),
    ("a store that stumbles", |play| Box::pin(play.stumbling())),
    ("a store that refuses", |play| Box::pin(play.refusing())),
    ("a volume that disappears", |play| {
        Box::pin(play.disappearing())
    }),
    ("a pod that is deleted", |play| Box::pin(play.deleted())),
    ("a missing pack", |play| Box::pin(play.missing_pack())),
    ("a damaged index", |play| Box::pin(play.damaged_index())),
    ("a full disk", |play| Box::pin(play.full_disk())),
    // The node process does not come back.
    ("a node that is gone", |play| Box::pin(play.gone())),
];

/// The story.
pub(in crate::scenarios) async fn are_named(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, "volume-faults").await?;
    let proxy = Proxy::start(&scene.bed().s3().endpoint).await?;
    let outside = IpAddr::from(machine::OUTSIDE);
    let relay = Relay::narrow(outside, &proxy.address.to_string(), DELAY).await?;
    stage.reach(relay.address).await?;
    let (server, node) = stage.start().await?;
    let mut failures = Vec::new();
    for (n, (day, play)) in DAYS.iter().enumerate() {
        let on = Play {
            stage: &stage,
            proxy: &proxy,
            node: &node,
            good: scene.namespace(&format!("good-{n}")).await?,
            bad: scene.namespace(&format!("bad-{n}")).await?,
            backup: scene.fresh(&format!("day-{n}")),
        };
        let told = play(&on).await;
        proxy.set(&[]);
        failures.extend(told.err().map(|error| format!("{day}: {error:#}")));
        for namespace in [&on.good, &on.bad] {
            scene
                .kubectl(&["delete", "namespace", namespace, "--wait=false"])
                .await?;
        }
    }
    server.check()?;
    server.stop().await?;
    stage.close().await?;
    if !failures.is_empty() {
        bail!(
            "{} of {} bad days:\n{}",
            failures.len(),
            DAYS.len(),
            failures.join("\n")
        );
    }
    Ok(format!("{} bad days", DAYS.len()))
}

/// A namespace that nothing happens to, and one that something does.
struct Play<'a> {
    stage: &'a Stage<'a>,
    proxy: &'a Proxy,
    node: &'a Process,
    good: String,
    bad: String,
    backup: String,
}

impl Play<'_> {
    /// A pod in each namespace: `calm` of the good one has files of all kinds, `data` of the bad
    /// one noise.
    async fn set(&self, bytes: usize) -> anyhow::Result<PathBuf> {
        self.set_good().await?;
        let pods = [pod(&self.bad, "pod", &[("data", passing())])];
        self.stage.pods(&self.bad, &pods).await?;
        let bad = self.stage.folder(&self.bad, "pod", "data").await?;
        tree::noise(&bad.join("noise"), bytes, 3)?;
        Ok(bad)
    }

    async fn set_good(&self) -> anyhow::Result<()> {
        let pods = [pod(&self.good, "pod", &[("calm", passing())])];
        self.stage.pods(&self.good, &pods).await?;
        tree::fill(&self.stage.folder(&self.good, "pod", "calm").await?)
    }

    fn spec(&self) -> Value {
        json!({ "includedNamespaces": [self.good, self.bad] })
    }

    async fn create(&self, name: &str) -> anyhow::Result<Backup> {
        servers::create_backup(&self.stage.scene.client(), name, &self.spec()).await
    }

    async fn end(&self, backup: &Backup) -> anyhow::Result<Backup> {
        servers::ended(&self.stage.scene.client(), backup, LIMIT).await
    }

    /// The copy of a namespace's volume in a backup.
    async fn copy(&self, backup: &str, namespace: &str) -> anyhow::Result<PodVolumeBackup> {
        let copies = self.stage.copies(backup).await?;
        let copy = copies
            .into_iter()
            .find(|copy| copy.spec.pod.namespace.as_deref() == Some(namespace));
        copy.with_context(|| format!("no copy of {namespace}"))
    }

    /// A backup ended partly, since the bad volume failed with these words.
    async fn partly(&self, backup: &Backup, words: &str) -> anyhow::Result<()> {
        phase(backup, BackupPhase::PartiallyFailed)?;
        let copy = self.copy(&self.backup, &self.bad).await?;
        let told = (copy.phase(), copy.message());
        ensure!(
            told.0 == DataPathPhase::Failed,
            "the copy ended as {told:?}"
        );
        ensure!(told.1.contains(words), "no {words:?} in {:?}", told.1);
        let contents = Contents::read(&self.stage.bucket, &self.backup)?;
        let errors = contents.files["-results.gz"]["errors"].to_string();
        ensure!(
            errors.contains("pod volume backup failed"),
            "the errors are {errors}"
        );
        Ok(())
    }

    /// The other volume was copied, and its repository is clean.
    async fn unharmed(&self, backup: &str) -> anyhow::Result<()> {
        let copy = self.copy(backup, &self.good).await?;
        ensure!(
            copy.phase() == DataPathPhase::Completed,
            "the good volume: {copy:?}"
        );
        self.stage.is_clean(&self.good).await
    }

    async fn wrong_password(&self) -> anyhow::Result<()> {
        self.set(1 << 20).await?;
        let first = format!("{}-before", self.backup);
        phase(
            &self.end(&self.create(&first).await?).await?,
            BackupPhase::Completed,
        )?;
        self.set_password("another").await?;
        let told = async {
            let backup = self.end(&self.create(&self.backup).await?).await?;
            phase(&backup, BackupPhase::PartiallyFailed)?;
            let contents = Contents::read(&self.stage.bucket, &self.backup)?;
            let errors = contents.files["-results.gz"]["errors"].to_string();
            ensure!(errors.contains("wrong password"), "the errors are {errors}");
            Ok(())
        };
        let told = told.await;
        self.set_password(bowline_api::names::REPO_CREDENTIALS_DEFAULT)
            .await?;
        told?;
        let last = format!("{}-after", self.backup);
        phase(
            &self.end(&self.create(&last).await?).await?,
            BackupPhase::Completed,
        )?;
        self.stage.is_clean(&self.bad).await
    }

    async fn set_password(&self, password: &str) -> anyhow::Result<()> {
        let patch = json!({ "stringData": { "repository-password": password } }).to_string();
        let scene = self.stage.scene;
        let name = REPO_CREDENTIALS_SECRET;
        let args = [
            "-n",
            DEFAULT_NAMESPACE,
            "patch",
            "secret",
            name,
            "-p",
            &patch,
        ];
        scene.kubectl(&args).await.map(drop)
    }

    async fn stumbling(&self) -> anyhow::Result<()> {
        self.set(4 << 20).await?;
        self.proxy.set(&[
            on_data(2, Mishap::Refuse(503, "SlowDown")),
            on_data(1, Mishap::CutRequest(4000)),
            on_data(1, Mishap::CutAnswer(12)),
        ]);
        let backup = self.end(&self.create(&self.backup).await?).await?;
        phase(&backup, BackupPhase::Completed)?;
        ensure!(
            self.proxy.left() == 0,
            "{} mishaps did not happen",
            self.proxy.left()
        );
        self.stage.is_clean(&self.bad).await
    }

    async fn refusing(&self) -> anyhow::Result<()> {
        self.set(LARGE).await?;
        let watch: Watch<PodVolumeBackup> = Watch::start(self.stage.scene);
        let made = self.create(&self.backup).await?;
        watch.in_the_middle("data").await?;
        self.proxy
            .set(&[on_data(FOREVER, Mishap::Refuse(403, "AccessDenied"))]);
        let backup = self.end(&made).await?;
        self.proxy.set(&[]);
        self.partly(&backup, "AccessDenied").await?;
        self.stage.is_clean(&self.bad).await
    }

    async fn disappearing(&self) -> anyhow::Result<()> {
        let folder = self.set(LARGE).await?;
        let watch: Watch<PodVolumeBackup> = Watch::start(self.stage.scene);
        let made = self.create(&self.backup).await?;
        watch.in_the_middle("data").await?;
        fs::remove_dir_all(folder)?;
        self.end(&made).await?;
        let copy = self.copy(&self.backup, &self.bad).await?;
        is_told(&copy)?;
        self.unharmed(&self.backup).await?;
        self.stage.is_clean(&self.bad).await
    }

    async fn deleted(&self) -> anyhow::Result<()> {
        self.set(LARGE).await?;
        let watch: Watch<PodVolumeBackup> = Watch::start(self.stage.scene);
        let made = self.create(&self.backup).await?;
        watch.in_the_middle("data").await?;
        let delete = ["delete", "pod", "pod", "--force", "--grace-period=0"];
        let delete = [&["-n", &*self.bad], &delete[..]].concat();
        self.stage.scene.kubectl(&delete).await?;
        self.end(&made).await?;
        let copy = self.copy(&self.backup, &self.bad).await?;
        is_told(&copy)?;
        self.unharmed(&self.backup).await?;
        self.stage.is_clean(&self.bad).await
    }

    async fn gone(&self) -> anyhow::Result<()> {
        self.set(LARGE).await?;
        let watch: Watch<PodVolumeBackup> = Watch::start(self.stage.scene);
        let made = self.create(&self.backup).await?;
        watch.in_the_middle("data").await?;
        self.node.kill().await?;
        let backup = self.end(&made).await?;
        self.partly(&backup, NODE).await?;
        self.stage.is_clean(&self.bad).await
    }

    /// Backs both namespaces up, deletes them, lets something happen to the bad one's repository
    /// and restores both: the bad volume fails with these words, the good one is as it was.
    async fn restored_partly(
        &self,
        spec: Value,
        harm: impl FnOnce(PathBuf) -> anyhow::Result<()>,
        words: &[&str],
    ) -> anyhow::Result<()> {
        let (stage, scene) = (self.stage, self.stage.scene);
        let good = stage.folder(&self.good, "pod", "calm").await?;
        let expected = tree::read(&good, &[])?;
        let made = self.create(&self.backup).await?;
        phase(&self.end(&made).await?, BackupPhase::Completed)?;
        for namespace in [&self.good, &self.bad] {
            stage.forget(namespace).await?;
        }
        harm(stage.repository_folder(&self.bad))?;
        let name = format!("{}-back", self.backup);
        let made = servers::create_restore(&scene.client(), &name, &spec).await?;
        let restore = servers::ended(&scene.client(), &made, LIMIT).await?;
        let status = restore.status.unwrap_or_default();
        ensure!(
            status.phase == Some(RestorePhase::PartiallyFailed),
            "the restore ended as {status:?}"
        );
        let returns = stage.returns(&name).await?;
        let bad = returns
            .iter()
            .find(|copy| copy.spec.source_namespace == self.bad)
            .context("no copy for the bad volume")?;
        ensure!(bad.phase() == DataPathPhase::Failed, "{:?}", bad.phase());
        for words in words {
            let message = bad.message();
            ensure!(message.contains(words), "no {words:?} in {message:?}");
        }
        stage.ready(&self.good).await?;
        let good = stage.folder(&self.good, "pod", "calm").await?;
        tree::same(&expected, &tree::read(&good, &[".velero"])?).context("the good volume")
    }

    fn whole_backup(&self) -> Value {
        json!({ "backupName": self.backup })
    }

    async fn missing_pack(&self) -> anyhow::Result<()> {
        self.set(8 << 20).await?;
        // The largest pack holds the noise.
        let remove = |repository: PathBuf| {
            let pack = largest(&repository.join("data"))?;
            Ok(fs::remove_file(pack)?)
        };
        self.restored_partly(self.whole_backup(), remove, &["pack"])
            .await
    }

    async fn damaged_index(&self) -> anyhow::Result<()> {
        self.set(1 << 20).await?;
        let damage = |repository: PathBuf| {
            let index = largest(&repository.join("index"))?;
            let mut file = OpenOptions::new().write(true).open(index)?;
            file.seek(SeekFrom::Start(20))?;
            Ok(file.write_all(b"not what it was")?)
        };
        self.restored_partly(self.whole_backup(), damage, &["index", "damaged"])
            .await
    }

    /// The volume of the restored pod is a quarter of what is in it.
    async fn full_disk(&self) -> anyhow::Result<()> {
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
        let mut spec = self.whole_backup();
        spec["resourceModifier"] = json!({ "kind": "ConfigMap", "name": "smaller" });
        self.restored_partly(spec, |_| Ok(()), &["noise", "space"])
            .await
    }
}

/// How a copy may end whose files go while they are read: it says what is missing, whether or not
/// the rest was worth keeping.
fn is_told(copy: &PodVolumeBackup) -> anyhow::Result<()> {
    let ended = [DataPathPhase::Completed, DataPathPhase::Failed];
    ensure!(
        ended.contains(&copy.phase()) && !copy.message().is_empty(),
        "the copy ended as {:?}, {:?}",
        copy.phase(),
        copy.message()
    );
    Ok(())
}

fn phase(backup: &Backup, expected: BackupPhase) -> anyhow::Result<()> {
    let status = backup.status.clone().unwrap_or_default();
    ensure!(
        status.phase.as_ref() == Some(&expected),
        "the backup ended as {}",
        serde_json::to_string(&status)?
    );
    Ok(())
}

/// Writes of packs.
fn on_data(times: usize, mishap: Mishap) -> Rule {
    Rule {
        on: "/data/",
        times,
        mishap,
    }
}

/// The largest file below a folder.
fn largest(folder: &std::path::Path) -> anyhow::Result<PathBuf> {
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
