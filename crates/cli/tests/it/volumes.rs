//! `backup volumes`, `restore volumes`, and the section of descriptions that lists every volume.

use serde_json::{Value, json};

use crate::bed::{Bed, Ran};

/// Backups and restores that Velero made, two that are made up to show everything, and one of ours.
async fn bed() -> Bed {
    let bed = Bed::start()
        .await
        .with_bucket()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml")
        .with("terminal/restores.yaml")
        .with_made_up("rich")
        .with_made_up("rich-restore");
    for (name, phase) in [("told", "PartiallyFailed"), ("old", "Completed")] {
        let ended = json!("2026-11-16T10:02:00Z");
        bed.server
            .load(&json!({
                "apiVersion": "velero.io/v1", "kind": "Restore",
                "metadata": {"namespace": "velero", "name": name},
                "spec": {"backupName": "basic"},
                "status": {"phase": phase, "completionTimestamp": ended},
            }))
            .unwrap();
    }
    bed
}

/// A copy into a volume of a pod, as the cluster knows it.
fn copy(restore: &str, volume: &str, status: Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1", "kind": "PodVolumeRestore",
        "metadata": {
            "namespace": "velero", "name": format!("{restore}-{volume}"),
            "labels": {"velero.io/restore-name": restore},
        },
        "spec": {
            "pod": {"namespace": "shop-2", "name": "web-0"}, "volume": volume, "snapshotID": "s",
            "backupStorageLocation": "default", "repoIdentifier": "", "sourceNamespace": "shop",
            "uploaderType": "restic",
        },
        "status": status,
    })
}

/// The names of the rows of a table.
fn names(ran: &Ran) -> Vec<&str> {
    let rows = ran.out.lines().skip(1);
    rows.filter_map(|row| row.split_whitespace().next())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_s_volumes_are_one_table_and_the_code_says_whether_all_are_safe() {
    let bed = bed().await;
    let ran = bed.run(&["backup", "volumes", "rich"]).await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1), "{}", ran.out);
    let expected = "\
NAME         VOLUME       METHOD           RESULT      SIZE                   TIME   DRIVER            SNAPSHOT    REASON
shop/csi-a   pv-csi-a     CSISnapshot      succeeded   1.00 GiB               -      ebs.csi.aws.com   csi-1
shop/csi-b   pv-csi-b     DataMovement     succeeded   4.00 KiB (512 B new)   -      velero/kopia      k123
shop/csi-c   pv-csi-c     DataMovement     pending     -                      -      other/kopia       -
shop/data    pv-native    NativeSnapshot   succeeded   -                      -      gp3               snap-0123
shop/logs    pv-native2   NativeSnapshot   failed      -                      -      gp2               -           it is Failed, see the backup's log
shop/skip    pv-skip      None             no data     -                      -      -                 -           policy
";
    assert_eq!(ran.out, expected);

    let ran = bed.run(&["backup", "volumes", "hooked"]).await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 0), "{}", ran.out);
    assert_eq!(names(&ran), ["ledger/book:pages"]);
    assert!(
        ran.out
            .contains("PodVolume   succeeded   2.93 KiB (2.93 KiB new)   2s     kopia"),
        "{}",
        ran.out
    );

    let ran = bed.run(&["backup", "volumes", "basic"]).await;
    assert_eq!(ran.code, 1);
    let why = "podvolume: opted out due to annotation in pod web-8b98795bf-vv5l5;volumeSnapshot: no \
               applicable volumesnapshotter found\n";
    assert!(ran.out.ends_with(why), "{}", ran.out);

    for (name, why) in [
        ("nosuch", "bowline: Backup \"nosuch\" does not exist.\n"),
        (
            "dup",
            "bowline: backup \"dup\" is Failed: it has no volumes\n",
        ),
    ] {
        assert_eq!(bed.run(&["backup", "volumes", name]).await.refused(), why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_can_be_sorted() {
    let bed = bed().await;
    for (by, expected) in [
        ("name", ["csi-a", "csi-b", "csi-c", "data", "logs", "skip"]),
        (
            "volume",
            ["csi-a", "csi-b", "csi-c", "data", "logs", "skip"],
        ),
        (
            "method",
            ["data", "logs", "csi-a", "csi-b", "csi-c", "skip"],
        ),
        (
            "result",
            ["logs", "skip", "csi-c", "csi-a", "csi-b", "data"],
        ),
        ("size", ["csi-a", "csi-b", "csi-c", "data", "logs", "skip"]),
    ] {
        let ran = bed
            .run(&["backup", "volumes", "rich", "--sort-by", by])
            .await;
        let wanted = expected.map(|name| format!("shop/{name}"));
        assert_eq!(names(&ran), wanted, "{by}");
    }
    let ran = bed
        .run(&["restore", "volumes", "told", "--sort-by", "time"])
        .await;
    assert_eq!(
        names(&ran)[..3],
        ["shop-2/files", "shop-2/native", "shop-2/web:cache"]
    );
    let wrong = bed
        .run(&["backup", "volumes", "rich", "--sort-by", "mood"])
        .await;
    assert!(wrong.refused().contains("mood"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_s_volumes_are_told_with_their_old_names() {
    let bed = bed().await;
    let ran = bed.run(&["restore", "volumes", "told"]).await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1), "{}", ran.out);
    let expected = include_str!("../golden/told-restore/volumes.txt");
    assert_eq!(ran.out, expected);

    // Who has not said yet how it ended is asked in the cluster.
    let done = json!({"phase": "Completed"});
    for volume in ["data", "cache"] {
        bed.server
            .load(&copy("rich", volume, done.clone()))
            .unwrap();
    }
    bed.server
        .load(&json!({
            "apiVersion": "velero.io/v2alpha1", "kind": "DataDownload",
            "metadata": {"namespace": "velero", "name": "d", "labels": {"velero.io/restore-name": "rich"}},
            "spec": {"targetVolume": {"namespace": "shop-2", "pvc": "moved", "pv": ""}},
            "status": {"phase": "Failed", "message": "no room"},
        }))
        .unwrap();
    let ran = bed.run(&["restore", "volumes", "rich", "-o", "json"]).await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1), "{}", ran.out);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    let results: Vec<_> = told["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| {
            [&v["name"], &v["result"], &v["good"], &v["reason"]]
                .map(Value::to_string)
                .join(" ")
        })
        .collect();
    assert_eq!(
        results,
        [
            r#""shop-2/csi" "succeeded" true null"#,
            r#""shop-2/files" "succeeded" true null"#,
            r#""shop-2/moved" "failed" false "no room""#,
            r#""shop-2/native" "succeeded" true null"#,
        ]
    );
    assert_eq!(told["withoutGoodCopy"], 1);
    assert_eq!(told["complete"], true);
    // All that the file says is there too.
    assert_eq!(
        told["volumes"][0]["info"]["csiSnapshotInfo"]["vscName"],
        "snapcontent-a"
    );

    let ran = bed.run(&["restore", "volumes", "mapped"]).await;
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str(), ran.code),
        ("", "restore \"mapped\" has no volumes\n", 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_without_the_file_says_so_and_tells_what_is_known() {
    let bed = bed().await;
    let caveat = "restore \"old\" has no volume info: an old version made it, or its log says why; only \
                  copies that are still in the cluster are known\n";
    let ran = bed.run(&["restore", "volumes", "old"]).await;
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str(), ran.code),
        ("", caveat, 0)
    );

    bed.server
        .load(&copy("old", "data", json!({"phase": "Completed"})))
        .unwrap();
    let ran = bed.run(&["restore", "volumes", "old"]).await;
    assert_eq!((ran.err.as_str(), ran.code), (caveat, 0));
    assert_eq!(names(&ran), ["shop-2/web-0:data"]);
    let failed = json!({"phase": "Failed", "message": "no key"});
    bed.server.load(&copy("old", "logs", failed)).unwrap();
    let ran = bed.run(&["restore", "volumes", "old", "-o", "json"]).await;
    assert_eq!((ran.err.as_str(), ran.code), ("", 1));
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["complete"], false);
    assert_eq!(told["volumes"][1]["reason"], "no key");

    // A description copes too.
    let text = bed
        .run(&["restore", "describe", "old", "--details"])
        .await
        .well();
    assert!(!text.contains("All Volumes"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptions_with_details_list_every_volume_by_method() {
    let bed = bed().await;
    let text = bed
        .run(&["restore", "describe", "told", "--details"])
        .await
        .well();
    let (_, all) = text.split_once("\nAll Volumes:\n").unwrap();
    assert_eq!(all, include_str!("../golden/told-restore/all-volumes.txt"));
    let short = bed.run(&["restore", "describe", "told"]).await.well();
    assert!(!short.contains("All Volumes"), "{short}");
    let json = bed
        .run(&["restore", "describe", "told", "--details", "-o", "json"])
        .await
        .well();
    let json: Value = serde_json::from_str(&json).unwrap();
    let all = json["status"]["restoreVolumes"]["allVolumes"]
        .as_array()
        .unwrap();
    assert_eq!(all.len(), 7);
    assert_eq!(all[6]["info"]["kept"], true);

    let text = bed
        .run(&["backup", "describe", "basic", "--details"])
        .await
        .well();
    let expected = "
All Volumes:
  Not Copied:
    shop/shop-data:
      Persistent Volume:  shop-pv
      Result:             no data
      Reason:             podvolume: opted out due to annotation in pod web-8b98795bf-vv5l5;volumeSnapshot: no applicable volumesnapshotter found
";
    assert!(text.ends_with(expected), "{text}");
}
