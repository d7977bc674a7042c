//! DataUploads and DataDownloads: a pod exposes the volume and moves its data, and the process of its
//! node looks after it.
//!
//! ```text
//!   any node     New ─▶ Accepted ─▶ what the pod needs, and the pod ─▶ it runs ─▶ Prepared, on its node
//!   its node     a slot is free ─▶ InProgress ─▶ the pod ends with a verdict ─▶ the end ─▶ all is cleared away
//! ```
//!
//! Everything that is made has the movement's name, so whoever takes over finds it. A pod that dies is
//! made again; the verdict is in the status before the pod goes.

mod download;
pub(crate) mod expose;
mod pod;
mod step;
mod upload;

use std::{sync::Arc, time::Duration};

use bowline_api::v1::DataPathPhase as Phase;
use bowline_engine::movement::Mover;
use bowline_vault::crash;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

pub(super) use step::{Step, next};

use super::{
    Node,
    copy::{self, Copy, change},
    metrics::Direction,
    mover::Verdict,
};
use crate::{Context, Error, Result};
use expose::{Exposure, Look};

/// How soon the cluster is asked again when it does not answer.
const AGAIN: Duration = Duration::from_secs(2);
/// Pods that are made for one movement when they die.
const TRIES: usize = 3;

/// A movement of data between a volume and a repository.
pub(crate) trait Movement: Copy {
    /// The label on all that is made for it.
    const LABEL: &'static str;
    /// What its pods are to be spread with.
    const GROUP: &'static str;
    /// `backup` or `restore`.
    const COMMAND: &'static str;
    /// The mover's flag for its name.
    const FLAG: &'static str;
    /// What failed ones begin their message with.
    const FAILED: &'static str;
    /// Which way data goes.
    const DIRECTION: Direction;

    /// Who is to do it.
    fn mover(&self) -> Mover<'_>;
    /// The node that took it.
    fn taker(&self) -> Option<&str>;
    /// The node of its pod.
    fn node(&self) -> Option<&str>;
    /// Its pod is there.
    fn set_node(&mut self, node: &str);
    /// When it was taken.
    fn taken_at(&self) -> Option<Timestamp>;
    /// How long the snapshot, or the claim, may take to be usable.
    fn patience(&self) -> Option<Duration>;

    /// Makes what the pod needs. The inner error is for its message.
    fn expose(&self, node: &Node) -> impl Future<Output = Result<Result<Exposure, String>>> + Send;

    /// All data is moved: does what is left to do. The inner error is for its message.
    fn conclude(
        &self,
        node: &Node,
        verdict: &Verdict,
    ) -> impl Future<Output = Result<Result<(), String>>> + Send;

    /// Whether nothing but `conclude` is left to do, without its pod.
    fn concluding(&self) -> Option<Verdict> {
        None
    }

    /// Takes back what was done for one that came to nothing, besides what has its name.
    fn undo(&self, _: &Context) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Writes down what became of it.
    fn note(&mut self, verdict: &Verdict);
}

/// Sees a movement through, as far as it is this node's.
///
/// # Errors
/// When it is to be tried again.
pub(super) async fn run<K: Movement>(
    node: &Arc<Node>,
    name: &str,
    cancel: &CancellationToken,
) -> Result<()> {
    let Some(found) = node.ctx.find::<K>(name).await? else {
        return Ok(());
    };
    let Some(mut taken) = take(node, &found).await? else {
        return Ok(());
    };
    if taken.phase() == Phase::Accepted {
        match prepared(node, &taken, cancel).await? {
            Some(prepared) if is_mine(node, &prepared) => taken = prepared,
            _ => return Ok(()),
        }
    }
    supervise(node, &taken, cancel).await
}

/// Takes one that is new. None when it is somebody else's.
async fn take<K: Movement>(node: &Node, found: &K) -> Result<Option<K>> {
    let now = node.ctx.now();
    let taken = change(&node.ctx, found, |movement| {
        if movement.phase() == Phase::New && !movement.is_unwanted() {
            copy::accept(movement, &node.name, now);
            let finalizers = movement.finalizers_mut();
            if !finalizers.iter().any(|name| name == K::FINALIZER) {
                finalizers.push(K::FINALIZER.to_owned());
            }
        }
    });
    let taken = taken.await?;
    crash::here("after movement taken");
    Ok(taken.filter(|taken| is_mine(node, taken)))
}

fn is_mine<K: Movement>(node: &Node, movement: &K) -> bool {
    let of = match movement.phase() {
        Phase::Accepted => movement.taker(),
        _ => movement.node(),
    };
    of == Some(&node.name)
}

/// Exposes the volume, and waits until the pod runs. None when it has come to an end.
async fn prepared<K: Movement>(
    node: &Arc<Node>,
    movement: &K,
    cancel: &CancellationToken,
) -> Result<Option<K>> {
    let limit = node.settings.data_mover_prepare_timeout;
    let left = limit.saturating_sub(since_accepted(node, movement));
    let exposing = tokio::time::timeout(left, exposed(node, movement, None));
    let exposed = tokio::select! {
        () = cancel.cancelled() => {
            interrupted(node, movement).await?;
            return Ok(None);
        }
        exposed = exposing => exposed,
    };
    let why = match exposed {
        Ok(Ok(on)) => {
            let prepared = change(&node.ctx, movement, |movement| {
                copy::prepare(movement);
                movement.set_node(&on);
            });
            let prepared = prepared.await?;
            crash::here("after movement prepared");
            if prepared.is_none() {
                // Somebody has ended it meanwhile, and cleared away what there was by then.
                tidy(node, movement).await?;
            }
            return Ok(prepared);
        }
        Ok(Err(why)) => why,
        Err(_) => {
            let why = expose::diagnose(&node.ctx, &movement.name_any()).await;
            format!("timeout on preparing {} after {limit:?}: {why}", K::WORD)
        }
    };
    fail(node, movement, &why).await?;
    Ok(None)
}

fn since_accepted<K: Movement>(node: &Node, movement: &K) -> Duration {
    let taken = movement.taken_at();
    let since = taken.map(|at| node.ctx.now().duration_since(at));
    let since = since.unwrap_or(SignedDuration::ZERO);
    Duration::try_from(since).unwrap_or_default()
}

/// The node on which the pod runs, or why there is none. Waits for a cluster that does not answer.
async fn exposed<K: Movement>(
    node: &Node,
    movement: &K,
    on: Option<&str>,
) -> Result<String, String> {
    let exposure = loop {
        match movement.expose(node).await {
            Ok(exposure) => break exposure?,
            Err(error) => again(movement, &error).await,
        }
    };
    crash::here("after movement exposed");
    loop {
        match expose::pod(node, movement, &exposure, on).await {
            Ok(made) => {
                made?;
                break;
            }
            Err(error) => again(movement, &error).await,
        }
    }
    crash::here("after movement pod");
    loop {
        let look = expose::look(&node.ctx, movement, |look| !matches!(look, Look::Waiting)).await;
        return match look {
            Look::Running(on) => Ok(on),
            // It has waited for its turn; what ended it is found by who looks after it.
            Look::Ended { on, .. } => Ok(on),
            Look::Hopeless(why) => Err(why),
            Look::Lost(why) => Err(format!("its pod went before it began: {why}")),
            Look::Waiting => continue,
        };
    }
}

async fn again<K: Movement>(movement: &K, error: &Error) {
    tracing::warn!(movement = movement.name_any(), "{}", error.chain());
    tokio::time::sleep(AGAIN).await;
}

/// Gives the pod its turn, and waits for its verdict.
async fn supervise<K: Movement>(
    node: &Arc<Node>,
    movement: &K,
    cancel: &CancellationToken,
) -> Result<()> {
    let slot = tokio::select! {
        () = cancel.cancelled() => return interrupted(node, movement).await,
        slot = node.slots.acquire() => slot,
    };
    let now = node.ctx.now();
    let began = change(&node.ctx, movement, |movement| {
        if !movement.is_unwanted() {
            copy::begin(movement, now);
        }
    });
    let Some(movement) = began.await? else {
        return tidy(node, movement).await;
    };
    crash::here("after movement begun");
    if movement.is_unwanted() {
        return interrupted(node, &movement).await;
    }
    tracing::info!(movement = movement.name_any(), "{} begins", K::WORD);
    let verdict = tokio::select! {
        () = cancel.cancelled() => return interrupted(node, &movement).await,
        verdict = verdict(node, &movement) => verdict,
    };
    drop(slot);
    crash::here("after movement verdict");
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(why) => return fail(node, &movement, &why).await,
    };
    if verdict.error.is_empty() {
        let concluded = loop {
            let concluded = tokio::select! {
                () = cancel.cancelled() => return interrupted(node, &movement).await,
                concluded = movement.conclude(node, &verdict) => concluded,
            };
            match concluded {
                Ok(concluded) => break concluded,
                Err(error) => again(&movement, &error).await,
            }
        };
        if let Err(why) = concluded {
            return fail(node, &movement, &why).await;
        }
    }
    finish(node, &movement, &verdict).await
}

/// What the pod has to say at its end. One that dies is made again.
async fn verdict<K: Movement>(node: &Node, movement: &K) -> Result<Verdict, String> {
    if let Some(verdict) = movement.concluding() {
        return Ok(verdict);
    }
    let mut lost = Vec::new();
    loop {
        let is_over = |look: &Look| !matches!(look, Look::Waiting | Look::Running(_));
        let why = match expose::look(&node.ctx, movement, is_over).await {
            Look::Ended { message, .. } => match Verdict::parse(&message) {
                Some(verdict) if is_sound::<K>(&verdict) => return Ok(verdict),
                _ => format!("its pod has ended and says {message:?}"),
            },
            Look::Hopeless(why) => return Err(why),
            Look::Lost(why) => why,
            Look::Waiting | Look::Running(_) => continue,
        };
        tracing::warn!(movement = movement.name_any(), "its pod is lost: {why}");
        lost.push(why);
        if lost.len() >= TRIES {
            return Err(format!(
                "{} pods were lost: {}",
                lost.len(),
                lost.join("; ")
            ));
        }
        let limit = node.settings.data_mover_prepare_timeout;
        // The volume may be bound to this node, and so is the slot.
        match tokio::time::timeout(limit, exposed(node, movement, Some(&node.name))).await {
            Ok(exposed) => drop(exposed?),
            Err(_) => {
                let why = expose::diagnose(&node.ctx, &movement.name_any()).await;
                return Err(format!("no other pod for it in {limit:?}: {why}"));
            }
        }
    }
}

/// Whether a verdict can be: an upload that went well has a snapshot, or nothing to take one of.
fn is_sound<K: Movement>(verdict: &Verdict) -> bool {
    K::DIRECTION == Direction::Download || !verdict.error.is_empty() || verdict.has_snapshot()
}

/// Says how it ended, and clears away.
async fn finish<K: Movement>(node: &Node, movement: &K, verdict: &Verdict) -> Result<()> {
    let now = node.ctx.now();
    let ended = change(&node.ctx, movement, |movement| {
        settle(movement, verdict, now);
    });
    let ended = ended.await?;
    crash::here("after movement end");
    if let Some(ended) = ended {
        let phase = ended.phase();
        node.metrics.moved(K::DIRECTION, &phase);
        let Verdict {
            error,
            message,
            total_bytes: bytes,
            ..
        } = verdict;
        let name = movement.name_any();
        tracing::info!(movement = name, bytes, %phase, error, message, "{} is over", K::WORD);
    }
    tidy(node, movement).await
}

/// Takes a verdict into a movement that is over with it.
fn settle<K: Movement>(movement: &mut K, verdict: &Verdict, now: Timestamp) {
    movement.note(verdict);
    match verdict.error.as_str() {
        "" => {
            let message = Some(verdict.message.as_str()).filter(|message| !message.is_empty());
            copy::tell(movement, verdict.total_bytes, verdict.total_bytes);
            copy::finish(movement, Phase::Completed, message, now);
        }
        why => {
            let why = format!("{}: {why}", K::FAILED);
            copy::finish(movement, Phase::Failed, Some(&why), now);
        }
    }
}

/// Says that it failed, and clears away.
async fn fail<K: Movement>(node: &Node, movement: &K, why: &str) -> Result<()> {
    tracing::warn!(movement = movement.name_any(), "{} failed: {why}", K::WORD);
    let (now, why) = (node.ctx.now(), format!("{}: {why}", K::FAILED));
    let failed = change(&node.ctx, movement, |movement| {
        copy::finish(movement, Phase::Failed, Some(&why), now);
    });
    if failed.await?.is_some() {
        node.metrics.moved(K::DIRECTION, &Phase::Failed);
    }
    tidy(node, movement).await
}

/// Ends one that nobody wants any more.
pub(super) async fn cancel<K: Movement>(node: &Node, movement: &K) -> Result<()> {
    tracing::info!(movement = movement.name_any(), "{} is canceled", K::WORD);
    let now = node.ctx.now();
    let canceling = change(&node.ctx, movement, |movement| {
        if movement.phase() == Phase::InProgress {
            copy::stop(movement);
        }
    });
    if canceling.await?.is_none() {
        return tidy(node, movement).await;
    }
    // The pod lets its repository go.
    expose::stop(&node.ctx, &movement.name_any()).await?;
    let canceled = change(&node.ctx, movement, |movement| {
        let deleted = format!("Cancel {} because it is being deleted", K::WORD);
        let message = (!movement.is_cancelled() && movement.meta().deletion_timestamp.is_some())
            .then_some(deleted.as_str());
        copy::finish(movement, Phase::Canceled, message, now);
    });
    if canceled.await?.is_some() {
        node.metrics.moved(K::DIRECTION, &Phase::Canceled);
    }
    tidy(node, movement).await
}

/// Clears away what was made for one that is over, and lets it go.
pub(super) async fn tidy<K: Movement>(node: &Node, movement: &K) -> Result<()> {
    expose::tidy(&node.ctx, movement).await
}

/// Finds out why it was stopped, and says so.
async fn interrupted<K: Movement>(node: &Node, movement: &K) -> Result<()> {
    if node.ctx.abort.is_cancelled() {
        tracing::info!(
            movement = movement.name_any(),
            "{} is left to the next process",
            K::WORD
        );
        return Ok(());
    }
    let found = node.ctx.find::<K>(&movement.name_any()).await?;
    match found.filter(|found| found.uid() == movement.uid()) {
        Some(found) if found.phase().is_over() => tidy(node, &found).await,
        Some(found) if found.is_unwanted() => cancel(node, &found).await,
        // Another node has it.
        Some(_) => Ok(()),
        None => tidy(node, movement).await,
    }
}
