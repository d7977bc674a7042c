//! Which resources the cluster serves: read afresh at the start of every run.

use std::collections::BTreeMap;

use http::{Request, header};
use kube::Client;
use serde::Deserialize;

use crate::list::escape;

/// A resource in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural, `pods`.
    pub plural: String,
    /// The kind, `Pod`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The singular and the short names.
    pub other_names: Vec<String>,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// Whether this is the version that the cluster prefers for it.
    pub preferred: bool,
}

impl Resource {
    /// `pods` or `deployments.apps`.
    #[must_use]
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The collection's path, in one namespace or in all.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{}/{}", escape(namespace), self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// One object's path; an empty namespace for cluster-scoped ones.
    #[must_use]
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        let namespace = (self.namespaced && !namespace.is_empty()).then_some(namespace);
        format!("{}/{}", self.path(namespace), escape(name))
    }

    fn can_be_backed_up(&self) -> bool {
        ["list", "create", "get", "delete"]
            .iter()
            .all(|verb| self.verbs.iter().any(|v| v == verb))
    }
}

/// What the cluster serves.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// Resources that can be listed, read, created and deleted; groups in the cluster's order, the
    /// old group `extensions` last.
    pub resources: Vec<Resource>,
    /// Groups and versions that do not answer.
    pub broken: Vec<String>,
}

/// Which versions of a resource to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// The one that the cluster prefers.
    Preferred,
    /// Each that is served.
    All,
}

impl Discovery {
    /// Asks the cluster.
    pub async fn read(client: &Client, versions: Versions) -> Result<Self, kube::Error> {
        let mut groups = Vec::new();
        let mut broken = Vec::new();
        for root in ["/api", "/apis"] {
            match aggregated(client, root).await? {
                Some(list) => groups.extend(
                    list.items
                        .into_iter()
                        .map(|group| group.into_group(&mut broken)),
                ),
                None => groups.extend(one_by_one(client, root, &mut broken).await?),
            }
        }
        groups.sort_by_key(|group| group.name == "extensions");
        let resources = groups
            .into_iter()
            .flat_map(|group| group.choose(versions))
            .filter(Resource::can_be_backed_up)
            .collect();
        Ok(Self { resources, broken })
    }

    /// The resource that somebody means by `pods`, `po`, `Pod`, `deployment.apps`,
    /// `deployments.v1.apps` …; the preferred version.
    #[must_use]
    pub fn resolve(&self, text: &str) -> Option<&Resource> {
        let lower = text.to_lowercase();
        let (name, group) = lower
            .split_once('.')
            .map_or((lower.as_str(), None), |(name, group)| (name, Some(group)));
        let named = |r: &&Resource| {
            r.plural == name
                || r.kind.to_lowercase() == name
                || r.other_names.iter().any(|n| n == name)
        };
        let mut preferred = self.resources.iter().filter(|r| r.preferred);
        match group {
            None => {
                // A plural or singular beats another resource's short name.
                let exact = |r: &&Resource| r.plural == name || r.kind.to_lowercase() == name;
                preferred
                    .clone()
                    .find(exact)
                    .or_else(|| preferred.find(named))
            }
            Some(group) => preferred
                .clone()
                .filter(named)
                .find(|r| r.group == group)
                .or_else(|| {
                    preferred
                        .filter(named)
                        .find(|r| group == format!("{}.{}", r.version, r.group))
                }),
        }
    }

    /// The resource of this exact name, in its preferred version.
    #[must_use]
    pub fn find(&self, group_resource: &str) -> Option<&Resource> {
        self.position(group_resource).map(|at| &self.resources[at])
    }

    /// Its place among the resources.
    #[must_use]
    pub fn position(&self, group_resource: &str) -> Option<usize> {
        let (plural, group) = group_resource
            .split_once('.')
            .unwrap_or((group_resource, ""));
        self.resources
            .iter()
            .position(|r| r.preferred && r.plural == plural && r.group == group)
    }
}

struct Group {
    name: String,
    /// In the order of preference.
    versions: Vec<(String, Vec<Resource>)>,
}

impl Group {
    fn choose(mut self, versions: Versions) -> Vec<Resource> {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for (version, resources) in &mut self.versions {
            for resource in resources {
                let first = seen
                    .entry(resource.plural.clone())
                    .or_insert_with(|| version.clone());
                resource.preferred = first == version;
            }
        }
        self.versions
            .into_iter()
            .flat_map(|(_, resources)| resources)
            .filter(|resource| resource.preferred || versions == Versions::All)
            .collect()
    }
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    singular_resource: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

impl AggregatedGroup {
    fn into_group(self, broken: &mut Vec<String>) -> Group {
        let name = self.metadata.name;
        let versions = self
            .versions
            .into_iter()
            .map(|version| {
                if version.freshness == "Stale" {
                    broken.push(format!("{name}/{}", version.version));
                }
                let resources = version
                    .resources
                    .into_iter()
                    .map(|r| Resource {
                        group: name.clone(),
                        version: version.version.clone(),
                        plural: r.resource,
                        kind: r.response_kind.map(|k| k.kind).unwrap_or_default(),
                        namespaced: r.scope == "Namespaced",
                        other_names: names(r.singular_resource, r.short_names),
                        verbs: r.verbs,
                        preferred: false,
                    })
                    .collect();
                (version.version, resources)
            })
            .collect();
        Group { name, versions }
    }
}

fn names(singular: String, mut short: Vec<String>) -> Vec<String> {
    if !singular.is_empty() {
        short.insert(0, singular);
    }
    short
}

/// Everything below `/api` or `/apis` in one answer; none when the server is too old for that.
async fn aggregated(client: &Client, root: &str) -> Result<Option<GroupList>, kube::Error> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let request = Request::get(root)
        .header(header::ACCEPT, accept)
        .body(Vec::new())
        .expect("a constant path");
    let list: GroupList = client.request(request).await?;
    Ok((list.kind == "APIGroupDiscoveryList").then_some(list))
}

/// The same from a server that only answers group by group.
async fn one_by_one(
    client: &Client,
    root: &str,
    broken: &mut Vec<String>,
) -> Result<Vec<Group>, kube::Error> {
    let groups: Vec<(String, Vec<String>)> = if root == "/api" {
        let core = client.list_core_api_versions().await?;
        vec![(String::new(), core.versions)]
    } else {
        let list = client.list_api_groups().await?;
        list.groups
            .into_iter()
            .map(|group| {
                let mut versions: Vec<_> = group.versions.into_iter().map(|v| v.version).collect();
                if let Some(preferred) = group.preferred_version {
                    versions.sort_by_key(|version| *version != preferred.version);
                }
                (group.name, versions)
            })
            .collect()
    };
    let mut out = Vec::new();
    for (name, versions) in groups {
        let mut found = Vec::new();
        for version in versions {
            let list = if name.is_empty() {
                client.list_core_api_resources(&version).await
            } else {
                client
                    .list_api_group_resources(&format!("{name}/{version}"))
                    .await
            };
            match list {
                Ok(list) => {
                    let resources = list
                        .resources
                        .into_iter()
                        .filter(|r| !r.name.contains('/'))
                        .map(|r| Resource {
                            group: name.clone(),
                            version: version.clone(),
                            plural: r.name,
                            kind: r.kind,
                            namespaced: r.namespaced,
                            other_names: names(r.singular_name, r.short_names.unwrap_or_default()),
                            verbs: r.verbs,
                            preferred: false,
                        })
                        .collect();
                    found.push((version, resources));
                }
                Err(kube::Error::Api(_)) => broken.push(format!("{name}/{version}")),
                Err(error) => return Err(error),
            }
        }
        out.push(Group {
            name,
            versions: found,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::ApiServer;

    use super::*;

    async fn read() -> Discovery {
        let client = Client::new(ApiServer::default(), "default");
        Discovery::read(&client, Versions::Preferred).await.unwrap()
    }

    #[tokio::test]
    async fn names_are_resolved_as_people_write_them() {
        let discovery = read().await;
        for (text, expected) in [
            ("po", "pods"),
            ("Pod", "pods"),
            ("PODS", "pods"),
            ("deploy", "deployments.apps"),
            ("deployment.apps", "deployments.apps"),
            ("deployments.v1.apps", "deployments.apps"),
            ("sa", "serviceaccounts"),
            ("events", "events"),
            ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
        ] {
            assert_eq!(
                discovery
                    .resolve(text)
                    .map(Resource::group_resource)
                    .as_deref(),
                Some(expected),
                "{text}"
            );
        }
        assert_eq!(discovery.resolve("deployments.core"), None);
        assert_eq!(discovery.resolve("nosuch"), None);
    }

    #[tokio::test]
    async fn the_core_comes_first_and_only_what_can_be_kept() {
        let discovery = read().await;
        assert!(discovery.broken.is_empty());
        assert_eq!(discovery.resources[0].group, "");
        assert!(discovery.find("bindings").is_none());
        let pods = discovery.find("pods").unwrap();
        assert_eq!(
            pods.object_path("a", "b:c"),
            "/api/v1/namespaces/a/pods/b%3Ac"
        );
        let roles = discovery
            .find("clusterroles.rbac.authorization.k8s.io")
            .unwrap();
        assert!(!roles.namespaced);
    }
}
