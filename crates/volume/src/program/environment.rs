//! What restic must find in its environment to get at a location's bucket.

use std::fmt;

use bowline_vault::{Location, location, store::Access};

/// The only place where restic looks for Google Cloud Storage.
const GOOGLE: &str = "https://storage.googleapis.com";

/// Variables of restic, beside those that this process has itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Names and values; without a value the variable is taken away.
    pub variables: Vec<(String, String)>,
    /// Names of variables that name a file, and what is in the file.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Names only: values are secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables = self.variables.iter().map(|(name, _)| name);
        let files = self.files.iter().map(|(name, _)| name);
        f.debug_set().entries(variables.chain(files)).finish()
    }
}

impl Environment {
    /// Values that nobody else may see.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let is_secret = |name: &str| {
            let marks = ["SECRET", "KEY", "TOKEN", "PASSWORD", "SAS"];
            !name.ends_with("_FILE") && marks.iter().any(|mark| name.contains(mark))
        };
        self.variables
            .iter()
            .filter(move |(name, _)| is_secret(name))
            .map(|(_, value)| value.as_str())
    }
}

/// The environment for the bucket of a location.
///
/// # Errors
/// When the settings cannot be used, or restic has no way to do what they say; the text names the
/// setting.
pub fn environment(location: &Location) -> Result<Environment, String> {
    let config = location.object.spec.config.as_ref();
    for key in ["customerKeyEncryptionFile", "customerKeyEncryptionSecret"] {
        if config
            .and_then(|c| c.get(key))
            .is_some_and(|value| !value.is_empty())
        {
            return Err(format!("the restic program knows no {key}"));
        }
    }
    match location::access(location).map_err(|e| e.to_string())? {
        Access::Aws { variables } => Ok(of(variables)),
        Access::Azure {
            account,
            endpoint,
            key,
            mut variables,
        } => {
            let suffix = endpoint.strip_prefix(&format!("https://{account}.blob."));
            let suffix = suffix.ok_or_else(|| {
                format!(
                    "the restic program reaches Azure only at https://{account}.blob.<domain>, \
                     not at {endpoint}"
                )
            })?;
            variables.push(("AZURE_ENDPOINT_SUFFIX", suffix.to_owned()));
            variables.push(("AZURE_ACCOUNT_NAME", account));
            variables.push(("AZURE_ACCOUNT_KEY", key.unwrap_or_default()));
            variables.push(("AZURE_ACCOUNT_SAS", String::new()));
            Ok(of(variables))
        }
        Access::Gcp { endpoint, account } => {
            if endpoint != GOOGLE {
                return Err(format!(
                    "the restic program reaches Google Cloud Storage only at {GOOGLE}, not at \
                     {endpoint}"
                ));
            }
            let name = "GOOGLE_APPLICATION_CREDENTIALS";
            Ok(match account {
                Some(text) => Environment {
                    files: vec![(name.to_owned(), text.into_bytes())],
                    ..Default::default()
                },
                None => of(vec![(name, String::new())]),
            })
        }
        Access::Folder => Ok(Environment::default()),
    }
}

fn of(variables: Vec<(&'static str, String)>) -> Environment {
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    Environment {
        variables: variables.into_iter().map(owned).collect(),
        files: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::{
        BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation,
    };

    use super::*;

    fn try_of(
        provider: &str,
        config: &[(&str, &str)],
        secret: &str,
    ) -> Result<Environment, String> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        let spec = BackupStorageLocationSpec {
            provider: provider.into(),
            config: Some(config.iter().map(pair).collect()),
            object_storage: ObjectStorageLocation {
                bucket: "b".into(),
                ..Default::default()
            },
            ..Default::default()
        };
        environment(&Location {
            object: BackupStorageLocation::new("velero", "default", spec),
            credential: Some(secret.as_bytes().to_vec()),
            ..Default::default()
        })
    }

    /// What is set, and what is taken away.
    fn split(environment: &Environment) -> (Vec<(&str, &str)>, Vec<&str>) {
        let pairs = environment.variables.iter();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
        let (set, gone): (Vec<_>, Vec<_>) = pairs.partition(|(_, value)| !value.is_empty());
        (set, gone.into_iter().map(|(name, _)| name).collect())
    }

    const PROFILES: &str = "[default]\naws_access_key_id=AK\naws_secret_access_key=hush\n\
        [other]\naws_access_key_id=OK\naws_secret_access_key=quiet\naws_session_token=still\n";

    #[test]
    fn s3_gets_keys_and_no_files() {
        let config = [("region", "eu-west-1"), ("profile", "other")];
        let environment = try_of("velero.io/aws", &config, PROFILES).unwrap();
        let (set, gone) = split(&environment);
        assert_eq!(
            set,
            [
                ("AWS_ACCESS_KEY_ID", "OK"),
                ("AWS_SECRET_ACCESS_KEY", "quiet"),
                ("AWS_SESSION_TOKEN", "still"),
                ("AWS_DEFAULT_REGION", "eu-west-1"),
            ]
        );
        for name in [
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_PROFILE",
            "AWS_CONFIG_FILE",
        ] {
            assert!(gone.contains(&name), "{name}");
        }
        let environment = try_of("aws", &[], PROFILES).unwrap();
        let (set, gone) = split(&environment);
        assert_eq!(
            set,
            [
                ("AWS_ACCESS_KEY_ID", "AK"),
                ("AWS_SECRET_ACCESS_KEY", "hush")
            ]
        );
        assert!(gone.contains(&"AWS_SESSION_TOKEN"));
        assert_eq!(environment.secrets().filter(|s| !s.is_empty()).count(), 2);
        assert!(!format!("{environment:?}").contains("hush"));
    }

    #[test]
    fn azure_gets_its_account_and_the_key_or_who_we_are() {
        let account = ("storageAccount", "acc");
        let secret = "K=aHVzaA==\nAZURE_CLOUD_NAME=AzureChinaCloud\n";
        let key = ("storageAccountKeyEnvVar", "K");
        let environment = try_of("azure", &[account, key], secret).unwrap();
        assert_eq!(
            split(&environment).0,
            [
                ("AZURE_ENDPOINT_SUFFIX", "core.chinacloudapi.cn"),
                ("AZURE_ACCOUNT_NAME", "acc"),
                ("AZURE_ACCOUNT_KEY", "aHVzaA=="),
            ]
        );
        let secret = "AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET=hush\n";
        let environment = try_of("azure", &[account, ("useAAD", "true")], secret).unwrap();
        assert_eq!(
            split(&environment).0,
            [
                ("AZURE_TENANT_ID", "t"),
                ("AZURE_CLIENT_ID", "c"),
                ("AZURE_CLIENT_SECRET", "hush"),
                ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com"),
                ("AZURE_ENDPOINT_SUFFIX", "core.windows.net"),
                ("AZURE_ACCOUNT_NAME", "acc"),
            ]
        );
    }

    #[test]
    fn google_gets_a_file_and_folders_get_nothing() {
        let text = r#"{"type":"service_account"}"#;
        let environment = try_of("gcp", &[], text).unwrap();
        let file = (
            "GOOGLE_APPLICATION_CREDENTIALS".to_owned(),
            text.as_bytes().to_vec(),
        );
        assert_eq!(environment.files, [file]);
        assert_eq!(
            try_of("fs", &[("path", "/srv")], "").unwrap(),
            Environment::default()
        );
    }

    #[test]
    fn what_restic_cannot_do_is_named() {
        let uri = ("storageAccountURI", "http://127.0.0.1:1/acc");
        let account = ("storageAccount", "acc");
        let key = ("storageAccountKeyEnvVar", "K");
        for (provider, config, secret, words) in [
            (
                "aws",
                &[("customerKeyEncryptionSecret", "s/k")][..],
                PROFILES,
                "knows no customerKeyEncryptionSecret",
            ),
            ("aws", &[("profile", "x")], PROFILES, "has no profile \"x\""),
            (
                "azure",
                &[account, uri, key],
                "K=x",
                "not at http://127.0.0.1:1/acc",
            ),
            (
                "gcp",
                &[("storeEndpoint", "s.example.org")],
                "{}",
                "not at https://s.example.org",
            ),
            (
                "swift",
                &[],
                "",
                "unknown object storage provider \"swift\"",
            ),
        ] {
            let error = try_of(provider, config, secret).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
