//! `bowline install` and `bowline uninstall`.

use std::{
    fs,
    io::Read,
    process::{Command, Output, Stdio},
};

use bowline_api::{crd, names::finalizer, v1::Restore};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::bed::Bed;

fn bowline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    // No cluster of whoever runs the tests is ever touched.
    command
        .args(args)
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .env("HOME", "/nonexistent")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("RUST_BACKTRACE");
    command
}

fn output(args: &[&str]) -> (Output, String, String) {
    let output = bowline(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn crds_are_printed_as_yaml_and_json_alike() {
    let (_, yaml, err) = output(&["install", "--crds-only", "--dry-run", "-o", "yaml"]);
    assert_eq!(err, "");
    let (_, json, _) = output(&["install", "--crds-only", "--dry-run", "-o", "json"]);
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(yaml, json);
    assert_eq!(json["kind"], "List");
    assert_eq!(json["items"].as_array().unwrap().len(), 15);
}

/// The flags that the golden files were made with.
const FLAGS: [(&str, &[&str]); 2] = [
    (
        "plain",
        &[
            "--provider",
            "aws",
            "--bucket",
            "b",
            "--prefix",
            "p",
            "--plugins",
            "x/y:v1",
            "--use-node-agent",
        ],
    ),
    (
        "full",
        &[
            "--provider",
            "aws",
            "--bucket",
            "b",
            "--prefix",
            "p",
            "--use-node-agent",
            "--backup-location-config",
            "region=r",
            "--plugins",
            "velero/velero-plugin-for-aws:v1.14.3",
            "--default-volumes-to-fs-backup",
            "--privileged-node-agent",
            "--pod-labels",
            "a=b",
            "--pod-annotations",
            "c=d",
            "--sa-annotations",
            "e=f",
            "--concurrent-backups",
            "2",
            "--default-repo-maintain-frequency",
            "2h",
            "--pod-volume-operation-timeout",
            "90m",
            "--garbage-collection-frequency",
            "30m",
            "--server-priority-class-name",
            "high",
            "--node-agent-priority-class-name",
            "low",
            "--item-block-worker-count",
            "3",
            "--restore-only",
            "--features",
            "EnableCSI",
            "--namespace",
            "backups",
        ],
    ),
];

#[test]
fn the_objects_are_velero_s_but_for_what_the_docs_say() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "key").unwrap();
    for (name, flags) in FLAGS {
        let mut args = vec!["install", "--dry-run", "-o", "json", "--secret-file"];
        args.push(key.to_str().unwrap());
        args.extend(flags);
        let (_, json, err) = output(&args);
        assert_eq!(err, "");
        let mut ours: Value = serde_json::from_str(&json).unwrap();
        let items = ours["items"].as_array_mut().unwrap();
        items.retain(|item| item["kind"] != "CustomResourceDefinition");

        let path = format!(
            "{}/tests/golden/install/{name}.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let mut theirs: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for item in theirs["items"].as_array_mut().unwrap() {
            differ(item);
            sort_by_name(item);
        }
        items.iter_mut().for_each(sort_by_name);
        assert_eq!(
            serde_json::to_string_pretty(&ours["items"]).unwrap(),
            serde_json::to_string_pretty(&theirs["items"]).unwrap(),
            "{name}"
        );
    }
}

/// Changes an object of Velero's as `docs/install.md` says that ours differ.
fn differ(object: &mut Value) {
    drop_null_and_empty(object);
    let kind = object["kind"].as_str().unwrap().to_owned();
    if !["Deployment", "DaemonSet"].contains(&kind.as_str()) {
        return;
    }
    let pod = &mut object["spec"]["template"]["spec"];
    without(&mut pod["volumes"], &["host-plugins"]);
    if let Some(plugins) = pod.get_mut("initContainers") {
        drop_empty(&mut plugins[0]);
    }
    let container = &mut pod["containers"][0];
    without(&mut container["volumeMounts"], &["host-plugins"]);
    let scratch = json!({"name": "TMPDIR", "value": "/scratch"});
    container["env"].as_array_mut().unwrap().push(scratch);
    container["command"] = json!(["/bowline"]);
    container["image"] = json!(concat!("bowline/bowline:v", env!("CARGO_PKG_VERSION")));
    let args = container["args"].as_array_mut().unwrap();
    args.retain(|arg| arg != "--features=" && arg != "--uploader-type=kopia");
    for arg in args.iter_mut().filter(|arg| *arg == "--restore-only") {
        *arg = json!("--restore-only=true");
    }
    if kind == "DaemonSet" {
        return;
    }
    for (probe, path, period) in [
        ("livenessProbe", "/healthz", 10),
        ("readinessProbe", "/readyz", 2),
    ] {
        container[probe] = json!({
            "httpGet": {"path": path, "port": "metrics"},
            "periodSeconds": period,
            "failureThreshold": 6,
        });
    }
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true,
        "runAsUser": 65534,
    });
    pod["terminationGracePeriodSeconds"] = json!(40);
}

/// Go writes fields that nobody set.
fn drop_null_and_empty(object: &mut Value) {
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("creationTimestamp");
    if let Some(spec) = object["spec"].as_object_mut() {
        for field in ["strategy", "updateStrategy"] {
            spec.remove(field);
        }
        if let Some(template) = spec.get_mut("template") {
            template["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("creationTimestamp");
        }
    }
    drop_empty(object);
}

fn drop_empty(object: &mut Value) {
    let map = object.as_object_mut().unwrap();
    map.retain(|_, value| !value.is_null() && *value != json!({}));
}

fn without(list: &mut Value, names: &[&str]) {
    let list = list.as_array_mut().unwrap();
    list.retain(|entry| !names.contains(&entry["name"].as_str().unwrap()));
}

/// Lists whose order means nothing.
fn sort_by_name(object: &mut Value) {
    let Some(pod) = object.pointer_mut("/spec/template/spec") else {
        return;
    };
    let sort = |list: &mut Value| {
        let list = list.as_array_mut().unwrap();
        list.sort_by_key(|entry| entry["name"].as_str().unwrap().to_owned());
    };
    sort(&mut pod["volumes"]);
    sort(&mut pod["containers"][0]["volumeMounts"]);
    sort(&mut pod["containers"][0]["env"]);
}

#[test]
fn what_is_wrong_or_without_effect_is_said_by_name() {
    let (output, out, err) = output(&["install"]);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert_eq!(err, "bowline: --provider is required\n");
    let flags = ["install", "--provider", "aws", "--bucket", "b"];
    let (_, _, err) = self::output(&[&flags[..], &["--secret-file", "/no/such"]].concat());
    assert!(err.starts_with("bowline: open /no/such: "), "{err}");
    let (_, _, err) = self::output(&[&flags[..], &["-o", "table"]].concat());
    assert!(err.contains("'table' format is not supported"), "{err}");

    let more = ["--no-secret", "--dry-run", "--uploader-type", "kopia"];
    let (output, out, err) = self::output(&[&flags[..], &more].concat());
    assert_eq!((output.status.code(), out.as_str()), (Some(0), ""));
    assert!(
        err.starts_with("--uploader-type kopia is accepted"),
        "{err}"
    );
}

#[test]
fn without_a_cluster_the_error_says_what_was_looked_for() {
    let (output, out, err) = output(&["install", "--crds-only"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out, "");
    assert!(err.starts_with("bowline: find a cluster: "), "{err}");

    let (_, _, err) = self::output(&["install", "--crds-only", "--kubeconfig", "/no/such/file"]);
    assert!(err.contains("/no/such/file"), "{err}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = bowline(&["install", "--crds-only", "--dry-run", "-o", "yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(err, "");
}

const INSTALL: [&str; 8] = [
    "install",
    "--provider",
    "aws",
    "--bucket",
    "b",
    "--secret-file",
    "key",
    "--use-node-agent",
];

fn api<K>(bed: &Bed) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(bed.client.clone(), "velero")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_stays_unless_it_is_applied() {
    let bed = Bed::start().await;
    fs::write(bed.folder.path().join("key"), "secret").unwrap();
    let out = bed.run(&INSTALL).await.well();
    for line in [
        "CustomResourceDefinition/backups.velero.io: already exists, proceeding",
        "Namespace/velero: already exists, proceeding",
        "ClusterRoleBinding/velero: created",
        "Secret/cloud-credentials: created",
        "BackupStorageLocation/default: created",
        "VolumeSnapshotLocation/default: created",
        "Deployment/velero: created",
        "DaemonSet/node-agent: created",
        "Bowline is installed! ⛵ Use 'kubectl logs deployment/velero -n velero' to view the status.",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}\n{out}");
    }
    let secret = api::<Secret>(&bed).get("cloud-credentials").await.unwrap();
    assert_eq!(secret.data.unwrap()["cloud"].0, b"secret");

    let again = [&INSTALL[..], &["--image", "mine/bowline:v9"]].concat();
    let image = concat!("bowline/bowline:v", env!("CARGO_PKG_VERSION"));
    let out = bed.run(&again).await.well();
    let kept = format!(
        "Deployment/velero: already exists with image {image}; --apply changes it, proceeding"
    );
    assert!(out.contains(&kept), "{out}");

    let out = bed.run(&[&again[..], &["--apply"]].concat()).await.well();
    assert!(out.contains("Deployment/velero: applied\n"), "{out}");
    let server = api::<Deployment>(&bed).get("velero").await.unwrap();
    let image = json!(server)["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image, "mine/bowline:v9");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_that_pods_will_read_are_looked_at_first() {
    let bed = Bed::start().await;
    for (name, data) in [
        (
            "good",
            json!({"any": "{\"loadConcurrency\": {\"globalConfig\": 2}}"}),
        ),
        ("empty", json!({})),
        ("list", json!({"any": "[]"})),
    ] {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "velero"}, "data": data,
        });
        bed.server.load(&map).unwrap();
    }
    for (name, wanted) in [
        ("good", None),
        (
            "none",
            Some("there is no ConfigMap none in namespace velero"),
        ),
        ("empty", Some("ConfigMap empty has no data")),
        (
            "list",
            Some("read key any of ConfigMap list: invalid type: sequence"),
        ),
    ] {
        let flags = ["--provider", "aws", "--bucket", "b", "--no-secret"];
        let args = [&["install"], &flags[..], &["--node-agent-configmap", name]].concat();
        let ran = bed.run(&args).await;
        match wanted {
            None => assert!(ran.well().contains("no Secret created")),
            Some(wanted) => {
                let err = ran.refused();
                let wanted = format!("bowline: --node-agent-configmap: {wanted}");
                assert!(err.starts_with(&wanted), "{err}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_takes_away_what_install_made() {
    let bed = Bed::start().await;
    fs::write(bed.folder.path().join("key"), "secret").unwrap();
    bed.run(&[&INSTALL[..], &["-n", "backups"]].concat())
        .await
        .well();
    // Nobody runs who would take the finalizer off.
    let restore = json!({
        "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": {"name": "r", "namespace": "backups", "finalizers": [finalizer::RESTORE]},
        "spec": {"backupName": "b"},
    });
    bed.server.load(&restore).unwrap();

    let restores: Api<Restore> = Api::namespaced(bed.client.clone(), "backups");
    let asked = bed
        .run_with_input(&["-n", "backups", "uninstall"], "n\n")
        .await
        .well();
    assert!(asked.starts_with("You are about to uninstall Bowline from namespace backups.\n"));
    assert_eq!(restores.get("r").await.unwrap().name_any(), "r");

    let out = bed
        .run(&["-n", "backups", "uninstall", "--force"])
        .await
        .well();
    for line in [
        "Waiting for resources with attached finalizers to be deleted",
        "Namespace/backups: deleted",
        "ClusterRoleBinding/velero-backups: deleted",
        "CustomResourceDefinition/backups.velero.io: deleted",
        "Bowline uninstalled ⛵",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}\n{out}");
    }
    let namespaces: Api<Namespace> = Api::all(bed.client.clone());
    assert!(namespaces.get_opt("backups").await.unwrap().is_none());

    let out = bed
        .run(&["-n", "backups", "uninstall", "--force"])
        .await
        .well();
    assert_eq!(
        out,
        "Namespace/backups: does not exist, skipping\n\
         ClusterRoleBinding/velero-backups: does not exist, skipping\n\
         Bowline uninstalled ⛵\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_stay_while_another_namespace_uses_them() {
    let bed = Bed::start().await;
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}),
        json!({
            "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": {"name": "b", "namespace": "other"}, "spec": {},
        }),
    ] {
        bed.server.load(&object).unwrap();
    }
    let out = bed.run(&["uninstall", "--force"]).await.well();
    let said = "CustomResourceDefinitions stay: namespace other has backups\n";
    assert!(out.contains(said), "{out}");
    let kinds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(bed.client.clone());
    assert_eq!(
        kinds.list(&Default::default()).await.unwrap().items.len(),
        crd::all().len()
    );
}
