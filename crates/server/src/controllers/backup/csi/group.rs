//! Snapshots of several claims at one moment: a group is made, its members are taken out of it, and it
//! is removed; the members are ordinary snapshots then.

use std::{collections::BTreeMap, time::Duration};

use bowline_engine::csi::{self, Cut, group};
use bowline_vault::crash;
use futures::future;
use kube::{
    ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Csi, become_so, place};
use crate::{
    Error,
    csi::{groups, object, patch, snapshots, value},
};

/// How often members are looked for.
const LOOK: Duration = Duration::from_millis(500);

impl Csi {
    /// Takes a group. What goes wrong costs all of it.
    pub(super) async fn group(
        &self,
        name: &str,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String> {
        let Some((first, _)) = members.first() else {
            return Ok(BTreeMap::new());
        };
        let volumes = members.iter();
        let driver = group::driver(volumes.map(|(claim, volume)| (place(claim).1, volume)))?;
        let client = &self.ctx.client;
        let classes = groups::classes(client).list(&ListParams::default()).await;
        let classes = classes
            .map_err(|error| Error::api("list VolumeGroupSnapshotClasses")(error).chain())?;
        let classes: Vec<Value> = classes.items.iter().map(value).collect();
        let class = group::class(first, self.backup.annotations(), driver, &classes)?;
        let namespace = place(first).0;
        let server = &self.ctx.namespace;
        let wanted = group::snapshot(namespace, name, class, &self.backup, server);
        let api = groups::groups(client, namespace);
        let making = self.making.spawn(async move {
            let made = api.create(&PostParams::default(), &object(wanted)).await;
            crash::here("after VolumeGroupSnapshot");
            made
        });
        let made = making.await.map_err(|panic| panic.to_string())?;
        let made = made
            .map_err(|error| Error::api("error creating volume group snapshot")(error).chain())?;
        let made = value(&made);
        let cuts = self.take_out(&made, members).await;
        if cuts.is_err() {
            let dropped = groups::remove(client, &made, csi::DELETE).await;
            if let Err(error) = dropped {
                // Whoever ends the backup tries again.
                tracing::warn!(group = name, "stays: {}", error.chain());
            }
        }
        cuts
    }

    async fn take_out(
        &self,
        made: &Value,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String> {
        let (namespace, name) = place(made);
        let client = &self.ctx.client;
        let until = self.until();
        let found = self.members(made, members, until).await?;
        let api = snapshots(client, namespace);
        // The controller would take another one for a member that is not ready when it is let go.
        let is_ready = |member: &Value| member["status"]["readyToUse"] == true;
        let ready = found.into_iter().map(|(claim, member)| {
            let api = &api;
            async move {
                let member = become_so(api, place(&member).1, until, is_ready).await?;
                Ok::<_, String>((claim, member))
            }
        });
        let mut free = Vec::new();
        for (claim, mut member) in future::try_join_all(ready).await? {
            group::release(&mut member, made, &self.backup, &self.ctx.namespace);
            let metadata = &member["metadata"];
            let labels = json!({"metadata": {
                "ownerReferences": metadata["ownerReferences"],
                "finalizers": metadata["finalizers"],
                "labels": metadata["labels"],
                "annotations": metadata["annotations"],
                "resourceVersion": metadata["resourceVersion"],
            }});
            let snapshot = place(&member).1;
            let patched = patch(&api, snapshot, &labels).await;
            let patched = patched.map_err(|error| error.chain())?;
            free.push((
                claim,
                patched.ok_or_else(|| format!("{snapshot} was deleted"))?,
            ));
        }
        let is_bound =
            |group: &Value| group["status"]["boundVolumeGroupSnapshotContentName"].is_string();
        let api = groups::groups(client, namespace);
        let bound = become_so(&api, name, until, is_bound).await?;
        let removed = groups::remove(client, &bound, csi::RETAIN).await;
        removed.map_err(|error| error.chain())?;
        let waiting = free.into_iter().map(|(claim, member)| async move {
            let cut = self.wait(&member, until).await?;
            Ok::<_, String>((claim, self.mark(cut).await?))
        });
        future::try_join_all(waiting)
            .await
            .map(|cuts| cuts.into_iter().collect())
    }

    /// The members of a group as soon as they are all there.
    async fn members(
        &self,
        made: &Value,
        wanted: &[(Value, Value)],
        until: Instant,
    ) -> Result<BTreeMap<String, Value>, String> {
        let (namespace, name) = place(made);
        let api = snapshots(&self.ctx.client, namespace);
        loop {
            let listed = api.list(&ListParams::default()).await;
            let found = match listed {
                Ok(list) => group::members(made, list.items.iter().map(value).collect()),
                Err(error) => {
                    tracing::debug!(name, "list members: {error}");
                    BTreeMap::new()
                }
            };
            let mut missing = wanted
                .iter()
                .map(|(claim, _)| place(claim).1)
                .filter(|claim| !found.contains_key(*claim));
            let Some(missing) = missing.next() else {
                return Ok(found);
            };
            if Instant::now() >= until {
                return Err(format!(
                    "timed out waiting for VolumeSnapshots of VolumeGroupSnapshot {name}: none of \
                     {missing} yet"
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
