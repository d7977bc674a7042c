//! The sign of life of a node process: a Lease that it renews.
//!
//! The server takes a node without a fresh Lease for dead, and ends its copies. A process that starts
//! takes the Lease at once, whoever has it: its predecessor is gone, or finds out at its next beat and
//! stops. Nobody lets the Lease go on purpose, since the next process is probably on its way.

use std::{collections::BTreeMap, time::Duration};

use bowline_api::names::{NODE_AGENT, label};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    nodes::{VALID, lease_name},
};

/// How often there is one.
const RENEW: Duration = Duration::from_secs(10);
/// How soon it is tried again when it fails.
const AGAIN: Duration = Duration::from_secs(2);

/// The Lease of a node, as its process sees it.
pub(super) struct Heartbeat {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The Node, with which the Lease goes.
    owner: Option<OwnerReference>,
    /// Whether it was ours once.
    taken: bool,
}

/// What became of a beat.
#[derive(Debug, PartialEq, Eq)]
enum Beat {
    Alive,
    /// Somebody wrote at the same time.
    Missed,
    /// Another process has it.
    Replaced(String),
}

impl Heartbeat {
    /// A process of this identity on a node.
    pub(super) fn new(
        client: &Client,
        namespace: &str,
        node: &str,
        identity: &str,
        object: Option<&Node>,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name: lease_name(node),
            identity: identity.to_owned(),
            owner: object.and_then(owner),
            taken: false,
        }
    }

    /// Takes the Lease; false when `stop` comes first.
    pub(super) async fn take(&mut self, stop: &CancellationToken) -> bool {
        loop {
            match self.timely().await {
                Ok(Beat::Alive) => return true,
                Ok(_) => {}
                Err(error) => tracing::warn!("take the lease: {}", error.chain()),
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Renews it until `stop`, or until another process has taken it: then returns who.
    pub(super) async fn keep(&mut self, stop: &CancellationToken) -> Option<String> {
        let mut pause = RENEW;
        loop {
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.timely().await {
                Ok(Beat::Alive) => RENEW,
                Ok(Beat::Missed) => AGAIN,
                Ok(Beat::Replaced(holder)) => return Some(holder),
                Err(error) => {
                    tracing::warn!("renew the lease: {}", error.chain());
                    AGAIN
                }
            };
        }
    }

    /// One beat, which must not take longer than until the next.
    async fn timely(&mut self) -> Result<Beat> {
        tokio::time::timeout(RENEW, self.beat())
            .await
            .unwrap_or_else(|_| Err(Error::Setup("no answer".to_owned())))
    }

    async fn beat(&mut self) -> Result<Beat> {
        let found = self
            .api
            .get_opt(&self.name)
            .await
            .map_err(Error::api(format!("read lease {}", self.name)))?;
        let params = PostParams::default();
        let written = match found {
            None => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                self.api.create(&params, &self.renewed(lease)).await
            }
            Some(lease) => {
                let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.clone());
                if let Some(holder) = holder.filter(|holder| self.taken && *holder != self.identity)
                {
                    return Ok(Beat::Replaced(holder));
                }
                self.api
                    .replace(&self.name, &params, &self.renewed(lease))
                    .await
            }
        };
        match written {
            Ok(_) => {
                self.taken = true;
                Ok(Beat::Alive)
            }
            Err(kube::Error::Api(status))
                if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
            {
                Ok(Beat::Missed)
            }
            Err(error) => Err(Error::api(format!("write lease {}", self.name))(error)),
        }
    }

    fn renewed(&self, mut lease: Lease) -> Lease {
        let labels = lease.metadata.labels.get_or_insert_with(BTreeMap::new);
        labels.insert(label::BOWLINE_ROLE.to_owned(), NODE_AGENT.to_owned());
        lease.metadata.owner_references = self.owner.clone().map(|owner| vec![owner]);
        let now = MicroTime(Timestamp::now());
        let old = lease.spec.unwrap_or_default();
        let ours = old.holder_identity.as_deref() == Some(&self.identity);
        let transitions = old.lease_transitions.unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(VALID.as_secs()).ok(),
            acquire_time: if ours {
                old.acquire_time
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(if ours { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        });
        lease
    }
}

fn owner(node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name_any(),
        uid: node.uid()?,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::ApiServer;

    use super::*;

    fn processes() -> (Heartbeat, Heartbeat) {
        let client = Client::new(ApiServer::default(), "default");
        let new = |identity| Heartbeat::new(&client, "default", "n1", identity, None);
        (new("a"), new("b"))
    }

    #[tokio::test]
    async fn the_newest_process_has_the_lease() {
        let (mut a, mut b) = processes();
        assert_eq!(a.beat().await.unwrap(), Beat::Alive);
        assert_eq!(a.beat().await.unwrap(), Beat::Alive, "renewed");
        assert_eq!(b.beat().await.unwrap(), Beat::Alive, "taken at once");
        assert_eq!(a.beat().await.unwrap(), Beat::Replaced("b".to_owned()));
        assert_eq!(b.beat().await.unwrap(), Beat::Alive);
    }

    #[tokio::test]
    async fn a_lease_says_who_and_for_how_long() {
        let (mut a, _) = processes();
        a.beat().await.unwrap();
        let lease = a.api.get("bowline-node-n1").await.unwrap();
        assert_eq!(lease.labels()["bowline.io/role"], "node-agent");
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!(spec.lease_duration_seconds, Some(30));
        assert!(spec.renew_time.is_some());
        a.api
            .delete("bowline-node-n1", &Default::default())
            .await
            .unwrap();
        assert_eq!(a.beat().await.unwrap(), Beat::Alive, "made again");
    }
}
