//! Which resources there are: the built-in ones, and those that CustomResourceDefinitions add.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use crate::{
    schema::{BUILT_IN, Schema},
    store::ResourceId,
    table::{self, Columns},
};

/// A resource in one version.
#[derive(Clone)]
pub(crate) struct ResourceType {
    pub(crate) id: ResourceId,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    /// Subresources and their verbs.
    pub(crate) subresources: BTreeMap<String, Vec<String>>,
    pub(crate) schema: Arc<Schema>,
    /// The CustomResourceDefinition it is from, in this version.
    pub(crate) custom: Option<Arc<Custom>>,
    pub(crate) columns: Arc<Columns>,
}

/// What a CustomResourceDefinition says beyond what every resource has.
pub(crate) struct Custom {
    /// Paths of the scale subresource, if it has one.
    pub(crate) scale: Option<Value>,
    /// Fields that can be selected by.
    pub(crate) selectable: Vec<String>,
    /// A warning for whoever uses this version.
    pub(crate) deprecation: Option<String>,
}

impl ResourceType {
    pub(crate) fn group(&self) -> &str {
        &self.id.group
    }

    pub(crate) fn plural(&self) -> &str {
        &self.id.plural
    }

    pub(crate) fn api_version(&self) -> String {
        match self.group() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `deployments.apps`, `pods`: how messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        match self.group() {
            "" => self.plural().to_owned(),
            group => format!("{}.{group}", self.plural()),
        }
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresources.contains_key("status")
    }
}

/// All resources by group, version and plural.
pub(crate) struct Registry {
    built_in: Vec<Value>,
    /// Groups that CustomResourceDefinitions make, in the form of discovery.
    custom: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
    types: BTreeMap<(String, String, String), ResourceType>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        let mut registry = Self {
            built_in: BUILT_IN.groups.clone(),
            custom: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        for group in &BUILT_IN.groups {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in items(&group["versions"]) {
                for resource in items(&version["resources"]) {
                    let version = text(&version["version"]);
                    let built_in = built_in(name, &version, resource);
                    let key = (name.to_owned(), version, built_in.plural().to_owned());
                    registry.types.insert(key, built_in);
                }
            }
        }
        registry
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&ResourceType> {
        self.types
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.types
            .keys()
            .any(|(g, v, _)| g == group && v == version)
    }

    /// A resource by apiVersion and kind.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&ResourceType> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let of_version = |(g, v, _): &&(String, String, String)| g == group && v == version;
        self.types
            .iter()
            .filter(|(key, _)| of_version(key))
            .map(|(_, found)| found)
            .find(|found| found.kind == kind && found.verbs.iter().any(|v| v == "get"))
    }

    /// Some version of a resource, for those who only need its scope or name.
    pub(crate) fn any_version(&self, id: &ResourceId) -> Option<&ResourceType> {
        self.types.values().find(|found| found.id == *id)
    }

    /// The groups in the form of aggregated discovery, core first.
    pub(crate) fn groups(&self) -> Vec<Value> {
        let mut groups = self.built_in.clone();
        for (name, versions) in &self.custom {
            let mut versions: Vec<(&String, &Vec<Value>)> = versions.iter().collect();
            versions.sort_by_key(|(version, _)| std::cmp::Reverse(version_order(version)));
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| {
                    json!({ "version": version, "resources": resources, "freshness": "Current" })
                })
                .collect();
            groups.push(json!({ "metadata": { "name": name }, "versions": versions }));
        }
        groups
    }

    /// Takes a CustomResourceDefinition in, or its new content.
    pub(crate) fn define(&mut self, crd: &Value) {
        self.undefine(crd);
        let spec = &crd["spec"];
        let group = text(&spec["group"]);
        let names = &crd["status"]["acceptedNames"];
        let plural = text(&names["plural"]);
        let mut current: Vec<String> = items(&spec["versions"])
            .iter()
            .filter(|version| version["served"] == true && version["deprecated"] != true)
            .map(|version| text(&version["name"]))
            .collect();
        current.sort_by_key(|version| version_order(version));
        let newest = current.pop();
        for version in items(&spec["versions"]) {
            if version["served"] != true {
                continue;
            }
            let name = text(&version["name"]);
            let found = custom(
                &group,
                &name,
                names,
                version,
                spec["scope"] == "Namespaced",
                newest.as_deref(),
            );
            let entry = discovery_entry(&group, &name, &found, names);
            let versions = self.custom.entry(group.clone()).or_default();
            let resources = versions.entry(name.clone()).or_default();
            resources.push(entry);
            resources.sort_by_key(|entry| text(&entry["resource"]));
            self.types
                .insert((group.clone(), name, plural.clone()), found);
        }
    }

    /// Forgets what a CustomResourceDefinition brought.
    pub(crate) fn undefine(&mut self, crd: &Value) {
        let group = text(&crd["spec"]["group"]);
        let plural = text(&crd["spec"]["names"]["plural"]);
        self.types
            .retain(|(g, _, p), found| !(*g == group && *p == plural && found.custom.is_some()));
        if let Some(versions) = self.custom.get_mut(&group) {
            for resources in versions.values_mut() {
                resources.retain(|entry| entry["resource"] != plural.as_str());
            }
            versions.retain(|_, resources| !resources.is_empty());
            if versions.is_empty() {
                self.custom.remove(&group);
            }
        }
    }
}

fn built_in(group: &str, version: &str, resource: &Value) -> ResourceType {
    let kind = text(&resource["responseKind"]["kind"]);
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let plural = text(&resource["resource"]);
    let schema = BUILT_IN.schema(&api_version, &kind).cloned();
    ResourceType {
        id: ResourceId {
            group: group.into(),
            plural: plural.as_str().into(),
        },
        version: version.to_owned(),
        list_kind: format!("{kind}List"),
        kind,
        namespaced: resource["scope"] == "Namespaced",
        verbs: words(&resource["verbs"]),
        subresources: items(&resource["subresources"])
            .iter()
            .map(|sub| (text(&sub["subresource"]), words(&sub["verbs"])))
            .collect(),
        schema: Arc::new(schema.unwrap_or_else(Schema::anything)),
        custom: None,
        columns: Arc::new(table::built_in(group, &plural)),
    }
}

fn custom(
    group: &str,
    version: &str,
    names: &Value,
    spec: &Value,
    namespaced: bool,
    newest: Option<&str>,
) -> ResourceType {
    let all = [
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch",
    ];
    let some: Vec<String> = ["get", "patch", "update"].map(String::from).to_vec();
    let mut subresources = BTreeMap::new();
    if spec["subresources"]["status"].is_object() {
        subresources.insert("status".to_owned(), some.clone());
    }
    let scale = spec["subresources"]["scale"]
        .as_object()
        .cloned()
        .map(Value::Object);
    if scale.is_some() {
        subresources.insert("scale".to_owned(), some);
    }
    let deprecation = (spec["deprecated"] == true).then(|| {
        let kind = text(&names["kind"]);
        let default = || match newest {
            Some(newest) => {
                format!("{group}/{version} {kind} is deprecated; use {group}/{newest} {kind}")
            }
            None => format!("{group}/{version} {kind} is deprecated"),
        };
        spec["deprecationWarning"]
            .as_str()
            .map_or_else(default, str::to_owned)
    });
    let mut schema = Schema::parse(&spec["schema"]["openAPIV3Schema"]);
    if spec["schema"]["openAPIV3Schema"].is_null() {
        schema = Schema::anything();
    }
    ResourceType {
        id: ResourceId {
            group: group.into(),
            plural: text(&names["plural"]).as_str().into(),
        },
        version: version.to_owned(),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        namespaced,
        verbs: all.map(String::from).to_vec(),
        subresources,
        schema: Arc::new(schema),
        custom: Some(Arc::new(Custom {
            scale,
            selectable: items(&spec["selectableFields"])
                .iter()
                .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
                .collect(),
            deprecation,
        })),
        columns: Arc::new(table::custom(items(&spec["additionalPrinterColumns"]))),
    }
}

fn discovery_entry(group: &str, version: &str, found: &ResourceType, names: &Value) -> Value {
    let response = json!({ "group": group, "version": version, "kind": found.kind });
    let mut entry = Map::new();
    entry.insert("resource".into(), found.plural().into());
    entry.insert("responseKind".into(), response.clone());
    entry.insert(
        "scope".into(),
        if found.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        }
        .into(),
    );
    entry.insert("singularResource".into(), names["singular"].clone());
    entry.insert("verbs".into(), found.verbs.clone().into());
    for key in ["shortNames", "categories"] {
        if !items(&names[key]).is_empty() {
            entry.insert(key.into(), names[key].clone());
        }
    }
    let subresources: Vec<Value> = found
        .subresources
        .iter()
        .rev()
        .map(|(name, verbs)| {
            let response = match name.as_str() {
                "scale" => json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" }),
                _ => response.clone(),
            };
            json!({ "subresource": name, "responseKind": response, "verbs": verbs })
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), subresources.into());
    }
    entry.into()
}

/// Kubernetes' order of versions: stable before beta before alpha, higher numbers first.
fn version_order(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (level, minor) = match &rest[digits..] {
            "" => (3, 0),
            tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
                (Some(n), _) => (2, n.parse().ok()?),
                (_, Some(n)) => (1, n.parse().ok()?),
                _ => return None,
            },
        };
        Some((level, major, minor))
    };
    let (level, major, minor) = parse().unwrap_or((0, 0, 0));
    (level, major, minor, std::cmp::Reverse(version.to_owned()))
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn words(value: &Value) -> Vec<String> {
    items(value).iter().map(text).collect()
}
