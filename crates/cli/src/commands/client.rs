//! `bowline client config`: the client's configuration file.

use std::io::Write;

use anyhow::Context as _;
use clap::Subcommand;

use crate::{config::Config, say};

/// Things of the client itself.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Get and set values of the client's configuration file
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Get values
    Get {
        /// Keys; without any, all
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Set values
    Set {
        /// Keys and their values; an empty value forgets the key
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<String>,
    },
}

pub(crate) fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    let Command::Config(command) = command;
    let path = Config::path().context("find the configuration file: $HOME is not set")?;
    let mut config = Config::load(&path)?;
    match command {
        ConfigCommand::Get { keys } if keys.is_empty() => {
            for (key, value) in config.iter() {
                writeln!(out, "{key}: {value}")?;
            }
        }
        ConfigCommand::Get { keys } => {
            for key in keys {
                let value = config.get(&key).unwrap_or("<NOT SET>");
                writeln!(out, "{key}: {value}")?;
            }
        }
        ConfigCommand::Set { pairs } => {
            for pair in pairs {
                match pair.split('=').collect::<Vec<_>>()[..] {
                    [key, value] => config.set(key, value),
                    _ => say(&format!("WARNING: invalid KEY=VALUE: {pair:?}")),
                }
            }
            config.save(&path)?;
        }
    }
    Ok(())
}
