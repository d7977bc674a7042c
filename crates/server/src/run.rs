//! The process: checks, leadership, controllers, and an orderly end.

pub(crate) mod checks;

use std::{sync::Arc, time::Duration};

use bowline_api::{names::FEATURE_CSI, v1::BackupStorageLocation};
use futures::future::BoxFuture;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    Context, Error, Result, Settings, controllers, http,
    lease::{Connect, Term, Times},
    plugins::Plugins,
    repositories,
};

/// How long work under way may go on after a stop signal. Kubernetes kills after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a server until `stop`, or until it is no longer the one to act.
///
/// # Errors
/// When it cannot start as things are, or lost its leadership.
pub async fn run(
    connect: Connect,
    namespace: &str,
    settings: Settings,
    stop: CancellationToken,
) -> Result<()> {
    settings.validate()?;
    for remark in settings.remarks() {
        tracing::warn!("{remark}");
    }
    let mut ctx = Context::new(connect().await?, namespace, settings);
    let (folder, flags) = (&ctx.settings.plugin_dir, &ctx.settings.plugin_args);
    let has_csi = ctx.settings.has_feature(FEATURE_CSI);
    ctx.plugins = Plugins::find(folder.clone(), flags.clone(), has_csi);
    let ctx = Arc::new(ctx);
    checks::namespace(&ctx).await?;
    checks::definitions(&ctx).await?;
    if !ctx.settings.beside_velero {
        checks::alone(&ctx).await?;
    }

    let listener = http::bind(&ctx.settings.metrics_address).await?;
    if let Ok(address) = listener.local_addr() {
        bowline_vault::store::filesystem::set_public_url(checks::public_url(address));
        tracing::info!(%address, "serving metrics");
    }
    let (ready, is_ready) = watch::channel(false);
    let serving = CancellationToken::new();
    let router = http::router(Arc::clone(&ctx), is_ready);
    let http = tokio::spawn(http::serve(listener, router, serving.clone()));

    let done = lead(&ctx, connect, &stop, &ready).await;
    serving.cancel();
    let _ = http.await;
    done
}

async fn lead(
    ctx: &Arc<Context>,
    connect: Connect,
    stop: &CancellationToken,
    ready: &watch::Sender<bool>,
) -> Result<()> {
    let identity = checks::identity();
    let _ = ready.send(true);
    let begun = Term::begin(connect, &ctx.namespace, &identity, Times::default(), stop).await?;
    let Some(term) = begun else {
        return Ok(());
    };
    tracing::info!(%identity, namespace = %ctx.namespace, "acting");
    if let Err(error) = repositories::ensure_password(ctx).await {
        tracing::warn!("volumes cannot be copied: {}", error.chain());
    }
    let mut running = start(ctx);
    let lost = tokio::select! {
        () = stop.cancelled() => false,
        () = term.lost() => !stop.is_cancelled(),
    };
    ctx.stop.cancel();
    if lost {
        ctx.abort.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(5), all(&mut running)).await;
        return Err(Error::Setup("no longer the server that acts".to_owned()));
    }
    tracing::info!("stopping");
    tokio::select! {
        () = all(&mut running) => {}
        () = term.lost() => {}
        () = tokio::time::sleep(PATIENCE) => {
            tracing::warn!("work under way is left to the next server");
        }
    }
    ctx.abort.cancel();
    let _ = tokio::time::timeout(Duration::from_secs(5), all(&mut running)).await;
    term.end().await;
    Ok(())
}

async fn all(running: &mut JoinSet<()>) {
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!("a controller ended unexpectedly: {error}");
        }
    }
}

/// Starts all controllers that the flags do not turn off.
fn start(ctx: &Arc<Context>) -> JoinSet<()> {
    use controllers::{
        abandoned, backup, deletion, download, expiry, location, repository, restore, schedule,
        server_status, sync,
    };
    type Run = fn(Arc<Context>) -> BoxFuture<'static, ()>;
    let controllers: [(&str, Run); 11] = [
        (location::NAME, |ctx| Box::pin(location::run(ctx))),
        (repository::NAME, |ctx| Box::pin(repository::run(ctx))),
        (abandoned::NAME, |ctx| Box::pin(abandoned::run(ctx))),
        (backup::NAME, |ctx| Box::pin(backup::run(ctx))),
        (restore::NAME, |ctx| Box::pin(restore::run(ctx))),
        (schedule::NAME, |ctx| Box::pin(schedule::run(ctx))),
        (sync::NAME, |ctx| Box::pin(sync::run(ctx))),
        (expiry::NAME, |ctx| Box::pin(expiry::run(ctx))),
        (deletion::NAME, |ctx| Box::pin(deletion::run(ctx))),
        (download::NAME, |ctx| Box::pin(download::run(ctx))),
        (server_status::NAME, |ctx| Box::pin(server_status::run(ctx))),
    ];
    let mut running = JoinSet::new();
    let marking = Arc::clone(ctx);
    running.spawn(async move { mark_default_location(&marking).await });
    for (name, run) in controllers {
        if ctx.settings.runs(name) {
            running.spawn(run(Arc::clone(ctx)));
        } else {
            tracing::info!(controller = name, "disabled");
        }
    }
    running
}

/// `--default-backup-storage-location` marks that location, when there is one.
async fn mark_default_location(ctx: &Context) {
    let name = &ctx.settings.default_backup_storage_location;
    let api = ctx.api::<BackupStorageLocation>();
    match api.get_opt(name).await {
        Ok(Some(location)) if location.spec.default != Some(true) => {
            let mut marked = location.clone();
            marked.spec.default = Some(true);
            match ctx.update(&location, &marked).await {
                Ok(_) => tracing::info!(location = %name, "made the default location"),
                Err(error) => tracing::warn!("{}", error.chain()),
            }
        }
        Ok(Some(_)) => {}
        Ok(None) => tracing::warn!(location = %name, "the default location does not exist"),
        Err(error) => tracing::warn!("read location {name}: {error}"),
    }
}
