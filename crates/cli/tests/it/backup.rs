//! Backups, from their creation to their deletion.

use std::fs;

use bowline_api::v1::{Backup, DeleteBackupRequest, DownloadRequest};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::bed::{Bed, golden_objects};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_created_as_the_flags_say_in_both_word_orders() {
    let bed = Bed::start().await;
    let out = bed
        .run(&[
            "backup",
            "create",
            "plain",
            "--include-namespaces",
            "shop",
            "--labels",
            "team=red",
        ])
        .await
        .well();
    assert_eq!(
        out,
        "Backup request \"plain\" submitted successfully.\n\
         Run `bowline backup describe plain` or `bowline backup logs plain` for more details.\n"
    );
    bed.run(&[
        "create",
        "backup",
        "other",
        "--snapshot-volumes=false",
        "--ttl",
        "1h",
    ])
    .await
    .well();
    assert_eq!(bed.names::<Backup>().await, ["other", "plain"]);
    let api: Api<Backup> = Api::namespaced(bed.client.clone(), "velero");
    let plain = api.get("plain").await.unwrap();
    assert_eq!(plain.labels()["team"], "red");
    assert_eq!(plain.spec.included_namespaces.unwrap(), ["shop"]);
    let other = api.get("other").await.unwrap();
    assert_eq!(other.spec.snapshot_volumes, Some(false));
    assert_eq!(other.spec.ttl.unwrap().to_string(), "1h0m0s");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_by_name_and_nothing_is_created() {
    let bed = Bed::start()
        .await
        .with("terminal/backupstoragelocations.yaml");
    for (args, wanted) in [
        (
            &[][..],
            "a backup name is required, unless you are creating based on a schedule",
        ),
        (&["UPPER"], "invalid backup name \"UPPER\""),
        (&["x", "--ttl", "tenhours"], "tenhours"),
        (&["x", "--ttl", "-5h"], "must not be negative"),
        (
            &["x", "--storage-location", "nosuch"],
            "hint: there are: attic, default, second",
        ),
        (
            &["x", "--volume-snapshot-locations", "a,b"],
            "volumesnapshotlocations.velero.io \"a\" not found",
        ),
        (
            &["x", "-l", "a=b", "--or-selector", "a=b or c=d"],
            "either a 'selector' or an 'or-selector'",
        ),
        (
            &["x", "-l", "a=b,,(("],
            "found ',', expected: identifier after ','",
        ),
        (
            &[
                "x",
                "--include-resources",
                "pods",
                "--include-namespace-scoped-resources",
                "pods",
            ],
            "They cannot be used together",
        ),
        (
            &[
                "x",
                "--include-namespaces",
                "a,b",
                "--exclude-namespaces",
                "b",
            ],
            "includes list: b",
        ),
        (
            &["x", "--include-namespaces", "bad**glob"],
            "consecutive asterisks",
        ),
        (
            &["x", "--include-resources", "*,pods"],
            "Invalid included/excluded resource lists",
        ),
        (
            &["x", "--ordered-resources", "pods"],
            "invalid OrderedResources 'pods'",
        ),
        (&["x", "--labels", "novalue"], "error parsing \"novalue\""),
        (&["x", "--labels", "a b=c"], "invalid label key \"a b\""),
        (&["x", "--snapshot-volumes=maybe"], "neither true nor false"),
        (
            &["x", "--from-schedule", ""],
            "flag must have a non-empty value: --from-schedule",
        ),
        (
            &["x", "--from-schedule", "nosuch"],
            "schedules.velero.io \"nosuch\" not found",
        ),
        (&["x", "extra"], "unexpected argument 'extra'"),
        (
            &["x", "--parallel-files-upload", "-1"],
            "cannot be negative",
        ),
        (&["x", "--nosuchflag"], "--nosuchflag"),
    ] {
        let mut words = vec!["backup", "create"];
        words.extend_from_slice(args);
        let refusal = bed.run(&words).await.refused();
        assert!(refusal.starts_with("bowline: "), "{refusal}");
        assert!(refusal.contains(wanted), "{args:?}: {refusal}");
    }
    assert!(bed.names::<Backup>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_replace_maps_add_up_and_the_last_word_wins() {
    let bed = Bed::start().await;
    let out = bed
        .run(&[
            "backup",
            "create",
            "x",
            "--include-namespaces",
            "a",
            "--include-namespaces",
            "b,c",
            "--labels",
            "k=1",
            "--labels",
            "l=2,k=3",
            "--ttl",
            "1h",
            "--ttl",
            "2h",
            "--snapshot-move-data",
            "--snapshot-volumes=",
            "--wait=false",
            "-o",
            "json",
        ])
        .await
        .well();
    let backup: Backup = serde_json::from_str(&out).unwrap();
    assert_eq!(
        backup.spec.included_namespaces.as_ref().unwrap(),
        &["b", "c"]
    );
    assert_eq!(json!(backup.labels()), json!({"k": "3", "l": "2"}));
    assert_eq!(backup.spec.ttl.unwrap().to_string(), "2h0m0s");
    assert_eq!(backup.spec.snapshot_move_data, Some(true));
    assert_eq!(backup.spec.snapshot_volumes, None);
    assert!(bed.names::<Backup>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_refused_with_a_hint() {
    let bed = Bed::start().await;
    bed.run(&["backup", "create", "x"]).await.well();
    let refusal = bed.run(&["backup", "create", "x"]).await.refused();
    assert!(
        refusal.starts_with("bowline: backups.velero.io \"x\" already exists\nhint: "),
        "{refusal}"
    );
}

/// Plays the server's part: one status after another, each once the one before was heard of.
async fn waits(last_phase: &str) -> (String, i32) {
    let bed = Bed::start().await;
    let mut child = bed
        .command(&["backup", "create", "w", "--wait"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut out = String::new();
    let api: Api<Backup> = Api::namespaced(bed.client.clone(), "velero");
    let mut steps = [
        json!({"phase": "InProgress", "progress": {"totalItems": 9, "itemsBackedUp": 4}}),
        json!({"phase": last_phase}),
    ]
    .into_iter();
    while let Some(line) = lines.next_line().await.unwrap() {
        out += &line;
        out.push('\n');
        if (line == "New" || line.starts_with("InProgress"))
            && let Some(status) = steps.next()
        {
            let status = json!({ "status": status });
            api.patch("w", &PatchParams::default(), &Patch::Merge(&status))
                .await
                .unwrap();
        }
    }
    (out, child.wait().await.unwrap().code().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_shows_progress_and_the_exit_code_says_how_it_ended() {
    for (phase, wanted) in [
        ("Completed", 0),
        ("PartiallyFailed", 1),
        ("Failed", 1),
        ("FailedValidation", 1),
    ] {
        let (out, code) = waits(phase).await;
        assert_eq!(
            out,
            format!(
                "Backup request \"w\" submitted successfully.\n\
                 Waiting for backup to complete. You may safely press ctrl-c to stop waiting - \
                 your backup will continue in the background.\n\
                 New\n\
                 InProgress: 4 of 9 items\n\
                 \n\
                 Backup completed with status: {phase}. You may check for more information using \
                 the commands `bowline backup describe w` and `bowline backup logs w`.\n"
            )
        );
        assert_eq!(code, wanted, "{phase}");
    }
}

fn volume(name: &str, of: &str, phase: &str, done: i64) -> Value {
    json!({
        "apiVersion": "velero.io/v1",
        "kind": "PodVolumeBackup",
        "metadata": {
            "name": name, "namespace": "velero",
            "labels": {"velero.io/backup-name": of},
        },
        "spec": {
            "node": "n",
            "pod": {"kind": "Pod", "namespace": "shop", "name": "db-0"},
            "volume": name,
            "backupStorageLocation": "default",
            "repoIdentifier": "",
            "uploaderType": "restic",
        },
        "status": {"phase": phase, "progress": {"totalBytes": 2048, "bytesDone": done}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tells_of_the_backup_s_volumes() {
    let bed = Bed::start().await;
    for volume in [
        volume("a", "w", "Completed", 2048),
        volume("b", "w", "InProgress", 1024),
        volume("c", "other", "InProgress", 7),
    ] {
        bed.server.load(&volume).unwrap();
    }
    let heard = volumes_heard(&bed, 2).await;
    assert_eq!(heard, "1 of 2 volumes, 3.00 KiB of 4.00 KiB");
}

/// What a waiting command says of so many volumes once it knows them.
async fn volumes_heard(bed: &Bed, count: usize) -> String {
    let known = format!(" of {count} volumes");
    let mut child = bed
        .command(&["backup", "create", "w", "--wait"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let api: Api<Backup> = Api::namespaced(bed.client.clone(), "velero");
    // Volumes are heard of by themselves; every new phase gives a line that could have them.
    let mut phases = ["Queued", "InProgress"].into_iter().cycle();
    let mut heard = None;
    while let Some(line) = lines.next_line().await.unwrap() {
        if !["New", "Queued", "InProgress"].contains(&line.split(',').next().unwrap()) {
            continue;
        }
        let phase = match line.split_once(", ") {
            Some((_, volumes)) if volumes.contains(&known) => {
                heard = Some(volumes.to_owned());
                "Completed"
            }
            _ => phases.next().unwrap(),
        };
        let status = json!({ "status": {"phase": phase} });
        api.patch("w", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
    assert!(child.wait().await.unwrap().success());
    heard.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_comes_from_a_schedule_with_its_labels() {
    let bed = Bed::start().await.with("transitions/schedule-nightly.yaml");
    let out = bed
        .run(&[
            "backup",
            "create",
            "--from-schedule",
            "nightly",
            "--labels",
            "extra=yes",
        ])
        .await
        .well();
    let first = "Creating backup from schedule, all other filters are ignored.\n\
                 Backup request \"nightly-";
    assert!(out.starts_with(first), "{out}");
    let api: Api<Backup> = Api::namespaced(bed.client.clone(), "velero");
    let backup = api.list(&Default::default()).await.unwrap().items.remove(0);
    assert_eq!(
        json!(backup.labels()),
        json!({"extra": "yes", "team": "red", "velero.io/schedule-name": "nightly"})
    );
    assert_eq!(backup.spec.included_namespaces.unwrap(), ["shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_asks_first_and_then_asks_the_server() {
    let bed = Bed::start().await.with("terminal/backups.yaml");
    const QUESTION: &str = "Are you sure you want to continue (Y/N)? ";
    let delete = ["backup", "delete", "plain"];
    let no = bed.run_with_input(&delete, "maybe\nn\n").await.well();
    assert_eq!(no, QUESTION.repeat(2));
    let silence = bed.run(&delete).await;
    assert_eq!((silence.out.as_str(), silence.code), (QUESTION, 0));
    assert_eq!(silence.err, "error reading user input: EOF\n");
    assert!(bed.names::<DeleteBackupRequest>().await.is_empty());

    let yes = bed.run_with_input(&delete, "y\n").await.well();
    let done = "Request to delete backup \"plain\" submitted successfully.\n\
                The backup will be fully deleted after all associated data (disk snapshots, \
                backup files, restores) are removed.\n";
    assert_eq!(yes, format!("{QUESTION}{done}"));
    let api: Api<DeleteBackupRequest> = Api::namespaced(bed.client.clone(), "velero");
    let request = api.list(&Default::default()).await.unwrap().items.remove(0);
    assert_eq!(request.spec.backup_name, "plain");
    let uid = golden_objects("terminal/backups.yaml")
        .into_iter()
        .find(|backup| backup["metadata"]["name"] == "plain")
        .unwrap()["metadata"]["uid"]
        .take();
    assert_eq!(
        json!(request.labels()),
        json!({"velero.io/backup-name": "plain", "velero.io/backup-uid": uid})
    );

    let some = bed
        .run(&["delete", "backups", "nosuch", "basic", "--confirm"])
        .await;
    assert_eq!(some.code, 1);
    assert_eq!(some.out, done.replace("plain", "basic"));
    assert_eq!(
        some.err,
        "bowline: backups.velero.io \"nosuch\" not found\n"
    );
    let none = ["backup", "delete", "-l", "no=such", "--confirm"];
    assert_eq!(bed.run(&none).await.well(), "No backups found\n");
    let both = ["backup", "delete", "basic", "--all", "--confirm"];
    let refusal = bed.run(&both).await.refused();
    assert!(
        refusal.contains("you must specify exactly one of"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_is_downloaded_whole_and_replaces_only_by_force() {
    let bed = Bed::start()
        .await
        .with_bucket()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml");
    let download = ["backup", "download", "basic", "-o", "basic-data.tar.gz"];
    assert_eq!(
        bed.run(&download).await.well(),
        "Backup basic has been successfully downloaded to basic-data.tar.gz\n"
    );
    let file = bed.folder.path().join("basic-data.tar.gz");
    let archive = fs::read(&file).unwrap();
    assert!(archive.starts_with(&[0x1f, 0x8b]), "still compressed");
    let refusal = bed.run(&download).await.refused();
    assert!(refusal.contains("file exists"), "{refusal}");
    let mut forced = download.to_vec();
    forced.push("--force");
    bed.run(&forced).await.well();

    // `dup` has no archive; what was there before stays.
    let missing = [
        "backup",
        "download",
        "dup",
        "-o",
        "basic-data.tar.gz",
        "--force",
    ];
    assert_eq!(
        bed.run(&missing).await.refused(),
        "bowline: file not found\n"
    );
    assert_eq!(fs::read(&file).unwrap(), archive);
    assert!(!bed.folder.path().join("basic-data.tar.gz.part").exists());
    assert_eq!(bed.names::<DownloadRequest>().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_signs_is_an_error_with_a_hint() {
    let bed = Bed::start()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml");
    let logs = ["backup", "logs", "basic", "--timeout", "200ms"];
    let refusal = bed.run(&logs).await.refused();
    assert!(
        refusal.contains("download request download url timeout"),
        "{refusal}"
    );
    assert!(
        refusal.contains("hint: `bowline backup-location get`"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_printed_in_every_format() {
    let bed = Bed::start().await;
    assert_eq!(bed.run(&["backup", "get"]).await.well(), "");
    for (name, team) in [("a", "red"), ("b", "blue")] {
        let labels = format!("team={team}");
        bed.run(&["backup", "create", name, "--labels", &labels])
            .await
            .well();
    }
    let names = ["get", "backup", "-l", "team=red", "-o", "name"];
    assert_eq!(bed.run(&names).await.well(), "backups.velero.io/a\n");
    let list = bed.run(&["get", "backups", "-o", "json"]).await.well();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["kind"], "BackupList");
    let one = bed
        .run(&["get", "backups", "-l", "team=red", "-o", "yaml"])
        .await
        .well();
    let one: serde_json::Value = serde_saphyr::from_str(&one).unwrap();
    assert_eq!(one, list["items"][0]);
    let table = bed.run(&["backup", "get", "b", "-L", "team"]).await.well();
    assert_eq!(
        table,
        "NAME   STATUS   ERRORS   WARNINGS   CREATED   EXPIRES   STORAGE LOCATION   QUEUE POSITION   SELECTOR   TEAM\n\
         b      New      0        0          <nil>     n/a                                           <none>     blue\n"
    );
    let refusal = bed.run(&["backup", "get", "nosuch"]).await.refused();
    assert_eq!(refusal, "bowline: backups.velero.io \"nosuch\" not found\n");
    assert_eq!(bed.run(&["-n", "other", "backup", "get"]).await.well(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_has_not_begun_is_described_without_waiting() {
    let bed = Bed::start().await;
    bed.run(&["backup", "create", "x"]).await.well();
    let text = bed
        .run(&["describe", "backup", "x", "--details"])
        .await
        .well();
    assert!(text.contains("Phase:  New\n"), "{text}");
    assert!(text.contains("Expiration:  <nil>\n"), "{text}");
    assert!(
        text.contains("Resource List:  <backup resource list not found>\n"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours in a pipe");
    let bold = bed
        .run(&["describe", "backup", "x", "--colorized", "true"])
        .await
        .well();
    assert!(
        bold.starts_with("Name:         \u{1b}[1mx\u{1b}[22m\n"),
        "{bold}"
    );
}

/// A snapshot that a plugin uploads.
fn upload(volume: &str, labels: Value, backup: &str) -> Value {
    json!({
        "apiVersion": "velero.io/v1",
        "kind": "VolumePluginBackup",
        "metadata": {"name": format!("snap-{volume}"), "namespace": "velero", "labels": labels},
        "spec": {"volume": volume, "backup": backup, "plugin": "acme.io/disk"},
        "status": {
            "phase": "InProgress",
            "snapshotID": format!("Snap/{volume}"),
            "progress": {"totalBytes": 2048, "bytesDone": 512},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_plugins_upload_are_described() {
    let bed = Bed::start()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml")
        .with_bucket()
        .await;
    let before = bed.run(&["backup", "describe", "basic"]).await.well();
    let of = |name: &str| json!({"velero.io/backup-name": name});
    for upload in [
        upload("pv-b", of("basic"), "basic"),
        // The server has not seen this one yet.
        upload("pv-a", json!({}), "basic"),
        upload("pv-c", of("other"), "basic"),
        upload("pv-d", json!({}), "other"),
    ] {
        bed.server.load(&upload).unwrap();
    }
    let summary = "\n  Volume Plugin Backups (specify --details for more information):\n    \
                   In Progress:  2 (25.00%) [1.00 KiB of 4.00 KiB]\n";
    let now = bed.run(&["backup", "describe", "basic"]).await.well();
    assert_eq!(now.replace(summary, ""), before);
    assert!(now.contains(summary), "{now}");

    let one = |name: &str| {
        format!(
            "    {name}:\n      Plugin:       acme.io/disk\n      Snapshot ID:  Snap/{name}\n      \
             Phase:        InProgress\n      Progress:     25.00% (512 B of 2.00 KiB)\n"
        )
    };
    let details = bed
        .run(&["backup", "describe", "basic", "--details"])
        .await
        .well();
    let wanted = format!("\n  Volume Plugin Backups:\n{}{}", one("pv-a"), one("pv-b"));
    assert!(details.contains(&wanted), "{details}");

    let json = bed
        .run(&["backup", "describe", "basic", "-o", "json"])
        .await
        .well();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["status"]["backupVolumes"]["volumePluginBackups"],
        json!({"phases": {"In Progress": 2}})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_hooks_held_pods_is_described() {
    let bed = Bed::start().await.with_made_up("held").with_bucket().await;
    let short = bed.run(&["backup", "describe", "held"]).await.well();
    let longest = "\nHooksAttempted:  4\nHooksFailed:     0\n\
                   Longest hook window: 12.3s (shop/web-0)\n";
    assert!(short.ends_with(longest), "{short}");
    assert!(!short.contains("Errors:"), "{short}");
    let long = bed
        .run(&["backup", "describe", "held", "--details"])
        .await
        .well();
    let each = "(shop/web-0)\nHook windows:\n  shop/db-0:   250ms\n  shop/web-0:  12.3s\n";
    assert!(long.ends_with(each), "{long}");
    let json = bed
        .run(&["backup", "describe", "held", "-o", "json"])
        .await
        .well();
    let json: Value = serde_json::from_str(&json).unwrap();
    let windows = &json["status"]["hookWindows"];
    assert_eq!(
        windows[1],
        json!({"namespace": "shop", "pod": "web-0", "seconds": 12.345})
    );
    assert_eq!(json.get("errors"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tells_of_snapshots_that_plugins_upload() {
    let bed = Bed::start().await;
    let of = json!({"velero.io/backup-name": "w"});
    bed.server.load(&upload("pv-a", of, "w")).unwrap();
    bed.server
        .load(&volume("b", "w", "Completed", 2048))
        .unwrap();
    let heard = volumes_heard(&bed, 2).await;
    assert_eq!(heard, "1 of 2 volumes, 2.50 KiB of 4.00 KiB");
}
