//! The flags that say what a backup holds and how it is made; schedules have them too.

use anyhow::{bail, ensure};
use bowline_api::{
    Duration, StringMap,
    names::DATA_MOVER,
    v1::{BackupSpec, BackupStorageLocation, UploaderConfigForBackup, VolumeSnapshotLocation},
};
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{
    cluster::{Hinted, Plain},
    flags::{
        self, List, OptionalBool,
        filter::{FilterArgs, refuse},
        metadata::MetadataArgs,
        names::{ExcludeAll, check_lists, check_patterns},
    },
    output::object::complete_spec,
};

/// What a backup holds and how it is made.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SpecArgs {
    /// How long the backup is kept, such as 720h; without it, the server's default
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    ttl: Option<Duration>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Cluster-scoped resources to include; `*` for all; not together with the resource filters
    /// above
    #[arg(long, value_name = "LIST")]
    include_cluster_scoped_resources: Option<List>,

    /// Cluster-scoped resources to exclude; `*` for all; not together with the resource filters
    /// above
    #[arg(long, value_name = "LIST")]
    exclude_cluster_scoped_resources: Option<List>,

    /// Namespaced resources to include; `*` for all; not together with the resource filters above
    #[arg(long, value_name = "LIST")]
    include_namespace_scoped_resources: Option<List>,

    /// Namespaced resources to exclude; `*` for all; not together with the resource filters above
    #[arg(long, value_name = "LIST")]
    exclude_namespace_scoped_resources: Option<List>,

    #[command(flatten)]
    pub(crate) metadata: MetadataArgs,

    /// The backup storage location
    #[arg(long, value_name = "NAME")]
    storage_location: Option<String>,

    /// The volume snapshot locations, at most one per provider
    #[arg(long, value_name = "LIST")]
    volume_snapshot_locations: Vec<List>,

    /// Objects to back up first, such as `pods=ns1/a,ns1/b;persistentvolumes=x`
    #[arg(long, value_parser = flags::ordered_resources, value_name = "ORDER")]
    ordered_resources: Option<StringMap>,

    /// How long to wait for a CSI snapshot
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    csi_snapshot_timeout: Option<Duration>,

    /// How long an operation of a plugin, or the movement of a volume's data, may go on
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    item_operation_timeout: Option<Duration>,

    /// Whether to snapshot persistent volumes; without it, yes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    snapshot_volumes: Option<OptionalBool>,

    /// Whether to move the data of CSI snapshots into the bucket; needs node agents and the server's
    /// feature EnableCSI; without it, the server's default
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    snapshot_move_data: Option<OptionalBool>,

    /// Whether to copy pod volumes file by file unless opted out
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    default_volumes_to_fs_backup: Option<OptionalBool>,

    /// The ConfigMap with the volume policies
    #[arg(long, value_name = "NAME")]
    resource_policies_configmap: Option<String>,

    /// Who moves the data of snapshots; without it, or with `velero` or `bowline`, the built-in mover,
    /// whose DataUploads say `bowline`
    #[arg(long, value_name = "NAME")]
    data_mover: Option<String>,

    /// How many files are uploaded at the same time
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    parallel_files_upload: Option<i64>,
}

impl SpecArgs {
    /// The spec that the flags describe, or what is wrong with them. No cluster is asked.
    pub(crate) fn build(&self) -> anyhow::Result<BackupSpec> {
        self.check()?;
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let switch = OptionalBool::position;
        let policy = |name: String| TypedLocalObjectReference {
            kind: "configmap".to_owned(),
            name,
            ..Default::default()
        };
        let upload = |files: i64| UploaderConfigForBackup {
            parallel_files_upload: Some(files),
            ..Default::default()
        };
        let parallel = self.parallel_files_upload.filter(|files| *files > 0);
        let mut spec = BackupSpec {
            ttl: self.ttl.clone(),
            included_namespaces: Some(self.filter.included_namespaces()),
            excluded_namespaces: self.filter.excluded_namespaces(),
            included_resources: self.filter.included_resources(),
            excluded_resources: self.filter.excluded_resources(),
            include_cluster_resources: self.filter.include_cluster_resources(),
            included_cluster_scoped_resources: List::entries(
                self.include_cluster_scoped_resources.as_ref(),
            ),
            excluded_cluster_scoped_resources: List::entries(
                self.exclude_cluster_scoped_resources.as_ref(),
            ),
            included_namespace_scoped_resources: List::entries(
                self.include_namespace_scoped_resources.as_ref(),
            ),
            excluded_namespace_scoped_resources: List::entries(
                self.exclude_namespace_scoped_resources.as_ref(),
            ),
            label_selector: self.filter.selector(),
            or_label_selectors: self.filter.or_selectors(),
            storage_location: named(&self.storage_location),
            volume_snapshot_locations: self.snapshot_locations(),
            ordered_resources: self.ordered_resources.clone(),
            csi_snapshot_timeout: self.csi_snapshot_timeout.clone(),
            item_operation_timeout: self.item_operation_timeout.clone(),
            snapshot_volumes: switch(self.snapshot_volumes),
            snapshot_move_data: switch(self.snapshot_move_data),
            default_volumes_to_fs_backup: switch(self.default_volumes_to_fs_backup),
            resource_policy: named(&self.resource_policies_configmap).map(policy),
            datamover: named(&self.data_mover),
            uploader_config: parallel.map(upload),
            ..Default::default()
        };
        complete_spec(&mut spec);
        Ok(spec)
    }

    /// This one flag adds up when repeated, unlike the other lists.
    fn snapshot_locations(&self) -> Option<Vec<String>> {
        let all = self
            .volume_snapshot_locations
            .iter()
            .flat_map(|l| l.0.clone());
        List::entries(Some(&List(all.collect())))
    }

    fn check(&self) -> anyhow::Result<()> {
        self.check_scoped_resources()?;
        self.filter.check()?;
        for namespaces in [
            self.filter.included_namespaces(),
            self.filter.excluded_namespaces().unwrap_or_default(),
        ] {
            refuse("", check_patterns(&namespaces))?;
        }
        if let Some(files) = self.parallel_files_upload {
            ensure!(files >= 0, "parallel-files-upload cannot be negative");
        }
        self.metadata.check()
    }

    fn check_scoped_resources(&self) -> anyhow::Result<()> {
        let list = |list: &Option<List>| List::entries(list.as_ref()).unwrap_or_default();
        let cluster = [
            list(&self.include_cluster_scoped_resources),
            list(&self.exclude_cluster_scoped_resources),
        ];
        let namespaced = [
            list(&self.include_namespace_scoped_resources),
            list(&self.exclude_namespace_scoped_resources),
        ];
        let mut scoped = cluster.iter().chain(&namespaced);
        if self.filter.chooses_resources() && scoped.any(|list| !list.is_empty()) {
            bail!(
                "include-resources, exclude-resources and include-cluster-resources are old filter parameters.\n\
                 include-cluster-scoped-resources, exclude-cluster-scoped-resources, \
                 include-namespace-scoped-resources and exclude-namespace-scoped-resources are new filter parameters.\n\
                 They cannot be used together"
            );
        }
        for (what, [included, excluded]) in [("cluster", cluster), ("namespace", namespaced)] {
            let errors = check_lists(&included, &excluded, ExcludeAll::Allowed);
            refuse(
                &format!("Invalid included/excluded {what}-scoped resource lists: "),
                errors,
            )?;
        }
        Ok(())
    }

    /// Whether a cluster has to be asked before the object can be made.
    pub(crate) fn names_locations(&self) -> bool {
        let storage = self
            .storage_location
            .as_ref()
            .is_some_and(|n| !n.is_empty());
        storage || self.snapshot_locations().is_some()
    }

    /// Whether the named locations exist.
    pub(crate) async fn check_locations(
        &self,
        client: &Client,
        namespace: &str,
    ) -> anyhow::Result<()> {
        if let Some(name) = self
            .storage_location
            .as_ref()
            .filter(|name| !name.is_empty())
        {
            let api: Api<BackupStorageLocation> = Api::namespaced(client.clone(), namespace);
            exists(&api, name, "backup-location").await?;
        }
        for name in self.snapshot_locations().into_iter().flatten() {
            let api: Api<VolumeSnapshotLocation> = Api::namespaced(client.clone(), namespace);
            exists(&api, &name, "snapshot-location").await?;
        }
        Ok(())
    }
}

/// What moves snapshot data, as people know it.
pub(crate) fn data_mover(spec: &BackupSpec) -> &str {
    match spec.datamover.as_deref() {
        None | Some("") => DATA_MOVER,
        Some(name) => name,
    }
}

async fn exists<K: crate::select::Kind>(
    api: &Api<K>,
    name: &str,
    kind: &str,
) -> anyhow::Result<()> {
    match api.get(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let message = status.message;
            let known = api.list(&ListParams::default()).await.plain()?;
            let known: Vec<String> = known.items.iter().map(ResourceExt::name_any).collect();
            let hint = match known.is_empty() {
                true => format!("there are none yet; make one with `bowline {kind} create`"),
                false => format!("there are: {}", known.join(", ")),
            };
            Err(Hinted::error(message, hint))
        }
        other => other.map(|_| ()).plain(),
    }
}
