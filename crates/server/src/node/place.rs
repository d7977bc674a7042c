//! Where a volume of a pod is on this node.
//!
//! The kubelet has it in `<pods>/<pod's uid>/volumes/<plugin>/<folder>`. What the folder is called
//! depends on what the volume is; which plugin it is need not be known, as long as only one has it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume},
    storage::v1::CSIDriver,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::HOST_PODS;
use crate::{Error, Result};

/// Who made a PersistentVolume, and to which CSI driver it was moved since.
const PROVISIONED_BY: [&str; 2] = [
    "pv.kubernetes.io/provisioned-by",
    "pv.kubernetes.io/migrated-to",
];

/// The folder of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Where it is, seen from here.
    pub(super) folder: PathBuf,
    /// Where it would be for any node process: what a snapshot says it is of.
    pub(super) recorded: String,
    /// Which folder it is, whatever its path.
    id: (u64, u64),
}

impl Place {
    #[cfg(test)]
    pub(super) fn at(host_pods: &Path, uid: &str, directory: &str) -> Result<Self, String> {
        look(host_pods, uid, directory)
    }

    /// Whether the folder that was found is still there, and still the same.
    pub(super) fn is_there(&self) -> bool {
        identity(&self.folder).is_ok_and(|id| id == self.id)
    }
}

/// The folder of a pod's volume, or why there is none to be copied.
///
/// # Errors
/// When the cluster does not answer; that may be better later.
pub(super) async fn find(
    client: &Client,
    host_pods: &Path,
    pod: &Pod,
    volume: &str,
) -> Result<Result<Place, String>> {
    let directory = match directory_of(client, pod, volume).await? {
        Ok(directory) => directory,
        Err(why) => return Ok(Err(why)),
    };
    let (host_pods, uid) = (host_pods.to_owned(), pod.uid().unwrap_or_default());
    // A dead network volume can hold up whoever looks at it.
    let looked = tokio::task::spawn_blocking(move || look(&host_pods, &uid, &directory)).await;
    looked.map_err(|e| Error::Setup(format!("look for a volume: {e}")))
}

async fn directory_of(client: &Client, pod: &Pod, volume: &str) -> Result<Result<String, String>> {
    let mut volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let Some(volume) = volumes.find(|found| found.name == volume) else {
        let pod = pod.name_any();
        return Ok(Err(format!("volume {volume} not found in pod {pod}")));
    };
    let Some(claim) = claim(pod, volume) else {
        return Ok(directory(volume, None, &[]));
    };
    let namespace = pod.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let found = claims
        .get_opt(&claim)
        .await
        .map_err(Error::api(format!("read claim {namespace}/{claim}")))?;
    let Some(name) = found
        .and_then(|found| found.spec)
        .and_then(|s| s.volume_name)
    else {
        return Ok(Err(format!(
            "claim {namespace}/{claim} is not there, or has no volume"
        )));
    };
    let persistent: Api<PersistentVolume> = Api::all(client.clone());
    let found = persistent
        .get_opt(&name)
        .await
        .map_err(Error::api(format!("read PersistentVolume {name}")))?;
    let Some(bound) = found else {
        return Ok(Err(format!(
            "PersistentVolume {name} of claim {namespace}/{claim} is not there"
        )));
    };
    let drivers = if made_by(&bound).next().is_some() {
        let drivers: Api<CSIDriver> = Api::all(client.clone());
        let list = drivers.list(&ListParams::default()).await;
        let list = list.map_err(Error::api("list CSI drivers"))?;
        list.iter().map(ResourceExt::name_any).collect()
    } else {
        Vec::new()
    };
    Ok(directory(volume, Some(&bound), &drivers))
}

/// The claim of a volume, when it has one.
fn claim(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    // A claim that lives as long as its pod.
    let ephemeral = volume.ephemeral.is_some();
    ephemeral.then(|| format!("{}-{}", pod.name_any(), volume.name))
}

/// What the kubelet calls the folder of a volume; with a claim, `bound` is the claim's.
fn directory(
    volume: &Volume,
    bound: Option<&PersistentVolume>,
    drivers: &[String],
) -> Result<String, String> {
    let Some(bound) = bound else {
        let name = &volume.name;
        return Ok(match volume.csi {
            Some(_) => format!("{name}/mount"),
            None => name.clone(),
        });
    };
    let name = bound.name_any();
    let spec = bound.spec.as_ref();
    if spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block") {
        return Err(format!(
            "volume {} is a block volume (PersistentVolume {name}): it has no files to copy",
            volume.name
        ));
    }
    let is_csi = spec.is_some_and(|spec| spec.csi.is_some())
        || made_by(bound).any(|maker| drivers.iter().any(|driver| driver == maker));
    Ok(if is_csi {
        format!("{name}/mount")
    } else {
        name
    })
}

/// Who made a volume, as far as its annotations say.
fn made_by(volume: &PersistentVolume) -> impl Iterator<Item = &str> {
    PROVISIONED_BY
        .into_iter()
        .filter_map(|name| volume.annotations().get(name))
        .map(String::as_str)
        .filter(|maker| !maker.is_empty())
}

/// The one folder of that name among those of all plugins.
fn look(host_pods: &Path, uid: &str, directory: &str) -> Result<Place, String> {
    let plain = |name: &str| !name.is_empty() && !name.split('/').any(|part| part == "..");
    if !plain(uid) || !plain(directory) {
        return Err(format!("no folder can be called {uid}/{directory}"));
    }
    let volumes = host_pods.join(uid).join("volumes");
    let plugins = fs::read_dir(&volumes).into_iter().flatten().flatten();
    let found: Vec<PathBuf> = plugins
        .map(|plugin| plugin.path().join(directory))
        .filter(|folder| folder.symlink_metadata().is_ok())
        .collect();
    let [folder] = found.as_slice() else {
        if !host_pods.is_dir() {
            return Err(format!(
                "host path {} does not exist: the node agent sees no volumes of pods",
                host_pods.display()
            ));
        }
        return Err(format!(
            "expected one matching path: {}/*/{directory}, got {}",
            volumes.display(),
            found.len()
        ));
    };
    let id = identity(folder).map_err(|e| format!("read {}: {e}", folder.display()))?;
    let below = folder.strip_prefix(host_pods).unwrap_or(folder);
    Ok(Place {
        recorded: format!("{HOST_PODS}/{}", below.display()),
        folder: folder.clone(),
        id,
    })
}

/// Which folder a path leads to; an error when it is anything else.
fn identity(folder: &Path) -> std::io::Result<(u64, u64)> {
    let found = folder.symlink_metadata()?;
    if found.is_dir() {
        Ok((found.dev(), found.ino()))
    } else {
        Err(std::io::ErrorKind::NotADirectory.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(source: Value) -> Volume {
        let mut value = json!({"name": "data"});
        value
            .as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    fn bound(spec: Value, annotations: Value) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pv-1", "annotations": annotations}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn folders_are_called_as_the_kubelet_does() {
        let drivers = ["ebs.csi.aws.com".to_owned()];
        let claim = || volume(json!({"persistentVolumeClaim": {"claimName": "c"}}));
        let csi = json!({"csi": {"driver": "d", "volumeHandle": "h"}});
        let block = json!({"csi": {"driver": "d", "volumeHandle": "h"}, "volumeMode": "Block"});
        let disk = json!({"awsElasticBlockStore": {"volumeID": "v"}, "volumeMode": "Filesystem"});
        let by = |name: &str, driver: &str| json!({ name: driver });
        for (volume, bound, expected) in [
            (volume(json!({"emptyDir": {}})), None, Some("data")),
            (
                volume(json!({"csi": {"driver": "d"}})),
                None,
                Some("data/mount"),
            ),
            (claim(), Some(bound(csi, json!({}))), Some("pv-1/mount")),
            (claim(), Some(bound(disk.clone(), json!({}))), Some("pv-1")),
            (
                claim(),
                Some(bound(
                    disk.clone(),
                    by("pv.kubernetes.io/provisioned-by", "ebs.csi.aws.com"),
                )),
                Some("pv-1/mount"),
            ),
            (
                claim(),
                Some(bound(
                    disk.clone(),
                    by("pv.kubernetes.io/migrated-to", "ebs.csi.aws.com"),
                )),
                Some("pv-1/mount"),
            ),
            (
                claim(),
                Some(bound(
                    disk,
                    by("pv.kubernetes.io/provisioned-by", "kubernetes.io/aws-ebs"),
                )),
                Some("pv-1"),
            ),
            (claim(), Some(bound(block, json!({}))), None),
        ] {
            let found = directory(&volume, bound.as_ref(), &drivers);
            assert_eq!(found.as_deref().ok(), expected, "{volume:?} {bound:?}");
        }
    }

    #[test]
    fn claims_of_pods_are_named_after_both() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        for (source, expected) in [
            (json!({"emptyDir": {}}), None),
            (
                json!({"persistentVolumeClaim": {"claimName": "c"}}),
                Some("c"),
            ),
            (json!({"ephemeral": {}}), Some("p-data")),
        ] {
            assert_eq!(claim(&pod, &volume(source)).as_deref(), expected);
        }
    }

    #[test]
    fn exactly_one_folder_must_match() {
        let pods = tempfile::tempdir().unwrap();
        let pods = pods.path();
        let volumes = pods.join("uid/volumes");
        for folder in ["kubernetes.io~empty-dir/data", "kubernetes.io~csi/pv/mount"] {
            fs::create_dir_all(volumes.join(folder)).unwrap();
        }
        let place = look(pods, "uid", "pv/mount").unwrap();
        assert_eq!(place.folder, volumes.join("kubernetes.io~csi/pv/mount"));
        assert_eq!(
            place.recorded,
            "/host_pods/uid/volumes/kubernetes.io~csi/pv/mount"
        );
        fs::create_dir_all(volumes.join("kubernetes.io~nfs/data")).unwrap();
        fs::write(volumes.join("kubernetes.io~nfs/file"), "").unwrap();
        for (uid, directory, expected) in [
            ("uid", "data", "got 2"),
            ("uid", "other", "got 0"),
            ("nobody", "data", "got 0"),
            ("uid", "file", "not a directory"),
            ("..", "data", "no folder"),
            ("uid", "../data", "no folder"),
            ("", "data", "no folder"),
        ] {
            let why = look(pods, uid, directory).unwrap_err();
            assert!(why.contains(expected), "{uid} {directory}: {why}");
        }
        let why = look(&pods.join("nowhere"), "uid", "data").unwrap_err();
        assert!(
            why.ends_with("the node agent sees no volumes of pods"),
            "{why}"
        );
    }

    #[test]
    fn a_folder_that_was_replaced_is_another_one() {
        let pods = tempfile::tempdir().unwrap();
        let folder = pods.path().join("uid/volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&folder).unwrap();
        let place = look(pods.path(), "uid", "data").unwrap();
        assert!(place.is_there());
        fs::rename(&folder, pods.path().join("old")).unwrap();
        assert!(!place.is_there());
        fs::create_dir_all(&folder).unwrap();
        assert!(!place.is_there());
    }
}
