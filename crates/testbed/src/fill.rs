//! Many ordinary objects, for measuring: namespaces full of ConfigMaps, Secrets, ServiceAccounts,
//! Roles and Deployments whose contents depend on their place alone.

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header};
use kube::Client;
use serde_json::{Value, json};

/// Requests in flight. The API server is the limit: more is not faster.
const IN_FLIGHT: usize = 16;
const WORDS: u64 = 4000;

/// How many objects, and of what size.
#[derive(Debug, Clone)]
pub struct Fill {
    /// Namespaces are called this and a number.
    pub prefix: String,
    /// How many namespaces.
    pub namespaces: usize,
    /// Objects in each.
    pub each: usize,
    /// How many of the five kinds, in turn.
    pub kinds: usize,
    /// Bytes of text in an object, a quarter of them in an annotation.
    pub bytes: usize,
}

impl Fill {
    /// So many objects of 2 KiB, 500 to a namespace.
    #[must_use]
    pub fn of(prefix: &str, objects: usize) -> Self {
        Self {
            prefix: prefix.to_owned(),
            namespaces: objects.div_ceil(500),
            each: objects.min(500),
            kinds: 5,
            bytes: 2048,
        }
    }

    /// The same with ConfigMaps alone.
    #[must_use]
    pub fn of_config_maps(prefix: &str, objects: usize) -> Self {
        Self {
            kinds: 1,
            ..Self::of(prefix, objects)
        }
    }

    /// The objects that it makes, namespaces apart.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.namespaces * self.each
    }

    /// The names of its namespaces.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        (0..self.namespaces).map(|n| self.name(n)).collect()
    }

    /// Makes them all; what is there already is left as it is.
    pub async fn make(&self, client: &Client) -> anyhow::Result<()> {
        let namespaces = (0..self.namespaces).map(|n| self.namespace(n));
        create(client, namespaces).await?;
        let objects =
            (0..self.namespaces).flat_map(|n| (0..self.each).map(move |i| self.object(n, i)));
        create(client, objects).await
    }

    fn namespace(&self, n: usize) -> (String, Value) {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": self.name(n), "labels": { "fill": self.prefix } },
        });
        ("/api/v1/namespaces".to_owned(), body)
    }

    fn name(&self, n: usize) -> String {
        format!("{}-{n}", self.prefix)
    }

    /// Object `i` of namespace `n`, and where to post it.
    fn object(&self, n: usize, i: usize) -> (String, Value) {
        let place = (n * self.each + i) as u64;
        let note = text(2 * place, self.bytes / 4);
        let load = text(2 * place + 1, self.bytes * 3 / 4);
        let tier = ["a", "b", "c"][(place % 3) as usize];
        let (root, plural, kind, body) = match i % self.kinds {
            0 => (
                "api/v1",
                "configmaps",
                "ConfigMap",
                json!({ "data": { "k": load } }),
            ),
            1 => (
                "api/v1",
                "secrets",
                "Secret",
                json!({ "stringData": { "k": load } }),
            ),
            2 => ("api/v1", "serviceaccounts", "ServiceAccount", json!({})),
            3 => (
                "apis/rbac.authorization.k8s.io/v1",
                "roles",
                "Role",
                json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] }),
            ),
            _ => (
                "apis/apps/v1",
                "deployments",
                "Deployment",
                json!({ "spec": {
                    "replicas": 0,
                    // Its controller would add a ReplicaSet, sooner or later.
                    "paused": true,
                    "selector": { "matchLabels": { "a": "b" } },
                    "template": {
                        "metadata": { "labels": { "a": "b" } },
                        "spec": { "containers": [{
                            "name": "c",
                            "image": "x",
                            "env": [{ "name": "P", "value": load }],
                        }] },
                    },
                } }),
            ),
        };
        let mut object = body;
        object["apiVersion"] = json!(root.split_once('/').map_or(root, |(_, version)| version));
        object["kind"] = json!(kind);
        object["metadata"] = json!({
            "name": format!("o{i}"),
            "namespace": self.name(n),
            "labels": { "app": format!("a{}", i % 20), "tier": tier },
            "annotations": { "note": note },
        });
        (
            format!("/{root}/namespaces/{}/{plural}", self.name(n)),
            object,
        )
    }
}

/// Posts objects to their collections, several at a time.
pub(crate) async fn create(
    client: &Client,
    objects: impl IntoIterator<Item = (String, Value)>,
) -> anyhow::Result<()> {
    stream::iter(objects)
        .map(|(path, object)| async move { post(client, &path, &object).await })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(object)?)?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(kube::Error::Api(status)) => bail!(
            "create {} {}: {}",
            object["kind"],
            object["metadata"]["name"],
            status.message
        ),
        Err(error) => Err(error).with_context(|| format!("create {}", object["kind"])),
    }
}

/// Words of 16 letters and digits, as hard to compress as text that people keep in clusters.
fn text(seed: u64, bytes: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut choice = mixed(seed);
    let mut out = String::with_capacity(bytes + 17);
    while out.len() < bytes {
        choice = mixed(choice);
        // A word is its number, spelled in letters that have nothing to do with it.
        let mut word =
            u128::from(mixed(choice % WORDS)) << 64 | u128::from(mixed(!(choice % WORDS)));
        for _ in 0..16 {
            out.push(char::from(LETTERS[(word & 31) as usize]));
            word >>= 5;
        }
        out.push(' ');
    }
    out.truncate(bytes);
    out
}

/// Numbers that only look random (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Fill, text};

    #[test]
    fn the_same_place_has_the_same_object() {
        let fill = Fill::of("f", 10_000);
        assert_eq!((fill.namespaces, fill.objects()), (20, 10_000));
        assert_eq!(fill.object(3, 7), fill.object(3, 7));
        assert_ne!(fill.object(3, 7), fill.object(4, 7));
        assert_ne!(text(1, 100), text(2, 100));
    }

    #[test]
    fn one_kind_if_one_is_asked_for() {
        let fill = Fill::of_config_maps("f", 1000);
        assert_eq!(fill.objects(), 1000);
        assert!((0..5).all(|i| fill.object(1, i).1["kind"] == "ConfigMap"));
    }

    #[test]
    fn five_kinds_of_the_asked_for_size() {
        let fill = Fill::of("f", 500);
        let objects: Vec<_> = (0..5).map(|i| fill.object(0, i).1).collect();
        let kinds: BTreeSet<_> = objects
            .iter()
            .map(|o| o["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds.len(), 5);
        for object in objects {
            let note = object["metadata"]["annotations"]["note"].as_str().unwrap();
            assert_eq!(note.len(), 512);
            let length = object.to_string().len();
            assert!((600..2600).contains(&length), "{length}");
        }
    }
}
