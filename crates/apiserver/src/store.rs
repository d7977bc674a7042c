//! Objects in memory, with revisions, snapshots and an event log per resource.
//!
//! An object is kept as the JSON that goes out, without its `apiVersion` and `kind` (the same
//! object may be asked for in several versions), plus the few facts that selection needs. Lists
//! join bytes; nothing is parsed to be read. Maps are shared with snapshots and copied on write,
//! so that a paged list sees one moment however long it takes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

/// A resource, whatever its version: group and plural.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ResourceId {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

/// An object of a resource: namespace (empty for cluster-scoped ones) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A stored object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) uid: String,
    pub(crate) labels: Box<[(String, String)]>,
    /// The object without `apiVersion` and `kind`.
    pub(crate) body: Bytes,
}

impl Object {
    /// The object as a value, still without `apiVersion` and `kind`.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One line of a resource's history.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) revision: u64,
    pub(crate) object: Arc<Object>,
    pub(crate) previous: Option<Arc<Object>>,
}

pub(crate) type Objects = BTreeMap<Key, Arc<Object>>;

/// All objects of one resource.
pub(crate) struct Table {
    pub(crate) objects: Arc<Objects>,
    /// The newest events, oldest first.
    log: VecDeque<Arc<Event>>,
    /// Events up to this revision may be gone from the log.
    forgotten: u64,
    newest: watch::Sender<u64>,
}

/// How many events of a resource can be read again.
const LOG: usize = 10_000;

impl Table {
    fn new(forgotten: u64) -> Self {
        Self {
            objects: Arc::default(),
            log: VecDeque::new(),
            forgotten,
            newest: watch::channel(forgotten).0,
        }
    }

    /// The events after a revision, or `None` if some of them are forgotten.
    pub(crate) fn events_after(&self, revision: u64) -> Option<Vec<Arc<Event>>> {
        if revision < self.forgotten {
            return None;
        }
        let start = self.log.partition_point(|event| event.revision <= revision);
        Some(self.log.range(start..).cloned().collect())
    }

    /// The objects as they were at a revision, or `None` if that is forgotten.
    pub(crate) fn objects_at(&self, revision: u64) -> Option<Arc<Objects>> {
        let mut objects = Objects::clone(&self.objects);
        for event in self.events_after(revision)?.iter().rev() {
            match &event.previous {
                Some(previous) => objects.insert(previous.key.clone(), previous.clone()),
                None => objects.remove(&event.object.key),
            };
        }
        Some(Arc::new(objects))
    }

    /// Tells when there is something new.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

/// Everything, behind one lock: a write reads, decides and stores under it.
#[derive(Default)]
pub(crate) struct Store {
    state: RwLock<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) revision: u64,
    tables: HashMap<ResourceId, Table>,
    /// Up to this revision, resources without a table may have had events.
    forgotten: u64,
    by_uid: HashMap<String, (ResourceId, Key)>,
    dependents: HashMap<String, BTreeSet<(ResourceId, Key)>>,
}

impl Store {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn table(&self, resource: &ResourceId) -> Option<&Table> {
        self.tables.get(resource)
    }

    /// The table of a resource, made if there is none.
    pub(crate) fn table_mut(&mut self, resource: &ResourceId) -> &mut Table {
        // Nothing has happened to it since: who has seen that it is empty may watch it from there.
        let forgotten = self.forgotten;
        self.tables
            .entry(resource.clone())
            .or_insert_with(|| Table::new(forgotten))
    }

    pub(crate) fn objects(&self, resource: &ResourceId) -> Arc<Objects> {
        self.tables
            .get(resource)
            .map(|table| table.objects.clone())
            .unwrap_or_default()
    }

    pub(crate) fn get(&self, resource: &ResourceId, key: &Key) -> Option<Arc<Object>> {
        self.tables.get(resource)?.objects.get(key).cloned()
    }

    pub(crate) fn find(&self, uid: &str) -> Option<&(ResourceId, Key)> {
        self.by_uid.get(uid)
    }

    /// The objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(ResourceId, Key)> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    pub(crate) fn resources(&self) -> Vec<ResourceId> {
        let mut all: Vec<ResourceId> = self.tables.keys().cloned().collect();
        all.sort();
        all
    }

    /// Stores an object under the next revision, which it writes into its metadata.
    pub(crate) fn put(&mut self, resource: &ResourceId, mut value: Value) -> Arc<Object> {
        self.revision += 1;
        let revision = self.revision;
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let object = Arc::new(pack(&value, revision));
        let table = self.table_mut(resource);
        let previous = Arc::make_mut(&mut table.objects).insert(object.key.clone(), object.clone());
        if let Some(previous) = &previous {
            self.forget_owners(resource, previous);
        }
        self.by_uid
            .insert(object.uid.clone(), (resource.clone(), object.key.clone()));
        for owner in owners(&value) {
            let dependents = self.dependents.entry(owner).or_default();
            dependents.insert((resource.clone(), object.key.clone()));
        }
        let change = if previous.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.record(resource, change, object.clone(), previous);
        object
    }

    /// Removes an object; what watchers see carries the revision of the removal.
    pub(crate) fn remove(&mut self, resource: &ResourceId, key: &Key) -> Option<Arc<Object>> {
        let table = self.tables.get_mut(resource)?;
        if !table.objects.contains_key(key) {
            return None;
        }
        let previous = Arc::make_mut(&mut table.objects).remove(key)?;
        self.revision += 1;
        let revision = self.revision;
        self.by_uid.remove(&previous.uid);
        self.forget_owners(resource, &previous);
        let mut value = previous.value();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let object = Arc::new(pack(&value, revision));
        self.record(resource, Change::Deleted, object, Some(previous.clone()));
        Some(previous)
    }

    /// Forgets a resource altogether, with its history.
    pub(crate) fn drop_table(&mut self, resource: &ResourceId) {
        if self.tables.remove(resource).is_some() {
            self.forgotten = self.revision;
        }
    }

    fn forget_owners(&mut self, resource: &ResourceId, object: &Object) {
        for owner in owners(&object.value()) {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(&(resource.clone(), object.key.clone()));
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    fn record(
        &mut self,
        resource: &ResourceId,
        change: Change,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
    ) {
        let revision = self.revision;
        let table = self.table_mut(resource);
        table.log.push_back(Arc::new(Event {
            change,
            revision,
            object,
            previous,
        }));
        while table.log.len() > LOG {
            if let Some(event) = table.log.pop_front() {
                table.forgotten = event.revision;
            }
        }
        table.newest.send_replace(revision);
    }

    /// Forgets all history up to now, so that older watches and pages are too old.
    pub(crate) fn compact(&mut self) {
        self.forgotten = self.revision;
        for table in self.tables.values_mut() {
            table.log.clear();
            table.forgotten = self.forgotten;
        }
    }
}

fn pack(value: &Value, revision: u64) -> Object {
    let meta = &value["metadata"];
    let text = |key: &str| meta[key].as_str().unwrap_or_default().to_owned();
    let labels = meta["labels"].as_object().into_iter().flatten();
    Object {
        key: Key {
            namespace: text("namespace"),
            name: text("name"),
        },
        revision,
        uid: text("uid"),
        labels: labels
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        body: serde_json::to_vec(value).unwrap_or_default().into(),
    }
}

/// The uids that an object names as its owners.
pub(crate) fn owners(value: &Value) -> Vec<String> {
    let references = value["metadata"]["ownerReferences"].as_array();
    let uids = references
        .into_iter()
        .flatten()
        .filter_map(|r| r["uid"].as_str());
    uids.map(str::to_owned).collect()
}

/// An object as it would be stored: a new one has no resourceVersion yet.
pub(crate) fn preview(value: &Value, old: Option<&Value>) -> Object {
    let revision = old.and_then(|old| old["metadata"]["resourceVersion"].as_str()?.parse().ok());
    pack(value, revision.unwrap_or(0))
}
