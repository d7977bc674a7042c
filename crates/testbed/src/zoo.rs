//! A cluster with an object of every kind, and the awkward ones: long names, odd letters, much data,
//! deep nesting, owners, objects on their way out.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    discovery::{ApiCapabilities, ApiResource, Discovery, Scope, verbs},
};
use serde_json::{Value, json};

use crate::{fill, wait_for};

const OBJECTS: &str = include_str!("../zoo/objects.yaml");

/// The namespaces of the zoo that have something to restore.
pub const NAMESPACES: [&str; 2] = ["zoo", "zoo-annex"];
/// The namespace of an object whose name is as long as names can be.
pub const LONG: &str = "zoo-long";

/// How long nothing must have changed.
const QUIET: Duration = Duration::from_secs(2);

/// Resources that need have no object, each with its reason.
const MAY_BE_EMPTY: [(&str, &str); 1] = [(
    "ghosts.zoo.example.com",
    "there to be a kind without objects",
)];

/// Fills a cluster with the zoo, and waits until its controllers have had their say.
pub async fn make(client: &Client) -> anyhow::Result<()> {
    let objects: Vec<Value> = serde_saphyr::from_str(OBJECTS)?;
    let (kinds, rest): (Vec<Value>, Vec<Value>) = objects
        .into_iter()
        .partition(|object| object["kind"] == "CustomResourceDefinition");
    create(client, kinds).await?;
    wait_for("the zoo's kinds", Duration::from_secs(30), async || {
        let found = discover(client).await?;
        let served = ["Parrot", "Cage", "Ghost"]
            .iter()
            .all(|kind| found.iter().any(|(resource, _)| resource.kind == *kind));
        Ok(served.then_some(()))
    })
    .await?;
    let (namespaces, rest): (Vec<Value>, Vec<Value>) = rest
        .into_iter()
        .partition(|object| object["kind"] == "Namespace");
    create(client, namespaces).await?;
    // Pods are refused, and tokens removed, where there is no service account yet.
    let (later, rest): (Vec<Value>, Vec<Value>) = rest.into_iter().partition(|object| {
        object["kind"] == "Pod" || object["type"] == "kubernetes.io/service-account-token"
    });
    create(client, rest.into_iter().chain(made_here()).collect()).await?;
    wait_for("service accounts", Duration::from_secs(30), async || {
        create(client, later.clone()).await.map(Some)
    })
    .await?;
    dependents(client).await?;
    settled(client).await
}

/// Objects that are easier to compute than to write down.
fn made_here() -> Vec<Value> {
    let map = |namespace: &str, name: &str, text: String| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": namespace },
            "data": { "text": text },
        })
    };
    let long = "long-name.".repeat(26)[..253]
        .trim_end_matches(['.', '-'])
        .to_owned();
    let long = format!("{long:x<253}");
    let mut deep = json!("bottom");
    for depth in 0..60 {
        deep = if depth % 2 == 0 {
            json!({ "in": deep })
        } else {
            json!([deep])
        };
    }
    vec![
        map(LONG, &long, "short".to_owned()),
        map("zoo", "large", "0123456789abcdef".repeat(900 * 64)),
        json!({
            "apiVersion": "zoo.example.com/v1",
            "kind": "Parrot",
            "metadata": { "name": "deep", "namespace": "zoo" },
            "spec": deep,
        }),
    ]
}

/// An object with an owner, and one that a finalizer keeps from going.
async fn dependents(client: &Client) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "zoo");
    let owner = maps
        .get("empty")
        .await?
        .uid()
        .context("an object without uid")?;
    let meta = |name: &str, more: Value| {
        let mut meta = json!({ "name": name, "namespace": "zoo" });
        for (key, value) in more.as_object().into_iter().flatten() {
            meta[key] = value.clone();
        }
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta })
    };
    let owned = json!({ "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "empty", "uid": owner },
    ] });
    let held = json!({ "finalizers": ["example.com/hold"] });
    create(client, vec![meta("owned", owned), meta("doomed", held)]).await?;
    maps.delete("doomed", &DeleteParams::default()).await?;
    Ok(())
}

/// Lets go of what a finalizer holds, so that namespaces can be deleted.
pub async fn release(client: &Client) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "zoo");
    let free = json!({ "metadata": { "finalizers": null } });
    match maps
        .patch("doomed", &PatchParams::default(), &Patch::Merge(free))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Posts objects in their order.
async fn create(client: &Client, objects: Vec<Value>) -> anyhow::Result<()> {
    let resources = discover(client).await?;
    for object in objects {
        let (version, kind) = (&object["apiVersion"], &object["kind"]);
        let found = resources
            .iter()
            .find(|(resource, _)| *version == resource.api_version && *kind == resource.kind);
        let (resource, _) = found.with_context(|| format!("{version} has no {kind}"))?;
        let namespace = object["metadata"]["namespace"].as_str();
        let path = collection(resource, namespace);
        fill::create(client, [(path, object)]).await?;
    }
    Ok(())
}

fn collection(resource: &ApiResource, namespace: Option<&str>) -> String {
    let root = if resource.group.is_empty() {
        "api"
    } else {
        "apis"
    };
    let place = namespace.map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
    format!(
        "/{root}/{}/{place}{}",
        resource.api_version, resource.plural
    )
}

/// Every resource in every served version.
async fn discover(client: &Client) -> anyhow::Result<Vec<(ApiResource, ApiCapabilities)>> {
    let found = Discovery::new(client.clone()).run().await?;
    let mut all = Vec::new();
    for group in found.groups() {
        for version in group.versions() {
            all.extend(group.versioned_resources(version));
        }
    }
    Ok(all)
}

/// Kinds that a backup should have objects of, but the cluster has none of.
pub async fn missing(client: &Client) -> anyhow::Result<Vec<String>> {
    let found = Discovery::new(client.clone()).run().await?;
    let mut missing = Vec::new();
    for (resource, can) in found
        .groups()
        .flat_map(|group| group.recommended_resources())
    {
        let needed = [verbs::LIST, verbs::CREATE, verbs::GET, verbs::DELETE];
        let name = format!("{}.{}", resource.plural, resource.group);
        if !needed.iter().all(|verb| can.supports_operation(verb))
            // The servers' own kinds are there when a server is.
            || resource.group == bowline_api::GROUP
            || MAY_BE_EMPTY.iter().any(|(known, _)| *known == name)
        {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        if api
            .list(&ListParams::default().limit(1))
            .await?
            .items
            .is_empty()
        {
            missing.push(name);
        }
    }
    Ok(missing)
}

/// Waits until nothing changes any more, heartbeats and events apart.
async fn settled(client: &Client) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), "zoo");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "zoo");
    wait_for("the zoo to settle", Duration::from_secs(60), async || {
        let bound = claims.get("data").await?.status.and_then(|s| s.phase);
        if bound.as_deref() != Some("Bound") {
            bail!("the claim is {bound:?}");
        }
        if secrets.get("keeper-token").await?.data.is_none() {
            bail!("the service account has no token");
        }
        let before = versions(client).await?;
        tokio::time::sleep(QUIET).await;
        Ok((versions(client).await? == before).then_some(()))
    })
    .await
}

/// Every object's resource version.
async fn versions(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let found = Discovery::new(client.clone()).run().await?;
    let mut versions = BTreeMap::new();
    for (resource, can) in found
        .groups()
        .flat_map(|group| group.recommended_resources())
    {
        if !can.supports_operation(verbs::LIST)
            || ["leases", "events", "nodes"].contains(&resource.plural.as_str())
        {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list_metadata(&ListParams::default()).await? {
            let place = match can.scope {
                Scope::Namespaced => object.namespace().unwrap_or_default(),
                Scope::Cluster => String::new(),
            };
            versions.insert(
                format!("{} {place}/{}", resource.plural, object.name_any()),
                object.resource_version().unwrap_or_default(),
            );
        }
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn the_data_file_reads() {
        let objects: Vec<Value> = serde_saphyr::from_str(super::OBJECTS).unwrap();
        assert!(objects.len() > 70);
        let long = super::made_here()[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .len();
        assert_eq!(long, 253);
    }
}
