//! Server, node process and mover die at every step of a movement, in both directions: whoever comes next
//! sees it through, and nothing is left.

use std::time::Duration;

use anyhow::{Context, ensure};
use bowline_api::{
    names::{DEFAULT_NAMESPACE, NODE_AGENT, SERVER, label},
    v1::DataPathPhase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use super::{
    super::{
        killed::free_lease,
        pod_volumes::stage::{Copy, launch_node, node_that},
    },
    stage::{FILES, Lists, Stage},
};
use crate::{
    csi::objects::{self, Kind},
    scene::Scene,
    servers::{self, Ended, EndedRestore},
    tree, wait_for,
};

const CRASH: &str = "BOWLINE_CRASH_AT";
/// Where node processes die, on both ways.
const NODE: [&str; 7] = [
    "after movement taken",
    "after movement exposed",
    "after movement pod",
    "after movement prepared",
    "after movement begun",
    "after movement verdict",
    "after movement end",
];
/// And where a volume is handed over to its claim.
const HANDING_OVER: [&str; 5] = [
    "after volume written down",
    "after volume kept",
    "after volume free",
    "after volume given",
    "after volume bound",
];
/// Where movers die.
const MOVER: &str = "before mover's verdict";
const SERVER_THERE: [&str; 2] = ["before DataUpload", "after DataUpload"];
const SERVER_BACK: [&str; 2] = ["before DataDownload", "after DataDownload"];
const SOON: Duration = Duration::from_secs(120);

struct Story<'a> {
    stage: Stage<'a>,
    namespace: String,
    files: tree::Tree,
    before: Lists,
    /// Backups that were made, and restores that were begun.
    backups: Vec<String>,
    restores: usize,
}

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

const BOTH: [Way; 2] = [Way::There, Way::Back];

/// Where node processes and servers die, in the order in which a movement comes there.
fn places_on(way: Way) -> (Vec<&'static str>, [&'static str; 2]) {
    let [begin @ .., end] = NODE;
    match way {
        Way::There => (NODE.to_vec(), SERVER_THERE),
        Way::Back => {
            let middle = HANDING_OVER.into_iter();
            let all = begin.into_iter().chain(middle).chain([end]);
            (all.collect(), SERVER_BACK)
        }
    }
}

/// All of them.
pub(in super::super) async fn each(scene: &Scene) -> anyhow::Result<String> {
    let stage = Stage::install(scene, "moves-die").await?;
    set_aside(scene).await?;
    let namespace = scene.namespace("moving").await?;
    let claim = objects::claim(&namespace, FILES, Kind::Files, "16Mi");
    scene.apply(&[claim]).await?;
    let folder = stage.csi.volume(&stage.csi.bound(&namespace, FILES).await?);
    tree::fill(&folder)?;
    let before = stage.lists().await?;
    let mut story = Story {
        files: tree::read(&folder, &[])?,
        stage,
        namespace,
        before,
        backups: Vec::new(),
        restores: 0,
    };
    let mut places = 0;
    for way in BOTH {
        let (node, server) = places_on(way);
        places += node.len() + 1 + server.len();
        let told = story.node_dies(way, &node).await;
        told.with_context(|| format!("{way:?}: node processes died"))?;
        let told = story.mover_dies(way).await;
        told.with_context(|| format!("{way:?}: the mover died {MOVER}"))?;
        let told = story.server_dies(way, server).await;
        told.with_context(|| format!("{way:?}: servers died"))?;
    }
    let Story {
        stage,
        namespace,
        before,
        backups,
        restores,
        ..
    } = story;
    let node = node_that(scene, &[], &[]).await?;
    for backup in &backups {
        stage.delete(backup).await?;
    }
    let left = ["snapshots", "--json"];
    let left = stage.volumes().restic(&namespace, scene.folder(), &left);
    let left = left.await?;
    ensure!(left.trim() == "[]" || left.trim() == "null", "{left}");
    stage.is_as(&before).await?;
    node.kill().await?;
    stage.close_killed().await?;
    Ok(format!(
        "{places} places; {} backups and {restores} restores seen through; nothing is left in cluster, driver or repository",
        backups.len()
    ))
}

/// Node processes are run beside the cluster, where they can be told to die. Their DaemonSet stays, since
/// movers are made like its pods.
async fn set_aside(scene: &Scene) -> anyhow::Result<()> {
    let gate = json!({ "spec": { "template": { "spec": {
        "schedulingGates": [{ "name": "bowline.test/aside" }],
    } } } });
    let set = format!("daemonset/{NODE_AGENT}");
    let gate = gate.to_string();
    let patch = ["-n", DEFAULT_NAMESPACE, "patch", &set, "-p", &gate];
    scene.kubectl(&patch).await?;
    let pods: Api<Pod> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let of = ListParams::default().labels(&format!("{}={NODE_AGENT}", label::ROLE));
    wait_for("the node process to go", SOON, async || {
        let found = pods.list(&of).await?.items;
        let has_place = |pod: &Pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        Ok((!found.iter().any(has_place)).then_some(()))
    })
    .await
}

/// What was begun.
enum Begun {
    Backup(bowline_api::v1::Backup),
    Restore(bowline_api::v1::Restore, String),
}

impl Story<'_> {
    fn scene(&self) -> &Scene {
        self.stage.scene
    }

    /// A backup, or a restore of the first one.
    async fn begin(&mut self, way: Way) -> anyhow::Result<Begun> {
        let client = self.scene().client();
        match way {
            Way::There => {
                let name = self.scene().fresh(&format!("b-{}", self.backups.len()));
                let spec: Value =
                    json!({ "includedNamespaces": [self.namespace], "snapshotMoveData": true });
                let made = servers::create_backup(&client, &name, &spec).await?;
                self.backups.push(name);
                Ok(Begun::Backup(made))
            }
            Way::Back => {
                self.restores += 1;
                let into = self.scene().fresh(&format!("r-{}", self.restores));
                let spec = json!({
                    "backupName": self.backups[0],
                    "namespaceMapping": { (self.namespace.as_str()): into },
                });
                let made = servers::create_restore(&client, &into, &spec).await?;
                Ok(Begun::Restore(made, into))
            }
        }
    }

    /// It ends well, and nothing is left of it but what it is for.
    async fn ends(&self, begun: &Begun) -> anyhow::Result<()> {
        let client = self.scene().client();
        match begun {
            Begun::Backup(made) => {
                let backup = servers::ended(&client, made, SOON).await?;
                let took = Duration::ZERO;
                Ended { backup, took }.completed()?;
                let uploads = self.stage.uploads(&made.name_any()).await?;
                let is_whole = |upload: &&_| Copy::phase(*upload) == DataPathPhase::Completed;
                let whole = uploads.iter().filter(is_whole).count();
                ensure!(whole == 1 && uploads.len() == 1, "{uploads:?}");
            }
            Begun::Restore(made, into) => {
                let restore = servers::ended(&client, made, SOON).await?;
                let took = Duration::ZERO;
                EndedRestore { restore, took }.completed()?;
                let handle = self.stage.csi.bound(into, FILES).await?;
                let folder = self.stage.csi.volume(&handle);
                tree::same(&self.files, &tree::read(&folder, &[])?)?;
                self.stage.volumes().forget(into).await?;
            }
        }
        self.stage.is_as(&self.before).await
    }

    /// One movement, at each step of which the node process dies that looks after it.
    async fn node_dies(&mut self, way: Way, places: &[&str]) -> anyhow::Result<()> {
        let mut begun = None;
        for place in places {
            let dies = [(CRASH, *place)];
            let node = match begun {
                Some(_) => launch_node(self.scene(), &[], &dies).await?,
                None => {
                    let node = node_that(self.scene(), &[], &dies).await?;
                    begun = Some(self.begin(way).await?);
                    node
                }
            };
            let died = wait_for("the node process to die", SOON, async || {
                Ok((!node.is_alive()).then_some(()))
            });
            died.await
                .with_context(|| format!("{place} was not reached"))?;
        }
        let node = node_that(self.scene(), &[], &[]).await?;
        self.ends(&begun.context("there are no places")?).await?;
        node.kill().await
    }

    /// Its pod dies again and again, until it is made anew.
    async fn mover_dies(&mut self, way: Way) -> anyhow::Result<()> {
        let daemons = format!("daemonset/{NODE_AGENT}");
        set_env(self.scene(), &daemons, &format!("{CRASH}={MOVER}")).await?;
        let node = node_that(self.scene(), &[], &[]).await?;
        let begun = self.begin(way).await?;
        let pod = died(self.scene(), label::EXPOSER_POD_GROUP).await?;
        set_env(self.scene(), &daemons, &format!("{CRASH}-")).await?;
        let pods: Api<Pod> = Api::namespaced(self.scene().client(), DEFAULT_NAMESPACE);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&pod, &at_once).await?;
        self.ends(&begun).await?;
        node.kill().await
    }

    /// The same for servers.
    async fn server_dies(&mut self, way: Way, places: [&str; 2]) -> anyhow::Result<()> {
        let server = format!("deployment/{SERVER}");
        let node = node_that(self.scene(), &[], &[]).await?;
        let mut begun = None;
        for place in places {
            self.serves(&server, &format!("{CRASH}={place}")).await?;
            if begun.is_none() {
                begun = Some(self.begin(way).await?);
            }
            let died = died(self.scene(), &format!("{}={SERVER}", label::DEPLOY)).await;
            died.with_context(|| format!("{place} was not reached"))?;
        }
        self.serves(&server, &format!("{CRASH}-")).await?;
        self.ends(&begun.context("there are no places")?).await?;
        node.kill().await
    }

    /// Gives the server a variable, and waits until one with it is there.
    async fn serves(&self, server: &str, variable: &str) -> anyhow::Result<()> {
        set_env(self.scene(), server, variable).await?;
        let rollout = ["rollout", "status", server, "--timeout=120s"];
        let here = ["-n", DEFAULT_NAMESPACE];
        self.scene()
            .kubectl(&[&here[..], &rollout].concat())
            .await?;
        free_lease(self.scene()).await
    }
}

async fn set_env(scene: &Scene, of: &str, variable: &str) -> anyhow::Result<()> {
    let set = ["-n", DEFAULT_NAMESPACE, "set", "env", of, variable];
    scene.kubectl(&set).await.map(drop)
}

/// Waits until a container of such a pod has died; gives the pod's name.
async fn died(scene: &Scene, labels: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let of = ListParams::default().labels(labels);
    wait_for("it to die", SOON, async || {
        let found = pods.list(&of).await?.items;
        let has_died = |pod: &Pod| {
            let containers = pod
                .status
                .as_ref()
                .and_then(|s| s.container_statuses.as_ref());
            let mut containers = containers.into_iter().flatten();
            containers.any(|container| {
                let states = [&container.state, &container.last_state];
                let mut ends = states
                    .into_iter()
                    .flatten()
                    .filter_map(|s| s.terminated.as_ref());
                container.restart_count > 0 || ends.any(|end| end.exit_code != 0)
            })
        };
        Ok(found
            .iter()
            .find(|pod| has_died(pod))
            .map(ResourceExt::name_any))
    })
    .await
}
