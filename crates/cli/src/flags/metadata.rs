//! The flags for what an object carries beside its spec.

use bowline_api::StringMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Map, names::check_labels};

/// Labels and annotations for a new object.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct MetadataArgs {
    /// Labels for the object, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    labels: Vec<Map>,

    /// Annotations for the object, as KEY=VALUE pairs
    #[arg(long, value_name = "MAP")]
    annotations: Vec<Map>,
}

impl MetadataArgs {
    /// Whether the labels can be labels.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        check_labels(Map::merged(&self.labels).as_ref())
            .map_err(|error| anyhow::anyhow!("--labels: {error}"))
    }

    /// Puts them on an object, over what it has.
    pub(crate) fn add_to(&self, metadata: &mut ObjectMeta) {
        add(&mut metadata.labels, Map::merged(&self.labels));
        add(&mut metadata.annotations, Map::merged(&self.annotations));
    }
}

/// Adds to a map, the new word on a key winning.
pub(crate) fn add(to: &mut Option<StringMap>, more: Option<StringMap>) {
    if let Some(more) = more {
        to.get_or_insert_default().extend(more);
    }
}
