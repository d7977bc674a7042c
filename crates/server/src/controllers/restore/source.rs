//! What a restore is made from: its backup, the bucket of that, and what its spec refers to.

use std::sync::Arc;

use bowline_api::{
    names::label,
    v1::{Backup, BackupStorageLocation, BackupStorageLocationPhase, Restore},
};
use bowline_engine::{
    policy::{Policies, Purpose},
    restore::{
        action::{self, Cluster, RestoreItemAction},
        hooks::{self, SpecHooks},
        modifier::Modifiers,
        validate,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};

use crate::{Context, Error, Result};

/// What a sound restore is made from.
pub(super) struct Source {
    pub(super) backup: Backup,
    pub(super) location: BackupStorageLocation,
    pub(super) policies: Option<Policies>,
    pub(super) modifiers: Option<Modifiers>,
}

/// Fills in what a spec leaves open and finds what it refers to. The inner error says what is wrong
/// with it.
pub(super) async fn find(
    ctx: &Context,
    restore: &mut Restore,
) -> Result<std::result::Result<Source, Vec<String>>> {
    validate::complete(restore);
    let mut errors = validate::errors(&restore.spec);
    if let Some(why) = validate::source_error(&restore.spec) {
        errors.push(why);
        return Ok(Err(errors));
    }
    errors.extend(hooks::validate(&restore.spec));
    let schedule = restore.spec.schedule_name.clone();
    if let Some(schedule) = schedule.filter(|name| !name.is_empty()) {
        let labels = format!("{}={schedule}", label::SCHEDULE_NAME);
        let backups = ctx.list::<Backup>(&labels).await?;
        if backups.is_empty() {
            errors.push("No backups found for schedule".to_owned());
        }
        match validate::newest(&backups) {
            Some(backup) => restore.spec.backup_name = Some(backup.name_any()),
            None => {
                errors.push("No completed backups found for schedule".to_owned());
                return Ok(Err(errors));
            }
        }
    }
    let found = refer(ctx, restore).await?;
    Ok(match found {
        Ok(source) if errors.is_empty() => Ok(source),
        Ok(_) => Err(errors),
        Err(why) => {
            errors.push(why);
            Err(errors)
        }
    })
}

/// Everything that the spec names; the inner error is the first that cannot be had.
pub(super) async fn refer(
    ctx: &Context,
    restore: &mut Restore,
) -> Result<std::result::Result<Source, String>> {
    let namespace = &ctx.namespace;
    let name = restore.spec.backup_name.clone().unwrap_or_default();
    let Some(backup) = ctx.find::<Backup>(&name).await? else {
        return Ok(Err(format!(
            "Error retrieving backup: can't find backup {namespace}/{name}: backups.velero.io {name:?} not found"
        )));
    };
    let place = backup.spec.storage_location.clone().unwrap_or_default();
    let Some(location) = ctx.find::<BackupStorageLocation>(&place).await? else {
        return Ok(Err(format!(
            "Error retrieving backup: backupstoragelocations.velero.io {place:?} not found"
        )));
    };
    let phase = location.status.as_ref().and_then(|s| s.phase.as_ref());
    if phase != Some(&BackupStorageLocationPhase::Available) {
        return Ok(Err(format!(
            "The BSL {place} is unavailable, cannot retrieve the backup"
        )));
    }
    if restore
        .spec
        .schedule_name
        .as_deref()
        .is_none_or(str::is_empty)
    {
        restore.spec.schedule_name = backup.labels().get(label::SCHEDULE_NAME).cloned();
    }
    let policies = match policies(ctx, restore).await? {
        Ok(policies) => policies,
        Err(why) => return Ok(Err(format!("invalid restore resource policies: {why}"))),
    };
    let modifiers = match modifiers(ctx, restore).await? {
        Ok(modifiers) => modifiers,
        Err(why) => return Ok(Err(why)),
    };
    Ok(Ok(Source {
        backup,
        location,
        policies,
        modifiers,
    }))
}

async fn config_map(ctx: &Context, name: &str) -> Result<Option<ConfigMap>> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let found = maps.get_opt(name).await;
    found.map_err(Error::api(format!("read ConfigMap {name}")))
}

async fn policies(
    ctx: &Context,
    restore: &Restore,
) -> Result<std::result::Result<Option<Policies>, String>> {
    let Some(reference) = &restore.spec.resource_policy else {
        return Ok(Ok(None));
    };
    if !reference.kind.eq_ignore_ascii_case("configmap") {
        return Ok(Err(format!(
            "invalid ResourcePolicy kind {:?}, only \"configmap\" is supported",
            reference.kind
        )));
    }
    let (namespace, name) = (&ctx.namespace, &reference.name);
    let Some(map) = config_map(ctx, name).await? else {
        return Ok(Err(format!(
            "fail to get ResourcePolicies {namespace}/{name} ConfigMap: configmaps {name:?} not found"
        )));
    };
    let data = map.data.unwrap_or_default();
    let read = Policies::from_config_map(namespace, name, &data, Purpose::Restore);
    let owner = format!("{namespace}/{name}");
    Ok(read.map(Some).map_err(|error| error.for_owner(&owner)))
}

async fn modifiers(
    ctx: &Context,
    restore: &Restore,
) -> Result<std::result::Result<Option<Modifiers>, String>> {
    let reference = restore.spec.resource_modifier.as_ref();
    let Some(reference) = reference.filter(|r| r.kind.eq_ignore_ascii_case("configmap")) else {
        return Ok(Ok(None));
    };
    let place = format!("{}/{}", ctx.namespace, reference.name);
    let Some(map) = config_map(ctx, &reference.name).await? else {
        return Ok(Err(format!(
            "failed to get resource modifiers configmap {place}"
        )));
    };
    let parsed = match Modifiers::parse(&map) {
        Ok(modifiers) => modifiers,
        Err(why) => {
            return Ok(Err(format!(
                "Error in parsing resource modifiers provided in configmap {place}: {why}"
            )));
        }
    };
    Ok(match parsed.validate() {
        Ok(()) => Ok(Some(parsed)),
        Err(why) => Err(format!(
            "Validation error in resource modifiers provided in configmap {place}: {why}"
        )),
    })
}

/// What is done to objects on their way.
pub(super) async fn actions(
    ctx: &Context,
    restore: &Restore,
) -> std::result::Result<Vec<Arc<dyn RestoreItemAction>>, String> {
    let hooks = SpecHooks::new(restore.spec.hooks.as_ref())?;
    let cluster = Cluster {
        client: ctx.client.clone(),
        namespace: ctx.namespace.clone(),
        image: None,
        image_tag: format!("v{}", env!("CARGO_PKG_VERSION")),
        // Volumes are restored by a later version.
        pod_volume_backups: Vec::new(),
        hooks: Arc::new(hooks),
    };
    let actions = action::built_in(&cluster).await;
    actions.map_err(|error| error.to_string())
}
