//! Counts hooks for `status.hookStatus`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bowline_api::v1::HookStatus;

use super::{Hook, Phase, Source};

/// Hooks attempted and failed, each counted once however often it is met.
#[derive(Debug, Default)]
pub struct HookTracker {
    /// Whether each failed; none until it ran.
    hooks: Mutex<BTreeMap<Key, Option<bool>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: String,
    pod: String,
    phase: Phase,
    source: Source,
    name: String,
    container: String,
    index: usize,
}

impl Key {
    fn new(namespace: &str, pod: &str, phase: Phase, hook: &Hook) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            phase,
            source: hook.source,
            name: hook.name.clone(),
            container: hook.exec.container.clone().unwrap_or_default(),
            index: hook.index,
        }
    }
}

impl HookTracker {
    /// Counts a hook as attempted, also one that an earlier failure keeps from running.
    pub fn attempt(&self, namespace: &str, pod: &str, phase: Phase, hook: &Hook) {
        let key = Key::new(namespace, pod, phase, hook);
        self.lock().entry(key).or_insert(None);
    }

    /// Notes how a hook ended; the first time counts.
    pub fn record(&self, namespace: &str, pod: &str, phase: Phase, hook: &Hook, failed: bool) {
        let key = Key::new(namespace, pod, phase, hook);
        let mut hooks = self.lock();
        let ended = hooks.entry(key).or_insert(None);
        ended.get_or_insert(failed);
    }

    /// The counts, for the status.
    #[must_use]
    pub fn status(&self) -> HookStatus {
        let hooks = self.lock();
        let failed = hooks.values().filter(|failed| **failed == Some(true));
        let count = |n: usize| i64::try_from(n).ok().filter(|n| *n > 0);
        HookStatus {
            hooks_attempted: count(hooks.len()),
            hooks_failed: count(failed.count()),
            ..Default::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Option<bool>>> {
        // Counters stay whole even if a holder panicked.
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
