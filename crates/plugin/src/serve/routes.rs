//! What is asked of each kind, handed to the plugin of that name.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio_util::sync::CancellationToken;

use super::{Named, router::Router};
use crate::{
    Error, Result,
    convert::all,
    kinds::{
        BackupItemAction, Config, DeleteItemAction, ItemBlockAction, NewVolume, ObjectStore,
        RestoreItemAction, VolumeSnapshotter,
    },
    wire::{
        self, Addressed, BACKUP_ITEM_ACTION_V2, Data, Empty, HealthResponse, InitRequest,
        ListPluginsResponse, Method, PluginIdentifier, PutObjectRequest, RESTORE_ITEM_ACTION_V2,
        RelatedResponse, Text, Texts, Truth, VolumeInfoResponse, delete_item_action,
        item_block_action,
    },
};

const SERVING: i32 = 1;

pub(super) fn auxiliary(router: &mut Router, list: Vec<PluginIdentifier>, end: &CancellationToken) {
    use wire::auxiliary::{HEALTH, LIST, SHUTDOWN};
    router.unary(LIST, move |_| {
        let plugins = list.clone();
        async move { Ok(ListPluginsResponse { plugins }) }
    });
    let end = end.clone();
    router.unary(SHUTDOWN, move |_| {
        end.cancel();
        async { Ok(Empty {}) }
    });
    router.unary(HEALTH, |_| async { Ok(HealthResponse { status: SERVING }) });
}

/// The plugins of a kind.
struct Table<'a, T: ?Sized> {
    router: &'a mut Router,
    plugins: Arc<Named<T>>,
}

impl<'a, T: ?Sized + Send + Sync + 'static> Table<'a, T> {
    fn new(router: &'a mut Router, plugins: Named<T>) -> Self {
        Self {
            router,
            plugins: Arc::new(plugins),
        }
    }

    /// What is asked of the plugin that the request is for.
    fn on<Q, S, F, Fut>(&mut self, method: Method<Q, S>, ask: F) -> &mut Self
    where
        Q: Addressed,
        S: prost::Message + Default + 'static,
        F: Fn(Arc<T>, Q) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S>> + Send + 'static,
    {
        let plugins = Arc::clone(&self.plugins);
        self.router.unary(method, move |request: Q| {
            match find(&plugins, request.plugin()) {
                Ok(plugin) => ask(plugin, request).left_future(),
                Err(error) => async { Err(error) }.right_future(),
            }
        });
        self
    }
}

fn find<T: ?Sized>(plugins: &Named<T>, name: &str) -> Result<Arc<T>> {
    let found = plugins.get(name).map(Arc::clone);
    found.ok_or_else(|| {
        Error::Other(format!(
            " plugin: {name} was not found or has an invalid name format"
        ))
    })
}

fn config(request: InitRequest) -> Config {
    request.config.into_iter().collect()
}

pub(super) fn object_store(router: &mut Router, plugins: Named<dyn ObjectStore>) {
    use wire::object_store::{COMMON_PREFIXES, DELETE, EXISTS, GET, INIT, LIST, PUT, SIGN};
    let mut table = Table::new(router, plugins);
    table
        .on(INIT, |plugin, request| async move {
            plugin.init(&config(request)).await?;
            Ok(Empty {})
        })
        .on(EXISTS, |plugin, request| async move {
            let is_so = plugin.exists(&request.bucket, &request.key).await?;
            Ok(Truth { is_so })
        })
        .on(COMMON_PREFIXES, |plugin, request| async move {
            let (bucket, delimiter) = (&request.bucket, &request.delimiter);
            let found = plugin.common_prefixes(bucket, delimiter, &request.prefix);
            Ok(Texts {
                texts: found.await?,
            })
        })
        .on(LIST, |plugin, request| async move {
            let texts = plugin.list(&request.bucket, &request.key).await?;
            Ok(Texts { texts })
        })
        .on(DELETE, |plugin, request| async move {
            plugin.delete(&request.bucket, &request.key).await?;
            Ok(Empty {})
        })
        .on(SIGN, |plugin, request| async move {
            let ttl = Duration::from_nanos(request.ttl.try_into().unwrap_or_default());
            let text = plugin.sign(&request.bucket, &request.key, ttl).await?;
            Ok(Text { text })
        });
    let plugins = table.plugins;
    let stores = Arc::clone(&plugins);
    router.download(GET, move |request| {
        let plugin = find(&stores, &request.plugin);
        async move {
            let body = plugin?.get(&request.bucket, &request.key).await?;
            Ok(body.map_ok(|data| Data { data }))
        }
    });
    router.upload(PUT, move |mut requests| {
        let plugins = Arc::clone(&plugins);
        async move {
            let Some(first) = requests.try_next().await? else {
                return Err(Error::new("no message says which object this is"));
            };
            let PutObjectRequest {
                plugin,
                bucket,
                key,
                body,
            } = first;
            let rest = requests.map_ok(|request| request.body);
            let body = stream::once(async { Ok(body) }).chain(rest);
            find(&plugins, &plugin)?
                .put(&bucket, &key, body.boxed())
                .await?;
            Ok(Empty {})
        }
    });
}

pub(super) fn volume_snapshotter(router: &mut Router, plugins: Named<dyn VolumeSnapshotter>) {
    use wire::volume_snapshotter::{
        CREATE_SNAPSHOT, CREATE_VOLUME, DELETE_SNAPSHOT, GET_VOLUME_ID, INIT, PROGRESS,
        SET_VOLUME_ID, UPLOAD, VOLUME_INFO,
    };
    let parse = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(Error::new);
    Table::new(router, plugins)
        .on(INIT, |plugin, request| async move {
            plugin.init(&config(request)).await?;
            Ok(Empty {})
        })
        .on(CREATE_VOLUME, |plugin, request| async move {
            let volume = NewVolume {
                snapshot: request.snapshot_id,
                volume_type: request.volume_type,
                zone: request.volume_az,
                iops: Some(request.iops).filter(|iops| *iops != 0),
            };
            let text = plugin.create_volume(&volume).await?;
            Ok(Text { text })
        })
        .on(VOLUME_INFO, |plugin, request| async move {
            let info = plugin.volume_info(&request.volume_id, &request.volume_az);
            let (volume_type, iops) = info.await?;
            Ok(VolumeInfoResponse {
                volume_type,
                iops: iops.unwrap_or_default(),
            })
        })
        .on(CREATE_SNAPSHOT, |plugin, request| async move {
            let tags = request.tags.into_iter().collect();
            let made = plugin.create_snapshot(&request.volume_id, &request.volume_az, &tags);
            Ok(Text { text: made.await? })
        })
        .on(DELETE_SNAPSHOT, |plugin, request| async move {
            plugin.delete_snapshot(&request.snapshot_id).await?;
            Ok(Empty {})
        })
        .on(GET_VOLUME_ID, move |plugin, request| async move {
            let volume = parse(&request.persistent_volume)?;
            let text = plugin.volume_id(&volume).await?.unwrap_or_default();
            Ok(Text { text })
        })
        .on(SET_VOLUME_ID, move |plugin, request| async move {
            let volume = parse(&request.persistent_volume)?;
            let volume = plugin.set_volume_id(&volume, &request.volume_id).await?;
            let data = serde_json::to_vec(&volume).map_err(Error::new)?.into();
            Ok(Data { data })
        })
        .on(UPLOAD, |plugin, request| async move {
            plugin.upload_snapshot(&request.snapshot_id).await?;
            Ok(Empty {})
        })
        .on(PROGRESS, |plugin, request| async move {
            let volume = Some(&*request.volume_id).filter(|id| !id.is_empty());
            let progress = plugin.progress(&request.snapshot_id, volume).await?;
            Ok(progress.into())
        });
}

pub(super) fn backup_item_action(router: &mut Router, plugins: Named<dyn BackupItemAction>) {
    let mut table = Table::new(router, plugins);
    table
        .on(BACKUP_ITEM_ACTION_V2.applies_to, |plugin, _| async move {
            Ok(plugin.applies_to().await?.into())
        })
        .on(
            BACKUP_ITEM_ACTION_V2.execute,
            |plugin, request| async move {
                let done = plugin.execute(&request.item, &request.owner).await?;
                Ok(done.answer(request.item))
            },
        );
    if let Some(later) = BACKUP_ITEM_ACTION_V2.later {
        table
            .on(later.progress, |plugin, request| async move {
                let progress = plugin.progress(&request.operation_id, &request.owner);
                Ok(progress.await?.into())
            })
            .on(later.cancel, |plugin, request| async move {
                plugin.cancel(&request.operation_id, &request.owner).await?;
                Ok(Empty {})
            });
    }
}

pub(super) fn restore_item_action(router: &mut Router, plugins: Named<dyn RestoreItemAction>) {
    let mut table = Table::new(router, plugins);
    table
        .on(RESTORE_ITEM_ACTION_V2.applies_to, |plugin, _| async move {
            Ok(plugin.applies_to().await?.into())
        })
        .on(
            RESTORE_ITEM_ACTION_V2.execute,
            |plugin, request| async move {
                let done = plugin.execute(&request.item, &request.pristine, &request.owner);
                Ok(done.await?.answer(request.item))
            },
        );
    if let Some(later) = RESTORE_ITEM_ACTION_V2.later {
        table
            .on(later.progress, |plugin, request| async move {
                let progress = plugin.progress(&request.operation_id, &request.owner);
                Ok(progress.await?.into())
            })
            .on(later.cancel, |plugin, request| async move {
                plugin.cancel(&request.operation_id, &request.owner).await?;
                Ok(Empty {})
            });
    }
    if let Some(ready) = RESTORE_ITEM_ACTION_V2.ready {
        table.on(ready, |plugin, request| async move {
            let items: Vec<_> = all(request.items);
            let is_so = plugin.are_ready(&items, &request.restore).await?;
            Ok(Truth { is_so })
        });
    }
}

pub(super) fn delete_item_action(router: &mut Router, plugins: Named<dyn DeleteItemAction>) {
    use delete_item_action::{APPLIES_TO, EXECUTE};
    Table::new(router, plugins)
        .on(APPLIES_TO, |plugin, _| async move {
            Ok(plugin.applies_to().await?.into())
        })
        .on(EXECUTE, |plugin, request| async move {
            plugin.execute(&request.item, &request.owner).await?;
            Ok(Empty {})
        });
}

pub(super) fn item_block_action(router: &mut Router, plugins: Named<dyn ItemBlockAction>) {
    use item_block_action::{APPLIES_TO, RELATED};
    Table::new(router, plugins)
        .on(APPLIES_TO, |plugin, _| async move {
            Ok(plugin.applies_to().await?.into())
        })
        .on(RELATED, |plugin, request| async move {
            let items = plugin.related(&request.item, &request.owner).await?;
            Ok(RelatedResponse { items: all(items) })
        });
}
