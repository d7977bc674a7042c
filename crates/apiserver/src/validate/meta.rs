//! The rules of `metadata`: names, labels, annotations, owners and finalizers. A custom resource's name
//! is a DNS subdomain; built-in resources have rules of their own, listed in `rule`.

use std::{net::IpAddr, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

use super::{bad, child, forbidden, invalid, items, quoted, required, shown, text, too_long};
use crate::status::Cause;

/// How a resource may be called.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// Labels with dots between.
    Subdomain,
    /// A DNS label.
    Label,
    /// A DNS label that starts with a letter.
    Label1035,
    /// Anything that can stand in a path.
    Path,
    /// A subdomain that leaves room for what its controller adds.
    Short(usize),
    /// An address.
    Address,
}

/// What is wrong with the metadata of a new object, after its name was generated.
pub(crate) fn metadata(
    object: &Value,
    group: &str,
    resource: &str,
    namespaced: bool,
) -> Vec<Cause> {
    let meta = &object["metadata"];
    let mut causes = check(meta, rule(group, resource), namespaced, "metadata");
    if FULL_FINALIZERS.contains(&group) {
        for (index, finalizer) in items(meta, "finalizers").iter().enumerate() {
            let name = finalizer.as_str().unwrap_or_default();
            if !name.contains('/')
                && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name)
            {
                let detail = "name is neither a standard finalizer name nor is it fully qualified";
                causes.push(bad(format!("metadata.finalizers[{index}]"), name, detail));
            }
        }
    }
    if group == "scheduling.k8s.io" && resource == "priorityclasses" {
        let name = text(meta, "name");
        if name.starts_with("system-")
            && !["system-cluster-critical", "system-node-critical"].contains(&name)
        {
            causes.push(forbidden(
                "metadata.name",
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                ),
            ));
        }
    }
    causes
}

/// The groups whose finalizers must be standard or have a domain.
const FULL_FINALIZERS: [&str; 14] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

fn rule(group: &str, resource: &str) -> Rule {
    match (group, resource) {
        ("", "namespaces") | ("apps", "statefulsets") => Rule::Label,
        ("", "services") => Rule::Label1035,
        ("batch", "cronjobs") => Rule::Short(52),
        ("networking.k8s.io", "ipaddresses") => Rule::Address,
        ("rbac.authorization.k8s.io", _)
        | ("", "events")
        | ("events.k8s.io", _)
        | ("policy", _)
        | ("apiregistration.k8s.io", _)
        | ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            Rule::Path
        }
        _ => Rule::Subdomain,
    }
}

/// What is wrong with metadata at a path.
pub(super) fn check(meta: &Value, rule: Rule, namespaced: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let prefix = text(meta, "generateName");
    if !prefix.is_empty() {
        // What is put after a dash makes it a name; Go masks the character before it as well.
        let masked = match prefix
            .strip_suffix('-')
            .map(|head| head.char_indices().last())
        {
            Some(Some((last, _))) if rule != Rule::Path => format!("{}a", &prefix[..last]),
            _ => prefix.to_owned(),
        };
        let problems = name_problems(&masked, rule, true).into_iter();
        causes.extend(problems.map(|p| bad(child(path, "generateName"), prefix, &p)));
    }
    match text(meta, "name") {
        "" => causes.push(required(
            child(path, "name"),
            "name or generateName is required",
        )),
        name => {
            let problems = name_problems(name, rule, false).into_iter();
            causes.extend(problems.map(|p| bad(child(path, "name"), name, &p)));
        }
    }
    match (namespaced, text(meta, "namespace")) {
        (true, "") => causes.push(required(child(path, "namespace"), "")),
        (true, namespace) => {
            let problems = name_problems(namespace, Rule::Label, false).into_iter();
            causes.extend(problems.map(|p| bad(child(path, "namespace"), namespace, &p)));
        }
        (false, "") => {}
        (false, _) => causes.push(forbidden(
            child(path, "namespace"),
            "not allowed on this type",
        )),
    }
    if meta["generation"]
        .as_i64()
        .is_some_and(|generation| generation < 0)
    {
        let detail = "must be greater than or equal to 0";
        causes.push(invalid(
            child(path, "generation"),
            &meta["generation"],
            detail,
        ));
    }
    labels(meta, path, &mut causes);
    annotations(meta, path, &mut causes);
    owners(meta, path, &mut causes);
    finalizers(meta, path, &mut causes);
    causes
}

fn labels(meta: &Value, path: &str, causes: &mut Vec<Cause>) {
    let path = child(path, "labels");
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        causes.extend(qualified_name(key).iter().map(|p| bad(&path, key, p)));
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            causes.push(bad(&path, value, &longest(63)));
        }
        if !value.is_empty() && !QUALIFIED.is_match(value) {
            let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
            let form = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
            causes.push(bad(
                &path,
                value,
                &shape(words, form, &["MyValue", "my_value", "12345"]),
            ));
        }
    }
}

fn annotations(meta: &Value, path: &str, causes: &mut Vec<Cause>) {
    const LIMIT: usize = 256 * 1024;
    let path = child(path, "annotations");
    let mut size = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        causes.extend(
            qualified_name(&key.to_lowercase())
                .iter()
                .map(|p| bad(&path, key, p)),
        );
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > LIMIT {
        causes.push(too_long(path, LIMIT as u64));
    }
}

fn owners(meta: &Value, path: &str, causes: &mut Vec<Cause>) {
    let path = child(path, "ownerReferences");
    let references = items(meta, "ownerReferences");
    let mut controller = None;
    for owner in references {
        let version = match text(owner, "apiVersion")
            .split('/')
            .collect::<Vec<_>>()
            .as_slice()
        {
            [version] | [_, version] => (*version).to_owned(),
            _ => String::new(),
        };
        if version.is_empty() {
            causes.push(bad(
                child(&path, "apiVersion"),
                text(owner, "apiVersion"),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                causes.push(bad(child(&path, key), "", "must not be empty"));
            }
        }
        if text(owner, "apiVersion") == "v1" && text(owner, "kind") == "Event" {
            let message = format!(
                "Invalid value: {}: /v1, Kind=Event is disallowed from being an owner",
                reference(owner)
            );
            causes.push(Cause {
                reason: "FieldValueInvalid",
                message,
                field: path.clone(),
            });
        }
        if owner["controller"] == true {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let all: Vec<String> = references.iter().map(reference).collect();
                    let message = format!(
                        "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}",
                        all.join(",")
                    );
                    causes.push(Cause {
                        reason: "FieldValueInvalid",
                        message,
                        field: path.clone(),
                    });
                }
            }
        }
    }
}

/// An owner with its fields in Go's order.
fn reference(owner: &Value) -> String {
    let mut parts: Vec<String> = ["apiVersion", "kind", "name", "uid"]
        .iter()
        .map(|key| format!("\"{key}\":{}", quoted(text(owner, key))))
        .collect();
    for key in ["controller", "blockOwnerDeletion"] {
        if owner[key].is_boolean() {
            parts.push(format!("\"{key}\":{}", owner[key]));
        }
    }
    format!("{{{}}}", parts.join(","))
}

fn finalizers(meta: &Value, path: &str, causes: &mut Vec<Cause>) {
    let path = child(path, "finalizers");
    let names = items(meta, "finalizers");
    for name in names.iter().map(|name| name.as_str().unwrap_or_default()) {
        causes.extend(qualified_name(name).iter().map(|p| bad(&path, name, p)));
    }
    let has = |name: &str| names.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(invalid(path, &meta["finalizers"], detail));
    }
}

/// What an update does to metadata that it may not; `metadata` says the rest of the new object. What the
/// server fills from the old object is no concern of it: a `uid` that is not said, and
/// `creationTimestamp`, `generation` and a set `deletionTimestamp` in any case.
pub(crate) fn metadata_update(old: &Value, new: &Value) -> Vec<Cause> {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    let mut causes = Vec::new();
    if !old["deletionTimestamp"].is_null() {
        let mut added: Vec<String> = items(new, "finalizers")
            .iter()
            .filter(|name| !items(old, "finalizers").contains(name))
            .map(shown)
            .collect();
        added.sort();
        added.dedup();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(forbidden("metadata.finalizers", &detail));
        }
    }
    for key in [
        "name",
        "namespace",
        "uid",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let filled = match key {
            "uid" => text(new, key).is_empty(),
            "deletionTimestamp" => !old[key].is_null(),
            "deletionGracePeriodSeconds" => new[key].is_null(),
            _ => false,
        };
        if !filled && old[key] != new[key] {
            let said = match (&new[key], key) {
                (Value::Null, "name" | "namespace") => Value::String(String::new()),
                (value, _) => value.clone(),
            };
            causes.push(invalid(
                format!("metadata.{key}"),
                &said,
                "field is immutable",
            ));
        }
    }
    causes
}

/// What is wrong with a name; a prefix may be one of the words that are not names by themselves.
pub(super) fn name_problems(name: &str, rule: Rule, prefix: bool) -> Vec<String> {
    match rule {
        Rule::Subdomain => subdomain(name),
        Rule::Label => label(name),
        Rule::Label1035 => label_1035(name),
        Rule::Short(limit) => {
            let mut problems = subdomain(name);
            if name.len() > limit {
                problems.push(longest(limit));
            }
            problems
        }
        Rule::Address if name.parse::<IpAddr>().is_ok() => Vec::new(),
        Rule::Address => {
            vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
        }
        Rule::Path if !prefix && (name == "." || name == "..") => {
            vec![format!("may not be '{name}'")]
        }
        Rule::Path => {
            let held = ["/", "%"].into_iter().filter(|part| name.contains(part));
            held.map(|part| format!("may not contain '{part}'"))
                .collect()
        }
    }
}

pub(super) fn subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push(longest(253));
    }
    if !SUBDOMAIN.is_match(name) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        problems.push(shape(words, SUBDOMAIN_FORM, &["example.com"]));
    }
    problems
}

fn label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(longest(63));
    }
    if !LABEL.is_match(name) {
        problems.push(if SUBDOMAIN.is_match(name) {
            "must not contain dots".to_owned()
        } else {
            let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            shape(words, LABEL_FORM, &["my-name", "123-abc"])
        });
    }
    problems
}

pub(super) fn label_1035(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push(longest(63));
    }
    if !LABEL.is_match(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        problems.push(shape(
            words,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// `example.com/MyName`, the domain optional.
fn qualified_name(name: &str) -> Vec<String> {
    let words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let form = || {
        shape(
            words,
            "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut problems = Vec::new();
    let name = match name.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", name] => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            problems.extend(subdomain(prefix).iter().map(|p| format!("prefix part {p}")));
            name
        }
        _ => {
            let end = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {} {end}", form())];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", longest(63)));
    }
    if !QUALIFIED.is_match(name) {
        problems.push(format!("name part {}", form()));
    }
    problems
}

fn longest(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn shape(words: &str, form: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{form}')",
        examples.join(" or ")
    )
}

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

fn whole(form: &str) -> Regex {
    Regex::new(&format!("^{form}$")).expect("the patterns of this file are written by us")
}

static LABEL: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_FORM));
static SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN_FORM));
static QUALIFIED: LazyLock<Regex> =
    LazyLock::new(|| whole("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"));

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{metadata, metadata_update};
    use crate::validate::lines;

    const SUBDOMAIN: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

    #[track_caller]
    fn config_map(more: Value, expected: &[&str]) {
        let mut meta = json!({"name": "a", "namespace": "n"});
        for (key, value) in more.as_object().unwrap() {
            meta[key] = value.clone();
        }
        let found = lines(&metadata(
            &json!({"metadata": meta}),
            "",
            "configmaps",
            true,
        ));
        let expected: Vec<String> = expected
            .iter()
            .map(|line| format!("FieldValueInvalid metadata.{line}"))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names() {
        config_map(
            json!({"name": "A"}),
            &[&format!("name: Invalid value: \"A\": {SUBDOMAIN}")],
        );
        let long = "a".repeat(254);
        config_map(
            json!({"name": long}),
            &[&format!(
                "name: Invalid value: \"{long}\": must be no more than 253 characters"
            )],
        );
        config_map(json!({"generateName": "A-"}), &[]);
        config_map(json!({"generateName": "a--"}), &[]);
        config_map(
            json!({"generateName": "A"}),
            &[&format!("generateName: Invalid value: \"A\": {SUBDOMAIN}")],
        );
        let causes = metadata(&json!({"metadata": {}}), "val.example.com", "widgets", true);
        assert_eq!(
            lines(&causes),
            [
                "FieldValueRequired metadata.name: Required value: name or generateName is required",
                "FieldValueRequired metadata.namespace: Required value",
            ]
        );
        let causes = metadata(
            &json!({"metadata": {"name": "a", "namespace": "b"}}),
            "",
            "nodes",
            false,
        );
        assert_eq!(
            lines(&causes),
            ["FieldValueForbidden metadata.namespace: Forbidden: not allowed on this type"]
        );
    }

    #[test]
    fn names_of_resources_with_rules_of_their_own() {
        let name = |group: &str, resource: &str, name: &str| {
            let causes = metadata(&json!({"metadata": {"name": name}}), group, resource, false);
            causes
                .iter()
                .map(|c| {
                    c.message
                        .replace(&format!("Invalid value: \"{name}\": "), "")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(name("", "namespaces", "a.b"), ["must not contain dots"]);
        assert_eq!(
            name("", "namespaces", "A.b"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            name("", "namespaces", &"a".repeat(64)),
            ["must be no more than 63 characters"]
        );
        assert_eq!(
            name("", "services", "1a"),
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        let rbac = "rbac.authorization.k8s.io";
        assert_eq!(
            name(rbac, "clusterroles", "a/b%"),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(name(rbac, "clusterroles", ".."), ["may not be '..'"]);
        assert!(name(rbac, "clusterroles", "system:x Y").is_empty());
        assert_eq!(
            name("batch", "cronjobs", &"a".repeat(60)),
            ["must be no more than 52 characters"]
        );
        assert_eq!(
            name("networking.k8s.io", "ipaddresses", "A"),
            ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
        );
        assert_eq!(
            name("apps", "statefulsets", "a.b"),
            ["must not contain dots"]
        );
        assert_eq!(
            name("scheduling.k8s.io", "priorityclasses", "system-x"),
            [
                "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class"
            ]
        );
        assert!(name("certificates.k8s.io", "certificatesigningrequests", "A").is_empty());
    }

    #[test]
    fn labels_and_annotations() {
        let labels =
            json!({"a b": "x y", "/x": "a", "x/": "b", "a/b/c": "d", "A/b": "q", "ok": "-"});
        config_map(
            json!({"labels": labels}),
            &[
                "labels: Invalid value: \"/x\": prefix part must be non-empty",
                &format!("labels: Invalid value: \"A/b\": prefix part {SUBDOMAIN}"),
                &format!("labels: Invalid value: \"a b\": name part {NAME}"),
                &format!("labels: Invalid value: \"x y\": {VALUE}"),
                &format!(
                    "labels: Invalid value: \"a/b/c\": a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                ),
                &format!("labels: Invalid value: \"-\": {VALUE}"),
                "labels: Invalid value: \"x/\": name part must be non-empty",
                &format!("labels: Invalid value: \"x/\": name part {NAME}"),
            ],
        );
        let (key, value) = ("a".repeat(64), "b".repeat(64));
        config_map(
            json!({"labels": {&key: &value}}),
            &[
                &format!(
                    "labels: Invalid value: \"{key}\": name part must be no more than 63 characters"
                ),
                &format!("labels: Invalid value: \"{value}\": must be no more than 63 characters"),
            ],
        );
        config_map(
            json!({"annotations": {"A b": "", "EX.com/Foo": ""}}),
            &[&format!(
                "annotations: Invalid value: \"A b\": name part {NAME}"
            )],
        );
        let big = json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(262144)}}});
        let causes = metadata(&big, "", "nodes", false);
        assert_eq!(
            lines(&causes),
            ["FieldValueTooLong metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
        config_map(
            json!({"generation": -1}),
            &["generation: Invalid value: -1: must be greater than or equal to 0"],
        );
    }

    #[test]
    fn owners_and_finalizers() {
        config_map(
            json!({"ownerReferences": [{}]}),
            &[
                "ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                "ownerReferences.kind: Invalid value: \"\": must not be empty",
                "ownerReferences.name: Invalid value: \"\": must not be empty",
                "ownerReferences.uid: Invalid value: \"\": must not be empty",
            ],
        );
        config_map(
            json!({"ownerReferences": [{"apiVersion": "a/b/c", "kind": "A", "name": "a", "uid": "1"}]}),
            &["ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty"],
        );
        config_map(
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}]}),
            &[
                "ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"a\",\"uid\":\"1\"}: /v1, Kind=Event is disallowed from being an owner",
            ],
        );
        config_map(
            json!({"ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": true, "blockOwnerDeletion": true},
            ]}),
            &[
                "ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"A\",\"name\":\"a\",\"uid\":\"1\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"B\",\"name\":\"b\",\"uid\":\"2\",\"controller\":true,\"blockOwnerDeletion\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for A/a and B/b",
            ],
        );
        config_map(
            json!({"finalizers": ["x", "example.com/a", "a b", "orphan", "foregroundDeletion"]}),
            &[
                &format!("finalizers: Invalid value: \"a b\": name part {NAME}"),
                "finalizers: Invalid value: [\"x\",\"example.com/a\",\"a b\",\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
                "finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
                "finalizers[2]: Invalid value: \"a b\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        );
        config_map(json!({"finalizers": ["kubernetes"]}), &[]);
        let custom = json!({"metadata": {"name": "a", "namespace": "n", "finalizers": ["x"]}});
        assert!(metadata(&custom, "val.example.com", "widgets", true).is_empty());
    }

    #[test]
    fn updates() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "creationTimestamp": "2021-01-01T00:00:00Z", "finalizers": ["a.b/c"]}});
        let update = |old: &Value, more: Value| {
            let mut new = old.clone();
            for (key, value) in more.as_object().unwrap() {
                new["metadata"][key] = value.clone();
            }
            lines(&metadata_update(old, &new))
        };
        assert!(update(&old, json!({})).is_empty());
        assert!(
            update(
                &old,
                json!({"creationTimestamp": "2020-01-01T00:00:00Z", "uid": null})
            )
            .is_empty()
        );
        assert_eq!(
            update(&old, json!({"uid": "zz"})),
            ["FieldValueInvalid metadata.uid: Invalid value: \"zz\": field is immutable"]
        );
        assert_eq!(
            update(&old, json!({"name": "b"})),
            ["FieldValueInvalid metadata.name: Invalid value: \"b\": field is immutable"]
        );
        assert_eq!(
            update(&old, json!({"deletionTimestamp": "2020-01-01T00:00:00Z"})),
            [
                "FieldValueInvalid metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable"
            ]
        );
        assert_eq!(
            update(&old, json!({"deletionGracePeriodSeconds": 5})),
            [
                "FieldValueInvalid metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable"
            ]
        );
        let mut going = old.clone();
        going["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        assert_eq!(
            update(&going, json!({"finalizers": ["a.b/c", "d.e/f", "b.b/b"]})),
            [
                "FieldValueForbidden metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"b.b/b\", \"d.e/f\"}"
            ]
        );
    }
}
