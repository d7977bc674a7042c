//! `bowline backup describe`: all there is to know about backups, for people or for programs.
//!
//! First everything is gathered ([`facts`]), then it is written down: as text ([`text`]) or as JSON
//! or YAML ([`structured`]). Writing needs no cluster, and is what the tests compare.

pub(crate) mod facts;
mod operations;
pub(crate) mod spec;
pub(crate) mod structured;
mod text;
mod volumes;

use std::{fmt, io::Write, str::FromStr};

use bowline_api::v1::Backup;
use serde::Serialize;
use serde_json::{Value, ser::PrettyFormatter};

use crate::{context::Context, download::TrustArgs, flags, output::yaml, select::Shown};
use facts::Facts;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    shown: Shown,

    /// Show more: the resource list, volumes and operations one by one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    details: bool,

    #[command(flatten)]
    trust: TrustArgs,

    /// Output format: plaintext, json or yaml
    #[arg(short, long, default_value_t = Format::Plaintext, value_name = "FORMAT")]
    output: Format,
}

/// How a description is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Plaintext,
    Json,
    Yaml,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plaintext" => Ok(Self::Plaintext),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            other => Err(format!(
                "invalid output format '{other}'. valid value are 'plaintext, json, yaml'"
            )),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "plaintext",
            Self::Json => "json",
            Self::Yaml => "yaml",
        })
    }
}

pub(crate) async fn run(args: Args, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args.shown.find::<Backup>(&client, &ctx.namespace).await?;
    let clock = ctx.clock();
    let mut structured = Vec::new();
    for (at, backup) in found.objects.into_iter().enumerate() {
        let facts = Facts::gather(ctx, &client, &args.trust, backup, args.details).await?;
        if args.output != Format::Plaintext {
            structured.push(structured::describe(&facts, &clock));
            continue;
        }
        if at > 0 {
            out.write_all(b"\n\n")?;
        }
        let text = text::describe(&facts, ctx.colour, &clock);
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    if args.output != Format::Plaintext {
        print_structured(structured, args.output, out)?;
    }
    Ok(())
}

/// One as itself, several as a list.
pub(crate) fn print_structured(
    mut values: Vec<Value>,
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let value = match values.len() {
        1 => values.remove(0),
        _ => Value::Array(values),
    };
    if format == Format::Yaml {
        out.write_all(yaml::to_string(&value).as_bytes())?;
        return Ok(());
    }
    let formatter = PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut *out, formatter,
    ))?;
    writeln!(out)?;
    Ok(())
}
