//! What all HTTP stores have in common: certificates, time limits and the retries of one request.

use std::time::Duration;

use object_store::{BackoffConfig, Certificate, ClientOptions, HeaderValue, RetryConfig};

use crate::{Error, Result};

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(10);

/// How long nothing may arrive: a request without an answer, a body without bytes. It includes the
/// time to send a part, so a part of 5 MiB needs some 100 KB/s.
const SILENCE: Duration = Duration::from_secs(45);

/// How a store is reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Http {
    pem: Vec<u8>,
    certificates: Vec<Certificate>,
    insecure: bool,
}

impl Http {
    /// Trusts the certificates of the bundle `ca` besides those of the system; or, when `insecure`,
    /// whoever answers.
    pub(super) fn new(ca: Option<&[u8]>, insecure: bool) -> Result<Self> {
        let certificates = match ca {
            Some(pem) => Certificate::from_pem_bundle(pem)
                .ok()
                .filter(|found| !found.is_empty())
                .ok_or_else(|| Error::Settings("caCert holds no PEM certificate".into()))?,
            None => Vec::new(),
        };
        Ok(Self {
            pem: ca.unwrap_or_default().to_vec(),
            certificates,
            insecure,
        })
    }

    /// A client for questions that are not about objects.
    pub(super) fn client(&self) -> Result<reqwest::Client> {
        use_ring();
        let failed = |e: reqwest::Error| Error::Settings(format!("make an HTTP client: {e}"));
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .danger_accept_invalid_certs(self.insecure);
        if !self.pem.is_empty() {
            let extra = reqwest::Certificate::from_pem_bundle(&self.pem).map_err(failed)?;
            builder = builder.tls_certs_merge(extra);
        }
        builder.build().map_err(failed)
    }

    /// The options for an endpoint. Proxies are those of the environment.
    pub(super) fn options(&self, endpoint: &str) -> ClientOptions {
        use_ring();
        let plain = endpoint.starts_with("http://");
        let options = ClientOptions::new()
            .with_user_agent(HeaderValue::from_static(concat!(
                "bowline/",
                env!("CARGO_PKG_VERSION")
            )))
            .with_allow_http(plain)
            .with_allow_invalid_certificates(self.insecure)
            // Reading the system's certificates costs memory, and fails where there are none.
            .with_no_system_certificates(plain)
            .with_connect_timeout(CONNECT)
            .with_read_timeout(SILENCE)
            .with_timeout_disabled()
            .with_pool_max_idle_per_host(4);
        self.certificates
            .iter()
            .cloned()
            .fold(options, ClientOptions::with_root_certificate)
    }
}

/// Retries of one request. They matter for the parts of an upload, which nobody else repeats; a
/// dead endpoint must still show within a minute.
pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(4),
            base: 2.0,
        },
        max_retries: 3,
        retry_timeout: Duration::from_secs(25),
    }
}

/// TLS needs to be told whose cryptography to use; a process that has not said so means ring.
fn use_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
