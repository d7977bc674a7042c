//! `bowline plugin get`: what the server can do, built in or by plugins.

use std::io::Write;

use bowline_api::{
    Duration,
    v1::{PluginInfo, ServerStatusRequest},
};

use crate::{
    context::Context,
    flags,
    output::{
        self, Format, TableArgs, object,
        table::{self, Row},
    },
    server_status,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to wait for the server to answer
    #[arg(long, default_value = "5s", value_parser = flags::span, value_name = "DURATION")]
    timeout: Duration,

    /// Output format: table, json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = format)]
    output: Format,
}

/// All but names: what is printed is one object.
fn format(text: &str) -> Result<Format, String> {
    match text.parse() {
        Ok(format @ (Format::Table | Format::Json | Format::Yaml)) => Ok(format),
        _ => Err(format!(
            "invalid output format {text:?} - valid values are 'table', 'json', and 'yaml'"
        )),
    }
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let timeout = args.timeout.to_std().map_err(Clone::clone)?;
    let answer = match server_status::ask(client, &ctx.namespace, timeout).await {
        Ok(answer) => answer,
        Err(error) => {
            writeln!(out, "<error getting plugin information: {error:#}>")?;
            return Ok(());
        }
    };
    match args.output {
        Format::Table => out.write_all(rows(answer).as_bytes())?,
        format => output::print_tree(object::tree(answer)?, format, out)?,
    }
    Ok(())
}

/// By kind and name.
fn rows(answer: ServerStatusRequest) -> String {
    let mut plugins = answer
        .status
        .unwrap_or_default()
        .plugins
        .unwrap_or_default();
    plugins.sort_by_cached_key(|plugin| (plugin.kind.to_string(), plugin.name.clone()));
    let row = |plugin: &PluginInfo| Row {
        cells: vec![plugin.name.clone(), plugin.kind.to_string()],
        labels: Default::default(),
    };
    let rows: Vec<Row> = plugins.iter().map(row).collect();
    table::render(&["Name", "Kind"], &rows, &TableArgs::default())
}
