//! The conformance suite against the real server. Ours is held against the same recordings by
//! `cargo test`, where no cluster is needed.

use anyhow::ensure;

use crate::{conformance, scene::Scene};

/// The real server still answers every script as recorded.
pub(super) async fn is_as_recorded(scene: &Scene) -> anyhow::Result<String> {
    let report = conformance::check_recorded(&scene.bed().blunt_client().await?).await?;
    ensure!(
        report.is_ok(),
        "the real server answers otherwise; `cargo xtask conformance` records anew\n{report}"
    );
    let cases: usize = report.groups.iter().map(|group| group.same).sum();
    Ok(format!(
        "{cases} cases in {} groups as recorded",
        report.groups.len()
    ))
}
