//! The documents that say what the server has: versions, groups, resources, schemas.

use http::{Method, header, request::Parts};
use serde_json::{Map, Value, json};

use crate::{
    registry::{Registry, items, text},
    schema::BUILT_IN,
    server::{Answer, Inner, no_such_page},
    status::{Result, Status},
};

pub(crate) fn answer(server: &Inner, parts: &Parts) -> Result<Answer> {
    let path = parts.uri.path().trim_end_matches('/');
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ));
    }
    let registry = server.registry();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [] | [""] => Ok(Answer::value(200, &root(&registry))),
        ["version"] => Ok(Answer::value(200, &BUILT_IN.version)),
        ["healthz" | "livez" | "readyz", ..] => {
            let mut answer = Answer::bytes(200, "ok");
            answer.content_type = "text/plain; charset=utf-8";
            Ok(answer)
        }
        ["api"] => Ok(core_or_aggregated(&registry, parts)),
        ["apis"] => Ok(groups_or_aggregated(&registry, parts)),
        ["api", version] => resources(&registry, "", version),
        ["apis", group] => group_document(&registry, group),
        ["apis", group, version] => resources(&registry, group, version),
        ["openapi", "v2"] => Ok(openapi_v2(parts)),
        ["openapi", "v3"] => Ok(Answer::value(200, &openapi_index(&registry))),
        ["openapi", "v3", "api", version] => openapi_v3(&registry, "", version),
        ["openapi", "v3", "apis", group, version] => openapi_v3(&registry, group, version),
        _ => Ok(nothing()),
    }
}

/// The answer for paths that lead nowhere.
pub(crate) fn nothing() -> Answer {
    let mut answer = Answer::bytes(404, "404 page not found\n");
    answer.content_type = "text/plain; charset=utf-8";
    answer
}

/// Which form of discovery a client prefers: the one document, or many.
fn aggregated(parts: &Parts) -> Option<&'static str> {
    let accept = parts.headers.get(header::ACCEPT)?.to_str().ok()?;
    let first = accept
        .split(',')
        .find(|range| range.contains("json") || range.contains("*/*"))?;
    let wants = |version: &str| {
        first.contains("as=APIGroupDiscoveryList")
            && first.contains("g=apidiscovery.k8s.io")
            && first.split(';').any(|p| p.trim() == format!("v={version}"))
    };
    if wants("v2") {
        return Some("v2");
    }
    wants("v2beta1").then_some("v2beta1")
}

fn group_list(version: &str, groups: Vec<Value>) -> Answer {
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": groups,
    });
    let mut answer = Answer::value(200, &list);
    answer.content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    answer
}

fn core_or_aggregated(registry: &Registry, parts: &Parts) -> Answer {
    let mut groups = registry.groups();
    match aggregated(parts) {
        Some(version) => group_list(version, vec![groups.remove(0)]),
        None => Answer::value(
            200,
            &json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
            }),
        ),
    }
}

fn groups_or_aggregated(registry: &Registry, parts: &Parts) -> Answer {
    let groups = registry.groups().split_off(1);
    match aggregated(parts) {
        Some(version) => group_list(version, groups),
        None => {
            let groups: Vec<Value> = groups
                .iter()
                .map(|group| legacy_group(group, false))
                .collect();
            Answer::value(
                200,
                &json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }),
            )
        }
    }
}

fn legacy_group(group: &Value, with_type: bool) -> Value {
    let name = text(&group["metadata"]["name"]);
    let versions: Vec<Value> = items(&group["versions"])
        .iter()
        .map(|version| {
            let version = text(&version["version"]);
            json!({ "groupVersion": format!("{name}/{version}"), "version": version })
        })
        .collect();
    let mut document =
        json!({ "name": name, "preferredVersion": versions.first(), "versions": versions });
    if with_type {
        document["kind"] = "APIGroup".into();
        document["apiVersion"] = "v1".into();
    }
    document
}

fn group_document(registry: &Registry, name: &str) -> Result<Answer> {
    let groups = registry.groups();
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == name && !name.is_empty());
    Ok(group.map_or_else(nothing, |group| {
        Answer::value(200, &legacy_group(group, true))
    }))
}

fn resources(registry: &Registry, group: &str, version: &str) -> Result<Answer> {
    let groups = registry.groups();
    let found = groups
        .iter()
        .find(|g| text(&g["metadata"]["name"]) == group)
        .and_then(|g| {
            items(&g["versions"])
                .iter()
                .find(|v| v["version"] == version)
        });
    let Some(found) = found else {
        return if BUILT_IN.has_group(group) {
            Err(no_such_page())
        } else {
            Ok(nothing())
        };
    };
    let mut list = Vec::new();
    for resource in items(&found["resources"]) {
        let namespaced = resource["scope"] == "Namespaced";
        let mut entry = json!({
            "name": resource["resource"],
            "singularName": resource["singularResource"],
            "namespaced": namespaced,
            "verbs": resource["verbs"],
        });
        response_kind(&mut entry, &resource["responseKind"], group, version);
        for key in ["shortNames", "categories"] {
            if !resource[key].is_null() {
                entry[key] = resource[key].clone();
            }
        }
        list.push(entry);
        for sub in items(&resource["subresources"]) {
            let mut entry = json!({
                "name": format!("{}/{}", text(&resource["resource"]), text(&sub["subresource"])),
                "singularName": "",
                "namespaced": namespaced,
                "verbs": sub["verbs"],
            });
            response_kind(&mut entry, &sub["responseKind"], group, version);
            list.push(entry);
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut document =
        json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": list });
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Ok(Answer::value(200, &document))
}

/// The kind of an entry, with its group and version if they are not those of the list.
fn response_kind(entry: &mut Value, response: &Value, group: &str, version: &str) {
    entry["kind"] = response["kind"].clone();
    let (other_group, other_version) = (text(&response["group"]), text(&response["version"]));
    if !other_version.is_empty() && (other_group != group || other_version != version) {
        entry["group"] = other_group.into();
        entry["version"] = other_version.into();
    }
}

fn root(registry: &Registry) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in registry.groups().split_off(1) {
        let name = text(&group["metadata"]["name"]);
        paths.push(format!("/apis/{name}"));
        for version in items(&group["versions"]) {
            paths.push(format!("/apis/{name}/{}", text(&version["version"])));
        }
    }
    for path in [
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ] {
        paths.push(path.to_owned());
    }
    json!({ "paths": paths })
}

/// A document without definitions, so that clients leave validation to the server. kubectl asks for
/// it in protobuf, where an empty message is an empty document.
fn openapi_v2(parts: &Parts) -> Answer {
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("protobuf")) {
        let mut answer = Answer::bytes(200, "");
        answer.content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        return answer;
    }
    Answer::value(
        200,
        &json!({
            "swagger": "2.0",
            "info": { "title": "Kubernetes", "version": BUILT_IN.version["gitVersion"] },
            "paths": {},
            "definitions": {},
        }),
    )
}

fn openapi_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        let name = text(&group["metadata"]["name"]);
        for version in items(&group["versions"]) {
            let version = text(&version["version"]);
            let path = if name.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{name}/{version}")
            };
            // Schemas change only with the kinds, which come with a new address.
            let hash = uuid::Uuid::new_v4().simple().to_string();
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// As much of a version's document as kubectl asks for: which kinds take which parameters.
fn openapi_v3(registry: &Registry, group: &str, version: &str) -> Result<Answer> {
    if !registry.has_version(group, version) {
        let mut answer = Answer::bytes(404, "");
        answer.content_type = "";
        return Ok(answer);
    }
    let groups = registry.groups();
    let resources = groups
        .iter()
        .find(|g| text(&g["metadata"]["name"]) == group)
        .into_iter()
        .flat_map(|g| items(&g["versions"]))
        .find(|v| v["version"] == version)
        .map(|v| items(&v["resources"]).to_vec())
        .unwrap_or_default();
    let prefix = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        let kind = text(&resource["responseKind"]["kind"]);
        let plural = text(&resource["resource"]);
        let gvk = json!({ "group": group, "version": version, "kind": kind });
        let place = match resource["scope"] == "Namespaced" {
            true => format!("{prefix}/namespaces/{{namespace}}/{plural}"),
            false => format!("{prefix}/{plural}"),
        };
        let parameters =
            json!(["dryRun", "fieldManager", "fieldValidation"].map(|name| json!({
            "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true },
        })));
        let operation = |action: &str| {
            json!({
                "parameters": parameters,
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": gvk,
                "responses": {},
            })
        };
        paths.insert(place.clone(), json!({ "post": operation("post") }));
        paths.insert(
            format!("{place}/{{name}}"),
            json!({ "put": operation("put"), "patch": operation("patch") }),
        );
        let id = format!(
            "{}.{version}.{kind}",
            if group.is_empty() { "core" } else { group }
        );
        schemas.insert(
            id,
            json!({ "type": "object", "x-kubernetes-group-version-kind": [gvk] }),
        );
    }
    Ok(Answer::value(
        200,
        &json!({
            "openapi": "3.0.0",
            "info": { "title": "Kubernetes", "version": BUILT_IN.version["gitVersion"] },
            "paths": paths,
            "components": { "schemas": schemas },
        }),
    ))
}
