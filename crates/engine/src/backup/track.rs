//! Which objects somebody has taken on, and which are in the archive.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bowline_api::files::ResourceList;

use crate::discovery::Resource;

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Claimed,
    Stored,
    Dropped,
}

/// Objects by resource (its place in the discovery) and `<namespace>/<name>`.
#[derive(Debug, Default)]
pub(super) struct Tracker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    objects: HashMap<usize, HashMap<Box<str>, State>>,
    namespaces: BTreeSet<String>,
    expected: BTreeSet<(usize, String, String)>,
}

impl Tracker {
    /// Takes an object on; false when somebody has already.
    pub(super) fn claim(&self, resource: usize, namespace: &str, name: &str) -> bool {
        let mut inner = self.lock();
        let objects = inner.objects.entry(resource).or_default();
        let key = key(namespace, name);
        if objects.contains_key(key.as_str()) {
            return false;
        }
        objects.insert(key.into_boxed_str(), State::Claimed);
        true
    }

    /// Takes on an object that was dropped, because somebody insists on it.
    pub(super) fn reclaim(&self, resource: usize, namespace: &str, name: &str) -> bool {
        let mut inner = self.lock();
        let objects = inner.objects.entry(resource).or_default();
        match objects.get_mut(key(namespace, name).as_str()) {
            Some(state) if *state == State::Dropped => {
                *state = State::Claimed;
                true
            }
            _ => false,
        }
    }

    pub(super) fn is_claimed(&self, resource: usize, namespace: &str, name: &str) -> bool {
        self.lock()
            .objects
            .get(&resource)
            .is_some_and(|objects| objects.contains_key(key(namespace, name).as_str()))
    }

    pub(super) fn is_stored(&self, resource: usize, namespace: &str, name: &str) -> bool {
        let inner = self.lock();
        let objects = inner.objects.get(&resource);
        let state = objects.and_then(|objects| objects.get(key(namespace, name).as_str()));
        state == Some(&State::Stored)
    }

    /// It is in the archive.
    pub(super) fn stored(&self, resource: usize, namespace: &str, name: &str) {
        let mut inner = self.lock();
        if !namespace.is_empty() && !inner.namespaces.contains(namespace) {
            inner.namespaces.insert(namespace.to_owned());
        }
        inner.set(resource, namespace, name, State::Stored);
    }

    /// It will not be.
    pub(super) fn dropped(&self, resource: usize, namespace: &str, name: &str) {
        self.lock().set(resource, namespace, name, State::Dropped);
    }

    /// Somebody needs it, and a list should bring it.
    pub(super) fn expect(&self, resource: usize, namespace: &str, name: &str) {
        let expected = (resource, namespace.to_owned(), name.to_owned());
        self.lock().expected.insert(expected);
    }

    /// Objects that were expected of a list and have not come.
    pub(super) fn missing(&self) -> Vec<(usize, String, String)> {
        let mut inner = self.lock();
        let expected = std::mem::take(&mut inner.expected);
        expected
            .into_iter()
            .filter(|(resource, namespace, name)| {
                !inner
                    .objects
                    .get(resource)
                    .is_some_and(|o| o.contains_key(key(namespace, name).as_str()))
            })
            .collect()
    }

    /// Namespaces that something stored lives in.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.lock().namespaces.clone()
    }

    /// Resources of which something is stored.
    pub(super) fn resources(&self) -> Vec<usize> {
        self.lock()
            .objects
            .iter()
            .filter(|(_, objects)| objects.values().any(|state| *state == State::Stored))
            .map(|(resource, _)| *resource)
            .collect()
    }

    /// What is in the archive, by kind, and how much that is.
    pub(super) fn resource_list(&self, resources: &[Resource]) -> (ResourceList, u64) {
        let mut inner = self.lock();
        let mut list: ResourceList = BTreeMap::new();
        let mut count = 0;
        for (resource, objects) in std::mem::take(&mut inner.objects) {
            let resource = &resources[resource];
            let names: Vec<String> = objects
                .into_iter()
                .filter(|(_, state)| *state == State::Stored)
                .map(|(key, _)| key.into_string())
                .collect();
            if names.is_empty() {
                continue;
            }
            count += names.len() as u64;
            list.entry(format!("{}/{}", resource.api_version(), resource.kind))
                .or_default()
                .extend(names);
        }
        for names in list.values_mut() {
            names.sort_unstable();
        }
        (list, count)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn set(&mut self, resource: usize, namespace: &str, name: &str, state: State) {
        let objects = self.objects.entry(resource).or_default();
        objects.insert(key(namespace, name).into_boxed_str(), state);
    }
}

/// `<namespace>/<name>`, or the name alone.
pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}
