//! Notes on volumes, taken while a restore runs: what became of claims and persistent volumes, and
//! which volumes of pods nobody fills. What a restore says of its volumes is made of them elsewhere.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bowline_api::v2alpha1::DataDownload;
use serde_json::Value;

use super::{plan::Item, track::Key};
pub use super::{track::Done, volume::Fate};
use crate::action::text;

/// What is known of the volumes of a restore.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// Claims.
    pub claims: Vec<Claim>,
    /// Persistent volumes.
    pub volumes: Vec<Volume>,
    /// Volumes of pods that get no data.
    pub unfilled: Vec<Unfilled>,
}

/// A claim of the archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Its namespace in the backup.
    pub source_namespace: String,
    /// Its name in the backup.
    pub source_name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The volume that it had; empty if it had none.
    pub volume: String,
    /// How its data comes back, if that was moved; none also if it was left as it is.
    pub moved: Option<Moved>,
    /// What became of it; none if the list of resources does not speak of it.
    pub done: Option<Done>,
}

/// How data comes back that was moved.
#[derive(Debug, Clone, PartialEq)]
pub enum Moved {
    /// There was none.
    Empty,
    /// By this request.
    Awaited(Box<DataDownload>),
    /// Not at all, for this reason.
    Refused(String),
}

/// A persistent volume of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the backup.
    pub source_name: String,
    /// Its name.
    pub name: String,
    /// The claim that it was bound to, by namespace and name in the backup.
    pub claim: Option<(String, String)>,
    /// What was decided; none if it did not get so far.
    pub fate: Option<Fate>,
    /// What became of it; none if the list of resources does not speak of it.
    pub done: Option<Done>,
}

/// A volume of a pod that gets no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfilled {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The volume's name in the pod.
    pub volume: String,
    /// The claim behind it.
    pub claim: Option<String>,
    /// Why.
    pub why: String,
}

/// An object that is noted once it is known what became of it.
pub(super) enum Open {
    Claim(Claim),
    Volume(Volume),
}

impl Open {
    /// None for all other kinds.
    pub(super) fn of(key: &Key, item: &Item, object: &Value) -> Option<Self> {
        match &*key.kind {
            "persistentvolumeclaims" => Some(Self::Claim(Claim {
                source_namespace: item.namespace.to_string(),
                source_name: item.name.to_string(),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                volume: text(object, "/spec/volumeName").to_owned(),
                moved: None,
                done: None,
            })),
            "persistentvolumes" => {
                let claim = object.pointer("/spec/claimRef").map(|claim| {
                    let part = |pointer| text(claim, pointer).to_owned();
                    (part("/namespace"), part("/name"))
                });
                Some(Self::Volume(Volume {
                    source_name: item.name.to_string(),
                    name: key.name.to_string(),
                    claim,
                    fate: None,
                    done: None,
                }))
            }
            _ => None,
        }
    }
}

/// Notes while they are taken.
#[derive(Debug, Default)]
pub(super) struct Notebook(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    notes: Notes,
    /// By the names of persistent volumes in the backup.
    fates: HashMap<String, Fate>,
    moved: HashMap<Key, Moved>,
}

impl Notebook {
    /// It is decided what becomes of a persistent volume.
    pub(super) fn fate(&self, volume: &str, fate: Fate) {
        self.lock().fates.insert(volume.to_owned(), fate);
    }

    /// It is decided how the moved data of a claim comes back.
    pub(super) fn moved(&self, key: &Key, moved: Moved) {
        self.lock().moved.insert(key.clone(), moved);
    }

    /// It is over with an object, which has this name now.
    pub(super) fn ended(&self, open: Open, key: &Key, name: &str, done: Option<Done>) {
        let mut inner = self.lock();
        match open {
            Open::Claim(mut claim) => {
                claim.moved = inner.moved.remove(key);
                name.clone_into(&mut claim.name);
                claim.done = done;
                inner.notes.claims.push(claim);
            }
            Open::Volume(mut volume) => {
                name.clone_into(&mut volume.name);
                volume.fate = inner.fates.get(&volume.source_name).copied();
                volume.done = done;
                inner.notes.volumes.push(volume);
            }
        }
    }

    /// A volume of a pod gets no data.
    pub(super) fn unfilled(&self, unfilled: Unfilled) {
        self.lock().notes.unfilled.push(unfilled);
    }

    /// All that was noted, in the order of names.
    pub(super) fn take(&self) -> Notes {
        let mut notes = std::mem::take(&mut self.lock().notes);
        let of_claim = |claim: &Claim| (claim.namespace.clone(), claim.name.clone());
        notes.claims.sort_by_cached_key(of_claim);
        notes
            .volumes
            .sort_by(|a, b| a.source_name.cmp(&b.source_name));
        let of_pod = |of: &Unfilled| (of.namespace.clone(), of.pod.clone(), of.volume.clone());
        notes.unfilled.sort_by_cached_key(of_pod);
        notes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
