//! A kube-rs controller with finalizers and owner references, on a server that has a bad day.

use std::{sync::Arc, time::Duration};

use bowline_apiserver::{ApiServer, Fault, Rule, When};
use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        finalizer::{self, Event, finalizer},
        watcher,
    },
};

const PARENTS: usize = 25;

/// Keeps a Secret for every ConfigMap with the label, and takes its time to let go.
async fn reconcile(
    parent: Arc<ConfigMap>,
    client: Arc<Client>,
) -> Result<Action, finalizer::Error<kube::Error>> {
    let parents: Api<ConfigMap> = Api::namespaced(Client::clone(&client), "default");
    finalizer(&parents, "test.example.com/secret", parent, |event| async {
        match event {
            Event::Apply(parent) => {
                let secrets: Api<Secret> = Api::namespaced(Client::clone(&client), "default");
                let child = Secret {
                    metadata: ObjectMeta {
                        name: Some(parent.name_any()),
                        owner_references: parent.controller_owner_ref(&()).map(|owner| vec![owner]),
                        ..Default::default()
                    },
                    ..Default::default()
                };
                let apply = PatchParams::apply("test").force();
                let patch = serde_json::json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": child.metadata,
                });
                secrets
                    .patch(&parent.name_any(), &apply, &Patch::Apply(&patch))
                    .await?;
            }
            Event::Cleanup(_) => {}
        }
        Ok(Action::await_change())
    })
    .await
}

async fn eventually(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(180);
    while !is().await {
        assert!(
            tokio::time::Instant::now() < limit,
            "waited too long for {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_survives_cut_watches_refusals_and_compactions() {
    let server = ApiServer::default();
    let client = Client::new(server.clone(), "default");
    let parents: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let rule = |method: Option<Method>, path: &str, when, fault| Rule {
        method,
        path: path.to_owned(),
        when,
        fault,
    };
    server.set_faults(
        vec![
            rule(None, "watch=true", When::OneIn(2), Fault::Cut(3000)),
            rule(Some(Method::PATCH), "", When::OneIn(5), Fault::Status(500)),
            rule(Some(Method::PATCH), "", When::OneIn(7), Fault::Throttle(0)),
            rule(Some(Method::GET), "", When::OneIn(9), Fault::Status(503)),
        ],
        7,
    );

    let labelled = watcher::Config::default().labels("test=parent");
    let controller = Controller::new(parents.clone(), labelled)
        .owns(secrets.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(50)),
            Arc::new(client.clone()),
        )
        .for_each(|_| async {});
    let running = tokio::spawn(controller);

    let quiet = Client::new(server.clone(), "default");
    let quiet_parents: Api<ConfigMap> = Api::namespaced(quiet.clone(), "default");
    for n in 0..PARENTS {
        let parent = ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("parent-{n}")),
                labels: Some([("test".to_owned(), "parent".to_owned())].into()),
                ..Default::default()
            },
            ..Default::default()
        };
        quiet_parents
            .create(&PostParams::default(), &parent)
            .await
            .unwrap();
        if n % 5 == 0 {
            server.compact();
        }
    }
    let count = async |api: &Api<Secret>| match api.list(&ListParams::default()).await {
        Ok(list) => list.items.len(),
        // The refusals of this day are for everybody.
        Err(_) => usize::MAX,
    };
    eventually("a secret for every parent", async || {
        count(&secrets).await == PARENTS
    })
    .await;

    server.compact();
    for n in 0..PARENTS {
        let _ = quiet_parents
            .delete(&format!("parent-{n}"), &DeleteParams::default())
            .await
            .unwrap();
    }
    eventually("every secret to go with its parent", async || {
        count(&secrets).await == 0
    })
    .await;
    eventually("every parent to be let go", async || {
        let list = quiet_parents
            .list(&ListParams::default().labels("test=parent"))
            .await;
        list.is_ok_and(|list| list.items.is_empty())
    })
    .await;
    running.abort();
}
