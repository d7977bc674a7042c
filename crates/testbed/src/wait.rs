//! Waiting on conditions, with a deadline and the last reason.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

const STEP: Duration = Duration::from_millis(100);

/// Asks until the answer is `Some`, at most so long. An error is not final: the last one is the
/// reason if time runs out.
pub async fn wait_for<T, F>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let began = Instant::now();
    loop {
        let last = match ask().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if began.elapsed() >= limit {
            return Err(last.unwrap_or_else(|| anyhow!("it did not happen")))
                .with_context(|| format!("waited {} s for {what}", limit.as_secs()));
        }
        tokio::time::sleep(STEP).await;
    }
}
