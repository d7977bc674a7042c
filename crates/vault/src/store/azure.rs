//! Azure Blob Storage, with the settings of Velero's Azure plugin.

mod exchange;

use std::sync::Arc;

use bowline_api::StringMap;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use self::exchange::Exchange;
use super::{
    Access, Settings, credentials,
    http::{self, Http},
    remote::{Clients, Remote},
};
use crate::{Error, ObjectStore, Result};

/// The settings that the plugin knows, in its order, and one that all our HTTP stores have.
const KEYS: &[&str] = &[
    "resourceGroup",
    "storageAccount",
    "subscriptionId",
    "blockSizeInBytes",
    "activeDirectoryAuthorityURI",
    "storageAccountURI",
    "useAAD",
    "storageAccountKeyEnvVar",
    "credentialsFile",
    "insecureSkipTLSVerify",
];

/// The largest block, as the plugin has it.
const LARGEST_BLOCK: usize = 100 << 20;

/// Opens a container. The account's key comes from the credentials, or is asked for at the first
/// call, as whoever the credentials say we are; with `useAAD` no key is needed.
pub(super) fn open(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    let (variables, cloud, plan) = read(settings)?;
    let endpoint = plan.endpoint.clone();
    let mut remote = match key(settings, &variables)? {
        Some(key) => Remote::new(endpoint, &settings.bucket, plan.with_key(&key)?),
        None => {
            let identity = Identity::find(&variables)?;
            if settings.flag("useAAD")? {
                Remote::new(endpoint, &settings.bucket, plan.with_identity(&identity)?)
            } else {
                let exchange = Exchange::new(settings, &variables, plan, identity, cloud.manager)?;
                Remote::later(endpoint, &settings.bucket, exchange)
            }
        }
    };
    remote.part = block_size(settings.get("blockSizeInBytes")).unwrap_or(remote.part);
    Ok(Arc::new(remote))
}

/// What the settings come to.
fn read(settings: &Settings) -> Result<(Variables<'_>, Cloud, Plan)> {
    settings.only(KEYS)?;
    let account = settings
        .get("storageAccount")
        .ok_or_else(|| Error::Settings("storageAccount is required in BSL".into()))?;
    let variables = Variables::read(settings)?;
    let cloud = cloud(&variables.get("AZURE_CLOUD_NAME").unwrap_or_default())?;
    let authority = settings
        .get("activeDirectoryAuthorityURI")
        .unwrap_or(cloud.authority);
    let endpoint = match settings.get("storageAccountURI") {
        Some(uri) => uri.to_owned(),
        None => format!("https://{account}.{}", cloud.blobs),
    };
    let plan = Plan {
        account: account.to_owned(),
        container: settings.bucket.clone(),
        endpoint: endpoint.trim_end_matches('/').to_owned(),
        authority: authority.trim_end_matches('/').to_owned(),
        http: settings.http()?,
    };
    Ok((variables, cloud, plan))
}

/// Where the account is, and who we are to it. Nobody is asked for a key here.
pub(super) fn access(settings: &Settings) -> Result<Access> {
    let (variables, _, plan) = read(settings)?;
    let key = key(settings, &variables)?;
    let variables = match key {
        Some(_) => Vec::new(),
        None => Identity::find(&variables)?.variables(&plan.authority),
    };
    Ok(Access::Azure {
        account: plan.account,
        endpoint: plan.endpoint,
        key,
        variables,
    })
}

/// The size to begin with. Like the plugin, what cannot be used is passed over: a backup in other
/// pieces is as good.
fn block_size(text: Option<&str>) -> Option<usize> {
    let size: usize = text?.parse().ok()?;
    (size > 0).then(|| size.min(LARGEST_BLOCK))
}

/// The account's key, if the credentials hold it.
fn key(settings: &Settings, variables: &Variables<'_>) -> Result<Option<String>> {
    if let Some(name) = settings.get("storageAccountKeyEnvVar") {
        return match variables.get(name) {
            Some(key) => Ok(Some(key)),
            None => Err(Error::Settings(format!(
                "no storage account access key with key {name} found in credential"
            ))),
        };
    }
    if settings.flag("useAAD")? {
        return Ok(None);
    }
    Ok(variables
        .get("AZURE_STORAGE_ACCOUNT_ACCESS_KEY")
        .or_else(|| variables.get("AZURE_STORAGE_KEY")))
}

/// What the credentials file says, and for the rest the environment.
struct Variables<'a> {
    file: StringMap,
    settings: &'a Settings,
}

impl<'a> Variables<'a> {
    fn read(settings: &'a Settings) -> Result<Self> {
        let file = settings.credentials("AZURE_CREDENTIALS_FILE")?;
        Ok(Self {
            file: file.map_or_else(StringMap::new, |(_, text)| credentials::variables(&text)),
            settings,
        })
    }

    fn get(&self, name: &str) -> Option<String> {
        let found = self.file.get(name).filter(|value| !value.is_empty());
        found.cloned().or_else(|| self.settings.env(name))
    }
}

/// The addresses of one of Azure's clouds.
struct Cloud {
    blobs: &'static str,
    authority: &'static str,
    manager: &'static str,
}

fn cloud(name: &str) -> Result<Cloud> {
    match name.to_ascii_uppercase().as_str() {
        "" | "AZURECLOUD" | "AZUREPUBLICCLOUD" => Ok(Cloud {
            blobs: "blob.core.windows.net",
            authority: "https://login.microsoftonline.com",
            manager: "https://management.azure.com",
        }),
        "AZURECHINACLOUD" => Ok(Cloud {
            blobs: "blob.core.chinacloudapi.cn",
            authority: "https://login.chinacloudapi.cn",
            manager: "https://management.chinacloudapi.cn",
        }),
        "AZUREUSGOVERNMENT" | "AZUREUSGOVERNMENTCLOUD" => Ok(Cloud {
            blobs: "blob.core.usgovcloudapi.net",
            authority: "https://login.microsoftonline.us",
            manager: "https://management.usgovcloudapi.net",
        }),
        _ => Err(Error::Settings(format!("unknown cloud: {name}"))),
    }
}

/// Who we are to Azure. Never shown: it holds a secret.
enum Identity {
    Secret {
        tenant: String,
        client: String,
        secret: String,
    },
    Workload {
        tenant: String,
        client: String,
        token_file: String,
    },
    Machine {
        client: Option<String>,
    },
}

impl Identity {
    fn find(variables: &Variables<'_>) -> Result<Self> {
        let need = |name: &str| {
            let missing = || Error::Settings(format!("{name} is required"));
            variables.get(name).ok_or_else(missing)
        };
        if let Some(secret) = variables.get("AZURE_CLIENT_SECRET") {
            return Ok(Self::Secret {
                tenant: need("AZURE_TENANT_ID")?,
                client: need("AZURE_CLIENT_ID")?,
                secret,
            });
        }
        for other in [
            "AZURE_CLIENT_CERTIFICATE",
            "AZURE_CLIENT_CERTIFICATE_PATH",
            "AZURE_USERNAME",
        ] {
            if variables.get(other).is_some() {
                return Err(Error::Settings(format!(
                    "unable to get credentials: {other} is not supported; use \
                     AZURE_CLIENT_SECRET, a workload identity, or a storage account key"
                )));
            }
        }
        if let Some(token_file) = variables.get("AZURE_FEDERATED_TOKEN_FILE") {
            return Ok(Self::Workload {
                tenant: need("AZURE_TENANT_ID")?,
                client: need("AZURE_CLIENT_ID")?,
                token_file,
            });
        }
        Ok(Self::Machine {
            client: variables.get("AZURE_CLIENT_ID"),
        })
    }

    /// The variables that say so to Azure's libraries; those that must not be set have no value.
    fn variables(self, authority: &str) -> Vec<(&'static str, String)> {
        let (tenant, client, secret, token_file) = match self {
            Self::Secret {
                tenant,
                client,
                secret,
            } => (tenant, client, secret, String::new()),
            Self::Workload {
                tenant,
                client,
                token_file,
            } => (tenant, client, String::new(), token_file),
            Self::Machine { client } => (
                String::new(),
                client.unwrap_or_default(),
                String::new(),
                String::new(),
            ),
        };
        vec![
            ("AZURE_TENANT_ID", tenant),
            ("AZURE_CLIENT_ID", client),
            ("AZURE_CLIENT_SECRET", secret),
            ("AZURE_FEDERATED_TOKEN_FILE", token_file),
            ("AZURE_AUTHORITY_HOST", authority.to_owned()),
        ]
    }
}

/// All that is needed to make a client, but for who we are.
struct Plan {
    account: String,
    container: String,
    endpoint: String,
    authority: String,
    http: Http,
}

impl Plan {
    fn with_key(&self, key: &str) -> Result<Clients> {
        self.clients(self.builder().with_access_key(key))
    }

    fn with_identity(&self, identity: &Identity) -> Result<Clients> {
        let builder = self.builder().with_authority_host(&self.authority);
        self.clients(match identity {
            Identity::Secret {
                tenant,
                client,
                secret,
            } => builder.with_client_secret_authorization(client, secret, tenant),
            Identity::Workload {
                tenant,
                client,
                token_file,
            } => builder
                .with_tenant_id(tenant)
                .with_client_id(client)
                .with_federated_token_file(token_file),
            Identity::Machine { client } => match client {
                Some(client) => builder.with_client_id(client),
                None => builder,
            },
        })
    }

    fn builder(&self) -> MicrosoftAzureBuilder {
        MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(&self.container)
            .with_config(AzureConfigKey::Endpoint, &self.endpoint)
            .with_client_options(self.http.options(&self.endpoint))
            .with_retry(http::retry())
    }

    fn clients(&self, builder: MicrosoftAzureBuilder) -> Result<Clients> {
        // A key that is no base64 is refused here; the error does not show it.
        let store = builder
            .build()
            .map_err(|e| Error::Settings(format!("open container {}: {e}", self.container)))?;
        let store = Arc::new(store);
        Ok(Clients {
            objects: store.clone(),
            pages: store.clone(),
            signer: store,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_open(config: &[(&str, &str)], secret: &str) -> Result<Arc<dyn ObjectStore>> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        open(&Settings {
            config: config.iter().map(pair).collect(),
            bucket: "b".into(),
            credential: Some(secret.as_bytes().to_vec()),
            ca: None,
            customer_key: None,
            env: |_| None,
        })
    }

    const PRINCIPAL: &str = "AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=hush\n";

    #[test]
    fn each_way_in_opens() {
        let account = ("storageAccount", "acc");
        for (config, secret, endpoint) in [
            (
                &[account, ("storageAccountKeyEnvVar", "K")][..],
                "K=aHVzaA==\nAZURE_CLOUD_NAME=AzureChinaCloud",
                "https://acc.blob.core.chinacloudapi.cn",
            ),
            (
                &[account, ("storageAccountURI", "http://127.0.0.1:1/acc/")],
                "AZURE_STORAGE_ACCOUNT_ACCESS_KEY=aHVzaA==",
                "http://127.0.0.1:1/acc",
            ),
            (
                &[account, ("useAAD", "true")],
                PRINCIPAL,
                "https://acc.blob.core.windows.net",
            ),
            (
                &[account, ("useAAD", "true")],
                "",
                "https://acc.blob.core.windows.net",
            ),
            (
                &[account, ("resourceGroup", "r"), ("subscriptionId", "s")],
                PRINCIPAL,
                "https://acc.blob.core.windows.net",
            ),
        ] {
            let store = try_open(config, secret).unwrap();
            assert_eq!(store.endpoint(), endpoint);
            assert!(!format!("{store:?}").contains("hush"));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let account = ("storageAccount", "acc");
        for (config, secret, words) in [
            (&[][..], "", "storageAccount is required in BSL"),
            (
                &[account, ("storageAccountKeyEnvVar", "K")],
                "X=1",
                "no storage account access key with key K found in credential",
            ),
            (&[account], "AZURE_CLOUD_NAME=Moon", "unknown cloud: Moon"),
            (
                &[account],
                "AZURE_CLIENT_SECRET=x",
                "AZURE_TENANT_ID is required",
            ),
            (
                &[account, ("useAAD", "maybe")],
                "",
                "could not parse useAAD (expected bool)",
            ),
            (
                &[account],
                PRINCIPAL,
                "subscription ID is required in BSL or credential",
            ),
            (
                &[account, ("apiTimeout", "1m")],
                "",
                "invalid keys [apiTimeout]",
            ),
        ] {
            let error = try_open(config, secret).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn blocks_are_as_large_as_asked_within_reason() {
        for (text, expected) in [
            (None, None),
            (Some("x"), None),
            (Some("0"), None),
            (Some("1048576"), Some(1 << 20)),
            (Some("999999999"), Some(LARGEST_BLOCK)),
        ] {
            assert_eq!(block_size(text), expected);
        }
    }
}
