//! What is counted about calls to stores.

use std::fmt::{self, Write};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// What is done with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Put,
    Get,
    Exists,
    List,
    Delete,
    Sign,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Ok,
    NotFound,
    Error,
    Timeout,
    Cancelled,
}

/// Both are their names in lower case, as labels are written.
impl EncodeLabelValue for Operation {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Exists => "exists",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Sign => "sign",
        })
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Ok => "ok",
            Self::NotFound => "not_found",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    operation: Operation,
    outcome: Outcome,
}

/// Counters of calls and bytes. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<Call, Counter>,
    sent: Counter,
    received: Counter,
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "bowline_store_requests",
            "Calls to object stores, each try by itself",
            self.requests.clone(),
        );
        registry.register(
            "bowline_store_sent_bytes",
            "Bytes put into object stores",
            self.sent.clone(),
        );
        registry.register(
            "bowline_store_received_bytes",
            "Bytes got from object stores",
            self.received.clone(),
        );
    }

    pub(super) fn called(&self, operation: Operation, outcome: Outcome) {
        self.requests
            .get_or_create(&Call { operation, outcome })
            .inc();
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.sent.inc_by(bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.inc_by(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_promised_names() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.called(Operation::Put, Outcome::Ok);
        metrics.sent(3);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "bowline_store_requests_total{operation=\"put\",outcome=\"ok\"} 1",
            "bowline_store_sent_bytes_total 3",
            "bowline_store_received_bytes_total 0",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
