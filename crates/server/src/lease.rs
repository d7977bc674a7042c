//! Who of several servers acts: the one that holds a Lease.
//!
//! A holder renews every few seconds; when it has not done so for the lease's time, as seen by our
//! own clock and no other, anybody may take it. A holder that cannot renew for that long stops
//! acting before somebody else starts: it gives up after two thirds of the time.
//!
//! All that is done on a thread of its own with a connection of its own, so that no work of this
//! process, however hard, costs it the lease.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

/// Stands for a holder that is not known yet.
const FASTER: &str = "somebody who was faster";

/// The Lease of the server.
pub const NAME: &str = "bowline-server";

/// How long a lease is good without being renewed.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// After this without a renewal anybody may take it.
    pub lease: Duration,
    /// How often it is renewed, or looked at by those who wait.
    pub renew: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(3),
        }
    }
}

/// Makes a connection to the cluster, for the thread that asks for it.
pub type Connect = Box<dyn Fn() -> BoxFuture<'static, Result<Client>> + Send + Sync>;

/// The time in which this server acts. Dropped, it is left to run out.
pub struct Term {
    lost: CancellationToken,
    /// Whoever sends wants the lease let go, and waits for the other end.
    end: oneshot::Sender<oneshot::Sender<()>>,
}

impl Term {
    /// Waits until this server is the one, and keeps it so; none when the token is cancelled first.
    ///
    /// # Errors
    /// When there is no connection, or no thread to be had.
    pub async fn begin(
        connect: Connect,
        namespace: &str,
        identity: &str,
        times: Times,
        stop: &CancellationToken,
    ) -> Result<Option<Self>> {
        let (begun, has_begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let lost = CancellationToken::new();
        let (namespace, identity) = (namespace.to_owned(), identity.to_owned());
        let (stop, over) = (stop.clone(), lost.clone());
        let serve = async move {
            let client = match connect().await {
                Ok(client) => client,
                Err(error) => {
                    let _ = begun.send(Err(error));
                    return;
                }
            };
            let mut leadership = Leadership::new(&client, &namespace, &identity, times);
            let acquired = leadership.acquire(&stop).await;
            let goes_on = matches!(acquired, Ok(true));
            if begun.send(acquired).is_err() || !goes_on {
                return;
            }
            tokio::select! {
                () = leadership.keep() => over.cancel(),
                asked = ended => {
                    let asked: Result<oneshot::Sender<()>, _> = asked;
                    if let Ok(done) = asked {
                        leadership.release().await;
                        let _ = done.send(());
                    }
                }
            }
        };
        let setup = |error: std::io::Error| Error::Setup(format!("hold the lease: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(setup)?;
        std::thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || runtime.block_on(serve))
            .map_err(setup)?;
        let gone = |_| Err(Error::Setup("hold the lease: its thread ended".to_owned()));
        let acquired = has_begun.await.unwrap_or_else(gone)?;
        Ok(acquired.then_some(Self { lost, end }))
    }

    /// Waits until somebody else may act.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Lets the lease go, so that another server need not wait.
    pub async fn end(self) {
        let (done, is_done) = oneshot::channel();
        if self.end.send(done).is_ok() {
            let _ = is_done.await;
        }
    }
}

/// The Lease, as one of the servers sees it.
struct Leadership {
    api: Api<Lease>,
    identity: String,
    times: Times,
    /// What the Lease said, and when we first saw it say that.
    seen: Option<(Option<MicroTime>, Instant)>,
    /// When the last renewal that worked was begun: others count from no earlier.
    renewed: Instant,
}

/// Whether a Lease can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ours,
    Free,
    Taken,
}

impl Leadership {
    /// A server of this name in this namespace.
    fn new(client: &Client, namespace: &str, identity: &str, times: Times) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            identity: identity.to_owned(),
            times,
            seen: None,
            renewed: Instant::now(),
        }
    }

    /// Waits until this server is the one, or the token is cancelled (then: false).
    async fn acquire(&mut self, stop: &CancellationToken) -> Result<bool> {
        let mut told = String::new();
        loop {
            let tried = tokio::time::timeout(self.times.lease, self.try_acquire()).await;
            let silent = |_| Err(Error::Setup("take the lease: no answer".to_owned()));
            match tried.unwrap_or_else(silent) {
                Ok(None) => return Ok(true),
                Ok(Some(holder)) if holder != told => {
                    tracing::info!(%holder, "another server acts; waiting");
                    told = holder;
                }
                Ok(Some(_)) => {}
                Err(error) => tracing::warn!("{}", error.chain()),
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(false),
                () = tokio::time::sleep(self.times.renew) => {}
            }
        }
    }

    /// Renews until that fails for too long.
    async fn keep(&mut self) {
        let patience = self.times.lease * 2 / 3;
        loop {
            tokio::time::sleep(self.times.renew).await;
            let try_until = self.renewed + patience;
            match tokio::time::timeout_at(try_until, self.try_acquire()).await {
                Ok(Ok(None)) => continue,
                // Somebody wrote to the Lease, which need not mean that it was taken.
                Ok(Ok(Some(holder))) if holder == FASTER => {}
                Ok(Ok(Some(holder))) => {
                    tracing::error!(%holder, "another server has taken the lease");
                    return;
                }
                Ok(Err(error)) => tracing::warn!("renew the lease: {}", error.chain()),
                Err(_) => {}
            }
            if Instant::now() >= try_until {
                tracing::error!("the lease could not be renewed in time");
                return;
            }
        }
    }

    /// Lets it go, so that another server need not wait.
    async fn release(&mut self) {
        let Ok(Some(mut lease)) = self.api.get_opt(NAME).await else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return;
        }
        spec.holder_identity = None;
        spec.renew_time = None;
        if let Err(error) = self.api.replace(NAME, &PostParams::default(), &lease).await {
            tracing::warn!("release the lease: {error}");
        }
    }

    /// Takes or renews the lease; returns the holder when that is somebody else.
    async fn try_acquire(&mut self) -> Result<Option<String>> {
        let began = Instant::now();
        let found = self
            .api
            .get_opt(NAME)
            .await
            .map_err(Error::api("read the lease"))?;
        let params = PostParams::default();
        let Some(mut lease) = found else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.to_owned()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.claim(None)),
            };
            return match self.api.create(&params, &lease).await {
                Ok(_) => {
                    self.renewed = began;
                    Ok(None)
                }
                Err(error) => lost(error),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.standing(&spec) == Standing::Taken {
            return Ok(spec.holder_identity);
        }
        lease.spec = Some(self.claim(Some(&spec)));
        match self.api.replace(NAME, &params, &lease).await {
            Ok(_) => {
                self.renewed = began;
                Ok(None)
            }
            Err(error) => lost(error),
        }
    }

    fn standing(&mut self, spec: &LeaseSpec) -> Standing {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder == self.identity {
            return Standing::Ours;
        }
        if holder.is_empty() {
            return Standing::Free;
        }
        let since = match &self.seen {
            Some((renewed, since)) if *renewed == spec.renew_time => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((spec.renew_time.clone(), now));
                now
            }
        };
        let seconds = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok());
        let lease = seconds.map_or(self.times.lease, Duration::from_secs);
        if since.elapsed() > lease {
            Standing::Free
        } else {
            Standing::Taken
        }
    }

    fn claim(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = old.is_some_and(|old| old.holder_identity.as_deref() == Some(&self.identity));
        let transitions = old
            .and_then(|old| old.lease_transitions)
            .unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.lease.as_secs()).ok(),
            acquire_time: match old {
                Some(old) if ours => old.acquire_time.clone(),
                _ => Some(now.clone()),
            },
            renew_time: Some(now),
            lease_transitions: Some(if ours { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

/// Somebody else was faster: look again later.
fn lost(error: kube::Error) -> Result<Option<String>> {
    match error {
        kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => {
            Ok(Some(FASTER.to_owned()))
        }
        error => Err(Error::api("take the lease")(error)),
    }
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::ApiServer;

    use super::*;

    const TIMES: Times = Times {
        lease: Duration::from_secs(2),
        renew: Duration::from_millis(50),
    };

    fn servers() -> (Leadership, Leadership) {
        let client = Client::new(ApiServer::default(), "default");
        let new = |name| Leadership::new(&client, "default", name, TIMES);
        (new("a"), new("b"))
    }

    #[tokio::test]
    async fn one_holds_it_and_the_other_waits() {
        let (mut a, mut b) = servers();
        assert_eq!(a.try_acquire().await.unwrap(), None);
        assert_eq!(b.try_acquire().await.unwrap(), Some("a".to_owned()));
        assert_eq!(a.try_acquire().await.unwrap(), None, "renewed");
        a.release().await;
        assert_eq!(b.try_acquire().await.unwrap(), None, "at once");
        assert_eq!(a.try_acquire().await.unwrap(), Some("b".to_owned()));
    }

    #[tokio::test]
    async fn a_dead_holder_is_replaced_after_the_lease() {
        let (mut a, mut b) = servers();
        let stop = CancellationToken::new();
        assert!(a.acquire(&stop).await.unwrap());
        let began = Instant::now();
        assert!(b.acquire(&stop).await.unwrap());
        assert!(began.elapsed() >= TIMES.lease);
    }

    #[tokio::test]
    async fn a_holder_that_was_replaced_stops() {
        let (mut a, mut b) = servers();
        let stop = CancellationToken::new();
        assert!(a.acquire(&stop).await.unwrap());
        a.release().await;
        assert!(b.acquire(&stop).await.unwrap());
        tokio::time::timeout(Duration::from_secs(5), a.keep())
            .await
            .unwrap();
        stop.cancel();
        assert!(!a.acquire(&stop).await.unwrap());
    }
    /// While the thread that serves everything else is held up.
    #[tokio::test]
    async fn it_is_kept_whatever_else_goes_on() {
        let server = ApiServer::default();
        let on = server.clone();
        let connect: Connect = Box::new(move || {
            let client = Client::new(on.clone(), "default");
            Box::pin(async move { Ok(client) })
        });
        let stop = CancellationToken::new();
        let term = Term::begin(connect, "default", "a", TIMES, &stop)
            .await
            .unwrap()
            .unwrap();
        // This thread does nothing else until the other has seen ten renewals.
        let watching = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let api: Api<Lease> = Api::namespaced(Client::new(server, "default"), "default");
                let mut seen = std::collections::BTreeSet::new();
                let deadline = Instant::now() + Duration::from_secs(20);
                while seen.len() < 10 && Instant::now() < deadline {
                    let spec = api.get(NAME).await.unwrap().spec.unwrap();
                    seen.insert(spec.renew_time.map(|at| at.0));
                    tokio::task::yield_now().await;
                }
                seen.len()
            })
        });
        let renewals = watching.join().unwrap();
        assert_eq!(renewals, 10);
        assert!(!term.lost.is_cancelled());
        term.end().await;
    }
}
