//! Makes a backup ready to run: fills in what its spec leaves open and says what is wrong with it.
//!
//! A pure function over the object and the facts around it. Defaults, labels, annotations and error
//! texts are those of Velero, and are meant to be persisted also when the backup is refused. It
//! differs on purpose where Velero lets a mistake through to hurt later: bad durations and
//! selectors are refused, `labelSelector: {}` is no selector, and a namespace that is hidden by its
//! label does not become an exclude.

mod locations;

use std::{collections::BTreeMap, time};

use bowline_api::{
    Duration, Time,
    names::{annotation, label, label_value},
    v1::{Backup, BackupHook, BackupSpec, BackupStorageLocation, VolumeSnapshotLocation},
};
use jiff::{SignedDuration, Timestamp};

use crate::{filter, policy::Policies, selector};

/// What the decision is made from, besides the backup itself.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The time.
    pub now: Timestamp,
    /// What the server's flags say.
    pub defaults: Defaults,
    /// The storage locations of the backup's namespace.
    pub locations: Vec<BackupStorageLocation>,
    /// The snapshot locations of the backup's namespace.
    pub snapshot_locations: Vec<VolumeSnapshotLocation>,
    /// The snapshot location to use by provider, where there are several.
    pub default_snapshot_locations: BTreeMap<String, String>,
    /// The live namespaces and their labels.
    pub namespaces: Vec<(String, BTreeMap<String, String>)>,
    /// The version of the API server.
    pub cluster_version: ClusterVersion,
    /// The policies of the backup and of the installation, or why there are none.
    pub policies: Result<Option<Policies>, String>,
    /// The ConfigMap with the policies of the installation.
    pub global_policy_configmap: Option<String>,
}

/// Values for what a spec leaves open.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// How long a backup is kept.
    pub ttl: time::Duration,
    /// The storage location when none is marked as the default.
    pub location: String,
    /// Whether pod volumes are copied file by file unless opted out.
    pub volumes_to_fs_backup: bool,
    /// Whether the data of CSI snapshots is moved into the bucket.
    pub snapshot_move_data: bool,
    /// How long to wait for a CSI snapshot.
    pub csi_snapshot_timeout: time::Duration,
    /// How long an operation of a plugin may go on.
    pub item_operation_timeout: time::Duration,
    /// The label of claims that are snapshotted together.
    pub volume_group_label: String,
    /// How long other waits may last.
    pub resource_timeout: time::Duration,
}

impl Default for Defaults {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        Self {
            ttl: time::Duration::from_secs(720 * HOUR),
            location: bowline_api::names::DEFAULT_LOCATION.to_owned(),
            volumes_to_fs_backup: false,
            snapshot_move_data: false,
            csi_snapshot_timeout: time::Duration::from_secs(10 * MINUTE),
            item_operation_timeout: time::Duration::from_secs(4 * HOUR),
            volume_group_label: label::VOLUME_GROUP.to_owned(),
            resource_timeout: time::Duration::from_secs(10 * MINUTE),
        }
    }
}

/// The version of an API server, as it says itself.
#[derive(Debug, Clone, Default)]
pub struct ClusterVersion {
    /// `1`.
    pub major: String,
    /// `34`.
    pub minor: String,
    /// `v1.34.4`.
    pub git: String,
}

/// A backup with all defaults, and whether it may run.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The object to persist; its status has the errors too. The phase is left to the caller.
    pub backup: Backup,
    /// What is wrong; the backup may run when there is nothing.
    pub errors: Vec<String>,
    /// The storage location, if it exists.
    pub location: Option<BackupStorageLocation>,
    /// The snapshot locations, one per provider.
    pub snapshot_locations: Vec<VolumeSnapshotLocation>,
    /// Namespaces that their label keeps out of every backup, whatever the lists say.
    pub hidden_namespaces: Vec<String>,
}

/// Fills in defaults and validates.
#[must_use]
pub fn prepare(mut backup: Backup, facts: &Facts) -> Prepared {
    let mut errors = Vec::new();

    fill_in(&mut backup.spec, &facts.defaults);
    let expiration = expiration(&backup.spec, facts.now, &mut errors);
    check_durations(&backup.spec, &mut errors);

    let location = locations::choose(&mut backup.spec, facts, &mut errors);
    let snapshot_locations = locations::choose_snapshot(&mut backup.spec, facts, &mut errors);
    stamp(&mut backup, facts);

    check_resources(&mut backup.spec, &mut errors);
    check_namespaces(&mut backup.spec, &mut errors);
    check_selectors(&backup.spec, &mut errors);
    check_policies(&backup.spec, facts, &mut errors);

    let status = backup.status_mut();
    status.version = Some(1);
    status.format_version = Some("1.1.0".to_owned());
    status.expiration = expiration;
    status.validation_errors = (!errors.is_empty()).then(|| errors.clone());
    Prepared {
        backup,
        errors,
        location,
        snapshot_locations,
        hidden_namespaces: hidden(&facts.namespaces),
    }
}

/// Whether the spec uses the lists without scope. They and the newer ones exclude each other, and
/// decide differently on cluster-scoped kinds.
#[must_use]
pub fn uses_old_filters(spec: &BackupSpec) -> bool {
    spec.include_cluster_resources.is_some()
        || !items(&spec.included_resources).is_empty()
        || !items(&spec.excluded_resources).is_empty()
}

fn items(list: &Option<Vec<String>>) -> &[String] {
    list.as_deref().unwrap_or_default()
}

fn fill_in(spec: &mut BackupSpec, defaults: &Defaults) {
    or_default(&mut spec.ttl, defaults.ttl);
    or_default(
        &mut spec.csi_snapshot_timeout,
        defaults.csi_snapshot_timeout,
    );
    or_default(
        &mut spec.item_operation_timeout,
        defaults.item_operation_timeout,
    );
    let key = &mut spec.volume_group_snapshot_label_key;
    if key.as_deref().unwrap_or_default().is_empty() {
        *key = Some(defaults.volume_group_label.clone());
    }
    if spec.default_volumes_to_restic == Some(true) {
        spec.default_volumes_to_fs_backup = Some(true);
    }
    spec.default_volumes_to_fs_backup
        .get_or_insert(defaults.volumes_to_fs_backup);
    spec.snapshot_move_data
        .get_or_insert(defaults.snapshot_move_data);
}

/// Zero means "not set".
fn or_default(duration: &mut Option<Duration>, default: time::Duration) {
    if duration.as_ref().is_none_or(|d| *d == Duration::ZERO) {
        *duration = Some(default.into());
    }
}

fn expiration(spec: &BackupSpec, now: Timestamp, errors: &mut Vec<String>) -> Option<Time> {
    let ttl = spec.ttl.as_ref()?;
    match ttl.nanos() {
        Err(why) => errors.push(format!("spec.ttl: {why}")),
        Ok(nanos) if nanos < 0 => errors.push(format!("spec.ttl must not be negative: {ttl}")),
        Ok(nanos) => {
            let expiration = now.checked_add(SignedDuration::from_nanos(nanos));
            return expiration.ok().map(Time);
        }
    }
    None
}

/// The durations other than the TTL, which only need to be readable.
fn check_durations(spec: &BackupSpec, errors: &mut Vec<String>) {
    let mut check = |field: &str, duration: &Option<Duration>| {
        if let Some(Err(why)) = duration.as_ref().map(Duration::nanos) {
            errors.push(format!("{field}: {why}"));
        }
    };
    check("spec.csiSnapshotTimeout", &spec.csi_snapshot_timeout);
    check("spec.itemOperationTimeout", &spec.item_operation_timeout);
    let hooks = spec.hooks.iter().flat_map(|hooks| &hooks.resources);
    for (index, hooks) in hooks.flatten().enumerate() {
        for (phase, list) in [("pre", &hooks.pre), ("post", &hooks.post)] {
            let list: &[BackupHook] = list.as_deref().unwrap_or_default();
            for (at, hook) in list.iter().enumerate() {
                let field = format!("spec.hooks.resources[{index}].{phase}[{at}].exec.timeout");
                check(&field, &hook.exec.timeout);
            }
        }
    }
}

/// The label and the annotations that tell where the backup lies and what it was made from.
fn stamp(backup: &mut Backup, facts: &Facts) {
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let labels = backup.metadata.labels.get_or_insert_default();
    labels.insert(label::STORAGE_LOCATION.to_owned(), label_value(&location));
    let annotations = backup.metadata.annotations.get_or_insert_default();
    let version = &facts.cluster_version;
    let timeout = Duration::from(facts.defaults.resource_timeout).to_string();
    for (key, value) in [
        (annotation::SOURCE_CLUSTER_GIT_VERSION, &version.git),
        (annotation::SOURCE_CLUSTER_MAJOR_VERSION, &version.major),
        (annotation::SOURCE_CLUSTER_MINOR_VERSION, &version.minor),
        (annotation::RESOURCE_TIMEOUT, &timeout),
    ] {
        annotations.insert(key.to_owned(), value.clone());
    }
    if let (Ok(_), Some(name)) = (&facts.policies, &facts.global_policy_configmap)
        && !name.is_empty()
    {
        annotations.insert(annotation::GLOBAL_VOLUME_POLICY.to_owned(), name.clone());
    }
}

/// Kinds that every backup excludes, since snapshots are carried by the volumes they are of. They
/// stand in the spec like the user's own excludes, but do not make a backup a filtered one.
pub const AUTO_EXCLUDES: [&str; 2] = [SNAPSHOTS, SNAPSHOT_CONTENTS];

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const SNAPSHOT_CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";

fn check_resources(spec: &mut BackupSpec, errors: &mut Vec<String>) {
    let old = uses_old_filters(spec);
    let new = [
        &spec.included_cluster_scoped_resources,
        &spec.excluded_cluster_scoped_resources,
        &spec.included_namespace_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    ];
    if old && new.into_iter().any(|list| !items(list).is_empty()) {
        errors.push(format!(
            "{OLD_FILTERS}\ninclude-cluster-scoped-resources, exclude-cluster-scoped-resources, \
             include-namespace-scoped-resources and exclude-namespace-scoped-resources are new \
             filter parameters.\nThey cannot be used together"
        ));
    }
    if old {
        check_lists(
            "Invalid included/excluded resource lists",
            filter::resource_list_errors,
            (&mut spec.included_resources, &mut spec.excluded_resources),
            &AUTO_EXCLUDES,
            errors,
        );
        return;
    }
    check_lists(
        "Invalid cluster-scoped included/excluded resource lists",
        filter::scoped_list_errors,
        (
            &mut spec.included_cluster_scoped_resources,
            &mut spec.excluded_cluster_scoped_resources,
        ),
        &[SNAPSHOT_CONTENTS],
        errors,
    );
    check_lists(
        "Invalid namespace-scoped included/excluded resource lists",
        filter::scoped_list_errors,
        (
            &mut spec.included_namespace_scoped_resources,
            &mut spec.excluded_namespace_scoped_resources,
        ),
        &[SNAPSHOTS],
        errors,
    );
}

const OLD_FILTERS: &str =
    "include-resources, exclude-resources and include-cluster-resources are old filter parameters.";

type List = Option<Vec<String>>;

/// Adds the automatic excludes to sound lists; says what is wrong with others.
fn check_lists(
    prefix: &str,
    check: fn(&[String], &[String]) -> Vec<String>,
    (includes, excludes): (&mut List, &mut List),
    automatic: &[&str],
    errors: &mut Vec<String>,
) {
    let found = check(items(includes), items(excludes));
    if !found.is_empty() {
        errors.extend(found.iter().map(|why| format!("{prefix}: {why}")));
        return;
    }
    let excludes = excludes.get_or_insert_default();
    for item in automatic {
        if !excludes.iter().any(|exclude| exclude == item) {
            excludes.push((*item).to_owned());
        }
    }
    if let Some(list) = includes {
        list.retain(|item| !automatic.contains(&item.as_str()));
        if list.is_empty() {
            *includes = None;
        }
    }
}

fn check_namespaces(spec: &mut BackupSpec, errors: &mut Vec<String>) {
    if items(&spec.included_namespaces).is_empty() {
        spec.included_namespaces = Some(vec!["*".to_owned()]);
    }
    let (includes, excludes) = (
        items(&spec.included_namespaces),
        items(&spec.excluded_namespaces),
    );
    for why in filter::namespace_list_errors(includes, excludes) {
        errors.push(format!("Invalid included/excluded namespace lists: {why}"));
    }
}

fn check_selectors(spec: &BackupSpec, errors: &mut Vec<String>) {
    let all = selector::present(spec.label_selector.as_ref());
    let any = spec.or_label_selectors.as_deref().unwrap_or_default();
    if all.is_some() && !any.is_empty() {
        errors.push(
            "encountered labelSelector as well as orLabelSelectors in backup spec, only one can \
             be specified"
                .to_owned(),
        );
    }
    if let Some(Err(why)) = all.map(selector::check) {
        errors.push(format!("spec.labelSelector: {why}"));
    }
    for (index, or) in any.iter().enumerate() {
        if let Err(why) = selector::check(or) {
            errors.push(format!("spec.orLabelSelectors[{index}]: {why}"));
        }
    }
    let hooks = spec.hooks.iter().flat_map(|hooks| &hooks.resources);
    for (index, hooks) in hooks.flatten().enumerate() {
        if let Some(Err(why)) = hooks.label_selector.as_ref().map(selector::check) {
            errors.push(format!(
                "spec.hooks.resources[{index}].labelSelector: {why}"
            ));
        }
    }
}

fn check_policies(spec: &BackupSpec, facts: &Facts, errors: &mut Vec<String>) {
    let policies = match &facts.policies {
        Err(why) => {
            errors.push(format!("invalid resource policies: {why}"));
            return;
        }
        Ok(None) => return,
        Ok(Some(policies)) => policies,
    };
    if !uses_old_filters(spec) {
        return;
    }
    if policies.include_exclude.is_some() {
        errors.push(format!(
            "{OLD_FILTERS}\nThey cannot be used with include-exclude policies."
        ));
    }
    if policies.has_filters() {
        errors.push(format!(
            "{OLD_FILTERS}\nThey cannot be used with namespace-scoped or fine-grained global \
             filter policies."
        ));
    }
}

fn hidden(namespaces: &[(String, BTreeMap<String, String>)]) -> Vec<String> {
    let is_hidden = |labels: &BTreeMap<String, String>| {
        labels.get(label::EXCLUDE_FROM_BACKUP).map(String::as_str) == Some("true")
    };
    namespaces
        .iter()
        .filter(|(_, labels)| is_hidden(labels))
        .map(|(name, _)| name.clone())
        .collect()
}

#[cfg(test)]
mod tests;
