//! What the server says of itself, if it answers.

use std::time::Duration;

use anyhow::bail;
use bowline_api::v1::{ServerStatusRequest, ServerStatusRequestPhase, ServerStatusRequestSpec};
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::time::Instant;

use crate::cluster::Plain;

/// Asks, and waits for the answer for so long.
pub(crate) async fn ask(
    client: Client,
    namespace: &str,
    timeout: Duration,
) -> anyhow::Result<ServerStatusRequest> {
    let api: Api<ServerStatusRequest> = Api::namespaced(client, namespace);
    let mut request = ServerStatusRequest::new(namespace, "", ServerStatusRequestSpec::default());
    request.metadata.name = None;
    request.metadata.generate_name = Some("velero-cli-".to_owned());
    let deadline = Instant::now() + timeout;
    let params = PostParams::default();
    let ask = api.create(&params, &request);
    let Ok(created) = tokio::time::timeout_at(deadline, ask).await else {
        bail!("the cluster does not answer");
    };
    let name = created.plain()?.name_any();
    let answered = async {
        loop {
            let request = api.get(&name).await.plain()?;
            let phase = request.status.as_ref().and_then(|s| s.phase.as_ref());
            if phase == Some(&ServerStatusRequestPhase::Processed) {
                return anyhow::Ok(request);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    match tokio::time::timeout_at(deadline, answered).await {
        Ok(answer) => answer,
        Err(_) => bail!("the server did not answer in time; is it running?"),
    }
}
