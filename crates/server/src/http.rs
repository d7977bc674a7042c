//! What the server answers over HTTP: metrics, whether it lives, whether it is ready, and the files
//! of locations that are folders.

mod objects;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{Context, Error, Result};

/// The format of a scrape.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Listens on an address in Go's spelling: without a host, on all of them.
///
/// # Errors
/// When the address cannot be understood or is taken.
pub async fn bind(address: &str) -> Result<TcpListener> {
    let failed = |why: &dyn std::fmt::Display| {
        Error::Setup(format!("listen on metrics address {address:?}: {why}"))
    };
    let listener = match address.strip_prefix(':') {
        Some(port) => {
            let port = port.parse::<u16>().map_err(|e| failed(&e))?;
            // One socket for both families, unless the machine has but the old one.
            match TcpListener::bind(SocketAddr::from(([0u16; 8], port))).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind(SocketAddr::from(([0u8; 4], port))).await,
            }
        }
        None => TcpListener::bind(address).await,
    };
    listener.map_err(|e| failed(&e))
}

/// The routes. `ready` says whether the server does its work, or stands by to do it.
pub fn router(ctx: Arc<Context>, ready: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/objects/{bucket}/{*key}", get(objects::get))
        .with_state(ctx)
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readiness).with_state(ready))
}

/// Serves until `stop`.
///
/// # Errors
/// When the socket fails.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> Result<()> {
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(|e| Error::Setup(format!("serve metrics: {e}")))
}

async fn metrics(State(ctx): State<Arc<Context>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, TEXT)], ctx.metrics.text())
}

async fn readiness(State(ready): State<watch::Receiver<bool>>) -> (StatusCode, &'static str) {
    if *ready.borrow() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    }
}

#[cfg(test)]
mod tests {
    use super::bind;

    #[tokio::test]
    async fn addresses_are_in_the_spelling_of_go() {
        for (address, is_open) in [(":0", true), ("127.0.0.1:0", true), ("localhost:0", true)] {
            let port = bind(address).await.unwrap().local_addr().unwrap();
            assert_eq!(port.ip().is_unspecified() || !is_open, address == ":0");
        }
        for address in [":many", "8085", ""] {
            let why = bind(address).await.unwrap_err().to_string();
            assert!(why.contains(&format!("{address:?}")), "{why}");
        }
    }
}
