//! Who of several servers acts: the one that holds a Lease.
//!
//! A holder renews every few seconds; when it has not done so for the lease's time, as seen by our
//! own clock and no other, anybody may take it. A holder that cannot renew for that long stops
//! acting before somebody else starts: it gives up after two thirds of the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Error, Result};

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

/// The Lease, as one of the servers sees it.
pub struct Leadership {
    api: Api<Lease>,
    identity: String,
    times: Times,
    /// What the Lease said, and when we first saw it say that.
    seen: Option<(Option<MicroTime>, Instant)>,
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
    #[must_use]
    pub fn new(client: &Client, namespace: &str, identity: &str, times: Times) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            identity: identity.to_owned(),
            times,
            seen: None,
        }
    }

    /// Waits until this server is the one, or the token is cancelled (then: false).
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Result<bool> {
        let mut told = String::new();
        loop {
            match self.try_acquire().await {
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

    /// Renews until that fails for too long, or the token is cancelled.
    pub async fn keep(&mut self, stop: &CancellationToken) {
        let patience = self.times.lease * 2 / 3;
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.times.renew) => {}
            }
            let try_until = renewed + patience;
            match tokio::time::timeout_at(try_until, self.try_acquire()).await {
                Ok(Ok(None)) => renewed = Instant::now(),
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
    pub async fn release(&mut self) {
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
                Ok(_) => Ok(None),
                Err(error) => lost(error),
            };
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.standing(&spec) == Standing::Taken {
            return Ok(spec.holder_identity);
        }
        lease.spec = Some(self.claim(Some(&spec)));
        match self.api.replace(NAME, &params, &lease).await {
            Ok(_) => Ok(None),
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
            Ok(Some("somebody who was faster".to_owned()))
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
        tokio::time::timeout(Duration::from_secs(5), a.keep(&stop))
            .await
            .unwrap();
        stop.cancel();
        assert!(!a.acquire(&stop).await.unwrap());
    }
}
