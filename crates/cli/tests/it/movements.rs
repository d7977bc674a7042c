//! Movements of the data of CSI snapshots: what a user sees of them in the middle, and at the end.

use bowline_api::v1::{Backup, Restore};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::bed::{Bed, Ran};

const MIB: i64 = 1024 * 1024;

/// A bucket, and backups and restores in these phases.
async fn bed(backups: &[(&str, &str)], restores: &[(&str, &str)]) -> Bed {
    let bed = Bed::start().await.with_bucket().await;
    let kind = |kind: &str, name: &str, phase: &str, spec: Value| {
        json!({
            "apiVersion": "velero.io/v1", "kind": kind,
            "metadata": {"namespace": "velero", "name": name},
            "spec": spec,
            "status": {"phase": phase},
        })
    };
    let location = json!({"provider": "aws", "objectStorage": {"bucket": "b"}});
    let location = kind("BackupStorageLocation", "default", "Available", location);
    bed.server.load(&location).unwrap();
    for (name, phase) in backups {
        let spec = json!({"storageLocation": "default", "snapshotMoveData": true});
        bed.server.load(&kind("Backup", name, phase, spec)).unwrap();
    }
    for (name, phase) in restores {
        let spec = json!({"backupName": "moved"});
        bed.server
            .load(&kind("Restore", name, phase, spec))
            .unwrap();
    }
    bed
}

fn upload(backup: &str, claim: &str, status: Value) -> Value {
    json!({
        "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
        "metadata": {
            "namespace": "velero", "name": format!("{backup}-{claim}"),
            "labels": {"velero.io/backup-name": backup},
        },
        "spec": {
            "snapshotType": "CSI", "sourceNamespace": "shop", "sourcePVC": claim, "datamover": "bowline",
            "backupStorageLocation": "default", "operationTimeout": "10m0s",
            "csiSnapshot": {
                "volumeSnapshot": format!("velero-{claim}-x"), "storageClass": "fast",
                "driver": "csi.example.com",
            },
        },
        "status": status,
    })
}

fn download(restore: &str, claim: &str, size: i64, status: Value) -> Value {
    json!({
        "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
        "metadata": {
            "namespace": "velero", "name": format!("{restore}-{claim}"),
            "labels": {"velero.io/restore-name": restore},
        },
        "spec": {
            "targetVolume": {"namespace": "shop-2", "pvc": claim, "pv": ""}, "datamover": "bowline",
            "backupStorageLocation": "default", "operationTimeout": "10m0s", "sourceNamespace": "shop",
            "snapshotID": if claim == "media" { "5e6f7a8b" } else { "1a2b3c4d" }, "snapshotSize": size,
        },
        "status": status,
    })
}

/// One that has moved a third in half a minute.
fn a_third() -> Value {
    let since = Timestamp::now() - SignedDuration::from_secs(30);
    json!({
        "phase": "InProgress", "node": "node-1", "startTimestamp": since.strftime("%FT%TZ").to_string(),
        "progress": {"totalBytes": 300 * MIB, "bytesDone": 100 * MIB},
    })
}

fn over(phase: &str, bytes: i64, message: &str) -> Value {
    json!({
        "phase": phase, "node": "node-1", "message": message,
        "startTimestamp": "2026-11-16T10:00:00Z", "completionTimestamp": "2026-11-16T10:01:05Z",
        "progress": {"totalBytes": bytes, "bytesDone": bytes},
    })
}

/// The uploads of a backup in its middle.
fn uploads_of(backup: &str) -> [Value; 4] {
    let failed = over("Failed", 0, "data path backup failed: no room");
    [
        upload(backup, "data", a_third()),
        upload(backup, "logs", failed),
        upload(
            backup,
            "media",
            json!({"phase": "Prepared", "node": "node-2"}),
        ),
        upload("other", "data", a_third()),
    ]
}

/// Without what depends on the moment of looking.
fn steady(text: &str) -> String {
    let steady = |part: &str| match part.split_once(" left") {
        Some((time, rest)) if !time.contains('\n') => format!("TIME left{rest}"),
        _ if part.ends_with("/s") => "RATE".to_owned(),
        _ => part.to_owned(),
    };
    let parts: Vec<String> = text.split(", ").map(steady).collect();
    parts.join(", ")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn volumes(bed: &Bed, kind: &str, name: &str) -> Ran {
    let ran = bed.run(&[kind, "volumes", name]).await;
    Ran {
        out: steady(&ran.out),
        ..ran
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_in_its_middle_tells_how_far_its_movements_are() {
    let bed = bed(&[("moves", "WaitingForPluginOperations")], &[]).await;
    for upload in uploads_of("moves") {
        bed.server.load(&upload).unwrap();
    }
    let short = bed.run(&["backup", "describe", "moves"]).await.well();
    let short = steady(&short);
    let (_, section) = short.split_once("\nBackup Volumes:\n").unwrap();
    assert_eq!(section, include_str!("../golden/moves/describe.txt"));

    let details = bed
        .run(&["backup", "describe", "moves", "--details"])
        .await
        .well();
    let details = steady(&details);
    let (_, section) = details.split_once("\n  Data Uploads:\n").unwrap();
    let (section, _) = section.split_once("\nAll Volumes:").unwrap();
    assert_eq!(section, include_str!("../golden/moves/details.txt"));

    let ran = volumes(&bed, "backup", "moves").await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1));
    assert_eq!(ran.out, include_str!("../golden/moves/volumes.txt"));

    let told = bed
        .run(&["backup", "describe", "moves", "--details", "-o", "json"])
        .await
        .well();
    let uploads = &json(&told)["status"]["backupVolumes"]["dataUploads"];
    assert_eq!(
        uploads["phases"],
        json!({"Failed": 1, "In Progress": 1, "Prepared": 1})
    );
    let first = &uploads["volumes"][0];
    assert_eq!(
        [
            &first["claim"],
            &first["dataUpload"],
            &first["node"],
            &first["percentage"]
        ],
        [
            &json!("shop/data"),
            &json!("moves-data"),
            &json!("node-1"),
            &json!(33.33)
        ]
    );
    assert!(first["bytesPerSecond"].as_i64() > Some(MIB), "{first}");
    assert!(first["secondsLeft"].is_u64(), "{first}");
    assert_eq!(
        uploads["volumes"][1]["message"],
        "data path backup failed: no room"
    );

    let rows = bed.run(&["backup", "volumes", "moves", "-o", "json"]).await;
    let row = &json(&rows.out)["volumes"][0];
    let progress = &row["progress"];
    assert_eq!(
        [
            &row["mover"],
            &row["uploader"],
            &row["driver"],
            &progress["phase"],
            &progress["node"]
        ],
        [
            "bowline",
            "restic",
            "csi.example.com",
            "InProgress",
            "node-1"
        ]
    );
    assert_eq!(
        [&progress["bytesDone"], &progress["totalBytes"]],
        [100 * MIB, 300 * MIB]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn movements_are_told_of_before_the_bucket_has_a_word() {
    let backups = [("early", "InProgress"), ("moved", "Completed")];
    let bed = bed(&backups, &[("early", "InProgress")]).await;
    for upload in uploads_of("early") {
        bed.server.load(&upload).unwrap();
    }
    let waits = json!({"phase": "Accepted"});
    bed.server
        .load(&download("early", "data", 300 * MIB, waits))
        .unwrap();
    let ran = volumes(&bed, "backup", "early").await;
    assert_eq!(
        (ran.err.as_str(), ran.code),
        (
            "backup \"early\" is not over: its volume info is not written yet, and only copies that \
             were begun are known\n",
            1
        )
    );
    assert_eq!(ran.out, include_str!("../golden/moves/early.txt"));
    let text = bed.run(&["backup", "describe", "early"]).await.well();
    let summary = "\n  Data Uploads (specify --details for more information):\n    Failed:       1\n    \
                   In Progress:  1 (33.33%) [100.00 MiB of 300.00 MiB, RATE, TIME left]\n    \
                   Prepared:     1\n";
    let text = steady(&text);
    assert!(text.ends_with(summary), "{text}");

    let ran = volumes(&bed, "restore", "early").await;
    assert_eq!(
        ran.out,
        "NAME          FROM   VOLUME   OLD VOLUME   METHOD         RESULT    SIZE         TIME   DRIVER           SNAPSHOT   REASON\n\
         shop-2/data   -      -        -            DataMovement   pending   300.00 MiB   -      bowline/restic   1a2b3c4d   Accepted: 0.00% (0 B of 300.00 MiB)\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_at_its_end_says_what_velero_says_and_why_a_movement_failed() {
    let bed = bed(&[("moved", "PartiallyFailed")], &[]).await;
    let describe = ["backup", "describe", "moved"];
    let details = ["backup", "describe", "moved", "--details"];
    let before = [
        bed.run(&describe).await.well(),
        bed.run(&details).await.well(),
    ];
    for (claim, bytes) in [("data", 300 * MIB), ("media", 5 * MIB)] {
        let done = over("Completed", bytes, "");
        bed.server.load(&upload("moved", claim, done)).unwrap();
    }
    let after = [
        bed.run(&describe).await.well(),
        bed.run(&details).await.well(),
    ];
    assert_eq!(after, before);
    let (_, section) = after[1].split_once("\n  CSI Snapshots:\n").unwrap();
    assert_eq!(section, include_str!("../golden/moved/details.txt"));
    let ran = volumes(&bed, "backup", "moved").await;
    assert!(
        ran.out.contains("it is Failed, see the backup's log"),
        "{}",
        ran.out
    );

    let failed = over("Failed", 0, "data path backup failed: no room\nat all");
    bed.server.load(&upload("moved", "logs", failed)).unwrap();
    let text = bed.run(&details).await.well();
    let section = "\n  Data Uploads:\n    shop/logs:\n      Data Upload:  moved-logs\n      \
                   Data Mover:   bowline\n      Node:         node-1\n      Phase:        Failed\n      \
                   Message:      data path backup failed: no room\n";
    assert!(text.contains(section), "{text}");
    assert_eq!(text.replace(section, ""), before[1]);
    let ran = volumes(&bed, "backup", "moved").await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1));
    assert_eq!(ran.out, include_str!("../golden/moved/volumes.txt"));
    let ran = bed.run(&["backup", "volumes", "moved", "-o", "json"]).await;
    assert_eq!(
        json(&ran.out)["volumes"][1]["reason"],
        "data path backup failed: no room\nat all"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_tells_how_far_its_movements_are_and_how_they_ended() {
    let restores = [
        ("moves", "WaitingForPluginOperations"),
        ("moved", "Completed"),
    ];
    let bed = bed(&[("moved", "Completed")], &restores).await;
    for download in [
        download("moves", "data", 300 * MIB, a_third()),
        download("moves", "media", 5 * MIB, json!(null)),
        download("moved", "data", 300 * MIB, over("Completed", 300 * MIB, "")),
        download("moved", "media", 5 * MIB, over("Completed", 5 * MIB, "")),
    ] {
        bed.server.load(&download).unwrap();
    }
    let short = bed.run(&["restore", "describe", "moves"]).await.well();
    let summary = "\nData Downloads (specify --details for more information):\n  \
                   In Progress:  1 (33.33%) [100.00 MiB of 300.00 MiB, RATE, TIME left]\n  \
                   New:          1\n\nCSI Snapshot Restores:\n";
    let short = steady(&short);
    assert!(short.contains(summary), "{short}");
    let details = bed
        .run(&["restore", "describe", "moves", "--details"])
        .await
        .well();
    let details = steady(&details);
    let (_, section) = details.split_once("\nData Downloads:\n").unwrap();
    let (section, _) = section.split_once("\nExisting Resource").unwrap();
    assert_eq!(section, include_str!("../golden/moves-restore/details.txt"));
    let told = bed
        .run(&["restore", "describe", "moves", "-o", "json"])
        .await
        .well();
    assert_eq!(
        json(&told)["status"]["restoreVolumes"]["dataDownloads"],
        json!({"phases": {"In Progress": 1, "New": 1}})
    );
    let ran = volumes(&bed, "restore", "moves").await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1));
    assert_eq!(ran.out, include_str!("../golden/moves-restore/volumes.txt"));

    let text = bed
        .run(&["restore", "describe", "moved", "--details"])
        .await
        .well();
    assert!(!text.contains("Data Downloads"), "{text}");
    let ran = volumes(&bed, "restore", "moved").await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 0));
    assert_eq!(ran.out, include_str!("../golden/moved-restore/volumes.txt"));
}

/// What a command that waits says of so many volumes once it knows them. The server's part is played:
/// every new phase gives a line that could have them.
async fn heard<K>(bed: &Bed, args: &[&str], count: usize) -> String
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let known = format!(" of {count} volumes");
    let mut child = bed.command(args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let api: Api<K> = Api::namespaced(bed.client.clone(), "velero");
    let mut phases = ["WaitingForPluginOperations", "InProgress"]
        .into_iter()
        .cycle();
    let mut heard = None;
    while let Some(line) = lines.next_line().await.unwrap() {
        let phase = line.split(',').next().unwrap();
        if !["New", "InProgress", "WaitingForPluginOperations"].contains(&phase) {
            continue;
        }
        let next = match line.split_once(", ") {
            Some((phase, volumes))
                if volumes.contains(&known) && phase == "WaitingForPluginOperations" =>
            {
                heard = Some(volumes.to_owned());
                "Completed"
            }
            _ => phases.next().unwrap(),
        };
        let status = json!({ "status": {"phase": next} });
        api.patch("w", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }
    assert!(child.wait().await.unwrap().success());
    steady(&heard.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_tells_of_movements_also_when_all_else_is_done() {
    let bed = bed(&[("moved", "Completed")], &[]).await;
    for object in [
        upload("w", "data", a_third()),
        upload("w", "media", over("Completed", 5 * MIB, "")),
        upload("other", "data", a_third()),
        download("w", "data", 300 * MIB, a_third()),
        download("w", "media", 700 * MIB, json!({"phase": "Prepared"})),
        download("w", "logs", 0, over("Canceled", 0, "")),
    ] {
        bed.server.load(&object).unwrap();
    }
    let create = ["backup", "create", "w", "--snapshot-move-data", "--wait"];
    assert_eq!(
        heard::<Backup>(&bed, &create, 2).await,
        "1 of 2 volumes, 105.00 MiB of 305.00 MiB, RATE, TIME left"
    );
    let create = ["restore", "create", "w", "--from-backup", "moved", "--wait"];
    assert_eq!(
        heard::<Restore>(&bed, &create, 3).await,
        "1 of 3 volumes, 100.00 MiB of 1000.00 MiB, RATE, TIME left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flags_say_who_moves_data() {
    let bed = Bed::start().await;
    let help = bed.run(&["backup", "create", "--help"]).await.well();
    let help: Vec<&str> = help.split_whitespace().collect();
    let help = help.join(" ");
    for words in [
        "with `velero` or `bowline`, the built-in mover, whose DataUploads say `bowline`",
        "Whether to move the data of CSI snapshots into the bucket",
    ] {
        assert!(help.contains(words), "{help}");
    }
}
