//! The one place where calls to a store are timed, repeated, counted and given up.

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Bucket,
    metrics::{Operation, Outcome},
};
use crate::{Error, Result};

/// How often a call is tried at most.
const TRIES: u32 = 4;

/// How long all tries of a small call may take together.
pub(super) const SMALL: Duration = Duration::from_secs(60);

/// No further try is begun after this: a dead endpoint must show within a minute, and the last
/// error says more than "no answer".
const LATE: Duration = Duration::from_secs(30);

impl Bucket {
    /// Calls until it works, cannot work, or has been tried enough. Dropping the future is enough
    /// to give up; so is cancelling the bucket's token.
    pub(super) async fn attempt<T, F>(
        &self,
        operation: Operation,
        action: &str,
        limit: Duration,
        mut call: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let start = Instant::now();
        let mut tried = 0;
        loop {
            let result = self
                .once(operation, action, start + limit, limit, call())
                .await;
            tried += 1;
            match result {
                Err(error) if !error.is_permanent() && tried < TRIES && start.elapsed() < LATE => {
                    tracing::debug!(%error, tried, "the store is tried again");
                    self.unless_cancelled(action, tokio::time::sleep(pause(tried, random())))
                        .await?;
                }
                result => return result,
            }
        }
    }

    /// One try.
    async fn once<T>(
        &self,
        operation: Operation,
        action: &str,
        deadline: Instant,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (result, outcome) = tokio::select! {
            biased;
            () = self.cancel.cancelled() => (Err(cancelled(action)), Outcome::Cancelled),
            result = call => {
                let outcome = match &result {
                    Ok(_) => Outcome::Ok,
                    Err(Error::NotFound { .. }) => Outcome::NotFound,
                    Err(Error::Cancelled { .. }) => Outcome::Cancelled,
                    Err(_) => Outcome::Error,
                };
                (result, outcome)
            }
            () = tokio::time::sleep_until(deadline) => {
                let error = Error::Store {
                    action: action.to_owned(),
                    reason: format!(
                        "no answer from {} within {} seconds",
                        self.store.endpoint(),
                        limit.as_secs()
                    ),
                    retryable: true,
                };
                (Err(error), Outcome::Timeout)
            }
        };
        self.metrics.called(operation, outcome);
        result
    }

    /// A call that cannot be repeated and takes as long as it takes.
    pub(super) async fn unlimited<T>(
        &self,
        operation: Operation,
        action: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let year = Duration::from_secs(365 * 24 * 3600);
        self.once(operation, action, Instant::now() + year, year, call)
            .await
    }

    pub(super) async fn unless_cancelled(
        &self,
        action: &str,
        wait: impl Future<Output = ()>,
    ) -> Result<()> {
        tokio::select! {
            () = self.cancel.cancelled() => Err(cancelled(action)),
            () = wait => Ok(()),
        }
    }
}

pub(super) fn cancelled(action: &str) -> Error {
    Error::Cancelled {
        action: action.to_owned(),
    }
}

/// The pause after a number of tries: doubling, and somewhere between half of it and all of it.
fn pause(tried: u32, random: u64) -> Duration {
    let most = Duration::from_millis(250) * 2_u32.pow(tried.min(6));
    most / 2 + most / 2 * u32::try_from(random % 1000).unwrap_or_default() / 1000
}

/// Enough randomness to keep many clients from knocking at once.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let millis = |tried, random| pause(tried, random).as_millis();
        assert_eq!((millis(1, 0), millis(1, 999)), (250, 499));
        assert_eq!((millis(3, 0), millis(3, 500)), (1000, 1500));
    }
}
