//! Volume repositories: what they are called, where they are, and how to open one.

use std::time::Duration;

use bowline_api::{
    names::{
        REPO_CREDENTIALS_DEFAULT, REPO_CREDENTIALS_KEY, REPO_CREDENTIALS_SECRET, label, label_value,
    },
    v1::{
        BackupRepository, BackupRepositoryPhase as Phase, BackupRepositorySpec,
        BackupStorageLocation, UploaderType,
    },
};
use bowline_volume::{
    embedded::{Budget, Identity, Repository},
    program::identifier,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, SecretKeySelector},
};
use kube::{Api, ResourceExt, api::PostParams, runtime::wait::await_condition};

use crate::{Context, Error, Result};

/// The folder of all repositories in a bucket.
const FOLDER: &str = "restic";
/// What a repository says whose location has changed, until it was tried again.
pub(crate) const CHANGED: &str = "re-establish on BSL change, create or delete";

/// What the server uses for repositories: it forgets and tidies up, but copies nothing.
const BUDGET: Budget = Budget {
    memory: 64 << 20,
    threads: 2,
    patience: Duration::from_secs(60),
};

/// The object's name for the repository of a namespace in a location.
pub(crate) fn name(namespace: &str, location: &str) -> String {
    label_value(&format!("{namespace}-{location}-{FOLDER}"))
}

/// The folder of a namespace's repository in the bucket.
pub(crate) fn folder(namespace: &str) -> String {
    format!("{FOLDER}/{namespace}")
}

/// The object for the repository of a namespace in a location.
pub(crate) fn object(
    ctx: &Context,
    namespace: &str,
    location: &str,
    identifier: &str,
) -> BackupRepository {
    let spec = BackupRepositorySpec {
        volume_namespace: namespace.to_owned(),
        backup_storage_location: location.to_owned(),
        repository_type: Some(UploaderType::Restic),
        restic_identifier: Some(identifier.to_owned()),
        maintenance_frequency: ctx.settings.default_repo_maintain_frequency.into(),
        ..BackupRepositorySpec::default()
    };
    let mut object = BackupRepository::new(&ctx.namespace, &name(namespace, location), spec);
    for (key, value) in [
        (label::VOLUME_NAMESPACE, namespace),
        (label::STORAGE_LOCATION, location),
        (label::REPOSITORY_TYPE, FOLDER),
    ] {
        object
            .labels_mut()
            .insert(key.to_owned(), label_value(value));
    }
    object
}

/// Opens the repository of a namespace in a location.
pub(crate) async fn open(
    ctx: &Context,
    location: &BackupStorageLocation,
    namespace: &str,
) -> Result<Repository> {
    let (bucket, password) = (bucket(ctx, location).await?, password(ctx).await?);
    let folder = folder(namespace);
    Ok(Repository::open(bucket, &folder, &password, identity(ctx), BUDGET).await?)
}

/// Opens the repository of a namespace in a location; makes it first when there is none.
pub(crate) async fn open_or_create(
    ctx: &Context,
    location: &BackupStorageLocation,
    namespace: &str,
) -> Result<Repository> {
    match open(ctx, location, namespace).await {
        Err(Error::Volume(bowline_volume::Error::NoRepository(_))) => {}
        done => return done,
    }
    let (bucket, password) = (bucket(ctx, location).await?, password(ctx).await?);
    let folder = folder(namespace);
    match Repository::create(bucket, &folder, &password, identity(ctx), BUDGET).await {
        // Somebody was faster.
        Err(bowline_volume::Error::Exists(_)) => open(ctx, location, namespace).await,
        done => {
            let repository = done?;
            tracing::info!(namespace, location = %location.name_any(), "volume repository made");
            Ok(repository)
        }
    }
}

async fn bucket(ctx: &Context, location: &BackupStorageLocation) -> Result<bowline_vault::Bucket> {
    // What is under way when the server is to stop still takes its locks off.
    Ok(ctx.bucket(location).await?.with_cancel(ctx.abort.clone()))
}

fn identity(ctx: &Context) -> Identity {
    let host = std::env::var("HOSTNAME").unwrap_or_default();
    Identity {
        hostname: if host.is_empty() {
            "bowline-server".to_owned()
        } else {
            host
        },
        since: ctx.started,
    }
}

/// The password of all repositories.
pub(crate) async fn password(ctx: &Context) -> Result<String> {
    let key = SecretKeySelector {
        name: REPO_CREDENTIALS_SECRET.to_owned(),
        key: REPO_CREDENTIALS_KEY.to_owned(),
        optional: None,
    };
    let unusable =
        |why: String| Error::Credentials(format!("password of volume repositories: {why}"));
    let bytes = ctx.secret(&key).await.map_err(unusable)?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| unusable(format!("{REPO_CREDENTIALS_KEY} is not text")))?;
    Ok(text.trim().to_owned())
}

/// Makes the Secret with the password, unless it is there.
pub(crate) async fn ensure_password(ctx: &Context) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let read = api.get_opt(REPO_CREDENTIALS_SECRET).await;
    let action = format!("read secret {REPO_CREDENTIALS_SECRET}");
    if read.map_err(Error::api(action))?.is_some() {
        return Ok(());
    }
    let password = ByteString(REPO_CREDENTIALS_DEFAULT.as_bytes().to_vec());
    let mut secret = Secret {
        data: Some([(REPO_CREDENTIALS_KEY.to_owned(), password)].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    secret.metadata.name = Some(REPO_CREDENTIALS_SECRET.to_owned());
    match api.create(&PostParams::default(), &secret).await {
        Ok(_) => tracing::info!("made secret {REPO_CREDENTIALS_SECRET} for volume repositories"),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => {
            let action = format!("create secret {REPO_CREDENTIALS_SECRET}");
            return Err(Error::api(action)(error));
        }
    }
    Ok(())
}

/// Sees to it that the repository of a namespace in a location can be used, and returns where
/// restic finds it. The inner error says why it cannot be used.
pub(crate) async fn ensure(
    ctx: &Context,
    location: &BackupStorageLocation,
    namespace: &str,
) -> Result<Result<String, String>> {
    let identifier = match identifier(&location.spec, namespace) {
        Ok(identifier) => identifier,
        Err(why) => return Ok(Err(why)),
    };
    let name = name(namespace, &location.name_any());
    match ctx.find::<BackupRepository>(&name).await? {
        None => {
            let new = object(ctx, namespace, &location.name_any(), &identifier);
            ctx.create(&new).await?;
        }
        Some(old) if old.spec.restic_identifier.as_deref() != Some(&identifier) => {
            let mut new = old.clone();
            not_ready(&mut new, CHANGED);
            match ctx.update(&old, &new).await {
                Err(error) if error.is_stale() => {}
                done => drop(done?),
            }
        }
        Some(_) => {}
    }
    let is_decided = |found: Option<&BackupRepository>| {
        found.is_some_and(|found| {
            let is_same = found.spec.restic_identifier.as_deref() == Some(&identifier);
            is_same && standing(found) != Standing::Unknown
        })
    };
    let waiting = await_condition(ctx.api::<BackupRepository>(), &name, is_decided);
    let limit = ctx.settings.resource_timeout;
    let found = match tokio::time::timeout(limit, waiting).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Ok(Err(format!("watch backup repository {name}: {error}"))),
        Err(_) => {
            let limit = limit.as_secs();
            return Ok(Err(format!(
                "backup repository {name} is not ready after {limit}s"
            )));
        }
    };
    Ok(match found.as_ref().map(standing) {
        Some(Standing::Ready) => Ok(identifier),
        Some(Standing::NotReady(why)) => {
            Err(format!("backup repository {name} is not ready: {why}"))
        }
        Some(Standing::Unknown) | None => Err(format!("backup repository {name} was deleted")),
    })
}

/// Whether a repository can be used.
#[derive(Debug, PartialEq)]
enum Standing {
    Ready,
    NotReady(String),
    /// Nobody has looked yet.
    Unknown,
}

fn standing(repository: &BackupRepository) -> Standing {
    let status = repository.status.as_ref();
    let message = status
        .and_then(|s| s.message.as_deref())
        .unwrap_or_default();
    match status.and_then(|status| status.phase.as_ref()) {
        Some(Phase::Ready) => Standing::Ready,
        Some(Phase::NotReady) if message != CHANGED => Standing::NotReady(message.to_owned()),
        _ => Standing::Unknown,
    }
}

pub(crate) fn not_ready(repository: &mut BackupRepository, why: &str) {
    let status = repository.status_mut();
    status.phase = Some(Phase::NotReady);
    status.message = Some(why.to_owned());
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn names_are_labels() {
        assert_eq!(name("shop", "default"), "shop-default-restic");
        assert_eq!(name(&"s".repeat(63), "default").len(), 63);
    }

    #[test]
    fn a_location_that_has_changed_says_nothing_about_its_repository() {
        let mut repository = BackupRepository::default();
        assert_eq!(standing(&repository), Standing::Unknown);
        not_ready(&mut repository, CHANGED);
        assert_eq!(standing(&repository), Standing::Unknown);
        not_ready(&mut repository, "no room");
        assert_eq!(
            standing(&repository),
            Standing::NotReady("no room".to_owned())
        );
        repository.status_mut().phase = Some(Phase::Ready);
        assert_eq!(standing(&repository), Standing::Ready);
    }
}
