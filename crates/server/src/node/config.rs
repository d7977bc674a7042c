//! The ConfigMap of node processes: how many volumes a node copies at the same time, and what the pods
//! that move data look like.

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
    load_affinity: Vec<Affinity>,
    #[serde(rename = "backupPVC")]
    backup_claims: BTreeMap<String, BackupClaim>,
    #[serde(rename = "restorePVC")]
    restore_claims: RestoreClaim,
    pub(super) pod_resources: Resources,
    pub(super) priority_class_name: String,
    pub(super) pod_labels: BTreeMap<String, String>,
    pub(super) pod_annotations: BTreeMap<String, String>,
    /// Settings of what is not done here.
    #[serde(flatten)]
    idle: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Concurrency {
    global_config: i64,
    per_node_config: Vec<Rule>,
    prepare_queue_length: i64,
}

/// Where the pods of a storage class may run.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_selector: LabelSelector,
    storage_class: String,
}

/// How the claim of a snapshot is made, by the storage class of its volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BackupClaim {
    pub(super) storage_class: String,
    pub(super) read_only: bool,
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RestoreClaim {
    ignore_delay_binding: bool,
}

/// What the pods may use.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Resources {
    pub(super) cpu_request: String,
    pub(super) cpu_limit: String,
    pub(super) memory_request: String,
    pub(super) memory_limit: String,
    pub(super) ephemeral_storage_request: String,
    pub(super) ephemeral_storage_limit: String,
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
                "settings of the node-agent ConfigMap that have no effect: {}",
                names.join(", ")
            )
        })
    }

    /// How many movements of data may prepare at the same time, on all nodes together.
    pub(super) fn queue(&self) -> Option<usize> {
        positive(self.load_concurrency.as_ref()?.prepare_queue_length)
    }

    /// Where pods for volumes of a storage class may run.
    pub(super) fn affinity(&self, class: &str) -> Option<&LabelSelector> {
        let mut rules = self.load_affinity.iter();
        let own = rules.find(|rule| rule.storage_class == class);
        let any = || {
            let mut rules = self.load_affinity.iter();
            rules.find(|rule| rule.storage_class.is_empty())
        };
        own.or_else(any).map(|rule| &rule.node_selector)
    }

    /// How the claim of a snapshot is made whose volume is of a storage class.
    pub(super) fn backup_claim(&self, class: &str) -> BackupClaim {
        let mut found = self.backup_claims.get(class).cloned().unwrap_or_default();
        if found.storage_class.is_empty() {
            class.clone_into(&mut found.storage_class);
        }
        found
    }

    /// Whether volumes may be made before it is known where their pods run.
    pub(super) fn binds_at_once(&self) -> bool {
        self.restore_claims.ignore_delay_binding
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
        let config = config(json!({
            "podResources": {}, "cachePVC": {}, "privilegedFsBackup": true, "loadConcurrency": {},
        }));
        let remark = config.remark().unwrap();
        assert!(
            remark.ends_with(": cachePVC, privilegedFsBackup"),
            "{remark}"
        );
        assert_eq!(Config::default().remark(), None);
    }

    #[test]
    fn pods_and_claims_follow_the_storage_class() {
        let config = config(json!({
            "loadConcurrency": {"globalConfig": 1, "prepareQueueLength": 3},
            "loadAffinity": [
                {"nodeSelector": {"matchLabels": {"disk": "ssd"}}},
                {"nodeSelector": {"matchLabels": {"zone": "a"}}, "storageClass": "fast"},
            ],
            "backupPVC": {"fast": {"storageClass": "copy", "readOnly": true}, "slow": {"annotations": {"a": "b"}}},
            "restorePVC": {"ignoreDelayBinding": true},
        }));
        let label = |class: &str| {
            let labels = config.affinity(class)?.match_labels.clone()?;
            labels.into_keys().next()
        };
        assert_eq!(label("fast").as_deref(), Some("zone"));
        assert_eq!(label("other").as_deref(), Some("disk"));
        let fast = config.backup_claim("fast");
        assert_eq!(
            (fast.storage_class.as_str(), fast.read_only),
            ("copy", true)
        );
        let slow = config.backup_claim("slow");
        assert_eq!(
            (slow.storage_class.as_str(), slow.annotations.len()),
            ("slow", 1)
        );
        assert_eq!(config.queue(), Some(3));
        assert!(config.binds_at_once());
        assert_eq!(Config::default().queue(), None);
        assert!(Config::default().affinity("fast").is_none());
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
