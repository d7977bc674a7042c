//! The container `restore-wait`: it ends when every volume has been filled. The plugin's ConfigMap
//! has a say in most of it; what cannot be read there counts as not said.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use bowline_api::{Quantity, names::RESTORE_WAIT};
use k8s_openapi::api::core::v1::SecurityContext;
use serde_json::{Map, Value, json};
use tracing::warn;

use crate::{policy::yaml, restore::hooks::yes_or_no};

const COMMAND: &str = "/velero-restore-helper";
const CPU: &str = "100m";
const MEMORY: &str = "128Mi";
const USER: i64 = 1000;

/// What all such containers have in common.
#[derive(Debug, PartialEq)]
pub(super) struct Settings {
    /// None for the server's.
    pub(super) image: Option<String>,
    command: String,
    resources: Value,
    security: Option<Value>,
}

impl Settings {
    /// Reads the plugin's ConfigMap; `tag` is for an image without one.
    pub(super) fn read(data: &BTreeMap<String, String>, tag: &str) -> Self {
        let setting = |key: &str| {
            let value = data.get(key).map(String::as_str);
            value.filter(|value| !value.is_empty())
        };
        let resources = resources(&setting).unwrap_or_else(|why| {
            warn!("resources of {RESTORE_WAIT}: {why}; using the default");
            limits([CPU, MEMORY], [CPU, MEMORY])
        });
        let security = security(&setting).unwrap_or_else(|why| {
            warn!("security context of {RESTORE_WAIT}: {why}; using the default");
            None
        });
        Self {
            image: setting("image").and_then(|image| complete(image, tag)),
            command: setting("command").unwrap_or(COMMAND).to_owned(),
            resources,
            security,
        }
    }

    /// The container for a pod.
    pub(super) fn container(
        &self,
        pod: &Value,
        image: &str,
        restore_uid: &str,
        volumes: &BTreeSet<String>,
    ) -> Value {
        let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let mounts: Vec<Value> = volumes
            .iter()
            .map(|volume| json!({"name": volume, "mountPath": format!("/restores/{volume}")}))
            .collect();
        let security = self.security.clone();
        json!({
            "name": RESTORE_WAIT,
            "image": image,
            "command": [self.command],
            "args": [restore_uid],
            "env": [
                field("POD_NAMESPACE", "metadata.namespace"),
                field("POD_NAME", "metadata.name"),
            ],
            "volumeMounts": mounts,
            "resources": self.resources,
            "securityContext": security.unwrap_or_else(|| security_like(pod)),
        })
    }
}

/// An image with its tag; none if it does not say where it is from.
fn complete(image: &str, tag: &str) -> Option<String> {
    let (_, name) = image.rsplit_once('/')?;
    Some(match name.contains(':') {
        true => image.to_owned(),
        false => format!("{image}:{tag}"),
    })
}

fn resources<'a>(setting: &impl Fn(&str) -> Option<&'a str>) -> Result<Value, String> {
    let of = |cpu: &str, memory: &str| {
        [
            setting(cpu).unwrap_or(CPU),
            setting(memory).unwrap_or(MEMORY),
        ]
    };
    let requests = of("cpuRequest", "memRequest");
    let most = of("cpuLimit", "memLimit");
    for (request, limit) in requests.iter().zip(most) {
        let (request, limit) = (amount(request)?, amount(limit)?);
        if request > limit && limit != Quantity::from_bytes(0) {
            return Err(format!("a request of {request} is over its limit, {limit}"));
        }
    }
    Ok(limits(requests, most))
}

fn amount(text: &str) -> Result<Quantity, String> {
    Quantity::from_str(text).map_err(|why| why.to_string())
}

/// Zero is no limit at all.
fn limits(requests: [&str; 2], limits: [&str; 2]) -> Value {
    let of = |[cpu, memory]: [&str; 2]| -> Value {
        [("cpu", cpu), ("memory", memory)]
            .into_iter()
            .filter(|(_, text)| amount(text).is_ok_and(|amount| amount != Quantity::from_bytes(0)))
            .map(|(name, text)| (name.to_owned(), Value::from(text)))
            .collect::<Map<String, Value>>()
            .into()
    };
    json!({"requests": of(requests), "limits": of(limits)})
}

/// The security context that the ConfigMap gives, if it gives any.
fn security<'a>(setting: &impl Fn(&str) -> Option<&'a str>) -> Result<Option<Value>, String> {
    let mut context = Map::new();
    for (key, field) in [
        ("secCtxRunAsUser", "runAsUser"),
        ("secCtxRunAsGroup", "runAsGroup"),
    ] {
        if let Some(text) = setting(key) {
            let number: i64 = text
                .parse()
                .map_err(|_| format!("{field} {text:?} is not a number"))?;
            context.insert(field.to_owned(), number.into());
        }
    }
    if let Some(text) = setting("secCtxAllowPrivilegeEscalation") {
        let may = yes_or_no(text)
            .ok_or_else(|| format!("allowPrivilegeEscalation {text:?} is not a boolean"))?;
        context.insert("allowPrivilegeEscalation".to_owned(), may.into());
    }
    if let Some(text) = setting("secCtx") {
        context.extend(whole_context(text).map_err(|why| format!("secCtx: {why}"))?);
    }
    Ok((!context.is_empty()).then_some(Value::Object(context)))
}

/// A security context in YAML; what Kubernetes does not know is refused.
fn whole_context(text: &str) -> Result<Map<String, Value>, String> {
    let context: Value = yaml(text)?;
    let known: SecurityContext =
        serde_json::from_value(context.clone()).map_err(|why| why.to_string())?;
    let known = serde_json::to_value(known).map_err(|why| why.to_string())?;
    match context {
        Value::Object(fields) if known == Value::Object(fields.clone()) => Ok(fields),
        _ => Err("unknown fields".to_owned()),
    }
}

/// Whoever wrote the files can read them: the first container's context, or the pod's user.
fn security_like(pod: &Value) -> Value {
    let first = &pod["spec"]["containers"][0]["securityContext"];
    if first.is_object() {
        return first.clone();
    }
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": USER,
        "runAsNonRoot": true,
    });
    let own = &pod["spec"]["securityContext"];
    for field in ["runAsUser", "runAsGroup"] {
        if own[field].is_number() {
            context[field] = own[field].clone();
        }
    }
    if own["runAsUser"] == 0
        && let Some(fields) = context.as_object_mut()
    {
        fields.remove("runAsNonRoot");
        if let Some(claim) = own.get("runAsNonRoot") {
            fields.insert("runAsNonRoot".to_owned(), claim.clone());
        }
    }
    context
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(data: &Value) -> Settings {
        Settings::read(&serde_json::from_value(data.clone()).unwrap(), "v1")
    }

    #[test]
    fn the_config_map_has_a_say() {
        let usual = settings(&json!({}));
        assert_eq!(
            usual,
            Settings {
                image: None,
                command: "/velero-restore-helper".to_owned(),
                resources: json!({
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"cpu": "100m", "memory": "128Mi"},
                }),
                security: None,
            }
        );
        for (data, image) in [
            (json!({"image": "velero"}), None),
            (json!({"image": "r.io/velero"}), Some("r.io/velero:v1")),
            (
                json!({"image": "r.io:5000/velero"}),
                Some("r.io:5000/velero:v1"),
            ),
            (json!({"image": "r.io/velero:v2"}), Some("r.io/velero:v2")),
        ] {
            assert_eq!(settings(&data).image.as_deref(), image, "{data}");
        }
        assert_eq!(settings(&json!({"command": "/wait"})).command, "/wait");
        for (data, resources) in [
            (
                json!({"cpuRequest": "50m", "memLimit": "0"}),
                json!({"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "100m"}}),
            ),
            (json!({"cpuRequest": "200m"}), usual.resources.clone()),
            (json!({"memRequest": "much"}), usual.resources.clone()),
        ] {
            assert_eq!(settings(&data).resources, resources, "{data}");
        }
        for (data, security) in [
            (
                json!({"secCtxRunAsUser": "7", "secCtxRunAsGroup": "8", "secCtxAllowPrivilegeEscalation": "F"}),
                Some(json!({"runAsUser": 7, "runAsGroup": 8, "allowPrivilegeEscalation": false})),
            ),
            (
                json!({"secCtxRunAsUser": "7", "secCtx": "capabilities:\n  drop: [NET_ADMIN]\nrunAsUser: 9"}),
                Some(json!({"runAsUser": 9, "capabilities": {"drop": ["NET_ADMIN"]}})),
            ),
            (json!({"secCtxRunAsUser": "root"}), None),
            (json!({"secCtxAllowPrivilegeEscalation": "maybe"}), None),
            (json!({"secCtx": "runAs: me"}), None),
        ] {
            assert_eq!(settings(&data).security, security, "{data}");
        }
    }

    #[test]
    fn it_runs_as_who_wrote_the_files() {
        let usual = json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000, "runAsNonRoot": true,
        });
        let with = |changes: Value| {
            let mut context = usual.clone();
            bowline_apiserver::merge_patch(&mut context, &changes);
            context
        };
        for (spec, context) in [
            (json!({}), usual.clone()),
            (json!({"securityContext": {"fsGroup": 1}}), usual.clone()),
            (
                json!({"containers": [{"securityContext": {"privileged": true}}], "securityContext": {"runAsUser": 5}}),
                json!({"privileged": true}),
            ),
            (
                json!({"containers": [{}], "securityContext": {"runAsUser": 5, "runAsGroup": 6}}),
                with(json!({"runAsUser": 5, "runAsGroup": 6})),
            ),
            (
                json!({"securityContext": {"runAsUser": 0}}),
                with(json!({"runAsUser": 0, "runAsNonRoot": null})),
            ),
            (
                json!({"securityContext": {"runAsUser": 0, "runAsNonRoot": false}}),
                with(json!({"runAsUser": 0, "runAsNonRoot": false})),
            ),
        ] {
            assert_eq!(security_like(&json!({"spec": spec})), context, "{spec}");
        }
    }
}
