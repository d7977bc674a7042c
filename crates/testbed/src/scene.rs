//! What one scenario gets: a client, names that nobody else uses, buckets, processes, deadlines;
//! and what it leaves if it fails: events, phases and logs.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use bowline_api::names::DEFAULT_NAMESPACE;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, LogParams, ObjectMeta, PostParams},
    discovery::{ApiResource, Scope},
};
use serde_json::Value;

use crate::{
    Bed, Process,
    bed::{self, Bucket},
    process, wait_for,
};

/// A scenario's hold on a bed.
pub struct Scene {
    bed: Bed,
    prefix: String,
    bowline: PathBuf,
    folder: PathBuf,
    processes: Mutex<Vec<Process>>,
    skipped: Mutex<Vec<Skipped>>,
}

/// A part of a scenario that was not played.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// What the part is called.
    pub part: String,
    /// Why not.
    pub why: String,
}

impl Scene {
    /// A scene on a bed.
    pub fn new(bed: &Bed) -> anyhow::Result<Self> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let prefix = format!("t{}", &id[..6]);
        let folder = bed.folder().join("scenes").join(&prefix);
        fs::create_dir_all(&folder)?;
        Ok(Self {
            bed: bed.clone(),
            prefix,
            bowline: bed::bowline()?,
            folder,
            processes: Mutex::default(),
            skipped: Mutex::default(),
        })
    }

    /// The same scene with our program from another file.
    #[must_use]
    pub fn with_bowline(mut self, file: PathBuf) -> Self {
        self.bowline = file;
        self
    }

    /// The bed it plays on.
    #[must_use]
    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.bed.client()
    }

    /// A folder of its own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A name that no other scene uses.
    #[must_use]
    pub fn fresh(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// A fresh namespace, ready for pods.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        let name = self.fresh(name);
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..Default::default()
            },
            ..Default::default()
        };
        let all: Api<Namespace> = Api::all(self.client());
        all.create(&PostParams::default(), &namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), &name);
        wait_for(
            "the namespace's service account",
            Duration::from_secs(60),
            async || Ok(accounts.get_opt("default").await?.map(drop)),
        )
        .await?;
        Ok(name)
    }

    /// A fresh bucket.
    pub fn bucket(&self, name: &str) -> anyhow::Result<Bucket> {
        self.bed.bucket(&self.fresh(name))
    }

    /// Our own program as a command, with the bed's kubeconfig.
    #[must_use]
    pub fn bowline(&self) -> Command {
        let mut command = Command::new(&self.bowline);
        command.env("KUBECONFIG", self.bed.kubeconfig());
        command
    }

    /// One of the built programs (`kubectl`, `velero`, …) as a command, with the bed's kubeconfig.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.bed.program(name)
    }

    /// Runs `kubectl` and gives what it printed.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.program("kubectl");
        command.args(args);
        run(command).await
    }

    /// Puts objects into the cluster as `kubectl apply` does.
    pub async fn apply(&self, objects: &[Value]) -> anyhow::Result<()> {
        let file = self.folder.join("apply.json");
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(&file, serde_json::to_vec(&list)?)?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()])
            .await
            .map(drop)
    }

    /// Starts a process that ends with the scene at the latest.
    pub fn start(&self, name: &str, command: Command) -> anyhow::Result<Process> {
        let log = self.folder.join(format!("{name}.log"));
        let process = Process::start(name, command, &log)?;
        self.processes().push(process.clone());
        Ok(process)
    }

    /// The same, where it sees what the node has mounted.
    pub async fn start_on_node(&self, name: &str, command: &Command) -> anyhow::Result<Process> {
        let log = self.folder.join(format!("{name}.log"));
        let process = self.bed.start_on_node(name, command, &log).await?;
        self.processes().push(process.clone());
        Ok(process)
    }

    /// Notes that a part cannot be played, and why; the report counts it.
    pub fn skip(&self, part: &str, why: &anyhow::Error) {
        let skipped = Skipped {
            part: part.to_owned(),
            why: format!("{why:#}"),
        };
        locked(&self.skipped).push(skipped);
    }

    /// The parts that were not played.
    #[must_use]
    pub fn skipped(&self) -> Vec<Skipped> {
        locked(&self.skipped).clone()
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Process>> {
        locked(&self.processes)
    }

    /// Ends the scene's processes and has its namespaces removed. That they are gone is not waited
    /// for: no other scene uses their names.
    pub async fn end(self) -> anyhow::Result<()> {
        let processes = std::mem::take(&mut *self.processes());
        for process in processes {
            process.kill_all().await?;
        }
        let all: Api<Namespace> = Api::all(self.client());
        for name in self.namespaces().await? {
            all.delete(&name, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn namespaces(&self) -> anyhow::Result<Vec<String>> {
        let all: Api<Namespace> = Api::all(self.client());
        let all = all.list(&ListParams::default()).await?;
        let names = all.iter().map(ResourceExt::name_any);
        Ok(names
            .filter(|name| name.starts_with(&self.prefix))
            .collect())
    }

    /// Everything that may say why: events, phases, pods and logs.
    pub async fn diagnose(&self) -> String {
        let mut report = String::new();
        let mut namespaces = self.namespaces().await.unwrap_or_default();
        namespaces.push(DEFAULT_NAMESPACE.to_owned());
        for namespace in &namespaces {
            let part = self.diagnose_namespace(namespace).await;
            let _ = match part {
                Ok(part) => writeln!(report, "{part}"),
                Err(error) => writeln!(report, "{namespace}: {error:#}"),
            };
        }
        let processes = self.processes().clone();
        for process in processes {
            let state = if process.is_alive() { "runs" } else { "ended" };
            let _ = writeln!(
                report,
                "-- {} ({state}), end of its log:\n{}",
                process.name,
                process::tail(&process.log, 40)
            );
        }
        let _ = writeln!(report, "-- logs of the bed: {}", self.bed.logs().display());
        report
    }

    async fn diagnose_namespace(&self, namespace: &str) -> anyhow::Result<String> {
        let mut report = format!("-- namespace {namespace}\n");
        for (kind, object) in velero_objects(&self.client(), namespace).await? {
            let status = &object["status"];
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            writeln!(report, "{kind}/{name}: {status}")?;
        }
        let events: Api<Event> = Api::namespaced(self.client(), namespace);
        for event in events.list(&ListParams::default()).await? {
            writeln!(
                report,
                "event {} {} {}: {}",
                event.type_.unwrap_or_default(),
                event.involved_object.name.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default()
            )?;
        }
        let pods: Api<Pod> = Api::namespaced(self.client(), namespace);
        for pod in pods.list(&ListParams::default()).await? {
            let name = pod.name_any();
            let phase = pod.status.and_then(|s| s.phase).unwrap_or_default();
            let tail = LogParams {
                tail_lines: Some(40),
                ..Default::default()
            };
            let log = pods
                .logs(&name, &tail)
                .await
                .unwrap_or_else(|error| format!("no log: {error}"));
            writeln!(report, "pod/{name}: {phase}\n{log}")?;
        }
        Ok(report)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every object of group `velero.io` in a namespace, with its kind.
pub async fn velero_objects(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    let groups = kube::discovery::Discovery::new(client.clone())
        .filter(&[bowline_api::GROUP])
        .run()
        .await?;
    let resources: BTreeMap<String, ApiResource> = groups
        .groups()
        .flat_map(|group| {
            group
                .versioned_resources("v1")
                .into_iter()
                .chain(group.versioned_resources("v2alpha1"))
        })
        .filter(|(_, capabilities)| capabilities.scope == Scope::Namespaced)
        .map(|(resource, _)| (resource.kind.clone(), resource))
        .collect();
    for (kind, resource) in resources {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        for object in api.list(&ListParams::default()).await? {
            found.push((kind.clone(), serde_json::to_value(object)?));
        }
    }
    Ok(found)
}

/// Runs a command to its end and gives its output; its complaint is the error.
pub async fn run(command: Command) -> anyhow::Result<String> {
    let shown = format!(
        "{} {}",
        Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .display(),
        command
            .get_args()
            .map(|a| a.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    );
    let mut command = tokio::process::Command::from(command);
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("run {shown}"))?;
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
