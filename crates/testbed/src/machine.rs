//! The machine inside the machine that a node bed lives in.
//!
//! kubelet, containerd and kube-proxy leave mounts, links, firewall rules and orphans behind. Here
//! they do so in network, mount and process namespaces of their own, as in a container: when
//! process 1 of those ends, the kernel ends every other process in them, and the mounts, links and
//! rules go with them. Outside there are just a veth link to reach it, one cgroup, two mount points
//! and a few sysctls; those are put back by hand, and could be by name alone if a start was cut off
//! in the middle.
//!
//! ```text
//!   this machine                       namespaces of the bed
//!   bowline0 10.244.255.1 ◀── veth ──▶ eth0 10.244.255.2   API server, S3, kubelet
//!                                      cni0 10.244.0.1     pods
//! ```

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::{Process, process, wait_for};

/// Where the bed's API server and S3 are, for this machine and for pods.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 255, 2);
/// Where this machine is, for itself and for pods.
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 244, 255, 1);
const LINK: &str = "bowline0";
const CGROUP: &str = "bowline-bed";
/// Folders that kubelet and its friends insist on; the bed's own are mounted over them.
const MOUNT_POINTS: [&str; 2] = ["/var/lib/kubelet", "/var/lib/cni"];
/// What kubelet sets for the whole kernel.
const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Process 1: sets the stage, says so, then waits on whatever becomes its child.
const INIT: &str = r#"set -e
mount --make-rshared /
mount -t tmpfs -o mode=755 bed /run
mkdir -p /run/lock /run/netns
mount -t tmpfs -o mode=755 bed /var/log
mount --bind "$BED/kubelet" /var/lib/kubelet
mount --bind "$BED/cni-state" /var/lib/cni
ip link set lo up
echo ready
while :; do sleep 600 & wait; done
"#;

/// The namespaces of a bed, by their process 1.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    init: Process,
}

/// What was there before, in the bed's folder from before the first change until after the last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Before {
    /// Mount points that had to be made.
    made: Vec<PathBuf>,
    /// Kernel settings as they were.
    sysctls: BTreeMap<String, String>,
}

impl Machine {
    /// Makes the namespaces for the bed in `folder`.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        if ["/run/", "/var/log/", "/var/lib/kubelet/"]
            .iter()
            .any(|hidden| folder.starts_with(hidden))
        {
            bail!(
                "the cache folder is in {}, which a node bed hides from itself",
                folder.display()
            );
        }
        let made: Vec<PathBuf> = MOUNT_POINTS
            .iter()
            .map(PathBuf::from)
            .filter(|point| !point.exists())
            .collect();
        let sysctls = SYSCTLS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), read_sysctl(name)?)))
            .collect();
        let before = Before { made, sysctls };
        fs::write(before_file(folder), serde_json::to_vec_pretty(&before)?)?;
        for point in &before.made {
            fs::create_dir_all(point)?;
        }
        for own in ["kubelet", "cni-state"] {
            fs::create_dir_all(folder.join(own))?;
        }
        let init = Self::start_init(folder).await?;
        let machine = Self { init };
        machine.link().await?;
        Ok(machine)
    }

    /// Starts process 1, in the bed's cgroup from its first instruction.
    async fn start_init(folder: &Path) -> anyhow::Result<Process> {
        make_cgroups()?;
        let procs = init_cgroup().join("cgroup.procs");
        let log = folder.join("log/machine.log");
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ >"$0" && exec unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private sh -c "$1""#])
            .arg(&procs)
            .arg(INIT)
            .env("BED", folder);
        let outer = Process::start("machine", command, &log)?;
        wait_for(
            "the bed's namespaces",
            Duration::from_secs(20),
            async || {
                outer.check()?;
                Ok(fs::read_to_string(&log)?.contains("ready").then_some(()))
            },
        )
        .await?;
        let pid = process::child_of(outer.pid).context("the bed's namespaces have no process 1")?;
        Process::of("machine", pid, &log)
    }

    /// Links the namespaces with this machine.
    async fn link(&self) -> anyhow::Result<()> {
        let pid = self.init.pid.to_string();
        ip(&[
            "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ])?;
        ip(&["addr", "add", &format!("{OUTSIDE}/30"), "dev", LINK])?;
        ip(&["link", "set", LINK, "up"])?;
        self.run(
            "ip",
            &["addr", "add", &format!("{ADDRESS}/30"), "dev", "eth0"],
        )?;
        self.run("ip", &["link", "set", "eth0", "up"])?;
        self.run(
            "ip",
            &["route", "add", "default", "via", &OUTSIDE.to_string()],
        )?;
        Ok(())
    }

    pub(crate) fn init(&self) -> &Process {
        &self.init
    }

    /// A command that runs inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "--target",
                &self.init.pid.to_string(),
                "--net",
                "--mount",
                "--pid",
                "--",
            ])
            .arg(program);
        command
    }

    /// The same command among the mounts and processes inside, but with this machine's network.
    pub(crate) fn mounted(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside
            .args(["--target", &self.init.pid.to_string(), "--mount", "--pid"])
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Runs a command inside and gives its output.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        output(self.command(program).args(args))
    }

    /// Starts a process inside. What is known of it is the program itself, not `nsenter` around it.
    pub(crate) async fn start_process(
        &self,
        name: &str,
        command: Command,
        log: &Path,
    ) -> anyhow::Result<Process> {
        let outer = Process::start(name, command, log)?;
        let inner = wait_for(
            &format!("{name} to start"),
            Duration::from_secs(20),
            async || {
                outer.check()?;
                Ok(process::child_of(outer.pid))
            },
        )
        .await?;
        Process::of(name, inner, log)
    }
}

/// Ends everything of the bed in `folder` that is not a file in it: by what it wrote down, and by
/// the names it uses. Safe to call again, and after a start that was cut off.
pub(crate) async fn end(folder: &Path) -> anyhow::Result<()> {
    end_cgroups().await?;
    if Path::new("/sys/class/net").join(LINK).exists() {
        // It goes with its other end, but the kernel takes its time.
        let _ = ip(&["link", "del", LINK]);
    }
    let Ok(text) = fs::read(before_file(folder)) else {
        return Ok(());
    };
    let before: Before = serde_json::from_slice(&text)?;
    for (name, value) in &before.sysctls {
        if read_sysctl(name).as_ref() != Some(value) {
            fs::write(Path::new("/proc/sys").join(name), value)
                .with_context(|| format!("set sysctl {name} back"))?;
        }
    }
    for point in &before.made {
        match fs::remove_dir(point) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", point.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn before_file(folder: &Path) -> PathBuf {
    folder.join("before.json")
}

fn read_sysctl(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    Some(text.trim().to_owned())
}

fn ip(args: &[&str]) -> anyhow::Result<String> {
    output(Command::new("ip").args(args))
}

/// Runs a command to its end and gives its output, or its complaint as an error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("run {}", command.get_program().display()))?;
    if !output.status.success() {
        let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        bail!(
            "{} {} failed: {}",
            command.get_program().display(),
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The bed's cgroup in every hierarchy; with cgroup v2 there is one.
fn cgroups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.join(CGROUP)];
    }
    let mut found: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        // Some hierarchies have a second name that is a link to the first.
        .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
        .map(|entry| entry.path().join(CGROUP))
        .collect();
    found.sort();
    found
}

/// Where process 1 is put; its children stay with it.
fn init_cgroup() -> PathBuf {
    let all = cgroups();
    let pids = all
        .iter()
        .find(|path| path.starts_with("/sys/fs/cgroup/pids"));
    let chosen = pids.or_else(|| all.first()).cloned().unwrap_or_default();
    chosen.join("init")
}

fn make_cgroups() -> anyhow::Result<()> {
    for cgroup in cgroups() {
        fs::create_dir_all(&cgroup)
            .with_context(|| format!("create cgroup {}", cgroup.display()))?;
        // A new cpuset is empty and takes no process.
        for setting in ["cpuset.cpus", "cpuset.mems"] {
            let own = cgroup.join(setting);
            let above = Path::new("/sys/fs/cgroup/cpuset").join(setting);
            if own.exists() && above.exists() {
                fs::write(own, fs::read(above)?)?;
            }
        }
    }
    fs::create_dir_all(init_cgroup())?;
    Ok(())
}

/// Ends every process in the bed's cgroups and removes them.
async fn end_cgroups() -> anyhow::Result<()> {
    wait_for(
        "the bed's processes to end",
        Duration::from_secs(30),
        async || {
            let mut left = 0;
            for folder in cgroups().iter().flat_map(|cgroup| folders(cgroup)) {
                let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
                for pid in procs
                    .lines()
                    .filter_map(|line| Pid::from_raw(line.parse().ok()?))
                {
                    left += 1;
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Ok((left == 0).then_some(()))
        },
    )
    .await?;
    wait_for(
        "the bed's cgroups to go",
        Duration::from_secs(30),
        async || {
            for folder in cgroups().iter().flat_map(|cgroup| folders(cgroup)) {
                fs::remove_dir(&folder)
                    .with_context(|| format!("remove cgroup {}", folder.display()))?;
            }
            Ok(Some(()))
        },
    )
    .await
}

/// A folder and all below it, the deepest first; nothing if it is not there.
fn folders(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(top) else {
        return found;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(folders(&entry.path()));
        }
    }
    found.push(top.to_owned());
    found
}
