use serde_json::{Value, json};

use super::*;

const NODE: &str = "n1";

fn pod(uid: &str, status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": uid},
        "spec": {
            "containers": [],
            "nodeName": NODE,
            "initContainers": [{"name": "first"}, {"name": "restore-wait"}],
        },
        "status": status,
    }))
    .unwrap()
}

fn metadata(deleted: bool, held: bool) -> Value {
    let mut metadata = json!({"name": "c"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if held {
        metadata["finalizers"] = json!(["velero.io/pod-volume-finalizer"]);
    }
    metadata
}

fn backup(node: &str, phase: &str) -> PodVolumeBackup {
    serde_json::from_value(json!({
        "metadata": metadata(false, false),
        "spec": {"node": node, "pod": {"name": "p", "namespace": "ns", "uid": "u"}, "volume": "v"},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn restore(taken_by: &str, phase: &str) -> PodVolumeRestore {
    serde_json::from_value(json!({
        "metadata": metadata(false, false),
        "spec": {"pod": {"name": "p", "namespace": "ns", "uid": "u"}, "volume": "v"},
        "status": {"phase": phase, "node": taken_by},
    }))
    .unwrap()
}

fn state(name: &str, state: Value) -> Value {
    json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "first", "state": {"terminated": {"exitCode": 0}}},
        {"name": name, "state": state},
    ]})
}

#[test]
fn backups_are_made_on_their_own_node() {
    let here = pod("u", json!({"phase": "Running"}));
    let another = pod("u2", json!({"phase": "Running"}));
    for (backup, pod, is_running, expected) in [
        (backup(NODE, ""), Some(&here), false, Step::Begin),
        (backup(NODE, "New"), Some(&here), false, Step::Begin),
        (backup("n2", "New"), Some(&here), false, Step::Leave),
        (backup(NODE, "New"), Some(&here), true, Step::Leave),
        // Taken up after a restart.
        (backup(NODE, "Accepted"), Some(&here), false, Step::Begin),
        (backup(NODE, "Prepared"), Some(&here), false, Step::Begin),
        (backup(NODE, "InProgress"), Some(&here), false, Step::Begin),
        (backup(NODE, "InProgress"), Some(&here), true, Step::Leave),
        // The pod goes while its volume is copied.
        (backup(NODE, "InProgress"), None, true, Step::Stop),
        (backup(NODE, "InProgress"), Some(&another), true, Step::Stop),
        (backup(NODE, "InProgress"), None, false, Step::Begin),
        // Somebody else ended it.
        (backup(NODE, "Failed"), Some(&here), true, Step::Stop),
        (backup(NODE, "Completed"), None, false, Step::Leave),
        (backup(NODE, "Canceling"), Some(&here), false, Step::Cancel),
        (backup(NODE, "Canceling"), Some(&here), true, Step::Stop),
    ] {
        let found = of_backup(&backup, NODE, pod, is_running);
        assert_eq!(found, expected, "{backup:?} {is_running}");
    }
}

#[test]
fn what_nobody_wants_is_canceled_and_let_go() {
    let here = pod("u", json!({"phase": "Running"}));
    for (phase, cancel, deleted, held, is_running, expected) in [
        ("New", true, false, false, false, Step::Cancel),
        ("Prepared", true, false, false, true, Step::Stop),
        ("InProgress", true, false, false, true, Step::Stop),
        ("InProgress", true, false, false, false, Step::Cancel),
        ("InProgress", false, true, true, true, Step::Stop),
        ("InProgress", false, true, true, false, Step::Cancel),
        ("Canceled", true, true, true, false, Step::Release),
        ("Completed", false, false, true, false, Step::Release),
        ("Completed", true, true, false, false, Step::Leave),
    ] {
        let mut backup = backup(NODE, phase);
        backup.spec.cancel = Some(cancel);
        backup.metadata = serde_json::from_value(metadata(deleted, held)).unwrap();
        let found = of_backup(&backup, NODE, Some(&here), is_running);
        assert_eq!(found, expected, "{phase} {cancel} {deleted} {held}");
    }
}

#[test]
fn restores_begin_when_their_pod_waits_for_them() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let ready = pod("u", state("restore-wait", running.clone()));
    let legacy = pod("u", state("restic-wait", running.clone()));
    let other = pod("u", state("init", running));
    let early = pod("u", state("restore-wait", json!({"waiting": {}})));
    let failed = pod(
        "u",
        state("restore-wait", json!({"terminated": {"exitCode": 1}})),
    );
    let passed = pod(
        "u",
        state("restore-wait", json!({"terminated": {"exitCode": 0}})),
    );
    let over = pod("u", json!({"phase": "Failed"}));
    for (what, restore, pod, is_running, expected) in [
        (
            "ready",
            restore("", "New"),
            Some(&ready),
            false,
            Step::Begin,
        ),
        (
            "old name",
            restore("", ""),
            Some(&legacy),
            false,
            Step::Begin,
        ),
        (
            "no helper",
            restore("", "New"),
            Some(&other),
            false,
            Step::Leave,
        ),
        (
            "early",
            restore("", "New"),
            Some(&early),
            false,
            Step::Leave,
        ),
        (
            "helper failed",
            restore("", "New"),
            Some(&failed),
            false,
            Step::Leave,
        ),
        ("no pod here", restore("", "New"), None, false, Step::Leave),
        (
            "other node",
            restore("n2", "Accepted"),
            Some(&ready),
            false,
            Step::Leave,
        ),
        (
            "ours",
            restore(NODE, "Accepted"),
            Some(&ready),
            false,
            Step::Begin,
        ),
        (
            "under way",
            restore(NODE, "InProgress"),
            Some(&ready),
            true,
            Step::Leave,
        ),
        (
            "pod gone",
            restore(NODE, "InProgress"),
            None,
            true,
            Step::Stop,
        ),
        (
            "pod gone before",
            restore(NODE, "InProgress"),
            None,
            false,
            Step::Begin,
        ),
        (
            "pod over",
            restore("", "New"),
            Some(&over),
            false,
            Step::Begin,
        ),
        (
            "helper again",
            restore(NODE, "InProgress"),
            Some(&early),
            false,
            Step::Leave,
        ),
        (
            "not said",
            restore(NODE, "InProgress"),
            Some(&passed),
            false,
            Step::Conclude,
        ),
        (
            "saying it",
            restore(NODE, "InProgress"),
            Some(&passed),
            true,
            Step::Leave,
        ),
        (
            "too late",
            restore("", "New"),
            Some(&passed),
            false,
            Step::TooLate,
        ),
    ] {
        let found = of_restore(&restore, NODE, pod, is_running);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn an_unwanted_restore_that_nobody_has_is_everybodys() {
    let mut restore = restore("", "New");
    restore.spec.cancel = Some(true);
    assert_eq!(of_restore(&restore, NODE, None, false), Step::Cancel);
    restore.status_mut().node = Some("n2".to_owned());
    assert_eq!(of_restore(&restore, NODE, None, false), Step::Leave);
}

#[test]
fn containers_before_the_helper_are_counted() {
    assert_eq!(before_helper(&pod("u", json!({}))), 1);
    assert_eq!(before_helper(&Pod::default()), 0);
}
