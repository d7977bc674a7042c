//! Azurite, Microsoft's own stand-in for Azure Blob Storage: installed from npm once, and run with
//! all blobs in memory.
//!
//! `npm/azurite` pins it and all that it needs. Without node and npm, or where npm reaches no
//! registry, it cannot be had, and what needs it is skipped.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use ring::hmac;

use crate::{
    Cache, Process, Say, bed, build, requirements,
    scene::{self, Scene},
    wait_for,
};

/// The account that every azurite has.
pub const ACCOUNT: &str = "devstoreaccount1";
/// Its key, which is no secret: it is in azurite's handbook.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The dialect of the one request that is made here.
const VERSION: &str = "2021-12-02";
/// An install takes a minute; a registry that does not answer must not take ten.
const LIMIT: Duration = Duration::from_secs(240);

/// The files that pin it.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs it, unless it is there, and gives the file that node runs.
///
/// # Errors
/// When it cannot be had on this machine; the text says why.
pub async fn install(cache: &Cache, say: Say<'_>) -> anyhow::Result<PathBuf> {
    requirements::program("node", "azurite, which plays Azure, does not run")?;
    let folder = cache.npm().join("azurite");
    fs::create_dir_all(&folder)?;
    let guard = fs::File::create(cache.npm().join(".lock"))?;
    guard.lock().context("wait for another install")?;
    let main = folder.join("node_modules/azurite/dist/src/blob/main.js");
    let pins = PINS.map(|name| build::pins("npm/azurite").join(name));
    let key = build::hash(&pins, "")?;
    // The key goes last: what has none is installed again.
    let stamp = cache.npm().join(".azurite.key");
    if main.is_file() && fs::read_to_string(&stamp).is_ok_and(|found| found == key) {
        return Ok(main);
    }
    requirements::program("npm", "azurite, which plays Azure, cannot be installed")?;
    say("installing azurite");
    // Whatever is there now is changed in place.
    let _ = fs::remove_file(&stamp);
    for (file, name) in pins.iter().zip(PINS) {
        fs::copy(file, folder.join(name))?;
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&folder)
        .args(["ci", "--ignore-scripts", "--omit=dev", "--engine-strict"])
        .args(["--no-audit", "--no-fund", "--loglevel=error"])
        .arg("--fetch-retries=1");
    let done = tokio::time::timeout(LIMIT, scene::run(npm)).await;
    done.with_context(|| format!("npm ci is not done after {} s", LIMIT.as_secs()))?
        .context("azurite, which plays Azure, cannot be installed")?;
    fs::write(&stamp, key)?;
    Ok(main)
}

/// A running azurite, which ends with its scene.
#[derive(Debug)]
pub struct Azurite {
    /// The account's address.
    pub endpoint: String,
    process: Process,
}

impl Azurite {
    /// Starts it from the file that [`install`] gave.
    pub fn start(scene: &Scene, main: &Path) -> anyhow::Result<Self> {
        let [port] = bed::free_ports()?;
        let here = Ipv4Addr::LOCALHOST;
        let mut node = Command::new("node");
        // Under its own name, so that one that is left behind is found.
        node.arg("--title=azurite")
            .arg(main)
            .args(["--blobHost", &here.to_string()])
            .args(["--blobPort", &port.to_string()])
            .args(["--inMemoryPersistence", "--skipApiVersionCheck"])
            .args(["--disableTelemetry", "--silent"])
            .current_dir(scene.folder());
        Ok(Self {
            endpoint: format!("http://{here}:{port}/{ACCOUNT}"),
            process: scene.start("azurite", node)?,
        })
    }

    /// Makes a container, as soon as it answers.
    pub async fn container(&self, name: &str) -> anyhow::Result<()> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let url = format!("{}/{name}?restype=container", self.endpoint);
        wait_for("azurite", Duration::from_secs(60), async || {
            self.process.check()?;
            let now = Timestamp::now()
                .strftime("%a, %d %b %Y %H:%M:%S GMT")
                .to_string();
            let answer = client
                .put(&url)
                .header("x-ms-date", &now)
                .header("x-ms-version", VERSION)
                .header("authorization", authorization(name, &now)?)
                .send()
                .await?;
            let status = answer.status();
            ensure!(
                status.is_success(),
                "create container {name}: {status} {}",
                answer.text().await?
            );
            Ok(Some(()))
        })
        .await
    }
}

/// The signature of the request that makes a container, by the account's key.
fn authorization(container: &str, now: &str) -> anyhow::Result<String> {
    // The verb, and eleven headers that the request does not have.
    let text = format!(
        "PUT{}x-ms-date:{now}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{container}\n\
         restype:container",
        "\n".repeat(12)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(KEY)?);
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    Ok(format!("SharedKey {ACCOUNT}:{signature}"))
}
