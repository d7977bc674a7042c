//! What is not there says so.

use bowline_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{LogParams, PostParams},
};

#[tokio::test]
async fn logs_of_pods_are_refused() {
    let pods: Api<Pod> = Api::namespaced(Client::new(ApiServer::default(), "default"), "default");
    let pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    }));
    pods.create(&PostParams::default(), &pod.unwrap())
        .await
        .unwrap();
    match pods.logs("a", &LogParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 404),
        other => panic!("unexpected {other:?}"),
    }
}
