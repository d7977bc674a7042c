//! Repositories of volume data.

use serde_json::{Value, json};

use crate::bed::Bed;

fn repository(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "velero.io/v1",
        "kind": "BackupRepository",
        "metadata": {"name": name, "namespace": "velero", "labels": {"team": "red"}},
        "spec": {
            "volumeNamespace": "shop",
            "backupStorageLocation": "default",
            "repositoryType": "restic",
            "resticIdentifier": "s3:http://s3/b/restic/shop",
            "maintenanceFrequency": "168h0m0s",
        },
        "status": status,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_shown_as_velero_shows_them() {
    let bed = Bed::start().await;
    assert_eq!(bed.run(&["repo", "get"]).await.well(), "");
    let bed = bed.with("terminal/backuprepositories.yaml");
    for object in [
        repository(
            "shop-default-restic",
            &json!({"phase": "NotReady", "message": "no"}),
        ),
        repository("fresh", &json!({})),
    ] {
        bed.server.load(&object).unwrap();
    }
    let table = bed.run(&["repo", "get"]).await.well();
    let rows: Vec<&str> = table.lines().collect();
    let (head, of_velero) = (rows[0], rows.iter().find(|row| row.starts_with("ledger")));
    assert_eq!(head, "NAME                   STATUS     LAST MAINTENANCE");
    assert_eq!(
        of_velero.copied(),
        Some("ledger-default-kopia   Ready      2026-11-15 03:19:36 +0000 UTC")
    );
    assert!(
        rows.contains(&"shop-default-restic    NotReady   <never>"),
        "{table}"
    );
    assert!(
        rows.contains(&"fresh                  New        <never>"),
        "{table}"
    );

    let json = bed
        .run(&["repo", "get", "fresh", "-o", "json"])
        .await
        .well();
    let object: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["kind"], "BackupRepository");
    assert_eq!(
        object["spec"]["resticIdentifier"],
        "s3:http://s3/b/restic/shop"
    );
    let names = bed
        .run(&["repo", "get", "-l", "team=red", "-o", "name"])
        .await;
    let mut names: Vec<String> = names.well().lines().map(str::to_owned).collect();
    names.sort();
    let all = ["fresh", "shop-default-restic"].map(|n| format!("backuprepositories.velero.io/{n}"));
    assert_eq!(names, all);
    let err = bed.run(&["repo", "get", "nosuch"]).await.refused();
    assert!(
        err.contains("backuprepositories.velero.io \"nosuch\" not found"),
        "{err}"
    );
}
