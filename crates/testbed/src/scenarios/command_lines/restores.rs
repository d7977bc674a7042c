//! Everything that can be said about restores, on Velero's server: into another namespace, over what
//! is there, refused by the server, refused by the command line.

use std::time::Duration;

use anyhow::ensure;
use bowline_api::{names::DEFAULT_NAMESPACE, v1::Restore};
use kube::{Api, api::ListParams};

use super::{Line, Talk, backups_gone, plain, print};
use crate::{scene::Scene, servers::Server, wait_for};

/// Runs all commands; each line starts from the same.
pub(super) async fn talk(scene: &Scene, line: Line) -> anyhow::Result<Talk> {
    let process = Server::Velero.start(scene, &[]).await?;
    let (shop, copy) = (scene.fresh("shop"), scene.fresh("copy"));
    let backup = format!("backup create rb --include-namespaces {shop} --wait");
    print(scene, line, &words(&backup)).await?;

    let mut talk = Talk::new();
    let commands = commands(&shop, &copy);
    for command in commands.lines().map(str::trim).filter(|c| !c.is_empty()) {
        let printed = print(scene, line, &words(command)).await?;
        match command {
            // The server's story is not the same twice.
            "restore logs r1" => ensure!(
                printed.contains("level=info msg=") && printed.ends_with("exit 0\n"),
                "the log is {printed:?}"
            ),
            _ => talk.push((command.to_owned(), plain(scene, &printed))),
        }
        if command.ends_with("--confirm") {
            deleted_are_gone(scene).await?;
        }
    }
    print(scene, line, &["backup", "delete", "rb", "--confirm"]).await?;
    backups_gone(scene).await?;
    scene.kubectl(&["delete", "namespace", &copy]).await?;
    process.stop().await?;
    Ok(talk)
}

/// Waits until the server has let go of the restores that are being deleted.
async fn deleted_are_gone(scene: &Scene) -> anyhow::Result<()> {
    let restores: Api<Restore> = Api::namespaced(scene.client(), DEFAULT_NAMESPACE);
    let limit = Duration::from_secs(60);
    wait_for("the deleted restores to go", limit, async || {
        let mut left = restores.list(&ListParams::default()).await?.items;
        left.retain(|restore| restore.metadata.deletion_timestamp.is_some());
        ensure!(left.is_empty(), "{} are left", left.len());
        Ok(Some(()))
    })
    .await
}

/// Where quotes are, spaces do not part words.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (at, part) in command.split('\'').enumerate() {
        match at % 2 {
            1 => words.push(part),
            _ => words.extend(part.split_whitespace()),
        }
    }
    words
}

fn commands(shop: &str, copy: &str) -> String {
    const ALL_FLAGS: &str = "--include-namespaces a,b --exclude-namespaces c \
        --include-resources pods,secrets --exclude-resources events \
        --include-cluster-resources=false --namespace-mappings a:x,b:y --restore-volumes \
        --preserve-nodeports=false --existing-resource-policy update \
        --status-include-resources deployments.apps --status-exclude-resources pods \
        --resource-modifier-configmap changes --resource-policies-configmap filters \
        --item-operation-timeout 2h --write-sparse-files --parallel-files-download 4 \
        --labels b=c,a=b --annotations why=because";
    format!(
        "restore get
        restore create r1 --from-backup rb --namespace-mappings {shop}:{copy} -l app=shop --labels a=b --wait
        restore create r1 --from-backup rb
        restore create r2 --from-backup rb --wait
        create restore r3 --from-backup rb --include-resources nodes --wait
        restore create r4 --from-backup rb --or-selector 'app=shop or app=other' --existing-resource-policy update -w

        restore create
        restore create --from-backup nonesuch
        restore create --from-schedule nonesuch
        restore create x --from-backup rb --from-schedule s
        restore create x --from-backup rb -l a=b --or-selector c=d
        restore create x --from-backup rb --existing-resource-policy replace
        restore create x --from-backup rb --parallel-files-download -1
        restore create --from-backup rb -o yaml
        restore create full --from-backup rb {ALL_FLAGS} -l 'a=b,c in (e,d)' -o yaml
        restore create full --from-backup rb {ALL_FLAGS} --or-selector 'a=b or c=d' -o json
        restore create full --from-backup rb {ALL_FLAGS} -o table --show-labels

        restore get
        get restores r1 r2
        restore get -l a=b --show-labels -L a
        restore get nonesuch
        restore describe r1
        restore describe r1 --details
        describe restores r2 --details
        restore describe r3
        restore describe r3 r4
        restore describe -l a=b
        restore describe nonesuch
        restore logs r1
        restore logs r3
        restore logs nonesuch

        restore delete
        restore delete r1 --all
        restore delete nonesuch --confirm
        restore delete r1 nonesuch --confirm
        restore delete r1 r2 --confirm
        delete restores --all --confirm
        restore delete -l a=b --confirm
        restore get"
    )
}

/// What is not the same on purpose, as `docs/differences.md` says.
pub(super) fn is_known_difference(command: &str, line: &str) -> bool {
    // A word for a developer.
    let is_stray = command.starts_with("restore delete") && line.starts_with("- errs:");
    // Our errors all begin alike.
    let is_prefix = command.starts_with("restore logs")
        && [
            "- Restore",
            "- Logs for",
            "+ velero: Restore",
            "+ velero: Logs for",
        ]
        .iter()
        .any(|start| line.starts_with(start));
    is_stray || is_prefix
}
