//! The bucket of a backup, and its snapshot locations: at most one per provider.

use std::collections::BTreeMap;

use bowline_api::v1::{
    BackupSpec, BackupStorageLocation, BackupStorageLocationAccessMode as AccessMode,
    BackupStorageLocationPhase as Phase, VolumeSnapshotLocation,
};

use super::Facts;

/// Finds the storage location: the one named, else the one marked as default, else the server's.
pub(super) fn choose(
    spec: &mut BackupSpec,
    facts: &Facts,
    errors: &mut Vec<String>,
) -> Option<BackupStorageLocation> {
    let named = spec.storage_location.clone().filter(|n| !n.is_empty());
    let is_named = named.is_some();
    let name = named.unwrap_or_else(|| default_name(facts));
    spec.storage_location = Some(name.clone());

    let found = facts
        .locations
        .iter()
        .find(|location| location.metadata.name.as_deref() == Some(&name));
    let Some(location) = found else {
        let which = if is_named {
            format!("default {name} was not found")
        } else {
            format!("server default {name} does not exist")
        };
        errors.push(format!(
            "an existing backup storage location was not specified at backup creation time and the \
             {which}. Please address this issue (see `velero backup-location -h` for options) and \
             create a new backup. Error: BackupStorageLocation.velero.io {name:?} not found"
        ));
        return None;
    };
    if location.spec.access_mode == Some(AccessMode::ReadOnly) {
        errors.push(format!(
            "backup can't be created because backup storage location {name} is currently in \
             read-only mode"
        ));
    }
    let phase = location.status.as_ref().and_then(|s| s.phase.as_ref());
    if phase != Some(&Phase::Available) {
        errors.push(format!(
            "backup can't be created because BackupStorageLocation {name} is in Unavailable status."
        ));
    }
    Some(location.clone())
}

fn default_name(facts: &Facts) -> String {
    facts
        .locations
        .iter()
        .find(|location| location.spec.default == Some(true))
        .and_then(|location| location.metadata.name.clone())
        .unwrap_or_else(|| facts.defaults.location.clone())
}

/// Finds the snapshot locations: those named, then one for each other provider that has any.
pub(super) fn choose_snapshot(
    spec: &mut BackupSpec,
    facts: &Facts,
    errors: &mut Vec<String>,
) -> Vec<VolumeSnapshotLocation> {
    let names = spec.volume_snapshot_locations.as_deref();
    match find_snapshot(names.unwrap_or_default(), facts) {
        Err(found) => {
            errors.extend(found);
            Vec::new()
        }
        Ok(chosen) => {
            let names: Vec<String> = chosen.iter().map(|l| name_of(l).to_owned()).collect();
            spec.volume_snapshot_locations = (!names.is_empty()).then_some(names);
            chosen.into_iter().cloned().collect()
        }
    }
}

fn find_snapshot<'a>(
    names: &[String],
    facts: &'a Facts,
) -> Result<Vec<&'a VolumeSnapshotLocation>, Vec<String>> {
    let find = |name: &str| facts.snapshot_locations.iter().find(|l| name_of(l) == name);
    let mut chosen: Vec<&VolumeSnapshotLocation> = Vec::new();
    let mut errors = Vec::new();

    for name in names {
        let Some(location) = find(name) else {
            errors.push(format!(
                "a VolumeSnapshotLocation CRD for the location {name} with the name specified in \
                 the backup spec needs to be created before this snapshot can be executed. Error: \
                 {}",
                not_found(name)
            ));
            continue;
        };
        let provider = &location.spec.provider;
        match chosen.iter().find(|l| l.spec.provider == *provider) {
            None => chosen.push(location),
            Some(first) if name_of(first) == name => {}
            Some(first) => errors.push(format!(
                "more than one VolumeSnapshotLocation name specified for provider {provider}: \
                 {name}; unexpected name was {}",
                name_of(first)
            )),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }

    let mut by_provider: BTreeMap<&str, Vec<&VolumeSnapshotLocation>> = BTreeMap::new();
    for location in &facts.snapshot_locations {
        let provider = location.spec.provider.as_str();
        by_provider.entry(provider).or_default().push(location);
    }
    by_provider.retain(|provider, _| chosen.iter().all(|l| l.spec.provider != *provider));
    for (provider, locations) in by_provider {
        if let [only] = locations[..] {
            chosen.push(only);
            continue;
        }
        let default = facts.default_snapshot_locations.get(provider);
        match default.filter(|name| !name.is_empty()) {
            None => errors.push(format!(
                "provider {provider} has more than one possible volume snapshot location, and \
                 none were specified explicitly or as a default"
            )),
            Some(name) => match find(name) {
                Some(location) => chosen.push(location),
                None => errors.push(format!(
                    "error getting volume snapshot location named {name}: {}",
                    not_found(name)
                )),
            },
        }
    }
    if errors.is_empty() {
        Ok(chosen)
    } else {
        Err(errors)
    }
}

fn name_of(location: &VolumeSnapshotLocation) -> &str {
    location.metadata.name.as_deref().unwrap_or_default()
}

fn not_found(name: &str) -> String {
    format!("VolumeSnapshotLocation.velero.io {name:?} not found")
}
