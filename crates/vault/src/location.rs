//! From a BackupStorageLocation to a bucket.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use bowline_api::v1::BackupStorageLocation;
use k8s_openapi::api::core::v1::SecretKeySelector;

use crate::{
    Bucket, Error, Result,
    store::{self, Access, Settings},
};

/// A location and the secrets it refers to, which somebody with a cluster has fetched.
#[derive(Clone, Default)]
pub struct Location {
    /// The location.
    pub object: BackupStorageLocation,
    /// What `spec.credential` refers to.
    pub credential: Option<Vec<u8>>,
    /// What `spec.objectStorage.caCertRef` refers to.
    pub ca_cert: Option<Vec<u8>>,
    /// What `spec.config.customerKeyEncryptionSecret` refers to (`<secret>/<key>`, in the
    /// server's namespace).
    pub customer_key: Option<Vec<u8>>,
}

impl Location {
    /// A location with the secrets it refers to, each of which is got by `secret`, or why one of
    /// them cannot be had.
    ///
    /// # Errors
    /// In words, which begin with what could not be had.
    pub async fn resolve<F>(
        object: &BackupStorageLocation,
        secret: impl Fn(SecretKeySelector) -> F,
    ) -> Result<Self, String>
    where
        F: Future<Output = Result<Vec<u8>, String>>,
    {
        let get = async |what: &str, key: Option<Result<SecretKeySelector, String>>| match key {
            None => Ok(None),
            Some(Ok(key)) => match secret(key).await {
                Ok(value) => Ok(Some(value)),
                Err(why) => Err(format!("{what}: {why}")),
            },
            Some(Err(why)) => Err(format!("{what}: {why}")),
        };
        let spec = &object.spec;
        let config = spec.config.as_ref();
        let credential = spec.credential.clone().map(Ok);
        let ca_cert = spec.object_storage.ca_cert_ref.clone().map(Ok);
        let customer_key = config.and_then(|c| c.get("customerKeyEncryptionSecret"));
        Ok(Self {
            credential: get("unable to get credentials", credential).await?,
            ca_cert: get("error getting CA certificate from secret", ca_cert).await?,
            customer_key: get(
                "unable to get customerKeyEncryptionSecret",
                customer_key.map(|place| secret_key(place)),
            )
            .await?,
            object: object.clone(),
        })
    }
}

/// `<secret>/<key>`.
fn secret_key(place: &str) -> Result<SecretKeySelector, String> {
    let (name, key) = place
        .split_once('/')
        .ok_or_else(|| format!("expected <secret>/<key>, found {place:?}"))?;
    Ok(SecretKeySelector {
        name: name.to_owned(),
        key: key.to_owned(),
        optional: None,
    })
}

/// Opens the bucket of a location. Nothing is sent yet.
///
/// # Errors
/// When the settings cannot be used; the text names the setting.
pub fn open(location: &Location) -> Result<Bucket> {
    let spec = &location.object.spec;
    let settings = settings(location)?;
    let store = store::open(&spec.provider, &settings)?;
    let prefix = spec.object_storage.prefix.as_deref().unwrap_or_default();
    Ok(Bucket::new(store, prefix))
}

/// The bucket of a location, and what the plugin of its provider is set up with. The file is where
/// its credentials are, if it has any of its own.
///
/// # Errors
/// When the settings cannot be used; the text names the setting.
pub fn for_plugin(
    location: &Location,
    credentials: Option<&Path>,
) -> Result<(String, BTreeMap<String, String>)> {
    let Settings {
        mut config,
        bucket,
        ca,
        ..
    } = settings(location)?;
    let prefix = location.object.spec.object_storage.prefix.clone();
    let ca = ca.map(|ca| String::from_utf8_lossy(&ca).into_owned());
    let file = credentials.map(|file| file.display().to_string());
    let own = [
        ("bucket", Some(bucket.clone())),
        ("prefix", Some(prefix.unwrap_or_default())),
        ("caCert", ca),
        ("credentialsFile", file),
    ];
    for (name, value) in own {
        config.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok((bucket, config))
}

/// How another program gets at the bucket of a location.
///
/// # Errors
/// As for [`open`].
pub fn access(location: &Location) -> Result<Access> {
    store::access(&location.object.spec.provider, &settings(location)?)
}

/// Whose certificates count for a location.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// The CA bundle to trust, in PEM.
    pub ca: Option<Vec<u8>>,
    /// Whether anybody's do (`insecureSkipTLSVerify`).
    pub is_blind: bool,
}

/// Whom to trust on the way to the bucket of a location.
///
/// # Errors
/// As for [`open`].
pub fn trust(location: &Location) -> Result<Trust> {
    let settings = settings(location)?;
    Ok(Trust {
        is_blind: settings.flag("insecureSkipTLSVerify")?,
        ca: settings.ca,
    })
}

/// What the provider is opened with, after the checks that are the same for all of them.
pub(crate) fn settings(location: &Location) -> Result<Settings> {
    let spec = &location.object.spec;
    let storage = &spec.object_storage;
    let refuse = |text: &str| Err(Error::Settings(text.to_owned()));
    if *storage == Default::default() {
        return refuse("backup storage location does not use object storage");
    }
    if spec.provider.is_empty() {
        return refuse("object storage provider name must not be empty");
    }
    let bucket = storage.bucket.trim_matches('/');
    if bucket.contains('/') {
        return Err(Error::Settings(format!(
            "backup storage location's bucket name {:?} must not contain a '/' (if using a \
             prefix, put it in the 'Prefix' field instead)",
            storage.bucket
        )));
    }
    if bucket.is_empty() {
        return refuse("backup storage location's bucket name must not be empty");
    }
    if storage.ca_cert.is_some() && storage.ca_cert_ref.is_some() {
        return refuse("cannot specify both caCert and caCertRef in objectStorage");
    }
    let config = spec.config.clone().unwrap_or_default();
    let ca =
        match (&location.ca_cert, &storage.ca_cert, config.get("caCert")) {
            (Some(secret), _, _) => Some(secret.clone()),
            (None, Some(text), _) => Some(STANDARD.decode(text.trim()).map_err(|e| {
                Error::Settings(format!("caCert in objectStorage is not base64: {e}"))
            })?),
            (None, None, Some(text)) => Some(text.clone().into_bytes()),
            (None, None, None) => None,
        };
    Ok(Settings {
        config,
        bucket: bucket.to_owned(),
        credential: location.credential.clone(),
        ca: ca.filter(|ca| !ca.is_empty()),
        customer_key: location.customer_key.clone(),
        env: |name| std::env::var(name).ok(),
    })
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{BackupStorageLocationSpec, ObjectStorageLocation};

    use super::*;

    fn location(provider: &str, bucket: &str, config: &[(&str, &str)]) -> Location {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let spec = BackupStorageLocationSpec {
            provider: provider.into(),
            config: Some(config.iter().map(pair).collect()),
            object_storage: ObjectStorageLocation {
                bucket: bucket.into(),
                ..Default::default()
            },
            ..Default::default()
        };
        Location {
            object: BackupStorageLocation::new("velero", "default", spec),
            credential: Some(
                b"[default]\naws_access_key_id=AKIA\naws_secret_access_key=hush\n".to_vec(),
            ),
            ..Default::default()
        }
    }

    fn error(location: &Location) -> String {
        open(location).unwrap_err().to_string()
    }

    #[test]
    fn refusals_are_those_of_velero() {
        assert_eq!(
            error(&Location::default()),
            "backup storage location does not use object storage"
        );
        assert_eq!(
            error(&location("", "b", &[])),
            "object storage provider name must not be empty"
        );
        assert_eq!(
            error(&location("aws", "/x/y/", &[])),
            "backup storage location's bucket name \"/x/y/\" must not contain a '/' (if using a \
             prefix, put it in the 'Prefix' field instead)"
        );
        let mut both = location("aws", "b", &[]);
        let storage = &mut both.object.spec.object_storage;
        storage.ca_cert = Some(String::new());
        storage.ca_cert_ref = Some(Default::default());
        assert_eq!(
            error(&both),
            "cannot specify both caCert and caCertRef in objectStorage"
        );
        assert_eq!(
            error(&location("swift", "b", &[])),
            "unknown object storage provider \"swift\"; known are aws, azure, filesystem, fs, gcp"
        );
    }

    #[test]
    fn misspelt_settings_are_refused_by_name() {
        assert_eq!(
            error(&location("velero.io/aws", "b", &[("regoin", "x")])),
            "config has invalid keys [regoin]; valid keys are [region s3Url publicUrl kmsKeyId \
             customerKeyEncryptionFile customerKeyEncryptionSecret s3ForcePathStyle \
             signatureVersion credentialsFile profile serverSideEncryption insecureSkipTLSVerify \
             enableSharedConfig tagging checksumAlgorithm bucket prefix caCert]"
        );
    }

    #[tokio::test]
    async fn a_whole_aws_location_opens_and_hides_its_keys() {
        let bucket = open(&location(
            "velero.io/aws",
            "b",
            &[
                ("region", "minio"),
                ("s3Url", "http://10.0.0.1:9000/"),
                ("publicUrl", "https://s3.example.org"),
                ("s3ForcePathStyle", "true"),
                ("signatureVersion", "4"),
                ("insecureSkipTLSVerify", "false"),
                ("enableSharedConfig", "true"),
                ("tagging", "a=1&b=2"),
                ("checksumAlgorithm", ""),
                ("serverSideEncryption", "AES256"),
                ("bucket", "b"),
                ("prefix", ""),
            ],
        ))
        .unwrap();
        let text = format!("{bucket:?}");
        assert!(!text.contains("hush") && !text.contains("AKIA"), "{text}");
        let ttl = std::time::Duration::from_secs(600);
        let url = bucket.sign("backups/b/b-logs.gz", ttl).await.unwrap();
        assert!(
            url.starts_with("https://s3.example.org/b/backups/b/b-logs.gz?X-Amz-"),
            "{url}"
        );
        assert!(url.contains("X-Amz-Expires=600"), "{url}");
    }

    #[test]
    fn bad_values_name_their_setting() {
        for (key, value, words) in [
            (
                "s3ForcePathStyle",
                "maybe",
                "could not parse s3ForcePathStyle (expected bool)",
            ),
            (
                "s3Url",
                "minio:9000",
                "Invalid s3 url minio:9000, URL must be valid",
            ),
            (
                "checksumAlgorithm",
                "MD4",
                "invalid checksum algorithm: MD4",
            ),
            (
                "serverSideEncryption",
                "rot13",
                "serverSideEncryption \"rot13\" is not one of",
            ),
            ("caCert", "nonsense", "caCert holds no PEM certificate"),
            ("profile", "x", "has no profile \"x\", only [default]"),
        ] {
            let text = error(&location("aws", "b", &[("region", "r"), (key, value)]));
            assert!(text.contains(words), "{text}");
        }
    }
}
