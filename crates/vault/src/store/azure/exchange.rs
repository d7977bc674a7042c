//! Asking Azure for the key of a storage account: what happens when a location neither has the key
//! nor wants to do without one (`useAAD`).

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;

use super::{
    super::{
        Settings,
        remote::{Clients, Connect},
    },
    Identity, Plan, Variables,
};
use crate::{Error, Result};

/// How long each of the two questions may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Where a machine asks who it is.
const MACHINE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

pub(super) struct Exchange {
    plan: Plan,
    identity: Identity,
    manager: &'static str,
    subscription: String,
    group: String,
    client: reqwest::Client,
}

impl Exchange {
    pub(super) fn new(
        settings: &Settings,
        variables: &Variables<'_>,
        plan: Plan,
        identity: Identity,
        manager: &'static str,
    ) -> Result<Self> {
        let find = |setting: &str, variable: &str, what: &str| {
            settings
                .get(setting)
                .map(str::to_owned)
                .or_else(|| variables.get(variable))
                .ok_or_else(|| {
                    Error::Settings(format!(
                        "{what} is required in BSL or credential to exchange the storage account \
                         access key; useAAD: \"true\" does without"
                    ))
                })
        };
        Ok(Self {
            subscription: find("subscriptionId", "AZURE_SUBSCRIPTION_ID", "subscription ID")?,
            group: find("resourceGroup", "AZURE_RESOURCE_GROUP", "resource group")?,
            client: plan.http.client()?,
            plan,
            identity,
            manager,
        })
    }

    /// A token for the manager of accounts.
    async fn token(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Answer {
            access_token: String,
        }
        let url = |tenant: &str| format!("{}/{tenant}/oauth2/v2.0/token", self.plan.authority);
        let scope = format!("{}/.default", self.manager);
        let request = match &self.identity {
            Identity::Secret {
                tenant,
                client,
                secret,
            } => self.client.post(url(tenant)).body(form(&[
                ("grant_type", "client_credentials"),
                ("client_id", client),
                ("client_secret", secret),
                ("scope", &scope),
            ])),
            Identity::Workload {
                tenant,
                client,
                token_file,
            } => {
                let assertion = tokio::fs::read_to_string(token_file).await.map_err(|e| {
                    Error::Settings(format!("unable to get credentials: {token_file}: {e}"))
                })?;
                self.client.post(url(tenant)).body(form(&[
                    ("grant_type", "client_credentials"),
                    ("client_id", client),
                    (
                        "client_assertion_type",
                        "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                    ),
                    ("client_assertion", assertion.trim()),
                    ("scope", &scope),
                ]))
            }
            Identity::Machine { client } => {
                let mut query = vec![("api-version", "2018-02-01"), ("resource", self.manager)];
                query.extend(client.as_deref().map(|client| ("client_id", client)));
                let url = format!("{MACHINE}?{}", form(&query));
                self.client.get(url).header("Metadata", "true")
            }
        };
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer: Answer = self.ask("get a token", request).await?;
        Ok(answer.access_token)
    }

    async fn key(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Answer {
            keys: Vec<Key>,
        }
        #[derive(Deserialize)]
        struct Key {
            permissions: Option<String>,
            value: Option<String>,
        }
        let url = format!(
            "{}/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Storage/storageAccounts/{}\
             /listKeys?api-version=2023-01-01&$expand=kerb",
            self.manager, self.subscription, self.group, self.plan.account
        );
        let request = self
            .client
            .post(url)
            .bearer_auth(self.token().await?)
            .header("content-length", "0");
        let answer: Answer = self.ask("list the keys", request).await?;
        let is_full = |key: &Key| {
            let permissions = key.permissions.as_deref().unwrap_or_default();
            permissions.eq_ignore_ascii_case("full")
        };
        answer
            .keys
            .into_iter()
            .find(is_full)
            .and_then(|key| key.value)
            .ok_or_else(|| {
                self.error(
                    "list the keys",
                    "no storage key with Full permissions found",
                    false,
                )
            })
    }

    async fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        what: &str,
        request: reqwest::RequestBuilder,
    ) -> Result<T> {
        let failed = |e: reqwest::Error| {
            let text = e.without_url().to_string();
            self.error(what, &text, true)
        };
        let answer = request.timeout(LIMIT).send().await.map_err(failed)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(failed)?;
        if !status.is_success() {
            let text = format!("{} (status {})", message(&body), status.as_u16());
            return Err(self.error(what, &text, status.is_server_error()));
        }
        serde_json::from_slice(&body)
            .map_err(|_| self.error(what, "the answer is not what was asked for", false))
    }

    fn error(&self, what: &str, reason: &str, retryable: bool) -> Error {
        Error::Store {
            action: format!("{what} of storage account {}", self.plan.account),
            reason: format!("failed to get storage account access key: {reason}"),
            retryable,
        }
    }
}

#[async_trait]
impl Connect for Exchange {
    async fn connect(&self) -> Result<Clients> {
        self.plan.with_key(&self.key().await?)
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

/// What Azure says about an error: `error_description`, or `error.code` and `error.message`.
fn message(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let text = text(&body["error_description"])
        .or_else(|| {
            let (code, message) = (&body["error"]["code"], &body["error"]["message"]);
            Some(format!("{}: {}", text(code)?, text(message)?))
        })
        .unwrap_or_else(|| "refused".into());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn azures_words_are_kept() {
        for (body, expected) in [
            (
                r#"{"error":"x","error_description":"AADSTS7000215: no\r\n way"}"#,
                "AADSTS7000215: no way",
            ),
            (
                r#"{"error":{"code":"AuthorizationFailed","message":"no"}}"#,
                "AuthorizationFailed: no",
            ),
            ("<html>", "refused"),
        ] {
            assert_eq!(message(body.as_bytes()), expected);
        }
    }
}
