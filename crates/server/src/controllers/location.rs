//! BackupStorageLocation: whether each bucket can be used, and that only one is the default.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bowline_api::{
    Time,
    v1::{BackupStorageLocation, BackupStorageLocationPhase as Phase, BackupStorageLocationSpec},
};
use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, runtime::controller::Action};

use super::{Reconciler, after};
use crate::{Context, Result};

/// The controller's name. It cannot be disabled.
pub const NAME: &str = "backup-storage-location";

/// A bucket that does not answer within this is not available.
const LIMIT: Duration = Duration::from_secs(60);
/// Buckets are tried no more often than this, whatever a location asks for.
const OFTEN: Duration = Duration::from_secs(1);

/// Looks after locations until the server stops.
pub async fn run(ctx: Arc<Context>) {
    let locations = Locations {
        ctx: Arc::clone(&ctx),
        checked: Mutex::default(),
        without_default: AtomicBool::new(false),
    };
    super::run(&ctx, locations).await;
}

struct Locations {
    ctx: Arc<Context>,
    /// What was checked by this process: a changed spec is checked at once, and so is everything
    /// after a start.
    checked: Mutex<HashMap<String, BackupStorageLocationSpec>>,
    without_default: AtomicBool,
}

/// What a location needs.
#[derive(Debug, PartialEq)]
enum Step {
    Check,
    Wait(SignedDuration),
    Rest,
}

/// Whether a location is to be checked. `is_known`: its spec was checked before as it is.
fn next(
    location: &BackupStorageLocation,
    is_known: bool,
    server: Duration,
    now: Timestamp,
) -> Step {
    let status = location.status.as_ref();
    let Some(last) = status.and_then(|status| status.last_validation_time) else {
        return Step::Check;
    };
    if !is_known {
        return Step::Check;
    }
    let frequency = frequency(&location.spec, server);
    if frequency.is_zero() {
        return Step::Rest;
    }
    let frequency = SignedDuration::try_from(frequency.max(OFTEN)).unwrap_or(SignedDuration::MAX);
    let passed = now.duration_since(last.0);
    // A last time in the future is a clock that was put back.
    if passed >= frequency || passed.is_negative() {
        Step::Check
    } else {
        Step::Wait(frequency - passed)
    }
}

/// The location's own frequency; the server's where it has none, or one that means nothing.
fn frequency(spec: &BackupStorageLocationSpec, server: Duration) -> Duration {
    let own = spec.validation_frequency.as_ref();
    match own.and_then(|own| own.nanos().ok()) {
        Some(nanos @ 0..) => Duration::from_nanos(nanos.unsigned_abs()),
        _ => server,
    }
}

/// What can be seen to be wrong without a look at the bucket.
fn fault(spec: &BackupStorageLocationSpec) -> Option<String> {
    let storage = &spec.object_storage;
    if storage.ca_cert.is_some() && storage.ca_cert_ref.is_some() {
        return Some("cannot specify both caCert and caCertRef in objectStorage".to_owned());
    }
    [
        ("validationFrequency", &spec.validation_frequency),
        ("backupSyncPeriod", &spec.backup_sync_period),
    ]
    .into_iter()
    .find_map(|(field, value)| {
        let bad = value.as_ref()?.nanos().err()?;
        Some(format!("spec.{field}: {bad}"))
    })
}

/// The location as it is after a check.
fn checked(
    location: &BackupStorageLocation,
    result: &Result<(), String>,
    now: Timestamp,
) -> BackupStorageLocation {
    let mut new = location.clone();
    let name = location.name_any();
    let status = new.status_mut();
    status.last_validation_time = Some(Time(now));
    (status.phase, status.message) = match result {
        Ok(()) => (Some(Phase::Available), None),
        Err(why) => (
            Some(Phase::Unavailable),
            Some(format!(
                "BackupStorageLocation {name:?} is unavailable: {why}"
            )),
        ),
    };
    new
}

/// Of several defaults, all but the newest.
fn surplus_defaults(locations: &[BackupStorageLocation]) -> Vec<&BackupStorageLocation> {
    let mut defaults: Vec<_> = locations
        .iter()
        .filter(|location| location.spec.default == Some(true))
        .collect();
    // The newest last; of equally old ones the first by name.
    defaults.sort_by_key(|location| {
        (
            location.creation_timestamp().map(|time| time.0),
            std::cmp::Reverse(location.name_any()),
        )
    });
    defaults.pop();
    defaults
}

impl Reconciler for Locations {
    type Object = BackupStorageLocation;
    const NAME: &'static str = NAME;
    /// All at once: a slow bucket must not make others wait.
    const PARALLEL: u16 = 0;

    async fn reconcile(self: Arc<Self>, location: Arc<BackupStorageLocation>) -> Result<Action> {
        let name = location.name_any();
        let is_known = self.checked().get(&name) == Some(&location.spec);
        if !is_known {
            self.keep_one_default().await?;
        }
        let server = self.ctx.settings.store_validation_frequency;
        match next(&location, is_known, server, self.ctx.now()) {
            Step::Wait(wait) => return Ok(after(wait)),
            Step::Rest => return Ok(after(SignedDuration::MAX)),
            Step::Check => {}
        }
        let result = self.check(&location).await;
        // The check may have taken long; what it found belongs on the object as it is now.
        let Some(fresh) = self.ctx.find::<BackupStorageLocation>(&name).await? else {
            return Ok(Action::await_change());
        };
        if fresh.spec != location.spec {
            return Ok(after(SignedDuration::ZERO));
        }
        self.report(&fresh, &result);
        let new = checked(&fresh, &result, self.ctx.now());
        let new = self.ctx.update(&fresh, &new).await?;
        self.checked().insert(name, new.spec.clone());
        match next(&new, true, server, self.ctx.now()) {
            Step::Wait(wait) => Ok(after(wait)),
            _ => Ok(after(SignedDuration::MAX)),
        }
    }

    fn gone(&self, name: &str) {
        self.checked().remove(name);
        self.ctx.metrics.location_gone(name);
    }
}

impl Locations {
    async fn check(&self, location: &BackupStorageLocation) -> Result<(), String> {
        if let Some(fault) = fault(&location.spec) {
            return Err(fault);
        }
        let look = async {
            let bucket = self.ctx.bucket(location).await?;
            bucket.check().await?;
            Ok(())
        };
        match tokio::time::timeout(LIMIT, look).await {
            Ok(result) => result.map_err(|e: crate::Error| e.chain()),
            Err(_) => Err(format!("no answer within {} seconds", LIMIT.as_secs())),
        }
    }

    /// Counts what was found, and tells when it is news.
    fn report(&self, location: &BackupStorageLocation, result: &Result<(), String>) {
        let name = location.name_any();
        self.ctx.metrics.location_checked(&name, result.is_ok());
        let was = location.status.as_ref().and_then(|s| s.phase.as_ref());
        match result {
            Ok(()) if was != Some(&Phase::Available) => {
                tracing::info!(location = name, "backup storage location is available");
            }
            Err(why) if was != Some(&Phase::Unavailable) => {
                tracing::warn!(
                    location = name,
                    "backup storage location is unavailable: {why}"
                );
            }
            _ => {}
        }
    }

    async fn keep_one_default(&self) -> Result<()> {
        let all = self.ctx.list::<BackupStorageLocation>("").await?;
        let is_without = !all.iter().any(|l| l.spec.default == Some(true));
        if is_without && !self.without_default.swap(is_without, Ordering::Relaxed) {
            tracing::warn!("no backup storage location is marked as the default");
        }
        self.without_default.store(is_without, Ordering::Relaxed);
        for location in surplus_defaults(&all) {
            let mut new = location.clone();
            new.spec.default = None;
            self.ctx.update(location, &new).await?;
            tracing::info!(
                location = location.name_any(),
                "no longer the default: a newer location is"
            );
        }
        Ok(())
    }

    fn checked(&self) -> std::sync::MutexGuard<'_, HashMap<String, BackupStorageLocationSpec>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bowline_api::Duration as GoDuration;
    use k8s_openapi::{
        api::core::v1::SecretKeySelector, apimachinery::pkg::apis::meta::v1::Time as KubeTime,
    };

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn location(name: &str) -> BackupStorageLocation {
        BackupStorageLocation::new("velero", name, BackupStorageLocationSpec::default())
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_location_is_checked_when_it_is_due() {
        let wait = |seconds| Step::Wait(SignedDuration::from_secs(seconds));
        let own = |seconds| Some(GoDuration::from_secs(seconds));
        for (claim, frequency, last, is_known, server, expected) in [
            ("never checked", None, None, true, MINUTE, Step::Check),
            (
                "never checked, though off",
                own(0),
                None,
                true,
                MINUTE,
                Step::Check,
            ),
            (
                "changed, or a fresh start",
                own(0),
                Some(999),
                false,
                MINUTE,
                Step::Check,
            ),
            ("not yet", None, Some(970), true, MINUTE, wait(30)),
            ("due", None, Some(940), true, MINUTE, Step::Check),
            (
                "its own frequency",
                own(10),
                Some(985),
                true,
                MINUTE,
                Step::Check,
            ),
            (
                "its own, not yet",
                own(100),
                Some(985),
                true,
                MINUTE,
                wait(85),
            ),
            ("off", own(0), Some(1), true, MINUTE, Step::Rest),
            (
                "off for all",
                None,
                Some(1),
                true,
                Duration::ZERO,
                Step::Rest,
            ),
            (
                "negative means the server's",
                own(-5),
                Some(970),
                true,
                MINUTE,
                wait(30),
            ),
            (
                "too often",
                Some(GoDuration::from_nanos(1)),
                Some(1000),
                true,
                MINUTE,
                wait(1),
            ),
            (
                "the clock was put back",
                None,
                Some(5000),
                true,
                MINUTE,
                Step::Check,
            ),
        ] {
            let mut location = location("l");
            location.spec.validation_frequency = frequency;
            location.status_mut().last_validation_time = last.map(|last| Time(at(last)));
            assert_eq!(
                next(&location, is_known, server, at(1000)),
                expected,
                "{claim}"
            );
        }
    }

    #[test]
    fn the_message_is_that_of_velero() {
        let before = location("attic");
        let bad = checked(&before, &Err("no such bucket".to_owned()), at(5));
        let status = bad.status.as_ref().unwrap();
        assert_eq!(status.phase, Some(Phase::Unavailable));
        assert_eq!(
            status.message.as_deref(),
            Some("BackupStorageLocation \"attic\" is unavailable: no such bucket")
        );
        let good = checked(&bad, &Ok(()), at(6)).status.unwrap();
        assert_eq!(good.phase, Some(Phase::Available));
        assert_eq!(good.message, None);
        assert_eq!(good.last_validation_time, Some(Time(at(6))));
    }

    #[test]
    fn faults_of_the_spec_name_the_field() {
        let mut spec = BackupStorageLocationSpec::default();
        assert_eq!(fault(&spec), None);
        spec.validation_frequency = Some(serde_json::from_value("3 days".into()).unwrap());
        assert!(
            fault(&spec)
                .unwrap()
                .starts_with("spec.validationFrequency: invalid duration")
        );
        spec.object_storage.ca_cert = Some("Zm9v".to_owned());
        spec.object_storage.ca_cert_ref = Some(SecretKeySelector::default());
        assert_eq!(
            fault(&spec).unwrap(),
            "cannot specify both caCert and caCertRef in objectStorage"
        );
    }

    #[test]
    fn the_newest_default_stays() {
        let made = |name: &str, time, default| {
            let mut location = location(name);
            location.metadata.creation_timestamp = Some(KubeTime(at(time)));
            location.spec.default = Some(default);
            location
        };
        for (locations, losers) in [
            (vec![], vec![]),
            (vec![made("a", 1, true)], vec![]),
            (vec![made("a", 1, true), made("b", 2, false)], vec![]),
            (
                vec![made("a", 1, true), made("b", 3, true), made("c", 2, true)],
                vec!["a", "c"],
            ),
            (vec![made("a", 1, true), made("b", 1, true)], vec!["b"]),
        ] {
            let names: Vec<_> = surplus_defaults(&locations)
                .into_iter()
                .map(ResourceExt::name_any)
                .collect();
            assert_eq!(names, losers);
        }
    }
}
