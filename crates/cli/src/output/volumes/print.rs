//! `… volumes`: one table, one row for each volume, or the same for programs; and the exit code.

use std::{io::Write, process::ExitCode, str::FromStr};

use serde_json::json;

use super::{SortBy, Volume, sort};
use crate::{
    download::TrustArgs,
    output::{
        TableArgs,
        table::{Row, render},
        yaml,
    },
    say,
};

/// The flags of `volumes`.
#[derive(Debug, clap::Args)]
pub(crate) struct VolumesArgs {
    /// Its name
    pub(crate) name: String,

    /// What rows are sorted by
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    pub(crate) sort_by: SortBy,

    /// Output format: table, json or yaml
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => Err(format!(
                "invalid output format {other:?} - valid values are 'table', 'json' and 'yaml'"
            )),
        }
    }
}

/// Whose volumes they are, and where they come from.
pub(crate) struct Source {
    /// `backup` or `restore`.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// Why not all volumes may be here; none if the file says it all.
    pub(crate) caveat: Option<String>,
}

/// Prints all of them. The exit code is 1 when one has no good copy.
pub(crate) fn print(
    mut volumes: Vec<Volume>,
    source: &Source,
    args: &VolumesArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    sort(&mut volumes, args.sort_by);
    let bad = volumes.iter().filter(|volume| !volume.good).count();
    let value = || {
        json!({
            source.kind: source.name,
            "complete": source.caveat.is_none(),
            "caveat": source.caveat,
            "withoutGoodCopy": bad,
            "volumes": volumes,
        })
    };
    match args.output {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&value())?)?,
        Format::Yaml => out.write_all(yaml::to_string(&value()).as_bytes())?,
        Format::Table => table(&volumes, source, out)?,
    }
    out.flush()?;
    if let Some(caveat) = source
        .caveat
        .as_ref()
        .filter(|_| args.output == Format::Table)
    {
        say(caveat);
    }
    Ok(match bad {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn table(volumes: &[Volume], source: &Source, out: &mut dyn Write) -> anyhow::Result<()> {
    if volumes.is_empty() {
        let Source { kind, name, caveat } = source;
        if caveat.is_none() {
            say(&format!("{kind} \"{name}\" has no volumes"));
        }
        return Ok(());
    }
    let is_restore = source.kind == "restore";
    let mut columns = vec!["name"];
    if is_restore {
        columns.push("from");
    }
    columns.push("volume");
    if is_restore {
        columns.push("old volume");
    }
    columns.extend([
        "method", "result", "size", "time", "driver", "snapshot", "reason",
    ]);
    let rows: Vec<Row> = volumes
        .iter()
        .map(|volume| Row {
            cells: cells(volume, is_restore),
            labels: Default::default(),
        })
        .collect();
    let text = render(&columns, &rows, &TableArgs::default());
    // The last column is often empty.
    for line in text.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cells(volume: &Volume, is_restore: bool) -> Vec<String> {
    let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let mut cells = vec![volume.name.clone()];
    if is_restore {
        cells.push(text(volume.original_claim.as_deref()));
    }
    cells.push(text(volume.persistent_volume.as_deref()));
    if is_restore {
        cells.push(text(volume.original_persistent_volume.as_deref()));
    }
    cells.extend([
        volume.method.to_string(),
        volume.result.to_string(),
        text(volume.sizes().as_deref()),
        text(volume.time().as_deref()),
        text(volume.by().as_deref()),
        text(volume.snapshot_handle.as_deref()),
        volume.remark(),
    ]);
    cells
}
