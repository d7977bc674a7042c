//! The flags that say which objects a backup or a restore is about.

use anyhow::bail;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    List, OptionalBool,
    names::{ExcludeAll, check_lists},
    selector::{OrSelector, Selector},
};

/// Namespaces, resources and labels.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct FilterArgs {
    /// Namespaces to include, with wildcards; `*` for all
    #[arg(long, value_name = "LIST", default_value = "*")]
    include_namespaces: List,

    /// Namespaces to exclude, with wildcards
    #[arg(long, value_name = "LIST")]
    exclude_namespaces: Option<List>,

    /// Resources to include, as `resource.group`; `*` for all
    #[arg(long, value_name = "LIST")]
    include_resources: Option<List>,

    /// Resources to exclude, as `resource.group`
    #[arg(long, value_name = "LIST")]
    exclude_resources: Option<List>,

    /// Whether to include cluster-scoped resources
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    include_cluster_resources: Option<OptionalBool>,

    /// Only objects that this label selector matches
    #[arg(short = 'l', long)]
    selector: Option<Selector>,

    /// Only objects that one of these label selectors matches, joined by ` or `
    #[arg(long, value_name = "SELECTORS")]
    or_selector: Option<OrSelector>,
}

impl FilterArgs {
    /// What is wrong with the flags, if anything. No cluster is asked.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.selector.is_some() && self.or_selector.is_some() {
            bail!("either a 'selector' or an 'or-selector' can be specified, but not both");
        }
        let list = Option::unwrap_or_default;
        let namespaces = (self.included_namespaces(), list(self.excluded_namespaces()));
        let resources = (
            list(self.included_resources()),
            list(self.excluded_resources()),
        );
        for (prefix, (included, excluded)) in [
            ("", namespaces),
            ("Invalid included/excluded resource lists: ", resources),
        ] {
            let errors = check_lists(&included, &excluded, ExcludeAll::Refused);
            refuse(prefix, errors)?;
        }
        Ok(())
    }

    /// Whether resources are chosen, without regard to their scope.
    pub(crate) fn chooses_resources(&self) -> bool {
        self.included_resources().is_some()
            || self.excluded_resources().is_some()
            || self.include_cluster_resources().is_some()
    }

    /// The namespaces to include.
    pub(crate) fn included_namespaces(&self) -> Vec<String> {
        self.include_namespaces.0.clone()
    }

    /// The namespaces to exclude, if any.
    pub(crate) fn excluded_namespaces(&self) -> Option<Vec<String>> {
        List::entries(self.exclude_namespaces.as_ref())
    }

    /// The resources to include, if given.
    pub(crate) fn included_resources(&self) -> Option<Vec<String>> {
        List::entries(self.include_resources.as_ref())
    }

    /// The resources to exclude, if any.
    pub(crate) fn excluded_resources(&self) -> Option<Vec<String>> {
        List::entries(self.exclude_resources.as_ref())
    }

    /// Whether to include cluster-scoped resources, if said.
    pub(crate) fn include_cluster_resources(&self) -> Option<bool> {
        OptionalBool::position(self.include_cluster_resources)
    }

    /// The one label selector.
    pub(crate) fn selector(&self) -> Option<LabelSelector> {
        self.selector.clone().map(|selector| selector.0)
    }

    /// The label selectors of which one has to match.
    pub(crate) fn or_selectors(&self) -> Option<Vec<LabelSelector>> {
        self.or_selector.clone().map(|selectors| selectors.0)
    }
}

/// Turns what is wrong into an error, if anything is.
pub(crate) fn refuse(prefix: &str, errors: Vec<String>) -> anyhow::Result<()> {
    match &errors[..] {
        [] => Ok(()),
        [one] => bail!("{prefix}{one}"),
        many => bail!("{prefix}[{}]", many.join(", ")),
    }
}
