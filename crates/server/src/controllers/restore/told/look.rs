//! What the cluster says of the claims of a restore: their volumes, the snapshots that they are made of,
//! and the movements of their data. What the restore made is listed by its label; the rest is asked for,
//! many at a time, and none of them for ever.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::{Debug, Display},
    future::Future,
    time::Duration,
};

use bowline_api::{
    names::{label, label_value},
    v1::Restore,
    v2alpha1::DataDownload,
};
use bowline_engine::log::About;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::csi::{self, Csi};
use crate::{
    Context,
    csi::{all_snapshots, contents, snapshots},
    error::chain,
};

/// Claims that are looked at at the same time.
const PARALLEL: usize = 32;
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Objects in an answer.
const PAGE: u32 = 500;

/// Told what could not be found out.
pub(super) type Warn<'a> = dyn Fn(&str, &About) + Sync + 'a;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Claims by namespace and name; those that could not be read are not in it.
    pub(super) claims: BTreeMap<(String, String), Option<Live>>,
    /// Movements of data into volumes.
    pub(super) downloads: Vec<DataDownload>,
}

/// A claim that is there.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) claim: PersistentVolumeClaim,
    /// The snapshot that it is made of, as far as it is known.
    pub(super) csi: Option<Csi>,
}

/// Asks for all of it.
pub(super) async fn look(
    ctx: &Context,
    restore: &Restore,
    claims: &BTreeSet<(String, String)>,
    warn: &Warn<'_>,
) -> Seen {
    let until = Instant::now() + LIMIT;
    if claims.is_empty() {
        return Seen::default();
    }
    let (listed, downloads) = futures::join!(
        Listed::of(ctx, restore, until),
        downloads(ctx, restore, until, warn)
    );
    let listed = &listed;
    let claims = stream::iter(claims.iter().cloned())
        .map(|of| async move {
            let live = live(ctx, &of, listed, until, warn).await?;
            Some((of, live))
        })
        .buffer_unordered(PARALLEL)
        .filter_map(std::future::ready)
        .collect();
    Seen {
        claims: claims.await,
        downloads,
    }
}

/// Objects by namespace and name.
type Objects<K> = HashMap<(String, String), K>;

/// What the restore made.
struct Listed {
    claims: Objects<PersistentVolumeClaim>,
    snapshots: Objects<DynamicObject>,
    contents: Objects<DynamicObject>,
}

impl Listed {
    async fn of(ctx: &Context, restore: &Restore, until: Instant) -> Self {
        let name = label_value(&restore.name_any());
        let labels = format!("{}={name}", label::RESTORE_NAME);
        let client = &ctx.client;
        let (claims, snapshots, contents) = futures::join!(
            listed(Api::all(client.clone()), &labels, until),
            listed(all_snapshots(client), &labels, until),
            listed(contents(client), &labels, until),
        );
        Self {
            claims,
            snapshots,
            contents,
        }
    }
}

/// All objects with these labels, or as many as there is an answer for: who is missing is asked for.
async fn listed<K>(api: Api<K>, labels: &str, until: Instant) -> Objects<K>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut found = Objects::new();
    let mut params = ListParams::default().labels(labels).limit(PAGE);
    loop {
        let page = match in_time(until, api.list(&params)).await {
            Ok(page) => page,
            Err(why) => {
                tracing::debug!(labels, "list: {why}");
                return found;
            }
        };
        let next = page.metadata.continue_.filter(|token| !token.is_empty());
        for object in page.items {
            let namespace = object.namespace().unwrap_or_default();
            found.insert((namespace, object.name_any()), object);
        }
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return found,
        }
    }
}

/// An answer in time, or why there is none.
async fn in_time<T, E: Display + std::error::Error + 'static>(
    until: Instant,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout_at(until, asked).await {
        Ok(answer) => answer.map_err(|error| chain(&error)),
        Err(_) => Err("there is no time left".to_owned()),
    }
}

/// A claim; the outer none is one that could not be read.
async fn live(
    ctx: &Context,
    of: &(String, String),
    listed: &Listed,
    until: Instant,
    warn: &Warn<'_>,
) -> Option<Option<Live>> {
    let (namespace, name) = of;
    let read = async {
        match listed.claims.get(of) {
            Some(claim) => Ok(Some(claim.clone())),
            None => {
                let claims = Api::namespaced(ctx.client.clone(), namespace);
                in_time(until, claims.get_opt(name)).await
            }
        }
    };
    let claim: PersistentVolumeClaim = match read.await {
        Ok(Some(claim)) => claim,
        Ok(None) => return Some(None),
        Err(why) => {
            let what = "volume info: the claim cannot be read, so what it is bound to is missing";
            let about = About::object("persistentvolumeclaims", namespace, name);
            warn(what, &about.because(why));
            return None;
        }
    };
    let csi = match csi::source(&claim) {
        Some(snapshot) => csi(ctx, (namespace, &snapshot), listed, until, warn).await,
        None => None,
    };
    Some(Some(Live { claim, csi }))
}

/// The snapshot that a claim is made of.
async fn csi(
    ctx: &Context,
    (namespace, name): (&str, &str),
    listed: &Listed,
    until: Instant,
    warn: &Warn<'_>,
) -> Option<Csi> {
    let what = "volume info: the snapshot that the claim is made of cannot be read";
    let about = About::object("volumesnapshots.snapshot.storage.k8s.io", namespace, name);
    let read = async {
        match listed
            .snapshots
            .get(&(namespace.to_owned(), name.to_owned()))
        {
            Some(snapshot) => Ok(Some(snapshot.clone())),
            None => in_time(until, snapshots(&ctx.client, namespace).get_opt(name)).await,
        }
    };
    let snapshot = match read.await {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => {
            warn(what, &about.because("it is gone"));
            return Some(Csi::default());
        }
        Err(why) => {
            warn(what, &about.because(why));
            return Some(Csi::default());
        }
    };
    let mut csi = Csi::of(&snapshot.data, snapshot.annotations());
    let content = csi.info.vsc_name.clone();
    if content.is_empty() {
        return Some(csi);
    }
    let read = async {
        match listed.contents.get(&(String::new(), content.clone())) {
            Some(found) => Ok(Some(found.clone())),
            None => in_time(until, contents(&ctx.client).get_opt(&content)).await,
        }
    };
    match read.await {
        Ok(Some(found)) => csi.with_content(&found.data),
        // What the snapshot says of it is enough.
        Ok(None) => {}
        Err(why) => {
            let what = "volume info: the content of the claim's snapshot cannot be read";
            let about = About::object(
                "volumesnapshotcontents.snapshot.storage.k8s.io",
                "",
                &content,
            );
            warn(what, &about.because(why));
        }
    }
    Some(csi)
}

async fn downloads(
    ctx: &Context,
    restore: &Restore,
    until: Instant,
    warn: &Warn<'_>,
) -> Vec<DataDownload> {
    let name = label_value(&restore.name_any());
    let labels = format!("{}={name}", label::RESTORE_NAME);
    let listed = tokio::time::timeout_at(until, ctx.list::<DataDownload>(&labels)).await;
    let why = match listed {
        Ok(Ok(mut found)) => {
            // Not those of an older one of its name.
            let uid = restore.uid();
            found.retain(|download| {
                let of = download.labels().get(label::RESTORE_UID);
                of.is_none() || of == uid.as_ref()
            });
            return found;
        }
        // A cluster need not have the kind.
        Ok(Err(error)) if error.is_not_found() => return Vec::new(),
        Ok(Err(error)) => error.chain(),
        Err(_) => "there is no time left".to_owned(),
    };
    let what = "volume info: DataDownloads cannot be listed, so moved data is missing";
    warn(what, &About::default().because(why));
    Vec::new()
}
