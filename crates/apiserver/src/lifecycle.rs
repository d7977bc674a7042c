//! What the server does by itself: namespaces and their contents, owners and what they own,
//! addresses of services, and the kinds that CustomResourceDefinitions bring.
//!
//! The real server leaves most of this to controllers that come along later. Here it happens in the
//! same breath as the request, under the same lock, in the order in which controllers would do it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    delete::{self, Options},
    kinds,
    merge::Operation,
    registry::{items, text},
    server::{Answer, Call, Inner, no_such_page, not_found},
    status::{Result, Status},
    store::{Key, Object, ResourceId, State},
    validate,
    write::{self, remove as remove_field, time},
};

pub(crate) fn core(plural: &str) -> ResourceId {
    ResourceId {
        group: "".into(),
        plural: plural.into(),
    }
}

fn is(id: &ResourceId, group: &str, plural: &str) -> bool {
    &*id.group == group && &*id.plural == plural
}

pub(crate) const CRD_GROUP: &str = "apiextensions.k8s.io";
pub(crate) const CRDS: &str = "customresourcedefinitions";
pub(crate) const CRD_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The namespaces that every cluster has, and the Service of the API itself.
pub(crate) fn first_objects(server: &Inner) {
    let mut state = server.store.write();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace = json!({ "metadata": new_metadata(name, None), "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } });
        let mut namespace = namespace;
        namespace["metadata"]["labels"] = json!({ "kubernetes.io/metadata.name": name });
        let object = state.put(&core("namespaces"), namespace);
        after(server, &mut state, &core("namespaces"), &object, None);
    }
    let mut service = json!({
        "metadata": new_metadata("kubernetes", Some("default")),
        "spec": {
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }],
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": { "loadBalancer": {} },
    });
    service["metadata"]["labels"] = json!({ "component": "apiserver", "provider": "kubernetes" });
    state.put(&core("services"), service);
}

fn new_metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({
        "name": name,
        "uid": uuid::Uuid::new_v4().to_string(),
        "creationTimestamp": time(jiff::Timestamp::now()),
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

/// Stores an object as it is.
pub(crate) fn load(server: &Inner, object: &Value) -> Result<()> {
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let resource = server.registry().by_kind(&api_version, &kind).cloned();
    let Some(resource) = resource else {
        return Err(Status::bad_request(format!(
            "no matches for kind \"{kind}\" in version \"{api_version}\""
        )));
    };
    let mut value = object.clone();
    remove_field(&mut value, "apiVersion");
    remove_field(&mut value, "kind");
    let name = text(&value["metadata"]["name"]);
    if name.is_empty() {
        return Err(Status::bad_request(format!("a {kind} without a name")));
    }
    if resource.namespaced && text(&value["metadata"]["namespace"]).is_empty() {
        value["metadata"]["namespace"] = "default".into();
    }
    let fresh = new_metadata(&name, None);
    for key in ["uid", "creationTimestamp"] {
        if value["metadata"][key].is_null() {
            value["metadata"][key] = fresh[key].clone();
        }
    }
    let mut state = server.store.write();
    if is(&resource.id, CRD_GROUP, CRDS) {
        kinds::establish(&mut value, &time(jiff::Timestamp::now()));
    }
    let stored = state.put(&resource.id, value);
    if is(&resource.id, CRD_GROUP, CRDS) {
        server.registry_mut().define(&stored.value());
    }
    Ok(())
}

/// Objects are created in namespaces that exist and are to stay.
pub(crate) fn check_parent(call: &Call, state: &State, name: &str) -> Result<()> {
    let Some(namespace) = &call.target.namespace else {
        return Ok(());
    };
    let key = Key {
        namespace: String::new(),
        name: namespace.clone(),
    };
    let Some(found) = state.get(&core("namespaces"), &key) else {
        let registry = call.server.registry();
        let namespaces = registry.find("", "v1", "namespaces");
        return Err(namespaces.map_or_else(no_such_page, |resource| not_found(resource, namespace)));
    };
    if found.value()["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut details = crate::server::details(&call.resource, name);
    details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(Status {
        details: Some(details),
        ..Status::new(
            403,
            "Forbidden",
            format!(
                "{} \"{name}\" is forbidden: {why}",
                call.resource.qualified()
            ),
        )
    })
}

/// Namespaces that cannot go.
pub(crate) fn check_deletion(call: &Call, key: &Key) -> Result<()> {
    let forever = ["default", "kube-system", "kube-public"];
    if is(call.id(), "", "namespaces") && forever.contains(&key.name.as_str()) {
        return Err(Status {
            details: Some(crate::server::details(&call.resource, &key.name)),
            ..Status::new(
                403,
                "Forbidden",
                format!(
                    "namespaces \"{}\" is forbidden: this namespace may not be deleted",
                    key.name
                ),
            )
        });
    }
    Ok(())
}

/// Requests to subresources that take an object: evictions and bindings of pods.
pub(crate) fn create_subresource(call: &Call, body: &[u8]) -> Result<Answer> {
    let key = call.key();
    let mut state = call.server.store.write();
    let object = state
        .get(call.id(), &key)
        .ok_or_else(|| call.not_found(&key.name))?;
    match (call.resource.plural(), call.subresource()) {
        ("pods", "eviction") => {
            delete::delete(
                &call.server,
                &mut state,
                call.id(),
                &key,
                &Options::default(),
            );
        }
        ("pods", "binding") => {
            let (binding, _) = validate::parse(body)?;
            let old = object.value();
            let mut new = old.clone();
            new["spec"]["nodeName"] = binding["target"]["name"].clone();
            write::commit(call, &mut state, Some(old), new, Operation::Update)?;
        }
        _ => return Err(no_such_page()),
    }
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(Answer::value(201, &status))
}

/// Kinds that are questions: everybody may do everything here.
pub(crate) fn create_virtual(call: &Call, body: &[u8]) -> Result<Answer> {
    let mut review = match call.content_type.as_str() {
        "application/vnd.kubernetes.protobuf" => crate::protobuf::decode(body)?,
        _ => validate::parse(body)?.0,
    };
    review["apiVersion"] = call.resource.api_version().into();
    review["kind"] = call.resource.kind.clone().into();
    let user = json!({ "username": "admin", "groups": ["system:masters", "system:authenticated"] });
    review["status"] = match call.resource.plural() {
        "selfsubjectreviews" => json!({ "userInfo": user }),
        "tokenreviews" => json!({ "authenticated": true, "user": user }),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        }),
        "bindings" => return Err(no_such_page()),
        _ => json!({ "allowed": true }),
    };
    if review["metadata"].is_null() {
        review["metadata"] = json!({ "creationTimestamp": null });
    }
    Ok(Answer::value(201, &review))
}

/// Whether an object that is to be deleted has nothing left to wait for, finalizers apart.
pub(crate) fn may_go(id: &ResourceId, value: &Value) -> bool {
    !is(id, "", "namespaces") || items(&value["spec"]["finalizers"]).is_empty()
}

/// What the status of an object says while it is deleted.
pub(crate) fn mark_terminating(id: &ResourceId, value: &mut Value) {
    if is(id, "", "namespaces") {
        value["status"]["phase"] = "Terminating".into();
    }
}

/// What follows from a stored object.
pub(crate) fn after(
    server: &Inner,
    state: &mut State,
    id: &ResourceId,
    object: &Arc<Object>,
    old: Option<&Value>,
) {
    let value = object.value();
    let deleting = !value["metadata"]["deletionTimestamp"].is_null();
    if is(id, "", "namespaces") {
        if old.is_none() {
            furnish(server, state, &object.key.name);
        }
        if deleting {
            empty_namespace(server, state, &object.key.name);
        }
        return;
    }
    if is(id, CRD_GROUP, CRDS) {
        match deleting {
            true => empty_kind(server, state, &object.key, &value),
            false => server.registry_mut().define(&value),
        }
        return;
    }
    if deleting {
        collect(server, state, id, &object.key, &object.uid);
        return;
    }
    // An object whose owners are all gone goes too.
    let owners = crate::store::owners(&value);
    if !owners.is_empty() && owners.iter().all(|uid| state.find(uid).is_none()) {
        delete::delete(server, state, id, &object.key, &Options::default());
    }
}

/// What every namespace has from the start.
fn furnish(server: &Inner, state: &mut State, namespace: &str) {
    let mut root = json!({
        "metadata": new_metadata("kube-root-ca.crt", Some(namespace)),
        "data": { "ca.crt": server.root_ca },
    });
    root["metadata"]["annotations"] = json!({
        "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
    });
    state.put(&core("configmaps"), root);
    let account = json!({ "metadata": new_metadata("default", Some(namespace)) });
    state.put(&core("serviceaccounts"), account);
}

/// Deletes all that is in a namespace, and the namespace itself once nothing is left.
fn empty_namespace(server: &Inner, state: &mut State, name: &str) {
    for id in state.resources() {
        let keys: Vec<Key> = state
            .objects(&id)
            .keys()
            .filter(|key| key.namespace == name)
            .cloned()
            .collect();
        for key in keys {
            delete::delete(server, state, &id, &key, &Options::default());
        }
    }
    finish_namespace(server, state, name);
}

/// Removes a namespace that is to go and holds nothing any more.
fn finish_namespace(server: &Inner, state: &mut State, name: &str) {
    let key = Key {
        namespace: String::new(),
        name: name.to_owned(),
    };
    let Some(namespace) = state.get(&core("namespaces"), &key) else {
        return;
    };
    let mut value = namespace.value();
    if value["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let conditions = remaining(state, name);
    if let Some(conditions) = conditions {
        if value["status"]["conditions"] != conditions {
            value["status"]["conditions"] = conditions;
            state.put(&core("namespaces"), value);
        }
        return;
    }
    let finalizers: Vec<Value> = items(&value["spec"]["finalizers"])
        .iter()
        .filter(|f| *f != "kubernetes")
        .cloned()
        .collect();
    let waits = !finalizers.is_empty() || !items(&value["metadata"]["finalizers"]).is_empty();
    if waits {
        if items(&value["spec"]["finalizers"]).len() != finalizers.len() {
            value["spec"]["finalizers"] = finalizers.into();
            state.put(&core("namespaces"), value);
        }
        return;
    }
    remove(server, state, &core("namespaces"), &key);
}

/// What keeps a namespace from going, as conditions; `None` if it is empty.
fn remaining(state: &State, name: &str) -> Option<Value> {
    let mut kinds = Vec::new();
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for id in state.resources() {
        let objects = state.objects(&id);
        let left: Vec<_> = objects
            .values()
            .filter(|object| object.key.namespace == name)
            .collect();
        if left.is_empty() {
            continue;
        }
        kinds.push(format!(
            "{}.{} has {} resource instances",
            id.plural,
            id.group,
            left.len()
        ));
        for object in left {
            for finalizer in items(&object.value()["metadata"]["finalizers"]) {
                *finalizers.entry(text(finalizer)).or_default() += 1;
            }
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let now = time(jiff::Timestamp::now());
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        json!({
            "type": kind,
            "status": if status { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        })
    };
    let held: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let (held_reason, held_message) = match held.is_empty() {
        true => (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        ),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                held.join(", ")
            ),
        ),
    };
    Some(json!([
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned()
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned()
        ),
        condition(
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned()
        ),
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", kinds.join(", "))
        ),
        condition(
            "NamespaceFinalizersRemaining",
            !held.is_empty(),
            held_reason,
            held_message
        ),
    ]))
}

/// Deletes all objects of a kind that is to go, and the kind once none is left.
fn empty_kind(server: &Inner, state: &mut State, key: &Key, crd: &Value) {
    let id = ResourceId {
        group: text(&crd["spec"]["group"]).as_str().into(),
        plural: text(&crd["spec"]["names"]["plural"]).as_str().into(),
    };
    let keys: Vec<Key> = state.objects(&id).keys().cloned().collect();
    for key in keys {
        delete::delete(server, state, &id, &key, &Options::default());
    }
    finish_kind(server, state, key, &id);
}

fn finish_kind(server: &Inner, state: &mut State, key: &Key, id: &ResourceId) {
    if !state.objects(id).is_empty() {
        return;
    }
    let crds = ResourceId {
        group: CRD_GROUP.into(),
        plural: CRDS.into(),
    };
    let Some(crd) = state.get(&crds, key) else {
        return;
    };
    let mut value = crd.value();
    if value["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let rest: Vec<Value> = items(&value["metadata"]["finalizers"])
        .iter()
        .filter(|f| *f != CRD_FINALIZER)
        .cloned()
        .collect();
    if rest.is_empty() {
        remove(server, state, &crds, key);
    } else if rest.len() != items(&value["metadata"]["finalizers"]).len() {
        value["metadata"]["finalizers"] = rest.into();
        state.put(&crds, value);
    }
}

/// Looks after what an object owns while it waits to be deleted, and removes it when it need not
/// wait any longer.
pub(crate) fn collect(server: &Inner, state: &mut State, id: &ResourceId, key: &Key, uid: &str) {
    let Some(object) = state.get(id, key) else {
        return;
    };
    let mut value = object.value();
    let has = |value: &Value, name: &str| {
        items(&value["metadata"]["finalizers"])
            .iter()
            .any(|f| f == name)
    };
    if has(&value, "orphan") {
        for (dependent, dependent_key) in state.dependents(uid) {
            disown(state, &dependent, &dependent_key, uid);
        }
        drop_finalizer(&mut value, "orphan");
        state.put(id, value.clone());
    } else if has(&value, "foregroundDeletion") {
        for (dependent, dependent_key) in state.dependents(uid) {
            let foreground = Options::foreground();
            delete::delete(server, state, &dependent, &dependent_key, &foreground);
        }
        let blocked = state
            .dependents(uid)
            .iter()
            .any(|(dependent, dependent_key)| {
                let value = state
                    .get(dependent, dependent_key)
                    .map(|o| o.value())
                    .unwrap_or_default();
                let references = items(&value["metadata"]["ownerReferences"]).to_vec();
                references
                    .iter()
                    .any(|r| r["uid"] == uid && r["blockOwnerDeletion"] == true)
            });
        if blocked {
            return;
        }
        // Deleting what it owns may have removed it already.
        let Some(object) = state.get(id, key) else {
            return;
        };
        value = object.value();
        drop_finalizer(&mut value, "foregroundDeletion");
        state.put(id, value.clone());
    } else {
        return;
    }
    let waits = !items(&value["metadata"]["finalizers"]).is_empty()
        || value["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
            > 0;
    if !waits && may_go(id, &value) {
        remove(server, state, id, key);
    }
}

fn drop_finalizer(value: &mut Value, name: &str) {
    let rest: Vec<Value> = items(&value["metadata"]["finalizers"])
        .iter()
        .filter(|f| *f != name)
        .cloned()
        .collect();
    match rest.is_empty() {
        true => remove_field(&mut value["metadata"], "finalizers"),
        false => value["metadata"]["finalizers"] = rest.into(),
    }
}

fn disown(state: &mut State, id: &ResourceId, key: &Key, owner: &str) {
    let Some(object) = state.get(id, key) else {
        return;
    };
    let mut value = object.value();
    let references = items(&value["metadata"]["ownerReferences"]);
    let rest: Vec<Value> = references
        .iter()
        .filter(|r| r["uid"] != owner)
        .cloned()
        .collect();
    match rest.is_empty() {
        true => remove_field(&mut value["metadata"], "ownerReferences"),
        false => value["metadata"]["ownerReferences"] = rest.into(),
    }
    state.put(id, value);
}

/// Removes an object for good, and sees to all that depended on it being there.
pub(crate) fn remove(server: &Inner, state: &mut State, id: &ResourceId, key: &Key) {
    let Some(object) = state.remove(id, key) else {
        return;
    };
    if is(id, CRD_GROUP, CRDS) {
        let value = object.value();
        server.registry_mut().undefine(&value);
        state.drop_table(&ResourceId {
            group: text(&value["spec"]["group"]).as_str().into(),
            plural: text(&value["spec"]["names"]["plural"]).as_str().into(),
        });
    }
    // Owners that waited for this one may go now.
    for owner in crate::store::owners(&object.value()) {
        if let Some((owner_id, owner_key)) = state.find(&owner).cloned() {
            let deleting = state
                .get(&owner_id, &owner_key)
                .is_some_and(|o| !o.value()["metadata"]["deletionTimestamp"].is_null());
            if deleting {
                collect(server, state, &owner_id, &owner_key, &owner);
            }
        }
    }
    // What it owned goes with it, unless somebody else owns it too.
    for (dependent, dependent_key) in state.dependents(&object.uid) {
        let Some(found) = state.get(&dependent, &dependent_key) else {
            continue;
        };
        let others = crate::store::owners(&found.value());
        match others
            .iter()
            .any(|uid| *uid != object.uid && state.find(uid).is_some())
        {
            true => disown(state, &dependent, &dependent_key, &object.uid),
            false => delete::delete(
                server,
                state,
                &dependent,
                &dependent_key,
                &Options::default(),
            ),
        }
    }
    if !key.namespace.is_empty() {
        finish_namespace(server, state, &key.namespace);
    }
    let kind = server
        .registry()
        .any_version(id)
        .is_some_and(|resource| resource.custom.is_some());
    if kind {
        let crd = Key {
            namespace: String::new(),
            name: format!("{}.{}", id.plural, id.group),
        };
        finish_kind(server, state, &crd, id);
    }
}
