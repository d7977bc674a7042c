//! The client itself: its configuration file, versions, completion, usage.

use std::time::Duration;

use bowline_api::v1::ServerStatusRequest;
use bowline_apiserver::{Fault, Rule, When};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_cluster_is_asked_again_and_a_dead_one_not_for_ever() {
    let bed = Bed::start().await;
    let down = |when| Rule {
        method: None,
        path: "/backups".to_owned(),
        when,
        fault: Fault::Status(503),
    };
    bed.server.set_faults(vec![down(When::First(3))], 1);
    bed.run(&["backup", "get"]).await.well();
    bed.server.set_faults(vec![down(When::Always)], 1);
    let told = tokio::time::timeout(Duration::from_secs(60), bed.run(&["backup", "get"])).await;
    let told = told.expect("it gives up").refused();
    assert!(told.contains("ServiceUnavailable"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_file_is_kept_and_used() {
    let bed = Bed::start().await;
    let set = [
        "client",
        "config",
        "set",
        "namespace=other",
        "colorized=true",
        "a=b",
    ];
    assert_eq!(bed.run(&set).await.well(), "");
    bed.run(&["client", "config", "set", "a="]).await.well();
    assert_eq!(
        bed.run(&["client", "config", "get"]).await.well(),
        "colorized: true\nnamespace: other\n"
    );
    let get = ["client", "config", "get", "a", "namespace"];
    assert_eq!(
        bed.run(&get).await.well(),
        "a: <NOT SET>\nnamespace: other\n"
    );
    let yaml = bed
        .run(&["backup", "create", "x", "-o", "yaml"])
        .await
        .well();
    assert!(yaml.contains("namespace: other\n"), "{yaml}");
    let flag = ["-n", "flag", "backup", "create", "x", "-o", "yaml"];
    assert!(bed.run(&flag).await.well().contains("namespace: flag\n"));

    let bad = bed
        .run(&["client", "config", "set", "novalue", "x=y=z"])
        .await;
    assert_eq!(bad.code, 0);
    assert_eq!(
        bad.err,
        "WARNING: invalid KEY=VALUE: \"novalue\"\nWARNING: invalid KEY=VALUE: \"x=y=z\"\n"
    );
    let file = bed.folder.path().join(".config/velero/config.json");
    std::fs::write(&file, "{").unwrap();
    let warned = bed.run(&["backup", "get"]).await;
    assert_eq!(warned.code, 0);
    assert!(
        warned
            .err
            .starts_with("WARNING: Error reading config file: "),
        "{}",
        warned.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_asked_for_its_version() {
    let bed = Bed::start().await;
    let ours = concat!(
        "Client:\n\tVersion: v",
        env!("CARGO_PKG_VERSION"),
        "\n\tGit commit: -\n"
    );
    assert_eq!(bed.run(&["version", "--client-only"]).await.well(), ours);
    let alone = bed.run(&["version", "--timeout", "200ms"]).await.well();
    assert!(
        alone.starts_with(&format!("{ours}<error getting server version: ")),
        "{alone}"
    );

    let api: Api<ServerStatusRequest> = Api::namespaced(bed.client.clone(), "velero");
    let answering = tokio::spawn(async move {
        let events = watcher::watcher(api.clone(), watcher::Config::default());
        let mut fresh = events.default_backoff().applied_objects().boxed();
        while let Some(request) = fresh.next().await {
            let name = request.unwrap().name_any();
            let status = json!({"status": {"phase": "Processed", "serverVersion": "v1.18.3"}});
            let params = PatchParams::default();
            api.patch(&name, &params, &Patch::Merge(&status))
                .await
                .unwrap();
        }
    });
    let answered = bed.run(&["version"]).await.well();
    assert_eq!(answered, format!("{ours}Server:\n\tVersion: v1.18.3\n"));
    answering.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_is_for_three_shells() {
    let bed = Bed::start().await;
    for shell in ["bash", "zsh", "fish"] {
        let script = bed.run(&["completion", shell]).await.well();
        assert!(script.contains("backup-location"), "{shell}");
    }
    let refusal = bed.run(&["completion", "tcsh"]).await.refused();
    assert!(refusal.contains("specify bash, zsh, or fish"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_alone_shows_its_commands_and_a_wrong_word_is_refused() {
    let bed = Bed::start().await;
    let help = bed.run(&["backup"]).await.well();
    assert!(help.starts_with("Work with backups\n"), "{help}");
    for words in [&["bogus"][..], &["backup", "bogus"]] {
        let refusal = bed.run(words).await.refused();
        assert!(
            refusal.starts_with("bowline: unrecognized subcommand 'bogus'"),
            "{refusal}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there_is_one_line_and_a_hint() {
    let bed = Bed::start().await;
    let dead = json!({
        "apiVersion": "v1",
        "kind": "Config",
        // Nobody listens on the port of discard.
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    });
    std::fs::write(bed.folder.path().join("dead"), dead.to_string()).unwrap();
    let refusal = bed
        .run(&["--kubeconfig", "dead", "backup", "get"])
        .await
        .refused();
    assert!(
        refusal.starts_with("bowline: talk to the Kubernetes API: "),
        "{refusal}"
    );
    assert!(refusal.contains("refused"), "{refusal}");
    assert!(refusal.contains("\nhint: "), "{refusal}");
    let refusal = bed
        .run(&["--kubecontext", "nosuch", "backup", "get"])
        .await
        .refused();
    assert!(refusal.contains("nosuch"), "{refusal}");
}
