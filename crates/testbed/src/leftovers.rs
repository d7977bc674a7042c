//! What a bed could leave behind on this machine, before and after.

use std::{collections::BTreeSet, fs, process::Command};

/// Mounts, loop devices, links, firewall rules, cgroups, kernel settings and processes at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    lines: BTreeSet<String>,
}

impl Snapshot {
    /// Looks around. Of processes, those count that a bed is made of.
    #[must_use]
    pub fn take() -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |kind: &str, line: &str| {
            lines.insert(format!("{kind}: {}", line.trim()));
        };
        for mount in fs::read_to_string("/proc/mounts")
            .unwrap_or_default()
            .lines()
        {
            add("mount", mount);
        }
        for device in names("/sys/block") {
            // Only one that is in use has it.
            let file = format!("/sys/block/{device}/loop/backing_file");
            if let Ok(file) = fs::read_to_string(file) {
                add("loop", &format!("{device} {}", file.trim()));
            }
        }
        for link in names("/sys/class/net") {
            add("link", &link);
        }
        for rule in run("iptables-save", &[])
            .lines()
            .filter(|l| l.starts_with(['-', ':']))
        {
            // Counters differ from one moment to the next.
            add("rule", rule.split(" [").next().unwrap_or(rule));
        }
        for hierarchy in names("/sys/fs/cgroup") {
            for group in names(&format!("/sys/fs/cgroup/{hierarchy}")) {
                if fs::metadata(format!("/sys/fs/cgroup/{hierarchy}/{group}"))
                    .is_ok_and(|m| m.is_dir())
                {
                    add("cgroup", &format!("{hierarchy}/{group}"));
                }
            }
        }
        for folder in [
            "/var/lib",
            "/var/run",
            "/opt",
            "/etc",
            "/usr/libexec",
            "/run/netns",
            "/var/log",
        ] {
            for name in names(folder) {
                add("entry", &format!("{folder}/{name}"));
            }
        }
        for setting in [
            "vm/overcommit_memory",
            "kernel/panic",
            "kernel/panic_on_oops",
        ] {
            let value = fs::read_to_string(format!("/proc/sys/{setting}")).unwrap_or_default();
            add("sysctl", &format!("{setting}={value}"));
        }
        for pid in names("/proc")
            .iter()
            .filter(|name| name.parse::<u32>().is_ok())
        {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let is_zombie = state
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('Z'));
            if PROCESSES.iter().any(|p| name.trim().starts_with(p)) && !is_zombie {
                add("process", &format!("{} {pid}", name.trim()));
            }
        }
        Self { lines }
    }

    /// What is there now and was not before.
    #[must_use]
    pub fn added_since(&self, before: &Self) -> Vec<String> {
        self.lines.difference(&before.lines).cloned().collect()
    }

    /// How many of each kind.
    #[must_use]
    pub fn counts(&self) -> String {
        let count = |kind: &str| self.lines.iter().filter(|l| l.starts_with(kind)).count();
        [
            ("mount", "mounts"),
            ("loop", "loop devices"),
            ("link", "links"),
            ("rule", "firewall rules"),
            ("cgroup", "cgroups"),
            ("entry", "entries in system folders"),
            ("sysctl", "kernel settings"),
            ("process", "processes"),
        ]
        .map(|(kind, words)| format!("{} {words}", count(&format!("{kind}: "))))
        .join(", ")
    }
}

/// Names of processes, as far as the kernel keeps them.
const PROCESSES: &[&str] = &[
    "azurite",
    "csi-",
    "etcd",
    "kube-",
    "kubelet",
    "kubectl",
    "containerd",
    "snapshot-contro",
    "versitygw",
    "velero",
    "restic",
    "nsenter",
    "unshare",
];

fn names(folder: &str) -> Vec<String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

fn run(program: &str, args: &[&str]) -> String {
    crate::requirements::find(program)
        .and_then(|path| Command::new(path).args(args).output().ok())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}
