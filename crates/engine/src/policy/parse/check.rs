//! What makes policies unsound, in the order and the words of Velero.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Document, Purpose, RawClusterFilter, RawConditions, RawFilter, RawNamespaceFilter, RawSelector,
    VERSION,
};
use crate::{
    filter::{self, Pattern},
    policy::{ActionType, Csi, IncludeExclude, filters::is_catch_all, volume::Capacity},
    selector,
};

/// The three conditions whose type has an error of its own, with types named as in Go.
pub(super) fn check_types(conditions: &Map<String, Value>) -> Result<(), String> {
    match conditions.get("pvcLabels") {
        None | Some(Value::Object(_)) => {}
        Some(other) => {
            return Err(format!(
                "pvcLabels must be a map of string to string, got {}",
                go_type(other)
            ));
        }
    }
    match conditions.get("pvcVolumeMode") {
        None | Some(Value::String(_)) => {}
        Some(other) => {
            return Err(format!(
                "pvcVolumeMode must be a string, got {}",
                go_type(other)
            ));
        }
    }
    match conditions.get("pvcAccessModes") {
        None => {}
        Some(Value::Array(modes)) => {
            if let Some(mode) = modes.iter().find(|mode| !mode.is_string()) {
                return Err(format!(
                    "pvcAccessModes must be a list of strings, got element {}",
                    go_type(mode)
                ));
            }
        }
        Some(other) => {
            return Err(format!(
                "pvcAccessModes must be a list of strings, got {}",
                go_type(other)
            ));
        }
    }
    Ok(())
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

impl Document<RawConditions> {
    pub(super) fn check(&self, capacities: &[Capacity], purpose: Purpose) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "incompatible version number {} with supported version {VERSION}",
                self.version
            ));
        }
        match purpose {
            Purpose::Restore if !self.volume_policies.is_empty() => {
                return Err("volumePolicies are not supported for restore".to_owned());
            }
            Purpose::Restore if self.include_exclude_policy.is_some() => {
                return Err("includeExcludePolicy is not supported for restore".to_owned());
            }
            _ => {}
        }
        for (policy, capacity) in self.volume_policies.iter().zip(capacities) {
            if ActionType::parse(&policy.action.kind).is_none() {
                return Err(format!("invalid action type {}", policy.action.kind));
            }
            capacity.check()?;
            policy.conditions.csi.as_ref().map_or(Ok(()), Csi::check)?;
        }
        if let Some(policy) = &self.include_exclude_policy {
            check_include_exclude(policy)?;
        }
        if let Some(policy) = &self.cluster_scoped_filter_policy {
            policy.check()?;
        }
        check_namespaces(&self.namespaced_filter_policies)
    }
}

fn check_include_exclude(policy: &IncludeExclude) -> Result<(), String> {
    for (includes, excludes) in [
        (
            &policy.included_cluster_scoped_resources,
            &policy.excluded_cluster_scoped_resources,
        ),
        (
            &policy.included_namespace_scoped_resources,
            &policy.excluded_namespace_scoped_resources,
        ),
    ] {
        if includes.iter().chain(excludes).any(|item| item == "*") {
            return Err("cannot use '*' in includes or excludes filters in the policy".to_owned());
        }
        if let Some(why) = filter::resource_list_errors(includes, excludes).first() {
            return Err(why.clone());
        }
    }
    Ok(())
}

impl RawClusterFilter {
    fn check(&self) -> Result<(), String> {
        const PLACE: &str = "clusterScopedFilterPolicy";
        if self.resource_filters.is_empty() {
            return Err(format!(
                "{PLACE}: resourceFilters cannot be empty; remove the policy block entirely if it \
                 is not needed"
            ));
        }
        let mut kinds = BTreeMap::new();
        for (index, filter) in self.resource_filters.iter().enumerate() {
            let place = format!("{PLACE}.resourceFilters[{index}]");
            if is_catch_all(&filter.kinds) {
                return Err(format!(
                    "{place}: kinds must be specified (catch-all is not supported)"
                ));
            }
            check_kinds(PLACE, &filter.kinds, index, &mut kinds)?;
            filter.check(&place)?;
        }
        Ok(())
    }
}

fn check_namespaces(policies: &[RawNamespaceFilter]) -> Result<(), String> {
    let mut patterns: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, policy) in policies.iter().enumerate() {
        let place = format!("namespacedFilterPolicies[{index}]");
        policy.check(&place)?;
        for pattern in &policy.namespaces {
            patterns.entry(pattern).or_default().push(index);
        }
    }
    match patterns.into_iter().find(|(_, found)| found.len() > 1) {
        None => Ok(()),
        Some((pattern, found)) => {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            Err(format!(
                "namespacedFilterPolicies: duplicate namespace pattern '{pattern}' found in \
                 policies [{}]",
                found.join(" ")
            ))
        }
    }
}

impl RawNamespaceFilter {
    fn check(&self, place: &str) -> Result<(), String> {
        if self.namespaces.is_empty() {
            return Err(format!("{place}: at least one namespace must be specified"));
        }
        if self.resource_filters.is_empty() {
            return Err(format!(
                "{place}: at least one resourceFilter must be specified"
            ));
        }
        for (index, pattern) in self.namespaces.iter().enumerate() {
            filter::namespace_pattern(pattern)
                .map_err(|why| format!("{place}.namespaces[{index}]: {why}"))?;
        }
        let mut kinds = BTreeMap::new();
        let mut has_catch_all = false;
        for (index, filter) in self.resource_filters.iter().enumerate() {
            let inner = format!("{place}.resourceFilters[{index}]");
            if is_catch_all(&filter.kinds) {
                if has_catch_all {
                    return Err(format!(
                        "{place}: only one catch-all resource filter is allowed"
                    ));
                }
                has_catch_all = true;
                if !filter.names.is_empty() || !filter.excluded_names.is_empty() {
                    return Err(format!(
                        "{inner}: names or excludedNames cannot be specified for catch-all filters"
                    ));
                }
            }
            let named = filter.kinds.iter().filter(|kind| *kind != "*");
            check_kinds(place, named, index, &mut kinds)?;
            filter.check(&inner)?;
        }
        Ok(())
    }
}

/// Refuses a kind that stood in an earlier filter of the same policy, or twice in one.
fn check_kinds<'a>(
    place: &str,
    kinds: impl IntoIterator<Item = &'a String>,
    index: usize,
    seen: &mut BTreeMap<&'a str, usize>,
) -> Result<(), String> {
    for kind in kinds {
        if let Some(earlier) = seen.insert(kind, index) {
            return Err(format!(
                "{place}: kind {kind:?} appears in both resourceFilters[{earlier}] and \
                 resourceFilters[{index}]"
            ));
        }
    }
    Ok(())
}

impl RawFilter {
    fn check(&self, place: &str) -> Result<(), String> {
        let own = self.label_selector.as_ref().map(RawSelector::build);
        if selector::present(own.as_ref()).is_some() && !self.or_label_selectors.is_empty() {
            return Err(format!(
                "{place}: labelSelector and orLabelSelectors cannot co-exist"
            ));
        }
        own.as_ref()
            .map_or(Ok(()), selector::check)
            .map_err(|why| format!("{place}: invalid label selector: {why}"))?;
        for (index, or) in self.or_label_selectors.iter().enumerate() {
            or.as_ref()
                .map_or(Ok(()), |or| selector::check(&or.build()))
                .map_err(|why| {
                    format!("{place}.orLabelSelectors[{index}]: invalid label selector: {why}")
                })?;
        }
        for (list, patterns) in [
            ("names", &self.names),
            ("excludedNames", &self.excluded_names),
        ] {
            for (index, pattern) in patterns.iter().enumerate() {
                Pattern::strict(pattern).map_err(|why| {
                    format!("{place}.{list}[{index}]: invalid glob pattern {pattern:?}: {why}")
                })?;
            }
        }
        Ok(())
    }
}
