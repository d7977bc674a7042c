//! `bowline server`: the control plane, in a pod or on a desk.

use std::path::PathBuf;

use anyhow::Context as _;
use bowline_server::{Settings, settings::LogFormat};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio_util::sync::CancellationToken;

/// Arguments of `bowline server`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The namespace of the server and its objects.
    #[arg(long, short, env = "VELERO_NAMESPACE", default_value = "velero")]
    namespace: String,
    /// The kubeconfig file; without it, what the environment offers.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    start_log(&args.settings);
    let config = match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("read kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await.context("find a cluster")?,
    };
    let client = Client::try_from(config)?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "Bowline server starts");
    bowline_server::run(client, &args.namespace, args.settings, stop)
        .await
        .map_err(|error| anyhow::anyhow!(error.chain()))
}

async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return;
    };
    tokio::select! {
        _ = term.recv() => tracing::info!("received SIGTERM"),
        _ = int.recv() => tracing::info!("received SIGINT"),
    }
    stop.cancel();
}

fn start_log(settings: &Settings) {
    use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};
    let level = settings.log_level.filter();
    // Libraries speak up when something is wrong.
    let filter = EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .parse_lossy(format!(
            "warn,bowline={level},bowline_server={level},bowline_engine={level},bowline_vault={level}"
        ));
    let registry = tracing_subscriber::registry().with(filter);
    match settings.log_format {
        LogFormat::Text => registry.with(fmt::layer().with_target(false)).init(),
        LogFormat::Json => registry.with(fmt::layer().json()).init(),
    }
}
