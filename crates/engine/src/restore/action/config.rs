//! The configuration of plugins: ConfigMaps of the installation's namespace, found by labels. All
//! are read in one request.

use std::collections::BTreeMap;

use bowline_api::names::label;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::action::Refused;

const KIND: &str = "RestoreItemAction";

/// What a plugin's ConfigMap says, nothing if there is none; refused if there are several.
pub(super) type Config = Result<BTreeMap<String, String>, Refused>;

/// The ConfigMaps of all plugins.
pub(super) struct Configs(Vec<ConfigMap>);

impl Configs {
    pub(super) async fn read(client: &Client, namespace: &str) -> Result<Self, kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let configs = ListParams::default().labels(label::PLUGIN_CONFIG);
        maps.list(&configs).await.map(|list| Self(list.items))
    }

    /// The configuration of one plugin.
    pub(super) fn of(&self, plugin: &str) -> Config {
        let is_for = |map: &&ConfigMap| map.labels().get(plugin).is_some_and(|kind| kind == KIND);
        let found: Vec<&ConfigMap> = self.0.iter().filter(is_for).collect();
        match found[..] {
            [] => Ok(BTreeMap::new()),
            [map] => Ok(map.data.clone().unwrap_or_default()),
            _ => {
                let names: Vec<String> = found.iter().map(|map| map.name_any()).collect();
                Err(Refused(format!(
                    "found more than one ConfigMap matching label selector \"{},{plugin}={KIND}\": [{}]",
                    label::PLUGIN_CONFIG,
                    names.join(" ")
                )))
            }
        }
    }
}

#[cfg(test)]
pub(super) fn configs(maps: serde_json::Value) -> Configs {
    Configs(serde_json::from_value(maps).unwrap())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plugin_has_one_config_map_or_none() {
        let map = |name: &str, plugin: &str, kind: &str| json!({"metadata": {"name": name, "labels": {"velero.io/plugin-config": "", plugin: kind}}, "data": {"from": name}});
        let configs = configs(json!([
            map("a", "velero.io/one", "RestoreItemAction"),
            map("b", "velero.io/two", "RestoreItemAction"),
            map("c", "velero.io/two", "RestoreItemAction"),
            map("d", "velero.io/three", "BackupItemAction"),
        ]));
        let data = |name: &str| BTreeMap::from([("from".to_owned(), name.to_owned())]);
        assert_eq!(configs.of("velero.io/one"), Ok(data("a")));
        assert_eq!(configs.of("velero.io/three"), Ok(BTreeMap::new()));
        assert_eq!(
            configs.of("velero.io/two").unwrap_err().to_string(),
            "found more than one ConfigMap matching label selector \
             \"velero.io/plugin-config,velero.io/two=RestoreItemAction\": [b c]"
        );
    }
}
