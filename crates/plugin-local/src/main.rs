//! The program `bowline-plugin-local`. Hosts start it; `install` puts it where they look, as plugin
//! images do.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bowline_plugin::serve::{self, Server};
use bowline_plugin_local::{Cluster, Local, NAME};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The file's name in a plugin folder.
const PROGRAM: &str = "bowline-plugin-local";
/// Where init containers of a server have its plugin folder.
const TARGET: &str = "/target";
const USAGE: &str = "\
bowline-plugin-local takes snapshots of hostPath and local volumes of the node it runs on.

It is a plugin, which the server of Bowline or Velero starts: put it into the server's plugin
folder, and make a VolumeSnapshotLocation whose provider is bowline.io/local.

  bowline-plugin-local install [FOLDER]   copies itself into a plugin folder; /target without one";

#[tokio::main]
async fn main() -> ExitCode {
    // Hosts say what they are by a cookie, and give flags of their own.
    if env::var_os("VELERO_PLUGIN").is_some_and(|cookie| cookie == "hello") {
        return serve().await;
    }
    let args: Vec<String> = env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("install") if args.len() <= 2 => {
            let folder = args.get(1).map_or(TARGET, String::as_str);
            match install(Path::new(folder)) {
                Ok(place) => {
                    say(&format!("installed {}", place.display()));
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    complain(&format!("error: install into {folder}: {error}"));
                    ExitCode::FAILURE
                }
            }
        }
        Some("help" | "--help" | "-h") => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        _ => {
            complain(USAGE);
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> ExitCode {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nobody has installed another one");
    many_files();
    let node = env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let plugin = Local::new(Cluster::of_host(), node, serve::host_uploads());
    Server::default()
        .volume_snapshotter(NAME, plugin)
        .run()
        .await
}

/// Every level of a folder that is copied takes two open files.
fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!("no more open files than {:?}: {error}", limit.current);
    }
}

/// Copies this program, as a whole or not at all.
fn install(folder: &Path) -> io::Result<PathBuf> {
    let place = folder.join(PROGRAM);
    let new = tempfile::NamedTempFile::new_in(folder)?;
    fs::copy(env::current_exe()?, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    new.persist(&place)?;
    Ok(place)
}

#[expect(clippy::print_stdout, reason = "this is what it says on a terminal")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "this is what it says on a terminal")]
fn complain(text: &str) {
    eprintln!("{text}");
}
