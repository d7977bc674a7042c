use serde_json::{Value, json};

use super::*;

fn look(status: Value, more: Value) -> Look {
    let mut pod = json!({
        "metadata": {
            "name": "p",
            "ownerReferences": [{"apiVersion": "velero.io/v2alpha1", "kind": "DataUpload", "name": "p", "uid": "u"}],
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": status,
    });
    if let Some(more) = more.as_object() {
        for (key, value) in more {
            pod["metadata"][key] = value.clone();
        }
    }
    look_at(Some(&serde_json::from_value(pod).unwrap()), "u")
}

fn container(state: Value) -> Value {
    json!([{"name": "u", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state}])
}

#[test]
fn a_pod_tells_how_far_it_is() {
    let none = || json!({});
    let running = json!({"phase": "Running"});
    assert_eq!(look(json!({"phase": "Pending"}), none()), Look::Waiting);
    assert_eq!(
        look(running.clone(), none()),
        Look::Running("n1".to_owned())
    );
    let ended = container(json!({"terminated": {"exitCode": 0, "message": "{}"}}));
    assert_eq!(
        look(
            json!({"phase": "Succeeded", "containerStatuses": ended}),
            none()
        ),
        Look::Ended {
            on: "n1".to_owned(),
            message: "{}".to_owned()
        }
    );
    // It ended well before it was deleted.
    let ended = container(json!({"terminated": {"exitCode": 0, "message": "{}"}}));
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(matches!(
        look(
            json!({"phase": "Running", "containerStatuses": ended}),
            going.clone()
        ),
        Look::Ended { .. }
    ));
    assert!(matches!(look(running, going), Look::Lost(_)));
    let killed = container(json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}));
    assert_eq!(
        look(
            json!({"phase": "Running", "containerStatuses": killed}),
            none()
        ),
        Look::Running("n1".to_owned()),
        "the kubelet starts it again"
    );
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "no room"});
    assert_eq!(
        look(evicted, none()),
        Look::Lost("pod p is Failed Evicted: no room".to_owned())
    );
    assert!(matches!(look_at(None, "u"), Look::Lost(_)));
}

#[test]
fn what_will_never_run_is_hopeless() {
    let waiting =
        container(json!({"waiting": {"reason": "ErrImageNeverPull", "message": "not there"}}));
    let found = look(
        json!({"phase": "Pending", "containerStatuses": waiting}),
        json!({}),
    );
    assert_eq!(
        found,
        Look::Hopeless("pod p cannot start: ErrImageNeverPull: not there".to_owned())
    );
    let worn = json!([{
        "name": "u", "image": "i", "imageID": "", "ready": false, "restartCount": 6,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }]);
    let Look::Hopeless(why) = look(
        json!({"phase": "Running", "containerStatuses": worn}),
        json!({}),
    ) else {
        panic!("it goes on for ever");
    };
    assert!(
        why.contains("6 times") && why.contains("OOMKilled (code 137)"),
        "{why}"
    );
    let strange = look(json!({"phase": "Running"}), json!({"ownerReferences": []}));
    assert!(matches!(strange, Look::Hopeless(_)));
}
