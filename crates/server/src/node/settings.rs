//! The node process's flags: those of Velero's `node-agent server`, and ours.

use std::{path::PathBuf, time::Duration};

use bowline_api::Quantity;
use clap::{Args, Parser};

use crate::{
    Error, Result,
    settings::{LogFormat, LogLevel, duration},
};

/// The least memory that an engine can work with.
const LEAST_MEMORY: u64 = 16 << 20;
/// Nobody gains from a faster pace.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The node process's flags.
// As in Go's flag packages, a flag given twice counts as given last.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct Settings {
    /// What to log: everything from this level on.
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub log_level: LogLevel,
    /// How log lines look: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,
    /// Where metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = ":8085")]
    pub metrics_address: String,
    /// How long to wait for things that have no timeout of their own, such as a repository that
    /// somebody else has locked.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration, allow_hyphen_values = true)]
    pub resource_timeout: Duration,
    /// How long it may take to find a volume on this node, or to make the volume and the pod that move
    /// the data of a snapshot.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration, allow_hyphen_values = true)]
    pub data_mover_prepare_timeout: Duration,
    /// The ConfigMap with the settings of node processes, such as how many volumes are copied at the
    /// same time.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub node_agent_configmap: String,
    /// The node that this process is for.
    #[arg(long, value_name = "NAME", env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// The kubelet's folder of pods, as it is seen from here.
    #[arg(long, value_name = "FOLDER", default_value = super::HOST_PODS)]
    pub host_pods: PathBuf,
    /// Copy with this restic program instead of the built-in engine.
    #[arg(long, value_name = "FILE")]
    pub restic_binary: Option<PathBuf>,
    /// How often progress is told; by default every second, or every ten with a restic program.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub progress_interval: Option<Duration>,
    /// How much file data is held in memory, by all copies together.
    #[arg(long, value_name = "BYTES", default_value = "128Mi", value_parser = memory)]
    pub memory: u64,
    #[command(flatten)]
    idle: Idle,
}

/// Flags without work to do here. Whether they were given is all that counts.
#[derive(Debug, Clone, Args)]
struct Idle {
    /// Accepted for compatibility: the built-in engine keeps no cache on disk.
    #[arg(long, value_name = "NAME")]
    backup_repository_configmap: Option<String>,
    /// Accepted for compatibility: the server tidies repositories up.
    #[arg(long, value_name = "NAME")]
    repo_maintenance_job_configmap: Option<String>,
}

impl Settings {
    /// Refuses values that cannot be meant.
    ///
    /// # Errors
    /// The first flag that is wrong.
    pub fn validate(&self) -> Result<()> {
        if self.node_name.is_empty() {
            return Err(Error::Setup(
                "which node is this? Give --node-name, or set NODE_NAME".to_owned(),
            ));
        }
        match &self.restic_binary {
            Some(program) if !program.is_file() => Err(Error::Setup(format!(
                "--restic-binary {}: there is no such file",
                program.display()
            ))),
            _ => Ok(()),
        }
    }

    /// How often progress is told.
    #[must_use]
    pub fn interval(&self) -> Duration {
        let default = if self.restic_binary.is_some() { 10 } else { 1 };
        self.progress_interval
            .unwrap_or_else(|| Duration::from_secs(default))
            .max(SHORTEST_INTERVAL)
    }

    /// A sentence about each flag that was given and has no effect, for the log.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let idle = &self.idle;
        let given = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
        let mut remarks = Vec::new();
        if given(&idle.backup_repository_configmap) {
            remarks.push(
                "--backup-repository-configmap has no effect: the engine keeps no cache on disk"
                    .to_owned(),
            );
        }
        if given(&idle.repo_maintenance_job_configmap) {
            remarks.push(
                "--repo-maintenance-job-configmap has no effect: the server tidies repositories up"
                    .to_owned(),
            );
        }
        remarks
    }
}

/// The flags of a command line without any.
impl Default for Settings {
    fn default() -> Self {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            settings: Settings,
        }
        Line::try_parse_from([""])
            .expect("every flag has a sound default")
            .settings
    }
}

/// Bytes, with a suffix as Kubernetes has them.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    let quantity: Quantity = text.parse().map_err(|bad| format!("{bad}"))?;
    match quantity.value().and_then(|bytes| u64::try_from(bytes).ok()) {
        Some(bytes) if bytes >= LEAST_MEMORY => Ok(bytes),
        _ => Err("must be at least 16Mi".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn parse(flags: &[&str]) -> Result<Settings, String> {
        Line::try_parse_from([&["server", "--node-name", "n"], flags].concat())
            .map(|line| line.settings)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_daemon_set_made_for_velero_need_not_change() {
        let settings = parse(&[
            "--log-level=debug",
            "--log-format=json",
            "--metrics-address=:9000",
            "--resource-timeout=5m",
            "--data-mover-prepare-timeout=1h",
            "--node-agent-configmap=node-agent-config",
            "--backup-repository-configmap=repos",
            "--repo-maintenance-job-configmap=",
        ])
        .unwrap();
        settings.validate().unwrap();
        assert_eq!(settings.metrics_address, ":9000");
        assert_eq!(settings.resource_timeout, Duration::from_secs(300));
        assert_eq!(
            settings.data_mover_prepare_timeout,
            Duration::from_secs(3600)
        );
        assert_eq!(settings.remarks().len(), 1, "{:?}", settings.remarks());
    }

    #[test]
    fn defaults_are_those_of_velero() {
        let settings = parse(&[]).unwrap();
        assert_eq!(settings.metrics_address, ":8085");
        assert_eq!(settings.resource_timeout, Duration::from_secs(600));
        assert_eq!(
            settings.data_mover_prepare_timeout,
            Duration::from_secs(1800)
        );
        assert_eq!(settings.host_pods, PathBuf::from("/host_pods"));
        assert_eq!(settings.memory, 128 << 20);
        assert_eq!(settings.interval(), Duration::from_secs(1));
        assert_eq!(settings.remarks(), Vec::<String>::new());
    }

    #[test]
    fn memory_has_a_suffix_and_a_least() {
        for (given, expected) in [
            ("64Mi", Some(64 << 20)),
            ("1G", Some(1_000_000_000)),
            ("33554432", Some(32 << 20)),
            ("1Mi", None),
            ("-1Gi", None),
            ("much", None),
        ] {
            let found = parse(&[&format!("--memory={given}")]).map(|s| s.memory);
            assert_eq!(found.ok(), expected, "{given}");
        }
    }

    #[test]
    fn a_node_must_be_named_and_a_program_be_there() {
        let settings = Settings {
            node_name: String::new(),
            ..Settings::default()
        };
        let why = settings.validate().unwrap_err().to_string();
        assert!(why.contains("NODE_NAME"), "{why}");
        let why = parse(&["--restic-binary=/no/restic"])
            .unwrap()
            .validate()
            .unwrap_err()
            .to_string();
        assert!(why.contains("--restic-binary /no/restic"), "{why}");
    }

    #[test]
    fn progress_has_a_pace() {
        for (flags, millis) in [
            (vec![], 1_000),
            (vec!["--progress-interval=3s"], 3_000),
            (vec!["--progress-interval=0s"], 100),
            (vec!["--restic-binary=/r"], 10_000),
            (vec!["--restic-binary=/r", "--progress-interval=2s"], 2_000),
        ] {
            let found = parse(&flags).unwrap().interval();
            assert_eq!(found, Duration::from_millis(millis), "{flags:?}");
        }
    }
}
