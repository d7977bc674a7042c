//! A command in a container: the seam, and the way over the API server's exec call.

use async_trait::async_trait;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::{
    Api, Client,
    api::{AttachParams, AttachedProcess},
};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What is kept of each of stdout and stderr; the rest is read and dropped, so that the command
/// never blocks on a full pipe.
const KEPT: usize = 64 * 1024;

/// What a command wrote, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The beginning of its standard output.
    pub stdout: String,
    /// The beginning of its standard error.
    pub stderr: String,
    /// Success, or why not.
    pub result: Result<(), String>,
}

/// Runs commands in containers.
#[async_trait]
pub trait Exec: Send + Sync {
    /// Runs a command to its end, without input. `Err` means that it could not be started. Dropping
    /// the call lets go of the connection; the command may keep running.
    async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[String],
    ) -> Result<Output, String>;
}

/// Runs commands through the API server.
#[derive(Clone)]
pub struct KubeExec {
    client: Client,
}

impl KubeExec {
    /// Over this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

#[async_trait]
impl Exec for KubeExec {
    async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[String],
    ) -> Result<Output, String> {
        let params = AttachParams::default()
            .container(container)
            .stdin(false)
            .stdout(true)
            .stderr(true)
            .tty(false);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let process = pods
            .exec(pod, command.to_vec(), &params)
            .await
            .map_err(|e| format!("start command: {e}"))?;
        Ok(follow(process).await)
    }
}

async fn follow(mut process: AttachedProcess) -> Output {
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let status = process.take_status();
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let (stdout, stderr, status) = tokio::join!(capture(stdout), capture(stderr), status);
    let result = match status {
        Some(status) => exit_error(&status),
        // The connection ended without a word about the command.
        None => Err(match process.join().await {
            Err(e) => format!("connection lost: {e}"),
            Ok(()) => "connection closed before the command ended".to_owned(),
        }),
    };
    Output {
        stdout,
        stderr,
        result,
    }
}

/// Reads to the end and keeps the beginning.
async fn capture(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut dropped = 0;
    let mut buffer = vec![0; 8 * 1024];
    // A read error here is that of the connection, which the status tells about.
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = read.min(KEPT - kept.len());
        kept.extend_from_slice(&buffer[..room]);
        dropped += read - room;
    }
    let mut text = String::from_utf8_lossy(&kept).into_owned();
    if dropped > 0 {
        text.push_str(&format!("… ({dropped} more bytes)"));
    }
    text
}

/// How a command ended, from the status that comes last on its connection, in the words of
/// `kubectl`.
pub fn exit_error(status: &Status) -> Result<(), String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(());
    }
    let message = status.message.clone().unwrap_or_default();
    if status.reason.as_deref() == Some("NonZeroExitCode") {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let code = causes
            .flatten()
            .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
            .and_then(|cause| cause.message.as_deref());
        return Err(match code {
            Some(code) => format!("command terminated with exit code {code}"),
            None => format!("command failed without an exit code: {message}"),
        });
    }
    Err(if message.is_empty() {
        "command failed for a reason the API server did not give".to_owned()
    } else {
        message
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_channel_tells_the_exit_code() {
        for (status, expected) in [
            (json!({ "status": "Success" }), Ok(())),
            (
                json!({
                    "status": "Failure", "reason": "NonZeroExitCode", "message": "m",
                    "details": { "causes": [
                        { "reason": "Other", "message": "7" },
                        { "reason": "ExitCode", "message": "3" }
                    ] }
                }),
                Err("command terminated with exit code 3"),
            ),
            (
                json!({ "status": "Failure", "reason": "NonZeroExitCode", "message": "m" }),
                Err("command failed without an exit code: m"),
            ),
            (
                json!({ "status": "Failure", "reason": "InternalError", "message": "no such file" }),
                Err("no such file"),
            ),
            (
                json!({}),
                Err("command failed for a reason the API server did not give"),
            ),
        ] {
            let status: Status = serde_json::from_value(status).unwrap();
            assert_eq!(exit_error(&status), expected.map_err(str::to_owned));
        }
    }

    #[tokio::test]
    async fn output_is_read_to_the_end_and_kept_in_part() {
        let long = vec![b'a'; KEPT + 10_000];
        let text = capture(Some(&long[..])).await;
        assert!(text.ends_with("a… (10000 more bytes)"));
        assert_eq!(text.len(), KEPT + "… (10000 more bytes)".len());
        assert_eq!(capture(Some(&b"fine\n"[..])).await, "fine\n");
        assert_eq!(capture(None::<&[u8]>).await, "");
    }
}
