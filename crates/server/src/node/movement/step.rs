//! What a DataUpload or DataDownload needs next from this node. Pure.

use bowline_api::v1::DataPathPhase as Phase;
use bowline_engine::movement::Mover;

use super::Movement;

/// What is to be done with a movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// Nothing: it is somebody else's, or under way.
    Leave,
    /// Take it, or go on with it.
    Begin,
    /// End the work that is under way.
    Stop,
    /// Nobody works on it, and it is to be canceled.
    Cancel,
    /// It is over: clear away what was made for it.
    Tidy,
}

/// What a movement needs next. `has_room`: new ones may be taken.
pub(in super::super) fn next<K: Movement>(
    movement: &K,
    node: &str,
    has_room: bool,
    is_running: bool,
) -> Step {
    if movement.mover() != Mover::Ours {
        return Step::Leave;
    }
    let phase = movement.phase();
    let is_mine = match phase {
        // One that nobody has taken is everybody's.
        Phase::New => true,
        Phase::Accepted => movement.taker() == Some(node),
        Phase::Canceled | Phase::Completed | Phase::Failed => {
            movement.node().or_else(|| movement.taker()) == Some(node)
        }
        _ => movement.node() == Some(node),
    };
    let is_over = phase.is_over();
    match (is_mine, is_running) {
        (false, true) => Step::Stop,
        (false, false) => Step::Leave,
        // Whoever ended it may be at clearing away.
        (true, true) if is_over => Step::Leave,
        (true, false) if is_over && movement.is_held() => Step::Tidy,
        (true, false) if is_over => Step::Leave,
        (true, true) if movement.is_unwanted() => Step::Stop,
        (true, true) => Step::Leave,
        (true, false) if movement.is_unwanted() => Step::Cancel,
        (true, false) if phase == Phase::New && !has_room => Step::Leave,
        (true, false) => Step::Begin,
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v2alpha1::DataUpload;
    use serde_json::{Value, json};

    use super::*;

    fn upload(mover: &str, status: Value, cancel: bool, held: bool) -> DataUpload {
        let finalizers: &[&str] = match held {
            true => &["velero.io/data-upload-download-finalizer"],
            false => &[],
        };
        serde_json::from_value(json!({
            "metadata": {"name": "u", "finalizers": finalizers},
            "spec": {"datamover": mover, "cancel": cancel},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn each_movement_has_one_node() {
        let taken = |phase: &str, taker: &str, node: &str| json!({"phase": phase, "acceptedByNode": taker, "node": node});
        for (status, is_running, expected) in [
            (json!({}), false, Step::Begin),
            (taken("Accepted", "me", ""), false, Step::Begin),
            (taken("Accepted", "me", ""), true, Step::Leave),
            (taken("Accepted", "you", ""), false, Step::Leave),
            (taken("Accepted", "you", ""), true, Step::Stop),
            (taken("Prepared", "you", "me"), false, Step::Begin),
            (taken("Prepared", "me", "you"), false, Step::Leave),
            (taken("InProgress", "you", "me"), false, Step::Begin),
            (taken("InProgress", "me", "you"), true, Step::Stop),
            (taken("Completed", "you", "me"), false, Step::Tidy),
            (taken("Completed", "you", "me"), true, Step::Leave),
            (taken("Failed", "me", ""), false, Step::Tidy),
            (taken("Failed", "me", "you"), false, Step::Leave),
        ] {
            let upload = upload("bowline", status.clone(), false, true);
            assert_eq!(next(&upload, "me", true, is_running), expected, "{status}");
        }
    }

    #[test]
    fn what_is_not_wanted_ends() {
        for (status, is_running, expected) in [
            (json!({}), false, Step::Cancel),
            (
                json!({"phase": "Accepted", "acceptedByNode": "me"}),
                true,
                Step::Stop,
            ),
            (
                json!({"phase": "InProgress", "node": "me"}),
                false,
                Step::Cancel,
            ),
            (
                json!({"phase": "InProgress", "node": "you"}),
                false,
                Step::Leave,
            ),
            (
                json!({"phase": "Completed", "node": "me"}),
                false,
                Step::Leave,
            ),
        ] {
            let upload = upload("bowline", status.clone(), true, false);
            assert_eq!(next(&upload, "me", true, is_running), expected, "{status}");
        }
    }

    #[test]
    fn others_movers_look_after_their_own() {
        for mover in ["", "velero", "acme"] {
            let upload = upload(mover, json!({}), false, false);
            assert_eq!(next(&upload, "me", true, false), Step::Leave, "{mover}");
        }
        let upload = upload("bowline", json!({}), false, false);
        assert_eq!(next(&upload, "me", false, false), Step::Leave, "no room");
    }
}
