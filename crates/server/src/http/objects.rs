//! Files of locations that are folders, for whoever has a signed URL.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bowline_api::v1::BackupStorageLocation;
use bowline_vault::store::filesystem;
use kube::api::ListParams;

use crate::Context;

/// Answers with an object, if the signature is good.
pub(super) async fn get(
    State(ctx): State<Arc<Context>>,
    Path((bucket, key)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let refused = (
        StatusCode::FORBIDDEN,
        "this address is not good, or no more",
    )
        .into_response();
    let Some((expires, signature)) = signature(query.as_deref().unwrap_or_default()) else {
        return refused;
    };
    let locations = match ctx
        .api::<BackupStorageLocation>()
        .list(&ListParams::default())
        .await
    {
        Ok(list) => list.items,
        Err(e) => {
            tracing::error!("list backup storage locations for a download: {e}");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let now = u64::try_from(ctx.now().as_second()).unwrap_or_default();
    let mut answer = refused;
    // Several folders may hold a bucket of this name.
    for mut location in locations {
        if !is_folder(&location) || location.spec.object_storage.bucket != bucket {
            continue;
        }
        let Ok(secrets) = ctx.location(&location).await else {
            continue;
        };
        let is_good = filesystem::signer(&secrets)
            .is_ok_and(|signer| signer.check(&bucket, &key, expires, signature, now));
        if !is_good {
            continue;
        }
        // What is signed is the whole key.
        location.spec.object_storage.prefix = None;
        let opened = ctx.bucket(&location).await.map_err(|e| e.chain());
        let found = match opened {
            Ok(bucket) => bucket.get(&key).await,
            Err(why) => {
                tracing::error!(key, "open a folder for a download: {why}");
                answer = StatusCode::SERVICE_UNAVAILABLE.into_response();
                continue;
            }
        };
        match found {
            Ok(stream) => {
                let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
                return (kind, Body::from_stream(stream)).into_response();
            }
            Err(e) if e.is_not_found() => answer = StatusCode::NOT_FOUND.into_response(),
            Err(e) => {
                tracing::error!(key, "download: {e}");
                answer = StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
        }
    }
    answer
}

fn is_folder(location: &BackupStorageLocation) -> bool {
    let provider = &location.spec.provider;
    let provider = provider.strip_prefix("velero.io/").unwrap_or(provider);
    matches!(provider, "filesystem" | "fs")
}

/// `expires=<seconds>&signature=<hex>`.
fn signature(query: &str) -> Option<(u64, &str)> {
    let value = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    Some((value("expires")?.parse().ok()?, value("signature")?))
}

#[cfg(test)]
mod tests {
    use super::signature;

    #[test]
    fn both_parts_of_a_signature_are_needed() {
        assert_eq!(signature("expires=5&signature=ab"), Some((5, "ab")));
        assert_eq!(signature("x=1&signature=ab&expires=5"), Some((5, "ab")));
        for bad in ["", "expires=5", "signature=ab", "expires=x&signature=ab"] {
            assert_eq!(signature(bad), None, "{bad}");
        }
    }
}
