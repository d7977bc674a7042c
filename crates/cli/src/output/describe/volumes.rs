//! All volumes, grouped by how their data was kept or came back. Velero has no such thing: it is a
//! section of its own, after all of Velero's.

use serde_json::{Value, json};

use super::Describer;
use crate::output::volumes::{Volume, by_method, facts};

/// For people; nothing if there are none.
pub(crate) fn text(d: &mut Describer<'_>, volumes: &[Volume]) {
    if volumes.is_empty() {
        return;
    }
    d.blank();
    d.line("All Volumes:");
    for (heading, group) in by_method(volumes) {
        d.line(format_args!("\t{heading}:"));
        for volume in group {
            d.line(format_args!("\t\t{}:", volume.name));
            for (label, value) in facts(volume) {
                d.field(3, label, value);
            }
        }
    }
}

/// For programs: all about each, in the order of methods.
pub(crate) fn structured(volumes: &[Volume]) -> Value {
    let groups = by_method(volumes);
    let sorted: Vec<&Volume> = groups.into_iter().flat_map(|(_, group)| group).collect();
    json!(sorted)
}
