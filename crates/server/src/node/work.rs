//! The life of a copy, from the moment that this node takes it to its last phase.
//!
//! ```text
//!   Accepted ─▶ its folder is found ─▶ Prepared ─▶ a slot is free ─▶ InProgress ─▶ copied ─▶ the end
//! ```
//!
//! Whatever stops it in between, the object says so, unless it is this process that stops: then the
//! next one begins again.

use std::{sync::Arc, time::Duration};

use bowline_api::v1::DataPathPhase as Phase;
use bowline_volume::{Engine, Progress};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    Node,
    copy::{self, Copy, OfPod, change},
    place::{self, Place},
    repositories::Refusal,
    step::is_the_one,
};
use crate::{Error, Result, controllers::Telling, error::chain};

/// How soon the cluster is asked again when it does not answer.
const AGAIN: Duration = Duration::from_secs(2);
/// Problems that a message names.
const NAMED: usize = 5;

/// What Velero says of an empty volume.
pub(super) const EMPTY: &str = "volume was empty so no snapshot was taken";

/// A copy that can be made.
pub(super) trait Work: OfPod {
    /// What failed copies begin their message with.
    const FAILED: &'static str;
    /// Why it cannot be made at all, before anything is looked for.
    fn refusal(&self) -> Option<String>;
    /// Whether it is of no use once its pod is over.
    const NEEDS_POD: bool;

    /// Moves the data.
    fn copy(
        &self,
        node: &Node,
        place: &Place,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Done<Self>, Failure>> + Send;
}

/// How a copy ended that was not stopped.
pub(super) struct Done<K> {
    /// The phase: `Completed`, or `Failed` though some of it is there.
    pub(super) phase: Phase,
    /// What is to be said about it.
    pub(super) message: Option<String>,
    /// Its bytes.
    pub(super) bytes: u64,
    /// What else goes into its status.
    pub(super) edit: Box<dyn Fn(&mut K) + Send + Sync>,
}

/// Why a copy could not be made.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody ended it.
    Cancelled,
    /// For this reason.
    Named(String),
}

impl From<bowline_volume::Error> for Failure {
    fn from(error: bowline_volume::Error) -> Self {
        match error {
            bowline_volume::Error::Cancelled => Self::Cancelled,
            error => Self::Named(chain(&error)),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Cancelled => Self::Cancelled,
            Refusal::Named(why) => Self::Named(why),
        }
    }
}

/// Sees a copy through.
///
/// # Errors
/// When it is to be tried again.
pub(super) async fn run<K: Work>(
    node: &Arc<Node>,
    name: &str,
    cancel: &CancellationToken,
) -> Result<()> {
    let ctx = &node.ctx;
    let Some(copy) = ctx.find::<K>(name).await? else {
        return Ok(());
    };
    let accepted = change(ctx, &copy, |copy| {
        copy::accept(copy, &node.name, ctx.now());
    });
    let Some(copy) = accepted.await? else {
        return Ok(());
    };
    let limit = node.settings.data_mover_prepare_timeout;
    let place = tokio::select! {
        () = cancel.cancelled() => return interrupted(node, &copy).await,
        found = tokio::time::timeout(limit, prepare(node, &copy)) => found,
    };
    let place = match place {
        Ok(Ok(place)) => place,
        Ok(Err(why)) => return fail(node, &copy, &why).await,
        Err(_) => {
            let why = format!(
                "timeout on preparing {}: volume {} of pod {} was not found on node {} in {limit:?}",
                K::WORD,
                copy.volume(),
                pod_of(&copy),
                node.name
            );
            return fail(node, &copy, &why).await;
        }
    };
    let Some(copy) = change(ctx, &copy, copy::prepare).await? else {
        return Ok(());
    };
    let slot = tokio::select! {
        () = cancel.cancelled() => return interrupted(node, &copy).await,
        slot = node.slots.acquire() => slot,
    };
    let began = change(ctx, &copy, |copy| copy::begin(copy, ctx.now())).await?;
    let Some(copy) = began else {
        return Ok(());
    };
    tracing::info!(copy = name, folder = %place.folder.display(), "{} begins", K::WORD);
    let done = moved(node, &copy, &place, cancel).await;
    drop(slot);
    match done {
        Ok(done) => finish(node, &copy, done).await,
        Err(Failure::Cancelled) => interrupted(node, &copy).await,
        Err(Failure::Named(why)) => {
            // A pod that went is the reason behind many others.
            let lost = lost(node, &copy).await.ok().flatten();
            let why = lost.map_or_else(|| why.clone(), |lost| format!("{lost}: {why}"));
            fail(node, &copy, &format!("{}: {why}", K::FAILED)).await
        }
    }
}

/// Moves the data, and tells how far it is.
async fn moved<K: Work>(
    node: &Arc<Node>,
    copy: &K,
    place: &Place,
    cancel: &CancellationToken,
) -> Result<Done<K>, Failure> {
    let progress = Arc::new(Progress::default());
    let seen = Arc::clone(&progress);
    let now = move || {
        let (total, done) = seen.get();
        json!({"status": {"progress": copy::progress(total, done)}})
    };
    let telling = Telling::every(node.settings.interval(), &node.ctx, copy, now);
    let done = copy.copy(node, place, &progress, cancel).await;
    telling.end().await;
    if matches!(done, Err(Failure::Named(_))) {
        let (location, namespace) = (copy.location(), copy.repository());
        node.repositories.forget(location, namespace);
    }
    done
}

async fn finish<K: Work>(node: &Node, copy: &K, done: Done<K>) -> Result<()> {
    let (phase, message) = (&done.phase, done.message.as_deref());
    let ended = change(&node.ctx, copy, |copy| {
        copy::end(copy, phase.clone(), message, node.ctx.now());
        copy::tell(copy, done.bytes, done.bytes);
        (done.edit)(copy);
    });
    if ended.await?.is_some() {
        let message = message.unwrap_or_default();
        let name = copy.name_any();
        tracing::info!(copy = name, bytes = done.bytes, %phase, message, "{} is over", K::WORD);
    }
    Ok(())
}

/// Says that it failed.
pub(super) async fn fail<K: Copy>(node: &Node, copy: &K, why: &str) -> Result<()> {
    tracing::warn!(copy = copy.name_any(), "{} failed: {why}", K::WORD);
    let now = node.ctx.now();
    change(&node.ctx, copy, |copy| {
        copy::end(copy, Phase::Failed, Some(why), now);
    })
    .await
    .map(drop)
}

/// Says that it was canceled, and by whom where nobody has said that yet.
pub(super) async fn cancel<K: Copy>(node: &Node, copy: &K) -> Result<()> {
    tracing::info!(copy = copy.name_any(), "{} is canceled", K::WORD);
    let now = node.ctx.now();
    change(&node.ctx, copy, |copy| {
        let deleted = format!("Cancel {} because it is being deleted", K::WORD);
        let message = (!copy.is_cancelled() && copy.meta().deletion_timestamp.is_some())
            .then_some(deleted.as_str());
        copy::end(copy, Phase::Canceled, message, now);
    })
    .await
    .map(drop)
}

/// Lets an object go that is over.
pub(super) async fn release<K: Copy>(node: &Node, copy: &K) -> Result<()> {
    let released = copy::change_always(&node.ctx, copy, |copy| {
        if copy.phase().is_over() {
            copy::release(copy);
        }
    });
    released.await.map(drop)
}

/// Finds out why it was stopped, and says so.
async fn interrupted<K: Work>(node: &Node, copy: &K) -> Result<()> {
    if node.ctx.abort.is_cancelled() {
        tracing::info!(
            copy = copy.name_any(),
            "{} is left to the next process",
            K::WORD
        );
        return Ok(());
    }
    let found = node.ctx.find::<K>(&copy.name_any()).await?;
    let Some(found) = found.filter(|found| found.uid() == copy.uid()) else {
        return Ok(());
    };
    if found.phase().is_over() {
        return Ok(());
    }
    if found.is_unwanted() {
        return cancel(node, &found).await;
    }
    match lost(node, &found).await? {
        Some(why) => fail(node, &found, &format!("{}: {why}", K::FAILED)).await,
        None => Err(Error::Setup(format!(
            "the copy of volume {} was stopped for no reason that still holds",
            found.volume()
        ))),
    }
}

/// The volume's folder, or why it cannot be copied. Waits for a cluster that does not answer.
async fn prepare<K: Work>(node: &Node, copy: &K) -> Result<Place, String> {
    if let Some(why) = copy.refusal() {
        return Err(why);
    }
    loop {
        match find(node, copy).await {
            Ok(found) => return found,
            Err(error) => {
                tracing::warn!(copy = copy.name_any(), "{}", error.chain());
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn find<K: Work>(node: &Node, copy: &K) -> Result<Result<Place, String>> {
    let pod = pod(node, copy).await?;
    if let Some(why) = lost_by(copy, pod.as_ref(), K::NEEDS_POD) {
        return Ok(Err(why));
    }
    let Some(pod) = pod else {
        return Ok(Err(format!("pod {} is gone", pod_of(copy))));
    };
    let host_pods = &node.settings.host_pods;
    let found = place::find(&node.ctx.client, host_pods, &pod, copy.volume()).await?;
    Ok(found.map_err(|why| {
        format!(
            "error identifying unique volume path on host for volume {} in pod {}: {why}",
            copy.volume(),
            pod.name_any()
        )
    }))
}

/// The engine of a copy's repository.
pub(super) async fn engine<K: Copy>(
    node: &Node,
    copy: &K,
    cancel: &CancellationToken,
) -> Result<Arc<dyn Engine>, Failure> {
    let (location, namespace) = (copy.location(), copy.repository());
    tokio::select! {
        // A store that does not answer is waited for, but not by who is asked to end.
        () = cancel.cancelled() => Err(Failure::Cancelled),
        engine = node.repositories.get(&node.ctx, location, namespace) => Ok(engine?),
    }
}

/// Why a copy's pod is of no use any more, if it is not.
pub(super) async fn lost<K: Work>(node: &Node, copy: &K) -> Result<Option<String>> {
    let pod = pod(node, copy).await?;
    Ok(lost_by(copy, pod.as_ref(), K::NEEDS_POD))
}

/// The pod of a copy, or another one of its name.
pub(super) async fn pod<K: OfPod>(node: &Node, copy: &K) -> Result<Option<Pod>> {
    let meant = copy.pod();
    let namespace = meant.namespace.as_deref().unwrap_or_default();
    let name = meant.name.as_deref().unwrap_or_default();
    if name.is_empty() || namespace.is_empty() {
        return Ok(None);
    }
    let pods: Api<Pod> = Api::namespaced(node.ctx.client.clone(), namespace);
    pods.get_opt(name)
        .await
        .map_err(Error::api(format!("read pod {namespace}/{name}")))
}

fn lost_by<K: OfPod>(copy: &K, pod: Option<&Pod>, needs_pod: bool) -> Option<String> {
    let name = pod_of(copy);
    let Some(pod) = pod else {
        return Some(format!("pod {name} of volume {} is gone", copy.volume()));
    };
    if !is_the_one(pod, copy.pod()) {
        return Some(format!(
            "pod {name} of volume {} is gone; there is another one of its name",
            copy.volume()
        ));
    }
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    match phase.filter(|_| needs_pod) {
        Some(phase @ ("Succeeded" | "Failed")) => Some(format!(
            "pod {name} of volume {} is over ({phase})",
            copy.volume()
        )),
        _ => None,
    }
}

/// The pod of a copy, as `<namespace>/<name>`.
pub(super) fn pod_of<K: OfPod>(copy: &K) -> String {
    let pod = copy.pod();
    format!(
        "{}/{}",
        pod.namespace.as_deref().unwrap_or_default(),
        pod.name.as_deref().unwrap_or_default()
    )
}

/// The first few of a list of problems, and how many more there are.
pub(super) fn first_few(problems: &[bowline_volume::Problem]) -> String {
    let named: Vec<String> = problems
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    let named = named.join("; ");
    match problems.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// A whole number above zero, as settings have it.
pub(super) fn count(settings: Option<&bowline_api::StringMap>, key: &str) -> Option<usize> {
    let text = settings?.get(key)?;
    let number = text.parse().ok().filter(|number| *number > 0);
    if number.is_none() {
        tracing::warn!("{key} {text:?} is no number of files, and has no effect");
    }
    number
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{PodVolumeBackup, PodVolumeRestore};
    use bowline_volume::Problem;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_went_is_named() {
        let spec = json!({"pod": {"name": "p", "namespace": "ns", "uid": "u"}, "volume": "v"});
        let backup: PodVolumeBackup =
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let restore: PodVolumeRestore =
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let pod = |uid: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": uid},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        for (pod, of_backup, of_restore) in [
            (None, Some("is gone"), Some("is gone")),
            (
                Some(pod("u2", "Running")),
                Some("another one"),
                Some("another one"),
            ),
            (Some(pod("u", "Pending")), None, None),
            (
                Some(pod("u", "Succeeded")),
                None,
                Some("is over (Succeeded)"),
            ),
        ] {
            for (found, expected) in [
                (lost_by(&backup, pod.as_ref(), false), of_backup),
                (lost_by(&restore, pod.as_ref(), true), of_restore),
            ] {
                assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
                let found = found.unwrap_or_default();
                assert!(found.contains(expected.unwrap_or_default()), "{found}");
                assert!(found.is_empty() || found.contains("pod ns/p of volume v"));
            }
        }
    }

    #[test]
    fn a_message_names_the_first_few() {
        let problem = |n: usize| Problem {
            path: format!("f{n}"),
            reason: "bad".to_owned(),
        };
        let problems: Vec<Problem> = (0..7).map(problem).collect();
        assert_eq!(first_few(&problems[..2]), "f0: bad; f1: bad");
        assert_eq!(
            first_few(&problems),
            "f0: bad; f1: bad; f2: bad; f3: bad; f4: bad; and 2 more"
        );
    }

    #[test]
    fn settings_count_only_when_they_are_numbers() {
        let settings =
            |value: &str| bowline_api::StringMap::from([("K".to_owned(), value.to_owned())]);
        for (value, expected) in [("4", Some(4)), ("0", None), ("-1", None), ("many", None)] {
            assert_eq!(count(Some(&settings(value)), "K"), expected);
            assert_eq!(count(Some(&settings(value)), "L"), None);
        }
    }
}
