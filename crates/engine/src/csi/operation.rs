//! The operation that waits for a snapshot to be usable, as files name it. Pure.

use jiff::Timestamp;
use serde_json::Value;

use super::{bound_content, error, group_handle};

/// The action whose operations these are.
pub const ACTION: &str = "velero.io/csi-volumesnapshot-backupper";

/// An operation's id, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id {
    /// The VolumeSnapshot's namespace.
    pub namespace: String,
    /// The VolumeSnapshot.
    pub name: String,
    /// When it began.
    pub started: Timestamp,
}

impl Id {
    /// Reads one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (namespace, name) = (parts.next()?, parts.next()?);
        let started = parts.next()?.parse().ok()?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            started,
        })
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let started = self.started.strftime("%Y-%m-%dT%H:%M:%SZ");
        write!(f, "{}/{}/{started}", self.namespace, self.name)
    }
}

/// Whether a snapshot can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not yet; with what is said to be wrong meanwhile.
    Going(Option<String>),
    /// It can.
    Ready,
    /// It never will, for this reason.
    Failed(String),
}

/// What a VolumeSnapshot and its content say.
#[must_use]
pub fn state(snapshot: &Value, content: Option<&Value>) -> State {
    let ready = |object: &Value| object["status"]["readyToUse"] == true;
    let content = content.filter(|_| bound_content(snapshot).is_some());
    // The controller finds fault with members of groups, which have no class, whatever their contents
    // are.
    let is_member = content.and_then(group_handle).is_some();
    if content.is_some_and(ready) && (is_member || ready(snapshot)) {
        return State::Ready;
    }
    if !ready(snapshot)
        && let Some(why) = error(snapshot)
    {
        // The controller tries again.
        return State::Going(Some(why.to_owned()));
    }
    match content.and_then(error) {
        Some(why) => State::Failed(why.to_owned()),
        None => State::Going(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_as_velero_writes_them() {
        let text = "shop/velero-data-abcde/2025-03-01T02:00:07Z";
        let id = Id::parse(text).unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(
            (id.namespace.as_str(), id.name.as_str()),
            ("shop", "velero-data-abcde")
        );
        // Velero writes its own time zone.
        let there = Id::parse("shop/a/2025-03-01T03:00:07+01:00").unwrap();
        assert_eq!(there.started, id.started);
        for bad in ["", "shop", "shop/a", "shop/a/yesterday"] {
            assert_eq!(Id::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_content_has_the_last_word() {
        let bound = json!({"boundVolumeSnapshotContentName": "c"});
        let with = |mut status: Value, more: Value| {
            for (key, value) in more.as_object().unwrap() {
                status[key] = value.clone();
            }
            json!({"status": status})
        };
        let wrong = json!({"error": {"message": "no room"}});
        let snapshot = with(bound.clone(), json!({}));
        let content = |status: Value| Some(json!({"status": status}));
        let ready = json!({"readyToUse": true});
        let member = json!({"readyToUse": true, "volumeGroupSnapshotHandle": "g"});
        for (snapshot, content, expected) in [
            (json!({}), None, State::Going(None)),
            (json!({}), content(ready.clone()), State::Going(None)),
            (snapshot.clone(), content(json!({})), State::Going(None)),
            (snapshot.clone(), content(ready.clone()), State::Going(None)),
            (snapshot.clone(), content(member.clone()), State::Ready),
            (
                with(bound.clone(), ready.clone()),
                content(ready.clone()),
                State::Ready,
            ),
            (
                snapshot.clone(),
                content(wrong.clone()),
                State::Failed("no room".to_owned()),
            ),
            (
                with(bound.clone(), wrong.clone()),
                content(json!({})),
                State::Going(Some("no room".to_owned())),
            ),
            (
                with(bound.clone(), wrong.clone()),
                content(ready.clone()),
                State::Going(Some("no room".to_owned())),
            ),
            (
                with(bound.clone(), wrong.clone()),
                content(member),
                State::Ready,
            ),
            (
                with(with(bound, wrong)["status"].take(), ready.clone()),
                content(ready),
                State::Ready,
            ),
        ] {
            assert_eq!(state(&snapshot, content.as_ref()), expected, "{snapshot}");
        }
    }
}
