//! What is wrong with the flags of `bowline install`, and what becomes of those without work to do.

use anyhow::{bail, ensure};
use bowline_api::{Quantity, names::FEATURE_CSI};
use bowline_vault::store::is_built_in;

use super::flags::{Args, NodeAgentArgs, ServerArgs, StorageArgs};
use crate::flags::{List, Map};

impl Args {
    /// What is wrong with the flags, in Velero's words where it has any. No cluster is asked.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let has_plugins = List::entries(self.server.plugins.as_ref()).is_some();
        self.storage.check(has_plugins)?;
        self.server.check()?;
        ensure!(
            !self.idle.use_node_agent_windows,
            "--use-node-agent-windows: there is no node agent for Windows"
        );
        ensure!(
            self.node_agent.use_node_agent || !self.server.default_volumes_to_fs_backup,
            "--use-node-agent is required when using --default-volumes-to-fs-backup"
        );
        self.server.resources()?;
        self.node_agent.resources()?;
        Ok(())
    }

    /// What becomes of flags that have no work to do here.
    pub(super) fn remarks(&self, features: &[String]) -> Vec<String> {
        let idle = &self.idle;
        let mut remarks = Vec::new();
        let mut say = |given: bool, flag: &str, what: &str| {
            if given {
                remarks.push(format!("--{flag} {what}"));
            }
        };
        say(
            self.server.uploader_type.as_deref() == Some("kopia"),
            "uploader-type",
            "kopia is accepted; new volume data is written in restic's format",
        );
        let has_csi = features.iter().any(|feature| feature == FEATURE_CSI);
        say(
            self.server.default_snapshot_move_data && !(has_csi && self.node_agent.use_node_agent),
            "default-snapshot-move-data",
            "moves nothing without --use-node-agent and --features EnableCSI",
        );
        say(
            idle.csi_snapshot_early_frequent_polling,
            "csi-snapshot-early-frequent-polling",
            "has no effect",
        );
        say(
            idle.disable_informer_cache,
            "disable-informer-cache",
            "has no effect: restores ask the API server itself",
        );
        let in_server = "has no effect: maintenance runs in the server";
        for (flag, given) in [
            (
                "keep-latest-maintenance-jobs",
                &idle.keep_latest_maintenance_jobs,
            ),
            (
                "maintenance-job-cpu-request",
                &idle.maintenance_job_cpu_request,
            ),
            (
                "maintenance-job-mem-request",
                &idle.maintenance_job_mem_request,
            ),
            ("maintenance-job-cpu-limit", &idle.maintenance_job_cpu_limit),
            ("maintenance-job-mem-limit", &idle.maintenance_job_mem_limit),
        ] {
            say(given.is_some(), flag, in_server);
        }
        remarks
    }
}

impl StorageArgs {
    fn check(&self, has_plugins: bool) -> anyhow::Result<()> {
        let provider = given(self.provider.as_ref());
        let bucket = given(self.bucket.as_ref());
        if let Some(bucket) = bucket.filter(|bucket| bucket.starts_with('-')) {
            bail!("Bucket names cannot begin with a dash. Bucket name was: {bucket}");
        }
        if self.no_default_backup_location {
            for (flag, is_given) in [
                ("bucket", bucket.is_some()),
                ("prefix", given(self.prefix.as_ref()).is_some()),
                (
                    "backup-location-config",
                    Map::merged(&self.backup_location_config).is_some(),
                ),
            ] {
                ensure!(
                    !is_given,
                    "Cannot use both --{flag} and --no-default-backup-location at the same time"
                );
            }
        } else {
            ensure!(provider.is_some(), "--provider is required");
            ensure!(bucket.is_some(), "--bucket is required");
        }
        if self.use_volume_snapshots {
            ensure!(
                provider.is_some(),
                "--provider is required when --use-volume-snapshots is set to true"
            );
        } else {
            ensure!(
                Map::merged(&self.snapshot_location_config).is_none(),
                "--snapshot-location-config must be empty when --use-volume-snapshots=false"
            );
        }
        let is_used = !self.no_default_backup_location || self.use_volume_snapshots;
        ensure!(
            is_used || provider.is_none(),
            "--provider must be empty when using --no-default-backup-location and --use-volume-snapshots=false"
        );
        if let Some(provider) = provider.filter(|_| !self.no_default_backup_location) {
            ensure!(
                has_plugins || is_built_in(provider),
                "--provider {provider}: not built in, and --plugins names no image; built in are \
                 aws, azure, filesystem and gcp"
            );
        }
        match (given(self.secret_file.as_ref()), self.no_secret) {
            (None, false) => bail!("One of --secret-file or --no-secret is required"),
            (Some(_), true) => bail!("Cannot use both --secret-file and --no-secret"),
            _ => Ok(()),
        }
    }
}

impl ServerArgs {
    fn check(&self) -> anyhow::Result<()> {
        match given(self.uploader_type.as_ref()).map(String::as_str) {
            None | Some("restic" | "kopia") => Ok(()),
            Some(other) => bail!("invalid uploader type '{other}', valid type: 'restic'"),
        }
    }

    /// What the pod asks for and may use.
    pub(super) fn resources(&self) -> anyhow::Result<Resources> {
        Resources::new(
            [&self.velero_pod_cpu_request, &self.velero_pod_mem_request],
            [&self.velero_pod_cpu_limit, &self.velero_pod_mem_limit],
        )
    }
}

impl NodeAgentArgs {
    /// What a pod asks for and may use.
    pub(super) fn resources(&self) -> anyhow::Result<Resources> {
        Resources::new(
            [
                &self.node_agent_pod_cpu_request,
                &self.node_agent_pod_mem_request,
            ],
            [
                &self.node_agent_pod_cpu_limit,
                &self.node_agent_pod_mem_limit,
            ],
        )
    }
}

/// CPU and memory, in this order; what is zero is left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resources {
    /// What is asked for.
    pub(super) requests: [Option<Quantity>; 2],
    /// What may be used.
    pub(super) limits: [Option<Quantity>; 2],
}

impl Resources {
    fn new(requests: [&str; 2], limits: [&str; 2]) -> anyhow::Result<Self> {
        let amount = |text: &str| -> anyhow::Result<Option<Quantity>> {
            let zero = Quantity::from_bytes(0);
            Ok(Some(text.parse::<Quantity>()?).filter(|amount| *amount != zero))
        };
        let both = |[cpu, memory]: [&str; 2]| anyhow::Ok([amount(cpu)?, amount(memory)?]);
        let (requests, limits) = (both(requests)?, both(limits)?);
        for (what, request, limit) in [
            ("CPU", requests[0], limits[0]),
            ("memory", requests[1], limits[1]),
        ] {
            if let (Some(request), Some(limit)) = (request, limit) {
                ensure!(
                    request <= limit,
                    "{what} request {request} must be less than or equal to {what} limit {limit}"
                );
            }
        }
        Ok(Self { requests, limits })
    }
}

/// A flag that says something.
pub(super) fn given<T: AsRef<std::ffi::OsStr> + ?Sized>(flag: Option<&T>) -> Option<&T> {
    flag.filter(|value| !value.as_ref().is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        install: Args,
    }

    fn parsed(line: &str) -> Args {
        let words = std::iter::once("install").chain(line.split_whitespace());
        Command::parse_from(words).install
    }

    #[test]
    fn mistakes_are_named_in_velero_s_words() {
        for (line, wanted) in [
            ("--provider aws --bucket b --no-secret", None),
            ("--provider velero.io/gcp --bucket b --secret-file f", None),
            (
                "--no-default-backup-location --use-volume-snapshots=false --no-secret",
                None,
            ),
            ("", Some("--provider is required")),
            ("--provider aws", Some("--bucket is required")),
            (
                "--provider aws --bucket=-b",
                Some("Bucket names cannot begin with a dash. Bucket name was: -b"),
            ),
            (
                "--provider swift --bucket b --no-secret",
                Some(
                    "--provider swift: not built in, and --plugins names no image; built in are \
                     aws, azure, filesystem and gcp",
                ),
            ),
            (
                "--provider swift --bucket b --no-secret --plugins acme/swift:v1",
                None,
            ),
            (
                "--provider aws --bucket b",
                Some("One of --secret-file or --no-secret is required"),
            ),
            (
                "--provider aws --bucket b --secret-file=",
                Some("One of --secret-file or --no-secret is required"),
            ),
            (
                "--provider aws --bucket b --secret-file f --no-secret",
                Some("Cannot use both --secret-file and --no-secret"),
            ),
            (
                "--provider aws --bucket b --no-default-backup-location",
                Some("Cannot use both --bucket and --no-default-backup-location at the same time"),
            ),
            (
                "--no-default-backup-location --backup-location-config a=b",
                Some(
                    "Cannot use both --backup-location-config and --no-default-backup-location at \
                     the same time",
                ),
            ),
            (
                "--no-default-backup-location --no-secret",
                Some("--provider is required when --use-volume-snapshots is set to true"),
            ),
            (
                "--provider aws --bucket b --use-volume-snapshots=false --snapshot-location-config a=b",
                Some("--snapshot-location-config must be empty when --use-volume-snapshots=false"),
            ),
            (
                "--no-default-backup-location --use-volume-snapshots=false --provider aws",
                Some(
                    "--provider must be empty when using --no-default-backup-location and \
                     --use-volume-snapshots=false",
                ),
            ),
            (
                "--provider aws --bucket b --no-secret --default-volumes-to-fs-backup",
                Some("--use-node-agent is required when using --default-volumes-to-fs-backup"),
            ),
            (
                "--provider aws --bucket b --no-secret --uploader-type rsync",
                Some("invalid uploader type 'rsync', valid type: 'restic'"),
            ),
            (
                "--provider aws --bucket b --no-secret --velero-pod-cpu-request 2",
                Some("CPU request 2 must be less than or equal to CPU limit 1"),
            ),
            (
                "--provider aws --bucket b --no-secret --node-agent-pod-mem-limit lots",
                Some(
                    "invalid quantity \"lots\": expected a number with an optional suffix, such as \
                     \"10Gi\" or \"500m\"",
                ),
            ),
            (
                "--provider aws --bucket b --no-secret --use-node-agent-windows",
                Some("--use-node-agent-windows: there is no node agent for Windows"),
            ),
        ] {
            let found = parsed(line).check().err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn flags_without_work_to_do_are_said_to_be() {
        for (line, wanted) in [
            ("", vec![]),
            ("--plugins velero/velero-plugin-for-aws:v1.14.3", vec![]),
            (
                "--uploader-type kopia",
                vec![
                    "--uploader-type kopia is accepted; new volume data is written in restic's format",
                ],
            ),
            (
                "--maintenance-job-cpu-limit 1",
                vec!["--maintenance-job-cpu-limit has no effect: maintenance runs in the server"],
            ),
        ] {
            assert_eq!(parsed(line).remarks(&[]), wanted, "{line}");
        }
        let csi = [FEATURE_CSI.to_owned()];
        let idle = "--default-snapshot-move-data moves nothing without --use-node-agent and --features EnableCSI";
        for (line, features, wanted) in [
            (
                "--default-snapshot-move-data --use-node-agent",
                &csi[..],
                vec![],
            ),
            (
                "--default-snapshot-move-data --use-node-agent",
                &[],
                vec![idle],
            ),
            ("--default-snapshot-move-data", &csi, vec![idle]),
        ] {
            assert_eq!(parsed(line).remarks(features), wanted, "{line}");
        }
    }
}
