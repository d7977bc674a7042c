//! What a path in an archive stands for.

/// An object in an archive.
///
/// Each object is there twice: under its resource, and under its resource and version. The second
/// place says which version it is, and whether the cluster preferred that one; versions that it
/// did not prefer are there once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    /// The resource with its group: `pods`, `deployments.apps`.
    pub resource: String,
    /// The version, in the places that say it.
    pub version: Option<String>,
    /// Whether the place says that the cluster preferred this version.
    pub preferred: bool,
    /// The namespace; none for objects of the cluster.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
}

impl Entry {
    /// The object of a path; none when the path stands for none, such as `metadata/version`.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("resources/")?;
        let (resource, rest) = rest.split_once('/')?;
        let (first, after) = rest.split_once('/')?;
        let (version, scope) = match first {
            "namespaces" | "cluster" => (None, rest),
            version => (Some(version), after),
        };
        let (namespace, file) = match scope.split_once('/')? {
            ("cluster", file) => (None, file),
            ("namespaces", rest) => {
                let (namespace, file) = rest.split_once('/')?;
                (Some(namespace.to_owned()), file)
            }
            _ => return None,
        };
        let name = file.strip_suffix(".json")?;
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let plain = version.and_then(|version| version.strip_suffix("-preferredversion"));
        Some(Self {
            resource: resource.to_owned(),
            version: plain.or(version).map(str::to_owned),
            preferred: plain.is_some(),
            namespace,
            name: name.to_owned(),
        })
    }
}

/// Whether a path stays inside of where it is unpacked, and means one place only.
pub(super) fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("an entry has no name");
    }
    if path.starts_with('/') {
        return Err("the path is absolute");
    }
    if path.split('/').any(|part| part == "..") {
        return Err("the path leaves the archive");
    }
    if path.split('/').any(|part| matches!(part, "" | ".")) {
        return Err("the path has an empty part");
    }
    if path.chars().any(char::is_control) {
        return Err("the path has a control character");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(
        resource: &str,
        version: Option<&str>,
        preferred: bool,
        namespace: Option<&str>,
        name: &str,
    ) -> Entry {
        Entry {
            resource: resource.into(),
            version: version.map(Into::into),
            preferred,
            namespace: namespace.map(Into::into),
            name: name.into(),
        }
    }

    #[test]
    fn paths_are_those_of_velero() {
        let (v1, shop) = (Some("v1"), Some("shop"));
        for (path, expected) in [
            (
                "pods/namespaces/shop/web-0.json",
                entry("pods", None, false, shop, "web-0"),
            ),
            (
                "pods/v1-preferredversion/namespaces/shop/web-0.json",
                entry("pods", v1, true, shop, "web-0"),
            ),
            (
                "deployments.apps/v1/namespaces/shop/web.json",
                entry("deployments.apps", v1, false, shop, "web"),
            ),
            (
                "namespaces/cluster/shop.json",
                entry("namespaces", None, false, None, "shop"),
            ),
            (
                "namespaces/v1-preferredversion/cluster/namespaces.json",
                entry("namespaces", v1, true, None, "namespaces"),
            ),
            (
                "clusterroles.rbac.authorization.k8s.io/cluster/system:x.json.json",
                entry(
                    "clusterroles.rbac.authorization.k8s.io",
                    None,
                    false,
                    None,
                    "system:x.json",
                ),
            ),
        ] {
            assert_eq!(Entry::parse(&format!("resources/{path}")), Some(expected));
        }
        for path in [
            "metadata/version",
            "resources/pods/web.json",
            "resources/pods/cluster/.json",
            "resources/pods/cluster/a/b.json",
            "resources/pods/v1/v1/namespaces/a/b.json",
            "resources/pods/namespaces/a.json",
            "resources/pods/cluster/readme.txt",
        ] {
            assert_eq!(Entry::parse(path), None, "{path}");
        }
    }
}
