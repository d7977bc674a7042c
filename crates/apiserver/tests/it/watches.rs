//! Many watchers at once, and what they may rely on.

use bowline_apiserver::ApiServer;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams},
};

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_watchers_see_every_event_in_order() {
    let client = Client::new(ApiServer::default(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let version = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut watchers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let maps = maps.clone();
        let version = version.clone();
        watchers.spawn(async move {
            let events = maps.watch(&WatchParams::default(), &version).await.unwrap();
            let names: Vec<String> = events
                .take(50)
                .map_ok(|event| match event {
                    WatchEvent::Added(map) => map.metadata.name.unwrap(),
                    other => panic!("unexpected {other:?}"),
                })
                .try_collect()
                .await
                .unwrap();
            names
        });
    }
    let expected: Vec<String> = (0..50).map(|n| format!("map-{n:02}")).collect();
    for name in &expected {
        maps.create(&PostParams::default(), &map(name))
            .await
            .unwrap();
    }
    while let Some(names) = watchers.join_next().await {
        assert_eq!(names.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_kind_that_was_never_there_is_watched_from_when_it_was_listed() {
    let client = Client::new(ApiServer::default(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let list = secrets.list(&ListParams::default()).await.unwrap();
    assert!(list.items.is_empty());
    let version = list.metadata.resource_version.unwrap();

    // Something else happens before the watch begins.
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    let events = secrets.watch(&WatchParams::default(), &version).await;
    let secret = Secret {
        metadata: map("hidden").metadata,
        ..Default::default()
    };
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    match events.unwrap().boxed().next().await.unwrap().unwrap() {
        WatchEvent::Added(secret) => assert_eq!(secret.metadata.name.unwrap(), "hidden"),
        other => panic!("unexpected {other:?}"),
    }
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_told_to_list_again() {
    let server = ApiServer::default();
    let maps: Api<ConfigMap> = Api::namespaced(Client::new(server.clone(), "default"), "default");
    let version = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    server.compact();
    let mut events = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    match events.next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"))
        }
        other => panic!("unexpected {other:?}"),
    }
}
