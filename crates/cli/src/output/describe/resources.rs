//! What is in a backup, or what a restore did to which object.

use bowline_api::files::ResourceList;
use serde_json::{Value, json};

use super::Describer;
use crate::download::file::File;

/// For people; `of` is `backup` or `restore`.
pub(crate) fn text(d: &mut Describer<'_>, of: &str, file: &File<ResourceList>) {
    let list = match found(of, file) {
        Ok(list) => list,
        Err(why) => return d.field(0, "Resource List", why),
    };
    d.line("Resource List:");
    for (kind, items) in list {
        d.line(format_args!("\t{kind}:"));
        for item in items {
            d.line(format_args!("\t\t- {item}"));
        }
    }
}

/// For programs, under one key or another.
pub(crate) fn structured(value: &mut Value, of: &str, file: &File<ResourceList>) {
    match found(of, file) {
        Ok(list) => value["resourceList"] = json!(list),
        Err(why) => value["errorGettingResourceList"] = json!(why),
    }
}

/// The list, or the words in its place.
fn found<'a>(of: &str, file: &'a File<ResourceList>) -> Result<&'a ResourceList, String> {
    match file {
        File::Found(list) => Ok(list),
        File::Missing => Err(format!("<{of} resource list not found>")),
        File::Failed(why) => Err(format!("<error getting {of} resource list: {why}>")),
        File::Unreadable(why) => Err(format!("<error reading {of} resource list: {why}>")),
    }
}
