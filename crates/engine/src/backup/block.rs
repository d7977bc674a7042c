//! Pods with hooks: they are frozen, backed up with their volumes, and let go. Pods that share a
//! volume are frozen together, and so is what plugins say belongs together.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    item::{At, Run, say_kind},
    later::Later,
    pod_volumes::{Decided, is_pods},
    snapshots::Frozen,
};
use crate::{
    action::{Related, claims, text},
    discovery::Resource,
    hooks::{self, Exec, HookTracker, Message, Phase, SpecHooks, Timed, Verdict, Window},
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

/// An object of a block, mostly a pod.
pub(super) struct Member {
    at: At,
    is_pod: bool,
    raw: Vec<u8>,
    decided: Decided,
    namespace: String,
    name: String,
    /// When hooks ran in it.
    window: Window,
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
    /// Whether a plugin may know what an object belongs together with; false is certain.
    pub(super) fn is_blocked(&self, resource: &Resource, facts: &Facts<'_>) -> bool {
        let mut actions = self.block_actions.iter();
        actions.any(|action| action.applies_to(resource) && action.concerns(facts))
    }

    /// Backs objects up together, mostly pods: with those that share their volumes, and with hooks
    /// around. When volumes are to be copied, that is done later.
    pub(super) async fn block(&self, at: At, raws: Vec<Vec<u8>>) {
        let mut members = self.gather(at, raws).await;
        for member in members.iter_mut().filter(|member| member.is_pod) {
            let pod = std::mem::take(&mut member.decided.pod);
            member.decided = self.decide(pod).await;
        }
        if members.iter().any(|member| member.decided.has_copies()) {
            self.later(Later::Block(members));
        } else {
            self.together(members).await;
        }
    }

    /// Freezes pods, backs them up, waits for the copies of their volumes, and lets them go.
    pub(super) async fn together(&self, members: Vec<Member>) {
        let is_hooked = members.iter().any(|member| {
            let facts = Facts::of(&member.raw);
            member.is_pod && facts.is_ok_and(|facts| self.hooks.concern(&facts))
        });
        let nodes = members
            .iter()
            .filter(|member| is_hooked && member.decided.has_copies())
            .map(|member| text(&member.decided.pod, "/spec/nodeName"))
            .collect();
        let _room = self.room(nodes).await;
        let _held = self.held.begin();
        let mut kept = Vec::new();
        for member in members {
            if self.over.is_cancelled() {
                // Nobody else is frozen; who is will be let go.
                break;
            }
            match self.hook(&member, Phase::Pre).await {
                Verdict::GoOn => kept.push(member),
                // The reason is in the log.
                Verdict::LeaveOut(_) => self.drop_item(member.at, &member.namespace, &member.name),
            }
        }
        let frozen = Frozen::default();
        let pods = kept.iter().filter(|member| member.is_pod);
        self.cut_claims(pods.map(|member| &member.decided.pod))
            .await;
        let mut copies = Vec::new();
        for member in &kept {
            if let Ok(facts) = Facts::of(&member.raw) {
                self.settle(member.at, &facts, Some(&frozen)).await;
            }
            if member.is_pod && self.is_stored(member.at, &member.namespace, &member.name) {
                self.take_volumes(&member.decided.pod, &frozen).await;
                copies.extend(self.begin_copies(&member.decided).await);
            }
        }
        if is_hooked {
            tokio::select! {
                () = self.wait_for(&copies) => {}
                () = self.over.cancelled() => {}
            }
        }
        for member in &kept {
            self.hook(member, Phase::Post).await;
            if let Some(window) = member.window.length() {
                self.log
                    .hook_window(&member.namespace, &member.name, window);
            }
        }
        self.thaw(&frozen);
    }

    /// Takes objects on, pods that share their volumes, and what plugins want with them.
    async fn gather(&self, at: At, raws: Vec<Vec<u8>>) -> Vec<Member> {
        let mut mounts = self.hooks.mounts.lock().await;
        let mut block: Vec<Member> = Vec::new();
        for raw in raws {
            block.extend(self.member(at, raw));
        }
        let mut looked = 0;
        while looked < block.len() {
            let mut more = self.neighbours(&block[looked], &mut mounts).await;
            more.extend(self.related(&block[looked]).await);
            block.extend(more);
            looked += 1;
        }
        block
    }

    /// Takes an object on, unless it is somebody else's or not for this backup.
    fn member(&self, at: At, raw: Vec<u8>) -> Option<Member> {
        let facts = self.take_on(at, &raw, false)?;
        let (namespace, name) = (facts.namespace().into_owned(), facts.name().into_owned());
        let pod = match serde_json::from_slice(&raw) {
            Ok(mut pod) => {
                say_kind(self.resource(at), &mut pod);
                pod
            }
            Err(error) => {
                let about = self.place(at, &namespace, &name).because(error);
                self.log.error("Error backing up item", &about);
                self.drop_item(at, &namespace, &name);
                return None;
            }
        };
        Some(Member {
            at,
            is_pod: is_pods(self.resource(at)),
            raw,
            decided: Decided {
                pod,
                choices: Vec::new(),
            },
            namespace,
            name,
            window: Window::default(),
        })
    }

    /// Takes on running pods that mount the same claims as a pod.
    async fn neighbours(&self, member: &Member, known: &mut Known) -> Vec<Member> {
        let mounted: BTreeSet<&str> = claims(&member.decided.pod).collect();
        let mut found = Vec::new();
        if !member.is_pod || mounted.is_empty() {
            return found;
        }
        let (pods, namespace) = (member.at, member.namespace.as_str());
        let fellows = self.fellows(namespace, &mounted).await;
        let mounted: BTreeSet<&str> = mounted
            .into_iter()
            .chain(fellows.iter().map(String::as_str))
            .collect();
        let running = self.mounts(pods, namespace, known).await;
        let shares = |pod: &&Mounts| pod.claims.iter().any(|claim| mounted.contains(&**claim));
        for neighbour in running.iter().filter(shares) {
            if self.is_taken(pods, namespace, &neighbour.pod) {
                continue;
            }
            if let Ok(Some(raw)) = self.read(pods, namespace, &neighbour.pod).await {
                found.extend(self.member(pods, raw));
            }
        }
        found
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

    /// What plugins say belongs together with an object, if it is in the backup too.
    async fn related(&self, member: &Member) -> Vec<Member> {
        let Ok(facts) = Facts::of(&member.raw) else {
            return Vec::new();
        };
        let resource = self.resource(member.at);
        let mut found = Vec::new();
        for action in &self.block_actions {
            if !action.applies_to(resource) || !action.concerns(&facts) {
                continue;
            }
            match action.related(&member.decided.pod, &self.backup).await {
                Ok(related) => {
                    for related in related {
                        found.extend(self.partner(&related).await);
                    }
                }
                Err(why) => {
                    let about = self.place(member.at, &member.namespace, &member.name);
                    let what = format!("Error asking {} for related items", action.name());
                    self.log.error(&what, &about.because(why));
                }
            }
        }
        found
    }

    /// Takes on what belongs to a block, if the backup has it and nobody else does.
    async fn partner(&self, related: &Related) -> Option<Member> {
        let Related {
            group_resource,
            namespace,
            name,
        } = related;
        let at = self.position(group_resource)?;
        if !self.collects(self.resource(at)) || self.is_taken(at, namespace, name) {
            return None;
        }
        match self.read(at, namespace, name).await {
            Ok(Some(raw)) if self.is_selected(at, namespace, &raw) => self.member(at, raw),
            _ => None,
        }
    }

    async fn hook(&self, member: &Member, phase: Phase) -> Verdict {
        if !member.is_pod {
            return Verdict::GoOn;
        }
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
        let exec = Timed {
            exec: &*hooks.exec,
            window: &member.window,
        };
        hooks::run_with(
            &exec,
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
