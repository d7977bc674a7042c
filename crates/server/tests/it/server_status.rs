//! The server says who it is.

use bowline_api::v1::{ServerStatusRequest, ServerStatusRequestPhase as Phase};
use bowline_server::controllers::server_status;
use serde_json::json;

use crate::scene::{Scene, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_and_an_old_one_deleted() {
    let scene = Scene::new();
    let _: ServerStatusRequest = scene
        .create(json!({"metadata": {"name": "new"}, "spec": {}}))
        .await;
    let old = json!({
        "spec": {},
        "status": {"phase": "Processed", "processedTimestamp": "2020-01-01T00:00:00Z"},
    });
    scene.load::<ServerStatusRequest>("old", old);
    scene.start(server_status::run);
    eventually("the old one to go", async || {
        scene.names::<ServerStatusRequest>().await == ["new"]
    })
    .await;
    eventually("the answer", async || {
        let request = scene.get::<ServerStatusRequest>("new").await.unwrap();
        request.status.is_some_and(|status| {
            status.phase == Some(Phase::Processed)
                && status.server_version.as_deref() == Some(server_status::VERSION)
                && status.plugins.is_some_and(|plugins| plugins.len() > 3)
        })
    })
    .await;
}
