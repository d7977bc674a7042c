//! The rules of a CustomResourceDefinition: its names, versions, columns, subresources and conversion;
//! `structural` has those of its schemas. What all versions have in common is told of the definition,
//! as the real server keeps it there.

use serde_json::{Value, json};

use super::{
    bad, child, forbidden, formats, invalid, items, meta, required, shown, structural, text,
    unsupported,
};
use crate::status::Cause;

/// What is wrong with a definition that has its defaults, besides the metadata of any object. Left out:
/// the URL, service and CA of a conversion webhook, CEL rules, the paths of selectable fields, and what
/// must not change in an update.
pub(crate) fn crd(object: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
    let (group, names) = (text(spec, "group"), &spec["names"]);
    let mut causes = Vec::new();
    let name = text(&object["metadata"], "name");
    if !name.is_empty() && name != format!("{}.{group}", text(names, "plural")) {
        causes.push(bad(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    match (group, meta::subdomain(group)) {
        ("", _) => causes.push(required("spec.group", "")),
        (group, problems) if !problems.is_empty() => {
            causes.push(bad("spec.group", group, &problems.join(",")))
        }
        (group, _) if !group.contains('.') => {
            causes.push(bad(
                "spec.group",
                group,
                "should be a domain with at least one dot",
            ));
        }
        _ => {}
    }
    one_of(
        spec,
        "scope",
        &["Cluster", "Namespaced"],
        "spec.scope",
        &mut causes,
    );
    versions(spec, &mut causes);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            causes.push(required(format!("spec.names.{key}"), ""));
        }
    }
    name_rules(names, "spec.names", &mut causes);
    let shared = Shared::of(spec);
    if let Some(version) = items(spec, "versions").first() {
        of_version(version, "spec", &shared.inverted(), &mut causes);
    }
    conversion(&spec["conversion"], &mut causes);
    name_rules(
        &object["status"]["acceptedNames"],
        "status.acceptedNames",
        &mut causes,
    );
    stored_versions(object, &mut causes);
    approval(object, group, &mut causes);
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(invalid("spec.preserveUnknownFields", &json!(true), detail));
    }
    causes
}

fn one_of(value: &Value, key: &str, allowed: &[&str], path: &str, causes: &mut Vec<Cause>) {
    match text(value, key) {
        "" => causes.push(required(path, "")),
        word if allowed.contains(&word) => {}
        _ => {
            let allowed: Vec<String> = allowed.iter().map(|word| (*word).to_owned()).collect();
            causes.push(unsupported(path, &value[key], &allowed));
        }
    }
}

/// Which parts all versions have in common.
#[derive(Clone, Copy)]
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl Shared {
    fn of(spec: &Value) -> Self {
        let versions = items(spec, "versions");
        let same = |key: &str| versions.windows(2).all(|pair| pair[0][key] == pair[1][key]);
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }

    fn inverted(self) -> Self {
        Self {
            schema: !self.schema,
            subresources: !self.subresources,
            columns: !self.columns,
            selectable: !self.selectable,
        }
    }
}

fn versions(spec: &Value, causes: &mut Vec<Cause>) {
    let versions = items(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            causes.push(required(
                format!("spec.versions[{index}].schema.openAPIV3Schema"),
                "",
            ));
        }
    }
    let shared = Shared::of(spec);
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        let problems = meta::label_1035(name);
        if !problems.is_empty() {
            causes.push(bad(format!("{path}.name"), name, &problems.join(",")));
        }
        if let Value::String(warning) = &version["deprecationWarning"] {
            for problem in deprecation_problems(warning, version["deprecated"] == true) {
                causes.push(bad(format!("{path}.deprecationWarning"), warning, &problem));
            }
        }
        of_version(version, &path, &shared, causes);
    }
    let names: Vec<&str> = versions
        .iter()
        .map(|version| text(version, "name"))
        .collect();
    if names
        .iter()
        .enumerate()
        .any(|(index, name)| names[..index].contains(name))
    {
        causes.push(in_versions(spec, "must contain unique version names"));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        causes.push(in_versions(
            spec,
            "must have exactly one version marked as storage version",
        ));
    }
    // The real server keeps the name of the first version in the definition as well.
    if let Some(name) = names.first() {
        let problems = meta::label_1035(name);
        if !problems.is_empty() && !name.is_empty() {
            causes.push(bad("spec.version", name, &problems.join(",")));
        }
    }
}

fn deprecation_problems(warning: &str, deprecated: bool) -> Vec<String> {
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut problems = Vec::new();
    if warning.len() > 256 {
        problems.push("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        problems.push("must not be an empty string".to_owned());
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        problems.push(format!("must only contain printable UTF-8 characters; non-printable character found at index {index}"));
    }
    problems
}

/// A cause about all versions, shown as the real server's own type.
fn in_versions(spec: &Value, detail: &str) -> Cause {
    let said = match spec["versions"].as_array() {
        None => "null".to_owned(),
        Some(versions) => {
            let each: Vec<String> = versions
                .iter()
                .map(|version| {
                    let warning = &version["deprecationWarning"];
                    format!(
                        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                        shown(&json!(text(version, "name"))),
                        version["served"] == true,
                        version["storage"] == true,
                        version["deprecated"] == true,
                        shown(warning),
                    )
                })
                .collect();
            format!("[{}]", each.join(","))
        }
    };
    let message = format!("Invalid value: {said}: {detail}");
    Cause {
        reason: "FieldValueInvalid",
        message,
        field: "spec.versions".to_owned(),
    }
}

/// The parts of a version that are not shared, or, seen from the definition, those that are.
fn of_version(version: &Value, path: &str, skip: &Shared, causes: &mut Vec<Cause>) {
    let holder = if path == "spec" {
        "validation"
    } else {
        "schema"
    };
    let schema = &version["schema"]["openAPIV3Schema"];
    if !skip.schema && !schema.is_null() {
        let status = !version["subresources"]["status"].is_null();
        causes.extend(structural::schema(
            schema,
            status,
            &format!("{path}.{holder}.openAPIV3Schema"),
        ));
    }
    if !skip.subresources {
        scale(
            &version["subresources"]["scale"],
            &format!("{path}.subresources.scale"),
            causes,
        );
    }
    if !skip.columns {
        for (index, column) in items(version, "additionalPrinterColumns")
            .iter()
            .enumerate()
        {
            self::column(
                column,
                &format!("{path}.additionalPrinterColumns[{index}]"),
                causes,
            );
        }
    }
    if !skip.selectable {
        for (index, field) in items(version, "selectableFields").iter().enumerate() {
            if text(field, "jsonPath").is_empty() {
                causes.push(required(
                    format!("{path}.selectableFields[{index}].jsonPath"),
                    "",
                ));
            }
        }
    }
}

fn scale(scale: &Value, path: &str, causes: &mut Vec<Cause>) {
    if scale.is_null() {
        return;
    }
    let rules: [(&str, &[&str], &str); 3] = [
        (
            "specReplicasPath",
            &[".spec."],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
        ),
    ];
    for (key, starts, detail) in rules {
        let path = child(path, key);
        match text(scale, key) {
            "" if key == "labelSelectorPath" => {}
            "" => causes.push(required(path, "")),
            said if !said.starts_with('.') => {
                causes.push(bad(
                    path,
                    said,
                    "must be a simple json path starting with .",
                ));
            }
            said if !starts.iter().any(|start| said.starts_with(start)) => {
                causes.push(bad(path, said, detail))
            }
            _ => {}
        }
    }
}

fn column(column: &Value, path: &str, causes: &mut Vec<Cause>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    if text(column, "name").is_empty() {
        causes.push(required(child(path, "name"), ""));
    }
    let detail = format!("must be one of {}", TYPES.join(","));
    match text(column, "type") {
        "" => causes.push(required(child(path, "type"), &detail)),
        kind if !TYPES.contains(&kind) => causes.push(bad(child(path, "type"), kind, &detail)),
        _ => {}
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        causes.push(bad(
            child(path, "format"),
            format,
            &format!("must be one of {}", FORMATS.join(",")),
        ));
    }
    // The real server writes this field so.
    match text(column, "jsonPath") {
        "" => causes.push(required(child(path, "JSONPath"), "")),
        said if !said.starts_with('.') => {
            causes.push(bad(
                child(path, "JSONPath"),
                said,
                "must be a simple json path starting with .",
            ));
        }
        _ => {}
    }
}

fn name_rules(names: &Value, path: &str, causes: &mut Vec<Cause>) {
    for key in ["plural", "singular"] {
        let name = text(names, key);
        let problems = meta::label_1035(name);
        if !name.is_empty() && !problems.is_empty() {
            causes.push(bad(child(path, key), name, &problems.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let problems = meta::label_1035(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            );
            causes.push(bad(child(path, key), name, &detail));
        }
    }
    label_list(names, "shortNames", path, causes);
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        causes.push(bad(
            child(path, "listKind"),
            kind,
            "kind and listKind may not be the same",
        ));
    }
    label_list(names, "categories", path, causes);
}

fn label_list(names: &Value, key: &str, path: &str, causes: &mut Vec<Cause>) {
    for (index, name) in items(names, key).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        let problems = meta::label_1035(name);
        if !problems.is_empty() {
            causes.push(bad(
                format!("{path}.{key}[{index}]"),
                name,
                &problems.join(","),
            ));
        }
    }
}

fn conversion(conversion: &Value, causes: &mut Vec<Cause>) {
    if conversion.is_null() {
        return;
    }
    let path = "spec.conversion";
    one_of(
        conversion,
        "strategy",
        &["None", "Webhook"],
        "spec.conversion.strategy",
        causes,
    );
    let webhook = &conversion["webhook"];
    let (config, review) = (
        &webhook["clientConfig"],
        items(webhook, "conversionReviewVersions"),
    );
    let (config_at, review_at) = (
        child(path, "webhookClientConfig"),
        child(path, "conversionReviewVersions"),
    );
    if text(conversion, "strategy") != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if !config.is_null() {
            causes.push(forbidden(config_at, detail));
        }
        if !review.is_empty() {
            causes.push(forbidden(review_at, detail));
        }
        return;
    }
    if config.is_null() {
        causes.push(required(
            config_at,
            "required when strategy is set to Webhook",
        ));
    } else if config["url"].is_null() == config["service"].is_null() {
        causes.push(required(
            config_at,
            "exactly one of url or service is required",
        ));
    }
    if review.is_empty() {
        causes.push(required(review_at, ""));
        return;
    }
    for (index, version) in review.iter().enumerate() {
        let said = version.as_str().unwrap_or_default();
        let at = format!("{review_at}[{index}]");
        if review[..index].contains(version) {
            causes.push(bad(at, said, "duplicate version"));
        } else {
            causes.extend(
                meta::label_1035(said)
                    .iter()
                    .map(|problem| bad(&at, said, problem)),
            );
        }
    }
    if !review
        .iter()
        .any(|version| version == "v1" || version == "v1beta1")
    {
        causes.push(invalid(
            review_at,
            &webhook["conversionReviewVersions"],
            "must include at least one of v1, v1beta1",
        ));
    }
}

fn stored_versions(object: &Value, causes: &mut Vec<Cause>) {
    let path = "status.storedVersions";
    let versions = items(&object["spec"], "versions");
    let first = versions.iter().find(|version| version["storage"] == true);
    // Not said, it is the first version that is stored.
    let stored: Vec<&str> = match items(&object["status"], "storedVersions") {
        [] => first
            .map(|version| text(version, "name"))
            .into_iter()
            .collect(),
        said => said.iter().filter_map(Value::as_str).collect(),
    };
    if stored.is_empty() {
        causes.push(invalid(
            path,
            &Value::Null,
            "must have at least one stored version",
        ));
        return;
    }
    for version in versions.iter().filter(|version| version["storage"] == true) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            causes.push(invalid(
                path,
                &json!(stored),
                &format!("must have the storage version {name}"),
            ));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions
            .iter()
            .any(|version| text(version, "name") == *name)
        {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.push(bad(format!("{path}[{index}]"), name, &detail));
        }
    }
}

/// The groups of the community need a word that their API was looked at.
fn approval(object: &Value, group: &str, causes: &mut Vec<Cause>) {
    let own = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !own("k8s.io") && !own("kubernetes.io") {
        return;
    }
    let key = "api-approved.kubernetes.io";
    let (at, said) = (
        format!("metadata.annotations[{key}]"),
        text(&object["metadata"]["annotations"], key),
    );
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if said.is_empty() {
        causes.push(required(
            at,
            &format!("protected groups must have approval annotation \"{key}\", {see}"),
        ));
    } else if !said.starts_with("unapproved")
        && (!formats::matches("uri", said) || !said.contains("://"))
    {
        let detail = format!(
            "protected groups must have approval annotation \"{key}\" with either a URL or a reason starting with \"unapproved\", {see}"
        );
        causes.push(bad(at, said, &detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::crd;
    use crate::validate::lines;

    const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        let mut object = json!({"metadata": {"name": "foos.val.example.com"}, "spec": {
            "group": "val.example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"},
            "versions": [version("v1", true, json!({}))],
        }});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        assert_eq!(lines(&crd(&object)), expected);
    }

    fn version(name: &str, storage: bool, more: Value) -> Value {
        let mut version = json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
        for (key, value) in more.as_object().unwrap() {
            version[key] = value.clone();
        }
        version
    }

    #[test]
    fn names() {
        check(json!({}), &[]);
        let name = "FieldValueInvalid metadata.name: Invalid value: \"foos.val.example.com\": must be spec.names.plural+\".\"+spec.group";
        check(
            json!({"group": "foo"}),
            &[
                name,
                "FieldValueInvalid spec.group: Invalid value: \"foo\": should be a domain with at least one dot",
            ],
        );
        check(
            json!({"scope": "X"}),
            &[
                "FieldValueNotSupported spec.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespaced\"",
            ],
        );
        check(
            json!({"names": {}}),
            &[
                name,
                "FieldValueRequired spec.names.plural: Required value",
                "FieldValueRequired spec.names.singular: Required value",
                "FieldValueRequired spec.names.kind: Required value",
                "FieldValueRequired spec.names.listKind: Required value",
            ],
        );
        let mixed = format!("may have mixed case, but should otherwise match: {LABEL}");
        check(
            json!({"names": {"plural": "Foos", "kind": "1", "listKind": "1", "singular": "_", "shortNames": ["A"], "categories": ["B"]}}),
            &[
                name,
                &format!("FieldValueInvalid spec.names.plural: Invalid value: \"Foos\": {LABEL}"),
                &format!("FieldValueInvalid spec.names.singular: Invalid value: \"_\": {LABEL}"),
                &format!("FieldValueInvalid spec.names.kind: Invalid value: \"1\": {mixed}"),
                &format!("FieldValueInvalid spec.names.listKind: Invalid value: \"1\": {mixed}"),
                &format!(
                    "FieldValueInvalid spec.names.shortNames[0]: Invalid value: \"A\": {LABEL}"
                ),
                "FieldValueInvalid spec.names.listKind: Invalid value: \"1\": kind and listKind may not be the same",
                &format!(
                    "FieldValueInvalid spec.names.categories[0]: Invalid value: \"B\": {LABEL}"
                ),
            ],
        );
        let empty = crd(&json!({"metadata": {"name": "x"}, "spec": {}}));
        assert_eq!(
            lines(&empty),
            [
                "FieldValueInvalid metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group",
                "FieldValueRequired spec.group: Required value",
                "FieldValueRequired spec.scope: Required value",
                "FieldValueInvalid spec.versions: Invalid value: null: must have exactly one version marked as storage version",
                "FieldValueRequired spec.names.plural: Required value",
                "FieldValueRequired spec.names.singular: Required value",
                "FieldValueRequired spec.names.kind: Required value",
                "FieldValueRequired spec.names.listKind: Required value",
                "FieldValueInvalid status.storedVersions: Invalid value: null: must have at least one stored version",
            ]
        );
    }

    #[test]
    fn versions() {
        check(
            json!({"versions": []}),
            &[
                "FieldValueInvalid spec.versions: Invalid value: []: must have exactly one version marked as storage version",
                "FieldValueInvalid status.storedVersions: Invalid value: null: must have at least one stored version",
            ],
        );
        check(
            json!({"versions": [{"name": "v1", "served": true, "storage": true}]}),
            &["FieldValueRequired spec.versions[0].schema.openAPIV3Schema: Required value"],
        );
        check(
            json!({"versions": [version("v1", true, json!({})), version("v2", false, json!({}))]}),
            &[],
        );
        let said = |name: &str, storage: bool| {
            format!(
                "{{\"Name\":\"{name}\",\"Served\":true,\"Storage\":{storage},\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}"
            )
        };
        check(
            json!({"versions": [version("v1", true, json!({})), version("v2", true, json!({}))]}),
            &[
                &format!(
                    "FieldValueInvalid spec.versions: Invalid value: [{},{}]: must have exactly one version marked as storage version",
                    said("v1", true),
                    said("v2", true)
                ),
                "FieldValueInvalid status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2",
            ],
        );
        check(
            json!({"versions": [version("v1", true, json!({})), version("v1", false, json!({}))]}),
            &[&format!(
                "FieldValueInvalid spec.versions: Invalid value: [{},{}]: must contain unique version names",
                said("v1", true),
                said("v1", false)
            )],
        );
        check(
            json!({"versions": [version("V1", false, json!({}))]}),
            &[
                &format!("FieldValueInvalid spec.versions[0].name: Invalid value: \"V1\": {LABEL}"),
                &format!(
                    "FieldValueInvalid spec.versions: Invalid value: [{}]: must have exactly one version marked as storage version",
                    said("V1", false)
                ),
                &format!("FieldValueInvalid spec.version: Invalid value: \"V1\": {LABEL}"),
                "FieldValueInvalid status.storedVersions: Invalid value: null: must have at least one stored version",
            ],
        );
        check(
            json!({"versions": [version("v1", true, json!({"deprecationWarning": "x"}))]}),
            &[
                "FieldValueInvalid spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
            ],
        );
        let bad = json!({"schema": {"openAPIV3Schema": {"type": "string"}}});
        check(
            json!({"versions": [version("v1", true, bad.clone())]}),
            &[
                "FieldValueInvalid spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root",
            ],
        );
        check(
            json!({"versions": [version("v1", true, json!({})), version("v2", false, bad)]}),
            &[
                "FieldValueInvalid spec.versions[1].schema.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root",
            ],
        );
    }

    #[test]
    fn columns_and_subresources() {
        let columns = json!({"additionalPrinterColumns": [{}, {"name": "a", "type": "x", "format": "y", "jsonPath": "z"}]});
        check(
            json!({"versions": [version("v1", true, columns)]}),
            &[
                "FieldValueRequired spec.additionalPrinterColumns[0].name: Required value",
                "FieldValueRequired spec.additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string",
                "FieldValueRequired spec.additionalPrinterColumns[0].JSONPath: Required value",
                "FieldValueInvalid spec.additionalPrinterColumns[1].type: Invalid value: \"x\": must be one of boolean,date,integer,number,string",
                "FieldValueInvalid spec.additionalPrinterColumns[1].format: Invalid value: \"y\": must be one of byte,date,date-time,double,float,int32,int64,password",
                "FieldValueInvalid spec.additionalPrinterColumns[1].JSONPath: Invalid value: \"z\": must be a simple json path starting with .",
            ],
        );
        check(
            json!({"versions": [version("v1", true, json!({"subresources": {"scale": {}}}))]}),
            &[
                "FieldValueRequired spec.subresources.scale.specReplicasPath: Required value",
                "FieldValueRequired spec.subresources.scale.statusReplicasPath: Required value",
            ],
        );
        let scale =
            json!({"specReplicasPath": ".x", "statusReplicasPath": "y", "labelSelectorPath": ".z"});
        check(
            json!({"versions": [version("v1", true, json!({"subresources": {"scale": scale}}))]}),
            &[
                "FieldValueInvalid spec.subresources.scale.specReplicasPath: Invalid value: \".x\": should be a json path under .spec",
                "FieldValueInvalid spec.subresources.scale.statusReplicasPath: Invalid value: \"y\": must be a simple json path starting with .",
                "FieldValueInvalid spec.subresources.scale.labelSelectorPath: Invalid value: \".z\": should be a json path under either .spec or .status",
            ],
        );
    }

    #[test]
    fn the_rest() {
        check(
            json!({"preserveUnknownFields": true}),
            &[
                "FieldValueInvalid spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        );
        check(
            json!({"conversion": {"strategy": "X"}}),
            &[
                "FieldValueNotSupported spec.conversion.strategy: Unsupported value: \"X\": supported values: \"None\", \"Webhook\"",
            ],
        );
        check(
            json!({"conversion": {"strategy": "Webhook"}}),
            &[
                "FieldValueRequired spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "FieldValueRequired spec.conversion.conversionReviewVersions: Required value",
            ],
        );
        check(
            json!({"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["x"], "clientConfig": {}}}}),
            &[
                "FieldValueRequired spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
                "FieldValueInvalid spec.conversion.conversionReviewVersions: Invalid value: [\"x\"]: must include at least one of v1, v1beta1",
            ],
        );
        let object = json!({"metadata": {"name": "foos.val.k8s.io"}, "spec": {"group": "val.k8s.io", "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}, "versions": [version("v1", true, json!({}))]}});
        assert_eq!(
            lines(&crd(&object)),
            [
                "FieldValueRequired metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
            ]
        );
    }
}
