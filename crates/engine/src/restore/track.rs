//! Who works on which object, what became of it, and the list of all that at the end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bowline_api::files::ResourceList;
use tokio::sync::watch;

/// An object's target: its resource, namespace (empty for cluster-scoped ones) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: Arc<str>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

/// What became of an object, in the words of the resource list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It was not there.
    Created,
    /// It was there, and is changed.
    Updated,
    /// Nothing had to be done, or nothing should be.
    Skipped,
    /// It is not as the backup has it.
    Failed,
}

impl Done {
    /// The word.
    #[must_use]
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// Objects that somebody works or has worked on.
#[derive(Debug, Default)]
pub(super) struct Tracker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    items: HashMap<Key, State>,
    /// Who waits for whom: each for one at a time.
    waiting: HashMap<Key, Key>,
    types: Vec<Arc<str>>,
    records: Vec<Record>,
}

#[derive(Debug)]
enum State {
    Working(watch::Sender<()>),
    Over,
}

#[derive(Debug)]
struct Record {
    /// `apps/v1/Deployment`, by its place in `types`.
    kind: u32,
    namespace: Box<str>,
    name: Box<str>,
    done: Done,
}

/// Whose an object is.
#[derive(Debug)]
pub(super) enum Claim {
    /// Ours now.
    Mine,
    /// Somebody has seen to it, or waits for us to see to ours.
    Over,
    /// Somebody sees to it; ends when that is over.
    Wait(watch::Receiver<()>),
}

impl Tracker {
    /// Takes an object on, if nobody has. `asker` is the object that needs it.
    pub(super) fn claim(&self, key: &Key, asker: Option<&Key>) -> Claim {
        let mut inner = self.lock();
        let receiver = match inner.items.get(key) {
            None => {
                let (sender, _) = watch::channel(());
                inner.items.insert(key.clone(), State::Working(sender));
                return Claim::Mine;
            }
            Some(State::Over) => return Claim::Over,
            Some(State::Working(sender)) => sender.subscribe(),
        };
        let Some(asker) = asker else {
            return Claim::Wait(receiver);
        };
        // Two that need each other would wait for ever.
        let mut next = Some(key);
        while let Some(at) = next {
            if at == asker {
                return Claim::Over;
            }
            next = inner.waiting.get(at);
        }
        inner.waiting.insert(asker.clone(), key.clone());
        Claim::Wait(receiver)
    }

    /// The asker waits no more.
    pub(super) fn waited(&self, asker: &Key) {
        self.lock().waiting.remove(asker);
    }

    /// It is over with an object.
    pub(super) fn over(&self, key: &Key) {
        self.lock().items.insert(key.clone(), State::Over);
    }

    /// Notes what became of an object; `kind` is `apps/v1/Deployment`.
    pub(super) fn record(&self, kind: &str, namespace: &str, name: &str, done: Done) {
        let mut inner = self.lock();
        let place = inner.types.iter().position(|known| **known == *kind);
        let place = place.unwrap_or_else(|| {
            inner.types.push(kind.into());
            inner.types.len() - 1
        });
        inner.records.push(Record {
            kind: u32::try_from(place).unwrap_or(u32::MAX),
            namespace: namespace.into(),
            name: name.into(),
            done,
        });
    }

    /// All that was noted, as the restore's list has it.
    pub(super) fn list(&self) -> ResourceList {
        let mut inner = self.lock();
        let records = std::mem::take(&mut inner.records);
        let mut list: ResourceList = BTreeMap::new();
        for record in records {
            let kind = &inner.types[record.kind as usize];
            let word = record.done.word();
            let name = if record.namespace.is_empty() {
                format!("{}({word})", record.name)
            } else {
                format!("{}/{}({word})", record.namespace, record.name)
            };
            match list.get_mut(&**kind) {
                Some(names) => names.push(name),
                None => {
                    list.insert(kind.to_string(), vec![name]);
                }
            }
        }
        for names in list.values_mut() {
            names.sort_unstable();
        }
        list
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            kind: "pods".into(),
            namespace: "a".into(),
            name: name.into(),
        }
    }

    #[tokio::test]
    async fn who_needs_an_object_waits_for_it_but_not_in_a_circle() {
        let tracker = Tracker::default();
        let (a, b, c) = (key("a"), key("b"), key("c"));
        assert!(matches!(tracker.claim(&a, None), Claim::Mine));
        assert!(matches!(tracker.claim(&b, None), Claim::Mine));
        assert!(matches!(tracker.claim(&c, None), Claim::Mine));
        let Claim::Wait(mut on_b) = tracker.claim(&b, Some(&a)) else {
            panic!("b is being worked on");
        };
        assert!(matches!(tracker.claim(&c, Some(&b)), Claim::Wait(_)));
        assert!(matches!(tracker.claim(&a, Some(&c)), Claim::Over));
        tracker.over(&b);
        assert!(on_b.changed().await.is_err(), "its sender is gone");
        tracker.waited(&a);
        assert!(matches!(tracker.claim(&b, Some(&a)), Claim::Over));
    }

    #[test]
    fn the_list_is_sorted_and_says_what_became_of_each() {
        let tracker = Tracker::default();
        tracker.record("v1/Pod", "b", "x", Done::Created);
        tracker.record("v1/Pod", "a", "y", Done::Failed);
        tracker.record("v1/Namespace", "", "a", Done::Skipped);
        let list = tracker.list();
        assert_eq!(list["v1/Pod"], ["a/y(failed)", "b/x(created)"]);
        assert_eq!(list["v1/Namespace"], ["a(skipped)"]);
    }
}
