//! What a node process counts, under Velero's names.

use std::{sync::Arc, time::Duration};

use bowline_api::v1::DataPathPhase;

use crate::metrics::{
    BUCKETS,
    family::{Family, Kind},
};

const NODE: &[&str] = &["node"];
const OPERATION: &[&str] = &["backupName", "node", "operation", "pod_volume_backup"];

const UPLOADS: [(&str, &str); 3] = [
    (
        "podVolume_data_upload_success_total",
        "Total number of successful uploaded snapshots",
    ),
    (
        "podVolume_data_upload_failure_total",
        "Total number of failed uploaded snapshots",
    ),
    (
        "podVolume_data_upload_cancel_total",
        "Total number of canceled uploaded snapshots",
    ),
];
const DOWNLOADS: [(&str, &str); 3] = [
    (
        "podVolume_data_download_success_total",
        "Total number of successful downloaded snapshots",
    ),
    (
        "podVolume_data_download_failure_total",
        "Total number of failed downloaded snapshots",
    ),
    (
        "podVolume_data_download_cancel_total",
        "Total number of canceled downloaded snapshots",
    ),
];

/// What a node process counts.
#[derive(Debug)]
pub(super) struct Metrics {
    node: String,
    enqueued: Family,
    dequeued: Family,
    latency: Family,
    last_latency: Family,
    /// How movements ended: uploads, then downloads, each succeeded, failed, canceled.
    movements: [[Family; 3]; 2],
}

/// A direction in which data is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into the bucket.
    Upload,
    /// Out of it.
    Download,
}

impl Metrics {
    pub(super) fn new(node: &str) -> Arc<Self> {
        let metrics = Self {
            node: node.to_owned(),
            dequeued: Family::new(
                "podVolume_pod_volume_backup_dequeue_count",
                "Total number of pod_volume_backup objects dequeued",
                Kind::Counter,
                NODE,
            ),
            enqueued: Family::new(
                "podVolume_pod_volume_backup_enqueue_count",
                "Total number of pod_volume_backup objects enqueued",
                Kind::Counter,
                NODE,
            ),
            latency: Family::new(
                "podVolume_pod_volume_operation_latency_seconds",
                "Time taken to complete pod volume operations, in seconds",
                Kind::Histogram(BUCKETS),
                OPERATION,
            ),
            last_latency: Family::new(
                "podVolume_pod_volume_operation_latency_seconds_gauge",
                "Gauge metric indicating time taken, in seconds, to perform pod volume operations",
                Kind::Gauge,
                OPERATION,
            ),
            movements: [UPLOADS, DOWNLOADS]
                .map(|ends| ends.map(|(name, help)| Family::new(name, help, Kind::Counter, NODE))),
        };
        for family in metrics.movements.iter().flatten() {
            family.add(&[node], 0.0);
        }
        metrics.enqueued.add(&[node], 0.0);
        metrics.dequeued.add(&[node], 0.0);
        Arc::new(metrics)
    }

    /// A backup begins to copy.
    pub(super) fn began(&self) {
        self.enqueued.add(&[&self.node], 1.0);
    }

    /// A backup no longer copies.
    pub(super) fn ended(&self) {
        self.dequeued.add(&[&self.node], 1.0);
    }

    /// A backup was completed.
    pub(super) fn completed(&self, backup: &str, operation: &str, name: &str, took: Duration) {
        let labels = [backup, &self.node, operation, name];
        // Velero counts whole seconds.
        let seconds = took.as_secs() as f64;
        self.latency.observe(&labels, seconds);
        self.last_latency.set(&labels, seconds);
    }

    /// A movement of data has ended like this.
    pub(super) fn moved(&self, direction: Direction, phase: &DataPathPhase) {
        let of = match direction {
            Direction::Upload => &self.movements[0],
            Direction::Download => &self.movements[1],
        };
        let family = match phase {
            DataPathPhase::Completed => &of[0],
            DataPathPhase::Canceled => &of[2],
            _ => &of[1],
        };
        family.add(&[&self.node], 1.0);
    }

    /// All of it, in Prometheus' text format 0.0.4.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let moved = self.movements.iter().rev().flatten();
        let copied = [
            &self.dequeued,
            &self.enqueued,
            &self.latency,
            &self.last_latency,
        ];
        for family in moved.chain(copied) {
            family.write(&mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_counted() {
        let metrics = Metrics::new("n1");
        metrics.began();
        metrics.ended();
        metrics.completed(
            "velero/b",
            "c-default-ns-restic-backup",
            "c",
            Duration::from_millis(1700),
        );
        metrics.moved(Direction::Upload, &DataPathPhase::Completed);
        metrics.moved(Direction::Download, &DataPathPhase::Canceled);
        let text = metrics.text();
        for line in [
            "podVolume_data_upload_success_total{node=\"n1\"} 1",
            "podVolume_data_upload_failure_total{node=\"n1\"} 0",
            "podVolume_data_download_cancel_total{node=\"n1\"} 1",
            "# HELP podVolume_data_download_failure_total Total number of failed downloaded snapshots",
            "podVolume_pod_volume_backup_enqueue_count{node=\"n1\"} 1",
            "podVolume_pod_volume_backup_dequeue_count{node=\"n1\"} 1",
            "podVolume_pod_volume_operation_latency_seconds_gauge{backupName=\"velero/b\",node=\"n1\",\
             operation=\"c-default-ns-restic-backup\",pod_volume_backup=\"c\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
