//! Between what goes over the wire and what plugins are asked.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::{
    kinds::{BackedUp, Identifier, Progress, Restored, Selector},
    wire::{
        AppliesToResponse, BackupItemResponse, Moment, OperationProgress, ProgressResponse,
        ResourceIdentifier, ResourceSelector, RestoreItemResponse,
    },
};

/// How Go says that a moment is not set: the first second of the year 1.
const UNSET: i64 = -62_135_596_800;

impl From<Option<Timestamp>> for Moment {
    fn from(at: Option<Timestamp>) -> Self {
        match at {
            Some(at) => Self {
                seconds: at.as_second(),
                nanos: at.subsec_nanosecond(),
            },
            None => Self {
                seconds: UNSET,
                nanos: 0,
            },
        }
    }
}

fn timestamp(moment: Option<Moment>) -> Option<Timestamp> {
    let Moment { seconds, nanos } = moment?;
    // What is missing altogether is 1970 for Go, and neither is a time of today.
    if seconds == UNSET || (seconds, nanos) == (0, 0) {
        return None;
    }
    Timestamp::new(seconds, nanos).ok()
}

impl From<Progress> for ProgressResponse {
    fn from(progress: Progress) -> Self {
        Self {
            progress: Some(OperationProgress {
                completed: progress.is_completed,
                err: progress.error,
                n_completed: progress.done,
                n_total: progress.total,
                operation_units: progress.units,
                description: progress.description,
                started: Some(progress.started.into()),
                updated: Some(progress.updated.into()),
            }),
        }
    }
}

impl From<ProgressResponse> for Progress {
    fn from(response: ProgressResponse) -> Self {
        let progress = response.progress.unwrap_or_default();
        Self {
            is_completed: progress.completed,
            error: progress.err,
            done: progress.n_completed,
            total: progress.n_total,
            units: progress.operation_units,
            description: progress.description,
            started: timestamp(progress.started),
            updated: timestamp(progress.updated),
        }
    }
}

impl From<Selector> for AppliesToResponse {
    fn from(selector: Selector) -> Self {
        Self {
            selector: Some(ResourceSelector {
                included_namespaces: selector.included_namespaces,
                excluded_namespaces: selector.excluded_namespaces,
                included_resources: selector.included_resources,
                excluded_resources: selector.excluded_resources,
                selector: selector.label_selector,
            }),
        }
    }
}

impl From<AppliesToResponse> for Selector {
    fn from(response: AppliesToResponse) -> Self {
        let selector = response.selector.unwrap_or_default();
        Self {
            included_namespaces: selector.included_namespaces,
            excluded_namespaces: selector.excluded_namespaces,
            included_resources: selector.included_resources,
            excluded_resources: selector.excluded_resources,
            label_selector: selector.selector,
        }
    }
}

impl From<Identifier> for ResourceIdentifier {
    fn from(of: Identifier) -> Self {
        Self {
            group: of.group,
            resource: of.resource,
            namespace: of.namespace,
            name: of.name,
        }
    }
}

impl From<ResourceIdentifier> for Identifier {
    fn from(of: ResourceIdentifier) -> Self {
        Self {
            group: of.group,
            resource: of.resource,
            namespace: of.namespace,
            name: of.name,
        }
    }
}

/// All of a list.
pub(crate) fn all<A: Into<B>, B>(list: Vec<A>) -> Vec<B> {
    list.into_iter().map(Into::into).collect()
}

fn item(bytes: Bytes) -> Option<Bytes> {
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

impl From<BackupItemResponse> for BackedUp {
    fn from(response: BackupItemResponse) -> Self {
        Self {
            item: item(response.item),
            additional: all(response.additional),
            operation: response.operation_id,
            post_operation: all(response.post_operation),
        }
    }
}

impl BackedUp {
    /// As an answer: an object that is as it was goes back too.
    pub(crate) fn answer(self, was: Bytes) -> BackupItemResponse {
        BackupItemResponse {
            item: self.item.unwrap_or(was),
            additional: all(self.additional),
            operation_id: self.operation,
            post_operation: all(self.post_operation),
        }
    }
}

impl From<RestoreItemResponse> for Restored {
    fn from(response: RestoreItemResponse) -> Self {
        let timeout = response.ready_timeout.map(|Moment { seconds, nanos }| {
            let (seconds, nanos) = (u64::try_from(seconds), u32::try_from(nanos));
            Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0).min(999_999_999))
        });
        Self {
            item: item(response.item),
            additional: all(response.additional),
            skip: response.skip,
            operation: response.operation_id,
            wait_for_additional: response.wait,
            ready_timeout: timeout.filter(|timeout| !timeout.is_zero()),
        }
    }
}

impl Restored {
    /// As an answer: an object that is as it was goes back too.
    pub(crate) fn answer(self, was: Bytes) -> RestoreItemResponse {
        RestoreItemResponse {
            item: self.item.unwrap_or(was),
            additional: all(self.additional),
            skip: self.skip,
            operation_id: self.operation,
            wait: self.wait_for_additional,
            ready_timeout: self.ready_timeout.map(|timeout| Moment {
                seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                nanos: timeout.subsec_nanos().cast_signed(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_not_set_stay_unset() {
        let moment = |seconds, nanos| Some(Moment { seconds, nanos });
        for (wire, expected) in [
            (None, None),
            (moment(UNSET, 0), None),
            (moment(0, 0), None),
            (
                moment(1_700_000_000, 5),
                Timestamp::new(1_700_000_000, 5).ok(),
            ),
        ] {
            assert_eq!(timestamp(wire), expected, "{wire:?}");
        }
        assert_eq!(Moment::from(None::<Timestamp>).seconds, UNSET);
    }

    #[test]
    fn an_object_that_is_as_it_was_goes_back() {
        let was = Bytes::from_static(b"{}");
        assert_eq!(BackedUp::default().answer(was.clone()).item, was);
        assert_eq!(BackedUp::from(BackupItemResponse::default()).item, None);
    }
}
