//! The objects of an installation, in the order they are made.

use base64::{Engine, prelude::BASE64_STANDARD};
use bowline_api::{
    names::{
        CLOUD_CREDENTIALS_KEY, CLOUD_CREDENTIALS_SECRET, DEFAULT_LOCATION, DEFAULT_NAMESPACE,
        SERVER, label,
    },
    v1::{
        BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation,
        VolumeSnapshotLocation, VolumeSnapshotLocationSpec,
    },
};
use serde_json::{Value, json};

use super::{
    Files,
    check::given,
    flags::{Args, StorageArgs},
    workloads::{self, Pods},
};
use crate::flags::Map;

/// What everything that an installation makes is labelled with.
const COMPONENT: (&str, &str) = (label::COMPONENT, SERVER);

/// All but the CustomResourceDefinitions.
pub(super) fn all(
    args: &Args,
    namespace: &str,
    features: &[String],
    files: &Files,
) -> anyhow::Result<Vec<Value>> {
    let mut objects = vec![self::namespace(namespace)];
    let account = given(args.pods.service_account_name.as_ref());
    if account.is_none() {
        objects.push(binding(namespace));
        objects.push(service_account(args, namespace));
    }
    objects.extend(files.secret.as_ref().map(|data| secret(namespace, data)));
    let storage = &args.storage;
    if !storage.no_default_backup_location {
        let certificates = files.certificates.as_deref();
        objects.push(backup_location(storage, namespace, certificates)?);
    }
    if storage.use_volume_snapshots {
        objects.push(snapshot_location(storage, namespace)?);
    }
    let pods = Pods {
        args,
        namespace,
        features,
        account: account.map_or(SERVER, String::as_str),
        has_secret: files.secret.is_some(),
    };
    objects.push(workloads::deployment(&pods)?);
    if args.node_agent.use_node_agent {
        objects.push(workloads::daemon_set(&pods)?);
    }
    Ok(objects)
}

/// The name of the binding: one for each namespace that something is installed in.
pub(crate) fn binding_name(namespace: &str) -> String {
    match namespace {
        DEFAULT_NAMESPACE => SERVER.to_owned(),
        other => format!("{SERVER}-{other}"),
    }
}

/// Node agents see volumes of the host, which only privileged namespaces allow.
fn namespace(name: &str) -> Value {
    let mut labels = json!({ COMPONENT.0: COMPONENT.1 });
    for mode in ["enforce", "audit", "warn"] {
        labels[format!("pod-security.kubernetes.io/{mode}")] = json!("privileged");
        labels[format!("pod-security.kubernetes.io/{mode}-version")] = json!("latest");
    }
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": labels },
    })
}

/// Backups hold objects of every kind, and restores make them.
fn binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {
            "name": binding_name(namespace),
            "labels": { COMPONENT.0: COMPONENT.1 },
        },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": SERVER, "namespace": namespace }],
    })
}

fn service_account(args: &Args, namespace: &str) -> Value {
    let mut account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(SERVER, namespace),
    });
    if let Some(annotations) = Map::merged(&args.pods.sa_annotations) {
        account["metadata"]["annotations"] = json!(annotations);
    }
    account
}

fn secret(namespace: &str, data: &[u8]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata(CLOUD_CREDENTIALS_SECRET, namespace),
        "data": { CLOUD_CREDENTIALS_KEY: BASE64_STANDARD.encode(data) },
    })
}

fn backup_location(
    storage: &StorageArgs,
    namespace: &str,
    certificates: Option<&[u8]>,
) -> anyhow::Result<Value> {
    let spec = BackupStorageLocationSpec {
        provider: storage.provider.clone().unwrap_or_default(),
        config: Map::merged(&storage.backup_location_config),
        default: Some(true),
        object_storage: ObjectStorageLocation {
            bucket: storage.bucket.clone().unwrap_or_default(),
            prefix: given(storage.prefix.as_ref()).cloned(),
            ca_cert: certificates.map(|bytes| BASE64_STANDARD.encode(bytes)),
            ..Default::default()
        },
        ..Default::default()
    };
    labelled(BackupStorageLocation::new(
        namespace,
        DEFAULT_LOCATION,
        spec,
    ))
}

fn snapshot_location(storage: &StorageArgs, namespace: &str) -> anyhow::Result<Value> {
    let spec = VolumeSnapshotLocationSpec {
        provider: storage.provider.clone().unwrap_or_default(),
        config: Map::merged(&storage.snapshot_location_config),
        ..Default::default()
    };
    labelled(VolumeSnapshotLocation::new(
        namespace,
        DEFAULT_LOCATION,
        spec,
    ))
}

fn labelled(object: impl serde::Serialize) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(object)?;
    object["metadata"]["labels"] = json!({ COMPONENT.0: COMPONENT.1 });
    Ok(object)
}

/// Name, namespace and label.
pub(super) fn metadata(name: &str, namespace: &str) -> Value {
    json!({
        "name": name,
        "namespace": namespace,
        "labels": { COMPONENT.0: COMPONENT.1 },
    })
}
