//! The plugins of the server: looked for when it starts, and started for each piece of work.

pub(crate) mod actions;
mod store;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bowline_api::names::annotation;
use bowline_engine::log::{self as run_log, About, Log};
use bowline_plugin::{
    host::{self, Entry, Level, Line, Registry, Settings, Sink},
    kinds::Kind,
};
use bowline_vault::{Bucket, Location, location, store::is_built_in};
use k8s_openapi::api::core::v1::SecretKeySelector;
use kube::ResourceExt;
use tokio::sync::watch;

use self::store::Store;
use crate::{Error, Result};

/// The server's plugins.
pub struct Plugins {
    args: Vec<OsString>,
    /// Whether those that handle snapshots of CSI drivers are called.
    has_csi: bool,
    found: watch::Receiver<Option<Arc<Registry>>>,
}

impl Default for Plugins {
    /// None at all.
    fn default() -> Self {
        let (_, found) = watch::channel(Some(Arc::default()));
        Self {
            args: Vec::new(),
            has_csi: false,
            found,
        }
    }
}

impl Plugins {
    /// Looks for those of a folder. That goes on in the background: a plugin that takes its time
    /// holds up only those who want one. Each is given the server's own flags.
    #[must_use]
    pub fn find(folder: PathBuf, args: Vec<OsString>, has_csi: bool) -> Self {
        let (tell, found) = watch::channel(None);
        let plugins = Self {
            args,
            has_csi,
            found,
        };
        let settings = plugins.settings(Arc::new(|line| log(&line)));
        tokio::spawn(async move {
            let registry = Registry::read(&folder, &settings).await;
            for entry in registry.entries() {
                let program = entry.program.display();
                tracing::info!(kind = %entry.kind, name = entry.name, %program, "plugin");
            }
            for trouble in registry.troubles() {
                tracing::error!(program = %trouble.program.display(), "no plugin: {}", trouble.reason);
            }
            tell.send_replace(Some(Arc::new(registry)));
        });
        plugins
    }

    fn settings(&self, sink: Sink) -> Settings {
        Settings {
            args: self.args.clone(),
            sink: Some(sink),
            ..Settings::default()
        }
    }

    /// What there is, once that is known.
    pub async fn registry(&self) -> Arc<Registry> {
        let mut found = self.found.clone();
        // Whoever looks always tells, unless the server ends.
        match found.wait_for(Option::is_some).await {
            Ok(found) => found.clone().unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }

    /// Plugins for one piece of work, which hears what they say.
    pub async fn start(&self, sink: Sink) -> host::Plugins {
        let mut registry = self.registry().await;
        if !self.has_csi {
            Arc::make_mut(&mut registry).retain(|entry| !is_csi(entry));
        }
        host::Plugins::new(registry, self.settings(sink))
    }

    /// The bucket of a location whose provider is a plugin; none if it is built in, unless the
    /// location asks for the plugin of that name.
    pub(crate) async fn bucket(&self, of: &Location) -> Result<Option<Bucket>> {
        let object = &of.object;
        let provider = &object.spec.provider;
        let wants_plugin = object.annotations().contains_key(annotation::USE_PLUGIN);
        if is_built_in(provider) && !wants_plugin {
            return Ok(None);
        }
        let plugins = self.start(Arc::new(|line| log(&line))).await;
        if plugins
            .registry()
            .find(Kind::ObjectStore, provider)
            .is_none()
            && !wants_plugin
        {
            return Ok(None);
        }
        let file = match (&object.spec.credential, &of.credential) {
            (Some(key), Some(secret)) => {
                let namespace = object.namespace().unwrap_or_default();
                Some(credentials_file(&namespace, key, secret)?)
            }
            _ => None,
        };
        let (bucket, config) = location::for_plugin(of, file.as_deref())?;
        let store = Store::open(plugins, provider, &bucket, &config).await?;
        let prefix = object.spec.object_storage.prefix.as_deref();
        Ok(Some(Bucket::new(
            Arc::new(store),
            prefix.unwrap_or_default(),
        )))
    }
}

/// Whether an action is one of Velero's that snapshot volumes of CSI drivers. They are always listed,
/// and called only where that feature is on.
fn is_csi(entry: &Entry) -> bool {
    let kinds = [&actions::BACKUP[..], &actions::RESTORE[..]].concat();
    kinds.contains(&entry.kind) && entry.name.contains("velero.io/csi-")
}

/// What a plugin says, in the server's own log.
pub(crate) fn log(line: &Line) {
    match line.level {
        Level::Debug => tracing::debug!("{line}"),
        Level::Info => tracing::info!("{line}"),
        Level::Warning => tracing::warn!("{line}"),
        Level::Error => tracing::error!("{line}"),
    }
}

/// What plugins say goes into the log of a run, where errors and warnings count if they are to.
pub(crate) fn into_log(log: &Log, counts: bool) -> Sink {
    let run = log.clone();
    Arc::new(move |line: Line| {
        tracing::debug!("{line}");
        let level = match line.level {
            Level::Debug => run_log::Level::Debug,
            Level::Info => run_log::Level::Info,
            Level::Warning => run_log::Level::Warning,
            Level::Error => run_log::Level::Error,
        };
        let field = |wanted: &str| {
            let mut fields = line.fields.iter();
            let found = fields.find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let message = match field("pluginName") {
            Some(plugin) => format!("{} (plugin {plugin})", line.message),
            None => line.message.clone(),
        };
        let about = About {
            error: field("error"),
            ..About::default()
        };
        match counts {
            true => run.write(level, &message, &about),
            false => run.relay(level, &message, &about),
        }
    })
}

/// Writes the credentials of a location where its plugin can read them, and nobody else.
pub(crate) fn credentials_file(
    namespace: &str,
    key: &SecretKeySelector,
    secret: &[u8],
) -> Result<PathBuf> {
    let root = std::env::temp_dir().join("credentials");
    let file = place(&root, namespace, key);
    let written = write_private(&file, secret);
    written.map_err(|e| Error::Credentials(format!("write {}: {e}", file.display())))?;
    Ok(file)
}

fn place(root: &Path, namespace: &str, key: &SecretKeySelector) -> PathBuf {
    let SecretKeySelector { name, key, .. } = key;
    root.join(namespace).join(format!("{name}-{key}"))
}

fn write_private(file: &Path, text: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // As a whole, since a plugin may be reading it.
    let new = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o640))?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_of_csi_are_known_by_their_names() {
        for (kind, name, expected) in [
            (
                Kind::BackupItemActionV2,
                "velero.io/csi-pvc-backupper",
                true,
            ),
            (
                Kind::RestoreItemActionV2,
                "velero.io/csi-pvc-restorer",
                true,
            ),
            (Kind::BackupItemAction, "velero.io/crd-remap-version", false),
            (Kind::BackupItemActionV2, "example.com/csi-x", false),
            (
                Kind::DeleteItemAction,
                "velero.io/csi-volumesnapshotcontent-delete",
                false,
            ),
        ] {
            let entry = Entry {
                kind,
                name: name.to_owned(),
                program: PathBuf::new(),
            };
            assert_eq!(is_csi(&entry), expected, "{name}");
        }
    }

    #[test]
    fn credentials_are_for_their_plugin_alone() {
        let root = tempfile::tempdir().unwrap();
        let key = SecretKeySelector {
            name: "cloud".to_owned(),
            key: "cloud".to_owned(),
            optional: None,
        };
        let file = place(root.path(), "velero", &key);
        assert!(file.ends_with("velero/cloud-cloud"));
        for text in ["one", "two"] {
            write_private(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o640);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
