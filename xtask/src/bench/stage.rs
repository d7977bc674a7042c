//! A fresh cluster for a measurement, gone afterwards, whatever happens.

use anyhow::{Context, anyhow, bail};
use bowline_testbed::{Bed, Cache, Mode, Process, bed, scene::Scene};
use tokio::signal::ctrl_c;

use crate::say;

/// Plays on a bed of its own, with our program in its release build. Ctrl-C ends the
/// play early; bed and processes end in any case.
pub(super) async fn on_bed<T>(
    cache: &Cache,
    mode: Mode,
    play: impl AsyncFnOnce(&Scene) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let me = Process::me()?;
    let bed = tokio::select! {
        bed = Bed::up(cache, mode, Some(me.clone()), &say) => bed?,
        _ = ctrl_c() => {
            bed::down_all(cache, Some(&me), &say).await.context("end the bed")?;
            bail!("interrupted");
        }
    };
    let outcome = on(&bed, play).await;
    bed.down().await?;
    outcome
}

async fn on<T>(
    bed: &Bed,
    play: impl AsyncFnOnce(&Scene) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let scene = Scene::new(bed)?.with_bowline(super::bowline()?);
    let played = tokio::select! {
        outcome = play(&scene) => Some(outcome),
        _ = ctrl_c() => None,
    };
    if let Some(Err(_)) = &played {
        say(&scene.diagnose().await);
    }
    scene.end().await?;
    played.unwrap_or_else(|| Err(anyhow!("interrupted")))
}
