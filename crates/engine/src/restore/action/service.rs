//! `velero.io/service`: a service gets new addresses, and new ports of nodes except for those that
//! somebody asked for. Who asked is told by what `kubectl apply` noted, or by the fields' owners.

use std::collections::HashSet;

use bowline_api::v1::Restore;
use serde_json::Value;

use super::{Change, Executed, fields, items, items_mut};
use crate::action::{Refused, text};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const HEALTH_CHECK: &str = "healthCheckNodePort";

pub(super) const ACTION: Change = Change {
    name: "velero.io/service",
    kinds: &["services"],
    concerns: |_| true,
    change,
};

fn change(mut service: Value, _: &Value, restore: &Restore) -> Result<Executed, Refused> {
    if let Some(spec) = fields(&mut service, "/spec")
        && spec
            .get("clusterIP")
            .is_none_or(|address| address != "None")
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if restore.spec.preserve_node_ports != Some(true) {
        let applied = last_applied(&service)?;
        remove_node_ports(&mut service, applied.as_ref())?;
        remove_health_check(&mut service, applied.as_ref());
    }
    Ok(service.into())
}

/// The service as somebody wrote it, if `kubectl apply` kept that.
fn last_applied(service: &Value) -> Result<Option<Value>, Refused> {
    let Some(text) = service["metadata"]["annotations"][LAST_APPLIED].as_str() else {
        return Ok(None);
    };
    let applied = serde_json::from_str(text);
    applied.map_err(|why| Refused(format!("annotation {LAST_APPLIED} is not JSON: {why}")))
}

fn remove_node_ports(service: &mut Value, applied: Option<&Value>) -> Result<(), Refused> {
    if text(service, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let asked = match applied {
        Some(applied) => Asked::in_applied(applied)?,
        None => Asked::in_owners(service),
    };
    for port in items_mut(service, "/spec/ports") {
        if !asked.has(port)
            && let Some(port) = port.as_object_mut()
        {
            port.remove("nodePort");
        }
    }
    Ok(())
}

/// Ports whose node port somebody asked for.
enum Asked {
    /// By name, or those without one by the node port.
    Applied {
        names: HashSet<String>,
        numbers: HashSet<i64>,
    },
    /// By their key in the list of owned fields.
    Owned(HashSet<String>),
}

impl Asked {
    fn in_applied(applied: &Value) -> Result<Self, Refused> {
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        for port in items(applied, "/spec/ports") {
            let number = node_port(&port["nodePort"])?;
            if number <= 0 {
                continue;
            }
            match port.get("name").and_then(Value::as_str) {
                Some(name) => drop(names.insert(name.to_owned())),
                None => drop(numbers.insert(number)),
            }
        }
        Ok(Self::Applied { names, numbers })
    }

    fn in_owners(service: &Value) -> Self {
        let ports = owned(service).filter_map(|fields| fields["f:ports"].as_object());
        let asked = ports
            .flatten()
            .filter(|(_, port)| port.get("f:nodePort").is_some())
            .map(|(key, _)| key.clone());
        Self::Owned(asked.collect())
    }

    fn has(&self, port: &Value) -> bool {
        match self {
            Self::Applied { names, numbers } => match text(port, "/name") {
                "" => port["nodePort"]
                    .as_i64()
                    .is_some_and(|port| numbers.contains(&port)),
                name => names.contains(name),
            },
            Self::Owned(keys) => {
                let number = port["port"].as_i64().unwrap_or_default();
                let protocol = text(port, "/protocol");
                keys.contains(&format!(r#"k:{{"port":{number},"protocol":"{protocol}"}}"#))
            }
        }
    }
}

/// A port as people write it; zero if it is not there.
fn node_port(port: &Value) -> Result<i64, Refused> {
    match port {
        Value::String(digits) => digits.parse().map_err(|_| {
            Refused(format!(
                "annotation {LAST_APPLIED} has a node port that is no number: {digits:?}"
            ))
        }),
        port => Ok(port.as_i64().unwrap_or_default()),
    }
}

/// The fields of `spec` that each manager owns.
fn owned(service: &Value) -> impl Iterator<Item = &Value> {
    let managers = items(service, "/metadata/managedFields").iter();
    managers.map(|manager| &manager["fieldsV1"]["f:spec"])
}

fn remove_health_check(service: &mut Value, applied: Option<&Value>) {
    let spec = &service["spec"];
    if spec["type"] != "LoadBalancer" || spec["externalTrafficPolicy"] != "Local" {
        return;
    }
    let port = applied.and_then(|applied| applied["spec"][HEALTH_CHECK].as_f64());
    let is_applied = port.is_some_and(|port| port != 0.0);
    let is_owned = owned(service).any(|fields| fields.get("f:healthCheckNodePort").is_some());
    if !is_applied
        && !is_owned
        && let Some(spec) = fields(service, "/spec")
    {
        spec.remove(HEALTH_CHECK);
    }
}

#[cfg(test)]
mod tests;
