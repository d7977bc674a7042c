//! What a restore cannot avoid: a request for each object. The objects of an archive are created
//! by nothing but a loop, so many at a time.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;
use bowline_testbed::contents;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header};
use kube::Client;
use serde_json::Value;

/// What a live object has and a new one must not.
const LIVE: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A request to make.
#[derive(Debug)]
struct Post {
    path: String,
    body: Vec<u8>,
}

/// The requests that an archive comes down to.
#[derive(Debug)]
pub(super) struct Floor {
    namespaces: Vec<Post>,
    objects: Vec<Post>,
}

impl Floor {
    /// Reads an archive.
    pub(super) fn of(archive: &Path) -> anyhow::Result<Self> {
        let mut floor = Self {
            namespaces: Vec::new(),
            objects: Vec::new(),
        };
        for (path, object) in contents::archive(archive)? {
            let parts: Vec<&str> = path.split('/').collect();
            match parts[..] {
                ["resources", "namespaces", "cluster", _] => {
                    floor.namespaces.push(post("namespaces", None, object)?);
                }
                ["resources", kind, "namespaces", namespace, _] => {
                    floor.objects.push(post(kind, Some(namespace), object)?);
                }
                // The same objects by version, and what is not about objects.
                _ => {}
            }
        }
        Ok(floor)
    }

    /// How many requests.
    pub(super) fn calls(&self) -> usize {
        self.namespaces.len() + self.objects.len()
    }

    /// Makes them all; how long that took.
    pub(super) async fn create(&self, client: &Client, at_once: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        for posts in [&self.namespaces, &self.objects] {
            stream::iter(posts)
                .map(|post| send(client, post))
                .buffer_unordered(at_once)
                .try_collect::<()>()
                .await?;
        }
        Ok(began.elapsed())
    }
}

/// The request for an object of this resource (`roles.rbac.authorization.k8s.io`).
fn post(kind: &str, namespace: Option<&str>, mut object: Value) -> anyhow::Result<Post> {
    let plural = kind.split('.').next().unwrap_or(kind);
    let version = object["apiVersion"].as_str().context("no apiVersion")?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let path = match namespace {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    };
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !LIVE.contains(&field.as_str()));
    }
    Ok(Post {
        path,
        body: serde_json::to_vec(&object)?,
    })
}

async fn send(client: &Client, post: &Post) -> anyhow::Result<()> {
    let request = Request::post(&post.path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(post.body.clone())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        // What the cluster itself puts into a namespace may be there first.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("create in {}", post.path)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::post;

    #[test]
    fn objects_are_posted_to_their_collection_as_new_ones() {
        let live = |version: &str| {
            json!({
                "apiVersion": version,
                "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "b": "c" } },
                "status": { "phase": "Active" },
            })
        };
        for (version, kind, namespace, path) in [
            ("v1", "namespaces", None, "/api/v1/namespaces"),
            ("v1", "secrets", Some("n"), "/api/v1/namespaces/n/secrets"),
            (
                "rbac.authorization.k8s.io/v1",
                "roles.rbac.authorization.k8s.io",
                Some("n"),
                "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles",
            ),
        ] {
            let post = post(kind, namespace, live(version)).unwrap();
            assert_eq!(post.path, path);
            let body: Value = serde_json::from_slice(&post.body).unwrap();
            assert_eq!(
                body,
                json!({ "apiVersion": version, "metadata": { "name": "a", "labels": { "b": "c" } } })
            );
        }
    }
}
