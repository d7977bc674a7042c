//! Stubs of volume group snapshots: some drivers look for the content of a snapshot's group. They are
//! there while the contents of a restore are not ready.

use std::time::Duration;

use async_trait::async_trait;
use bowline_api::{
    names::{label, label_value},
    v1::Restore,
};
use bowline_engine::{csi::group::Stub, restore::action::csi::GroupStubs};
use kube::{
    Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    Context, Error, Result,
    csi::{contents, delete, groups, labelled, object, value},
};

/// How often contents are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A stub that somebody else changed meanwhile is patched again, so many times.
const TRIES: u32 = 5;

/// Makes stubs.
pub(super) struct Stubs(pub(super) Client);

#[async_trait]
impl GroupStubs for Stubs {
    async fn ensure(&self, stub: Stub<'_>, member: &str) -> Result<(), String> {
        let done = ensure(&self.0, stub, member).await;
        done.map_err(|error| Error::api(format!("make {}", stub.name()))(error).chain())
    }
}

async fn ensure(client: &Client, stub: Stub<'_>, member: &str) -> Result<(), kube::Error> {
    let api = groups::contents(client);
    let name = stub.name();
    let mut tries = 0;
    loop {
        tries += 1;
        let patch = match api.get_opt(&name).await? {
            None => {
                let classes = groups::classes(client).list(&ListParams::default()).await?;
                let classes: Vec<Value> = classes.items.iter().map(value).collect();
                let wanted = object(stub.object(member, &classes));
                match api.create(&PostParams::default(), &wanted).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status))
                        if status.is_already_exists() && tries < TRIES =>
                    {
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                let status = json!({"status": {"volumeGroupSnapshotHandle": stub.handle}});
                let params = PatchParams::default();
                api.patch_status(&name, &params, &Patch::Merge(&status))
                    .await?;
                return Ok(());
            }
            Some(found) => match with_member(&value(&found), member) {
                Some(patch) => patch,
                None => return Ok(()),
            },
        };
        let params = PatchParams::default();
        match api.patch(&name, &params, &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

/// What adds a member to a stub; none if it is there.
fn with_member(stub: &Value, member: &str) -> Option<Value> {
    let handles = &stub["spec"]["source"]["groupSnapshotHandles"]["volumeSnapshotHandles"];
    let mut handles = handles.as_array().cloned().unwrap_or_default();
    if handles.iter().any(|handle| handle == member) {
        return None;
    }
    handles.push(json!(member));
    Some(json!({
        "metadata": {"resourceVersion": stub["metadata"]["resourceVersion"]},
        "spec": {"source": {"groupSnapshotHandles": {"volumeSnapshotHandles": handles}}},
    }))
}

/// Removes the stubs of a restore once its contents are ready, or have had their time.
pub(super) async fn settle(ctx: &Context, restore: &Restore) -> Result<()> {
    let labels = format!(
        "{}={}",
        label::RESTORE_NAME,
        label_value(&restore.name_any())
    );
    let stubs = labelled(&groups::contents(&ctx.client), &labels).await?;
    if stubs.is_empty() {
        return Ok(());
    }
    let until = Instant::now() + ctx.settings.resource_timeout;
    loop {
        let all = labelled(&contents(&ctx.client), &labels).await?;
        let is_ready = |content: &Value| content["status"]["readyToUse"] == true;
        if all.iter().all(is_ready) {
            break;
        }
        if Instant::now() >= until {
            tracing::warn!(restore = %restore.name_any(), "VolumeSnapshotContents are not ready");
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    for stub in stubs {
        delete(&groups::contents(&ctx.client), &stub).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_added_once() {
        let stub = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"source": {"groupSnapshotHandles": {"volumeSnapshotHandles": ["a"]}}},
        });
        assert_eq!(with_member(&stub, "a"), None);
        let patch = with_member(&stub, "b").unwrap();
        assert_eq!(
            patch["spec"]["source"]["groupSnapshotHandles"]["volumeSnapshotHandles"],
            json!(["a", "b"])
        );
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}
