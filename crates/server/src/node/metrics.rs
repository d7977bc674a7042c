//! What a node process counts, under Velero's names.

use std::{sync::Arc, time::Duration};

use crate::metrics::{
    BUCKETS,
    family::{Family, Kind},
};

const NODE: &[&str] = &["node"];
const OPERATION: &[&str] = &["backupName", "node", "operation", "pod_volume_backup"];

/// What a node process counts.
#[derive(Debug)]
pub(super) struct Metrics {
    node: String,
    enqueued: Family,
    dequeued: Family,
    latency: Family,
    last_latency: Family,
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
        };
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

    /// All of it, in Prometheus' text format 0.0.4.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for family in [
            &self.dequeued,
            &self.enqueued,
            &self.latency,
            &self.last_latency,
        ] {
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
        let text = metrics.text();
        for line in [
            "podVolume_pod_volume_backup_enqueue_count{node=\"n1\"} 1",
            "podVolume_pod_volume_backup_dequeue_count{node=\"n1\"} 1",
            "podVolume_pod_volume_operation_latency_seconds_gauge{backupName=\"velero/b\",node=\"n1\",\
             operation=\"c-default-ns-restic-backup\",pod_volume_backup=\"c\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
