//! The same objects and files give the same words as Velero's.

use std::fs;

use serde_json::Value;

use crate::bed::Bed;

/// A recorded command: what it printed, with the program's name changed to ours.
struct Recorded {
    args: Vec<String>,
    out: String,
    code: i32,
}

fn recorded(file: &str) -> Recorded {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/cli");
    let text = fs::read_to_string(format!("{folder}/{file}.txt")).unwrap();
    let (command, rest) = text.split_once('\n').unwrap();
    let (out, code) = rest.rsplit_once("--- exit ").unwrap();
    let out = out.split("--- stderr\n").next().unwrap();
    Recorded {
        args: words(command.strip_prefix("$ velero ").unwrap()),
        out: out
            .replace("`velero backup", "`bowline backup")
            .replace("'velero restore", "'bowline restore"),
        code: code.trim().parse().unwrap(),
    }
}

/// Words, those in quotes as one.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in text.split(['\'', '"']).enumerate() {
        match at % 2 {
            1 => words.push(part.to_owned()),
            _ => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    words
}

async fn bed() -> Bed {
    let mut bed = Bed::start().await.with_bucket().await;
    for file in [
        "terminal/backups.yaml",
        "terminal/backupstoragelocations.yaml",
        "terminal/deletebackuprequests.yaml",
        "terminal/podvolumebackups.yaml",
        "terminal/podvolumerestores.yaml",
        "terminal/restores.yaml",
        "terminal/schedules.yaml",
        "terminal/volumesnapshotlocations.yaml",
        "transitions/schedule-nightly.yaml",
    ] {
        bed = bed.with(file);
    }
    bed.with_pod_volumes_of("badhook")
        .with_pod_volumes_of("everything")
        .with_made_up("rich")
        .with_made_up("rich-restore")
}

/// What Bowline prints for a recorded command, and what Velero printed.
async fn both(bed: &Bed, file: &str) -> (String, String) {
    let recorded = recorded(file);
    let args: Vec<&str> = recorded.args.iter().map(String::as_str).collect();
    let ran = bed.run(&args).await;
    assert_eq!(ran.code, recorded.code, "{file}: {}", ran.err);
    (ran.out, recorded.out)
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_are_velero_s_to_the_letter() {
    let bed = bed().await;
    for backup in [
        "basic",
        "hooked",
        "badhook",
        "dup",
        "everything",
        "plain",
        "ghost",
        "rich",
    ] {
        for form in ["", "-details"] {
            let file = format!("backup-describe-{backup}{form}");
            let (ours, theirs) = both(&bed, &file).await;
            let ours = velero_s(&ours);
            assert_eq!(ours, until_deletions(&ours, theirs), "{file}");
        }
    }
    for restore in ["broken", "mapped", "rich", "volumes", "warned"] {
        for form in ["", "-details"] {
            let file = format!("restore-describe-{restore}{form}");
            let (ours, theirs) = both(&bed, &file).await;
            assert_eq!(velero_s(&ours), theirs, "{file}");
        }
    }
    for file in ["schedule-describe", "schedule-describe-bad"] {
        let (ours, theirs) = both(&bed, file).await;
        assert_eq!(ours, theirs, "{file}");
    }
}

/// Without what stands behind Velero's words about the volumes of a pod: ` [why it failed]`; and without
/// the section that lists all volumes.
fn velero_s(ours: &str) -> String {
    let (ours, _) = ours.split_once("\nAll Volumes:\n").unwrap_or((ours, ""));
    let cut = |line: &str| match (line.starts_with("    "), line.split_once(" [")) {
        (true, Some((words, more))) if more.ends_with(']') => words.to_owned(),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = ours.split('\n').map(cut).collect();
    lines.join("\n")
}

/// The objects are in their last state; some were deleted, or tried to be, after the recording.
fn until_deletions(ours: &str, theirs: String) -> String {
    match ours.find("\nDeletion Attempts") {
        Some(at) if !theirs.contains("Deletion Attempts") => theirs + &ours[at..],
        _ => theirs,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_that_is_gone_is_said_at_once_and_everything_else_is_shown() {
    let bed = bed().await;
    // Velero waits for half a minute and then blames its own rate limiter.
    let limiter = "client rate limiter Wait returned an error: rate: Wait(n=1) would exceed \
                   context deadline";
    for (kind, gone) in [("backup", "backupstoragelocations"), ("restore", "backups")] {
        let gone = format!("{gone}.velero.io \"nosuch\" not found");
        for form in ["", "-details"] {
            let (ours, theirs) = both(&bed, &format!("{kind}-describe-invalid{form}")).await;
            let wanted = until_deletions(&ours, theirs.replace(limiter, &gone));
            assert_eq!(
                ours.replace("`bowline", "`velero"),
                wanted.replace("`bowline", "`velero")
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_that_failed_are_shown() {
    let bed = bed().await;
    let (ours, theirs) = both(&bed, "backup-describe-deletion-failed").await;
    assert_eq!(ours, theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_descriptions_have_velero_s_keys_and_more() {
    let bed = bed().await;
    for backup in [
        "basic", "hooked", "badhook", "dup", "plain", "ghost", "rich",
    ] {
        let (ours, theirs) = both(&bed, &format!("backup-describe-{backup}-json")).await;
        assert!(ours.starts_with("{\n    \""), "{ours}");
        let mut json: Value = serde_json::from_str(&ours).unwrap();
        let yaml = bed
            .run(&["backup", "describe", backup, "--details", "-o", "yaml"])
            .await
            .well();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);

        let fields = |value: &mut Value, of: &str, names: &[&str]| {
            let map = value[of].as_object_mut().unwrap();
            names.iter().for_each(|name| drop(map.remove(*name)));
        };
        let more = [
            "fileSystemBackupDefault",
            "itemOperationTimeout",
            "orLabelSelector",
            "scopedResources",
            "uploaderConfig",
        ];
        fields(&mut json, "spec", &more);
        fields(
            &mut json,
            "status",
            &["backupItemOperations", "failureReason"],
        );
        let volumes = &mut json["status"]["backupVolumes"];
        if let Some(volumes) = volumes.as_object_mut() {
            volumes.remove("allVolumes");
        }
        let volumes = &mut json["status"]["backupVolumes"]["podVolumeBackups"];
        if let Some(volumes) = volumes.as_object_mut() {
            assert!(volumes.remove("podVolumeBackupsList").unwrap().is_array());
        }
        let theirs: Value = serde_json::from_str(&theirs).unwrap();
        if theirs.get("deletionAttempts").is_none() {
            json.as_object_mut().unwrap().remove("deletionAttempts");
        }
        assert_eq!(json, theirs, "{backup}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_objects_are_velero_s_to_the_letter() {
    let bed = bed().await;
    for file in [
        "backup-create-o-yaml",
        "restore-create-o-json",
        "restore-create-o-table",
        "restore-create-o-yaml",
        "schedule-create-o-yaml",
        "snapshot-location-create-o-json",
        "snapshot-location-create-o-table",
        "snapshot-location-create-o-yaml",
        "snapshot-location-get",
    ] {
        let (ours, theirs) = both(&bed, file).await;
        assert_eq!(ours, theirs, "{file}");
    }
    for file in [
        "backup-get-json",
        "backup-location-get-yaml",
        "restore-get-json",
    ] {
        let (ours, theirs) = both(&bed, file).await;
        assert_eq!(ageless(&ours), ageless(&theirs), "{file}");
    }
}

/// Without what changed between the recording and the object's last state.
fn ageless(text: &str) -> Vec<&str> {
    let changes = [
        "resourceVersion",
        "generation",
        "Time: ",
        "time: ",
        "checksumAlgorithm",
        "accessMode",
    ];
    let mut in_managed_fields = false;
    text.lines()
        .filter(|line| {
            let indent = line.len() - line.trim_start().len();
            if line.contains("managedFields") {
                in_managed_fields = true;
            } else if indent <= 2 && !line.trim_start().starts_with(['-', ']']) {
                in_managed_fields = false;
            }
            !in_managed_fields && !changes.iter().any(|change| line.contains(change))
        })
        .map(|line| line.trim_end_matches(','))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_have_velero_s_columns_and_widths() {
    let bed = bed().await;
    for file in ["backup-get-labels", "backup-get-label-columns"] {
        let (ours, theirs) = both(&bed, file).await;
        let ages = |text: &str| text.replace("29d", "AGE").replace("s ago", "");
        let expires = |text: &str| {
            let rows = text.lines().map(|row| {
                let at = text.find("EXPIRES").unwrap();
                match row.starts_with("NAME") {
                    true => row.to_owned(),
                    // The column is as wide as its heading; only the age in it moves on.
                    false => format!("{}{}", &row[..at], &row[at + "EXPIRES".len()..]),
                }
            });
            rows.collect::<Vec<_>>()
        };
        assert_eq!(expires(&ours), expires(&theirs), "{file}: {}", ages(&ours));
    }
    let (ours, theirs) = both(&bed, "backup-location-get-unavailable").await;
    assert_eq!(ours.lines().next(), theirs.lines().next());
    let names = |text: &str| -> Vec<String> {
        let first = |row: &str| row.split_whitespace().next().unwrap().to_owned();
        text.lines().map(first).collect()
    };
    assert_eq!(names(&ours), names(&theirs));
    // Not every schedule is kept as an object, so that the columns are narrower.
    let (ours, theirs) = both(&bed, "schedule-get").await;
    let words = |row: &str| {
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for name in ["NAME", "cron-bad", "nightly"] {
        let row = |text: &str| words(text.lines().find(|row| row.starts_with(name)).unwrap());
        assert_eq!(row(&ours), row(&theirs));
    }
    // Nor every restore.
    let (ours, theirs) = both(&bed, "restore-get").await;
    for name in [
        "NAME", "broken", "invalid", "mapped", "nobackup", "volumes", "warned",
    ] {
        let row = |text: &str| words(text.lines().find(|row| row.starts_with(name)).unwrap());
        assert_eq!(row(&ours), row(&theirs));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_decompressed_or_refused_with_the_reason() {
    let bed = bed().await;
    let log = bed.run(&["backup", "logs", "basic"]).await.well();
    assert!(log.starts_with("time=\"2026-11-15T03:19:31Z\""), "{log}");
    let lines = log.lines().count();
    assert!(lines > 50, "{lines}");
    let refusal = bed.run(&["backup", "logs", "dup"]).await.refused();
    assert!(
        refusal.starts_with("bowline: file not found\nhint: "),
        "{refusal}"
    );
}

/// Commands that we refuse or allow on purpose where Velero does not; see `docs/differences.md`.
const OTHER_VERDICT: [&str; 6] = [
    "backup create x3 --ttl -5h -o yaml",
    "backup create x8 --include-resources *,pods",
    "backup create x9 --exclude-resources *",
    "restore create r5 --from-backup basic --include-resources pods --exclude-resources pods",
    "backup describe basic -o yaml",
    "backup bogus",
];

#[tokio::test(flavor = "multi_thread")]
async fn wrong_commands_have_velero_s_exit_codes() {
    let bed = bed().await;
    // This one was there at the time.
    bed.run(&["schedule", "create", "cron-step", "--schedule", "@daily"])
        .await
        .well();
    let text = include_str!("../golden/cli/errors.txt");
    let groups = [
        "backup ",
        "restore ",
        "schedule ",
        "backup-location ",
        "snapshot-location ",
        "plugin ",
        "client ",
        "completion",
    ];
    let mut tried = 0;
    for block in text
        .split("\n$ ")
        .map(|block| block.trim_start_matches("$ "))
    {
        let (command, rest) = block.split_once('\n').unwrap();
        let command = command.strip_prefix("velero ").unwrap();
        if !groups.iter().any(|group| command.starts_with(group)) {
            continue;
        }
        let code = rest.rsplit("--- exit ").next().unwrap().trim();
        let args = words(command);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ran = bed.run(&args).await;
        let is_same = ran.code.to_string() == code;
        assert_eq!(
            is_same,
            !OTHER_VERDICT.contains(&command),
            "{command}: {ran:?}"
        );
        if ran.code != 0 {
            assert!(ran.err.starts_with("bowline: "), "{command}: {ran:?}");
            assert_eq!(ran.out, "", "{command}");
        }
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}
