//! The same server over HTTP and HTTPS.

use bowline_apiserver::{ApiServer, Identity};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, api::ListParams, config::Kubeconfig};
use tokio::{net::TcpListener, sync::oneshot};

async fn namespaces_over(tls: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = tls.then(|| Identity::self_signed(address.ip()).unwrap());
    let certificate = identity
        .as_ref()
        .map(|identity| identity.certificate.clone());
    let (end, ended) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let until = async {
            let _ = ended.await;
        };
        ApiServer::default()
            .serve(listener, identity.as_ref(), until)
            .await
    });

    let _ = rustls::crypto::ring::default_provider().install_default();
    let scheme = if tls { "https" } else { "http" };
    let mut cluster = serde_json::json!({ "server": format!("{scheme}://{address}") });
    let file = std::env::temp_dir().join(format!("bowline-test-{}-{tls}.pem", std::process::id()));
    if let Some(certificate) = certificate {
        std::fs::write(&file, certificate).unwrap();
        cluster["certificate-authority"] = file.to_str().unwrap().into();
    }
    let config: Kubeconfig = serde_json::from_value(serde_json::json!({
        "clusters": [{ "name": "c", "cluster": cluster }],
        "contexts": [{ "name": "c", "context": { "cluster": "c" } }],
        "current-context": "c",
    }))
    .unwrap();
    let config = Config::from_custom_kubeconfig(config, &Default::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let names: Vec<String> = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .map(|namespace| namespace.metadata.name.unwrap())
        .collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    end.send(()).unwrap();
    serving.await.unwrap().unwrap();
    let _ = std::fs::remove_file(file);
}

#[tokio::test]
async fn plain_http() {
    namespaces_over(false).await;
}

#[tokio::test]
async fn https_with_a_certificate_of_its_own() {
    namespaces_over(true).await;
}
