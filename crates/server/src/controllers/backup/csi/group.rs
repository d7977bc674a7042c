//! Snapshots of several claims at one moment: a group is made, and its members are snapshots of the
//! backup like all others. It stays for as long as they do: the controller would take members without it
//! for snapshots that are yet to be made.

use std::{collections::BTreeMap, time::Duration};

use bowline_engine::csi::{self, Cut, group};
use bowline_vault::crash;
use futures::future;
use kube::{
    ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{Csi, place};
use crate::{
    Error,
    csi::{contents, groups, object, patch, snapshots, value},
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
        // What becomes of nothing goes when the backup ends.
        self.take_members(&value(&made), members).await
    }

    async fn take_members(
        &self,
        made: &Value,
        members: &[(Value, Value)],
    ) -> Result<BTreeMap<String, Cut>, String> {
        let until = self.until();
        let found = self.members(made, members, until).await?;
        let api = snapshots(&self.ctx.client, place(made).0);
        let client = &self.ctx.client;
        let content = groups::content(client, made).await;
        let content = content.map_err(|error| error.chain())?;
        let fellows = content.as_ref().and_then(group::fellows);
        let marks = csi::marks(&self.backup, &self.ctx.namespace);
        let (api, marks, fellows) = (&api, &marks, fellows.as_ref());
        let waiting = found.into_iter().map(|(claim, member)| async move {
            let name = place(&member).1;
            let adopted = patch(api, name, marks).await;
            let adopted = adopted.map_err(|error| error.chain())?;
            let adopted = adopted.ok_or_else(|| format!("{name} was deleted"))?;
            let cut = self.wait(&adopted, until).await?;
            if let Some(fellows) = fellows {
                let done = patch(&contents(client), place(&cut.content).1, fellows).await;
                done.map_err(|error| error.chain())?;
            }
            Ok::<_, String>((claim, self.mark(cut).await?))
        });
        let cuts = future::try_join_all(waiting).await?;
        Ok(cuts.into_iter().collect())
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
