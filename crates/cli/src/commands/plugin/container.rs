//! The init container of a plugin: its image copies programs to `/target`, which is the server's
//! folder of plugins.

use bowline_api::names::label_value;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// The volume with the programs of plugins.
pub(crate) const VOLUME: &str = "plugins";
/// Where the server has it.
pub(crate) const FOLDER: &str = "/plugins";
/// Where plugins have it.
const TARGET: &str = "/target";
/// What a name may have before a suffix comes to it.
const BEFORE_SUFFIX: usize = 57;

/// The container of an image, named unlike the others.
pub(crate) fn container(image: &str, pull_policy: &str, others: &[Value]) -> Value {
    json!({
        "name": name(image, others),
        "image": image,
        "imagePullPolicy": pull_policy,
        "volumeMounts": [{ "name": VOLUME, "mountPath": TARGET }],
    })
}

/// The volume.
pub(crate) fn volume() -> Value {
    json!({ "name": VOLUME, "emptyDir": {} })
}

/// How the server mounts it.
pub(crate) fn mount() -> Value {
    json!({ "name": VOLUME, "mountPath": FOLDER })
}

/// The image's path without registry and version; if that is taken, with a suffix that follows from
/// the image.
fn name(image: &str, others: &[Value]) -> String {
    let is_taken = |name: &str| others.iter().any(|other| other["name"] == name);
    let base: String = path(image)
        .chars()
        .map(|c| if "/_.:".contains(c) { '-' } else { c })
        .collect();
    let mut name = label_value(&base);
    let mut tries = 0;
    while is_taken(&name) {
        let short = &base[..base.floor_char_boundary(BEFORE_SUFFIX)];
        let digest = digest(&SHA256, format!("{image}#{tries}").as_bytes());
        let suffix: String = digest.as_ref()[..3]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        name = format!("{}-{}", short.trim_end_matches('-'), &suffix[..5]);
        tries += 1;
    }
    name
}

/// What comes before the first slash is a registry if there is another slash.
fn path(image: &str) -> &str {
    let image = match image.split_once('/') {
        Some((registry, path)) if registry.is_empty() || path.contains('/') => path,
        _ => image,
    };
    let image = image.split_once('@').map_or(image, |(path, _)| path);
    match image.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => path,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_paths_of_images() {
        let long = format!("acme/{}", "x".repeat(70));
        for (image, wanted) in [
            (
                "velero/velero-plugin-for-aws:v1.10.0",
                "velero-velero-plugin-for-aws",
            ),
            (
                "docker.io/velero/velero-plugin-for-aws:v1.10.0",
                "velero-velero-plugin-for-aws",
            ),
            ("gcr.io/my_proj/a.b", "my-proj-a-b"),
            ("plugin", "plugin"),
            ("plugin@sha256:0123", "plugin"),
            ("acme/plugin:v1@sha256:0123", "acme-plugin"),
            ("/plugin:latest", "plugin"),
            ("localhost:5000/plugin:v1", "localhost-5000-plugin"),
            ("localhost:5000/plugin", "localhost-5000-plugin"),
            (&long, &label_value(&long.replace('/', "-"))),
        ] {
            assert_eq!(name(image, &[]), wanted, "{image}");
        }
    }

    #[test]
    fn names_that_are_taken_get_a_suffix_that_follows_from_the_image() {
        let image = "velero/velero-plugin-for-aws:v2";
        let mut others = vec![container("velero/velero-plugin-for-aws:v1", "Never", &[])];
        for _ in 0..2 {
            let container = container(image, "Never", &others);
            let name = container["name"].as_str().unwrap();
            assert!(name.starts_with("velero-velero-plugin-for-aws-"), "{name}");
            assert!(others.iter().all(|other| other["name"] != name));
            assert_eq!(name, super::name(image, &others), "not by chance");
            others.push(container.clone());
        }
        let long = format!("acme/{}", "x".repeat(70));
        let first = container(&long, "Never", &[]);
        assert_eq!(name(&long, &[first]).len(), 63);
    }
}
