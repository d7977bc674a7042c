//! Restores, from their creation to their deletion.

use bowline_api::v1::{Backup, BackupSpec, Restore};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::bed::Bed;

async fn bed() -> Bed {
    Bed::start()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backupstoragelocations.yaml")
}

fn restores(bed: &Bed) -> Api<Restore> {
    Api::namespaced(bed.client.clone(), "velero")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_created_as_the_flags_say_in_both_word_orders() {
    let bed = bed().await;
    let out = bed
        .run(&[
            "restore",
            "create",
            "mapped",
            "--from-backup",
            "basic",
            "--namespace-mappings",
            "shop:shop-copy,a:b",
            "--namespace-mappings",
            "a:c",
            "--labels",
            "team=red",
        ])
        .await
        .well();
    assert_eq!(
        out,
        "Restore request \"mapped\" submitted successfully.\n\
         Run `bowline restore describe mapped` or `bowline restore logs mapped` for more details.\n"
    );
    let mapped = restores(&bed).get("mapped").await.unwrap();
    assert_eq!(mapped.labels()["team"], "red");
    assert_eq!(
        json!(mapped.spec),
        json!({
            "backupName": "basic",
            "includedNamespaces": ["*"],
            "namespaceMapping": {"shop": "shop-copy", "a": "c"},
            "hooks": {},
            "itemOperationTimeout": "0s",
            "uploaderConfig": {},
        })
    );

    bed.run(&[
        "create",
        "restore",
        "--from-backup",
        "basic",
        "--include-namespaces",
        "shop",
        "--exclude-namespaces",
        "web",
        "--include-resources",
        "pods,secrets",
        "--exclude-resources",
        "events",
        "--include-cluster-resources=false",
        "--or-selector",
        "a=b or c=d",
        "--restore-volumes",
        "--preserve-nodeports=false",
        "--existing-resource-policy",
        "update",
        "--status-include-resources",
        "deployments.apps",
        "--status-exclude-resources",
        "pods",
        "--resource-modifier-configmap",
        "changes",
        "--resource-policies-configmap",
        "filters",
        "--item-operation-timeout",
        "2h",
        "--write-sparse-files",
        "--parallel-files-download",
        "4",
        "--annotations",
        "why=because",
    ])
    .await
    .well();
    let all = restores(&bed).list(&Default::default()).await.unwrap();
    let full = &all.items[0];
    assert!(full.name_any().starts_with("basic-20"), "{full:?}");
    assert_eq!(full.annotations()["why"], "because");
    assert_eq!(
        json!(full.spec),
        json!({
            "backupName": "basic",
            "includedNamespaces": ["shop"],
            "excludedNamespaces": ["web"],
            "includedResources": ["pods", "secrets"],
            "excludedResources": ["events"],
            "includeClusterResources": false,
            "orLabelSelectors": [{"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}],
            "restorePVs": true,
            "preserveNodePorts": false,
            "existingResourcePolicy": "update",
            "restoreStatus": {
                "includedResources": ["deployments.apps"],
                "excludedResources": ["pods"],
            },
            "resourceModifier": {"apiGroup": "", "kind": "configmap", "name": "changes"},
            "resourcePolicy": {"kind": "configmap", "name": "filters"},
            "hooks": {},
            "itemOperationTimeout": "2h0m0s",
            "uploaderConfig": {"writeSparseFiles": true, "parallelFilesDownload": 4},
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_by_name_and_nothing_is_created() {
    let bed = bed().await;
    const ONE_SOURCE: &str = "either a backup or schedule must be specified, but not both";
    for (args, wanted) in [
        (&[][..], ONE_SOURCE),
        (&["x", "--from-backup", ""], ONE_SOURCE),
        (
            &["x", "--from-backup", "basic", "--from-schedule", "s"],
            ONE_SOURCE,
        ),
        (
            &["x", "--from-backup", "nosuch"],
            "backups.velero.io \"nosuch\" not found\nhint: `bowline backup get`",
        ),
        (
            &["x", "--from-schedule", "no such"],
            "No backups found for the schedule no such",
        ),
        (
            &["x", "--from-schedule", "nosuch", "--allow-partially-failed"],
            "No backups found for the schedule nosuch",
        ),
        (
            &["UPPER", "--from-backup", "basic"],
            "invalid restore name \"UPPER\"",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "-l",
                "a=b",
                "--or-selector",
                "c=d",
            ],
            "either a 'selector' or an 'or-selector' can be specified, but not both",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--existing-resource-policy",
                "replace",
            ],
            "existing-resource-policy has invalid value, it accepts only none, update as value",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--parallel-files-download",
                "-1",
            ],
            "parallel-files-download cannot be negative",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--namespace-mappings",
                "shop",
            ],
            "error parsing \"shop\"",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--namespace-mappings",
                "shop:Shop",
            ],
            "invalid namespace name \"Shop\"",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--include-resources",
                "*,pods",
            ],
            "Invalid included/excluded resource lists",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--include-namespaces",
                "a,b",
                "--exclude-namespaces",
                "b",
            ],
            "excludes list cannot contain an item in the includes list: b",
        ),
        (
            &[
                "x",
                "--from-backup",
                "basic",
                "--item-operation-timeout",
                "-5h",
            ],
            "must not be negative",
        ),
        (
            &["x", "--from-backup", "basic", "--labels", "a b=c"],
            "invalid label key \"a b\"",
        ),
        (
            &["x", "--from-backup", "basic", "--restore-volumes=maybe"],
            "neither true nor false",
        ),
        (
            &["x", "y", "--from-backup", "basic"],
            "unexpected argument 'y'",
        ),
    ] {
        let mut words = vec!["restore", "create"];
        words.extend_from_slice(args);
        let refusal = bed.run(&words).await.refused();
        assert!(refusal.starts_with("bowline: "), "{refusal}");
        assert!(refusal.contains(wanted), "{args:?}: {refusal}");
    }
    assert!(bed.names::<Restore>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flag_without_effect_is_mentioned() {
    let bed = bed().await;
    let ran = bed
        .run(&[
            "restore",
            "create",
            "x",
            "--from-backup",
            "basic",
            "--status-exclude-resources",
            "pods",
        ])
        .await;
    assert_eq!(ran.code, 0);
    assert_eq!(
        ran.err,
        "WARNING: --status-exclude-resources has no effect without --status-include-resources\n"
    );
    let spec = restores(&bed).get("x").await.unwrap().spec;
    assert_eq!(spec.restore_status, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_left_to_the_server_unless_half_a_backup_will_do() {
    let bed = Bed::start().await;
    for (name, phase, time) in [
        ("n-1", "Completed", "2026-11-13T00:00:00Z"),
        ("n-2", "PartiallyFailed", "2026-11-14T00:00:00Z"),
        ("n-3", "Failed", "2026-11-15T00:00:00Z"),
    ] {
        let mut backup = json!(Backup::new("velero", name, BackupSpec::default()));
        backup["apiVersion"] = json!("velero.io/v1");
        backup["kind"] = json!("Backup");
        backup["metadata"]["labels"] = json!({"velero.io/schedule-name": "n"});
        backup["status"] = json!({"phase": phase, "startTimestamp": time});
        bed.server.load(&backup).unwrap();
    }
    for (flag, backup, schedule) in [
        (&[][..], None, Some("n")),
        (&["--allow-partially-failed"], Some("n-2"), None),
        (&["--allow-partially-failed=false"], None, Some("n")),
    ] {
        let mut words = vec!["restore", "create", "--from-schedule", "n", "-o", "json"];
        words.extend_from_slice(flag);
        let out = bed.run(&words).await.well();
        let restore: Restore = serde_json::from_str(&out).unwrap();
        assert!(restore.name_any().starts_with("n-20"), "{out}");
        assert_eq!(restore.spec.backup_name.as_deref(), backup, "{flag:?}");
        assert_eq!(restore.spec.schedule_name.as_deref(), schedule, "{flag:?}");
    }
    assert!(bed.names::<Restore>().await.is_empty());
}

/// Plays the server's part: one status after another, each once the one before was heard of.
async fn waits(last_phase: &str) -> (String, i32) {
    let bed = bed().await;
    let mut child = bed
        .command(&["restore", "create", "w", "--from-backup", "basic", "--wait"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut out = String::new();
    let mut steps = [
        json!({
            "phase": "InProgress",
            "progress": {"totalItems": 9, "itemsRestored": 4},
            "warnings": 1,
        }),
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
            restores(&bed)
                .patch("w", &PatchParams::default(), &Patch::Merge(&status))
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
                "Restore request \"w\" submitted successfully.\n\
                 Waiting for restore to complete. You may safely press ctrl-c to stop waiting - \
                 your restore will continue in the background.\n\
                 New\n\
                 InProgress: 4 of 9 items, 1 warning\n\
                 \n\
                 Restore completed with status: {phase}. You may check for more information using \
                 the commands `bowline restore describe w` and `bowline restore logs w`.\n"
            )
        );
        assert_eq!(code, wanted, "{phase}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_is_refused_with_a_hint() {
    let bed = bed().await;
    let create = ["restore", "create", "x", "--from-backup", "basic"];
    bed.run(&create).await.well();
    let refusal = bed.run(&create).await.refused();
    assert!(
        refusal.starts_with("bowline: restores.velero.io \"x\" already exists\nhint: "),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_are_listed_in_every_format_and_say_that_they_go() {
    let bed = bed().await.with("terminal/restores.yaml");
    let names = ["get", "restore", "mapped", "warned", "-o", "name"];
    assert_eq!(
        bed.run(&names).await.well(),
        "restores.velero.io/mapped\nrestores.velero.io/warned\n"
    );
    // A finalizer keeps it.
    restores(&bed)
        .delete("volumes", &Default::default())
        .await
        .unwrap();
    let table = bed.run(&["restore", "get", "volumes"]).await.well();
    assert_eq!(
        table,
        "NAME      BACKUP   STATUS                 STARTED                         COMPLETED                       ERRORS   WARNINGS   CREATED                         SELECTOR\n\
         volumes   hooked   Completed (Deleting)   2026-11-15 03:21:14 +0000 UTC   2026-11-15 03:21:20 +0000 UTC   0        1          2026-11-15 03:21:14 +0000 UTC   <none>\n"
    );
    let json = bed
        .run(&["get", "restores", "volumes", "-o", "json"])
        .await
        .well();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"]["phase"], "Completed (Deleting)");
    let yaml = bed
        .run(&["restore", "get", "volumes", "-o", "yaml"])
        .await
        .well();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
    let list = bed.run(&["restore", "get", "-o", "json"]).await.well();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["kind"], "RestoreList");
    assert_eq!(
        bed.run(&["restore", "get", "-l", "team=red"]).await.well(),
        ""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_asks_first_and_a_wrong_name_spares_the_others() {
    let bed = bed().await;
    for name in ["a", "b", "c"] {
        bed.run(&["restore", "create", name, "--from-backup", "basic"])
            .await
            .well();
    }
    const QUESTION: &str = "Are you sure you want to continue (Y/N)? ";
    let no = bed
        .run_with_input(&["restore", "delete", "a"], "n\n")
        .await
        .well();
    assert_eq!(no, QUESTION);
    let refusal = bed
        .run(&["restore", "delete", "a", "nosuch", "--confirm"])
        .await
        .refused();
    assert_eq!(
        refusal,
        "bowline: restores.velero.io \"nosuch\" not found\n"
    );
    assert_eq!(bed.names::<Restore>().await, ["a", "b", "c"]);

    let done = |name: &str| {
        format!(
            "Request to delete restore \"{name}\" submitted successfully.\n\
             The restore will be fully deleted after all associated data (restore files in object \
             storage) are removed.\n"
        )
    };
    let yes = bed
        .run_with_input(&["delete", "restore", "a"], "y\n")
        .await
        .well();
    assert_eq!(yes, format!("{QUESTION}{}", done("a")));
    let rest = bed
        .run(&["delete", "restores", "--all", "--confirm"])
        .await
        .well();
    assert_eq!(rest, done("b") + &done("c"));
    assert!(bed.names::<Restore>().await.is_empty());
    let none = bed
        .run(&["restore", "delete", "-l", "a=b", "--confirm"])
        .await
        .well();
    assert_eq!(none, "No restores found\n");
    let refusal = bed.run(&["restore", "delete", "--confirm"]).await.refused();
    assert!(
        refusal.contains("exactly one of: specific restore name(s)"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_has_not_begun_is_described_without_waiting() {
    let bed = bed().await;
    bed.run(&["restore", "create", "x", "--from-backup", "basic"])
        .await
        .well();
    let text = bed
        .run(&["describe", "restore", "x", "--details"])
        .await
        .well();
    assert!(text.contains("\nPhase:  New\n"), "{text}");
    assert!(
        text.contains("\nResource List:  <restore resource list not found>\n"),
        "{text}"
    );
    assert!(!text.contains("<error"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_described_for_programs() {
    let bed = bed()
        .await
        .with_bucket()
        .await
        .with_made_up("rich")
        .with_made_up("rich-restore");
    let json = bed
        .run(&["restore", "describe", "rich", "--details", "-o", "json"])
        .await
        .well();
    assert!(json.starts_with("{\n    \""), "{json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let recorded = include_str!("../golden/rich-restore/description.json");
    assert_eq!(json, serde_json::from_str::<Value>(recorded).unwrap());
    let yaml = bed
        .run(&["restore", "describe", "rich", "--details", "-o", "yaml"])
        .await
        .well();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_decompressed_or_refused_with_the_reason() {
    let bed = bed()
        .await
        .with("terminal/restores.yaml")
        .with_bucket()
        .await;
    let log = bed.run(&["restore", "logs", "mapped"]).await.well();
    assert!(log.starts_with("time=\"2026-11-15T03:21:07Z\""), "{log}");
    for (name, wanted) in [
        (
            "invalid",
            "bowline: Logs for restore \"invalid\" are not available until it's finished \
             processing. Please wait until the restore has a phase of Completed or Failed and try \
             again.\n",
        ),
        ("nosuch", "bowline: Restore \"nosuch\" does not exist.\n"),
        (
            "t-failed",
            "bowline: file not found\n\
             hint: `bowline restore describe t-failed` says how the restore ended\n",
        ),
    ] {
        assert_eq!(bed.run(&["restore", "logs", name]).await.refused(), wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_plugins_bring_back_are_described() {
    let bed = bed()
        .await
        .with("terminal/restores.yaml")
        .with_bucket()
        .await;
    let restore = |name: &str, of: &str, status: Value| {
        json!({
            "apiVersion": "velero.io/v1",
            "kind": "VolumePluginRestore",
            "metadata": {
                "name": name, "namespace": "velero", "labels": {"velero.io/restore-name": of},
            },
            "spec": {"snapshotID": format!("snap-{name}"), "backup": "basic", "plugin": "acme.io/disk"},
            "status": status,
        })
    };
    let moving = json!({"phase": "InProgress", "progress": {"totalBytes": 100, "bytesDone": 50}});
    let done = json!({"phase": "Completed", "volumeID": "vol-1"});
    for object in [
        restore("x", "mapped", moving.clone()),
        restore("y", "mapped", done),
        restore("z", "other", moving),
    ] {
        bed.server.load(&object).unwrap();
    }
    let summary = "\nVolume Plugin Restores (specify --details for more information):\n  \
                   Completed:    1\n  In Progress:  1 (50.00%) [50 B of 100 B]\n\nCSI";
    let short = bed.run(&["restore", "describe", "mapped"]).await.well();
    assert!(short.contains(summary), "{short}");
    let details = "\nVolume Plugin Restores:\n  snap-x:\n    Plugin:       acme.io/disk\n    \
                   Snapshot ID:  snap-x\n    Phase:        InProgress\n    \
                   Progress:     50.00% (50 B of 100 B)\n  vol-1:\n    Plugin:       acme.io/disk\n";
    let long = bed
        .run(&["restore", "describe", "mapped", "--details"])
        .await
        .well();
    assert!(long.contains(details), "{long}");
    let json = bed
        .run(&["restore", "describe", "mapped", "--details", "-o", "json"])
        .await
        .well();
    let json: Value = serde_json::from_str(&json).unwrap();
    let volumes = &json["status"]["restoreVolumes"]["volumePluginRestores"]["volumes"];
    assert_eq!(volumes[1]["snapshotID"], "snap-y");
    assert_eq!(volumes.as_array().unwrap().len(), 2);
}
