//! Pods with hooks: they are frozen, backed up with their volumes, and let go. Pods that share a
//! volume are frozen together.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    item::{At, Run},
    later::Later,
    pod_volumes::Decided,
};
use crate::{
    action::{claims, text},
    hooks::{self, Exec, HookTracker, Message, Phase, SpecHooks, Verdict},
    list::{self, Query},
    log::{About, Level},
    object::Facts,
};

/// What annotations of hooks begin with, whatever the phase.
const ANNOTATION: &str = "hook.backup.velero.io/";

/// The hooks of a backup, and what is known of pods for their sake.
pub(super) struct Hooks {
    pub(super) spec: SpecHooks,
    pub(super) exec: Arc<dyn Exec>,
    pub(super) tracker: HookTracker,
    /// Running pods and their claims, by namespace; read when first needed. Held while a block is
    /// gathered: pods that share a volume would else be taken on by a block each.
    mounts: Mutex<Known>,
}

type Known = HashMap<String, Arc<Vec<Mounts>>>;

/// A running pod and the claims it mounts.
struct Mounts {
    pod: String,
    claims: Vec<String>,
}

/// A pod of a block.
pub(super) struct Member {
    raw: Vec<u8>,
    decided: Decided,
    namespace: String,
    name: String,
}

impl Hooks {
    pub(super) fn new(spec: SpecHooks, exec: Arc<dyn Exec>) -> Self {
        Self {
            spec,
            exec,
            tracker: HookTracker::default(),
            mounts: Mutex::default(),
        }
    }

    /// Whether a pod may have hooks; false is certain.
    pub(super) fn concern(&self, pod: &Facts<'_>) -> bool {
        !self.spec.is_empty() || pod.annotations_mention(ANNOTATION)
    }
}

impl Run {
    /// Backs pods up together, and those that share their volumes, with hooks around. When volumes
    /// are to be copied, that is done later.
    pub(super) async fn block(&self, pods: At, raws: Vec<Vec<u8>>) {
        let mut members = self.gather(pods, raws).await;
        for member in &mut members {
            let pod = std::mem::take(&mut member.decided.pod);
            member.decided = self.decide(pod).await;
        }
        if members.iter().any(|member| member.decided.has_copies()) {
            self.later(Later::Block(pods, members));
        } else {
            self.together(pods, members).await;
        }
    }

    /// Freezes pods, backs them up, waits for the copies of their volumes, and lets them go.
    pub(super) async fn together(&self, pods: At, members: Vec<Member>) {
        let is_hooked = members.iter().any(|member| {
            let facts = Facts::of(&member.raw);
            facts.is_ok_and(|facts| self.hooks.concern(&facts))
        });
        let nodes = members
            .iter()
            .filter(|member| is_hooked && member.decided.has_copies())
            .map(|member| text(&member.decided.pod, "/spec/nodeName"))
            .collect();
        let _room = self.room(nodes).await;
        let mut frozen = Vec::new();
        for member in members {
            match self.hook(&member, Phase::Pre).await {
                Verdict::GoOn => frozen.push(member),
                // The reason is in the log.
                Verdict::LeaveOut(_) => self.drop_item(pods, &member.namespace, &member.name),
            }
        }
        let mut copies = Vec::new();
        for member in &frozen {
            if let Ok(facts) = Facts::of(&member.raw) {
                self.settle(pods, &facts, true).await;
            }
            if self.is_stored(pods, &member.namespace, &member.name) {
                copies.extend(self.begin_copies(&member.decided).await);
            }
        }
        if is_hooked {
            self.wait_for(&copies).await;
        }
        for member in &frozen {
            self.hook(member, Phase::Post).await;
        }
    }

    /// Takes pods on, and those that share their volumes.
    async fn gather(&self, pods: At, raws: Vec<Vec<u8>>) -> Vec<Member> {
        let mut mounts = self.hooks.mounts.lock().await;
        let mut block: Vec<Member> = Vec::new();
        for raw in raws {
            block.extend(self.member(pods, raw));
        }
        self.add_neighbours(pods, &mut block, &mut mounts).await;
        block
    }

    /// Takes a pod on, unless it is somebody else's or not for this backup.
    fn member(&self, pods: At, raw: Vec<u8>) -> Option<Member> {
        let facts = self.take_on(pods, &raw, false)?;
        let (namespace, name) = (facts.namespace().into_owned(), facts.name().into_owned());
        let pod = match serde_json::from_slice(&raw) {
            Ok(pod) => pod,
            Err(error) => {
                let about = self.place(pods, &namespace, &name).because(error);
                self.log.error("Error backing up item", &about);
                self.drop_item(pods, &namespace, &name);
                return None;
            }
        };
        Some(Member {
            raw,
            decided: Decided {
                pod,
                choices: Vec::new(),
            },
            namespace,
            name,
        })
    }

    /// Adds running pods that mount the same claims, and those that share with these.
    async fn add_neighbours(&self, pods: At, block: &mut Vec<Member>, known: &mut Known) {
        let mut looked = 0;
        while let Some(member) = block.get(looked) {
            looked += 1;
            let mounted: BTreeSet<&str> = claims(&member.decided.pod).collect();
            if mounted.is_empty() {
                continue;
            }
            let namespace = member.namespace.clone();
            let running = self.mounts(pods, &namespace, known).await;
            let neighbours: Vec<String> = running
                .iter()
                .filter(|pod| {
                    pod.claims
                        .iter()
                        .any(|claim| mounted.contains(claim.as_str()))
                })
                .map(|pod| pod.pod.clone())
                .collect();
            for name in neighbours {
                if self.is_taken(pods, &namespace, &name) {
                    continue;
                }
                if let Ok(Some(raw)) = self.read(pods, &namespace, &name).await {
                    block.extend(self.member(pods, raw));
                }
            }
        }
    }

    async fn mounts(&self, pods: At, namespace: &str, known: &mut Known) -> Arc<Vec<Mounts>> {
        if let Some(mounts) = known.get(namespace) {
            return Arc::clone(mounts);
        }
        let query = Query {
            path: self.resource(pods).path(Some(namespace)),
            ..Query::default()
        };
        let mut mounts = Vec::new();
        let done = list::each(&self.client, &query, |raw| mounts.extend(Mounts::of(raw))).await;
        if let Err(error) = done {
            let about = self.place(pods, namespace, "").because(error);
            self.log.error("Error listing items", &about);
        }
        let mounts = Arc::new(mounts);
        known.insert(namespace.to_owned(), Arc::clone(&mounts));
        mounts
    }

    async fn hook(&self, member: &Member, phase: Phase) -> Verdict {
        let about = About::object("pods", &member.namespace, &member.name);
        let mut log = |message: Message| {
            let level = match message.level {
                hooks::Level::Info => Level::Info,
                hooks::Level::Warning => Level::Warning,
                hooks::Level::Error => Level::Error,
            };
            let mut about = about.clone();
            about.error = message.error;
            self.log.write(level, &message.text, &about);
        };
        let hooks = &self.hooks;
        hooks::run_with(
            &*hooks.exec,
            &hooks.spec,
            &member.decided.pod,
            phase,
            &hooks.tracker,
            &mut log,
        )
        .await
    }
}

impl Mounts {
    fn of(raw: &[u8]) -> Option<Self> {
        memchr::memmem::find(raw, b"persistentVolumeClaim")?;
        let pod: Value = serde_json::from_slice(raw).ok()?;
        let is_running = pod["status"]["phase"] == "Running";
        is_running.then(|| Self {
            pod: pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            claims: claims(&pod).map(str::to_owned).collect(),
        })
    }
}
