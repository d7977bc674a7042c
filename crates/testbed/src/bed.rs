//! A cluster made of real programs: started, found again, ended.
//!
//! A bed is a folder under the cache: `bed.json` says what runs, `pki` holds its keys, `log` a file
//! per program. An API-only bed is etcd, the API server, its controllers and S3 on free ports of
//! loopback; any number run side by side. A node bed adds a scheduler and a node that runs pods, in
//! a [`machine`] of its own; a machine-wide lock says who has it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Cache, Process, Say, build,
    image::Image,
    lock::{self, Holder, NodeLock},
    machine::{self, Machine},
    pki::{self, Pki},
    requirements, wait_for,
};

/// The name of the one node.
pub const NODE: &str = "bed-node";
/// An image with a shell and the usual tools, for pods of scenarios.
pub const BUSYBOX: &str = "bed.local/busybox:1";
const PAUSE: &str = "bed.local/pause:1";

/// How much of a cluster a bed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
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
            Mode::Api => {
                let id = uuid::Uuid::new_v4().simple().to_string();
                let folder = cache.beds().join(format!("api-{}", &id[..8]));
                let bed = Starter::new(cache, &folder, owner)?.api_bed().await;
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

    /// Finds a running bed again.
    pub async fn attach(cache: &Cache, mode: Mode) -> anyhow::Result<Self> {
        for folder in bed_folders(cache)? {
            let Some(state) = State::read(&folder) else {
                continue;
            };
            if state.mode == mode && state.processes.iter().all(Process::is_alive) {
                return Ok(Self {
                    cache: cache.clone(),
                    client: client(&kubeconfig(&folder)).await?,
                    folder,
                    state,
                });
            }
        }
        bail!("no such bed runs; `cargo xtask bed up` starts one")
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

    /// The bed's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
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

    /// One of the bed's own processes, by name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.state.processes.iter().find(|p| p.name == name)
    }

    /// A built program's file.
    pub(crate) fn program_file(&self, name: &str) -> PathBuf {
        self.cache.program(name)
    }

    /// Makes an image and gives it to the node.
    pub(crate) fn import(&self, image: &Image) -> anyhow::Result<()> {
        let machine = self
            .state
            .machine
            .as_ref()
            .context("an API-only bed takes no images")?;
        import(machine, &self.folder, image)
    }

    /// The log files, for whoever wants to know why.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// Ends every bed of this machine that this user has, or only those of an owner; says which.
pub async fn down_all(cache: &Cache, owner: Option<&Process>, say: Say<'_>) -> anyhow::Result<()> {
    let mut beds: Vec<(PathBuf, Mode, Option<Process>)> = bed_folders(cache)?
        .into_iter()
        .map(|folder| match State::read(&folder) {
            Some(state) => (folder, state.mode, state.owner),
            None => (folder, Mode::Api, None),
        })
        .filter(|(_, mode, _)| *mode == Mode::Api)
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
        if state.mode == Mode::Api && state.owner.is_some_and(|owner| !owner.is_alive()) {
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
        Mode::Api => end_api_bed(folder).await,
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
    remove(folder).await
}

async fn end_node_bed(folder: &Path) -> anyhow::Result<()> {
    machine::end(folder).await?;
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
    machine.run(
        "ctr",
        &[
            "-n",
            "k8s.io",
            "images",
            "import",
            &archive.to_string_lossy(),
        ],
    )?;
    fs::remove_file(archive)?;
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
}

/// Starts a bed step by step; what runs is written down as soon as it does.
struct Starter<'a> {
    cache: &'a Cache,
    folder: PathBuf,
    state: State,
    token: String,
}

impl<'a> Starter<'a> {
    fn new(cache: &'a Cache, folder: &Path, owner: Option<Process>) -> anyhow::Result<Self> {
        for part in ["log", "s3", "cni"] {
            fs::create_dir_all(folder.join(part))?;
        }
        Ok(Self {
            cache,
            folder: folder.to_owned(),
            state: State {
                mode: Mode::Api,
                server: String::new(),
                s3: S3 {
                    endpoint: String::new(),
                    access_key: pki::random_token()[..20].to_owned(),
                    secret_key: pki::random_token(),
                    folder: folder.join("s3"),
                },
                owner,
                machine: None,
                processes: Vec::new(),
            },
            token: pki::random_token(),
        })
    }

    async fn api_bed(mut self) -> anyhow::Result<Bed> {
        let [etcd, etcd_peer, api, s3] = free_ports()?;
        let here = Ipv4Addr::LOCALHOST;
        let pki = self.prepare(here, api, s3)?;
        self.etcd(etcd, etcd_peer).await?;
        self.api_server(
            &pki,
            here,
            api,
            etcd,
            &["--endpoint-reconciler-type", "none"],
        )
        .await?;
        self.s3(here, s3).await?;
        let client = self.api_ready().await?;
        self.controllers(&pki).await?;
        self.accounts_ready(&client).await?;
        Ok(self.bed(client))
    }

    async fn node_bed(mut self) -> anyhow::Result<Bed> {
        let here = machine::ADDRESS;
        self.state.mode = Mode::Node;
        self.state.machine = Some(Machine::start(&self.folder).await?);
        let pki = self.prepare(here, 6443, 7070)?;
        self.etcd(2379, 2380).await?;
        self.api_server(&pki, here, 6443, 2379, &[]).await?;
        self.s3(here, 7070).await?;
        self.containerd().await?;
        let client = self.api_ready().await?;
        self.controllers(&pki).await?;
        let config = kubeconfig(&self.folder);
        self.start(
            "kube-scheduler",
            &[
                "--kubeconfig",
                &text(&config),
                "--leader-elect=false",
                "--secure-port=0",
            ],
        )
        .await?;
        self.kubelet(&pki, here).await?;
        self.proxy().await?;
        self.node_ready(&client).await?;
        self.accounts_ready(&client).await?;
        Ok(self.bed(client))
    }

    fn bed(self, client: Client) -> Bed {
        Bed {
            cache: self.cache.clone(),
            folder: self.folder,
            state: self.state,
            client,
        }
    }

    /// Addresses, keys and the kubeconfig.
    fn prepare(&mut self, here: Ipv4Addr, api: u16, s3: u16) -> anyhow::Result<Pki> {
        self.state.server = format!("https://{here}:{api}");
        self.state.s3.endpoint = format!("http://{here}:{s3}");
        self.state.write(&self.folder)?;
        let pki = Pki::make(&self.folder.join("pki"), IpAddr::V4(here), &self.token)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bed",
            "clusters": [{ "name": "bed", "cluster": {
                "server": self.state.server,
                "certificate-authority": pki.file("ca.crt"),
            } }],
            "contexts": [{ "name": "bed", "context": { "cluster": "bed", "user": "admin" } }],
            "users": [{ "name": "admin", "user": { "token": self.token } }],
        });
        pki::write_private(
            &kubeconfig(&self.folder),
            &serde_json::to_string_pretty(&config)?,
        )?;
        Ok(pki)
    }

    /// Starts one of the built programs.
    async fn start(&mut self, name: &str, args: &[&str]) -> anyhow::Result<()> {
        self.start_with(name, self.cache.program(name), args, &[])
            .await
    }

    async fn start_with(
        &mut self,
        name: &str,
        program: PathBuf,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let log = self.folder.join("log").join(format!("{name}.log"));
        let mut command = match &self.state.machine {
            Some(machine) => machine.command(&program),
            None => Command::new(&program),
        };
        command
            .args(args)
            .envs(env.iter().copied())
            .env("NO_PROXY", "*");
        let process = match &self.state.machine {
            Some(machine) => machine.start_process(name, command, &log).await?,
            None => Process::start(name, command, &log)?,
        };
        self.state.processes.push(process);
        self.state.write(&self.folder)
    }

    /// Fails if a process of the bed is gone, with the end of its log.
    fn check(&self) -> anyhow::Result<()> {
        self.state.processes.iter().try_for_each(Process::check)
    }

    async fn etcd(&mut self, port: u16, peer_port: u16) -> anyhow::Result<()> {
        let data = self.folder.join("etcd");
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        self.start(
            "etcd",
            &[
                "--data-dir",
                &text(&data),
                "--unsafe-no-fsync",
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &format!("default={peer}"),
                "--quota-backend-bytes",
                "8589934592",
                "--log-level",
                "warn",
            ],
        )
        .await
    }

    async fn api_server(
        &mut self,
        pki: &Pki,
        here: Ipv4Addr,
        port: u16,
        etcd: u16,
        more: &[&str],
    ) -> anyhow::Result<()> {
        let file = |name: &str| text(&pki.file(name));
        let args = [
            ("--etcd-servers", format!("http://127.0.0.1:{etcd}")),
            ("--secure-port", port.to_string()),
            ("--bind-address", here.to_string()),
            ("--advertise-address", here.to_string()),
            ("--tls-cert-file", file("apiserver.crt")),
            ("--tls-private-key-file", file("apiserver.key")),
            ("--client-ca-file", file("ca.crt")),
            ("--kubelet-client-certificate", file("kubelet-client.crt")),
            ("--kubelet-client-key", file("kubelet-client.key")),
            ("--kubelet-certificate-authority", file("ca.crt")),
            ("--kubelet-preferred-address-types", "InternalIP".into()),
            ("--service-account-key-file", file("sa.pub")),
            ("--service-account-signing-key-file", file("sa.key")),
            (
                "--service-account-issuer",
                "https://kubernetes.default.svc".into(),
            ),
            ("--token-auth-file", file("tokens.csv")),
            ("--authorization-mode", "Node,RBAC".into()),
            ("--service-cluster-ip-range", "10.96.0.0/16".into()),
            ("--allow-privileged", "true".into()),
        ];
        let mut args: Vec<String> = args
            .into_iter()
            .map(|(flag, value)| format!("{flag}={value}"))
            .collect();
        args.extend(more.iter().map(|&flag| flag.to_owned()));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.start("kube-apiserver", &args).await
    }

    async fn api_ready(&self) -> anyhow::Result<Client> {
        let client = client(&kubeconfig(&self.folder)).await?;
        wait_for("the API server", Duration::from_secs(120), async || {
            self.check()?;
            let request = http_get("/readyz")?;
            Ok(client.request_text(request).await.is_ok().then_some(()))
        })
        .await?;
        Ok(client)
    }

    async fn controllers(&mut self, pki: &Pki) -> anyhow::Result<()> {
        let config = kubeconfig(&self.folder);
        self.start(
            "kube-controller-manager",
            &[
                "--kubeconfig",
                &text(&config),
                "--service-account-private-key-file",
                &text(&pki.file("sa.key")),
                "--root-ca-file",
                &text(&pki.file("ca.crt")),
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--cluster-cidr",
                "10.244.0.0/16",
                "--secure-port=0",
                // It would make the default one on this machine.
                "--flex-volume-plugin-dir",
                &text(&self.folder.join("volume-plugins")),
            ],
        )
        .await
    }

    async fn s3(&mut self, here: Ipv4Addr, port: u16) -> anyhow::Result<()> {
        let s3 = self.state.s3.clone();
        self.start_with(
            "versitygw",
            self.cache.program("versitygw"),
            &[
                "--port",
                &format!("{here}:{port}"),
                "posix",
                &text(&s3.folder),
            ],
            &[
                ("ROOT_ACCESS_KEY", &s3.access_key),
                ("ROOT_SECRET_KEY", &s3.secret_key),
            ],
        )
        .await
    }

    async fn containerd(&mut self) -> anyhow::Result<()> {
        let folder = self.folder.clone();
        let config = folder.join("containerd.toml");
        fs::write(
            &config,
            format!(
                r#"version = 2
root = "{root}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
"#,
                root = folder.display()
            ),
        )?;
        let network = json!({
            "cniVersion": "0.4.0",
            "name": "bed",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": true,
                    "ipMasq": true,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{ "subnet": "10.244.0.0/24" }]],
                        "routes": [{ "dst": "0.0.0.0/0" }],
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        });
        fs::write(
            folder.join("cni/10-bed.conflist"),
            serde_json::to_vec_pretty(&network)?,
        )?;
        let containerd = requirements::find("containerd").context("containerd is missing")?;
        self.start_with("containerd", containerd, &["--config", &text(&config)], &[])
            .await?;
        let machine = self
            .state
            .machine
            .clone()
            .context("containerd needs a machine")?;
        wait_for("containerd", Duration::from_secs(60), async || {
            self.check()?;
            machine.run("ctr", &["version"]).map(Some)
        })
        .await?;
        for image in base_images()? {
            import(&machine, &self.folder, &image)?;
        }
        Ok(())
    }

    async fn kubelet(&mut self, pki: &Pki, here: Ipv4Addr) -> anyhow::Result<()> {
        let config = self.folder.join("kubelet.json");
        let settings = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": here,
            "tlsCertFile": pki.file("kubelet.crt"),
            "tlsPrivateKeyFile": pki.file("kubelet.key"),
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": false },
                "x509": { "clientCAFile": pki.file("ca.crt") },
            },
            "authorization": { "mode": "AlwaysAllow" },
            "healthzPort": 0,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/bowline-bed",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "volumePluginDir": self.folder.join("volume-plugins"),
            "failSwapOn": false,
            "evictionHard": {
                "imagefs.available": "0%",
                "nodefs.available": "0%",
                "memory.available": "100Mi",
            },
            "localStorageCapacityIsolation": false,
            "enforceNodeAllocatable": [],
            "resolvConf": "",
        });
        fs::write(&config, serde_json::to_vec_pretty(&settings)?)?;
        self.start(
            "kubelet",
            &[
                "--kubeconfig",
                &text(&kubeconfig(&self.folder)),
                "--config",
                &text(&config),
                "--hostname-override",
                NODE,
                "--node-ip",
                &here.to_string(),
            ],
        )
        .await
    }

    async fn proxy(&mut self) -> anyhow::Result<()> {
        self.start(
            "kube-proxy",
            &[
                "--kubeconfig",
                &text(&kubeconfig(&self.folder)),
                "--hostname-override",
                NODE,
                "--proxy-mode",
                "iptables",
                "--cluster-cidr",
                "10.244.0.0/16",
                // These are settings of the whole machine, not of the bed's namespace.
                "--conntrack-max-per-core",
                "0",
                "--conntrack-tcp-timeout-established",
                "0",
                "--conntrack-tcp-timeout-close-wait",
                "0",
            ],
        )
        .await
    }

    async fn node_ready(&self, client: &Client) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        wait_for(
            "the node to be ready",
            Duration::from_secs(120),
            async || {
                self.check()?;
                let Some(node) = nodes.get_opt(NODE).await? else {
                    return Ok(None);
                };
                let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
                let ready = conditions
                    .iter()
                    .any(|c| c.type_ == "Ready" && c.status == "True");
                Ok(ready.then_some(()))
            },
        )
        .await
    }

    /// Pods need their namespace's service account, which a controller makes.
    async fn accounts_ready(&self, client: &Client) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        wait_for(
            "the default service account",
            Duration::from_secs(60),
            async || {
                self.check()?;
                Ok(accounts.get_opt("default").await?.map(drop))
            },
        )
        .await
    }
}

/// The images that every node has: a shell for scenarios, and the holder of a pod's namespaces.
fn base_images() -> anyhow::Result<[Image; 2]> {
    let busybox = requirements::busybox()?;
    let applets = machine::output(Command::new(&busybox).arg("--list"))?;
    let links = applets
        .lines()
        .filter(|applet| *applet != "busybox")
        .map(|applet| (format!("bin/{applet}"), "/bin/busybox".to_owned()));
    let files = vec![(busybox, "/bin/busybox".to_owned())];
    Ok([
        Image {
            name: BUSYBOX.to_owned(),
            files: files.clone(),
            links: links.collect(),
            ..Default::default()
        },
        Image {
            name: PAUSE.to_owned(),
            entrypoint: ["/bin/busybox", "sleep", "2147483647"]
                .map(String::from)
                .to_vec(),
            files,
            ..Default::default()
        },
    ])
}

fn http_get(path: &str) -> anyhow::Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Ports of loopback that nothing listens on, below those that the kernel gives to outgoing
/// connections, so that none is taken before its program starts.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let mut held = Vec::new();
    for _ in 0..1000 {
        let random = uuid::Uuid::new_v4().as_u128();
        let port = 20_000 + u16::try_from(random % 10_000)?;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((port, listener));
        }
        if held.len() == N {
            let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
            return ports
                .try_into()
                .map_err(|_| anyhow::anyhow!("counted wrong"));
        }
    }
    bail!("no free ports on loopback")
}
