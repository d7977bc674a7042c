//! What a restore is made from: its backup, the bucket of that, and what its spec refers to.

use std::sync::Arc;

use bowline_api::{
    names::{label, label_value},
    v1::{Backup, BackupStorageLocation, BackupStorageLocationPhase, PodVolumeBackup, Restore},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{
    action::{self, Cluster, RestoreItemAction},
    hooks::{self, SpecHooks},
    modifier::Modifiers,
    pod_volume::Copies,
    validate,
};
use crate::policy::{Policies, Purpose};

/// What a sound restore is made from.
pub struct Source {
    /// The backup.
    pub backup: Backup,
    /// Where that is.
    pub location: BackupStorageLocation,
    /// The restore's filter policies.
    pub policies: Option<Policies>,
    /// Changes to objects on their way.
    pub modifiers: Option<Modifiers>,
}

/// Where to look: the cluster, and the namespace of the installation.
#[derive(Clone)]
pub struct Installation {
    /// The cluster.
    pub client: Client,
    /// The namespace of servers, backups and restores.
    pub namespace: String,
}

type Found<T> = Result<Result<T, String>, kube::Error>;

impl Installation {
    /// Fills in what a spec leaves open and finds what it refers to. The inner error says what is
    /// wrong with it.
    pub async fn source(
        &self,
        restore: &mut Restore,
    ) -> Result<Result<Source, Vec<String>>, kube::Error> {
        validate::complete(restore);
        let mut errors = validate::errors(&restore.spec);
        if let Some(why) = validate::source_error(&restore.spec) {
            errors.push(why);
            return Ok(Err(errors));
        }
        errors.extend(hooks::validate(&restore.spec));
        let schedule = restore.spec.schedule_name.clone();
        if let Some(schedule) = schedule.filter(|name| !name.is_empty()) {
            let backups: Api<Backup> = Api::namespaced(self.client.clone(), &self.namespace);
            let labels = format!("{}={schedule}", label::SCHEDULE_NAME);
            let made = backups.list(&ListParams::default().labels(&labels)).await?;
            if made.items.is_empty() {
                errors.push("No backups found for schedule".to_owned());
            }
            match validate::newest(&made.items) {
                Some(backup) => restore.spec.backup_name = Some(backup.name_any()),
                None => {
                    errors.push("No completed backups found for schedule".to_owned());
                    return Ok(Err(errors));
                }
            }
        }
        Ok(match self.refer(restore).await? {
            Ok(source) => {
                errors.extend(unavailable(&source.location));
                if errors.is_empty() {
                    Ok(source)
                } else {
                    Err(errors)
                }
            }
            Err(why) => {
                errors.push(why);
                Err(errors)
            }
        })
    }

    /// Everything that the spec names; the inner error is the first that cannot be had.
    pub async fn refer(&self, restore: &mut Restore) -> Found<Source> {
        let namespace = &self.namespace;
        let backups: Api<Backup> = Api::namespaced(self.client.clone(), namespace);
        let locations: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), namespace);
        let name = restore.spec.backup_name.clone().unwrap_or_default();
        let Some(backup) = backups.get_opt(&name).await? else {
            return Ok(Err(format!(
                "Error retrieving backup: can't find backup {namespace}/{name}: backups.velero.io {name:?} not found"
            )));
        };
        let place = backup.spec.storage_location.clone().unwrap_or_default();
        let Some(location) = locations.get_opt(&place).await? else {
            return Ok(Err(format!(
                "Error retrieving backup: backupstoragelocations.velero.io {place:?} not found"
            )));
        };
        if restore
            .spec
            .schedule_name
            .as_deref()
            .is_none_or(str::is_empty)
        {
            restore.spec.schedule_name = backup.labels().get(label::SCHEDULE_NAME).cloned();
        }
        let policies = match self.policies(restore).await? {
            Ok(policies) => policies,
            Err(why) => return Ok(Err(format!("invalid restore resource policies: {why}"))),
        };
        let modifiers = match self.modifiers(restore).await? {
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

    async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        maps.get_opt(name).await
    }

    async fn policies(&self, restore: &Restore) -> Found<Option<Policies>> {
        let Some(reference) = &restore.spec.resource_policy else {
            return Ok(Ok(None));
        };
        if !reference.kind.eq_ignore_ascii_case("configmap") {
            return Ok(Err(format!(
                "invalid ResourcePolicy kind {:?}, only \"configmap\" is supported",
                reference.kind
            )));
        }
        let (namespace, name) = (&self.namespace, &reference.name);
        let Some(map) = self.config_map(name).await? else {
            return Ok(Err(format!(
                "fail to get ResourcePolicies {namespace}/{name} ConfigMap: configmaps {name:?} not found"
            )));
        };
        let data = map.data.unwrap_or_default();
        let read = Policies::from_config_map(namespace, name, &data, Purpose::Restore);
        let owner = format!("{namespace}/{name}");
        Ok(read.map(Some).map_err(|error| error.for_owner(&owner)))
    }

    async fn modifiers(&self, restore: &Restore) -> Found<Option<Modifiers>> {
        let reference = restore.spec.resource_modifier.as_ref();
        let Some(reference) = reference.filter(|r| r.kind.eq_ignore_ascii_case("configmap")) else {
            return Ok(Ok(None));
        };
        let place = format!("{}/{}", self.namespace, reference.name);
        let Some(map) = self.config_map(&reference.name).await? else {
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

    /// The pod volumes of a backup as the cluster knows them. The backup's own file is truer: it
    /// comes with the backup, objects may be late or gone.
    pub async fn pod_volume_backups(
        &self,
        backup: &Backup,
    ) -> Result<Vec<PodVolumeBackup>, kube::Error> {
        let copies: Api<PodVolumeBackup> = Api::namespaced(self.client.clone(), &self.namespace);
        let labels = format!("{}={}", label::BACKUP_NAME, label_value(&backup.name_any()));
        let found = copies.list(&ListParams::default().labels(&labels)).await?;
        Ok(found.items)
    }

    /// What is done to objects on their way.
    pub async fn actions(
        &self,
        restore: &Restore,
        copies: &Arc<Copies>,
    ) -> Found<Vec<Arc<dyn RestoreItemAction>>> {
        let hooks = match SpecHooks::new(restore.spec.hooks.as_ref()) {
            Ok(hooks) => hooks,
            Err(why) => return Ok(Err(format!("invalid restore hooks: {why}"))),
        };
        let cluster = Cluster {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            image: None,
            image_tag: format!("v{}", env!("CARGO_PKG_VERSION")),
            copies: Arc::clone(copies),
            hooks: Arc::new(hooks),
        };
        action::built_in(&cluster).await.map(Ok)
    }
}

/// Why nothing can be had from a location now. What is under way does not ask: it waits.
fn unavailable(location: &BackupStorageLocation) -> Option<String> {
    let phase = location.status.as_ref().and_then(|s| s.phase.as_ref());
    (phase != Some(&BackupStorageLocationPhase::Available)).then(|| {
        let name = location.name_any();
        format!("The BSL {name} is unavailable, cannot retrieve the backup")
    })
}
