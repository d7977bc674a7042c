//! The driver under the suite that CSI drivers are judged by.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, ensure};
use regex::Regex;

use crate::{build::CSI_DRIVER, csi::objects::Kind, process, scene::Scene, wait_for};

/// How many specs of the suite ended how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// Every spec for what the driver can do passes, with files and with blocks.
pub(in super::super) async fn is_kept(scene: &Scene) -> anyhow::Result<String> {
    let mut all = Counts::default();
    for kind in Kind::ALL {
        if kind == Kind::Blocks && !rustix::process::geteuid().is_root() {
            let why = anyhow::anyhow!("not root: there are no loop devices");
            scene.skip("blocks", &why);
            continue;
        }
        let counts = judge(scene, kind).await?;
        all.passed += counts.passed;
        all.failed += counts.failed;
        all.skipped += counts.skipped;
    }
    ensure!(all.passed > 0, "no spec ran");
    ensure!(all.failed == 0, "{} specs failed", all.failed);
    Ok(format!(
        "{} specs passed, {} failed, {} are for what it cannot do",
        all.passed, all.failed, all.skipped
    ))
}

/// Runs the suite on a driver of its own.
async fn judge(scene: &Scene, kind: Kind) -> anyhow::Result<Counts> {
    let name = kind.volume_mode().to_lowercase();
    let folder = scene.folder().join(&name);
    fs::create_dir_all(&folder)?;
    let socket = folder.join("csi.sock");
    let driver = scene.start(
        &format!("{CSI_DRIVER}-{name}"),
        driver(scene, &folder, &socket),
    )?;
    wait_for("the driver", Duration::from_secs(30), async || {
        driver.check()?;
        Ok(socket.exists().then_some(()))
    })
    .await?;

    let access = match kind {
        Kind::Files => "mount",
        Kind::Blocks => "block",
    };
    let mut suite = scene.program("csi-sanity");
    suite
        .arg(format!("--csi.endpoint=unix://{}", socket.display()))
        .arg(format!("--csi.mountdir={}", folder.join("mount").display()))
        .arg(format!(
            "--csi.stagingdir={}",
            folder.join("stage").display()
        ))
        .arg(format!("--csi.testvolumeaccesstype={access}"))
        .arg("--ginkgo.no-color");
    let run = scene.start(&format!("csi-sanity-{name}"), suite)?;
    wait_for("the suite to end", Duration::from_secs(300), async || {
        Ok((!run.is_alive()).then_some(()))
    })
    .await?;
    driver.kill().await?;
    let log = fs::read_to_string(&run.log)?;
    let counts = counts(&log).with_context(|| process::tail(&run.log, 40))?;
    ensure!(
        counts.failed == 0,
        "{} specs failed:\n{}",
        counts.failed,
        failures(&log)
    );
    Ok(counts)
}

/// What it mounts is gone with it.
fn driver(scene: &Scene, folder: &std::path::Path, socket: &std::path::Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .arg(scene.bed().program_file(CSI_DRIVER))
        .arg("--folder")
        .arg(folder.join("driver"))
        .arg("--endpoint")
        .arg(socket)
        .args(["--node", "here"]);
    command
}

/// The suite's last line.
fn counts(log: &str) -> anyhow::Result<Counts> {
    let line = Regex::new(r"(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped")?;
    let found = line.captures(log).context("the suite has no last line")?;
    let count = |at: usize| found[at].parse::<u32>();
    Ok(Counts {
        passed: count(1)?,
        failed: count(2)?,
        skipped: count(3)? + count(4)?,
    })
}

fn failures(log: &str) -> String {
    let lines = log.lines().filter(|line| line.contains("[FAIL]"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Counts, counts};

    #[test]
    fn the_last_line_counts() {
        let log = "•S\nRan 53 of 103 Specs in 0.316 seconds\n\
                   FAIL! -- 50 Passed | 3 Failed | 1 Pending | 49 Skipped\n";
        let expected = Counts {
            passed: 50,
            failed: 3,
            skipped: 50,
        };
        assert_eq!(counts(log).unwrap(), expected);
        assert!(counts("it never came to its end").is_err());
    }
}
