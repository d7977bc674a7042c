//! `cargo xtask bench apiserver`: the embedded API server at scale.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::say;

const OBJECTS: usize = 100_000;
const BYTES: usize = 2048;
const WATCHERS: usize = 1000;
const EVENTS: usize = 100;

/// The embedded API server at scale: memory, lists by pages, many watchers.
pub(super) async fn run() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    let outcome = measure(&server).await;
    server.child.kill()?;
    server.child.wait()?;
    outcome
}

struct Server {
    child: std::process::Child,
    address: String,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(super::bowline()?)
            .args(["apiserver", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)?;
        let address = line
            .trim()
            .rsplit(' ')
            .next()
            .unwrap_or_default()
            .to_owned();
        Ok(Self { child, address })
    }

    /// Memory now and at most, in MB.
    fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let mb = |name| {
            field(name)
                .map(|kib| kib * 1024 / 1_000_000)
                .context("no such field")
        };
        Ok((mb("VmRSS:")?, mb("VmHWM:")?))
    }
}

async fn measure(server: &Server) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::new(server.address.parse()?);
    let client = Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");

    let began = Instant::now();
    let text = "x".repeat(BYTES - 300);
    stream::iter(0..OBJECTS)
        .map(|n| {
            let maps = maps.clone();
            let object = json!({ "metadata": { "name": format!("load-{n:06}"), "labels": { "n": (n % 10).to_string() } }, "data": { "k": text } });
            async move {
                let object: ConfigMap = serde_json::from_value(object)?;
                maps.create(&PostParams::default(), &object).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await?;
    let made = began.elapsed();
    let (now, most) = server.memory()?;

    let began = Instant::now();
    let (mut bytes, mut pages, mut seen) = (0_usize, 0_usize, 0_usize);
    let mut next = String::new();
    loop {
        let path = format!("/api/v1/namespaces/default/configmaps?limit=500&continue={next}");
        let page = client
            .request_text(http::Request::get(path).body(Vec::new())?)
            .await?;
        bytes += page.len();
        pages += 1;
        seen += page.matches("\"name\":\"load-").count();
        next = page
            .split_once("\"continue\":\"")
            .and_then(|(_, rest)| rest.split('"').next())
            .unwrap_or_default()
            .to_owned();
        if next.is_empty() {
            break;
        }
    }
    let listed = began.elapsed();
    ensure!(seen == OBJECTS, "listed {seen} of {OBJECTS}");

    let watched = watch(&client).await?;
    let (_, most_after) = server.memory()?;
    let rate = |amount: f64, time: Duration| amount / time.as_secs_f64();
    say(&format!(
        "create      {OBJECTS} objects of {BYTES} B in {:.1} s, {:.0}/s",
        made.as_secs_f64(),
        rate(OBJECTS as f64, made)
    ));
    say(&format!(
        "memory      {now} MB with them, {most} MB at most (limit 600)"
    ));
    say(&format!(
        "list        {pages} pages of 500, {:.0} MB in {:.2} s, {:.0} MB/s (at least 20)",
        bytes as f64 / 1e6,
        listed.as_secs_f64(),
        rate(bytes as f64 / 1e6, listed)
    ));
    say(&format!(
        "watch       {WATCHERS} watchers saw each of {EVENTS} events in {:.1} s, {:.0} events/s; {most_after} MB at most",
        watched.as_secs_f64(),
        rate((WATCHERS * EVENTS) as f64, watched)
    ));
    if most > 600 {
        bail!("more than 600 MB");
    }
    Ok(())
}

/// Opens all watches, makes events, and waits until everybody has seen all of them.
async fn watch(client: &Client) -> anyhow::Result<Duration> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(client.clone(), "default");
    let version = secrets
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let ready = std::sync::Arc::new(tokio::sync::Barrier::new(WATCHERS + 1));
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..WATCHERS {
        let (secrets, version, ready) = (secrets.clone(), version.clone(), ready.clone());
        watchers.spawn(async move {
            let mut events = secrets
                .watch(&WatchParams::default().timeout(200), &version)
                .await?
                .boxed();
            ready.wait().await;
            let mut seen = 0;
            while seen < EVENTS {
                match events.next().await.context("the watch ended early")?? {
                    WatchEvent::Added(_) => seen += 1,
                    other => bail!("unexpected {other:?}"),
                }
            }
            anyhow::Ok(())
        });
    }
    ready.wait().await;
    let began = Instant::now();
    for n in 0..EVENTS {
        let secret =
            serde_json::from_value(json!({ "metadata": { "name": format!("event-{n}") } }))?;
        secrets.create(&PostParams::default(), &secret).await?;
    }
    while let Some(done) = watchers.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}
