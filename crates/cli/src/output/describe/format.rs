//! The flags of `describe`, and how descriptions are printed: texts one after another, values as one.

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

use serde::Serialize;
use serde_json::{Value, ser::PrettyFormatter};

use crate::{download::TrustArgs, flags, output::yaml, select::Shown};

/// The flags of `describe` for what has files in a bucket.
#[derive(Debug, clap::Args)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    pub(crate) shown: Shown,

    /// Show more: the resource list, volumes and operations one by one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value = "false", hide_default_value = true, value_parser = flags::truth,
          action = clap::ArgAction::Set)]
    pub(crate) details: bool,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// The flag for the format of a description.
#[derive(Debug, clap::Args)]
pub(crate) struct FormatArgs {
    /// Output format: plaintext, json or yaml
    #[arg(short, long, default_value_t = Format::Plaintext, value_name = "FORMAT")]
    output: Format,
}

/// How a description is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
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

/// Prints descriptions: a text as soon as it is there, values at the end.
pub(crate) struct Descriptions<'a> {
    format: Format,
    out: &'a mut dyn Write,
    is_first: bool,
    values: Vec<Value>,
}

impl<'a> Descriptions<'a> {
    pub(crate) fn new(args: &FormatArgs, out: &'a mut dyn Write) -> Self {
        Self {
            format: args.output,
            out,
            is_first: true,
            values: Vec::new(),
        }
    }

    /// Takes one more, in the form that is wanted.
    pub(crate) fn add(
        &mut self,
        text: impl FnOnce() -> String,
        value: impl FnOnce() -> Value,
    ) -> io::Result<()> {
        if self.format != Format::Plaintext {
            self.values.push(value());
            return Ok(());
        }
        if !self.is_first {
            self.out.write_all(b"\n\n")?;
        }
        self.is_first = false;
        self.out.write_all(text().as_bytes())?;
        self.out.flush()
    }

    /// Prints the values: one as itself, several as a list.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let value = match (self.format, self.values.len()) {
            (Format::Plaintext, _) => return Ok(()),
            (_, 1) => self.values.remove(0),
            _ => Value::Array(self.values),
        };
        if self.format == Format::Yaml {
            self.out.write_all(yaml::to_string(&value).as_bytes())?;
            return Ok(());
        }
        let formatter = PrettyFormatter::with_indent(b"    ");
        let mut json = serde_json::Serializer::with_formatter(&mut *self.out, formatter);
        value.serialize(&mut json)?;
        writeln!(self.out)?;
        Ok(())
    }
}
