//! `bowline apiserver`: the embedded Kubernetes API on a socket.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bowline_apiserver::{ApiServer, Identity};
use serde_json::Value;
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Objects to start with: a YAML or JSON file, or a folder of them
    #[arg(long)]
    load: Vec<PathBuf>,

    /// Serve HTTPS with a certificate made for this run
    #[arg(long)]
    tls: bool,
}

pub(crate) async fn run(args: Args, out: &mut impl Write) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let identity = match args.tls {
        true => Some(
            Identity::self_signed(address.ip())
                .map_err(|error| anyhow::anyhow!("make a certificate: {error}"))?,
        ),
        false => None,
    };
    let server = ApiServer::new(
        identity
            .as_ref()
            .map_or("", |identity| &identity.certificate),
    );
    let mut objects = 0;
    for path in &args.load {
        objects += load(&server, path)?;
    }
    let scheme = if args.tls { "https" } else { "http" };
    let trust = if args.tls {
        " --insecure-skip-tls-verify"
    } else {
        ""
    };
    writeln!(
        out,
        "{objects} objects loaded; serving on {scheme}://{address}"
    )?;
    writeln!(
        out,
        "try: kubectl --server {scheme}://{address}{trust} get namespaces"
    )?;
    out.flush()?;
    server
        .serve(listener, identity.as_ref(), interrupted())
        .await?;
    Ok(())
}

/// Ends when somebody asks the program to.
pub(crate) async fn interrupted() {
    let ctrl_c = tokio::signal::ctrl_c();
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(term) => term,
        Err(_) => {
            let _ = ctrl_c.await;
            return;
        }
    };
    tokio::select! {
        _ = ctrl_c => {}
        _ = term.recv() => {}
    }
}

/// Loads a file, or every YAML and JSON file of a folder; kinds come before their objects.
pub(crate) fn load(server: &ApiServer, path: &Path) -> anyhow::Result<usize> {
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("read {}", path.display()))? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
            {
                files.push(path);
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let mut objects = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        objects.extend(documents(&text).with_context(|| format!("read {}", file.display()))?);
    }
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    });
    for object in &objects {
        if let Err(refusal) = server.load(object) {
            bail!(
                "load {} {}: {}",
                object["kind"],
                object["metadata"]["name"],
                refusal.message
            );
        }
    }
    Ok(objects.len())
}

/// The objects of a YAML or JSON text; lists are taken apart.
pub(crate) fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let mut objects = Vec::new();
    for mut document in documents {
        match document["items"].take() {
            Value::Array(items) => objects.extend(items),
            _ if document.is_null() => {}
            _ => {
                if let Some(object) = document.as_object_mut() {
                    object.remove("items");
                }
                objects.push(document);
            }
        }
    }
    Ok(objects)
}
