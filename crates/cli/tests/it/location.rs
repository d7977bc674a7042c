//! Backup storage locations.

use std::fs;

use bowline_api::v1::{Backup, BackupRepository, BackupStorageLocation};
use kube::Api;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn set_changes_what_is_named_and_nothing_else() {
    let bed = Bed::start().await;
    fs::write(bed.folder.path().join("ca.pem"), "certificate").unwrap();
    let create = [
        "backup-location",
        "create",
        "main",
        "--provider",
        "aws",
        "--bucket",
        "b",
        "--prefix",
        "p",
        "--config",
        "region=eu",
        "--cacert",
        "ca.pem",
        "--default",
        "--access-mode",
        "ReadOnly",
    ];
    assert_eq!(
        bed.run(&create).await.well(),
        "Backup storage location \"main\" configured successfully.\n"
    );
    let set = [
        "backup-location",
        "set",
        "main",
        "--credential",
        "secret=key",
    ];
    bed.run(&set).await.well();
    let api: Api<BackupStorageLocation> = Api::namespaced(bed.client.clone(), "velero");
    let spec = api.get("main").await.unwrap().spec;
    assert_eq!(
        spec.object_storage.ca_cert.as_deref(),
        Some("Y2VydGlmaWNhdGU=")
    );
    assert_eq!(spec.default, Some(true));
    let credential = spec.credential.unwrap();
    assert_eq!(
        (credential.name.as_str(), credential.key.as_str()),
        ("secret", "key")
    );

    bed.run(&[
        "backup-location",
        "set",
        "main",
        "--cacert=",
        "--default=false",
    ])
    .await
    .well();
    let spec = api.get("main").await.unwrap().spec;
    assert_eq!((spec.object_storage.ca_cert, spec.default), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_default() {
    let bed = Bed::start().await;
    let create = |name| {
        [
            "backup-location",
            "create",
            name,
            "--provider",
            "aws",
            "--bucket",
            "b",
        ]
        .to_vec()
    };
    let mut first = create("first");
    first.push("--default");
    bed.run(&first).await.well();
    let mut second = create("second");
    second.push("--default");
    let refusal = bed.run(&second).await.refused();
    assert!(
        refusal.contains("there is already exist default"),
        "{refusal}"
    );
    assert!(refusal.contains("hint: "), "{refusal}");
    bed.run(&create("second")).await.well();
    let refusal = bed
        .run(&["backup-location", "set", "second", "--default"])
        .await
        .refused();
    assert!(
        refusal.contains("backup-location set first --default=false"),
        "{refusal}"
    );
    assert_eq!(
        bed.run(&["backup-location", "set", "first", "--default"])
            .await
            .well(),
        "Backup storage location \"first\" is already the default backup storage location.\n"
    );
    assert_eq!(
        bed.run(&["get", "backup-locations", "--default"])
            .await
            .well(),
        "NAME    PROVIDER   BUCKET/PREFIX   PHASE     LAST VALIDATED   ACCESS MODE   DEFAULT\n\
         first   aws        b               Unknown   Unknown          ReadWrite     true\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_by_name() {
    let bed = Bed::start().await;
    for (args, wanted) in [
        (&["b"][..], "--provider is required"),
        (&["b", "--provider", "aws"], "--bucket is required"),
        (
            &[
                "b",
                "--provider",
                "aws",
                "--bucket",
                "b",
                "--access-mode",
                "x",
            ],
            "invalid value: \"x\"",
        ),
        (
            &[
                "b",
                "--provider",
                "aws",
                "--bucket",
                "b",
                "--credential",
                "a=b,c=d",
            ],
            "--credential can only contain 1 key/value pair",
        ),
        (
            &[
                "b",
                "--provider",
                "aws",
                "--bucket",
                "b",
                "--cacert",
                "/no/such",
            ],
            "open /no/such",
        ),
        (
            &[
                "b",
                "--provider",
                "aws",
                "--bucket",
                "b",
                "--backup-sync-period",
                "-1s",
            ],
            "must not be negative",
        ),
    ] {
        let mut words = vec!["backup-location", "create"];
        words.extend_from_slice(args);
        let refusal = bed.run(&words).await.refused();
        assert!(refusal.contains(wanted), "{refusal}");
    }
    assert!(bed.names::<BackupStorageLocation>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_location_forgets_its_backups_and_repositories() {
    let bed = Bed::start()
        .await
        .with("terminal/backups.yaml")
        .with("terminal/backuprepositories.yaml")
        .with("terminal/backupstoragelocations.yaml");
    let out = bed
        .run(&["backup-location", "delete", "default", "--confirm"])
        .await
        .well();
    assert!(
        out.starts_with("Backup storage location \"default\" deleted successfully.\n"),
        "{out}"
    );
    assert!(
        out.contains("Backup associated with deleted BSL(s) \"basic\" deleted successfully.\n"),
        "{out}"
    );
    let repository = "Backup repository associated with deleted BSL(s) \"ledger-default-kopia\"";
    assert!(out.contains(repository), "{out}");
    assert!(!bed.names::<Backup>().await.contains(&"basic".to_owned()));
    assert!(bed.names::<Backup>().await.contains(&"invalid".to_owned()));
    let repositories = bed.names::<BackupRepository>().await;
    assert!(!repositories.contains(&"ledger-default-kopia".to_owned()));
}
