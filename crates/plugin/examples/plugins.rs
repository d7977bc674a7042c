//! Lists the plugins of a folder, as a server would find them.
//!
//! ```text
//!   plugins FOLDER [FLAG…]
//! ```
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::{env, path::PathBuf, sync::Arc};

use bowline_plugin::host::{Registry, Settings};

#[tokio::main]
async fn main() {
    let mut args = env::args_os().skip(1);
    let folder = PathBuf::from(args.next().unwrap_or_else(|| "/plugins".into()));
    let settings = Settings {
        args: args.collect(),
        sink: Some(Arc::new(|line| println!("{:?} {line}", line.level))),
        ..Settings::default()
    };
    let registry = Registry::read(&folder, &settings).await;
    for entry in registry.entries() {
        println!("{} {} {}", entry.kind, entry.name, entry.program.display());
    }
    for trouble in registry.troubles() {
        println!("{}: {}", trouble.program.display(), trouble.reason);
    }
}
