//! An object store that is a plugin.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bowline_plugin::{
    Code, Error,
    host::Plugins,
    kinds::{Config, ObjectStore as Plugin},
};
use bowline_vault::{self as vault, ByteStream, ObjectStore, store::Entry};
use futures::{StreamExt, TryStreamExt};

/// A bucket of it. Its process ends with it.
pub(super) struct Store {
    plugins: Option<Plugins>,
    plugin: Arc<dyn Plugin>,
    bucket: String,
    /// For people.
    name: String,
}

impl Store {
    pub(super) async fn open(
        plugins: Plugins,
        provider: &str,
        bucket: &str,
        config: &Config,
    ) -> vault::Result<Self> {
        let opened = async {
            let plugin = plugins.object_store(provider)?;
            plugin.init(config).await?;
            Ok::<_, Error>(plugin)
        };
        let plugin = opened
            .await
            .map_err(|error| vault::Error::Settings(error.to_string()))?;
        Ok(Self {
            plugins: Some(plugins),
            plugin,
            bucket: bucket.to_owned(),
            name: format!("plugin {provider}"),
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(plugins) = self.plugins.take()
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            handle.spawn(async move { plugins.stop().await });
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with bucket {}", self.name, self.bucket)
    }
}

/// What a plugin says cannot be told apart: only a process that died is worth another try.
fn failed(action: &str, key: &str) -> impl Fn(Error) -> vault::Error + use<> {
    let action = format!("{action} {key}");
    move |error| vault::Error::Store {
        action: action.clone(),
        retryable: error.code() == Some(Code::Unavailable),
        reason: error.to_string(),
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put(&self, key: &str, body: ByteStream) -> vault::Result<()> {
        let body = body.map_err(Error::new).boxed();
        let put = self.plugin.put(&self.bucket, key, body);
        put.await.map_err(failed("put", key))
    }

    async fn get(&self, key: &str) -> vault::Result<ByteStream> {
        // There is no other way to know that it is not there.
        if !self.exists(key).await? {
            return Err(vault::Error::NotFound {
                key: key.to_owned(),
            });
        }
        let body = self.plugin.get(&self.bucket, key).await;
        let body = body.map_err(failed("get", key))?;
        Ok(body.map_err(failed("get", key)).boxed())
    }

    async fn exists(&self, key: &str) -> vault::Result<bool> {
        let exists = self.plugin.exists(&self.bucket, key);
        exists.await.map_err(failed("head", key))
    }

    /// Plugins do not say how large objects are.
    async fn list(&self, prefix: &str) -> vault::Result<Vec<Entry>> {
        let keys = self.plugin.list(&self.bucket, prefix).await;
        let mut keys = keys.map_err(failed("list", prefix))?;
        keys.sort_unstable();
        let entry = |key| Entry { key, size: 0 };
        Ok(keys.into_iter().map(entry).collect())
    }

    async fn folders(&self, prefix: &str) -> vault::Result<Vec<String>> {
        let found = self.plugin.common_prefixes(&self.bucket, "/", prefix);
        let mut found = found.await.map_err(failed("list", prefix))?;
        found.sort_unstable();
        Ok(found)
    }

    async fn delete(&self, key: &str) -> vault::Result<()> {
        let deleted = self.plugin.delete(&self.bucket, key);
        deleted.await.map_err(failed("delete", key))
    }

    async fn sign(&self, key: &str, ttl: Duration) -> vault::Result<String> {
        let signed = self.plugin.sign(&self.bucket, key, ttl);
        signed.await.map_err(failed("sign", key))
    }

    fn endpoint(&self) -> &str {
        &self.name
    }
}
