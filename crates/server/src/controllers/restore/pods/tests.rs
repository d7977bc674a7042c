//! What becomes of a volume that somebody is to fill.

use serde_json::Value;

use super::*;

fn request(phase: &str, message: &str) -> PodVolumeRestore {
    serde_json::from_value(json!({
        "metadata": {"name": "r-1", "namespace": "velero"},
        "spec": {
            "pod": {"namespace": "shop", "name": "web", "uid": "u"}, "volume": "data",
            "snapshotID": "1a2b", "uploaderType": "restic",
        },
        "status": {"phase": phase, "message": message, "progress": {"totalBytes": 9, "bytesDone": 9}},
    }))
    .unwrap()
}

fn verdict(phase: &str, pod: Stage) -> String {
    let look = Look {
        request: Some(Arc::new(request(phase, "said so"))),
        pod,
    };
    told(look.verdict())
}

fn told(verdict: Verdict) -> String {
    let text = |trouble: Trouble| format!("{}: {}", trouble.what, trouble.why);
    match verdict {
        Verdict::Wait => "wait".to_owned(),
        Verdict::Ended(None) => "filled".to_owned(),
        Verdict::Ended(Some(trouble)) => format!("ended, {}", text(trouble)),
        Verdict::GivenUp(trouble) => format!("given up, {}", text(trouble)),
    }
}

#[test]
fn a_volume_is_waited_for_while_there_is_hope() {
    let on = || Stage::On("n".to_owned());
    let over = || Stage::Over("Failed".to_owned());
    for (phase, pod, expected) in [
        ("", Stage::Unscheduled, "wait"),
        ("", on(), "wait"),
        ("Accepted", on(), "wait"),
        ("InProgress", on(), "wait"),
        ("Canceling", on(), "wait"),
        ("Completed", on(), "filled"),
        ("Completed", Stage::Gone, "filled"),
        ("Failed", on(), "ended, pod volume restore failed: said so"),
        (
            "Canceled",
            on(),
            "ended, pod volume restore canceled: said so",
        ),
        (
            "New",
            Stage::Gone,
            "given up, pod volume restore failed: the pod is gone",
        ),
        (
            "InProgress",
            Stage::Gone,
            "given up, pod volume restore failed: the pod is gone",
        ),
        (
            "Prepared",
            over(),
            "given up, pod volume restore failed: the pod ended as Failed",
        ),
    ] {
        assert_eq!(verdict(phase, pod.clone()), expected, "{phase} {pod:?}");
    }
    let deleted = Look {
        request: None,
        pod: on(),
    };
    let expected = "ended, pod volume restore canceled: the PodVolumeRestore was deleted";
    assert_eq!(told(deleted.verdict()), expected);
}

#[test]
fn a_pod_is_where_it_says_it_is() {
    let pod = |uid: &str, phase: &str, node: Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "uid": uid},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    };
    let (null, n) = (|| json!(null), || json!("n"));
    for (pod, expected) in [
        (None, Stage::Gone),
        (Some(pod("other", "Pending", n())), Stage::Gone),
        (Some(pod("u", "Pending", null())), Stage::Unscheduled),
        (Some(pod("u", "Pending", n())), Stage::On("n".to_owned())),
        (
            Some(pod("u", "Failed", n())),
            Stage::Over("Failed".to_owned()),
        ),
    ] {
        assert_eq!(Stage::of(pod.as_ref(), "u"), expected);
    }
}

#[test]
fn the_time_runs_from_the_beginning_of_the_restore() {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let restore = |own: Value, began: Value| -> Restore {
        serde_json::from_value(json!({
            "metadata": {"name": "r", "annotations": own},
            "spec": {}, "status": {"startTimestamp": began},
        }))
        .unwrap()
    };
    let own = |text: &str| json!({"velero.io/pod-volume-timeout": text});
    let at_half = json!("2026-01-01T00:30:00Z");
    for (own, began, minutes) in [
        (json!({}), json!(null), 240),
        (json!({}), at_half.clone(), 210),
        (own("45m"), at_half.clone(), 15),
        (own("10m"), at_half.clone(), 0),
        (own("soon"), at_half, 210),
        (json!({}), json!("2026-01-01T02:00:00Z"), 240),
    ] {
        let left = left(
            &restore(own.clone(), began),
            Duration::from_secs(4 * 3600),
            now,
        );
        assert_eq!(left, Duration::from_secs(minutes * 60), "{own}");
    }
}
