//! Starts the programs of a bed, one step after another.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client};
use serde_json::json;

use super::{BUSYBOX, Bed, Mode, NODE, S3, State, client, import, kubeconfig};
use crate::{
    Cache, Process,
    csi::Csi,
    image::Image,
    machine::{self, Machine},
    pki::{self, Pki},
    requirements, wait_for,
};

/// The image that holds a pod's namespaces.
const PAUSE: &str = "bed.local/pause:1";

/// Starts a bed step by step; what runs is written down as soon as it does.
pub(super) struct Starter<'a> {
    cache: &'a Cache,
    folder: PathBuf,
    state: State,
    token: String,
}

impl<'a> Starter<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        folder: &Path,
        owner: Option<Process>,
    ) -> anyhow::Result<Self> {
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

    pub(super) async fn api_bed(mut self) -> anyhow::Result<Bed> {
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

    pub(super) async fn embedded_bed(mut self) -> anyhow::Result<Bed> {
        let [api, s3] = free_ports()?;
        let here = Ipv4Addr::LOCALHOST;
        self.state.mode = Mode::Embedded;
        self.prepare(here, api, s3)?;
        self.s3(here, s3).await?;
        let listen = format!("{here}:{api}");
        self.start_with(
            "bowline",
            super::bowline()?,
            &["apiserver", "--listen", &listen],
            &[],
        )
        .await?;
        let client = self.api_ready().await?;
        Ok(self.bed(client))
    }

    pub(super) async fn node_bed(mut self) -> anyhow::Result<Bed> {
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
        let bed = self.bed(client);
        Csi::on(&bed).await?;
        bed.again()
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
        let scheme = match self.state.mode {
            Mode::Embedded => "http",
            Mode::Api | Mode::Node => "https",
        };
        self.state.server = format!("{scheme}://{here}:{api}");
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
        self.state
            .start(&self.folder, name, &program, args, env)
            .await
            .map(drop)
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
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
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
