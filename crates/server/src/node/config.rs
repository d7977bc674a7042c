//! The ConfigMap of node processes: how many volumes a node copies at the same time.

use std::collections::BTreeMap;

use bowline_engine::selector;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Context, Error, Result};

/// Copies at the same time when nobody says. (Velero's default is one.)
const SLOTS: usize = 2;
/// Copies at the same time, whatever anybody says: each needs threads and memory.
const MOST: usize = 64;

/// The settings that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    load_concurrency: Option<Concurrency>,
    /// Settings of pods that Velero makes for its copies. Here there are none.
    #[serde(flatten)]
    idle: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Concurrency {
    global_config: i64,
    per_node_config: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    node_selector: LabelSelector,
    number: i64,
}

/// Reads the ConfigMap.
///
/// # Errors
/// When it is not there or cannot be understood.
pub(super) async fn read(ctx: &Context, name: &str) -> Result<Config> {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.namespace);
    let found = api
        .get_opt(name)
        .await
        .map_err(Error::api(format!("read ConfigMap {name}")))?;
    let data = found.and_then(|map| map.data);
    parse(data).map_err(|why| Error::Setup(format!("--node-agent-configmap {name}: {why}")))
}

fn parse(data: Option<BTreeMap<String, String>>) -> Result<Config, String> {
    let values: Vec<String> = data
        .ok_or("there is no such ConfigMap, or it has no data")?
        .into_values()
        .collect();
    match values.as_slice() {
        [text] => serde_json::from_str(text).map_err(|e| e.to_string()),
        _ => Err(format!("expected one key, found {}", values.len())),
    }
}

impl Config {
    /// A sentence about settings that have no effect, for the log.
    pub(super) fn remark(&self) -> Option<String> {
        let names: Vec<&str> = self.idle.keys().map(String::as_str).collect();
        (!names.is_empty()).then(|| {
            format!(
                "settings of the node-agent ConfigMap that have no effect, since copies run in this \
                 process and not in pods of their own: {}",
                names.join(", ")
            )
        })
    }

    /// How many copies a node with these labels makes at the same time, and what is wrong with the
    /// rules.
    pub(super) fn slots(&self, labels: &BTreeMap<String, String>) -> (usize, Vec<String>) {
        let Some(concurrency) = &self.load_concurrency else {
            return (SLOTS, Vec::new());
        };
        let mut wrong = Vec::new();
        let all = positive(concurrency.global_config).unwrap_or_else(|| {
            wrong.push(format!(
                "globalConfig {} is no number of copies; {SLOTS} is taken",
                concurrency.global_config
            ));
            SLOTS
        });
        let mut least = None;
        for (at, rule) in concurrency.per_node_config.iter().enumerate() {
            let number = positive(rule.number);
            match (selector::check(&rule.node_selector), number) {
                (Err(why), _) => wrong.push(format!("perNodeConfig[{at}] is passed over: {why}")),
                (_, None) => wrong.push(format!(
                    "perNodeConfig[{at}] is passed over: {} is no number of copies",
                    rule.number
                )),
                (Ok(()), Some(number)) if selector::matches(&rule.node_selector, labels) => {
                    least = Some(least.map_or(number, |least: usize| least.min(number)));
                }
                _ => {}
            }
        }
        (least.unwrap_or(all), wrong)
    }
}

fn positive(number: i64) -> Option<usize> {
    let number = usize::try_from(number).ok().filter(|number| *number > 0);
    number.map(|number| number.min(MOST))
}

/// The labels of a node; none when it cannot be read.
pub(super) fn labels(node: Option<&Node>) -> BTreeMap<String, String> {
    node.map(|node| node.labels().clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> Config {
        let data = BTreeMap::from([("any-key".to_owned(), value.to_string())]);
        parse(Some(data)).unwrap()
    }

    #[test]
    fn the_smallest_rule_that_matches_wins() {
        let rules = json!([
            {"nodeSelector": {"matchLabels": {"disk": "ssd"}}, "number": 7},
            {"nodeSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, "number": 3},
            {"nodeSelector": {"matchLabels": {"disk": "ssd"}}, "number": 0},
            {"nodeSelector": {"matchExpressions": [{"key": "zone", "operator": "Near"}]}, "number": 1},
        ]);
        let with = |global: i64| {
            config(json!({"loadConcurrency": {"globalConfig": global, "perNodeConfig": rules}}))
        };
        for (global, labels, expected) in [
            (5, vec![], 5),
            (5, vec![("disk", "ssd")], 7),
            (5, vec![("disk", "ssd"), ("zone", "a")], 3),
            (0, vec![("disk", "tape")], 2),
            (-1, vec![], 2),
            (1_000, vec![], 64),
        ] {
            let labels = labels
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            let (slots, wrong) = with(global).slots(&labels);
            assert_eq!(slots, expected, "{global} {labels:?}");
            assert_eq!(wrong.len(), if global > 0 { 2 } else { 3 }, "{wrong:?}");
        }
    }

    #[test]
    fn two_copies_when_nobody_says() {
        for value in [json!({}), json!({"podResources": {"cpuLimit": "1"}})] {
            assert_eq!(config(value).slots(&BTreeMap::new()), (2, Vec::new()));
        }
    }

    #[test]
    fn settings_without_effect_are_named() {
        let config = config(json!({"podResources": {}, "loadAffinity": [], "loadConcurrency": {}}));
        let remark = config.remark().unwrap();
        assert!(remark.ends_with(": loadAffinity, podResources"), "{remark}");
        assert_eq!(Config::default().remark(), None);
    }

    #[test]
    fn exactly_one_key_of_json_is_expected() {
        let two = BTreeMap::from(["a", "b"].map(|key| (key.to_owned(), "{}".to_owned())));
        let bad = BTreeMap::from([("a".to_owned(), "loadConcurrency: 1".to_owned())]);
        for (data, expected) in [
            (None, "no such ConfigMap"),
            (Some(BTreeMap::new()), "found 0"),
            (Some(two), "found 2"),
            (Some(bad), "expected value"),
        ] {
            let why = parse(data).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
