//! Where services, endpoints and ingresses are reached.

use super::UNKNOWN;
use super::calc::{NONE, UNSET, first_few, first_text, or};
use super::kinds::{at, count, int, items, plain, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// Addresses of a load balancer, sorted.
pub(super) fn load_balancer(object: &Value) -> Vec<String> {
    let addresses: BTreeSet<String> = items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| first_text(ingress, &["/ip", "/hostname"]))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect()
}

pub(super) fn external_ip(service: &Value) -> String {
    let (mut addresses, missing) = match text(service, "/spec/type").as_str() {
        "ClusterIP" | "NodePort" => (Vec::new(), NONE),
        "LoadBalancer" => (load_balancer(service), "<pending>"),
        "ExternalName" => return text(service, "/spec/externalName"),
        _ => return UNKNOWN.to_owned(),
    };
    addresses.extend(items(service, "/spec/externalIPs").iter().map(plain));
    or(addresses.join(","), missing)
}

pub(super) fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, "/spec/ports")
        .iter()
        .map(|port| {
            let node = match int(port, "/nodePort") {
                ..=0 => String::new(),
                node => format!(":{node}"),
            };
            format!("{}{node}/{}", int(port, "/port"), text(port, "/protocol"))
        })
        .collect();
    or(ports.join(","), NONE)
}

pub(super) fn endpoints(object: &Value) -> String {
    let subsets = items(object, "/subsets");
    let mut all = Vec::new();
    for subset in subsets {
        let ips: Vec<String> = items(subset, "/addresses")
            .iter()
            .map(|address| text(address, "/ip"))
            .collect();
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            all.extend(ips.iter().cloned());
        }
        for port in ports {
            let port = int(port, "/port");
            all.extend(ips.iter().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    first_few(&all, 3, ",", if subsets.is_empty() { NONE } else { "" })
}

pub(super) fn slice_ports(slice: &Value) -> String {
    let ports: Vec<String> = items(slice, "/ports")
        .iter()
        .map(
            |port| match at(port, "/port").or_else(|| at(port, "/name")) {
                Some(known) => plain(known),
                None => "*".to_owned(),
            },
        )
        .collect();
    first_few(&ports, 3, ",", UNSET)
}

pub(super) fn slice_endpoints(slice: &Value) -> String {
    let addresses: Vec<String> = items(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .map(plain)
        .collect();
    first_few(&addresses, 3, ",", UNSET)
}

pub(super) fn ingress_hosts(ingress: &Value) -> String {
    let rules = items(ingress, "/spec/rules");
    let mut hosts: Vec<String> = Vec::new();
    for rule in rules {
        if hosts.len() == 3 {
            // Rules without a host count as more, too.
            return format!("{} + {} more...", hosts.join(","), rules.len() - 3);
        }
        let host = text(rule, "/host");
        if !host.is_empty() {
            hosts.push(host);
        }
    }
    or(hosts.join(","), "*")
}

pub(super) fn ingress_ports(ingress: &Value) -> String {
    match count(ingress, "/spec/tls") {
        0 => "80",
        _ => "80, 443",
    }
    .to_owned()
}

pub(super) fn class_parameters(class: &Value) -> String {
    let Some(parameters) = at(class, "/spec/parameters") else {
        return NONE.to_owned();
    };
    let group = match at(parameters, "/apiGroup") {
        Some(group) => format!(".{}", plain(group)),
        None => String::new(),
    };
    format!(
        "{}{group}/{}",
        text(parameters, "/kind"),
        text(parameters, "/name")
    )
}

pub(super) fn parent_ref(address: &Value) -> String {
    let Some(parent) = at(address, "/spec/parentRef") else {
        return NONE.to_owned();
    };
    let mut kind = text(parent, "/resource");
    let group = text(parent, "/group");
    if !group.is_empty() {
        kind = format!("{kind}.{group}");
    }
    let namespace = match text(parent, "/namespace") {
        none if none.is_empty() => none,
        namespace => format!("/{namespace}"),
    };
    format!(
        "{}{namespace}/{}",
        kind.to_lowercase(),
        text(parent, "/name")
    )
}
