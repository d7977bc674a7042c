//! What commands print: tables, objects as JSON or YAML, and descriptions.

pub(crate) mod describe;
pub(crate) mod object;
pub(crate) mod pace;
pub(crate) mod table;
pub(crate) mod tabwriter;
pub(crate) mod time;
pub(crate) mod volumes;
pub(crate) mod yaml;

use std::{fmt, io::Write, str::FromStr};

use bowline_api::json;
use kube::ResourceExt;

use crate::{flags, select::Shown};
use object::Printable;
use table::Row;

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// The object itself.
    Json,
    /// The object itself.
    Yaml,
    /// `<resource>/<name>`, one per line, for other programs.
    Name,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            other => Err(format!(
                "invalid output format {other:?} - valid values are 'table', 'json', 'yaml' and 'name'"
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Name => "name",
        })
    }
}

/// The flags of commands that print tables.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TableArgs {
    /// Output format: table, json, yaml or name; a command that creates prints the object instead
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,

    /// Labels to show as columns, separated by commas
    #[arg(short = 'L', long, value_name = "KEYS")]
    pub(crate) label_columns: Vec<String>,

    /// Show all labels in the last column
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", value_parser = flags::truth, action = clap::ArgAction::Set)]
    pub(crate) show_labels: bool,
}

impl TableArgs {
    /// The keys of the label columns.
    pub(crate) fn label_columns(&self) -> impl Iterator<Item = &str> {
        let last = self.label_columns.last().map_or("", String::as_str);
        last.split(',').filter(|key| !key.is_empty())
    }
}

/// The flags of `get`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) shown: Shown,

    #[command(flatten)]
    pub(crate) output: TableArgs,
}

/// A kind with a table of its own.
pub(crate) trait Tabular: Printable {
    /// The headings.
    const COLUMN_NAMES: &'static [&'static str];

    /// The cells of one object.
    fn cells(&self, clock: &time::Clock) -> Vec<String>;

    /// Puts objects into the order of the table.
    fn sort(_: &mut [Self]) {}
}

/// Prints a list of objects; a list of one prints as the object.
pub(crate) fn print_list<K: Tabular>(
    mut objects: Vec<K>,
    resource_version: Option<&str>,
    args: &TableArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let format = args.output.unwrap_or(Format::Table);
    let tree = match format {
        Format::Table => {
            K::sort(&mut objects);
            return print_table(&objects, args, out);
        }
        Format::Name => {
            for object in &objects {
                let plural = K::PLURAL;
                writeln!(out, "{plural}.{}/{}", bowline_api::GROUP, object.name_any())?;
            }
            return Ok(());
        }
        Format::Json | Format::Yaml if objects.len() == 1 => object::tree(objects.remove(0))?,
        Format::Json | Format::Yaml => object::list(objects, resource_version)?,
    };
    print_tree(tree, format, out)
}

/// Prints one object.
pub(crate) fn print_one<K: Tabular>(
    object: K,
    args: &TableArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    print_list(vec![object], None, args, out)
}

fn print_table<K: Tabular>(
    objects: &[K],
    args: &TableArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let clock = time::Clock::system();
    let rows: Vec<Row> = objects
        .iter()
        .map(|object| Row {
            cells: object.cells(&clock),
            labels: object.labels().clone(),
        })
        .collect();
    let text = table::render(K::COLUMN_NAMES, &rows, args);
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// As Velero: YAML has one more newline at its end, JSON has one.
pub(crate) fn print_tree(
    tree: object::Tree,
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Yaml => out.write_all(yaml::to_string(&tree.into_value()).as_bytes())?,
        _ => out.write_all(&json::to_vec_pretty(&tree)?)?,
    }
    out.write_all(b"\n")?;
    Ok(())
}
