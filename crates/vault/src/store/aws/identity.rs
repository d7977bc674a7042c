//! Who we are to AWS. The first that is there counts: the location's Secret, a credentials file,
//! keys in the environment, the pod's web identity, the container's role, the machine's role.

use std::fmt::{self, Debug};

use bowline_api::StringMap;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use super::super::{Settings, credentials};
use crate::{Error, Result};

/// How requests are signed.
#[derive(PartialEq)]
pub(super) enum Identity {
    Keys {
        id: String,
        secret: String,
        token: Option<String>,
    },
    Web {
        role: String,
        token_file: String,
        session: Option<String>,
    },
    /// A role that the container's host hands out, at a path of its own.
    Task(String),
    /// A role that the cluster hands out to the pod.
    Pod {
        url: String,
        token_file: String,
    },
    Machine,
}

/// Says which way, and nothing that lets others in.
impl Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys { token: None, .. } => "Keys",
            Self::Keys { token: Some(_), .. } => "Keys with a session",
            Self::Web { .. } => "Web",
            Self::Task(_) => "Task",
            Self::Pod { .. } => "Pod",
            Self::Machine => "Machine",
        })
    }
}

/// The identity, and the region that its profile names.
pub(super) fn find(settings: &Settings) -> Result<(Identity, Option<String>)> {
    let wanted = settings.get("profile");
    if let Some((place, text)) = settings.credentials("AWS_SHARED_CREDENTIALS_FILE")? {
        let profiles = credentials::profiles(&text);
        let name = wanted.unwrap_or("default");
        let profile = profiles.get(name).ok_or_else(|| {
            let names: Vec<_> = profiles.keys().map(String::as_str).collect();
            Error::Settings(format!(
                "unable to get credentials: {place} has no profile {name:?}, only [{}]",
                names.join(" ")
            ))
        })?;
        let identity = of_profile(&place, name, profile)?;
        return Ok((identity, profile.get("region").cloned()));
    }
    if let Some(name) = wanted {
        return Err(Error::Settings(format!(
            "unable to get credentials: profile {name:?} is asked for, and there is no credentials \
             file"
        )));
    }
    Ok((of_environment(settings), None))
}

fn of_profile(place: &str, name: &str, profile: &StringMap) -> Result<Identity> {
    let get = |key: &str| profile.get(key).filter(|value| !value.is_empty()).cloned();
    match (get("aws_access_key_id"), get("aws_secret_access_key")) {
        (Some(id), Some(secret)) => {
            return Ok(Identity::Keys {
                id,
                secret,
                token: get("aws_session_token"),
            });
        }
        (None, None) => {}
        (id, _) => {
            let missing = match id {
                Some(_) => "aws_secret_access_key",
                None => "aws_access_key_id",
            };
            return Err(Error::Settings(format!(
                "unable to get credentials: profile {name:?} of {place} has no {missing}"
            )));
        }
    }
    match (get("role_arn"), get("web_identity_token_file")) {
        (Some(role), Some(token_file)) => Ok(Identity::Web {
            role,
            token_file,
            session: get("role_session_name"),
        }),
        (Some(_), None) => Err(Error::Settings(format!(
            "unable to get credentials: profile {name:?} of {place} has a role_arn without \
             web_identity_token_file; other ways to take on a role are not supported"
        ))),
        (None, _) if get("credential_process").is_some() => Err(Error::Settings(format!(
            "unable to get credentials: credential_process in profile {name:?} of {place} is not \
             supported"
        ))),
        (None, _) => Ok(Identity::Machine),
    }
}

fn of_environment(settings: &Settings) -> Identity {
    let env = |name| settings.env(name);
    if let (Some(id), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
        let token = env("AWS_SESSION_TOKEN");
        return Identity::Keys { id, secret, token };
    }
    if let (Some(token_file), Some(role)) =
        (env("AWS_WEB_IDENTITY_TOKEN_FILE"), env("AWS_ROLE_ARN"))
    {
        return Identity::Web {
            role,
            token_file,
            session: env("AWS_ROLE_SESSION_NAME"),
        };
    }
    if let Some(path) = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Identity::Task(path);
    }
    if let (Some(url), Some(token_file)) = (
        env("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ) {
        return Identity::Pod { url, token_file };
    }
    Identity::Machine
}

/// The variables that say who we are; a program that finds others among them is somebody else.
const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

impl Identity {
    /// All the variables; those that must not be set have no value.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let value = |name: &str| match (self, name) {
            (Self::Keys { id, .. }, "AWS_ACCESS_KEY_ID") => id.clone(),
            (Self::Keys { secret, .. }, "AWS_SECRET_ACCESS_KEY") => secret.clone(),
            (Self::Keys { token, .. }, "AWS_SESSION_TOKEN") => token.clone().unwrap_or_default(),
            (Self::Web { role, .. }, "AWS_ROLE_ARN") => role.clone(),
            (Self::Web { token_file, .. }, "AWS_WEB_IDENTITY_TOKEN_FILE")
            | (Self::Pod { token_file, .. }, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") => {
                token_file.clone()
            }
            (Self::Web { session, .. }, "AWS_ROLE_SESSION_NAME") => {
                session.clone().unwrap_or_default()
            }
            (Self::Task(path), "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") => path.clone(),
            (Self::Pod { url, .. }, "AWS_CONTAINER_CREDENTIALS_FULL_URI") => url.clone(),
            _ => String::new(),
        };
        VARIABLES.iter().map(|name| (*name, value(name))).collect()
    }

    pub(super) fn apply(&self, builder: AmazonS3Builder, region: &str) -> AmazonS3Builder {
        use AmazonS3ConfigKey as Key;
        match self {
            Self::Keys { id, secret, token } => {
                let builder = builder
                    .with_access_key_id(id)
                    .with_secret_access_key(secret);
                match token {
                    Some(token) => builder.with_token(token),
                    None => builder,
                }
            }
            Self::Web {
                role,
                token_file,
                session,
            } => {
                let builder = builder
                    .with_config(Key::RoleArn, role)
                    .with_config(Key::WebIdentityTokenFile, token_file);
                let builder = match session {
                    Some(session) => builder.with_config(Key::RoleSessionName, session),
                    None => builder,
                };
                match region.starts_with("cn-") {
                    true => builder.with_config(
                        Key::StsEndpoint,
                        format!("https://sts.{region}.amazonaws.com.cn"),
                    ),
                    false => builder,
                }
            }
            Self::Task(path) => builder.with_config(Key::ContainerCredentialsRelativeUri, path),
            Self::Pod { url, token_file } => builder
                .with_config(Key::ContainerCredentialsFullUri, url)
                .with_config(Key::ContainerAuthorizationTokenFile, token_file),
            Self::Machine => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(secret: Option<&str>, profile: &str, env: fn(&str) -> Option<String>) -> Settings {
        Settings {
            config: [("profile".to_owned(), profile.to_owned())].into(),
            bucket: "b".into(),
            credential: secret.map(|s| s.as_bytes().to_vec()),
            ca: None,
            customer_key: None,
            env,
        }
    }

    fn keys(id: &str) -> Identity {
        Identity::Keys {
            id: id.into(),
            secret: "s".into(),
            token: None,
        }
    }

    const FILE: &str = "[default]\naws_access_key_id=d\naws_secret_access_key=s\n\
        [other]\naws_access_key_id=o\naws_secret_access_key=s\nregion=r\n[half]\n\
        aws_access_key_id=h\n[web]\nrole_arn=a\nweb_identity_token_file=/t\n[role]\nrole_arn=a\n\
        source_profile=default\n[none]\n";

    fn full(name: &str) -> Option<String> {
        Some(match name {
            "AWS_ACCESS_KEY_ID" => "e".into(),
            "AWS_SECRET_ACCESS_KEY" => "s".into(),
            _ => return None,
        })
    }

    fn pod(name: &str) -> Option<String> {
        Some(match name {
            "AWS_WEB_IDENTITY_TOKEN_FILE" => "/t".into(),
            "AWS_ROLE_ARN" => "a".into(),
            _ => return None,
        })
    }

    #[test]
    fn the_secret_comes_before_the_environment() {
        let web = || Identity::Web {
            role: "a".into(),
            token_file: "/t".into(),
            session: None,
        };
        let region = Some("r".to_owned());
        for (secret, profile, env, expected) in [
            (Some(FILE), "", full as fn(&str) -> _, (keys("d"), None)),
            (Some(FILE), "other", full, (keys("o"), region)),
            (Some(FILE), "web", full, (web(), None)),
            (Some(FILE), "none", full, (Identity::Machine, None)),
            (None, "", full, (keys("e"), None)),
            (None, "", pod, (web(), None)),
            (None, "", |_| None, (Identity::Machine, None)),
        ] {
            assert_eq!(find(&settings(secret, profile, env)).unwrap(), expected);
        }
    }

    #[test]
    fn other_programs_are_told_who_we_are() {
        let set = |identity: Identity| {
            let mut variables = identity.variables();
            variables.retain(|(_, value)| !value.is_empty());
            variables
        };
        assert_eq!(
            set(keys("d")),
            [
                ("AWS_ACCESS_KEY_ID", "d".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "s".to_owned())
            ]
        );
        let (web, _) = find(&settings(None, "", pod)).unwrap();
        assert_eq!(
            set(web),
            [
                ("AWS_ROLE_ARN", "a".to_owned()),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t".to_owned())
            ]
        );
        assert_eq!(Identity::Machine.variables().len(), VARIABLES.len());
        assert_eq!(set(Identity::Machine), []);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (profile, words) in [
            (
                "nobody",
                "has no profile \"nobody\", only [default half none",
            ),
            (
                "half",
                "profile \"half\" of the credential's Secret has no aws_secret_access_key",
            ),
            (
                "role",
                "profile \"role\" of the credential's Secret has a role_arn without",
            ),
        ] {
            let error = find(&settings(Some(FILE), profile, full)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(words), "{text}");
        }
    }
}
