//! In which order an archive is restored, and in which version of each resource: pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    fmt,
    str::FromStr,
};

use super::{
    select::Selection,
    spool::{Objects, Place, Spool},
};
use crate::discovery::Discovery;

/// Definitions of custom kinds, which come first of all.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Resources that a restore does first and last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities {
    /// Restored first, in this order.
    pub high: Vec<String>,
    /// Restored last, in this order.
    pub low: Vec<String>,
}

const FIRST: &str = "customresourcedefinitions,namespaces,storageclasses,\
    volumesnapshotclass.snapshot.storage.k8s.io,volumesnapshotcontents.snapshot.storage.k8s.io,\
    volumesnapshots.snapshot.storage.k8s.io,datauploads.velero.io,persistentvolumes,\
    persistentvolumeclaims,clusterroles,roles,serviceaccounts,clusterrolebindings,rolebindings,\
    secrets,configmaps,limitranges,priorityclasses,pods,replicasets.apps,\
    clusterclasses.cluster.x-k8s.io,endpoints,services";
const LAST: &str = "clusterbootstraps.run.tanzu.vmware.com,clusters.cluster.x-k8s.io,\
    clusterresourcesets.addons.cluster.x-k8s.io,apps.kappctrl.k14s.io,\
    packageinstalls.packaging.carvel.dev";

impl Default for Priorities {
    fn default() -> Self {
        Self {
            high: names(FIRST),
            low: names(LAST),
        }
    }
}

/// A comma-separated list; `-` alone begins the second part.
impl FromStr for Priorities {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut high = names(text);
        let low = match high.iter().position(|name| name == "-") {
            Some(at) => high.split_off(at).split_off(1),
            None => Vec::new(),
        };
        Ok(Self { high, low })
    }
}

impl fmt::Display for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.high.join(","))?;
        if !self.low.is_empty() {
            write!(f, ",-,{}", self.low.join(","))?;
        }
        Ok(())
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Resources of one priority: all of a wave is done before the next begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// `pods` or `deployments.apps`.
    pub kind: String,
    /// The version to take, where it is not the one that the source cluster preferred.
    pub version: Option<String>,
    /// What is selected.
    pub items: Vec<Item>,
}

/// An object to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The namespace in the archive; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// The name in the archive.
    pub name: Box<str>,
    /// Where its JSON is.
    pub place: Place,
}

/// The order of resources, each once.
#[must_use]
pub fn order<'a>(
    kinds: impl Iterator<Item = &'a str>,
    priorities: &Priorities,
    discovery: &Discovery,
) -> Vec<String> {
    let mut rest: BTreeSet<&str> = kinds.collect();
    let mut take = |names: &[String]| -> Vec<String> {
        let names = names.iter().map(|name| match discovery.resolve(name) {
            Some(resource) => resource.group_resource(),
            None => name.clone(),
        });
        names.filter(|name| rest.remove(name.as_str())).collect()
    };
    let definitions = take(&[DEFINITIONS.to_owned()]);
    let high = take(&priorities.high);
    let low = take(&priorities.low);
    let rest = rest.into_iter().map(str::to_owned);
    definitions
        .into_iter()
        .chain(high)
        .chain(rest)
        .chain(low)
        .collect()
}

/// What is restored, in order; resources of which nothing is selected are not there.
#[must_use]
pub fn waves(spool: &Spool, order: &[String], versions: &BTreeMap<String, String>) -> Vec<Wave> {
    order
        .iter()
        .filter_map(|kind| {
            let stored = spool.kind(kind)?;
            let version = versions.get(kind);
            let objects = match version {
                Some(version) => stored.versions.get(version)?,
                None => &stored.objects,
            };
            let items = selected(objects);
            (!items.is_empty()).then(|| Wave {
                kind: kind.clone(),
                version: version.cloned(),
                items,
            })
        })
        .collect()
}

/// Takes out objects that would end in the same place as another one, because two namespaces are
/// mapped to one. Returns what is said of each.
pub fn collisions(waves: &mut [Wave], selection: &Selection) -> Vec<(String, String)> {
    let mut refused = Vec::new();
    for wave in waves {
        let mut taken: HashMap<(String, String), String> = HashMap::new();
        let kind = &wave.kind;
        wave.items.retain(|item| {
            if item.namespace.is_empty() {
                return true;
            }
            let target = selection.target(&item.namespace);
            let key = (target.to_owned(), item.name.to_string());
            let Some(other) = taken.get(&key) else {
                taken.insert(key, item.namespace.to_string());
                return true;
            };
            let why = format!(
                "error restoring {kind}/{target}/{}: namespaces {other} and {} are both restored into {target}, and both have it",
                item.name, item.namespace
            );
            refused.push((target.to_owned(), why));
            false
        });
    }
    refused
}

fn selected(objects: &Objects) -> Vec<Item> {
    let items = objects.iter().flat_map(|(namespace, objects)| {
        objects
            .iter()
            .map(move |(name, place)| (namespace, name, place))
    });
    items
        .filter(|(_, _, place)| place.selected)
        .map(|(namespace, name, place)| Item {
            namespace: namespace.clone(),
            name: name.clone(),
            place: *place,
        })
        .collect()
}

/// For resources that the archive has in several versions: the one to take, where it is not the
/// one that the source cluster preferred. `wishes` are an administrator's, by resource.
#[must_use]
pub fn versions(
    spool: &Spool,
    discovery: &Discovery,
    wishes: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, String> {
    let mut chosen = BTreeMap::new();
    for (kind, stored) in spool.kinds() {
        let Some(preferred) = &stored.preferred else {
            continue;
        };
        let mut served: Vec<(&str, bool)> = discovery
            .resources
            .iter()
            .filter(|r| r.group_resource() == kind)
            .map(|r| (r.version.as_str(), r.preferred))
            .collect();
        served.sort_by(|a, b| priority(b.0).cmp(&priority(a.0)));
        let is_stored =
            |version: &str| version == preferred || stored.versions.contains_key(version);
        let is_served = |version: &str| served.iter().any(|(v, _)| *v == version);
        let wish = wishes
            .get(kind)
            .into_iter()
            .flatten()
            .map(String::as_str)
            .find(|v| is_stored(v) && is_served(v));
        let liked = served.iter().find(|(v, liked)| *liked && is_stored(v));
        let version = wish
            .or_else(|| liked.map(|(v, _)| *v))
            .or_else(|| is_served(preferred).then_some(preferred.as_str()))
            .or_else(|| served.iter().map(|(v, _)| *v).find(|v| is_stored(v)));
        if let Some(version) = version.filter(|version| version != preferred) {
            chosen.insert(kind.to_owned(), version.to_owned());
        }
    }
    chosen
}

/// Versions as Kubernetes ranks them: `v10` over `v2` over `v1beta1` over `v1alpha1` over `foo`.
fn priority(version: &str) -> (u8, u32, u32, std::cmp::Reverse<&str>) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        let rest = &rest[end..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let (rank, minor) = rest
            .strip_prefix("beta")
            .map(|minor| (2, minor))
            .or_else(|| rest.strip_prefix("alpha").map(|minor| (1, minor)))?;
        Some((rank, major, minor.parse().ok()?))
    };
    let (rank, major, minor) = parsed().unwrap_or_default();
    (rank, major, minor, std::cmp::Reverse(version))
}

/// Wishes of an administrator: lines of `<resource.group>=v2,v1`. The second value has the lines
/// that say nothing.
#[must_use]
pub fn wishes(text: &str) -> (BTreeMap<String, Vec<String>>, Vec<String>) {
    let mut wishes = BTreeMap::new();
    let mut bad = Vec::new();
    for line in text.lines() {
        let line: String = line.split_whitespace().collect();
        if line.is_empty() {
            continue;
        }
        match line.split_once('=') {
            Some((kind, versions))
                if !kind.is_empty() && !versions.is_empty() && !versions.contains('=') =>
            {
                let versions = versions.split(',').map(str::to_owned).collect();
                wishes.insert(kind.to_owned(), versions);
            }
            _ => bad.push(line),
        }
    }
    (wishes, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rank_as_in_kubernetes() {
        let mut versions = [
            "v1alpha1", "foo", "v2", "v1beta2", "v10", "v1", "bar", "v1beta1",
        ];
        versions.sort_by(|a, b| priority(b).cmp(&priority(a)));
        let expected = [
            "v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo",
        ];
        assert_eq!(versions, expected);
    }

    #[test]
    fn wishes_are_lines() {
        let (wishes, bad) = wishes("rocks.music.io = v2, v1\n\nodd\na=b=c\n");
        assert_eq!(wishes["rocks.music.io"], ["v2", "v1"]);
        assert_eq!(bad, ["odd", "a=b=c"]);
    }

    #[test]
    fn the_first_come_first_and_the_last_last() {
        let kinds = [
            "pods",
            "zebras.example.com",
            "services",
            "apples.example.com",
            DEFINITIONS,
            "namespaces",
        ];
        let priorities: Priorities = "namespaces,pods,nosuch,-,apples.example.com"
            .parse()
            .unwrap();
        assert_eq!(
            order(kinds.into_iter(), &priorities, &Discovery::default()),
            [
                DEFINITIONS,
                "namespaces",
                "pods",
                "services",
                "zebras.example.com",
                "apples.example.com"
            ]
        );
    }
}
