//! The description of a backup for people, laid out as Velero lays it out.

use bowline_api::{
    files::HookWindow,
    names::annotation,
    v1::{BackupPhase, BackupStatus},
};
use kube::ResourceExt;

use super::{facts::Facts, spec, volumes};
use crate::output::{
    describe::{Colour, Describer, operations, resources, results},
    time::Clock,
};

/// The whole description.
pub(crate) fn describe(facts: &Facts, colour: Colour, clock: &Clock) -> String {
    let mut d = Describer::new(colour, clock);
    let (backup, status) = (&facts.backup, facts.status());
    d.metadata(&backup.metadata);
    d.blank();
    phase(&mut d, &backup.name_any(), &status);
    d.reference("Resource policies", backup.spec.resource_policy.as_ref());
    let global = backup.annotations().get(annotation::GLOBAL_VOLUME_POLICY);
    if let Some(name) = global.filter(|name| !name.is_empty()) {
        d.blank();
        d.line("Global volume policies:");
        d.field(1, "Type", "configmap");
        d.field(1, "Name", name);
    }
    spec::uploader(&mut d, &backup.spec);
    d.validation_errors(status.validation_errors.as_ref());
    d.blank();
    if let Some(file) = facts
        .results
        .as_ref()
        .filter(|_| facts.findings().are_some())
    {
        results::text(&mut d, file, facts.findings());
    }
    d.blank();
    spec::text(&mut d, &backup.spec);
    d.blank();
    progress(&mut d, &status);
    operations::text(&mut d, facts.operation_counts(), facts.operations.as_ref());
    if let Some(file) = &facts.resources {
        resources::text(&mut d, "backup", file);
        d.blank();
    }
    volumes::text(&mut d, facts);
    if let Some(hooks) = &status.hook_status {
        d.blank();
        d.field(
            0,
            "HooksAttempted",
            hooks.hooks_attempted.unwrap_or_default(),
        );
        d.field(0, "HooksFailed", hooks.hooks_failed.unwrap_or_default());
        hook_windows(&mut d, facts);
    }
    deletions(&mut d, facts);
    volumes::all(&mut d, facts);
    d.finish()
}

fn phase(d: &mut Describer<'_>, name: &str, status: &BackupStatus) {
    let phase = match &status.phase {
        Some(phase) if !phase.as_str().is_empty() => phase.clone(),
        _ => BackupPhase::New,
    };
    let word = match phase {
        BackupPhase::FailedValidation | BackupPhase::PartiallyFailed | BackupPhase::Failed => {
            d.colour.red(phase.as_str())
        }
        BackupPhase::Completed => d.colour.green(phase.as_str()),
        _ => phase.to_string(),
    };
    let note = match phase {
        BackupPhase::Failed | BackupPhase::PartiallyFailed => {
            format!(" (run `bowline backup logs {name}` for more information)")
        }
        _ => String::new(),
    };
    d.field(0, "Phase", format_args!("{word}{note}"));
    if phase == BackupPhase::Queued {
        d.field(
            0,
            "Queue position",
            status.queue_position.unwrap_or_default(),
        );
    }
}

fn progress(d: &mut Describer<'_>, status: &BackupStatus) {
    let version = status.format_version.as_deref().unwrap_or_default();
    d.field(0, "Backup Format Version", version);
    d.blank();
    let clock = d.clock;
    d.field(0, "Started", clock.show_or(status.start_timestamp, "<n/a>"));
    d.field(
        0,
        "Completed",
        clock.show_or(status.completion_timestamp, "<n/a>"),
    );
    d.blank();
    d.field(0, "Expiration", clock.show_or(status.expiration, "<nil>"));
    d.blank();
    let Some(progress) = &status.progress else {
        return;
    };
    let (total, done) = match status.phase {
        Some(BackupPhase::InProgress) => (
            "Estimated total items to be backed up",
            "Items backed up so far",
        ),
        _ => ("Total items to be backed up", "Items backed up"),
    };
    d.field(0, total, progress.total_items.unwrap_or_default());
    d.field(0, done, progress.items_backed_up.unwrap_or_default());
    d.blank();
}

/// How long hooks held pods. Not aligned with what Velero has above.
fn hook_windows(d: &mut Describer<'_>, facts: &Facts) {
    let windows = facts.hook_windows();
    let by_time = |a: &&HookWindow, b: &&HookWindow| a.seconds.total_cmp(&b.seconds);
    let Some(longest) = windows.iter().max_by(by_time) else {
        return;
    };
    let (time, pod) = (seconds(longest.seconds), pod(longest));
    d.line(format_args!("Longest hook window: {time} ({pod})"));
    if facts.details {
        d.line("Hook windows:");
        for window in windows {
            d.field(1, &self::pod(window), seconds(window.seconds));
        }
    }
}

fn pod(window: &HookWindow) -> String {
    format!("{}/{}", window.namespace, window.pod)
}

/// A short time: `37ms`, `1.2s`, `2m5s`.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0}ms", seconds * 1000.0),
        1.0..60.0 => format!("{seconds:.1}s"),
        _ => format!(
            "{:.0}m{:.0}s",
            (seconds / 60.0).floor(),
            (seconds % 60.0).floor()
        ),
    }
}

fn deletions(d: &mut Describer<'_>, facts: &Facts) {
    if facts.deletions.is_empty() {
        return;
    }
    d.blank();
    match facts.failed_deletions() {
        0 => d.line("Deletion Attempts:"),
        failed => d.line(format_args!("Deletion Attempts ({failed} failed):")),
    }
    for (at, request) in facts.deletions.iter().enumerate() {
        if at > 0 {
            d.blank();
        }
        let created = request.metadata.creation_timestamp.as_ref();
        let created = created.map_or_else(|| "<nil>".to_owned(), |time| d.time(time.0));
        let status = request.status.clone().unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        d.line(format_args!("\t{created}: {phase}"));
        let errors = status.errors.unwrap_or_default();
        if !errors.is_empty() {
            d.line("\tErrors:");
        }
        for error in errors {
            d.line(format_args!("\t\t{error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn short_times_are_told_in_what_suits_them() {
        for (time, wanted) in [
            (0.0, "0ms"),
            (0.0374, "37ms"),
            (1.0, "1.0s"),
            (1.234, "1.2s"),
            (59.94, "59.9s"),
            (60.0, "1m0s"),
            (125.9, "2m5s"),
            (7200.0, "120m0s"),
        ] {
            assert_eq!(seconds(time), wanted);
        }
    }
}
