//! Velero's command line on our server and on its own: the same commands, the same words. And ours
//! on Velero's server, where restores are talked about too.

mod plugins;
mod restores;

use std::{fs, time::Duration};

use anyhow::{bail, ensure};
use bowline_api::{names::DEFAULT_NAMESPACE, v1::Backup};
use kube::{Api, api::ListParams};
use regex::Regex;
use serde_json::json;

use crate::{peer, scene::Scene, servers::Server, wait_for};

/// Whose command line.
#[derive(Clone, Copy)]
enum Line {
    Velero,
    Ours,
}

/// What each command printed, with what changes from time to time replaced.
type Talk = Vec<(String, String)>;

/// Velero's command line against both servers.
pub(super) async fn velero_on_ours(scene: &Scene) -> anyhow::Result<String> {
    set_up(scene).await?;
    let mut talks = Vec::new();
    for server in Server::BOTH {
        talks.push(talk(scene, server, Line::Velero).await?);
    }
    let compared = compare("velero's server | ours", &talks[0], &talks[1], |_, line| {
        // A namespace that is hidden by its label does not become an exclude.
        line.contains("zoo-empty") || line == "+   Excluded:  <none>"
    });
    scheduled(scene).await?;
    peer::remove(scene).await?;
    let commands = compared?;
    Ok(format!(
        "{commands} commands print the same; a schedule fires"
    ))
}

/// Both command lines against Velero's server.
pub(super) async fn ours_on_velero(scene: &Scene) -> anyhow::Result<String> {
    set_up(scene).await?;
    let mut talks = Vec::new();
    for line in [Line::Velero, Line::Ours] {
        let mut talk = talk(scene, Server::Velero, line).await?;
        talk.extend(restores::talk(scene, line).await?);
        talk.extend(plugins::talk(scene, line).await?);
        talks.push(talk);
    }
    peer::remove(scene).await?;
    let who = "velero's line | ours";
    let commands = compare(who, &talks[0], &talks[1], |command, line| {
        // As `docs/differences.md` says: the exit code tells how work ended, and JSON has more.
        (command.contains("--wait") && ["- exit 0", "+ exit 1"].contains(&line))
            || (command.starts_with("backup describe")
                && command.ends_with("-o json")
                && line.starts_with('+'))
            || restores::is_known_difference(command, line)
    })?;
    Ok(format!("{commands} commands print the same"))
}

async fn set_up(scene: &Scene) -> anyhow::Result<()> {
    let bucket = scene.bucket("cli")?;
    peer::prepare(scene, &bucket).await?;
    let namespace = scene.namespace("shop").await?;
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "settings", "namespace": namespace, "labels": { "app": "shop" } },
        "data": { "mode": "<fast> & safe" },
    });
    scene.apply(&[map]).await
}

/// Runs all commands against a server.
async fn talk(scene: &Scene, server: Server, line: Line) -> anyhow::Result<Talk> {
    let process = server.start(scene, &[]).await?;
    let shop = scene.fresh("shop");
    let file = scene.folder().join("cli-download.tar.gz");
    let file = file.to_string_lossy();
    let commands: &[&[&str]] = &[
        &["backup-location", "get"],
        &["backup", "get"],
        &[
            "backup",
            "create",
            "b1",
            "--include-namespaces",
            &shop,
            "--labels",
            "a=b",
            "--ttl",
            "24h",
            "--wait",
        ],
        &["backup", "create", "b1"],
        &[
            "backup",
            "create",
            "b2",
            "--include-namespaces",
            "nonesuch",
            "--wait",
        ],
        &["backup", "get", "b1"],
        &["backup", "get"],
        &["backup", "describe", "b1"],
        &["backup", "describe", "b1", "--details"],
        &["backup", "describe", "b1", "-o", "json"],
        &["backup", "describe", "b2", "--details"],
        &["backup", "download", "b1", "--force", "--output", &file],
        &["backup", "logs", "b1"],
        &["backup", "logs", "nonesuch"],
        &[
            "schedule",
            "create",
            "s1",
            "--schedule",
            "0 3 1 1 *",
            "--include-namespaces",
            &shop,
        ],
        &["schedule", "get"],
        &["schedule", "pause", "s1"],
        &["schedule", "get", "s1"],
        &["schedule", "delete", "s1", "--confirm"],
        &["backup", "delete", "b1", "b2", "--confirm"],
        &["backup", "delete", "nonesuch", "--confirm"],
        &["create", "snapshot-location", "zone"],
        &[
            "snapshot-location",
            "create",
            "zone",
            "--provider",
            "acme.io/disk",
            "--config",
            "region=eu,zone=b",
            "--labels",
            "a=b",
        ],
        &[
            "snapshot-location",
            "create",
            "zone",
            "--provider",
            "acme.io/disk",
        ],
        &["snapshot-location", "get", "--show-labels"],
        &["get", "snapshot-locations", "zone", "-L", "a"],
        &["get", "snapshot-location", "nonesuch"],
        &[
            "snapshot-location",
            "set",
            "zone",
            "--credential",
            "secret=key",
        ],
        &[
            "snapshot-location",
            "set",
            "zone",
            "--credential",
            "a=b,c=d",
        ],
        &["snapshot-location", "set", "nonesuch"],
    ];
    let mut talk = Talk::new();
    for args in commands {
        if args.contains(&"get") && args[0] == "schedule" {
            enabled(scene).await?;
        }
        let printed = print(scene, line, args).await?;
        if args[1..] == ["logs", "b1"] {
            // Each server tells its own story, in lines of the same form.
            ensure!(
                printed.contains("level=info msg="),
                "the log is {printed:?}"
            );
            continue;
        }
        talk.push((args.join(" "), plain(scene, &printed)));
        if args.contains(&"download") {
            ensure!(fs::metadata(&*file)?.len() > 100, "the download is short");
        }
    }
    backups_gone(scene).await?;
    talk.push(("the location".to_owned(), forget_location(scene).await?));
    process.stop().await?;
    Ok(talk)
}

/// What the snapshot location holds, which is gone then.
async fn forget_location(scene: &Scene) -> anyhow::Result<String> {
    let location = ["volumesnapshotlocation", "zone"];
    let within = ["-n", DEFAULT_NAMESPACE];
    let get = [
        &["get"],
        &location[..],
        &within,
        &["-o", "jsonpath={.spec}"],
    ]
    .concat();
    let spec = scene.kubectl(&get).await?;
    scene
        .kubectl(&[&["delete"], &location[..], &within].concat())
        .await?;
    Ok(spec)
}

/// Waits until the server has deleted all backups.
async fn backups_gone(scene: &Scene) -> anyhow::Result<()> {
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    wait_for("the backups to go", Duration::from_secs(60), async || {
        let left = backups.list(&ListParams::default()).await?;
        ensure!(left.items.is_empty(), "{} are left", left.items.len());
        Ok(Some(()))
    })
    .await
}

/// A server looks at a new schedule in its own time.
async fn enabled(scene: &Scene) -> anyhow::Result<()> {
    wait_for(
        "the schedule to be looked at",
        Duration::from_secs(30),
        async || {
            let phase = scene
                .kubectl(&[
                    "-n",
                    DEFAULT_NAMESPACE,
                    "get",
                    "schedule",
                    "s1",
                    "-o",
                    "jsonpath={.status.phase}",
                ])
                .await?;
            Ok((!phase.is_empty()).then_some(()))
        },
    )
    .await
}

/// What a command prints, whichever way it ends, and its exit code.
async fn print(scene: &Scene, line: Line, args: &[&str]) -> anyhow::Result<String> {
    let mut command = match line {
        Line::Velero => scene.program("velero"),
        Line::Ours => scene.bowline(),
    };
    command
        .args(args)
        .env("NO_COLOR", "1")
        .current_dir(scene.folder());
    let mut command = tokio::process::Command::from(command);
    let output = command
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(output) = tokio::time::timeout(Duration::from_secs(90), output).await else {
        bail!("{} does not end", args.join(" "));
    };
    let output = output?;
    Ok(format!(
        "{}{}exit {}\n",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().unwrap_or(-1)
    ))
}

/// A text without times, ids, ages, colours, and the names of programs.
fn plain(scene: &Scene, text: &str) -> String {
    let mut text = text
        .replace("bowline", "velero")
        .replace(&*scene.folder().to_string_lossy(), "<folder>");
    for (pattern, with) in [
        ("\u{1b}\\[[0-9;]*m", ""),
        (
            r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?( [+-]\d{4} \w+)?",
            "<time>",
        ),
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        // Dots of progress, however many; ours tells the phase instead.
        (r"(?m)^\.*\n", ""),
        (r"\.{4,}", "…"),
        (
            r"(?m)^(New|Queued|ReadyToStart|InProgress|Finalizing|WaitingFor)\w*([:,] .*)?\n",
            "",
        ),
        (r"(?m)^hint: .*\n", ""),
        // Names made from the time.
        (r"-\d{14}\b", "-<stamp>"),
        (r"\b\d+(s|m|h|d|m\d+s)( ago)?\b", "<age>"),
        (r" {2,}", "  "),
        (r"(?m) +$", ""),
    ] {
        let pattern = Regex::new(pattern).expect("a pattern of our own");
        text = pattern.replace_all(&text, with).into_owned();
    }
    text
}

/// How many commands said the same; what the others said.
fn compare(
    who: &str,
    one: &Talk,
    other: &Talk,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> anyhow::Result<usize> {
    let mut report = String::new();
    for ((command, one), (_, other)) in one.iter().zip(other) {
        if one != other {
            let mut lines = line_differences(one, other);
            lines.retain(|line| !is_wanted(command, line));
            if !lines.is_empty() {
                report.push_str(&format!("$ {command}\n{}\n", lines.join("\n")));
            }
        }
    }
    if !report.is_empty() {
        bail!("{who} (- | +):\n{report}");
    }
    Ok(one.len())
}

/// The lines that only one of the texts has.
fn line_differences(one: &str, other: &str) -> Vec<String> {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    let only = |a: &[&str], b: &[&str], sign: &str| -> Vec<String> {
        a.iter()
            .filter(|line| !b.contains(line))
            .map(|line| format!("{sign} {line}"))
            .collect()
    };
    let mut lines = only(&one, &other, "-");
    lines.extend(only(&other, &one, "+"));
    if lines.is_empty() {
        lines.push("  (the same lines in another order or number)".to_owned());
    }
    lines
}

/// Our server starts what a schedule says.
async fn scheduled(scene: &Scene) -> anyhow::Result<()> {
    let process = Server::Ours.start(scene, &[]).await?;
    let shop = scene.fresh("shop");
    print(
        scene,
        Line::Velero,
        &[
            "schedule",
            "create",
            "often",
            "--schedule",
            "@every 1s",
            "--include-namespaces",
            &shop,
        ],
    )
    .await?;
    let backups: Api<Backup> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let of = ListParams::default().labels("velero.io/schedule-name=often");
    wait_for(
        "a backup of the schedule",
        Duration::from_secs(75),
        async || {
            let done = backups.list(&of).await?.items.into_iter().any(|backup| {
                let phase = backup.status.and_then(|s| s.phase);
                phase.is_some_and(|phase| phase.as_str() == "Completed")
            });
            Ok(done.then_some(()))
        },
    )
    .await?;
    print(
        scene,
        Line::Velero,
        &["schedule", "delete", "often", "--confirm"],
    )
    .await?;
    process.stop().await
}
