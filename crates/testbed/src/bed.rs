//! A cluster made of real programs: started, found again, ended.
//!
//! A bed is a folder under the cache: `bed.json` says what runs, `pki` holds its keys, `log` a file
//! per program. An API-only bed is etcd, the API server, its controllers and S3 on free ports of
//! loopback; any number run side by side. A node bed adds a scheduler, a node that runs pods and
//! [`csi`](crate::csi), in a [`machine`] of its own; a machine-wide lock says who has it.

mod start;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, Serialize};
use start::Starter;
pub(crate) use start::free_ports;

use crate::{
    Cache, Process, Say, build,
    image::Image,
    lock::{self, Holder, NodeLock},
    loops,
    machine::{self, Machine},
    pki, requirements, wait_for,
};

/// The name of the one node.
pub const NODE: &str = "bed-node";
/// The kubelet's folder of pods, for whoever sees the node's mounts.
pub const PODS: &str = "/var/lib/kubelet/pods";
/// An image with a shell and the usual tools, for pods of scenarios.
pub const BUSYBOX: &str = "bed.local/busybox:1";

/// How much of a cluster a bed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Our own embedded API server in the place of all of Kubernetes; no pods run.
    Embedded,
    /// The API and its controllers; no pods run.
    Api,
    /// All of it, with one node.
    Node,
}

/// The bed's object store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct S3 {
    /// The address, for this machine and for pods.
    pub endpoint: String,
    /// The key's id.
    pub access_key: String,
    /// The key.
    pub secret_key: String,
    /// Where the buckets are, a folder each.
    pub folder: PathBuf,
}

/// A bucket of the bed.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// The store it is in.
    pub s3: S3,
}

impl Bucket {
    /// Where its objects are on this machine, a file each.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.s3.folder.join(&self.name)
    }

    /// Its credentials in the form of an AWS profile file.
    #[must_use]
    pub fn credentials(&self) -> String {
        format!(
            "[default]\naws_access_key_id={}\naws_secret_access_key={}\n",
            self.s3.access_key, self.s3.secret_key
        )
    }
}

/// A running bed.
#[derive(Clone)]
pub struct Bed {
    cache: Cache,
    folder: PathBuf,
    state: State,
    client: Client,
}

/// What `bed.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    mode: Mode,
    server: String,
    s3: S3,
    /// The program that the bed is for; none if it is to stay by itself.
    owner: Option<Process>,
    machine: Option<Machine>,
    processes: Vec<Process>,
}

/// What `status` tells of a bed.
#[derive(Debug)]
pub struct Status {
    /// The bed's folder.
    pub folder: PathBuf,
    /// The API server's address and the kubeconfig to reach it with.
    pub server: String,
    /// The object store's address.
    pub s3: String,
    /// The processes and whether they run.
    pub processes: Vec<(Process, bool)>,
}

impl Bed {
    /// Builds what is missing and starts a bed. With an `owner`, the bed counts as abandoned once
    /// that process is gone.
    pub async fn up(
        cache: &Cache,
        mode: Mode,
        owner: Option<Process>,
        say: Say<'_>,
    ) -> anyhow::Result<Self> {
        if mode == Mode::Node {
            requirements::node()?;
        }
        build::all(cache, say)?;
        sweep(cache, say).await?;
        match mode {
            Mode::Api | Mode::Embedded => {
                let id = uuid::Uuid::new_v4().simple().to_string();
                let folder = cache.beds().join(format!("api-{}", &id[..8]));
                let starter = Starter::new(cache, &folder, owner)?;
                let bed = match mode {
                    Mode::Embedded => starter.embedded_bed().await,
                    _ => starter.api_bed().await,
                };
                if bed.is_err() {
                    end_api_bed(&folder).await?;
                }
                bed
            }
            Mode::Node => Self::up_node(cache, owner, say).await,
        }
    }

    async fn up_node(cache: &Cache, owner: Option<Process>, say: Say<'_>) -> anyhow::Result<Self> {
        let mut lock = NodeLock::open(&NodeLock::path())?;
        let folder = cache.beds().join("node");
        if let Some(stale) = lock.stale()? {
            say(&format!(
                "cleaning up after the abandoned bed in {}",
                stale.bed.display()
            ));
            end_node_bed(&stale.bed).await?;
        }
        end_node_bed(&folder).await?;
        let mut holder = Holder {
            bed: folder.clone(),
            since: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
            owner: owner.clone(),
            keeper: Process::me()?,
        };
        lock.set(&holder)?;
        let bed = match Starter::new(cache, &folder, owner) {
            Ok(starter) => starter.node_bed().await,
            Err(error) => Err(error),
        };
        match bed {
            Ok(bed) => {
                if let Some(machine) = &bed.state.machine {
                    holder.keeper = machine.init().clone();
                }
                lock.set(&holder)?;
                Ok(bed)
            }
            Err(error) => {
                end_node_bed(&folder).await?;
                lock.clear()?;
                Err(error)
            }
        }
    }

    /// Ends the bed and removes all that belongs to it.
    pub async fn down(self) -> anyhow::Result<()> {
        end(&self.folder, self.state.mode).await
    }

    /// How much of a cluster it is.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.state.mode
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client to which every refusal is an answer, also one that asks to try again.
    pub async fn blunt_client(&self) -> anyhow::Result<Client> {
        let config = Kubeconfig::read_from(self.kubeconfig())?;
        let mut config =
            Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// The bed's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cache it was started from.
    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The kubeconfig of its administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(&self.folder)
    }

    /// Its object store.
    #[must_use]
    pub fn s3(&self) -> &S3 {
        &self.state.s3
    }

    /// A new bucket.
    pub fn bucket(&self, name: &str) -> anyhow::Result<Bucket> {
        let bucket = Bucket {
            name: name.to_owned(),
            s3: self.state.s3.clone(),
        };
        fs::create_dir_all(bucket.folder())?;
        Ok(bucket)
    }

    /// One of the built programs as a command, with the bed's kubeconfig.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.cache.program(name));
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.folder.join("kubectl-cache"))
            .env("NO_PROXY", "*");
        command
    }

    /// The bed's own processes.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.state.processes
    }

    /// One of the bed's own processes, by name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes().iter().find(|p| p.name == name)
    }

    /// One of the bed's own processes that runs now, also one that was started later.
    pub(crate) fn running(&self, name: &str) -> Option<Process> {
        let state = State::read(&self.folder)?;
        let mut processes = state.processes.into_iter();
        processes.find(|p| p.name == name && p.is_alive())
    }

    /// Starts one of the built programs as a part of the bed, so that it ends with the bed.
    pub(crate) async fn start(&self, name: &str, args: &[String]) -> anyhow::Result<Process> {
        let mut state = State::read(&self.folder).context("the bed is gone")?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = self.cache.program(name);
        state.start(&self.folder, name, &program, &args, &[]).await
    }

    /// The same bed with all that was started later.
    fn again(self) -> anyhow::Result<Self> {
        let state = State::read(&self.folder).context("the bed is gone")?;
        Ok(Self { state, ..self })
    }

    /// A built program's file.
    pub(crate) fn program_file(&self, name: &str) -> PathBuf {
        self.cache.program(name)
    }

    /// Makes an image and gives it to the node.
    pub(crate) fn import(&self, image: &Image) -> anyhow::Result<()> {
        import(self.machine()?, &self.folder, image)
    }

    /// Gives the node an image that is in an archive.
    pub fn import_archive(&self, archive: &Path) -> anyhow::Result<()> {
        import_archive(self.machine()?, archive)
    }

    /// Starts a command where it sees what the node has mounted; its network is this machine's.
    pub(crate) async fn start_on_node(
        &self,
        name: &str,
        command: &Command,
        log: &Path,
    ) -> anyhow::Result<Process> {
        let machine = self.machine()?;
        machine
            .start_process(name, machine.mounted(command), log)
            .await
    }

    /// Runs a command on the node, and gives its output.
    pub(crate) fn run_on_node(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        self.machine()?.run(program, args)
    }

    /// Where this machine sees the node's root, with what is mounted there.
    pub(crate) fn node_root(&self) -> anyhow::Result<PathBuf> {
        let init = self.machine()?.init().pid;
        Ok(PathBuf::from(format!("/proc/{init}/root")))
    }

    fn machine(&self) -> anyhow::Result<&Machine> {
        let machine = self.state.machine.as_ref();
        machine.context("this bed has no node")
    }

    /// The folder of a pod on the node, as this machine sees it: without what is mounted in it.
    pub fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.join("kubelet/pods").join(uid)
    }

    /// The log files, for whoever wants to know why.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// Our own program, which cargo puts beside the one that runs this.
pub(crate) fn bowline() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("bowline"))
}

/// An example of one of our crates, which cargo puts into a folder beside.
pub(crate) fn example(name: &str) -> anyhow::Result<PathBuf> {
    let folder = std::env::current_exe()?.with_file_name("examples");
    Ok(folder.join(name))
}

/// Ends every bed of this machine that this user has, or only those of an owner; says which.
pub async fn down_all(cache: &Cache, owner: Option<&Process>, say: Say<'_>) -> anyhow::Result<()> {
    let mut beds: Vec<(PathBuf, Mode, Option<Process>)> = bed_folders(cache)?
        .into_iter()
        .map(|folder| match State::read(&folder) {
            Some(state) => (folder, state.mode, state.owner),
            None => (folder, Mode::Api, None),
        })
        .filter(|(_, mode, _)| *mode != Mode::Node)
        .collect();
    // The lock knows the node bed even if its start was cut off, or it is in another cache folder.
    if let Some(holder) = lock::holder() {
        beds.push((holder.bed, Mode::Node, holder.owner));
    }
    for (folder, mode, of) in beds {
        if owner.is_none() || of.as_ref() == owner {
            end(&folder, mode).await?;
            say(&format!("ended {}", folder.display()));
        }
    }
    Ok(())
}

/// Every bed of this cache and what runs of it.
pub fn status(cache: &Cache) -> anyhow::Result<Vec<Status>> {
    let folders = bed_folders(cache)?;
    let known = folders.into_iter().filter_map(|folder| {
        let state = State::read(&folder)?;
        Some(Status {
            server: state.server,
            s3: state.s3.endpoint,
            processes: state
                .processes
                .into_iter()
                .map(|process| {
                    let alive = process.is_alive();
                    (process, alive)
                })
                .collect(),
            folder,
        })
    });
    Ok(known.collect())
}

/// Ends API-only beds whose owner is gone.
async fn sweep(cache: &Cache, say: Say<'_>) -> anyhow::Result<()> {
    for folder in bed_folders(cache)? {
        let Some(state) = State::read(&folder) else {
            continue;
        };
        if state.mode != Mode::Node && state.owner.is_some_and(|owner| !owner.is_alive()) {
            say(&format!(
                "cleaning up after the abandoned bed in {}",
                folder.display()
            ));
            end_api_bed(&folder).await?;
        }
    }
    Ok(())
}

async fn end(folder: &Path, mode: Mode) -> anyhow::Result<()> {
    match mode {
        Mode::Api | Mode::Embedded => end_api_bed(folder).await,
        Mode::Node => {
            let mut lock = NodeLock::open(&NodeLock::path())?;
            end_node_bed(folder).await?;
            if lock.holder()?.is_some_and(|holder| holder.bed == folder) {
                lock.clear()?;
            }
            Ok(())
        }
    }
}

async fn end_api_bed(folder: &Path) -> anyhow::Result<()> {
    for process in State::read(folder)
        .iter()
        .flat_map(|s| s.processes.iter().rev())
    {
        process.kill().await?;
    }
    loops::detach(folder).await?;
    remove(folder).await
}

async fn end_node_bed(folder: &Path) -> anyhow::Result<()> {
    machine::end(folder).await?;
    loops::detach(folder).await?;
    remove(folder).await
}

/// Removes a bed's folder; the kernel may need a moment to let go of it.
async fn remove(folder: &Path) -> anyhow::Result<()> {
    wait_for(
        "the bed's folder to go",
        Duration::from_secs(20),
        async || match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", folder.display()))
            }
            _ => Ok(Some(())),
        },
    )
    .await
}

fn bed_folders(cache: &Cache) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = fs::read_dir(cache.beds())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    Ok(folders)
}

fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("kubeconfig")
}

pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    // The first caller in a process decides; they all say the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn import(machine: &Machine, folder: &Path, image: &Image) -> anyhow::Result<()> {
    let archive = folder.join("image.tar");
    image.write(&archive)?;
    import_archive(machine, &archive)?;
    fs::remove_file(archive)?;
    Ok(())
}

fn import_archive(machine: &Machine, archive: &Path) -> anyhow::Result<()> {
    let archive = archive.to_string_lossy();
    machine.run("ctr", &["-n", "k8s.io", "images", "import", &archive])?;
    Ok(())
}

impl State {
    fn file(folder: &Path) -> PathBuf {
        folder.join("bed.json")
    }

    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::file(folder)).ok()?).ok()
    }

    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        pki::write_private(&Self::file(folder), &serde_json::to_string_pretty(self)?)
    }

    /// Starts a program of the bed where the bed lives, and writes it down.
    async fn start(
        &mut self,
        folder: &Path,
        name: &str,
        program: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Process> {
        let log = folder.join("log").join(format!("{name}.log"));
        let mut command = match &self.machine {
            Some(machine) => machine.command(program),
            None => Command::new(program),
        };
        command
            .args(args)
            .envs(env.iter().copied())
            .env("NO_PROXY", "*");
        let process = match &self.machine {
            Some(machine) => machine.start_process(name, command, &log).await?,
            None => Process::start(name, command, &log)?,
        };
        self.processes.push(process.clone());
        self.write(folder)?;
        Ok(process)
    }
}
