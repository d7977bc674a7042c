//! `bowline backup get`: backups as a table or as objects.

use std::io::Write;

use bowline_api::v1::{Backup, BackupPhase};
use kube::ResourceExt;

use crate::{
    context::Context,
    flags::selector,
    output::{
        self, GetArgs, Tabular,
        time::{Clock, after, is_zero},
    },
};

pub(crate) async fn run(args: GetArgs, ctx: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let client = ctx.client().await?;
    let found = args.shown.find::<Backup>(&client, &ctx.namespace).await?;
    let version = found.resource_version.as_deref();
    output::print_list(found.objects, version, &args.output, out)
}

impl Tabular for Backup {
    const COLUMN_NAMES: &'static [&'static str] = &[
        "Name",
        "Status",
        "Errors",
        "Warnings",
        "Created",
        "Expires",
        "Storage Location",
        "Queue Position",
        "Selector",
    ];

    fn cells(&self, clock: &Clock) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let phase = match (&self.metadata.deletion_timestamp, &status.phase) {
            (Some(_), _) => BackupPhase::Deleting,
            (None, Some(phase)) if !phase.as_str().is_empty() => phase.clone(),
            _ => BackupPhase::New,
        };
        let position = status.queue_position.filter(|position| *position != 0);
        vec![
            self.name_any(),
            phase.to_string(),
            status.errors.unwrap_or_default().to_string(),
            status.warnings.unwrap_or_default().to_string(),
            status
                .start_timestamp
                .map_or_else(|| "<nil>".to_owned(), |time| clock.show(time.0)),
            clock.age(expiration(self)),
            self.spec.storage_location.clone().unwrap_or_default(),
            position
                .map(|position| position.to_string())
                .unwrap_or_default(),
            selector::show(self.spec.label_selector.as_ref()),
        ]
    }

    /// By name, but backups of one schedule from the newest to the oldest.
    fn sort(backups: &mut [Self]) {
        backups.sort_by(|a, b| {
            let (a, b) = (a.name_any(), b.name_any());
            match (stamped(&a), stamped(&b)) {
                (Some((of_a, at_a)), Some((of_b, at_b))) if of_a == of_b => at_b.cmp(at_a),
                _ => a.cmp(&b),
            }
        });
    }
}

/// When the backup may be deleted: as the server says, or as its age limit will make it.
fn expiration(backup: &Backup) -> Option<jiff::Timestamp> {
    let settled = backup.status.as_ref().and_then(|status| status.expiration);
    if let Some(time) = settled.filter(|time| !is_zero(*time)) {
        return Some(time.0);
    }
    let ttl = backup.spec.ttl.as_ref()?;
    if ttl.nanos().is_ok_and(|nanos| nanos > 0) {
        let created = backup.metadata.creation_timestamp.as_ref()?;
        return after(created.0, ttl);
    }
    None
}

/// A name that ends in `-` and the fourteen digits of a moment, taken apart.
fn stamped(name: &str) -> Option<(&str, &str)> {
    let (of, at) = name.rsplit_once('-')?;
    let is_stamp = at.len() == 14 && at.bytes().all(|b| b.is_ascii_digit());
    is_stamp.then_some((of, at))
}

#[cfg(test)]
mod tests {
    use bowline_api::v1::BackupSpec;

    use super::*;

    #[test]
    fn backups_of_a_schedule_are_shown_newest_first() {
        let mut backups: Vec<Backup> = [
            "nightly-20261115010000",
            "b",
            "nightly",
            "nightly-20261115020000",
            "nightly-2-20261114000000",
            "a-20261115010000",
        ]
        .map(|name| Backup::new("velero", name, BackupSpec::default()))
        .into();
        Backup::sort(&mut backups);
        let names: Vec<String> = backups.iter().map(ResourceExt::name_any).collect();
        assert_eq!(
            names,
            [
                "a-20261115010000",
                "b",
                "nightly",
                "nightly-2-20261114000000",
                "nightly-20261115020000",
                "nightly-20261115010000",
            ]
        );
    }
}
