//! The flags that say what is restored and how.

use anyhow::{bail, ensure};
use bowline_api::{
    Duration,
    v1::{ExistingResourcePolicy, RestoreSpec, RestoreStatusSpec, UploaderConfigForRestore},
};
use k8s_openapi::api::core::v1::TypedLocalObjectReference;

use crate::{
    flags::{
        self, List, Mappings, OptionalBool,
        filter::FilterArgs,
        names::{LONGEST_LABEL, check_name},
    },
    output::object::complete_restore,
    say,
};

/// What is restored and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct SpecArgs {
    #[command(flatten)]
    filter: FilterArgs,

    /// Namespaces that get another name, as `old:new` pairs
    #[arg(long, value_name = "MAP")]
    namespace_mappings: Vec<Mappings>,

    /// Whether to restore volumes from snapshots; without it, yes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    restore_volumes: Option<OptionalBool>,

    /// Whether services keep the node ports they had
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    preserve_nodeports: Option<OptionalBool>,

    /// What to do about objects that exist already: `none` leaves them, `update` patches them
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "POLICY"
    )]
    existing_resource_policy: String,

    /// Resources whose status is restored, as `resource.group`; `*` for all; without it, none
    #[arg(long, value_name = "LIST")]
    status_include_resources: Option<List>,

    /// Resources whose status is not restored, as `resource.group`
    #[arg(long, value_name = "LIST")]
    status_exclude_resources: Option<List>,

    /// The ConfigMap with changes to make to objects on their way
    #[arg(long, value_name = "NAME")]
    resource_modifier_configmap: Option<String>,

    /// The ConfigMap with filter policies, which refine the filters by namespace and kind
    #[arg(long, value_name = "NAME")]
    resource_policies_configmap: Option<String>,

    /// How long an operation of a plugin, or the movement of a volume's data, may go on
    #[arg(long, value_parser = flags::span, allow_hyphen_values = true, value_name = "DURATION")]
    item_operation_timeout: Option<Duration>,

    /// Whether holes in files of volumes are written as holes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    write_sparse_files: Option<OptionalBool>,

    /// How many files of a volume are downloaded at the same time; 0 is one for each CPU of the node
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    parallel_files_download: Option<i64>,
}

impl SpecArgs {
    /// What is wrong with the flags, if anything. No cluster is asked.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.filter.check()?;
        if !["", "none", "update"].contains(&self.existing_resource_policy.as_str()) {
            bail!(
                "existing-resource-policy has invalid value, it accepts only none, update as value"
            );
        }
        if let Some(files) = self.parallel_files_download {
            ensure!(files >= 0, "parallel-files-download cannot be negative");
        }
        let mappings = Mappings::merged(&self.namespace_mappings).unwrap_or_default();
        for new in mappings.values() {
            check_name("namespace", new, LONGEST_LABEL)
                .map_err(|error| anyhow::anyhow!("--namespace-mappings: {error}"))?;
        }
        let status = |list: &Option<List>| List::entries(list.as_ref()).is_some();
        if status(&self.status_exclude_resources) && !status(&self.status_include_resources) {
            say("WARNING: --status-exclude-resources has no effect without \
                 --status-include-resources");
        }
        Ok(())
    }

    /// The spec that the flags describe, but for its source.
    pub(super) fn build(&self) -> RestoreSpec {
        let switch = OptionalBool::position;
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let config_map = |name: String, group: Option<&str>| TypedLocalObjectReference {
            api_group: group.map(str::to_owned),
            kind: "configmap".to_owned(),
            name,
        };
        let policy = self.existing_resource_policy.as_str();
        let status = List::entries(self.status_include_resources.as_ref());
        let mut spec = RestoreSpec {
            included_namespaces: Some(self.filter.included_namespaces()),
            excluded_namespaces: self.filter.excluded_namespaces(),
            included_resources: self.filter.included_resources(),
            excluded_resources: self.filter.excluded_resources(),
            include_cluster_resources: self.filter.include_cluster_resources(),
            label_selector: self.filter.selector(),
            or_label_selectors: self.filter.or_selectors(),
            namespace_mapping: Mappings::merged(&self.namespace_mappings),
            restore_pvs: switch(self.restore_volumes),
            preserve_node_ports: switch(self.preserve_nodeports),
            existing_resource_policy: (!policy.is_empty())
                .then(|| ExistingResourcePolicy::from(policy)),
            restore_status: status.map(|included| RestoreStatusSpec {
                included_resources: Some(included),
                excluded_resources: List::entries(self.status_exclude_resources.as_ref()),
                ..Default::default()
            }),
            // One of the two names the core's group, as Velero's client has it.
            resource_modifier: named(&self.resource_modifier_configmap)
                .map(|name| config_map(name, Some(""))),
            resource_policy: named(&self.resource_policies_configmap)
                .map(|name| config_map(name, None)),
            item_operation_timeout: self.item_operation_timeout.clone(),
            uploader_config: Some(UploaderConfigForRestore {
                write_sparse_files: switch(self.write_sparse_files),
                parallel_files_download: self.parallel_files_download.filter(|files| *files > 0),
                ..Default::default()
            }),
            ..Default::default()
        };
        complete_restore(&mut spec);
        spec
    }
}
