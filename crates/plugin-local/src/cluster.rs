//! Backup locations by way of the Kubernetes API, as the server sees them.

use async_trait::async_trait;
use bowline_api::{
    names::{DEFAULT_NAMESPACE, REPO_CREDENTIALS_KEY, REPO_CREDENTIALS_SECRET},
    v1::BackupStorageLocation,
};
use bowline_plugin::serve::host_flag;
use bowline_vault::Location;
use k8s_openapi::api::core::v1::{Secret, SecretKeySelector};
use kube::{
    Api, Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::sync::OnceCell;

use crate::{Error, Result, Vault, Vaults};

/// The location that is meant when none is marked as the default.
const DEFAULT: &str = "default";

/// The cluster of the host.
pub struct Cluster {
    kubeconfig: Option<String>,
    context: Option<String>,
    namespace: String,
    /// Made when it is needed: most calls do without.
    client: OnceCell<Client>,
}

impl Cluster {
    /// The cluster and namespace of the host, by its flags and its environment.
    #[must_use]
    pub fn of_host() -> Self {
        let flag = |name| host_flag(name).filter(|value| !value.is_empty());
        let said = std::env::var("VELERO_NAMESPACE").ok();
        let namespace = flag("namespace").or_else(|| flag("n"));
        let namespace = namespace.or_else(|| said.filter(|name| !name.is_empty()));
        Self {
            kubeconfig: flag("kubeconfig"),
            context: flag("kubecontext"),
            namespace: namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
            client: OnceCell::new(),
        }
    }

    async fn client(&self) -> Result<&Client> {
        self.client.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Client> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let failed = |error: &dyn std::error::Error| {
            Error::refused(format!("find a cluster: {}", crate::error::chain(error)))
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                let read = Config::from_custom_kubeconfig(file, &options).await;
                read.map_err(|error| failed(&error))?
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|error| failed(&error))?,
            None => Config::infer().await.map_err(|error| failed(&error))?,
        };
        Client::try_from(config).map_err(api("connect to the cluster"))
    }

    async fn location(&self, name: Option<&str>) -> Result<BackupStorageLocation> {
        let client = self.client().await?.clone();
        let locations: Api<BackupStorageLocation> = Api::namespaced(client, &self.namespace);
        if let Some(name) = name {
            let action = format!("read BackupStorageLocation {name}");
            let found = locations.get_opt(name).await.map_err(api(&action))?;
            return found.ok_or_else(|| {
                Error::refused(format!("there is no BackupStorageLocation {name}"))
            });
        }
        let all = locations.list(&Default::default()).await;
        let all = all.map_err(api("list BackupStorageLocations"))?.items;
        default(all).ok_or_else(|| {
            Error::refused(format!(
                "there is no default BackupStorageLocation in namespace {}; name one as \
                 backupLocation in the config of the VolumeSnapshotLocation",
                self.namespace
            ))
        })
    }

    /// A key of a Secret, or why there is none.
    async fn secret(&self, client: &Client, key: &SecretKeySelector) -> Result<Vec<u8>, String> {
        let SecretKeySelector { name, key, .. } = key;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let read = secrets.get_opt(name).await;
        let secret = read.map_err(|error| format!("read secret {name}: {error}"))?;
        let secret = secret.ok_or_else(|| format!("secret {name} not found"))?;
        let value = secret.data.and_then(|mut data| data.remove(key));
        let value = value.ok_or_else(|| format!("secret {name} has no key {key}"))?;
        Ok(value.0)
    }

    /// The password of all repositories.
    async fn password(&self, client: &Client) -> Result<String> {
        let unusable =
            |why: String| Error::refused(format!("password of volume repositories: {why}"));
        let key = SecretKeySelector {
            name: REPO_CREDENTIALS_SECRET.to_owned(),
            key: REPO_CREDENTIALS_KEY.to_owned(),
            optional: None,
        };
        let bytes = self.secret(client, &key).await.map_err(unusable)?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| unusable(format!("{REPO_CREDENTIALS_KEY} is not text")))?;
        Ok(text.trim().to_owned())
    }
}

#[async_trait]
impl Vaults for Cluster {
    async fn open(&self, location: Option<&str>) -> Result<Vault> {
        let client = self.client().await?;
        let object = self.location(location).await?;
        let named = |why: String| {
            Error::refused(format!(
                "BackupStorageLocation {}: {why}",
                object.name_any()
            ))
        };
        let secret = |key| async move { self.secret(client, &key).await };
        let resolved = Location::resolve(&object, secret).await.map_err(named)?;
        let bucket = bowline_vault::open(&resolved).map_err(|error| named(error.to_string()))?;
        let password = self.password(client).await?;
        Ok(Vault { bucket, password })
    }
}

/// The one that is marked, else the one that is called so.
fn default(all: Vec<BackupStorageLocation>) -> Option<BackupStorageLocation> {
    let rank = |location: &BackupStorageLocation| {
        let is_marked = location.spec.default == Some(true);
        let is_named = location.name_any() == DEFAULT;
        (is_marked || is_named).then_some((!is_marked, location.name_any()))
    };
    let ranked = all.into_iter().filter_map(|location| {
        let rank = rank(&location)?;
        Some((rank, location))
    });
    let least = ranked.min_by(|(a, _), (b, _)| a.cmp(b));
    least.map(|(_, location)| location)
}

fn api(action: &str) -> impl FnOnce(kube::Error) -> Error {
    let action = action.to_owned();
    move |source| Error::Api {
        action,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::BackupStorageLocationSpec;

    use super::*;

    #[test]
    fn the_default_location_is_marked_or_called_so() {
        for (all, expected) in [
            (
                &[("a", false), ("b", true), ("default", false)][..],
                Some("b"),
            ),
            (&[("a", false), ("default", false)], Some("default")),
            (&[("a", false)], None),
            (&[], None),
        ] {
            let object = |(name, is_default): &(&str, bool)| {
                let spec = BackupStorageLocationSpec {
                    default: is_default.then_some(true),
                    ..BackupStorageLocationSpec::default()
                };
                BackupStorageLocation::new("velero", name, spec)
            };
            let found = default(all.iter().map(object).collect());
            assert_eq!(found.map(|l| l.name_any()).as_deref(), expected);
        }
    }
}
