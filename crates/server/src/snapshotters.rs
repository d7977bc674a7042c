//! Snapshotters: plugins, each set up for a location of volume snapshots.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bowline_api::{names::annotation, v1::VolumeSnapshotLocation};
use bowline_plugin::{
    Code, Error, Status,
    host::{Plugins, Sink},
    kinds::{Config, Progress, VolumeSnapshotter},
};
use kube::ResourceExt;

use crate::{Context, Settings, plugins::credentials_file, settings::uploads};

/// How long a plugin may take to say how far it is. Nobody depends on that.
const PATIENCE: Duration = Duration::from_secs(10);

/// A plugin that is set up for one location. Its process ends with it.
pub(crate) struct Snapshotter {
    /// The location, by name.
    pub(crate) location: String,
    /// The provider, as the location names it.
    pub(crate) provider: String,
    /// The plugin.
    pub(crate) plugin: Arc<dyn VolumeSnapshotter>,
    plugins: Option<Plugins>,
    /// Whether it may upload snapshots: somebody wants that, and it has not said that it cannot.
    uploads: AtomicBool,
    /// Whether it has not said that it cannot tell how far it is.
    tells: AtomicBool,
}

impl Snapshotter {
    /// Sets a plugin up. The error is for a person.
    pub(crate) async fn open(
        ctx: &Context,
        location: &VolumeSnapshotLocation,
        sink: Sink,
    ) -> Result<Self, String> {
        let name = location.name_any();
        let provider = location.spec.provider.clone();
        let mut config: Config = location.spec.config.clone().unwrap_or_default();
        if let Some(key) = &location.spec.credential {
            let secret = ctx.secret(key).await;
            let secret = secret.map_err(|why| format!("unable to get credentials: {why}"))?;
            let file = credentials_file(&ctx.namespace, key, &secret);
            let file = file.map_err(|error| error.chain())?;
            config.insert("credentialsFile".to_owned(), file.display().to_string());
        }
        let plugins = ctx.plugins.start(sink).await;
        let opened = async {
            let plugin = plugins.volume_snapshotter(&provider)?;
            plugin.init(&config).await?;
            Ok::<_, Error>(plugin)
        };
        match opened.await {
            Ok(plugin) => Ok(Self {
                location: name,
                provider,
                plugin,
                plugins: Some(plugins),
                uploads: AtomicBool::new(wants_upload(location, &ctx.settings)),
                tells: AtomicBool::new(true),
            }),
            Err(error) => {
                plugins.stop().await;
                Err(error.to_string())
            }
        }
    }

    pub(crate) fn may_upload(&self) -> bool {
        self.uploads.load(Ordering::Relaxed)
    }

    /// It has said that it does not have the call, rather than nothing to do in it.
    pub(crate) fn cannot_upload(&self) {
        self.uploads.store(false, Ordering::Relaxed);
    }

    pub(crate) fn may_tell(&self) -> bool {
        self.tells.load(Ordering::Relaxed)
    }

    /// How far it is with a snapshot; none if it does not say. One that does not have the call is not
    /// asked again.
    pub(crate) async fn progress(&self, snapshot: &str, volume: Option<&str>) -> Option<Progress> {
        if !self.may_tell() {
            return None;
        }
        let asked = self.plugin.progress(snapshot, volume);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(progress)) => Some(progress),
            Ok(Err(error)) => {
                if error.code() == Some(Code::Unimplemented) {
                    self.tells.store(false, Ordering::Relaxed);
                }
                tracing::debug!(snapshot, "progress: {error}");
                None
            }
            Err(_) => {
                tracing::debug!(snapshot, "progress: no answer");
                None
            }
        }
    }
}

impl Drop for Snapshotter {
    fn drop(&mut self) {
        if let Some(plugins) = self.plugins.take()
            && let Ok(handle) = tokio::runtime::Handle::try_current()
        {
            handle.spawn(async move { plugins.stop().await });
        }
    }
}

/// Whether a plugin does not have a call at all; an error from inside the call says where it was made.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(
        error,
        Error::Status(Status {
            code: Code::Unimplemented,
            place: None,
            ..
        })
    )
}

/// Whether snapshots of a location are to be uploaded: the location says so, or the server's flag
/// for its provider; otherwise they are, if the plugin can.
fn wants_upload(location: &VolumeSnapshotLocation, settings: &Settings) -> bool {
    let said = location.annotations().get(annotation::SNAPSHOT_TYPE);
    if let Some(word) = said {
        match uploads(word) {
            Some(wanted) => return wanted,
            None => tracing::warn!(
                location = location.name_any(),
                "{} is {word:?}, which is neither local nor cloud",
                annotation::SNAPSHOT_TYPE
            ),
        }
    }
    let full = |provider: &str| match provider.contains('/') {
        true => provider.to_owned(),
        false => format!("velero.io/{provider}"),
    };
    let provider = full(&location.spec.provider);
    let mut flags = settings.snapshot_type.iter().rev();
    flags
        .find(|flag| full(&flag.provider) == provider)
        .is_none_or(|flag| flag.uploads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_and_flags_say_whether_snapshots_are_uploaded() {
        let location = |provider: &str, word: Option<&str>| {
            let mut location = VolumeSnapshotLocation::default();
            location.spec.provider = provider.to_owned();
            if let Some(word) = word {
                let annotations = location.annotations_mut();
                annotations.insert(annotation::SNAPSHOT_TYPE.to_owned(), word.to_owned());
            }
            location
        };
        let mut settings = Settings::default();
        assert!(wants_upload(&location("aws", None), &settings));
        settings.snapshot_type = ["velero.io/aws=local", "example.com/disk=cloud"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        for (provider, word, expected) in [
            ("aws", None, false),
            ("velero.io/aws", None, false),
            ("aws", Some("cloud"), true),
            ("aws", Some("elsewhere"), false),
            ("example.com/disk", None, true),
            ("example.com/disk", Some("local"), false),
            ("other", None, true),
        ] {
            let wanted = wants_upload(&location(provider, word), &settings);
            assert_eq!(wanted, expected, "{provider} {word:?}");
        }
    }
}
