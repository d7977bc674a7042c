//! Which VolumeSnapshotClass a claim's snapshot is of. Pure.

use std::collections::BTreeMap;

use bowline_api::names::{annotation, label};
use serde_json::Value;

use crate::action::text;

/// The class for a claim of a driver, or why there is none. Names that cannot be used are passed over;
/// `remark` is told.
///
/// # Errors
/// When no class is for the driver, or nobody says which of several.
pub fn choose<'a>(
    claim: &Value,
    backup: &BTreeMap<String, String>,
    driver: &str,
    classes: &'a [Value],
    mut remark: impl FnMut(String),
) -> Result<&'a str, String> {
    let key = format!(
        "{}{}",
        annotation::CSI_VOLUME_SNAPSHOT_CLASS_PREFIX,
        driver.to_lowercase()
    );
    let of_claim = &claim["metadata"]["annotations"][label::CSI_VOLUME_SNAPSHOT_CLASS];
    let of_backup = backup.get(&key).map(String::as_str);
    let named = [("claim", of_claim.as_str()), ("backup", of_backup)];
    for (whose, wanted) in named {
        let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
            continue;
        };
        match classes.iter().find(|class| name(class) == wanted) {
            Some(class) if text(class, "/driver") == driver => return Ok(name(class)),
            Some(class) => remark(format!(
                "VolumeSnapshotClass {wanted}, which the {whose} asks for, is for driver {}, not {driver}",
                text(class, "/driver")
            )),
            None => remark(format!(
                "VolumeSnapshotClass {wanted}, which the {whose} asks for, does not exist"
            )),
        }
    }
    let fitting: Vec<&Value> = classes
        .iter()
        .filter(|class| text(class, "/driver") == driver)
        .collect();
    let is_labelled = |class: &&&Value| has(class, "labels", label::CSI_VOLUME_SNAPSHOT_CLASS);
    let is_default = |class: &&&Value| {
        let key = annotation::IS_DEFAULT_SNAPSHOT_CLASS;
        class["metadata"]["annotations"][key] == "true"
    };
    let chosen = fitting.iter().find(is_labelled);
    let chosen = chosen.or_else(|| fitting.iter().find(is_default));
    match (chosen, fitting.as_slice()) {
        (Some(class), _) => Ok(name(class)),
        (None, [only]) => Ok(name(only)),
        (None, []) => Err(format!(
            "there is no VolumeSnapshotClass for driver {driver}"
        )),
        (None, several) => Err(format!(
            "driver {driver} has {} VolumeSnapshotClasses ({}), and none has the label {} or is the default",
            several.len(),
            several
                .iter()
                .map(|class| name(class))
                .collect::<Vec<_>>()
                .join(", "),
            label::CSI_VOLUME_SNAPSHOT_CLASS
        )),
    }
}

fn name(class: &Value) -> &str {
    text(class, "/metadata/name")
}

fn has(class: &Value, field: &str, key: &str) -> bool {
    class["metadata"][field][key].is_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, driver: &str, marks: &str) -> Value {
        let mut class = json!({"metadata": {"name": name}, "driver": driver});
        if marks.contains('l') {
            class["metadata"]["labels"] = json!({"velero.io/csi-volumesnapshot-class": "x"});
        }
        if marks.contains('d') {
            class["metadata"]["annotations"] =
                json!({"snapshot.storage.kubernetes.io/is-default-class": "true"});
        }
        class
    }

    #[test]
    fn the_nearest_word_counts() {
        let all = [
            class("a", "D", ""),
            class("b", "D", "d"),
            class("c", "D", "l"),
            class("e", "D", ""),
            class("other", "else", "ld"),
        ];
        let plain = [class("a", "D", ""), class("e", "D", "")];
        let default = [class("a", "D", ""), class("b", "D", "d")];
        // Classes, the claim's word, the backup's, what is chosen, remarks.
        for (classes, claim, backup, chosen, remarks) in [
            (&all[..], "a", "e", Some("a"), 0),
            (&all, "", "e", Some("e"), 0),
            (&all, "nowhere", "e", Some("e"), 1),
            (&all, "other", "nowhere", Some("c"), 2),
            (&all, "", "", Some("c"), 0),
            (&default, "", "", Some("b"), 0),
            (&plain[..1], "", "", Some("a"), 0),
            (&plain, "", "", None, 0),
            (&all[4..], "", "", None, 0),
            (&all[4..], "other", "", None, 1),
        ] {
            let mut object = json!({"metadata": {"name": "data"}});
            if !claim.is_empty() {
                object["metadata"]["annotations"] =
                    json!({"velero.io/csi-volumesnapshot-class": claim});
            }
            let key = "velero.io/csi-volumesnapshot-class_d".to_owned();
            let annotations = BTreeMap::from([(key, backup.to_owned())]);
            let mut told = 0;
            let found = choose(&object, &annotations, "D", classes, |_| told += 1);
            assert_eq!((found.ok(), told), (chosen, remarks), "{claim} {backup}");
        }
    }
}
