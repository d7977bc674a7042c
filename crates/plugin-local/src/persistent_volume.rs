//! PersistentVolumes: which folder one is, and on which node. All that looks at JSON alone.

use serde_json::{Value, json};

use crate::{Error, Result, names::NodePath};

/// The label by which volumes say where they are.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The kinds of volumes that are folders of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    HostPath,
    Local,
}

impl Kind {
    /// As the specification of a volume calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HostPath => "hostPath",
            Self::Local => "local",
        }
    }
}

/// The folder of a volume; none if it is of another kind.
pub(crate) fn folder(volume: &Value) -> Result<Option<(Kind, NodePath)>> {
    let spec = &volume["spec"];
    let kind = match kind(spec) {
        Some(kind) => kind,
        None => return Ok(None),
    };
    let path = spec[kind.name()]["path"].as_str().unwrap_or_default();
    let what = format!("PersistentVolume {}: path", name(volume));
    Ok(Some((kind, NodePath::parse(&what, path)?)))
}

fn kind(spec: &Value) -> Option<Kind> {
    if let Some(source) = spec["hostPath"].as_object() {
        // Files, sockets and devices are no folders.
        let kind = source.get("type").and_then(Value::as_str);
        let is_folder = matches!(
            kind.unwrap_or_default(),
            "" | "Directory" | "DirectoryOrCreate"
        );
        return is_folder.then_some(Kind::HostPath);
    }
    spec["local"].is_object().then_some(Kind::Local)
}

/// The volume with another folder.
pub(crate) fn with_folder(volume: &Value, folder: &NodePath) -> Result<Value> {
    let mut volume = volume.clone();
    let Some(kind) = kind(&volume["spec"]) else {
        return Err(Error::refused(format!(
            "PersistentVolume {} is neither a hostPath nor a local volume",
            name(&volume)
        )));
    };
    volume["spec"][kind.name()]["path"] = json!(folder.as_str());
    Ok(volume)
}

/// The nodes that a volume is for, if this one is not among them.
pub(crate) fn elsewhere(volume: &Value, node: &str) -> Option<String> {
    let terms = terms(volume)?;
    if terms.is_empty() || terms.iter().any(|term| allows(term, node)) {
        return None;
    }
    let mut named: Vec<&str> = terms
        .iter()
        .flat_map(hostnames)
        .filter(|expression| expression["operator"] == "In")
        .flat_map(values)
        .collect();
    named.sort_unstable();
    named.dedup();
    Some(match named.len() {
        0 => "another node".to_owned(),
        1 => format!("node {}", named[0]),
        _ => format!("nodes {}", named.join(", ")),
    })
}

/// The volume, if it was for other nodes, as one that is on this node.
pub(crate) fn moved_to(mut volume: Value, node: &str) -> Value {
    if elsewhere(&volume, node).is_none() {
        return volume;
    }
    volume["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{
        "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": [node] }],
    }] } });
    volume
}

fn terms(volume: &Value) -> Option<&Vec<Value>> {
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array()
}

fn hostnames(term: &Value) -> impl Iterator<Item = &Value> {
    let expressions = term["matchExpressions"].as_array();
    let all = expressions.into_iter().flatten();
    all.filter(|expression| expression["key"] == HOSTNAME)
}

fn values(expression: &Value) -> impl Iterator<Item = &str> {
    let values = expression["values"].as_array();
    values.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether what a term says of hostnames is true of a node. What else it says is not known here.
fn allows(term: &Value, node: &str) -> bool {
    hostnames(term).all(|expression| {
        let is_named = values(expression).any(|name| name == node);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" => is_named,
            "NotIn" => !is_named,
            "DoesNotExist" => false,
            _ => true,
        }
    })
}

/// For people.
pub(crate) fn name(volume: &Value) -> &str {
    volume["metadata"]["name"]
        .as_str()
        .unwrap_or("without a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: Value) -> Value {
        json!({ "metadata": { "name": "v" }, "spec": spec })
    }

    fn on(term: Value) -> Value {
        volume(json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": term } } }))
    }

    #[test]
    fn folders_of_a_node_have_a_path() {
        for (spec, expected) in [
            (json!({ "hostPath": { "path": "/a" } }), Some("hostPath /a")),
            (
                json!({ "hostPath": { "path": "/a/", "type": "Directory" } }),
                Some("hostPath /a"),
            ),
            (
                json!({ "hostPath": { "path": "/a", "type": "DirectoryOrCreate" } }),
                Some("hostPath /a"),
            ),
            (
                json!({ "hostPath": { "path": "/a", "type": "File" } }),
                None,
            ),
            (json!({ "local": { "path": "/b" } }), Some("local /b")),
            (json!({ "csi": {} }), None),
            (json!({}), None),
        ] {
            let found = folder(&volume(spec.clone())).unwrap();
            let text = found.map(|(kind, path)| format!("{} {path}", kind.name()));
            assert_eq!(text.as_deref(), expected, "{spec}");
        }
        let error = folder(&volume(json!({ "local": { "path": "/a/../b" } }))).unwrap_err();
        assert!(error.to_string().contains("v: path \"/a/../b\""), "{error}");
    }

    #[test]
    fn the_new_folder_goes_where_the_old_one_was() {
        let path = NodePath::parse("", "/new").unwrap();
        for kind in ["hostPath", "local"] {
            let old = volume(json!({ kind: { "path": "/a", "x": 1 }, "y": 2 }));
            let new = with_folder(&old, &path).unwrap();
            let expected = volume(json!({ kind: { "path": "/new", "x": 1 }, "y": 2 }));
            assert_eq!(new, expected);
        }
        let error = with_folder(&volume(json!({ "nfs": {} })), &path).unwrap_err();
        assert!(error.to_string().contains("PersistentVolume v"), "{error}");
    }

    #[test]
    fn a_volume_of_another_node_is_known() {
        let expression = |operator: &str, values: &[&str]| json!({ "key": HOSTNAME, "operator": operator, "values": values });
        let term = |expressions: Vec<Value>| json!({ "matchExpressions": expressions });
        for (terms, expected) in [
            (vec![], None),
            (vec![term(vec![])], None),
            (vec![term(vec![expression("In", &["here"])])], None),
            (vec![term(vec![expression("In", &["b"])])], Some("node b")),
            (
                vec![
                    term(vec![expression("In", &["c"])]),
                    term(vec![expression("In", &["b", "c"])]),
                ],
                Some("nodes b, c"),
            ),
            (
                vec![
                    term(vec![expression("In", &["b"])]),
                    term(vec![expression("In", &["here"])]),
                ],
                None,
            ),
            (
                vec![term(vec![expression("NotIn", &["here"])])],
                Some("another node"),
            ),
            (vec![term(vec![expression("Exists", &[])])], None),
            (
                vec![term(vec![
                    json!({ "key": "zone", "operator": "In", "values": ["z"] }),
                ])],
                None,
            ),
        ] {
            let volume = on(json!(terms));
            let found = elsewhere(&volume, "here");
            assert_eq!(found.as_deref(), expected, "{terms:?}");
            let moved = moved_to(volume.clone(), "here");
            assert_eq!(elsewhere(&moved, "here"), None);
            assert_eq!(moved == volume, expected.is_none());
        }
        assert_eq!(elsewhere(&volume(json!({})), "here"), None);
    }
}
