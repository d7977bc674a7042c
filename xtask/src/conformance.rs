//! `cargo xtask conformance`: plays the conformance scripts against the real API server and records
//! its answers.

use bowline_testbed::{Bed, Cache, Mode, Process, conformance};

use crate::say;

pub(crate) async fn record(group: Option<&str>) -> anyhow::Result<()> {
    let bed = Bed::up(&Cache::open()?, Mode::Api, Some(Process::me()?), &say).await?;
    let summary = match bed.blunt_client().await {
        Ok(client) => conformance::record(&client, group).await,
        Err(error) => Err(error),
    };
    bed.down().await?;
    for (group, cases) in summary?.cases {
        say(&format!("{group}: {cases} cases recorded"));
    }
    Ok(())
}
