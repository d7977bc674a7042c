//! The flags of `bowline install`: Velero's, spelled alike.

use std::{fmt, path::PathBuf, str::FromStr};

use bowline_api::Duration;

use super::IMAGE;
use crate::flags::{self, List, Map};

/// The flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) storage: StorageArgs,

    #[command(flatten)]
    pub(super) pods: PodArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,

    #[command(flatten)]
    pub(super) node_agent: NodeAgentArgs,

    #[command(flatten)]
    pub(super) idle: IdleArgs,

    /// Only the CustomResourceDefinitions
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) crds_only: bool,

    /// Change nothing; with `-o`, print what would be created. No cluster is asked
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) dry_run: bool,

    /// Bring objects that exist already up to date, by server-side apply
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) apply: bool,

    /// Wait until the pods are ready
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) wait: bool,

    /// Print the objects in this format: yaml or json
    #[arg(short, long, value_name = "FORMAT")]
    pub(super) output: Option<Output>,
}

/// Where backups and snapshots go.
#[derive(Debug, clap::Args)]
pub(super) struct StorageArgs {
    /// The provider of the bucket and of volume snapshots: aws, azure, gcp or filesystem
    #[arg(long, value_name = "NAME")]
    pub(super) provider: Option<String>,
    /// The bucket
    #[arg(long, value_name = "NAME")]
    pub(super) bucket: Option<String>,
    /// The folder in the bucket
    #[arg(long, value_name = "PREFIX")]
    pub(super) prefix: Option<String>,
    /// The file with the provider's credentials, for the Secret `cloud-credentials`
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(super) secret_file: Option<PathBuf>,
    /// Make no Secret: the pods have rights of their own, or locations name their Secrets
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) no_secret: bool,
    /// Make no backup storage location
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) no_default_backup_location: bool,
    /// Settings of the backup storage location
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(super) backup_location_config: Vec<Map>,
    /// Settings of the volume snapshot location
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(super) snapshot_location_config: Vec<Map>,
    /// Make a volume snapshot location
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "true", value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) use_volume_snapshots: bool,
    /// The file with the certificates to trust when talking to the bucket
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(super) cacert: Option<PathBuf>,
}

/// What server and node agents have in common.
#[derive(Debug, clap::Args)]
pub(super) struct PodArgs {
    /// The image of all pods
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub(super) image: String,
    /// Annotations of the pods
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(super) pod_annotations: Vec<Map>,
    /// Labels of the pods
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(super) pod_labels: Vec<Map>,
    /// Annotations of the ServiceAccount
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub(super) sa_annotations: Vec<Map>,
    /// An existing ServiceAccount to use; then no account and no binding are made
    #[arg(long, value_name = "NAME")]
    pub(super) service_account_name: Option<String>,
    /// The ConfigMap with the settings of volume repositories; must exist
    #[arg(long, value_name = "NAME")]
    pub(super) backup_repository_configmap: Option<String>,
}

/// The server.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// Images of plugins; the providers aws, azure, gcp and filesystem need none for backups
    #[arg(long, value_name = "IMAGES")]
    pub(super) plugins: Option<List>,
    /// CPU that the server asks for; 0 for none
    #[arg(long, value_name = "QUANTITY", default_value = "500m")]
    pub(super) velero_pod_cpu_request: String,
    /// Memory that the server asks for; 0 for none
    #[arg(long, value_name = "QUANTITY", default_value = "128Mi")]
    pub(super) velero_pod_mem_request: String,
    /// CPU that the server may use; 0 for no limit
    #[arg(long, value_name = "QUANTITY", default_value = "1000m")]
    pub(super) velero_pod_cpu_limit: String,
    /// Memory that the server may use; 0 for no limit
    #[arg(long, value_name = "QUANTITY", default_value = "512Mi")]
    pub(super) velero_pod_mem_limit: String,
    /// The priority class of the server
    #[arg(long, value_name = "NAME")]
    pub(super) server_priority_class_name: Option<String>,
    /// How often volume repositories are tidied up
    #[arg(long, value_name = "DURATION", value_parser = flags::span, allow_hyphen_values = true)]
    pub(super) default_repo_maintain_frequency: Option<Duration>,
    /// How often expired backups are looked for
    #[arg(long, value_name = "DURATION", value_parser = flags::span, allow_hyphen_values = true)]
    pub(super) garbage_collection_frequency: Option<Duration>,
    /// How long the backup or restore of a pod volume may take
    #[arg(long, value_name = "DURATION", value_parser = flags::span, allow_hyphen_values = true)]
    pub(super) pod_volume_operation_timeout: Option<Duration>,
    /// Copy pod volumes file by file unless opted out; needs `--use-node-agent`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) default_volumes_to_fs_backup: bool,
    /// The format of volume data: restic; kopia is accepted, and new data is written as restic's
    #[arg(long, value_name = "TYPE")]
    pub(super) uploader_type: Option<String>,
    /// Move the data of CSI snapshots into the bucket unless told otherwise; needs `--use-node-agent`
    /// and `--features EnableCSI`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) default_snapshot_move_data: bool,
    /// The default of a schedule's `skipImmediately`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) schedule_skip_immediately: bool,
    /// Only restore
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) restore_only: bool,
    /// The ConfigMap with the settings of repository maintenance; must exist
    #[arg(long, value_name = "NAME")]
    pub(super) repo_maintenance_job_configmap: Option<String>,
    /// Item blocks that a backup works on at the same time
    #[arg(long, value_name = "COUNT")]
    pub(super) item_block_worker_count: Option<u32>,
    /// Backups that run at the same time
    #[arg(long, value_name = "COUNT")]
    pub(super) concurrent_backups: Option<u32>,
}

/// The node agents.
#[derive(Debug, clap::Args)]
pub(super) struct NodeAgentArgs {
    /// Run a node agent on every node, which copies the volumes of its pods and moves the data of
    /// CSI snapshots
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) use_node_agent: bool,
    /// Run node agents in privileged mode
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) privileged_node_agent: bool,
    /// Do not let node agents see pod volumes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) node_agent_disable_host_path: bool,
    /// The kubelet's folder on the nodes
    #[arg(long, value_name = "PATH", default_value = "/var/lib/kubelet")]
    pub(super) kubelet_root_dir: String,
    /// CPU that a node agent asks for; 0 for none
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    pub(super) node_agent_pod_cpu_request: String,
    /// CPU that a node agent may use; 0 for no limit
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    pub(super) node_agent_pod_cpu_limit: String,
    /// Memory that a node agent asks for; 0 for none
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    pub(super) node_agent_pod_mem_request: String,
    /// Memory that a node agent may use; 0 for no limit
    #[arg(long, value_name = "QUANTITY", default_value = "0")]
    pub(super) node_agent_pod_mem_limit: String,
    /// The priority class of node agents
    #[arg(long, value_name = "NAME")]
    pub(super) node_agent_priority_class_name: Option<String>,
    /// The ConfigMap with the settings of node agents; must exist
    #[arg(long, value_name = "NAME")]
    pub(super) node_agent_configmap: Option<String>,
}

/// Flags of Velero's without work to do here. Whether they were given is all that counts.
#[derive(Debug, clap::Args)]
pub(super) struct IdleArgs {
    /// Refused: there is no node agent for Windows
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) use_node_agent_windows: bool,
    /// Accepted for compatibility
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) csi_snapshot_early_frequent_polling: bool,
    /// Accepted for compatibility: there is no such cache
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(super) disable_informer_cache: bool,
    /// Accepted for compatibility: maintenance runs in the server
    #[arg(long, value_name = "COUNT")]
    pub(super) keep_latest_maintenance_jobs: Option<String>,
    /// Accepted for compatibility: maintenance runs in the server
    #[arg(long, value_name = "QUANTITY")]
    pub(super) maintenance_job_cpu_request: Option<String>,
    /// Accepted for compatibility: maintenance runs in the server
    #[arg(long, value_name = "QUANTITY")]
    pub(super) maintenance_job_mem_request: Option<String>,
    /// Accepted for compatibility: maintenance runs in the server
    #[arg(long, value_name = "QUANTITY")]
    pub(super) maintenance_job_cpu_limit: Option<String>,
    /// Accepted for compatibility: maintenance runs in the server
    #[arg(long, value_name = "QUANTITY")]
    pub(super) maintenance_job_mem_limit: Option<String>,
}

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Yaml,
    Json,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "yaml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            "table" => Err("'table' format is not supported with 'install' command".to_owned()),
            other => Err(format!(
                "invalid output format {other:?} - valid values are 'json' and 'yaml'"
            )),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
        })
    }
}
