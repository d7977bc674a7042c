//! What a provider is opened with: the location's `config` and secrets, and the environment.

use bowline_api::StringMap;

use super::http::Http;
use crate::{Error, Result};

/// The settings of one location, and where else to look.
pub(crate) struct Settings {
    /// `spec.config`.
    pub(crate) config: StringMap,
    /// The bucket, without slashes.
    pub(crate) bucket: String,
    /// What `spec.credential` refers to.
    pub(crate) credential: Option<Vec<u8>>,
    /// The CA bundle to trust, in PEM.
    pub(crate) ca: Option<Vec<u8>>,
    /// What `customerKeyEncryptionSecret` refers to.
    pub(crate) customer_key: Option<Vec<u8>>,
    /// The environment, which tests replace.
    pub(crate) env: fn(&str) -> Option<String>,
}

impl Settings {
    /// A setting that is there and not empty.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let value = self.config.get(key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// A variable that is there and not empty.
    pub(super) fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// A setting that is a truth value, in the spellings that Go reads.
    pub(crate) fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some(other) => Err(Error::Settings(format!(
                "could not parse {key} (expected bool): {other:?}"
            ))),
        }
    }

    /// Refuses settings that the provider does not know; a misspelt one would be ignored.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        let valid: Vec<_> = known
            .iter()
            .chain(&["bucket", "prefix", "caCert"])
            .copied()
            .collect();
        let invalid: Vec<_> = self
            .config
            .keys()
            .map(String::as_str)
            .filter(|key| !valid.contains(key))
            .collect();
        if invalid.is_empty() {
            return Ok(());
        }
        Err(Error::Settings(format!(
            "config has invalid keys [{}]; valid keys are [{}]",
            invalid.join(" "),
            valid.join(" ")
        )))
    }

    /// The credentials: the location's Secret, else the file that the setting `credentialsFile`
    /// names, else the one that the variable `file` names; with the name of the place, for errors.
    pub(super) fn credentials(&self, file: &str) -> Result<Option<(String, String)>> {
        if let Some(secret) = &self.credential {
            let text = String::from_utf8(secret.clone())
                .map_err(|_| Error::Settings("the credential's Secret is not text".into()))?;
            return Ok(Some(("the credential's Secret".into(), text)));
        }
        let Some(path) = self
            .get("credentialsFile")
            .map(str::to_owned)
            .or_else(|| self.env(file))
        else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(&path)
            .map_err(|e| Error::Settings(format!("unable to get credentials: {path}: {e}")))?;
        Ok(Some((path, text)))
    }

    /// How to reach an HTTP store.
    pub(super) fn http(&self) -> Result<Http> {
        Http::new(self.ca.as_deref(), self.flag("insecureSkipTLSVerify")?)
    }
}
