//! Google Cloud Storage, with the settings of Velero's GCP plugin.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::{
    ClientOptions, HeaderValue,
    client::{
        HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
        ReqwestConnector,
    },
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
};
use reqwest::Method;
use serde::Deserialize;

use super::{
    Access, Settings, http,
    remote::{Clients, Remote},
};
use crate::{Error, ObjectStore, Result};

/// The settings that the plugin knows, in its order, and one that all our HTTP stores have.
const KEYS: &[&str] = &[
    "kmsKeyName",
    "serviceAccount",
    "credentialsFile",
    "storeEndpoint",
    "universeDomain",
    "insecureSkipTLSVerify",
];

/// Opens a bucket: as the account of the location's Secret, of the file that
/// `GOOGLE_APPLICATION_CREDENTIALS` names, or as the machine. In the last case URLs are signed as
/// the account that the machine has, whatever `serviceAccount` says.
pub(super) fn open(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    settings.only(KEYS)?;
    let account = account(settings)?;
    let endpoint = endpoint(settings, account.as_ref());
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(&settings.bucket)
        .with_client_options(settings.http()?.options(&endpoint))
        .with_retry(http::retry())
        .with_config(GoogleConfigKey::BaseUrl, &endpoint);
    if let Some(account) = account {
        builder = builder.with_service_account_key(account.text);
    }
    if let Some(key) = settings.get("kmsKeyName") {
        let key = HeaderValue::from_str(key)
            .map_err(|_| Error::Settings(format!("kmsKeyName {key:?} is no key's name")))?;
        builder = builder.with_http_connector(WithKey(key));
    }
    let store = builder
        .build()
        .map_err(|e| Error::Settings(format!("open bucket {}: {e}", settings.bucket)))?;
    let store = Arc::new(store);
    let clients = Clients {
        objects: store.clone(),
        pages: store.clone(),
        signer: store,
    };
    Ok(Arc::new(Remote::new(endpoint, &settings.bucket, clients)))
}

/// Where the bucket is, and the key file of who we are.
pub(super) fn access(settings: &Settings) -> Result<Access> {
    let account = account(settings)?;
    Ok(Access::Gcp {
        endpoint: endpoint(settings, account.as_ref()),
        account: account.map(|account| account.text),
    })
}

fn account(settings: &Settings) -> Result<Option<Account>> {
    settings
        .credentials("GOOGLE_APPLICATION_CREDENTIALS")?
        .map(|(place, text)| Account::read(&place, text))
        .transpose()
}

fn endpoint(settings: &Settings, account: Option<&Account>) -> String {
    let domain = settings.get("universeDomain").unwrap_or("googleapis.com");
    let endpoint = match (settings.get("storeEndpoint"), account) {
        (Some(endpoint), _) if endpoint.contains("://") => endpoint.to_owned(),
        (Some(endpoint), _) => format!("https://{endpoint}"),
        (None, Some(account)) if account.base_url.is_some() => {
            account.base_url.clone().unwrap_or_default()
        }
        (None, _) => format!("https://storage.{domain}"),
    };
    endpoint.trim_end_matches('/').to_owned()
}

/// A service account's key file.
struct Account {
    text: String,
    base_url: Option<String>,
}

impl Account {
    fn read(place: &str, text: String) -> Result<Self> {
        #[derive(Deserialize)]
        struct File {
            r#type: Option<String>,
            gcs_base_url: Option<String>,
        }
        // The error of the parser could show what it read.
        let file: File = serde_json::from_str(&text).map_err(|_| {
            Error::Settings(format!(
                "unable to get credentials: error parsing {place}; should be JSON"
            ))
        })?;
        match file.r#type.as_deref() {
            None | Some("service_account") => Ok(Self {
                text,
                base_url: file.gcs_base_url,
            }),
            Some(other) => Err(Error::Settings(format!(
                "unable to get credentials: {place} is of type {other:?}; only \"service_account\" \
                 is supported"
            ))),
        }
    }
}

/// Makes clients that ask for objects to be encrypted with a key of the customer's. The key's name
/// belongs into requests that make an object, and into no other.
#[derive(Debug)]
struct WithKey(HeaderValue);

impl HttpConnector for WithKey {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(KeySender {
            inner,
            key: self.0.clone(),
        }))
    }
}

#[derive(Debug)]
struct KeySender {
    inner: HttpClient,
    key: HeaderValue,
}

#[async_trait]
impl HttpService for KeySender {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if makes_an_object(request.method(), request.uri().query().unwrap_or_default()) {
            let name = "x-goog-encryption-kms-key-name";
            request.headers_mut().insert(name, self.key.clone());
        }
        self.inner.execute(request).await
    }
}

/// Whether a request puts an object in one piece or begins one of many.
fn makes_an_object(method: &Method, query: &str) -> bool {
    match *method {
        Method::PUT => !query.contains("partNumber="),
        Method::POST => query
            .split('&')
            .any(|part| part == "uploads" || part == "uploads="),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(config: &[(&str, &str)], secret: Option<&str>) -> Settings {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        Settings {
            config: config.iter().map(pair).collect(),
            bucket: "b".into(),
            credential: secret.map(|s| s.as_bytes().to_vec()),
            ca: None,
            customer_key: None,
            env: |_| None,
        }
    }

    #[test]
    fn endpoints_come_from_the_settings_first() {
        for (config, expected) in [
            (&[][..], "https://storage.googleapis.com"),
            (&[("universeDomain", "u.cloud")], "https://storage.u.cloud"),
            (
                &[("storeEndpoint", "s.p.googleapis.com")],
                "https://s.p.googleapis.com",
            ),
            (
                &[("storeEndpoint", "http://127.0.0.1:1/")],
                "http://127.0.0.1:1",
            ),
        ] {
            assert_eq!(endpoint(&settings(config, None), None), expected);
        }
    }

    #[test]
    fn credentials_of_other_kinds_are_refused_by_name() {
        for (secret, words) in [
            (
                r#"{"type":"external_account"}"#,
                "is of type \"external_account\"",
            ),
            ("hush", "the credential's Secret; should be JSON"),
        ] {
            let error = open(&settings(&[], Some(secret))).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_machine_needs_no_credentials_to_open() {
        assert!(
            open(&settings(
                &[("kmsKeyName", "projects/p"), ("serviceAccount", "s")],
                None
            ))
            .is_ok()
        );
        let error = open(&settings(&[("region", "x")], None)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "config has invalid keys [region]; valid keys are [kmsKeyName serviceAccount \
             credentialsFile storeEndpoint universeDomain insecureSkipTLSVerify bucket prefix \
             caCert]"
        );
    }

    #[test]
    fn only_requests_that_make_an_object_name_the_key() {
        for (method, query, expected) in [
            (Method::PUT, "", true),
            (Method::PUT, "partNumber=1&uploadId=x", false),
            (Method::POST, "uploads", true),
            (Method::POST, "uploadId=x", false),
            (Method::GET, "", false),
            (Method::DELETE, "uploadId=x", false),
        ] {
            assert_eq!(
                makes_an_object(&method, query),
                expected,
                "{method} {query}"
            );
        }
    }
}
