//! A plugin of one's own: implement a trait of [`kinds`](crate::kinds), and serve it.
//!
//! ```no_run
//! # async fn example(snapshotter: impl bowline_plugin::kinds::VolumeSnapshotter + 'static) {
//! use bowline_plugin::serve::Server;
//!
//! Server::default()
//!     .volume_snapshotter("example.com/disk", snapshotter)
//!     .run()
//!     .await;
//! # }
//! ```
//!
//! Such a program runs under Bowline and under Velero. It ends when its host asks it to, and when its
//! host is gone.

mod log;
mod router;
mod routes;

use std::{
    collections::BTreeMap,
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use self::router::Router;
use crate::{
    host::{COOKIE, CORE_VERSION, LIFELINE, UPLOADS, VERSION},
    kinds::{
        BackupItemAction, DeleteItemAction, ItemBlockAction, Kind, ObjectStore, RestoreItemAction,
        VolumeSnapshotter,
    },
    wire::PluginIdentifier,
};

/// How often it is looked whether the host is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long calls that are under way have when the host wants an end.
const END: Duration = Duration::from_secs(1);

/// Plugins by name.
type Named<T> = BTreeMap<String, Arc<T>>;

/// The plugins of a program.
#[derive(Default)]
pub struct Server {
    object_stores: Named<dyn ObjectStore>,
    volume_snapshotters: Named<dyn VolumeSnapshotter>,
    backup_item_actions: Named<dyn BackupItemAction>,
    restore_item_actions: Named<dyn RestoreItemAction>,
    delete_item_actions: Named<dyn DeleteItemAction>,
    item_block_actions: Named<dyn ItemBlockAction>,
    /// Kinds and names that are only listed.
    others: Vec<(String, String)>,
}

impl Server {
    /// Adds an object store.
    #[must_use]
    pub fn object_store(mut self, name: &str, plugin: impl ObjectStore + 'static) -> Self {
        self.object_stores.insert(name.to_owned(), Arc::new(plugin));
        self
    }

    /// Adds a snapshotter.
    #[must_use]
    pub fn volume_snapshotter(
        mut self,
        name: &str,
        plugin: impl VolumeSnapshotter + 'static,
    ) -> Self {
        let plugin = Arc::new(plugin);
        self.volume_snapshotters.insert(name.to_owned(), plugin);
        self
    }

    /// Adds an action on objects that are backed up.
    #[must_use]
    pub fn backup_item_action(
        mut self,
        name: &str,
        plugin: impl BackupItemAction + 'static,
    ) -> Self {
        let plugin = Arc::new(plugin);
        self.backup_item_actions.insert(name.to_owned(), plugin);
        self
    }

    /// Adds an action on objects that are restored.
    #[must_use]
    pub fn restore_item_action(
        mut self,
        name: &str,
        plugin: impl RestoreItemAction + 'static,
    ) -> Self {
        let plugin = Arc::new(plugin);
        self.restore_item_actions.insert(name.to_owned(), plugin);
        self
    }

    /// Adds an action on objects whose backup is deleted.
    #[must_use]
    pub fn delete_item_action(
        mut self,
        name: &str,
        plugin: impl DeleteItemAction + 'static,
    ) -> Self {
        let plugin = Arc::new(plugin);
        self.delete_item_actions.insert(name.to_owned(), plugin);
        self
    }

    /// Adds an action that says what is backed up together.
    #[must_use]
    pub fn item_block_action(mut self, name: &str, plugin: impl ItemBlockAction + 'static) -> Self {
        let plugin = Arc::new(plugin);
        self.item_block_actions.insert(name.to_owned(), plugin);
        self
    }

    /// Lists something that is not there, of any kind: for tests of hosts.
    #[doc(hidden)]
    #[must_use]
    pub fn only_listed(mut self, kind: &str, name: &str) -> Self {
        self.others.push((kind.to_owned(), name.to_owned()));
        self
    }

    /// Serves until the host wants an end. The arguments of the program are the host's flags, which
    /// are none of its business.
    pub async fn run(self) -> ExitCode {
        if env::var_os(COOKIE.0).is_none_or(|cookie| cookie != COOKIE.1) {
            // Whoever starts it by hand reads this.
            let mut out = std::io::stderr();
            let _ = writeln!(
                out,
                "This is a plugin, which the server of Bowline or Velero starts: put it into the \
                 server's plugin folder."
            );
            return ExitCode::FAILURE;
        }
        log::start();
        if env::var_os(LIFELINE.0).is_some_and(|value| value == LIFELINE.1) {
            std::thread::spawn(die_with_host);
        }
        match self.serve().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("serving: {error}");
                ExitCode::FAILURE
            }
        }
    }

    async fn serve(self) -> std::io::Result<()> {
        let (folder, socket) = socket()?;
        let listener = UnixListener::bind(&socket)?;
        let end = CancellationToken::new();
        let router = Arc::new(self.routes(&end));
        announce(&socket)?;
        tokio::spawn(watch_host(end.clone()));
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted?.0,
                () = end.cancelled() => break,
            };
            let router = Arc::clone(&router);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| {
                    let answer = router.answer(request);
                    async move { Ok::<_, std::convert::Infallible>(answer.await) }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let served = builder
                    .clone()
                    .adaptive_window(true)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    tracing::debug!("a connection: {error}");
                }
            });
        }
        // The answer to the wish itself goes out first.
        tokio::time::sleep(END.min(Duration::from_millis(50))).await;
        drop(folder);
        Ok(())
    }

    fn routes(self, end: &CancellationToken) -> Router {
        let list = self.list();
        let mut router = Router::default();
        routes::auxiliary(&mut router, list, end);
        routes::object_store(&mut router, self.object_stores);
        routes::volume_snapshotter(&mut router, self.volume_snapshotters);
        routes::backup_item_action(&mut router, self.backup_item_actions);
        routes::restore_item_action(&mut router, self.restore_item_actions);
        routes::delete_item_action(&mut router, self.delete_item_actions);
        routes::item_block_action(&mut router, self.item_block_actions);
        router
    }

    /// What there is, in the order in which hosts know it.
    fn list(&self) -> Vec<PluginIdentifier> {
        let command = env::args_os().next().unwrap_or_default();
        let names = |kind: Kind| -> Vec<&String> {
            match kind {
                Kind::BackupItemAction | Kind::RestoreItemAction => Vec::new(),
                Kind::BackupItemActionV2 => self.backup_item_actions.keys().collect(),
                Kind::VolumeSnapshotter => self.volume_snapshotters.keys().collect(),
                Kind::ObjectStore => self.object_stores.keys().collect(),
                Kind::RestoreItemActionV2 => self.restore_item_actions.keys().collect(),
                Kind::DeleteItemAction => self.delete_item_actions.keys().collect(),
                Kind::ItemBlockAction => self.item_block_actions.keys().collect(),
            }
        };
        let identifier = |kind: &str, name: &String| PluginIdentifier {
            command: command.to_string_lossy().into_owned(),
            kind: kind.to_owned(),
            name: name.clone(),
        };
        let others = self.others.iter();
        Kind::ALL
            .into_iter()
            .flat_map(|kind| {
                names(kind)
                    .into_iter()
                    .map(move |name| identifier(kind.name(), name))
            })
            .chain(others.map(|(kind, name)| identifier(kind, name)))
            .collect()
    }
}

/// Whether the host will ask for snapshots to be uploaded. Velero does not: what is not safe when a
/// snapshot is taken never will be.
#[must_use]
pub fn host_uploads() -> bool {
    env::var_os(UPLOADS.0).is_some_and(|value| value == UPLOADS.1)
}

/// The value of a flag that the host has passed on, by its name without dashes: hosts give plugins
/// all that was said behind `server`. The last one counts.
#[must_use]
pub fn host_flag(name: &str) -> Option<String> {
    let args: Vec<String> = env::args_os()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    flag(&args, name).map(str::to_owned)
}

/// `--name=value` or `--name value`; one letter has one dash.
fn flag<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let dashes = if name.len() == 1 { "-" } else { "--" };
    let mut said = args.iter().enumerate().filter_map(|(at, arg)| {
        let value = arg.strip_prefix(dashes)?.strip_prefix(name)?;
        match value.strip_prefix('=') {
            Some(value) => Some(value),
            None if value.is_empty() => args.get(at + 1).map(String::as_str),
            None => None,
        }
    });
    said.next_back()
}

/// A folder for a socket that goes with it, and the socket.
fn socket() -> std::io::Result<(tempfile::TempDir, PathBuf)> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("plugin");
    let folder = match env::var_os("PLUGIN_UNIX_SOCKET_DIR") {
        Some(folder) if !folder.is_empty() => builder.tempdir_in(folder)?,
        _ => builder.tempdir()?,
    };
    let socket = folder.path().join("socket");
    Ok((folder, socket))
}

/// Says where the plugin listens, as its first line.
fn announce(socket: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{CORE_VERSION}|{VERSION}|unix|{}|grpc|",
        socket.display()
    )?;
    out.flush()
}

/// Ends this process at once when the host is gone, whatever is under way: the next host may be
/// about to do the same again.
fn die_with_host() {
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(1);
}

/// The same for hosts that give no sign: ends it all when the process that has started us is another
/// one.
async fn watch_host(end: CancellationToken) {
    let host = rustix::process::getppid();
    while rustix::process::getppid() == host {
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    tracing::debug!("the host is gone");
    end.cancel();
}
