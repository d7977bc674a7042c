//! Amazon S3 and everything that speaks its language, with the settings of Velero's AWS plugin.

mod identity;

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use object_store::{
    TagSet,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum, resolve_bucket_region},
};
use url::{Host, Url};

use self::identity::Identity;
use super::{
    Access, Settings,
    http::{self, Http},
    reason,
    remote::{Clients, Connect, Remote},
};
use crate::{Error, ObjectStore, Result};

/// The settings that the plugin knows, in its order.
const KEYS: &[&str] = &[
    "region",
    "s3Url",
    "publicUrl",
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "customerKeyEncryptionSecret",
    "s3ForcePathStyle",
    "signatureVersion",
    "credentialsFile",
    "profile",
    "serverSideEncryption",
    "insecureSkipTLSVerify",
    "enableSharedConfig",
    "tagging",
    "checksumAlgorithm",
];

/// Opens a bucket. Its region, where nobody says it, is asked for at the first call.
pub(super) fn open(settings: &Settings) -> Result<Arc<dyn ObjectStore>> {
    settings.only(KEYS)?;
    let (identity, profile_region) = identity::find(settings)?;
    let region = region(settings, profile_region);
    let plan = Plan {
        bucket: settings.bucket.clone(),
        s3_url: settings.get("s3Url").map(valid_url).transpose()?,
        public_url: settings.get("publicUrl").map(valid_url).transpose()?,
        path_style: settings.flag("s3ForcePathStyle")?,
        http: settings.http()?,
        identity,
        encryption: Encryption::find(settings)?,
        checksum: checksum(settings)?,
    };
    let tags = tags(settings.get("tagging").unwrap_or_default())?;
    let mut remote = match region {
        Some(region) => {
            let place = place(plan.s3_url.as_ref(), &region, "", true)?;
            Remote::new(place.url, &plan.bucket, plan.clients(&region)?)
        }
        None => Remote::later("https://s3.amazonaws.com".into(), &settings.bucket, plan),
    };
    remote.tags = tags;
    Ok(Arc::new(remote))
}

/// What another program reads from its environment to be who we are.
pub(super) fn access(settings: &Settings) -> Result<Access> {
    let (identity, profile_region) = identity::find(settings)?;
    let mut variables = identity.variables();
    if let Some(region) = region(settings, profile_region) {
        variables.push(("AWS_DEFAULT_REGION", region));
    }
    Ok(Access::Aws { variables })
}

/// The region, where somebody says it.
fn region(settings: &Settings, profile: Option<String>) -> Option<String> {
    let s3_url = settings.get("s3Url");
    settings
        .get("region")
        .map(str::to_owned)
        // A store of somebody else's may be in no region at all; ours must still sign with one.
        .or_else(|| s3_url.and(profile))
        .or_else(|| s3_url.and_then(|_| settings.env("AWS_REGION")))
        .or_else(|| s3_url.map(|_| "us-east-1".to_owned()))
}

/// All that is needed to make clients, but for the region.
struct Plan {
    bucket: String,
    s3_url: Option<Url>,
    public_url: Option<Url>,
    path_style: bool,
    http: Http,
    identity: Identity,
    encryption: Encryption,
    checksum: Option<Checksum>,
}

impl Plan {
    fn clients(&self, region: &str) -> Result<Clients> {
        let store = Arc::new(self.client(self.s3_url.as_ref(), region)?);
        let signer = match &self.public_url {
            Some(url) => Arc::new(self.client(Some(url), region)?),
            None => store.clone(),
        };
        Ok(Clients {
            objects: store.clone(),
            pages: store,
            signer,
        })
    }

    fn client(&self, url: Option<&Url>, region: &str) -> Result<AmazonS3> {
        let place = place(url, region, &self.bucket, self.path_style)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.bucket)
            .with_region(region)
            .with_endpoint(&place.url)
            .with_virtual_hosted_style_request(place.is_virtual)
            .with_client_options(self.http.options(&place.url))
            .with_retry(http::retry())
            // Not every store that speaks S3 has it, and there is no hurry.
            .with_disable_bulk_delete(true);
        if let Some(checksum) = self.checksum {
            builder = builder.with_checksum_algorithm(checksum);
        }
        builder = self.encryption.apply(builder);
        builder = self.identity.apply(builder, region);
        builder
            .build()
            .map_err(|e| Error::Settings(format!("open bucket {}: {e}", self.bucket)))
    }
}

#[async_trait]
impl Connect for Plan {
    async fn connect(&self) -> Result<Clients> {
        let endpoint = "https://s3.amazonaws.com";
        let region = resolve_bucket_region(&self.bucket, &self.http.options(endpoint))
            .await
            .map_err(|e| {
                let action = format!("determine the region of bucket {}", self.bucket);
                reason::of(&action, None, endpoint, &e)
            })?;
        self.clients(&region)
    }
}

fn valid_url(text: &str) -> Result<Url> {
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| {
            Error::Settings(format!(
                "Invalid s3 url {text}, URL must be valid according to \
                 https://golang.org/pkg/net/url/#Parse and start with http:// or https://"
            ))
        })
}

/// Where requests go.
#[derive(Debug, PartialEq)]
struct Place {
    url: String,
    /// Whether the bucket is part of the host's name.
    is_virtual: bool,
}

/// The bucket goes into the host's name as the AWS libraries do it: unless forbidden, when the
/// host has a name at all and the bucket's fits into it.
fn place(url: Option<&Url>, region: &str, bucket: &str, path_style: bool) -> Result<Place> {
    let default = |suffix| Url::parse(&format!("https://s3.{region}.{suffix}"));
    let mut url = match url {
        Some(url) => url.clone(),
        None if region.starts_with("cn-") => default("amazonaws.com.cn")
            .map_err(|_| Error::Settings(format!("region {region:?} is no region")))?,
        None => default("amazonaws.com")
            .map_err(|_| Error::Settings(format!("region {region:?} is no region")))?,
    };
    let fits = !bucket.is_empty()
        && (url.scheme() == "http" || !bucket.contains('.'))
        && bucket
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    let host = match url.host() {
        Some(Host::Domain(host)) if fits && !path_style => Some(format!("{bucket}.{host}")),
        _ => None,
    };
    let is_virtual = host.is_some();
    if let Some(host) = host {
        url.set_host(Some(&host))
            .map_err(|e| Error::Settings(format!("bucket {bucket:?}: {e}")))?;
    }
    Ok(Place {
        url: url.as_str().trim_end_matches('/').to_owned(),
        is_virtual,
    })
}

/// Who encrypts, and with whose key.
enum Encryption {
    None,
    Kms(String),
    /// The customer's key, in base64.
    Customer(String),
    Named(String),
}

impl Encryption {
    fn find(settings: &Settings) -> Result<Self> {
        let choices = [
            "kmsKeyId",
            "customerKeyEncryptionFile",
            "customerKeyEncryptionSecret",
        ];
        if choices.iter().filter(|c| settings.get(c).is_some()).count() > 1 {
            return Err(Error::Settings(
                "you can only use one of: kmsKeyId, customerKeyEncryptionFile, or \
                 customerKeyEncryptionSecret"
                    .into(),
            ));
        }
        if let Some(id) = settings.get("kmsKeyId") {
            return Ok(Self::Kms(id.to_owned()));
        }
        if let Some(file) = settings.get("customerKeyEncryptionFile") {
            let key = std::fs::read(file).map_err(|e| {
                Error::Settings(format!(
                    "could not read customerKeyEncryptionFile: {file}: {e}"
                ))
            })?;
            return Self::customer("customerKeyEncryptionFile", file, &key);
        }
        if let Some(secret) = settings.get("customerKeyEncryptionSecret") {
            let key = settings.customer_key.as_deref().ok_or_else(|| {
                Error::Settings(format!(
                    "customerKeyEncryptionSecret {secret} was not fetched"
                ))
            })?;
            return Self::customer("customerKeyEncryptionSecret", secret, key);
        }
        match settings.get("serverSideEncryption") {
            None => Ok(Self::None),
            Some(name @ ("AES256" | "aws:kms" | "aws:kms:dsse")) => {
                Ok(Self::Named(name.to_owned()))
            }
            Some(other) => Err(Error::Settings(format!(
                "serverSideEncryption {other:?} is not one of AES256, aws:kms, aws:kms:dsse"
            ))),
        }
    }

    fn customer(setting: &str, place: &str, key: &[u8]) -> Result<Self> {
        if key.len() != 32 {
            return Err(Error::Settings(format!(
                "contents of {setting} ({place}) are not exactly 32 bytes"
            )));
        }
        Ok(Self::Customer(STANDARD.encode(key)))
    }

    fn apply(&self, builder: AmazonS3Builder) -> AmazonS3Builder {
        match self {
            Self::None => builder,
            Self::Kms(id) => builder.with_sse_kms_encryption(id),
            Self::Customer(key) => builder.with_ssec_encryption(key),
            Self::Named(name) => match "aws_server_side_encryption".parse::<AmazonS3ConfigKey>() {
                Ok(key) => builder.with_config(key, name),
                Err(_) => builder,
            },
        }
    }
}

/// Every request carries, signed, the SHA-256 of its body, so that damage on the way is refused
/// whatever the setting says; the two algorithms that the client has are sent as well.
fn checksum(settings: &Settings) -> Result<Option<Checksum>> {
    match settings.get("checksumAlgorithm") {
        Some("SHA256") => Ok(Some(Checksum::SHA256)),
        Some("CRC64NVME") => Ok(Some(Checksum::CRC64NVME)),
        None | Some("CRC32" | "CRC32C" | "SHA1") => Ok(None),
        Some(other) => Err(Error::Settings(format!(
            "invalid checksum algorithm: {other}"
        ))),
    }
}

/// The tags of `a=1&b=2`.
fn tags(text: &str) -> Result<TagSet> {
    let mut tags = TagSet::default();
    for (number, pair) in text.split('&').filter(|p| !p.is_empty()).enumerate() {
        let parts: Vec<_> = pair.split('=').collect();
        let [key, value] = parts[..] else {
            return Err(Error::Settings(format!(
                "invalid tags provided: {pair:?} in tagging is not a key, = and a value"
            )));
        };
        if number == 10 {
            return Err(Error::Settings(
                "tagging has more than the ten tags that S3 allows".into(),
            ));
        }
        if key.chars().count() > 128 || value.chars().count() > 256 {
            return Err(Error::Settings(format!(
                "tag {key:?} in tagging is longer than S3 allows"
            )));
        }
        tags.push(key, value);
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_go_into_the_host_name_where_they_fit() {
        for (url, bucket, path_style, expected, is_virtual) in [
            (
                "",
                "b1",
                false,
                "https://b1.s3.eu-west-1.amazonaws.com",
                true,
            ),
            (
                "",
                "b.1",
                false,
                "https://s3.eu-west-1.amazonaws.com",
                false,
            ),
            ("", "B1", false, "https://s3.eu-west-1.amazonaws.com", false),
            (
                "http://minio:9000/",
                "b1",
                false,
                "http://b1.minio:9000",
                true,
            ),
            (
                "http://minio:9000/",
                "b.1",
                false,
                "http://b.1.minio:9000",
                true,
            ),
            ("http://minio:9000", "b1", true, "http://minio:9000", false),
            (
                "http://10.0.0.1:9000",
                "b1",
                false,
                "http://10.0.0.1:9000",
                false,
            ),
            (
                "https://[::1]:9000/s3/",
                "b1",
                false,
                "https://[::1]:9000/s3",
                false,
            ),
        ] {
            let url = Some(url).filter(|url| !url.is_empty()).map(valid_url);
            let url = url.transpose().unwrap();
            let place = place(url.as_ref(), "eu-west-1", bucket, path_style).unwrap();
            let expected = Place {
                url: expected.to_owned(),
                is_virtual,
            };
            assert_eq!(place, expected);
        }
    }

    #[test]
    fn china_has_a_domain_of_its_own() {
        let place = place(None, "cn-north-1", "b1", false).unwrap();
        assert_eq!(place.url, "https://b1.s3.cn-north-1.amazonaws.com.cn");
    }

    #[test]
    fn tags_are_checked_before_the_first_object() {
        assert_eq!(tags("").unwrap().encoded(), "");
        assert_eq!(tags("a=1&b=x/y").unwrap().encoded(), "a=1&b=x%2Fy");
        for bad in ["a", "a=1=2", "a=1&b", &"a=1&".repeat(11), &"k".repeat(200)] {
            assert!(tags(bad).is_err(), "{bad}");
        }
    }
}
