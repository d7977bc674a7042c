//! Before anything is copied: which lists there will be, and how many objects they hold.
//!
//! A count is one small request for each resource. Empty resources are never listed; a resource
//! with few objects is listed once for all namespaces, whatever namespaces are asked for.

use futures::{StreamExt, stream};
use kube::Client;
use serde::Deserialize;

use crate::{
    discovery::{Discovery, Resource},
    list::{self, Query},
    log::{About, Level, Log},
    select::Selection,
};

/// Requests at the same time.
const PARALLEL: usize = 8;
/// Up to so many objects, one list for all namespaces is cheaper than one for each.
const FEW: u64 = 500;

/// The lists of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    /// The resource's place in the discovery.
    pub(super) resource: usize,
    /// What to ask for, in the order of namespaces.
    pub(super) lists: Vec<List>,
    /// Objects to come.
    pub(super) total: u64,
}

/// One list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    /// The namespace; none for all of them, or none at all.
    pub(super) namespace: Option<String>,
    /// The label selector; empty selects all.
    pub(super) selector: String,
}

/// Decides how each collected resource is listed, and counts.
pub(super) async fn make(
    client: &Client,
    discovery: &Discovery,
    selection: &Selection,
    chosen: &[String],
    live: usize,
    log: &Log,
) -> Vec<Listing> {
    let resources = collected(discovery, selection);
    let listings: Vec<Option<Listing>> = stream::iter(resources)
        .map(|at| {
            let scope = Scope {
                client,
                selection,
                chosen,
                live,
                log,
            };
            async move { scope.listing(at, &discovery.resources[at]).await }
        })
        .buffered(PARALLEL)
        .collect()
        .await;
    let listings: Vec<Listing> = listings.into_iter().flatten().collect();
    for listing in &listings {
        let about = About {
            resource: Some(discovery.resources[listing.resource].group_resource()),
            ..About::default()
        };
        let message = format!("Collected {} items", listing.total);
        log.write(Level::Info, &message, &about);
    }
    listings
}

/// Resources to list, pods and their volumes first. What two groups serve under two names is taken
/// from the first.
fn collected(discovery: &Discovery, selection: &Selection) -> Vec<usize> {
    const COHABITANTS: [&str; 5] = [
        "deployments",
        "daemonsets",
        "replicasets",
        "networkpolicies",
        "events",
    ];
    const HOMES: [&str; 5] = [
        "",
        "apps",
        "extensions",
        "networking.k8s.io",
        "events.k8s.io",
    ];
    let mut taken: Vec<&str> = Vec::new();
    let mut collected = Vec::new();
    for (at, resource) in discovery.resources.iter().enumerate() {
        let name = resource.group_resource();
        if name == "namespaces" || !selection.collects(resource) {
            continue;
        }
        let cohabits = COHABITANTS.contains(&resource.plural.as_str())
            && HOMES.contains(&resource.group.as_str());
        if cohabits && resource.preferred {
            if taken.contains(&resource.plural.as_str()) {
                continue;
            }
            taken.push(&resource.plural);
        }
        collected.push(at);
    }
    let rank = |at: &usize| match discovery.resources[*at].group_resource().as_str() {
        "pods" => 0,
        "persistentvolumeclaims" => 1,
        "persistentvolumes" => 2,
        _ => 3,
    };
    collected.sort_by_key(rank);
    collected
}

struct Scope<'a> {
    client: &'a Client,
    selection: &'a Selection,
    chosen: &'a [String],
    live: usize,
    log: &'a Log,
}

impl Scope<'_> {
    async fn listing(&self, at: usize, resource: &Resource) -> Option<Listing> {
        let everywhere = !resource.namespaced || self.selection.has_all_namespaces();
        let all = match list::count(self.client, &resource.path(None)).await {
            Ok(0) => return None,
            Ok(count) => count,
            // Perhaps one may list some namespaces, and not all.
            Err(error) if error.is_forbidden() && !everywhere => u64::MAX,
            // The list itself has more patience, and will tell.
            Err(error) if error.is_passing() => u64::MAX,
            Err(error) => {
                let about = About::object(&resource.group_resource(), "", "");
                self.log.error("Error listing items", &about.because(error));
                return None;
            }
        };
        let at_once = everywhere
            || (all < u64::MAX
                && !self.selection.has_namespace_filters()
                && (all <= FEW || self.chosen.len() * 3 > self.live));
        let namespaces: Vec<Option<&str>> = if at_once {
            vec![None]
        } else {
            self.chosen.iter().map(|name| Some(name.as_str())).collect()
        };
        let lists: Vec<List> = namespaces
            .into_iter()
            .flat_map(|namespace| {
                let queries = self.selection.queries(resource, namespace);
                queries.into_iter().map(move |selector| List {
                    namespace: namespace.map(str::to_owned),
                    selector,
                })
            })
            .collect();
        let total = match lists.as_slice() {
            _ if all == u64::MAX => 0,
            [only] if everywhere && only.selector.is_empty() => all,
            _ => self.total(resource, &lists).await,
        };
        Some(Listing {
            resource: at,
            lists,
            total,
        })
    }

    /// Counts what is selected. A failure counts nothing: the list itself will tell.
    async fn total(&self, resource: &Resource, lists: &[List]) -> u64 {
        stream::iter(lists.to_vec())
            .map(|list| async move {
                if list.namespace.is_none() || !list.selector.is_empty() {
                    return self.matching(resource, &list).await;
                }
                let path = resource.path(list.namespace.as_deref());
                list::count(self.client, &path).await.unwrap_or_default()
            })
            .buffer_unordered(PARALLEL)
            .fold(0, |sum, count| async move { sum + count })
            .await
    }

    /// Counts by looking at each object's metadata.
    async fn matching(&self, resource: &Resource, list: &List) -> u64 {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(default)]
            namespace: String,
        }
        let query = Query {
            path: resource.path(list.namespace.as_deref()),
            selector: list.selector.clone(),
            page: 0,
            metadata_only: true,
        };
        let mut total = 0;
        // A failure counts nothing: the list itself will tell.
        let _ = list::each(self.client, &query, |raw| {
            let object = serde_json::from_slice::<Object>(raw);
            let counts = object.is_ok_and(|object| {
                !resource.namespaced || self.selection.has_namespace(&object.metadata.namespace)
            });
            total += u64::from(counts);
        })
        .await;
        total
    }
}
