//! Volumes of pods, and what becomes of them.

use serde_json::json;

use super::*;
use crate::policy::Purpose;

/// A running pod that mounts all its volumes.
fn pod(volumes: Value) -> Value {
    let mounts: Vec<Value> = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| json!({"name": volume["name"]}))
        .collect();
    json!({
        "metadata": {"namespace": "shop", "name": "web", "annotations": {}},
        "spec": {"nodeName": "n1", "volumes": volumes, "containers": [{"volumeMounts": mounts}]},
        "status": {"phase": "Running"},
    })
}

fn annotated(mut pod: Value, key: &str, value: &str) -> Value {
    pod["metadata"]["annotations"][key] = json!(value);
    pod
}

/// Claim `data` on volume `pv-data`, which is of class `fast`, and `bare`, which has none.
fn known() -> Known {
    Known {
        claims: BTreeMap::from([
            (
                "data".to_owned(),
                Ok(json!({"metadata": {"uid": "u"}, "spec": {"volumeName": "pv-data"}})),
            ),
            (
                "host".to_owned(),
                Ok(json!({"spec": {"volumeName": "pv-host"}})),
            ),
            (
                "lost".to_owned(),
                Ok(json!({"spec": {"volumeName": "pv-lost"}})),
            ),
            ("bare".to_owned(), Ok(json!({"spec": {}}))),
            ("gone".to_owned(), Err("not found".to_owned())),
        ]),
        volumes: BTreeMap::from([
            (
                "pv-data".to_owned(),
                Ok(json!({"spec": {"storageClassName": "fast"}})),
            ),
            (
                "pv-host".to_owned(),
                Ok(json!({"spec": {"hostPath": {"path": "/x"}}})),
            ),
            ("pv-lost".to_owned(), Err("not found".to_owned())),
        ]),
    }
}

const IN: Rules<'static> = Rules {
    policies: None,
    by_default: false,
    with_claims: true,
};
const OUT: Rules<'static> = Rules {
    by_default: true,
    ..IN
};

fn claimed(name: &str) -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": name}})
}

/// Names of volumes and what becomes of them.
fn verdicts(pod: &Value, rules: &Rules<'_>) -> Vec<(String, Verdict)> {
    select(pod, &known(), rules)
        .into_iter()
        .map(|choice| (choice.volume, choice.verdict))
        .collect()
}

fn copied(pod: &Value, rules: &Rules<'_>) -> Vec<String> {
    verdicts(pod, rules)
        .into_iter()
        .filter(|(_, verdict)| *verdict == Verdict::Copy)
        .map(|(volume, _)| volume)
        .collect()
}

#[test]
fn annotations_opt_in_and_out() {
    let three = pod(json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
    ]));
    let both = annotated(three.clone(), annotation::BACKUP_VOLUMES, "a,c");
    let blanks = annotated(three.clone(), annotation::BACKUP_VOLUMES, "a, c");
    let excluded = annotated(three.clone(), annotation::BACKUP_VOLUMES_EXCLUDES, "b");
    for (pod, rules, expected) in [
        (&three, &IN, &[][..]),
        (&both, &IN, &["a", "c"]),
        (&blanks, &IN, &["a"]),
        (&excluded, &IN, &[]),
        (&three, &OUT, &["a", "b", "c"]),
        (&both, &OUT, &["a", "b", "c"]),
        (&excluded, &OUT, &["a", "c"]),
    ] {
        assert_eq!(copied(pod, rules), expected, "{pod} {rules:?}");
    }
    assert_eq!(strangers(&blanks), [" c"]);
    assert_eq!(strangers(&three), [""; 0]);
    assert_eq!(needed(&three, &IN), [""; 0]);
    assert_eq!(needed(&both, &IN), ["data"]);
    assert_eq!(needed(&three, &OUT), ["data"]);
}

#[test]
fn some_sources_are_never_copied() {
    let pod = pod(json!([
        {"name": "a", "hostPath": {"path": "/"}},
        {"name": "b", "secret": {}},
        {"name": "c", "configMap": {}},
        {"name": "d", "projected": {}},
        {"name": "e", "downwardAPI": {}},
        {"name": "default-token-x", "emptyDir": {}},
        {"name": "g", "nfs": {}},
        {"name": "h", "persistentVolumeClaim": {"claimName": "data"}},
    ]));
    assert_eq!(copied(&pod, &OUT), ["g", "h"]);
    let without = Rules {
        with_claims: false,
        ..OUT
    };
    assert_eq!(copied(&pod, &without), ["g"]);
}

#[test]
fn policies_come_before_annotations() {
    let policies = Policies::parse(
        r#"
version: v1
volumePolicies:
- conditions: {storageClass: [fast]}
  action: {type: fs-backup}
- conditions: {volumeTypes: [emptyDir]}
  action: {type: skip}
- conditions: {volumeTypes: [nfs]}
  action: {type: snapshot}
- conditions: {volumeTypes: [cephfs]}
  action: {type: custom}
"#,
        Purpose::Backup,
    )
    .unwrap();
    let rules = |by_default| Rules {
        policies: Some(&policies),
        by_default,
        with_claims: true,
    };
    let pod = pod(json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "nfs": {}},
        {"name": "c", "cephfs": {}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "iscsi": {}},
    ]));
    assert_eq!(copied(&pod, &rules(false)), ["d"]);
    assert_eq!(copied(&pod, &rules(true)), ["d", "e"]);
    assert_eq!(needed(&pod, &rules(false)), ["data"]);
    let choices = select(&pod, &known(), &rules(true));
    assert!(
        choices[0].by_pod,
        "what annotations say is known all the same"
    );

    // Nobody can tell what a policy would say about a volume that cannot be read.
    for (claim, why) in [
        ("lost", "error getting persistent volume pv-lost: not found"),
        ("bare", "PVC bare is not bound to a volume"),
        (
            "gone",
            "error getting persistent volume claim for volume: not found",
        ),
    ] {
        let pod = self::pod(json!([claimed(claim)]));
        assert_eq!(
            verdicts(&pod, &rules(false)),
            [("v".to_owned(), Verdict::Refuse(why.to_owned()))]
        );
    }
}

#[test]
fn pods_that_do_not_run_have_nothing_to_copy() {
    let running = pod(json!([{"name": "v", "emptyDir": {}}]));
    let mut pending = running.clone();
    pending["status"]["phase"] = json!("Pending");
    let mut unscheduled = pending.clone();
    unscheduled["spec"]["nodeName"] = json!(null);
    let mut leaving = running.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let begin = "encountered a problem with backing up the PVC of pod shop/web: ";
    for (pod, why) in [
        (
            pending,
            "pod is not in the expected status, name=web, namespace=shop, phase=Pending: pod is not running",
        ),
        (
            unscheduled,
            "pod is not scheduled, name=web, namespace=shop, phase=Pending",
        ),
        (
            leaving,
            "pod is being terminated, name=web, namespace=shop, phase=Running",
        ),
    ] {
        let expected = Verdict::Skip(format!("{begin}{why}"));
        assert_eq!(verdicts(&pod, &OUT), [("v".to_owned(), expected)]);
        assert_eq!(verdicts(&pod, &IN), [("v".to_owned(), Verdict::Out)]);
    }
}

#[test]
fn what_cannot_be_copied_says_why() {
    let skip = |text: &str| Verdict::Skip(text.to_owned());
    for (claim, expected) in [
        ("data", Verdict::Copy),
        ("bare", Verdict::Copy),
        (
            "host",
            skip(
                "Volume v in pod shop/web is a hostPath volume which is not supported for pod volume \
                 backup, skipping",
            ),
        ),
        (
            "lost",
            Verdict::Refuse("error getting persistent volume pv-lost: not found".to_owned()),
        ),
        (
            "gone",
            Verdict::Refuse(
                "error getting persistent volume claim for volume: not found".to_owned(),
            ),
        ),
    ] {
        let pod = pod(json!([claimed(claim)]));
        assert_eq!(verdicts(&pod, &OUT), [("v".to_owned(), expected)]);
    }

    let mut block = pod(json!([claimed("data")]));
    block["spec"]["containers"] = json!([{"volumeDevices": [{"name": "v"}]}]);
    let mut unmounted = block.clone();
    unmounted["spec"]["containers"] = json!([{}]);
    unmounted["spec"]["initContainers"] = json!([{"volumeMounts": [{"name": "v"}]}]);
    let mut sidecar = unmounted.clone();
    sidecar["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    for (pod, expected) in [
        (
            block,
            skip(
                "volume v declared in pod shop/web is a block volume. Block volumes are not \
                 supported for fs backup, skipping",
            ),
        ),
        (
            unmounted,
            skip("volume v is declared in pod shop/web but not mounted by any container, skipping"),
        ),
        (sidecar, Verdict::Copy),
    ] {
        assert_eq!(verdicts(&pod, &OUT), [("v".to_owned(), expected)]);
    }
}
