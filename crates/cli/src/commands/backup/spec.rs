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
        self, List, Map, OptionalBool,
        names::{ExcludeAll, check_labels, check_lists, check_patterns},
        selector::{OrSelector, Selector},
    },
    output::object::complete_spec,
};

/// What a backup holds and how it is made.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SpecArgs {
    /// How long the backup is kept, such as 720h; without it, the server's default
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    ttl: Option<Duration>,

    /// Namespaces to include, with wildcards; `*` for all
    #[arg(long, value_name = "LIST", default_value = "*")]
    include_namespaces: List,

    /// Namespaces to exclude, with wildcards
    #[arg(long, value_name = "LIST")]
    exclude_namespaces: Option<List>,

    /// Resources to include, as `resource.group`; not together with the scoped filters
    #[arg(long, value_name = "LIST")]
    include_resources: Option<List>,

    /// Resources to exclude, as `resource.group`; not together with the scoped filters
    #[arg(long, value_name = "LIST")]
    exclude_resources: Option<List>,

    /// Whether to include cluster-scoped resources; not together with the scoped filters
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    include_cluster_resources: Option<OptionalBool>,

    /// Cluster-scoped resources to include; `*` for all
    #[arg(long, value_name = "LIST")]
    include_cluster_scoped_resources: Option<List>,

    /// Cluster-scoped resources to exclude; `*` for all
    #[arg(long, value_name = "LIST")]
    exclude_cluster_scoped_resources: Option<List>,

    /// Namespaced resources to include; `*` for all
    #[arg(long, value_name = "LIST")]
    include_namespace_scoped_resources: Option<List>,

    /// Namespaced resources to exclude; `*` for all
    #[arg(long, value_name = "LIST")]
    exclude_namespace_scoped_resources: Option<List>,

    /// Labels for the object, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    labels: Vec<Map>,

    /// Annotations for the object, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    annotations: Vec<Map>,

    /// The backup storage location
    #[arg(long, value_name = "NAME")]
    storage_location: Option<String>,

    /// The volume snapshot locations, at most one per provider
    #[arg(long, value_name = "LIST")]
    volume_snapshot_locations: Vec<List>,

    /// Only objects that this label selector matches
    #[arg(short = 'l', long)]
    selector: Option<Selector>,

    /// Only objects that one of these label selectors matches, joined by ` or `
    #[arg(long, value_name = "SELECTORS")]
    or_selector: Option<OrSelector>,

    /// Objects to back up first, such as `pods=ns1/a,ns1/b;persistentvolumes=x`
    #[arg(long, value_parser = flags::ordered_resources, value_name = "ORDER")]
    ordered_resources: Option<StringMap>,

    /// How long to wait for a CSI snapshot
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    csi_snapshot_timeout: Option<Duration>,

    /// How long an operation of a plugin may go on
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    item_operation_timeout: Option<Duration>,

    /// Whether to snapshot persistent volumes; without it, yes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    snapshot_volumes: Option<OptionalBool>,

    /// Whether to move the data of snapshots into the bucket
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    snapshot_move_data: Option<OptionalBool>,

    /// Whether to copy pod volumes file by file unless opted out
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    default_volumes_to_fs_backup: Option<OptionalBool>,

    /// The ConfigMap with the volume policies
    #[arg(long, value_name = "NAME")]
    resource_policies_configmap: Option<String>,

    /// Who moves snapshot data; without it or with `velero`, the built-in mover
    #[arg(long, value_name = "NAME")]
    data_mover: Option<String>,

    /// How many files are uploaded at the same time
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    parallel_files_upload: Option<i64>,
}

impl SpecArgs {
    /// The labels of the object.
    pub(crate) fn labels(&self) -> Option<StringMap> {
        Map::merged(&self.labels)
    }

    /// The annotations of the object.
    pub(crate) fn annotations(&self) -> Option<StringMap> {
        Map::merged(&self.annotations)
    }

    /// The spec that the flags describe, or what is wrong with them. No cluster is asked.
    pub(crate) fn build(&self) -> anyhow::Result<BackupSpec> {
        self.check()?;
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let switch = |flag: Option<OptionalBool>| flag.and_then(|flag| flag.0);
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
            included_namespaces: Some(self.include_namespaces.0.clone()),
            excluded_namespaces: List::entries(self.exclude_namespaces.as_ref()),
            included_resources: List::entries(self.include_resources.as_ref()),
            excluded_resources: List::entries(self.exclude_resources.as_ref()),
            include_cluster_resources: switch(self.include_cluster_resources),
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
            label_selector: self.selector.clone().map(|selector| selector.0),
            or_label_selectors: self.or_selector.clone().map(|selectors| selectors.0),
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
        if self.selector.is_some() && self.or_selector.is_some() {
            bail!("either a 'selector' or an 'or-selector' can be specified, but not both");
        }
        self.check_namespaces()?;
        self.check_resources()?;
        if let Some(files) = self.parallel_files_upload {
            ensure!(files >= 0, "parallel-files-upload cannot be negative");
        }
        check_labels(self.labels().as_ref()).map_err(|error| anyhow::anyhow!("--labels: {error}"))
    }

    fn check_namespaces(&self) -> anyhow::Result<()> {
        let included = &self.include_namespaces.0;
        let excluded = List::entries(self.exclude_namespaces.as_ref()).unwrap_or_default();
        let mut errors = check_lists(included, &excluded, ExcludeAll::Refused);
        errors.extend(check_patterns(included));
        errors.extend(check_patterns(&excluded));
        refuse("", errors)
    }

    fn check_resources(&self) -> anyhow::Result<()> {
        let list = |list: &Option<List>| List::entries(list.as_ref()).unwrap_or_default();
        let old = [list(&self.include_resources), list(&self.exclude_resources)];
        let cluster = [
            list(&self.include_cluster_scoped_resources),
            list(&self.exclude_cluster_scoped_resources),
        ];
        let namespaced = [
            list(&self.include_namespace_scoped_resources),
            list(&self.exclude_namespace_scoped_resources),
        ];
        let switch = self.include_cluster_resources.and_then(|flag| flag.0);
        let uses_old = switch.is_some() || old.iter().any(|list| !list.is_empty());
        let uses_new = cluster
            .iter()
            .chain(&namespaced)
            .any(|list| !list.is_empty());
        if uses_old && uses_new {
            bail!(
                "include-resources, exclude-resources and include-cluster-resources are old filter parameters.\n\
                 include-cluster-scoped-resources, exclude-cluster-scoped-resources, \
                 include-namespace-scoped-resources and exclude-namespace-scoped-resources are new filter parameters.\n\
                 They cannot be used together"
            );
        }
        for (what, [included, excluded], exclude_all) in [
            ("resource", old, ExcludeAll::Refused),
            ("cluster-scoped resource", cluster, ExcludeAll::Allowed),
            ("namespace-scoped resource", namespaced, ExcludeAll::Allowed),
        ] {
            let errors = check_lists(&included, &excluded, exclude_all);
            refuse(&format!("Invalid included/excluded {what} lists: "), errors)?;
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

fn refuse(prefix: &str, errors: Vec<String>) -> anyhow::Result<()> {
    match &errors[..] {
        [] => Ok(()),
        [one] => bail!("{prefix}{one}"),
        many => bail!("{prefix}[{}]", many.join(", ")),
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
