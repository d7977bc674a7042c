//! `bowline server`: the control plane, in a pod or on a desk.

use bowline_server::{
    Settings,
    settings::{LogFormat, LogLevel},
};
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// Arguments of `bowline server`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
}

pub(crate) async fn run(args: Args, ctx: &Context) -> anyhow::Result<()> {
    let mut settings = args.settings;
    settings.features = ctx.features();
    // All that follows `bowline server`.
    settings.plugin_args = std::env::args_os().skip(2).collect();
    start_log(settings.log_level, settings.log_format);
    let connect = ctx.connect();
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "Bowline server starts");
    bowline_server::run(connect, &ctx.namespace, settings, stop)
        .await
        .map_err(|error| anyhow::anyhow!(error.chain()))
}

/// Ends the token at SIGTERM or SIGINT.
pub(crate) async fn stop_on_signal(stop: CancellationToken) {
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

/// Begins to log to stdout.
pub(crate) fn start_log(level: LogLevel, format: LogFormat) {
    use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};
    let level = level.filter();
    // Libraries speak up when something is wrong.
    let filter = EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .parse_lossy(format!(
            "warn,bowline={level},bowline_server={level},bowline_engine={level},bowline_vault={level},bowline_volume={level},bowline_plugin={level}"
        ));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(fmt::layer().with_target(false)).init(),
        LogFormat::Json => registry.with(fmt::layer().json()).init(),
    }
}
