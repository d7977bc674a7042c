//! Bad days of the API server and of the store: a backup ends right, or says what went wrong; a
//! restore likewise.

mod archives;
pub(super) mod restore;
mod stage;

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bowline_api::{
    files::backup_suffix as suffix,
    names::DEFAULT_NAMESPACE,
    v1::{Backup, BackupPhase},
};
use bowline_apiserver::{Fault, Rule, When};
use http::Method;
use kube::Api;
use serde_json::{Value, json};

use self::stage::{Stage, on};
use crate::{
    contents::Contents,
    proxy::{self, Mishap},
    scene::Scene,
    servers, wait_for,
};

const OBJECTS: usize = 1500;
/// No backup of so few objects takes longer, whatever happens to it.
const LIMIT: Duration = Duration::from_secs(90);

/// How a backup has to end.
enum End {
    /// With everything in it.
    Completed,
    /// With an error that contains this, and the rest in it.
    Partly(&'static str),
    /// With a reason that contains this.
    Failed(&'static str),
}

/// The story.
pub(super) async fn are_survived(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::set(scene, &[], objects()).await?;
    let mut failures = Vec::new();
    let mut count = 0;
    for (name, rules, end) in of_the_api() {
        stage.api.set_faults(rules, 7);
        let told = stage.try_one(scene, name, &end).await;
        stage.api.set_faults(Vec::new(), 7);
        failures.extend(told.err().map(|error| format!("{name}: {error:#}")));
        count += 1;
    }
    let told = stage.expired(scene).await;
    failures.extend(told.err().map(|error| format!("expired pages: {error:#}")));
    for (name, rules, end) in of_the_store() {
        stage.proxy.set(&rules);
        let told = stage.try_one(scene, name, &end).await;
        let left = stage.proxy.left();
        stage.proxy.set(&[]);
        failures.extend(told.err().map(|error| format!("{name}: {error:#}")));
        if matches!(end, End::Completed) && left > 0 {
            failures.push(format!("{name}: {left} faults did not happen"));
        }
        count += 1;
    }
    stage.close().await?;
    if !failures.is_empty() {
        bail!(
            "{} of {} bad days:\n{}",
            failures.len(),
            count + 1,
            failures.join("\n")
        );
    }
    Ok(format!("{} bad days", count + 1))
}

fn of_the_api() -> Vec<(&'static str, Vec<Rule>, End)> {
    let list = |when, fault| vec![on(Method::GET, "/configmaps?", when, fault)];
    vec![
        (
            "throttled lists",
            list(When::First(2), Fault::Throttle(1)),
            End::Completed,
        ),
        (
            "cut lists",
            list(When::First(3), Fault::Cut(30_000)),
            End::Completed,
        ),
        (
            "slow lists",
            list(When::First(3), Fault::Delay(Duration::from_millis(700))),
            End::Completed,
        ),
        (
            "lists with 500",
            list(When::First(2), Fault::Status(500)),
            End::Completed,
        ),
        (
            "a forbidden kind",
            vec![on(
                Method::GET,
                "/secrets?",
                When::Always,
                Fault::Status(403),
            )],
            End::Partly("secrets"),
        ),
        (
            "lost answers to patches",
            vec![on(Method::PATCH, "/backups/", When::First(2), Fault::Lost)],
            End::Completed,
        ),
        (
            "patches with 500",
            vec![on(
                Method::PATCH,
                "/backups/",
                When::First(2),
                Fault::Status(500),
            )],
            End::Completed,
        ),
        (
            "a bad day all over",
            vec![on(Method::GET, "", When::OneIn(4), Fault::Status(503))],
            End::Completed,
        ),
    ]
}

fn of_the_store() -> Vec<(&'static str, Vec<proxy::Rule>, End)> {
    let put = |times, mishap| {
        vec![proxy::Rule {
            on: "PUT /",
            times,
            mishap,
        }]
    };
    vec![
        (
            "slow down",
            put(3, Mishap::Refuse(503, "SlowDown")),
            End::Completed,
        ),
        (
            "internal errors",
            put(2, Mishap::Refuse(500, "InternalError")),
            End::Completed,
        ),
        (
            "cut uploads",
            put(2, Mishap::CutRequest(4000)),
            End::Completed,
        ),
        ("cut answers", put(2, Mishap::CutAnswer(12)), End::Completed),
        (
            "no right to write",
            put(usize::MAX / 2, Mishap::Refuse(403, "AccessDenied")),
            End::Failed("AccessDenied"),
        ),
    ]
}

impl Stage {
    async fn try_one(&self, scene: &Scene, what: &str, end: &End) -> anyhow::Result<()> {
        let name = scene.fresh(&what.replace(' ', "-"));
        // What makes the backup must not meet the fault itself.
        let made = self.create(&name).await?;
        let backup = servers::ended(&self.client, &made, LIMIT).await?;
        self.judge(&name, &backup, end)
    }

    async fn create(&self, name: &str) -> anyhow::Result<Backup> {
        let spec = json!({ "includedNamespaces": ["shop"] });
        servers::create_backup(&self.client, name, &spec).await
    }

    fn judge(&self, name: &str, backup: &Backup, end: &End) -> anyhow::Result<()> {
        let status = backup.status.clone().unwrap_or_default();
        let phase = status.phase.clone().unwrap_or_default();
        let found = Contents::read(&self.bucket, name).unwrap_or_default();
        let results = found.files.get(suffix::RESULTS).map(Value::to_string);
        let shown = format!("{}, {}", phase.as_str(), results.unwrap_or_default());
        match end {
            End::Completed => {
                ensure!(phase == BackupPhase::Completed, "ended as {shown}");
                self.whole(name)
            }
            End::Partly(text) => {
                ensure!(phase == BackupPhase::PartiallyFailed, "ended as {shown}");
                self.whole(name)?;
                let results = &found.files[suffix::RESULTS];
                let errors = results["errors"].to_string();
                ensure!(errors.contains(text), "the results are {results}");
                Ok(())
            }
            End::Failed(text) => {
                ensure!(phase == BackupPhase::Failed, "ended as {shown}");
                let reason = status.failure_reason.unwrap_or_default();
                ensure!(reason.contains(text), "the reason is {reason:?}");
                Ok(())
            }
        }
    }

    /// All ConfigMaps are in the archive, each once.
    fn whole(&self, name: &str) -> anyhow::Result<()> {
        let contents = Contents::read(&self.bucket, name).context("read the backup")?;
        let maps = contents
            .archive
            .keys()
            .filter(|path| path.starts_with("resources/configmaps/namespaces/shop/o"))
            .count();
        ensure!(maps == OBJECTS, "{maps} of {OBJECTS} ConfigMaps");
        Ok(())
    }

    /// The moment that a list is of goes while it is read.
    async fn expired(&self, scene: &Scene) -> anyhow::Result<()> {
        let late = Fault::Delay(Duration::from_millis(1500));
        let slow = on(Method::GET, "continue=", When::First(1), late);
        self.api.set_faults(vec![slow], 7);
        let name = scene.fresh("expired");
        let made = self.create(&name).await?;
        let backups: Api<Backup> = Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE);
        wait_for("the backup to begin", LIMIT, async || {
            let phase = backups.get(&name).await?.status.and_then(|s| s.phase);
            Ok((phase == Some(BackupPhase::InProgress)).then_some(()))
        })
        .await?;
        self.api.compact();
        let backup = servers::ended(&self.client, &made, LIMIT).await?;
        self.api.set_faults(Vec::new(), 7);
        self.judge(&name, &backup, &End::Completed)
    }
}

/// Several pages of objects.
fn objects() -> Vec<Value> {
    (0..OBJECTS)
        .map(|n| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": format!("o{n}"), "namespace": "shop" },
                "data": { "text": format!("{n} {}", "some words ".repeat(20)) },
            })
        })
        .collect()
}
