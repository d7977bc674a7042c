//! Bad days of volumes: the copy that it happens to fails by name, its backup or restore partly,
//! other volumes come to no harm, and the repository stays clean.

mod restores;

use std::{
    fs,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, REPO_CREDENTIALS_DEFAULT, REPO_CREDENTIALS_SECRET},
    v1::{Backup, BackupPhase, DataPathPhase, PodVolumeBackup},
};
use futures::future::LocalBoxFuture;
use serde_json::json;

use super::stage::{Copy, SOON, Stage, Watch, passing, pod};
use crate::{
    Process,
    bed::NODE,
    contents::Contents,
    machine,
    proxy::{Mishap, Proxy, Rule},
    relay::Relay,
    scene::Scene,
    servers, tree, wait_for,
};

/// Bytes of the volume that something happens to, unless it takes no more than a moment.
const LARGE: usize = 48 << 20;
const DELAY: Duration = Duration::from_millis(15);
/// Whatever happens, a backup or a restore is over by then.
const LIMIT: Duration = Duration::from_secs(150);
const FOREVER: usize = usize::MAX / 2;

/// A bad day; what it gives is what was said of it.
type Day = for<'a> fn(&'a Play<'a>) -> LocalBoxFuture<'a, anyhow::Result<String>>;

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
    let (mut said, mut failures) = (Vec::new(), 0);
    for (n, (day, play)) in DAYS.iter().enumerate() {
        let on = Play {
            stage: &stage,
            proxy: &proxy,
            node: &node,
            good: scene.namespace(&format!("{n}-good")).await?,
            bad: scene.namespace(&format!("{n}-bad")).await?,
            backup: scene.fresh(&format!("day-{n}")),
        };
        let began = Instant::now();
        let mut told = play(&on).await;
        proxy.set(&[]);
        if told.is_ok() && node.is_alive() {
            told = on.are_unlocked().await.and(told);
        }
        failures += usize::from(told.is_err());
        let told = told.unwrap_or_else(|error| format!("NOT AS EXPECTED: {error:#}"));
        said.push(format!("{day} ({} s): {told}", began.elapsed().as_secs()));
        for namespace in [&on.good, &on.bad] {
            scene
                .kubectl(&["delete", "namespace", namespace, "--wait=false"])
                .await?;
        }
    }
    server.check()?;
    server.stop().await?;
    stage.close().await?;
    let said = format!("{} bad days\n{}", DAYS.len(), said.join("\n"));
    ensure!(failures == 0, "{failures} of {said}");
    Ok(said)
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

    async fn create(&self) -> anyhow::Result<Backup> {
        self.create_of(&self.backup, &[&self.good, &self.bad]).await
    }

    async fn create_of(&self, name: &str, namespaces: &[&String]) -> anyhow::Result<Backup> {
        let spec = json!({ "includedNamespaces": namespaces });
        servers::create_backup(&self.stage.scene.client(), name, &spec).await
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

    /// A backup ended partly, since the bad volume failed with these words; the other one did
    /// not, and both repositories are clean. Gives what is said of the bad one.
    async fn partly(&self, backup: &Backup, words: &str) -> anyhow::Result<String> {
        let said = self.failed(backup, words).await?;
        self.unharmed().await?;
        self.stage.is_clean(&self.bad).await?;
        Ok(said)
    }

    /// The same, without a look at anything else.
    async fn failed(&self, backup: &Backup, words: &str) -> anyhow::Result<String> {
        phase(backup, BackupPhase::PartiallyFailed)?;
        let copy = self.copy(&self.backup, &self.bad).await?;
        let said = copy.message();
        ensure!(
            copy.phase() == DataPathPhase::Failed && said.contains(words),
            "no {words:?} in {:?}, {said:?}",
            copy.phase()
        );
        let contents = Contents::read(&self.stage.bucket, &self.backup)?;
        let errors = contents.files["-results.gz"]["errors"].to_string();
        let is_there = errors.contains("pod volume backup failed") && errors.contains(words);
        ensure!(is_there, "no {words:?} in the errors {errors}");
        Ok(said)
    }

    /// Neither repository is locked any more.
    async fn are_unlocked(&self) -> anyhow::Result<()> {
        for namespace in [&self.good, &self.bad] {
            let folder = self.stage.repository_folder(namespace).join("locks");
            let what = format!("no lock in {}", folder.display());
            wait_for(&what, Duration::from_secs(10), async || {
                let locks = fs::read_dir(&folder).into_iter().flatten().count();
                Ok((locks == 0).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// The other volume was copied, and its repository is clean.
    async fn unharmed(&self) -> anyhow::Result<()> {
        self.is_copied(&self.good).await?;
        self.stage.is_clean(&self.good).await
    }

    async fn is_copied(&self, namespace: &str) -> anyhow::Result<()> {
        let copy = self.copy(&self.backup, namespace).await?;
        ensure!(
            copy.phase() == DataPathPhase::Completed,
            "the volume of {namespace}: {:?}, {:?}",
            copy.phase(),
            copy.message()
        );
        Ok(())
    }

    /// The good namespace has its first copy while the password is another one, and so has no
    /// trouble with it.
    async fn wrong_password(&self) -> anyhow::Result<String> {
        const OTHER: &str = "another";
        self.set(1 << 20).await?;
        let first = format!("{}-before", self.backup);
        let made = self.create_of(&first, &[&self.bad]).await?;
        phase(&self.end(&made).await?, BackupPhase::Completed)?;
        self.set_password(OTHER).await?;
        let backup = async { self.end(&self.create().await?).await };
        let backup = backup.await;
        self.set_password(REPO_CREDENTIALS_DEFAULT).await?;
        let said = self.failed(&backup?, "wrong password").await?;
        self.is_copied(&self.good).await?;
        self.stage.is_clean_with(OTHER, &self.good).await?;
        let last = format!("{}-after", self.backup);
        let made = self.create_of(&last, &[&self.bad]).await?;
        phase(&self.end(&made).await?, BackupPhase::Completed)?;
        self.stage.is_clean(&self.bad).await?;
        Ok(said)
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

    async fn stumbling(&self) -> anyhow::Result<String> {
        self.set(4 << 20).await?;
        let mishaps = [
            on_data(2, Mishap::Refuse(503, "SlowDown")),
            on_data(1, Mishap::CutRequest(4000)),
            on_data(1, Mishap::CutAnswer(12)),
        ];
        self.proxy.set(&mishaps);
        let all = self.proxy.left();
        let backup = self.end(&self.create().await?).await?;
        phase(&backup, BackupPhase::Completed)?;
        let left = self.proxy.left();
        ensure!(left == 0, "{left} mishaps did not happen");
        self.unharmed().await?;
        self.stage.is_clean(&self.bad).await?;
        Ok(format!("completed, after {all} mishaps"))
    }

    /// A backup that has come to the middle of the bad volume.
    async fn in_the_middle(&self) -> anyhow::Result<Backup> {
        let watch: Watch<PodVolumeBackup> = Watch::start(self.stage.scene);
        let made = self.create().await?;
        watch.in_the_middle("data").await?;
        Ok(made)
    }

    /// The same, and there it stays, since the store wants to be asked again later, until it is
    /// well again.
    async fn held_in_the_middle(&self) -> anyhow::Result<Backup> {
        let made = self.in_the_middle().await?;
        self.proxy
            .set(&[on_data(FOREVER, Mishap::Refuse(503, "SlowDown"))]);
        Ok(made)
    }

    async fn refusing(&self) -> anyhow::Result<String> {
        self.set(LARGE).await?;
        let made = self.in_the_middle().await?;
        self.proxy
            .set(&[on_data(FOREVER, Mishap::Refuse(403, "AccessDenied"))]);
        let backup = self.end(&made).await?;
        self.proxy.set(&[]);
        self.partly(&backup, "AccessDenied").await
    }

    async fn disappearing(&self) -> anyhow::Result<String> {
        let folder = self.set(LARGE).await?;
        let made = self.held_in_the_middle().await?;
        fs::remove_dir_all(folder)?;
        self.proxy.set(&[]);
        let backup = self.end(&made).await?;
        self.partly(&backup, "disappeared").await
    }

    async fn deleted(&self) -> anyhow::Result<String> {
        let folder = self.set(LARGE).await?;
        let made = self.held_in_the_middle().await?;
        let delete = ["delete", "pod", "pod", "--force", "--grace-period=0"];
        let delete = [&["-n", &*self.bad], &delete[..]].concat();
        self.stage.scene.kubectl(&delete).await?;
        // The store is asked again for half a minute at least.
        let patience = Duration::from_secs(25);
        wait_for("the volume to go with its pod", patience, async || {
            Ok((!folder.exists()).then_some(()))
        })
        .await?;
        self.proxy.set(&[]);
        let backup = self.end(&made).await?;
        // The node process sees the pod go before its volume does.
        self.partly(&backup, "of volume data is gone").await
    }

    async fn gone(&self) -> anyhow::Result<String> {
        self.set(LARGE).await?;
        let made = self.held_in_the_middle().await?;
        wait_for("the good volume to be copied", SOON, async || {
            self.is_copied(&self.good).await.map(Some)
        })
        .await?;
        self.node.kill().await?;
        self.proxy.set(&[]);
        let backup = self.end(&made).await?;
        self.partly(&backup, NODE).await
    }
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

/// Requests for packs of a bad namespace.
fn on_data(times: usize, mishap: Mishap) -> Rule {
    Rule {
        on: "-bad/data/",
        times,
        mishap,
    }
}
