//! Which volumes of a pod are filled, from what, and what asks for it.

use serde_json::json;

use super::*;

fn backup(pod: &str, volume: &str, rest: Value) -> PodVolumeBackup {
    let mut object = json!({
        "metadata": {"name": format!("b-{volume}")},
        "spec": {"pod": {"namespace": "shop", "name": pod}, "volume": volume},
    });
    bowline_apiserver::merge_patch(&mut object, &rest);
    serde_json::from_value(object).unwrap()
}

fn taken(id: &str) -> Value {
    json!({"status": {"snapshotID": id, "phase": "Completed", "progress": {"totalBytes": 5}}})
}

fn pod(annotations: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "copy", "annotations": annotations},
        "spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "cache", "emptyDir": {}},
            {"name": "token", "projected": {}},
            {"name": "facts", "downwardAPI": {}},
        ]},
    })
}

#[test]
fn a_volume_has_the_snapshot_of_its_pod_and_namespace() {
    let legacy = json!({"snapshot.velero.io/cache": "abc", "snapshot.velero.io/gone": "def"});
    let kopia = json!({"spec": {"uploaderType": "kopia"}, "status": {"snapshotID": "k"}});
    for (what, backups, namespace, annotations, expected) in [
        ("none", vec![], "shop", json!({}), vec![]),
        (
            "two volumes, by name",
            vec![
                backup("web", "data", taken("1")),
                backup("web", "cache", taken("2")),
            ],
            "shop",
            json!({}),
            vec![
                ("cache", "2", None, "restic"),
                ("data", "1", Some("c"), "restic"),
            ],
        ),
        (
            "the last of two",
            vec![
                backup("web", "data", taken("1")),
                backup("web", "data", taken("2")),
            ],
            "shop",
            json!({}),
            vec![("data", "2", Some("c"), "restic")],
        ),
        (
            "another namespace",
            vec![backup("web", "data", taken("1"))],
            "copy",
            json!({}),
            vec![],
        ),
        (
            "another pod",
            vec![backup("db", "data", taken("1"))],
            "shop",
            json!({}),
            vec![],
        ),
        (
            "what Kubernetes fills, and what the pod does not have",
            vec![
                backup("web", "token", taken("1")),
                backup("web", "facts", taken("2")),
                backup("web", "gone", taken("3")),
            ],
            "shop",
            json!({}),
            vec![],
        ),
        (
            "nothing in it",
            vec![backup("web", "data", taken(""))],
            "shop",
            json!({}),
            vec![],
        ),
        (
            "annotations",
            vec![backup("web", "token", taken("1"))],
            "shop",
            legacy.clone(),
            vec![("cache", "abc", None, "restic")],
        ),
        (
            "annotations do not matter when there are objects",
            vec![backup("web", "data", kopia)],
            "shop",
            legacy,
            vec![("data", "k", Some("c"), "kopia")],
        ),
    ] {
        let found = Copies::new(&backups).of(&pod(annotations), namespace);
        let found: Vec<_> = found
            .iter()
            .map(|v| {
                (
                    v.volume.as_str(),
                    v.snapshot.as_str(),
                    v.claim.as_deref(),
                    v.uploader.as_str(),
                )
            })
            .collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn what_was_not_copied_is_named_unless_it_was_empty() {
    for (status, expected) in [
        (
            json!({"phase": "Completed", "message": "volume was empty"}),
            None,
        ),
        (json!({"phase": "Completed", "snapshotID": "1"}), None),
        (json!({"phase": "Failed", "snapshotID": "1"}), None),
        (
            json!({"phase": "Failed", "message": "no disk"}),
            Some("PodVolumeBackup b-data is Failed: no disk"),
        ),
        (
            json!({"phase": "Canceled"}),
            Some("PodVolumeBackup b-data is Canceled"),
        ),
        (json!({}), Some("PodVolumeBackup b-data is New")),
    ] {
        let copies = Copies::new(&[backup("web", "data", json!({"status": status}))]);
        let pod = pod(json!({}));
        let lost: Vec<_> = copies.lost(&pod, "shop").map(|(_, why)| why).collect();
        assert_eq!(lost, Vec::from_iter(expected), "{status}");
    }
}

#[test]
fn claims_with_a_copy_are_known_by_name() {
    let claimed = |id: &str| {
        let mut rest = taken(id);
        rest["metadata"] = json!({"annotations": {"velero.io/pvc-name": "c"}});
        Copies::new(&[backup("web", "data", rest)])
    };
    assert!(claimed("1").has_claim("shop", "c"));
    assert!(!claimed("1").has_claim("copy", "c"));
    assert!(!claimed("").has_claim("shop", "c"));
}

#[test]
fn only_restics_format_is_read() {
    for (uploader, refused) in [
        ("", false),
        ("restic", false),
        ("kopia", true),
        ("rsync", true),
    ] {
        let volume = PodVolume {
            volume: "data".to_owned(),
            claim: None,
            snapshot: "1a2b".to_owned(),
            size: None,
            uploader: uploader.into(),
        };
        let refusal = volume.refusal();
        assert_eq!(refusal.is_some(), refused, "{uploader}");
        assert!(refusal.is_none_or(|why| why.contains("1a2b") && why.contains(uploader)));
    }
}

#[test]
fn names_of_requests_follow_from_what_they_ask_for() {
    let name = request_name("r", &["uid", "pod", "data"]);
    assert_eq!(name, request_name("r", &["uid", "pod", "data"]));
    assert_ne!(name, request_name("r", &["uid", "pod", "logs"]));
    assert_ne!(name, request_name("r", &["uid", "other", "data"]));
    assert_eq!(name.len(), "r-0123456789".len());
    assert_eq!(request_name(&"r".repeat(200), &["uid"]).len(), 63);
}

#[test]
fn repositories_are_named_by_the_namespace_of_the_backup() {
    for (prefix, expected) in [
        ("", ""),
        ("s3:x/b/restic", "s3:x/b/restic/shop"),
        ("gs:b:/restic/", "gs:b:/restic/shop"),
    ] {
        let volumes = PodVolumes {
            repositories: prefix.to_owned(),
            ..PodVolumes::default()
        };
        assert_eq!(volumes.repository("shop"), expected);
    }
}
