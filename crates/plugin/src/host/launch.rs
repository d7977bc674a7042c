//! Starting a plugin, and ending it.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use futures::StreamExt;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Settings, connection::Connection, log};
use crate::{
    Error, Result,
    wire::{Empty, auxiliary},
};

/// By which a plugin knows that it was not started by hand.
pub(crate) const COOKIE: (&str, &str) = ("VELERO_PLUGIN", "hello");
/// Said to plugins that bring snapshots away in a second step, since Velero's server does not ask
/// for it.
pub(crate) const UPLOADS: (&str, &str) = ("VELERO_UPLOAD_SNAPSHOT", "1");
/// The version of the protocol, and of what go-plugin puts around it.
pub(crate) const VERSION: &str = "2";
pub(crate) const CORE_VERSION: &str = "1";

/// Says that the standard input ends when the host does, and not before.
pub(crate) const LIFELINE: (&str, &str) = ("BOWLINE_LIFELINE", "stdin");

/// From a start to its first line.
const START: Duration = Duration::from_secs(60);
/// From the wish that it ends to its end.
const STOP: Duration = Duration::from_secs(2);
/// The first line is not longer.
const LINE: u64 = 64 << 10;

/// Where a plugin listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Unix(PathBuf),
    Tcp(String),
}

/// A plugin that runs.
pub(super) struct Process {
    pub(super) connection: Connection,
    exited: watch::Receiver<Option<String>>,
    kill: CancellationToken,
    /// Ends when the process does.
    log: JoinHandle<()>,
    _drains: [AbortOnDropHandle<()>; 2],
    /// Whatever happens to us, the process sees its end.
    _lifeline: Option<ChildStdin>,
}

impl Process {
    /// Starts a program, and waits until it can be asked.
    pub(super) async fn start(program: &Path, settings: &Settings) -> Result<Self> {
        let failed = |why: String| Error::Other(format!("plugin {}: {why}", program.display()));
        let mut child = command(program, settings)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let lifeline = child.stdin.take();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("it has no output".to_owned()));
        };
        let log = {
            let (program, settings) = (program.to_owned(), settings.clone());
            tokio::spawn(async move {
                log::read(stderr, &program, |line| settings.say(line)).await;
            })
        };
        let mut stdout = BufReader::new(stdout);
        let first = first_line(&mut stdout, &mut child).await;
        let address = first.and_then(|line| handshake(&line));
        let connection = match address {
            Ok(address) => Connection::open(&address).await,
            Err(why) => Err(why),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(why) => {
                // What it had to say about it.
                drop(child.kill().await);
                let _ = timeout(STOP, log).await;
                return Err(failed(why));
            }
        };
        // A plugin that nobody listens to stops at its next word.
        let rest = tokio::spawn(async move {
            let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        });
        let stdio = {
            let connection = connection.clone();
            tokio::spawn(async move {
                let Ok(mut words) = connection.download(auxiliary::STDIO, Empty {}).await else {
                    return;
                };
                while let Some(Ok(_)) = words.next().await {}
            })
        };
        let kill = CancellationToken::new();
        let (tell, exited) = watch::channel(None);
        tokio::spawn(see_out(child, kill.clone(), tell));
        Ok(Self {
            connection,
            exited,
            kill,
            log,
            _drains: [AbortOnDropHandle::new(rest), AbortOnDropHandle::new(stdio)],
            _lifeline: lifeline,
        })
    }

    /// How it ended, if it has.
    pub(super) fn exited(&self) -> Option<String> {
        self.exited.borrow().clone()
    }

    /// The same, for a process whose connection broke: its end may follow in a moment.
    pub(super) async fn exits_soon(&self) -> Option<String> {
        let mut exited = self.exited.clone();
        let ended = timeout(STOP, exited.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// Asks it to end, and sees that it does.
    pub(super) async fn stop(self) {
        if self.exited().is_none() {
            let asked = self.connection.unary(auxiliary::SHUTDOWN, Empty {});
            // The answer is lost more often than not.
            let _ = timeout(STOP, asked).await;
            if self.exits_soon().await.is_none() {
                self.kill.cancel();
                self.exits_soon().await;
            }
        }
        let _ = timeout(STOP, self.log).await;
    }
}

/// Waits for a child's end, and brings it about when asked to or when nobody is interested any more.
async fn see_out(mut child: Child, kill: CancellationToken, tell: watch::Sender<Option<String>>) {
    let status = tokio::select! {
        status = child.wait() => status,
        () = kill.cancelled() => {
            drop(child.start_kill());
            child.wait().await
        }
        () = tell.closed() => {
            drop(child.start_kill());
            child.wait().await
        }
    };
    let words = match status {
        Ok(status) => ended(status),
        Err(error) => error.to_string(),
    };
    tell.send_replace(Some(words));
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

fn command(program: &Path, settings: &Settings) -> Command {
    let mut command = Command::new(program);
    command
        .args(&settings.args)
        .envs(settings.env.iter().map(|(name, value)| (name, value)))
        .env(COOKIE.0, COOKIE.1)
        .env(UPLOADS.0, UPLOADS.1)
        .env("PLUGIN_PROTOCOL_VERSIONS", VERSION)
        .env("PLUGIN_MIN_PORT", "10000")
        .env("PLUGIN_MAX_PORT", "25000")
        // They would ask for more than we speak.
        .env_remove("PLUGIN_CLIENT_CERT")
        .env_remove("PLUGIN_MULTIPLEX_GRPC")
        .env(LIFELINE.0, LIFELINE.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// The first line of a child, which says where it listens.
async fn first_line(
    stdout: &mut (impl AsyncBufReadExt + Unpin),
    child: &mut Child,
) -> Result<String, String> {
    let mut line = Vec::new();
    let mut limited = stdout.take(LINE);
    let read = limited.read_until(b'\n', &mut line);
    match timeout(START, read).await {
        Err(_) => return Err("timeout while waiting for plugin to start".to_owned()),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(_)) => {}
    }
    if line.is_empty() {
        let how = match timeout(STOP, child.wait()).await {
            Ok(Ok(status)) => format!(": {}", ended(status)),
            _ => String::new(),
        };
        return Err(format!("plugin exited before we could connect{how}"));
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

/// `1|2|unix|/tmp/plugin1|grpc|`
fn handshake(line: &str) -> Result<Address, String> {
    let fields: Vec<&str> = line.split('|').collect();
    let [core, version, network, address, rest @ ..] = &fields[..] else {
        let shown: String = line.chars().take(200).collect();
        return Err(format!(
            "Unrecognized remote plugin message: {shown:?}; a plugin's first line says where it \
             listens: is this one, and one for this machine?"
        ));
    };
    if *core != CORE_VERSION {
        return Err(format!(
            "incompatible core API version with plugin: {core}, not {CORE_VERSION}"
        ));
    }
    if *version != VERSION {
        return Err(format!(
            "incompatible API version with plugin: {version}, not {VERSION}"
        ));
    }
    let protocol = rest.first().copied().unwrap_or("netrpc");
    if protocol != "grpc" {
        return Err(format!(
            "unsupported plugin protocol {protocol:?}: not grpc"
        ));
    }
    match *network {
        "unix" => Ok(Address::Unix(PathBuf::from(address))),
        "tcp" => Ok(Address::Tcp((*address).to_owned())),
        other => Err(format!("unknown network {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plugin_of_this_protocol_is_taken() {
        let unix = Address::Unix(PathBuf::from("/tmp/p"));
        for (line, expected) in [
            ("1|2|unix|/tmp/p|grpc|", Ok(unix.clone())),
            ("1|2|unix|/tmp/p|grpc", Ok(unix)),
            (
                "1|2|tcp|127.0.0.1:7|grpc||true",
                Ok(Address::Tcp("127.0.0.1:7".to_owned())),
            ),
            (
                "hello",
                Err("Unrecognized remote plugin message: \"hello\""),
            ),
            (
                "2|2|unix|/tmp/p|grpc|",
                Err("incompatible core API version"),
            ),
            ("1|1|unix|/tmp/p|grpc|", Err("incompatible API version")),
            ("1|2|unix|/tmp/p", Err("unsupported plugin protocol")),
            ("1|2|pipe|/tmp/p|grpc|", Err("unknown network")),
        ] {
            match (handshake(line), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(begin)) => assert!(found.starts_with(begin), "{found}"),
                (found, expected) => panic!("{line}: {found:?}, {expected:?}"),
            }
        }
    }
}
