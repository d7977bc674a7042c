//! The server on a socket: HTTP/1.1 and HTTP/2, plain or with TLS.

use std::{net::IpAddr, sync::Arc};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{ApiServer, BoxError};

/// A certificate of our own making, and what to trust to believe it.
pub struct Identity {
    config: Arc<rustls::ServerConfig>,
    /// The certificate in PEM, for a client's `certificate-authority-data`.
    pub certificate: String,
}

impl Identity {
    /// A self-signed certificate for an address and for `localhost`.
    pub fn self_signed(address: IpAddr) -> Result<Self, BoxError> {
        let mut params = CertificateParams::new(["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(address));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            certificate: certificate.pem(),
        })
    }
}

impl ApiServer {
    /// Answers on a socket until `end`, then lets running requests finish; watches are cut.
    pub async fn serve(
        &self,
        listener: TcpListener,
        identity: Option<&Identity>,
        end: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let tls = identity.map(|identity| TlsAcceptor::from(identity.config.clone()));
        let graceful = GracefulShutdown::new();
        tokio::pin!(end);
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // Out of file descriptors, or the peer was gone already: the next may do better.
                    Err(_) => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                },
                () = &mut end => break,
            };
            let _ = stream.set_nodelay(true);
            let server = self.clone();
            let watcher = graceful.watcher();
            let tls = tls.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
                });
                let builder = Builder::new(TokioExecutor::new());
                // A client that goes away is no concern of ours.
                let _ = match tls {
                    None => {
                        let connection = builder
                            .serve_connection(TokioIo::new(stream), service)
                            .into_owned();
                        watcher.watch(connection).await
                    }
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => {
                            let connection = builder
                                .serve_connection(TokioIo::new(stream), service)
                                .into_owned();
                            watcher.watch(connection).await
                        }
                        Err(_) => Ok(()),
                    },
                };
            });
        }
        let patience = std::time::Duration::from_secs(2);
        let _ = tokio::time::timeout(patience, graceful.shutdown()).await;
        Ok(())
    }
}
