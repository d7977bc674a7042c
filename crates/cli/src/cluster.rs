//! The way to a cluster: a client from a kubeconfig, and the API's refusals in its own words.

use std::{fmt, path::Path, time::Duration};

use anyhow::{Context, bail};
use kube::{
    Client, Config,
    client::{ClientBuilder, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig},
};
use reqwest::header::{HeaderValue, USER_AGENT};
use tower::{buffer::BufferLayer, retry::RetryLayer};

/// How often a call is sent again when the API server is busy or behind something that is, and the
/// pauses between. All that is seconds: whoever can wait longer knows better how.
const AGAIN: (Duration, Duration, u32) = (Duration::from_millis(50), Duration::from_secs(2), 6);
/// Calls that may wait for their turn.
const WAITING: usize = 1024;

/// A client for the named file and context, or for what the environment offers.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<Client> {
    let options = KubeConfigOptions {
        context: context.filter(|name| !name.is_empty()).map(str::to_owned),
        ..Default::default()
    };
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            // The reason's own text holds its causes.
            let file = Kubeconfig::read_from(path)
                .map_err(|error| anyhow::anyhow!("find a cluster: {error}"))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .with_context(|| format!("find a cluster in {}", path.display()))?
        }
        None if options.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .context("find a cluster")?,
        None => Config::infer()
            .await
            .context("find a cluster: no usable kubeconfig, and not in a pod")?,
    };
    // The API server names the manager of fields after the first word.
    let agent = concat!("bowline/", env!("CARGO_PKG_VERSION"));
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(agent)));
    // A peer that has gone without a word; watches end before that, by themselves.
    config.read_timeout = Some(Duration::from_secs(300));
    config.reset_reader_on_write = true;
    patient(config)
}

/// A client with our patience; the library's own goes on for minutes, without a word.
fn patient(mut config: Config) -> anyhow::Result<Client> {
    config.default_retry = false;
    let (least, most, times) = AGAIN;
    let again = RetryPolicy::new(least, most, times, true)?;
    let client = ClientBuilder::try_from(config)?
        .with_layer(&BufferLayer::new(WAITING))
        .with_layer(&RetryLayer::new(again));
    Ok(client.build())
}

/// Results of API calls, with refusals in the API server's own words.
pub(crate) trait Plain<T> {
    /// The same, as an error for people.
    fn plain(self) -> anyhow::Result<T>;
}

impl<T> Plain<T> for kube::Result<T> {
    fn plain(self) -> anyhow::Result<T> {
        self.map_err(|error| match error {
            kube::Error::Api(status) if !status.message.is_empty() => {
                anyhow::Error::new(Refused(*status))
            }
            other => Hinted::error(
                format!("talk to the Kubernetes API: {}", innermost(&other)),
                "`kubectl version` shows whether the cluster of the kubeconfig can be reached",
            ),
        })
    }
}

/// The two causes at the end of a chain; those above repeat that it was a connection.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.split_off(causes.len().saturating_sub(2)).join(": ")
}

/// The API server said no.
#[derive(Debug)]
pub(crate) struct Refused(kube::core::Status);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Refused {}

/// Whether an API call failed because the object is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// An error with a next step to suggest.
#[derive(Debug)]
pub(crate) struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    pub(crate) fn error(message: impl fmt::Display, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self {
            message: message.to_string(),
            hint: hint.into(),
        })
    }

    /// The suggestion of an error, if it has one.
    pub(crate) fn of(error: &anyhow::Error) -> Option<&str> {
        let mut causes = error.chain();
        causes.find_map(|cause| {
            cause
                .downcast_ref::<Self>()
                .map(|hinted| hinted.hint.as_str())
        })
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// Several failures as one, in Kubernetes' spelling; none is no failure.
pub(crate) fn all_or_error(errors: Vec<anyhow::Error>) -> anyhow::Result<()> {
    let mut texts: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
    match texts.len() {
        0 => Ok(()),
        1 => bail!(texts.remove(0)),
        _ => bail!("[{}]", texts.join(", ")),
    }
}
