//! Volume snapshot locations.

use bowline_api::v1::VolumeSnapshotLocation;
use kube::Api;

use crate::bed::Bed;

const CREATE: [&str; 5] = ["snapshot-location", "create", "main", "--provider", "aws"];

#[tokio::test(flavor = "multi_thread")]
async fn set_changes_what_is_named_and_nothing_else() {
    let bed = Bed::start().await;
    let more = ["--config", "region=eu", "--snapshot-type", "local"];
    assert_eq!(
        bed.run(&[&CREATE[..], &more].concat()).await.well(),
        "Snapshot volume location \"main\" configured successfully.\n"
    );
    let api: Api<VolumeSnapshotLocation> = Api::namespaced(bed.client.clone(), "velero");
    let kind = async || {
        let annotations = api.get("main").await.unwrap().metadata.annotations;
        annotations
            .unwrap_or_default()
            .remove("velero.io/snapshot-type")
    };
    assert_eq!(kind().await.as_deref(), Some("local"));

    let set = |flag| ["snapshot-location", "set", "main", flag].to_vec();
    assert_eq!(
        bed.run(&set("--credential=secret=key")).await.well(),
        "Volume snapshot location \"main\" configured successfully.\n"
    );
    let spec = api.get("main").await.unwrap().spec;
    let credential = spec.credential.unwrap();
    assert_eq!(
        (credential.name.as_str(), credential.key.as_str()),
        ("secret", "key")
    );
    assert_eq!(spec.config.unwrap()["region"], "eu");
    assert_eq!(kind().await.as_deref(), Some("local"));

    bed.run(&set("--snapshot-type=cloud")).await.well();
    assert_eq!(kind().await.as_deref(), Some("cloud"));
    let yaml = ["get", "snapshot-location", "main", "-o", "yaml"];
    let yaml = bed.run(&yaml).await.well();
    assert!(yaml.contains("velero.io/snapshot-type: cloud\n"), "{yaml}");
    bed.run(&set("--snapshot-type=")).await.well();
    assert_eq!(kind().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_word_orders_and_both_numbers() {
    let bed = Bed::start().await;
    let create = ["create", "snapshot-location", "a", "--provider", "p"];
    bed.run(&create).await.well();
    let table = "NAME   PROVIDER\na      p\n";
    for words in [
        &["snapshot-location", "get"][..],
        &["get", "snapshot-locations"],
        &["get", "snapshot-location", "a"],
    ] {
        assert_eq!(bed.run(words).await.well(), table);
    }
    for (words, told) in [
        (
            &["delete", "snapshot-locations", "a", "--confirm"][..],
            "Volume snapshot location \"a\" deleted successfully.\n",
        ),
        (
            &["snapshot-location", "delete", "a", "--confirm"],
            "No snapshot-locations found\n",
        ),
    ] {
        assert_eq!(bed.run(words).await.well(), told);
    }
    assert!(bed.names::<VolumeSnapshotLocation>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_without_a_yes() {
    let bed = Bed::start().await;
    bed.run(&CREATE).await.well();
    let delete = ["snapshot-location", "delete", "main"];
    bed.run_with_input(&delete, "n\n").await.well();
    assert_eq!(bed.names::<VolumeSnapshotLocation>().await, ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_by_name() {
    let bed = Bed::start().await;
    for (args, wanted) in [
        (&["create", "a"][..], "--provider is required"),
        (
            &["create", "a", "--provider", "p", "--snapshot-type", "x"],
            "invalid value: \"x\"",
        ),
        (
            &["create", "a", "--provider", "p", "--credential", "a=b,c=d"],
            "--credential can only contain 1 key/value pair",
        ),
        (&["create", "UPPER", "--provider", "p"], "UPPER"),
        (
            &["set", "a", "--credential", "a=b"],
            "volumesnapshotlocations.velero.io \"a\" not found",
        ),
        (
            &["get", "a"],
            "volumesnapshotlocations.velero.io \"a\" not found",
        ),
    ] {
        let words = [&["snapshot-location"], args].concat();
        let refusal = bed.run(&words).await.refused();
        assert!(refusal.contains(wanted), "{refusal}");
    }
    assert!(bed.names::<VolumeSnapshotLocation>().await.is_empty());
}
