//! What every command that talks to a cluster starts from: the global flags, the configuration file
//! and the environment, settled once.

use std::{io::IsTerminal, path::PathBuf};

use bowline_api::names::DEFAULT_NAMESPACE;
use kube::Client;

use crate::{
    cluster,
    config::Config,
    flags::{self, List, OptionalBool},
    output::{describe::Colour, time::Clock},
    say,
};

/// Flags that every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Globals {
    /// The namespace of the server and its objects; without it, the configuration file's,
    /// $VELERO_NAMESPACE, or `velero`
    #[arg(short, long, global = true, help_heading = "Global options")]
    namespace: Option<String>,

    /// The kubeconfig file; without it, $KUBECONFIG, ~/.kube/config or the pod's own account
    #[arg(long, global = true, help_heading = "Global options", value_parser = flags::path)]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig context; without it, the current one
    #[arg(long, global = true, help_heading = "Global options")]
    kubecontext: Option<String>,

    /// Features to turn on, separated by commas; only the server minds them
    #[arg(long, global = true, help_heading = "Global options")]
    features: Option<List>,

    /// Colours: `true` always, `false` never; without it, on a terminal only
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "BOOL"
    )]
    colorized: Option<OptionalBool>,
}

/// The settled surroundings of a command.
pub(crate) struct Context {
    globals: Globals,
    /// The configuration file.
    pub(crate) config: Config,
    /// The namespace to work in.
    pub(crate) namespace: String,
    /// Whether to use colours.
    pub(crate) colour: Colour,
    /// Whether a person watches, so that lines may be redrawn.
    pub(crate) is_terminal: bool,
}

impl Context {
    /// Reads the configuration file and the environment. A broken file is worth a warning, not an end.
    pub(crate) fn new(globals: Globals) -> Self {
        let config = Config::path().map_or_else(Config::default, |path| {
            Config::load(&path).unwrap_or_else(|error| {
                say(&format!("WARNING: Error reading config file: {error:#}"));
                Config::default()
            })
        });
        let environment = std::env::var("VELERO_NAMESPACE").ok();
        let namespace = namespace(
            globals.namespace.as_deref(),
            config.get("namespace"),
            environment.as_deref(),
        );
        let is_terminal = std::io::stdout().is_terminal();
        let quiet = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = colour(
            globals.colorized.and_then(|flag| flag.0),
            config.get("colorized"),
            is_terminal && !quiet,
        );
        Self {
            globals,
            config,
            namespace,
            colour,
            is_terminal,
        }
    }

    /// A client for the cluster of the flags.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        cluster::connect(
            self.globals.kubeconfig.as_deref(),
            self.globals.kubecontext.as_deref(),
        )
        .await
    }

    /// The same for whoever needs more than one.
    pub(crate) fn connect(&self) -> bowline_server::lease::Connect {
        let (kubeconfig, context) = (&self.globals.kubeconfig, &self.globals.kubecontext);
        let (kubeconfig, context) = (kubeconfig.clone(), context.clone());
        Box::new(move || {
            let (kubeconfig, context) = (kubeconfig.clone(), context.clone());
            Box::pin(async move {
                let connected = cluster::connect(kubeconfig.as_deref(), context.as_deref()).await;
                connected.map_err(|error| bowline_server::Error::Setup(format!("{error:#}")))
            })
        })
    }

    /// The features of the flag and of the configuration file.
    pub(crate) fn features(&self) -> Vec<String> {
        let flag = self.globals.features.iter().flat_map(|list| &list.0);
        let file = self.config.get("features").unwrap_or_default();
        let all = flag.map(String::as_str).chain(file.split(','));
        all.map(str::trim)
            .filter(|feature| !feature.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// The features of the flag alone.
    pub(crate) fn features_of_flag(&self) -> Vec<String> {
        List::entries(self.globals.features.as_ref()).unwrap_or_default()
    }

    /// How times are shown.
    pub(crate) fn clock(&self) -> Clock {
        Clock::system()
    }
}

fn namespace(flag: Option<&str>, file: Option<&str>, environment: Option<&str>) -> String {
    [flag, file, environment]
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .unwrap_or(DEFAULT_NAMESPACE)
        .to_owned()
}

fn colour(flag: Option<bool>, file: Option<&str>, otherwise: bool) -> Colour {
    let file = file.and_then(|text| flags::truth(text).ok());
    match flag.or(file).unwrap_or(otherwise) {
        true => Colour::On,
        false => Colour::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_file_over_the_environment() {
        for (flag, file, environment, wanted) in [
            (None, None, None, "velero"),
            (None, None, Some("env"), "env"),
            (None, Some("file"), Some("env"), "file"),
            (Some("flag"), Some("file"), Some("env"), "flag"),
            (Some(""), None, Some("env"), "env"),
        ] {
            assert_eq!(namespace(flag, file, environment), wanted);
        }
    }

    #[test]
    fn colours_follow_the_flag_then_the_file_then_the_terminal() {
        for (flag, file, terminal, wanted) in [
            (None, None, false, Colour::Off),
            (None, None, true, Colour::On),
            (None, Some("false"), true, Colour::Off),
            (Some(true), Some("false"), false, Colour::On),
            (Some(false), None, true, Colour::Off),
            (None, Some("nonsense"), true, Colour::On),
        ] {
            assert_eq!(colour(flag, file, terminal), wanted);
        }
    }
}
