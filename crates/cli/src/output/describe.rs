//! The pieces that descriptions are made of: lines with cells, aligned at the end, in colour where
//! colour is wanted; and what descriptions of backups and of restores have in common.

pub(crate) mod format;
pub(crate) mod live;
pub(crate) mod movements;
pub(crate) mod operations;
pub(crate) mod plugins;
pub(crate) mod pods;
pub(crate) mod resources;
pub(crate) mod results;
pub(crate) mod volumes;

use std::{collections::BTreeMap, fmt::Display};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{tabwriter::TabWriter, time::Clock};

/// What stands for nothing.
pub(crate) const NONE: &str = "<none>";

/// Whether escapes for colours are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    /// They are.
    On,
    /// They are not.
    Off,
}

impl Colour {
    /// Good news.
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap(text, "32", "0")
    }
    /// Bad news.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap(text, "31", "0")
    }
    /// A name.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap(text, "1", "22")
    }

    fn wrap(self, text: &str, on: &str, off: &str) -> String {
        match self {
            Self::On => format!("\u{1b}[{on}m{text}\u{1b}[{off}m"),
            Self::Off => text.to_owned(),
        }
    }
}

/// Collects the lines of a description.
pub(crate) struct Describer<'a> {
    text: String,
    prefix: &'static str,
    /// Whether to use colours.
    pub(crate) colour: Colour,
    /// How times are shown.
    pub(crate) clock: &'a Clock,
}

impl<'a> Describer<'a> {
    pub(crate) fn new(colour: Colour, clock: &'a Clock) -> Self {
        Self {
            text: String::new(),
            prefix: "",
            colour,
            clock,
        }
    }

    /// The aligned text.
    pub(crate) fn finish(self) -> String {
        TabWriter::DESCRIBE.align(&self.text)
    }

    /// Everything that `part` says, one level deeper.
    pub(crate) fn indented(&mut self, part: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.prefix, "\t");
        part(self);
        self.prefix = before;
    }

    /// Text as it is, without a newline.
    pub(crate) fn put(&mut self, text: impl Display) {
        use std::fmt::Write;
        let _ = write!(self.text, "{}{text}", self.prefix);
    }

    /// A line.
    pub(crate) fn line(&mut self, text: impl Display) {
        self.put(text);
        self.text.push('\n');
    }

    /// An empty line.
    pub(crate) fn blank(&mut self) {
        self.line("");
    }

    /// A label and its value, so many levels deep.
    pub(crate) fn field(&mut self, depth: usize, label: &str, value: impl Display) {
        let tabs = "\t".repeat(depth);
        self.line(format_args!("{tabs}{label}:\t{value}"));
    }

    /// A time as people read it.
    pub(crate) fn time(&self, time: Timestamp) -> String {
        self.clock.show(time)
    }

    /// Name, namespace, labels and annotations.
    pub(crate) fn metadata(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        self.field(0, "Name", self.colour.bold(name));
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        self.field(0, "Namespace", namespace);
        self.map("Labels", metadata.labels.as_ref());
        self.map("Annotations", metadata.annotations.as_ref());
    }

    /// A label and a map, one entry per line.
    pub(crate) fn map(&mut self, label: &str, map: Option<&BTreeMap<String, String>>) {
        self.put(format_args!("{label}:\t"));
        let mut before = "";
        for (key, value) in map.into_iter().flatten() {
            self.line(format_args!("{before}{key}={value}"));
            before = "\t";
        }
        if before.is_empty() {
            self.line(NONE);
        }
    }

    /// A label and a list, one entry per line, so many levels deep.
    pub(crate) fn list(&mut self, depth: usize, label: &str, entries: &[String]) {
        let tabs = "\t".repeat(depth);
        self.put(format_args!("{tabs}{label}:\t"));
        if entries.is_empty() {
            self.line(format_args!("{tabs}{NONE}"));
        }
        for (at, entry) in entries.iter().enumerate() {
            match at {
                0 => self.line(entry),
                _ => self.line(format_args!("{tabs}\t{entry}")),
            }
        }
    }

    /// The ConfigMap or the like that an object refers to, if there is one.
    pub(crate) fn reference(&mut self, heading: &str, to: Option<&TypedLocalObjectReference>) {
        if let Some(to) = to {
            self.blank();
            self.line(format_args!("{heading}:"));
            self.field(1, "Type", &to.kind);
            self.field(1, "Name", &to.name);
        }
    }

    /// What is wrong with an object, in red, if anything is.
    pub(crate) fn validation_errors(&mut self, errors: Option<&Vec<String>>) {
        let errors = errors.map_or(&[] as &[String], Vec::as_slice);
        if errors.is_empty() {
            return;
        }
        self.blank();
        self.put("Validation errors:");
        for error in errors {
            self.line(format_args!("\t{}", self.colour.red(error)));
        }
    }
}

/// A list joined by commas, or what stands for an empty one.
pub(crate) fn joined(list: Option<&Vec<String>>, empty: &str) -> String {
    match list {
        Some(list) if !list.is_empty() => list.join(", "),
        _ => empty.to_owned(),
    }
}

/// A switch with a third position.
pub(crate) fn switch(value: Option<bool>, no: &str, yes: &str, unset: &str) -> String {
    match value {
        Some(true) => yes,
        Some(false) => no,
        None => unset,
    }
    .to_owned()
}
