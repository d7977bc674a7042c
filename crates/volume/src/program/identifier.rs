//! The name of a repository as the restic program takes it, and as Velero writes it into objects.

use bowline_api::v1::BackupStorageLocationSpec;

/// What `--repo` is for the volumes of a namespace: `s3:…`, `azure:…`, `gs:…`, or a folder.
///
/// A location of S3 that names neither address nor region gets the address that knows all regions;
/// Velero asks for the region here, and restic does so itself.
///
/// # Errors
/// When restic cannot reach such a location; the text names what is wrong with it.
pub fn identifier(spec: &BackupStorageLocationSpec, namespace: &str) -> Result<String, String> {
    Ok(format!("{}/{namespace}", prefix(spec)?))
}

/// All but the namespace.
fn prefix(spec: &BackupStorageLocationSpec) -> Result<String, String> {
    let setting = |key: &str| {
        let value = spec.config.as_ref()?.get(key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    };
    if let Some(prefix) = setting("resticRepoPrefix") {
        return Ok(prefix.strip_suffix('/').unwrap_or(prefix).to_owned());
    }
    let bucket = spec.object_storage.bucket.trim_matches('/');
    let folder = spec.object_storage.prefix.as_deref().unwrap_or_default();
    let folder = match folder.trim_matches('/') {
        "" => "restic".to_owned(),
        folder => format!("{folder}/restic"),
    };
    let name = spec.provider.strip_prefix("velero.io/");
    match (name.unwrap_or(&spec.provider), setting("s3Url")) {
        ("aws", None) => Ok(format!(
            "s3:{}/{bucket}/{folder}",
            amazon(setting("region"))
        )),
        ("azure", _) => Ok(format!("azure:{bucket}:/{folder}")),
        ("gcp", _) => Ok(format!("gs:{bucket}:/{folder}")),
        ("filesystem" | "fs", _) => {
            let root = setting("path").or_else(|| setting("fspath"));
            let root = root.ok_or("config needs path, the folder that holds buckets")?;
            Ok(format!("{}/{bucket}/{folder}", root.trim_end_matches('/')))
        }
        // Whatever its provider is called, what has such an address speaks S3.
        (_, Some(url)) => {
            let url = url.strip_suffix('/').unwrap_or(url);
            Ok(format!("s3:{url}/{bucket}/{folder}"))
        }
        (name, None) => {
            let kind = match name.contains('/') {
                true => name.to_owned(),
                false => format!("velero.io/{name}"),
            };
            let provider = &spec.provider;
            Err(format!("invalid backend type {kind}, provider {provider}"))
        }
    }
}

fn amazon(region: Option<&str>) -> String {
    match region {
        None => "s3.amazonaws.com".to_owned(),
        Some(region) if region.starts_with("cn-") => format!("s3.{region}.amazonaws.com.cn"),
        Some(region) => format!("s3-{region}.amazonaws.com"),
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::ObjectStorageLocation;

    use super::*;

    fn of(
        provider: &str,
        bucket: &str,
        prefix: &str,
        config: &[(&str, &str)],
    ) -> Result<String, String> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let spec = BackupStorageLocationSpec {
            provider: provider.into(),
            config: Some(config.iter().map(pair).collect()),
            object_storage: ObjectStorageLocation {
                bucket: bucket.into(),
                prefix: Some(prefix.into()),
                ..Default::default()
            },
            ..Default::default()
        };
        identifier(&spec, "shop")
    }

    #[test]
    fn repositories_are_named_as_velero_names_them() {
        let region = ("region", "us-west-1");
        let url = ("s3Url", "http://minio:9000/");
        let folder = ("path", "/srv/share/");
        for (provider, prefix, config, expected) in [
            (
                "aws",
                "",
                &[region][..],
                "s3:s3-us-west-1.amazonaws.com/b/restic/shop",
            ),
            (
                "velero.io/aws",
                "p",
                &[region],
                "s3:s3-us-west-1.amazonaws.com/b/p/restic/shop",
            ),
            (
                "aws",
                "p",
                &[url, region],
                "s3:http://minio:9000/b/p/restic/shop",
            ),
            (
                "aws",
                "/p/q/",
                &[url],
                "s3:http://minio:9000/b/p/q/restic/shop",
            ),
            ("aws", "", &[], "s3:s3.amazonaws.com/b/restic/shop"),
            (
                "aws",
                "",
                &[("region", "cn-north-1")],
                "s3:s3.cn-north-1.amazonaws.com.cn/b/restic/shop",
            ),
            (
                "example.org/s3",
                "",
                &[url],
                "s3:http://minio:9000/b/restic/shop",
            ),
            ("azure", "p", &[], "azure:b:/p/restic/shop"),
            ("azure", "", &[("s3Url", "")], "azure:b:/restic/shop"),
            ("velero.io/gcp", "p", &[], "gs:b:/p/restic/shop"),
            ("filesystem", "p", &[folder], "/srv/share/b/p/restic/shop"),
            (
                "velero.io/fs",
                "",
                &[("fspath", "/srv")],
                "/srv/b/restic/shop",
            ),
            (
                "x",
                "p",
                &[("resticRepoPrefix", "rest:http://h/r/")],
                "rest:http://h/r/shop",
            ),
            (
                "aws",
                "p",
                &[url, ("resticRepoPrefix", "s3:h/x")],
                "s3:h/x/shop",
            ),
        ] {
            let found = of(provider, "/b/", prefix, config);
            assert_eq!(found.as_deref(), Ok(expected), "{provider} {config:?}");
        }
    }

    #[test]
    fn what_restic_cannot_reach_is_named() {
        for (provider, expected) in [
            (
                "swift",
                "invalid backend type velero.io/swift, provider swift",
            ),
            ("a.org/b", "invalid backend type a.org/b, provider a.org/b"),
            ("fs", "config needs path, the folder that holds buckets"),
        ] {
            assert_eq!(of(provider, "b", "", &[]), Err(expected.to_owned()));
        }
    }
}
