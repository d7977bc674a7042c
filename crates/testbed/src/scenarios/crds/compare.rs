//! Two sets of CustomResourceDefinitions: is everything of the first in the second?

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value};

/// What was compared and what is missing.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    kinds: usize,
    paths: usize,
    words: usize,
    columns: usize,
    short_names: usize,
    /// One line for each thing that the second set lacks or asks more of.
    pub(super) shortfalls: Vec<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kinds, {} field paths, {} enum values, {} columns, {} short names, {} short",
            self.kinds,
            self.paths,
            self.words,
            self.columns,
            self.short_names,
            self.shortfalls.len()
        )
    }
}

/// Compares every definition of `theirs` with the one of the same name in `ours`.
pub(super) fn crds(theirs: &[Value], ours: &[Value]) -> Comparison {
    let mut comparison = Comparison::default();
    for their in theirs {
        comparison.kinds += 1;
        let name = their["metadata"]["name"].as_str().unwrap_or_default();
        match ours.iter().find(|our| our["metadata"]["name"] == name) {
            Some(our) => comparison.crd(name, &their["spec"], &our["spec"]),
            None => comparison.short(name, "no such kind"),
        }
    }
    comparison
}

impl Comparison {
    fn short(&mut self, place: &str, what: impl fmt::Display) {
        self.shortfalls.push(format!("{place}: {what}"));
    }

    fn equal(&mut self, place: &str, what: &str, their: &Value, our: &Value) {
        if their != our {
            self.short(place, format_args!("{what} is {our}, not {their}"));
        }
    }

    fn crd(&mut self, name: &str, their: &Value, our: &Value) {
        self.equal(name, "group", &their["group"], &our["group"]);
        self.equal(name, "scope", &their["scope"], &our["scope"]);
        for key in ["kind", "listKind", "plural", "singular"] {
            self.equal(name, key, &their["names"][key], &our["names"][key]);
        }
        for short_name in array(&their["names"]["shortNames"]) {
            self.short_names += 1;
            if !array(&our["names"]["shortNames"]).contains(short_name) {
                self.short(name, format_args!("no short name {short_name}"));
            }
        }
        for version in array(&their["versions"]) {
            let found = array(&our["versions"])
                .iter()
                .find(|v| v["name"] == version["name"]);
            match found {
                Some(our) => self.version(&format!("{name} {}", version["name"]), version, our),
                None => self.short(name, format_args!("no version {}", version["name"])),
            }
        }
    }

    fn version(&mut self, name: &str, their: &Value, our: &Value) {
        for key in ["served", "storage"] {
            self.equal(name, key, &their[key], &our[key]);
        }
        // Both ways: with a status subresource, a status written with the object is dropped.
        let has_status = |version: &Value| !version["subresources"]["status"].is_null();
        self.equal(
            name,
            "status subresource",
            &has_status(their).into(),
            &has_status(our).into(),
        );
        for column in array(&their["additionalPrinterColumns"]) {
            self.columns += 1;
            let same = |our: &&Value| {
                ["name", "type", "jsonPath", "format", "priority"]
                    .iter()
                    .all(|key| our[key] == column[key])
            };
            if !array(&our["additionalPrinterColumns"])
                .iter()
                .any(|our| same(&our))
            {
                self.short(name, format_args!("no column {column}"));
            }
        }
        let schema = |version: &Value| flatten(&version["schema"]["openAPIV3Schema"]);
        let our = schema(our);
        for (path, their) in schema(their) {
            self.paths += 1;
            match our.get(&path) {
                Some(our) => self.field(&format!("{name} {path}"), &their, our),
                None => self.short(name, format_args!("no field {path}")),
            }
        }
    }

    /// A field takes what the other takes: the same type and rules, at least the same words and
    /// `null`; a format where there was none only says what the type holds anyway.
    fn field(&mut self, place: &str, their: &Map<String, Value>, our: &Map<String, Value>) {
        for (key, value) in their {
            let here = our.get(key).unwrap_or(&Value::Null);
            if key == "enum" {
                for word in array(value) {
                    self.words += 1;
                    if !array(here).contains(word) {
                        self.short(place, format_args!("no enum value {word}"));
                    }
                }
            } else {
                self.equal(place, key, value, here);
            }
        }
        for (key, value) in our {
            if !their.contains_key(key) && !["format", "nullable"].contains(&key.as_str()) {
                self.short(place, format_args!("asks for {key} {value}"));
            }
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Every field of a schema by its path, with what is said of it apart from words for people.
fn flatten(schema: &Value) -> BTreeMap<String, Map<String, Value>> {
    fn walk(path: &str, schema: &Value, found: &mut BTreeMap<String, Map<String, Value>>) {
        let mut facts = schema.as_object().cloned().unwrap_or_default();
        facts.remove("description");
        if let Some(Value::Object(fields)) = facts.remove("properties") {
            for (name, field) in fields {
                walk(&format!("{path}.{name}"), &field, found);
            }
        }
        if let Some(items) = facts.remove("items") {
            walk(&format!("{path}[]"), &items, found);
        }
        if let Some(values) = facts.remove("additionalProperties") {
            walk(&format!("{path}{{}}"), &values, found);
        }
        found.insert(path.to_owned(), facts);
    }
    let mut found = BTreeMap::new();
    walk("", schema, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use bowline_api::{crd, v1};
    use serde_json::{Value, json};

    use super::crds;

    fn schema(crd: &mut Value) -> &mut Value {
        &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    #[test]
    fn a_definition_covers_itself() {
        let all = crd::all();
        let comparison = crds(&all, &all);
        assert!(
            comparison.shortfalls.is_empty(),
            "{:?}",
            comparison.shortfalls
        );
        assert_eq!(comparison.kinds, 15);
        assert!(comparison.paths > 600 && comparison.words > 100 && comparison.columns > 40);
    }

    type Change = fn(&mut Value);

    /// Each change to ours is seen, and named.
    #[test]
    fn every_kind_of_shortfall_is_seen() {
        let changes: &[(Change, &str)] = &[
            (|c| c["metadata"]["name"] = "x".into(), "no such kind"),
            (|c| c["spec"]["scope"] = "Cluster".into(), "scope"),
            (
                |c| c["spec"]["names"]["shortNames"] = json!([]),
                "no short name",
            ),
            (
                |c| c["spec"]["versions"][0]["name"] = "v2".into(),
                "no version",
            ),
            (
                |c| c["spec"]["versions"][0]["subresources"] = json!({"status": {}}),
                "status subresource",
            ),
            (
                |c| c["spec"]["versions"][0]["additionalPrinterColumns"][0]["type"] = "date".into(),
                "no column",
            ),
            (
                |c| {
                    let fields = schema(c)["properties"]["spec"]["properties"]
                        .as_object_mut()
                        .unwrap();
                    fields.remove("provider");
                },
                "no field .spec.provider",
            ),
            (
                |c| {
                    schema(c)["properties"]["spec"]["properties"]["provider"]["type"] =
                        "integer".into()
                },
                "type",
            ),
            (
                |c| {
                    schema(c)["properties"]["status"]["properties"]["phase"]["enum"] =
                        json!(["Available"])
                },
                "no enum value \"Unavailable\"",
            ),
            (
                |c| {
                    schema(c)["properties"]["spec"]["properties"]["provider"]["enum"] =
                        json!(["aws"])
                },
                "asks for enum",
            ),
            (
                |c| {
                    schema(c)["properties"]["spec"]["properties"]["backupSyncPeriod"]["nullable"] =
                        false.into()
                },
                "nullable",
            ),
            (
                |c| schema(c)["properties"]["spec"]["required"] = json!(["provider", "config"]),
                "required",
            ),
        ];
        let theirs = vec![crd::of::<v1::BackupStorageLocation>()];
        for (change, expected) in changes {
            let mut ours = theirs.clone();
            change(&mut ours[0]);
            let found = crds(&theirs, &ours).shortfalls.join("\n");
            assert!(
                found.contains(expected),
                "expected {expected:?} in {found:?}"
            );
        }
    }
}
