//! Who owns which field, and server-side apply. An update makes its fields the writer's and takes
//! them from others; an apply is refused where it would, unless forced, and removes what its
//! manager applied before and no longer does, unless someone else owns it.
//! Fields that the caller does not let a request set (`status` of a main resource) must be taken
//! out of the request before.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Actor, Operation,
    fields::{
        Comparison, Element, Set, Shape, field, fill, item_element, mistakes, same, set_of, shape,
    },
    settle,
};
use crate::{
    schema::Schema,
    status::{Result, Status},
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Recomputes `metadata.managedFields` of an object that was created, updated or patched.
pub(crate) fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    schema: &Schema,
    actor: &Actor<'_>,
) -> Result<()> {
    let typed = Typed::new(schema);
    let live = || Managers::decode(old.map_or(&Value::Null, sent)).unwrap_or_default();
    let reset = json!([{}]);
    let mut managers = match sent(new) {
        _ if !actor.subresource.is_empty() => live(),
        Value::Array(entries) if entries.is_empty() => Managers::default(),
        entries if *entries == reset => Managers::default(),
        entries => match Managers::decode(entries) {
            Ok(managers) if !managers.0.is_empty() => managers,
            _ => live(),
        },
    };
    remove_managed_fields(new);
    // An object that is not tracked stays so until it is applied.
    if !managers.0.is_empty() || old.is_none() {
        managers.update(&typed, old, new, &Id::of(actor, Operation::Update), actor);
        managers.cap();
    }
    managers.encode(new);
    if let Some(old) = old {
        keep_times(old, new);
    }
    Ok(())
}

/// Merges what a manager applies into an object, or makes it one.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    actor: &Actor<'_>,
    force: bool,
) -> Result<Value> {
    let said = applied["apiVersion"].as_str().unwrap_or_default();
    let kind = applied["kind"].as_str().unwrap_or_default();
    let shown = if said.contains('/') {
        said.to_owned()
    } else {
        format!("/{said}")
    };
    let mut kinds = schema.resolve().raw["x-kubernetes-group-version-kind"]
        .as_array()
        .into_iter()
        .flatten();
    let other_kind = kinds
        .next()
        .is_some_and(|first| first["kind"] != kind && !kinds.any(|gvk| gvk["kind"] == kind));
    if said != actor.api_version || other_kind {
        return Err(Status::bad_request(format!(
            "invalid object type: {shown}, Kind={kind}"
        )));
    }
    if !sent(applied).is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let typed = Typed::new(schema);
    let mut wrong = Vec::new();
    mistakes(typed.schema(), applied, false, "", &mut wrong);
    if !wrong.is_empty() {
        let wrong = match wrong.as_slice() {
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        let of = |key: &str| {
            applied["metadata"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        return Err(Status::new(
            500,
            "",
            format!(
                "failed to create typed patch object ({}/{}; {shown}, Kind={kind}): {wrong}",
                of("namespace"),
                of("name"),
            ),
        ));
    }
    let mut managers = Managers::decode(live.map_or(&Value::Null, sent))
        .map_err(|e| Status::new(500, "", format!("failed to decode managed fields: {e}")))?;
    let mut bare = live.cloned().unwrap_or_else(|| json!({}));
    remove_managed_fields(&mut bare);
    if managers.0.is_empty() && live.is_some() {
        let id = Id {
            manager: "before-first-apply".to_owned(),
            ..Id::of(actor, Operation::Update)
        };
        managers.update(&typed, None, &bare, &id, actor);
        for owned in managers.0.values_mut() {
            let hidden = if actor.subresource.is_empty() {
                "status"
            } else {
                "spec"
            };
            owned.set = std::mem::take(&mut owned.set).without(hidden);
        }
        managers.drop_empty();
    }
    let attempt = |force: bool| {
        applied_with(
            &typed,
            live.map(|_| &bare),
            applied,
            &managers,
            actor,
            force,
        )
    };
    let (mut new, managers) = match attempt(force) {
        Ok(done) => done,
        Err(conflicts) => {
            let allowed = match actor.manager {
                "kubectl" => last_applied_unchanged(&typed, &bare, actor),
                _ => Set::default(),
            };
            let is_left = |path: &[Element]| {
                let mut one = Set::default();
                one.insert(path);
                one.minus(&allowed) == one
            };
            let left: Vec<Conflict> = conflicts
                .into_iter()
                .filter(|(_, path)| is_left(path))
                .collect();
            if !left.is_empty() {
                return Err(conflict_status(&left));
            }
            attempt(true).map_err(|conflicts| conflict_status(&conflicts))?
        }
    };
    if let Some(annotation) = annotations(&mut new).and_then(|all| all.get_mut(LAST_APPLIED))
        && actor.manager == "kubectl"
        && annotation.as_str().is_some_and(|text| !text.is_empty())
    {
        let mut kept = applied.clone();
        annotations(&mut kept).and_then(|all| all.remove(LAST_APPLIED));
        *annotation = format!("{kept}\n").into();
    }
    managers.encode(&mut new);
    if let Some(live) = live {
        keep_times(live, &mut new);
    }
    Ok(new)
}

/// A kind, with what is known of all objects.
struct Typed {
    root: Schema,
    /// Whether values have the shape of the real server's types.
    built_in: bool,
}

impl Typed {
    fn new(schema: &Schema) -> Self {
        let built_in = schema
            .resolve()
            .raw
            .get("x-kubernetes-group-version-kind")
            .is_some();
        let mut root = schema.resolve().clone();
        root.embedded_resource |= !built_in;
        Self { root, built_in }
    }

    fn schema(&self) -> Option<&Schema> {
        Some(&self.root)
    }

    /// The fields that a request of the actor can own: built-in kinds keep `status` and the rest
    /// apart.
    fn visible(&self, set: Set, actor: &Actor<'_>) -> Set {
        let set = set.minus(&unowned());
        match actor.subresource {
            "" if self.built_in => set.without("status"),
            "status" if self.built_in => set.without("spec"),
            _ => set,
        }
    }

    fn compare(&self, old: Option<&Value>, new: &Value) -> Comparison {
        let mut old = old.cloned().unwrap_or_else(|| json!({}));
        let mut new = new.clone();
        if self.built_in {
            fill(&mut old, &self.root);
            fill(&mut new, &self.root);
        }
        Comparison::of(self.schema(), &old, &new)
    }
}

/// What tells one entry from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    manager: String,
    operation: Operation,
    /// Empty for what is applied: a manager applies at one version at a time.
    api_version: String,
    subresource: String,
}

impl Id {
    fn of(actor: &Actor<'_>, operation: Operation) -> Self {
        let manager = if actor.manager.is_empty() {
            "unknown"
        } else {
            actor.manager
        };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => actor.api_version.to_owned(),
            },
            subresource: actor.subresource.to_owned(),
        }
    }

    fn is_update(&self) -> bool {
        self.operation == Operation::Update
    }

    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown += &format!(" with subresource {:?}", self.subresource);
        }
        if self.is_update() {
            shown += &format!(" using {}", self.api_version);
        }
        shown
    }
}

#[derive(Debug, Clone)]
struct Owned {
    api_version: String,
    time: Option<String>,
    set: Set,
}

/// The entries of `metadata.managedFields`.
#[derive(Debug, Clone, Default)]
struct Managers(BTreeMap<Id, Owned>);

impl Managers {
    fn decode(entries: &Value) -> std::result::Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let operation = match entry["operation"].as_str() {
                Some("Apply") => Operation::Apply,
                Some("Update") => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType").as_str() {
                "FieldsV1" => {}
                "" => {
                    return Err(format!(
                        "missing fieldsType in managed fields entry {index}"
                    ));
                }
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {index}"
                    ));
                }
            }
            let id = Id {
                manager: text("manager"),
                operation,
                api_version: if operation == Operation::Apply {
                    String::new()
                } else {
                    text("apiVersion")
                },
                subresource: text("subresource"),
            };
            let owned = Owned {
                api_version: text("apiVersion"),
                time: entry["time"].as_str().map(str::to_owned),
                set: Set::from_json(&entry["fieldsV1"])?,
            };
            managers.0.insert(id, owned);
        }
        Ok(managers)
    }

    fn encode(&self, object: &mut Value) {
        let mut entries: Vec<(&Id, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(id, owned)| {
            (
                id.operation,
                &owned.time,
                &id.manager,
                &owned.api_version,
                &id.subresource,
            )
        });
        let entries = entries.into_iter().map(|(id, owned)| {
            let mut entry = json!({
                "manager": id.manager,
                "operation": if id.is_update() { "Update" } else { "Apply" },
                "apiVersion": owned.api_version,
                "fieldsType": "FieldsV1",
                "fieldsV1": owned.set.to_json(),
            });
            if let Some(time) = &owned.time {
                entry["time"] = time.as_str().into();
            }
            if !id.subresource.is_empty() {
                entry["subresource"] = id.subresource.as_str().into();
            }
            entry
        });
        let entries: Vec<Value> = entries.collect();
        if let (Value::Object(object), false) = (object, entries.is_empty())
            && let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| json!({}))
        {
            metadata.insert("managedFields".to_owned(), entries.into());
        }
    }

    fn update(
        &mut self,
        typed: &Typed,
        old: Option<&Value>,
        new: &Value,
        id: &Id,
        actor: &Actor<'_>,
    ) {
        let mut old = old.cloned();
        old.iter_mut().for_each(remove_managed_fields);
        let changes = typed.compare(old.as_ref(), new);
        let written = changes.set();
        let gone = written.or(&changes.removed);
        for owned in self.0.values_mut() {
            owned.set = owned.set.minus(&gone);
        }
        self.drop_empty();
        let written = typed.visible(written, actor);
        if !written.is_empty() {
            let before = self.0.remove(id).map(|owned| owned.set).unwrap_or_default();
            let owned = Owned {
                api_version: actor.api_version.to_owned(),
                time: Some(time(actor)),
                set: before.or(&written),
            };
            self.0.insert(id.clone(), owned);
        }
    }

    fn drop_empty(&mut self) {
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// Folds the oldest of more than ten updaters into one.
    fn cap(&mut self) {
        let mut updaters: Vec<Id> = self.0.keys().filter(|id| id.is_update()).cloned().collect();
        updaters.sort_by_key(|id| {
            (
                self.0.get(id).and_then(|owned| owned.time.clone()),
                id.clone(),
            )
        });
        let mut left = updaters.len();
        let mut first: BTreeMap<String, Id> = BTreeMap::new();
        for id in updaters {
            if left <= 10 {
                break;
            }
            let bucket = Id {
                manager: "ancient-changes".to_owned(),
                subresource: String::new(),
                ..id.clone()
            };
            let Some(oldest) = first.get(&id.api_version) else {
                first.insert(id.api_version.clone(), id);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(oldest)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(owned) = self.0.remove(&id)
                && let Some(all) = self.0.get_mut(&bucket)
            {
                all.set = all.set.or(&owned.set);
                all.time = owned.time;
            }
            left -= 1;
        }
    }
}

type Conflict = (Id, Vec<Element>);

/// The object and its managers after an apply, or what others own of it.
fn applied_with(
    typed: &Typed,
    live: Option<&Value>,
    applied: &Value,
    managers: &Managers,
    actor: &Actor<'_>,
    force: bool,
) -> std::result::Result<(Value, Managers), Vec<Conflict>> {
    let id = Id::of(actor, Operation::Apply);
    let mut managers = managers.clone();
    let last = managers.0.remove(&id);
    let merged = merge(typed.schema(), live, Some(applied)).unwrap_or_else(|| json!({}));
    let owned = Owned {
        api_version: actor.api_version.to_owned(),
        time: last.as_ref().and_then(|owned| owned.time.clone()),
        set: typed.visible(set_of(typed.schema(), applied), actor),
    };
    managers.0.insert(id.clone(), owned);
    let mut new = match last {
        Some(last) => prune(typed.schema(), merged, &managers, &last.set),
        None => merged,
    };
    if typed.built_in {
        settle(&mut new, &typed.root);
    }
    let changes = typed.compare(live, &new);
    let written = changes.set();
    let others = || managers.0.iter().filter(|(other, _)| **other != id);
    let conflicts: Vec<Conflict> = others()
        .flat_map(|(other, owned)| {
            let paths = owned.set.and(&written).paths().into_iter();
            paths.map(|path| (other.clone(), path))
        })
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let gone = written.or(&changes.removed);
    let changed = live.is_none_or(|live| !same(live, &new));
    for (other, owned) in &mut managers.0 {
        if *other != id {
            owned.set = owned.set.minus(&gone);
        } else {
            owned.time = if changed {
                Some(time(actor))
            } else {
                owned.time.take()
            };
        }
    }
    managers.drop_empty();
    Ok((new, managers))
}

/// Both values as one, the second where they differ.
fn merge(schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let leading = new.or(old)?;
    match shape(schema, leading) {
        Shape::Fields => {
            let none = Map::new();
            let a = old.and_then(Value::as_object).unwrap_or(&none);
            let b = new.and_then(Value::as_object).unwrap_or(&none);
            if a.is_empty() && b.is_empty() {
                return Some(leading.clone());
            }
            let mut out = Map::new();
            for name in a
                .keys()
                .chain(b.keys().filter(|name| !a.contains_key(*name)))
            {
                if let Some(value) = merge(field(schema, name), a.get(name), b.get(name)) {
                    out.insert(name.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Shape::Items => {
            let none = Vec::new();
            let a = old.and_then(Value::as_array).unwrap_or(&none);
            let b = new.and_then(Value::as_array).unwrap_or(&none);
            match a.is_empty() && b.is_empty() {
                true => Some(leading.clone()),
                false => Some(Value::Array(merge_items(schema, a, b))),
            }
        }
        Shape::Leaf => Some(leading.clone()),
    }
}

/// Applied items stand in the order in which they are applied, and the others where they stood
/// among them.
fn merge_items(list: Option<&Schema>, old: &[Value], new: &[Value]) -> Vec<Value> {
    let index = |items: &[Value]| -> Vec<(Element, Value)> {
        let known = items
            .iter()
            .filter_map(|item| Some((item_element(list, item).ok()?, item.clone())));
        known.collect()
    };
    let (left, right) = (index(old), index(new));
    let place: BTreeMap<&Element, usize> =
        right.iter().enumerate().map(|(i, (e, _))| (e, i)).collect();
    let on_left = |element: &Element| {
        let mut found = left
            .iter()
            .filter(|(e, _)| e == element)
            .map(|(_, value)| value);
        (found.next(), found.next().is_some())
    };
    let item = list.and_then(Schema::item);
    let merged = |element: &Element, new: &Value| {
        let (old, duplicated) = on_left(element);
        merge(item, old.filter(|_| !duplicated), Some(new))
    };
    let mut shared = right
        .iter()
        .map(|(e, _)| e)
        .filter(|e| on_left(e).0.is_some());
    let mut next = shared.next();
    let (mut l, mut r) = (0, 0);
    let mut out = Vec::new();
    while l < left.len() || r < right.len() {
        if let Some((element, value)) = left.get(l) {
            let Some(&at) = place.get(element) else {
                out.extend(merge(item, Some(value), None));
                l += 1;
                continue;
            };
            // The item was, or will be, written at its place among the applied ones.
            let later = at != r && r < right.len() && next.is_some_and(|next| next != element);
            if at < r || later {
                l += 1;
                continue;
            }
            if at == r {
                l += 1;
            }
        }
        if let Some((element, value)) = right.get(r) {
            out.extend(merged(element, value));
            r += 1;
            if next == Some(element) {
                next = shared.next();
            }
        }
    }
    out
}

/// Removes what was applied before and is owned by nobody now.
fn prune(schema: Option<&Schema>, merged: Value, managers: &Managers, last: &Set) -> Value {
    if last.is_empty() {
        return merged;
    }
    let last = last.with_declared(schema);
    let owned = managers
        .0
        .values()
        .fold(Set::default(), |all, owned| all.or(&owned.set));
    let fields_of = |value: &Value| set_of(schema, value).with_declared(schema);
    let all = fields_of(&merged);
    let without = fields_of(&remove(schema, &merged, &last));
    let kept = remove(
        schema,
        &merged,
        &all.minus(&without.or(&owned.with_declared(schema))),
    );
    // Fields inside of what was removed that were never applied by this manager come back.
    remove(schema, &merged, &all.minus(&fields_of(&kept)).and(&last))
}

fn remove(schema: Option<&Schema>, value: &Value, gone: &Set) -> Value {
    match (shape(schema, value), value) {
        (Shape::Fields, Value::Object(fields)) if !fields.is_empty() => {
            let mut out = Map::new();
            for (name, value) in fields {
                let element = Element::Field(name.clone());
                if !gone.has(&element) {
                    let left = gone
                        .below(&element)
                        .map(|gone| remove(field(schema, name), value, gone));
                    out.insert(name.clone(), left.unwrap_or_else(|| value.clone()));
                }
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Object(out)
            }
        }
        (Shape::Items, Value::Array(items)) if !items.is_empty() => {
            let mut out = Vec::new();
            for item in items {
                let element = item_element(schema, item).ok();
                if element.as_ref().is_some_and(|element| gone.has(element)) {
                    continue;
                }
                let below = element.and_then(|element| gone.below(&element).cloned());
                let left = below.map(|gone| remove(schema.and_then(Schema::item), item, &gone));
                out.push(left.unwrap_or_else(|| item.clone()));
            }
            if out.is_empty() {
                Value::Null
            } else {
                Value::Array(out)
            }
        }
        (Shape::Leaf, scalar) if !scalar.is_array() && !scalar.is_object() => scalar.clone(),
        _ => Value::Null,
    }
}

/// What nobody owns.
fn unowned() -> Set {
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert_fields(&[name]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert_fields(&["metadata", name]);
    }
    set
}

fn conflict_status(conflicts: &[Conflict]) -> Status {
    let shown = |path: &[Element]| path.iter().map(Element::to_string).collect::<String>();
    let message = match conflicts {
        [(id, path)] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            id.shown(),
            shown(path)
        ),
        many => {
            let mut lines = Vec::new();
            let mut last = None;
            for (id, path) in many {
                if last != Some(id) {
                    lines.push(format!("conflicts with {}:", id.shown()));
                }
                last = Some(id);
                lines.push(format!("- {}", shown(path)));
            }
            format!(
                "Apply failed with {} conflicts: {}",
                many.len(),
                lines.join("\n")
            )
        }
    };
    let causes = conflicts.iter().map(|(id, path)| {
        json!({
            "reason": "FieldManagerConflict",
            "message": format!("conflict with {}", id.shown()),
            "field": shown(path),
        })
    });
    Status {
        details: Some(json!({ "causes": causes.collect::<Vec<_>>() })),
        ..Status::new(409, "Conflict", message)
    }
}

/// What `kubectl apply` without server-side apply last set and is still so.
fn last_applied_unchanged(typed: &Typed, live: &Value, actor: &Actor<'_>) -> Set {
    let text = live["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .unwrap_or_default();
    let Ok(last) = serde_json::from_str::<Value>(text) else {
        return Set::default();
    };
    if last["apiVersion"] != actor.api_version {
        return Set::default();
    }
    let changes = Comparison::of(typed.schema(), &last, live);
    set_of(typed.schema(), &last).minus(&changes.set().or(&changes.removed))
}

/// A request that changes nothing else does not change times.
fn keep_times(old: &Value, new: &mut Value) {
    let timeless = |value: &Value| {
        let mut value = value.clone();
        let entries = value
            .pointer_mut("/metadata/managedFields")
            .and_then(Value::as_array_mut);
        for entry in entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            entry.remove("time");
        }
        value
    };
    if !sent(new).is_null() && same(&timeless(old), &timeless(new)) {
        new["metadata"]["managedFields"] = sent(old).clone();
    }
}

fn sent(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn time(actor: &Actor<'_>) -> String {
    actor.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{apply, sent, track_update};
    use crate::{
        merge::Actor,
        schema::{BUILT_IN, Schema},
    };

    #[rustfmt::skip]
    const WIDGET: &str = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"},"names":{"type":"array","items":{"type":"string"}},"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"color":{"type":"string"}}}},"opts":{"type":"object","additionalProperties":{"type":"string"}},"ref":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"},"b":{"type":"string"}}},"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},"status":{"type":"object","properties":{"ready":{"type":"boolean"},"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],"items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}}}"#;

    /// Kind, request, manager, body, and the answer of a kube-apiserver 1.34.4: parts of the
    /// object with its field sets, or code, reason and message. The steps of a kind follow each
    /// other.
    #[rustfmt::skip]
    const STEPS: &[(&str, &str, &str, &str, &str)] = &[
        ("ConfigMap", "create", "alice", r#"{"data":{"a":"1","b":"2"}}"#, r#"{"managed":{"alice Update":{"f:data":{".":{},"f:a":{},"f:b":{}}}}}"#),
        ("ConfigMap", "update", "bob", r#"{"metadata":{"labels":{"l":"1"}},"data":{"a":"1","b":"3","c":"4"}}"#, r#"{"managed":{"alice Update":{"f:data":{".":{},"f:a":{}}},"bob Update":{"f:data":{"f:b":{},"f:c":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}}}"#),
        ("ConfigMap", "update", "carol", r#"{"metadata":{"labels":{"l":"1"}},"data":{"a":"1","b":"3","c":"4"}}"#, r#"{"managed":{"alice Update":{"f:data":{".":{},"f:a":{}}},"bob Update":{"f:data":{"f:b":{},"f:c":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}}}"#),
        ("ConfigMap", "update", "carol", r#"{"data":{"a":"1","c":"4"}}"#, r#"{"managed":{"alice Update":{"f:data":{".":{},"f:a":{}}},"bob Update":{"f:data":{"f:c":{}}}}}"#),
        ("ConfigMap", "apply", "one", r#"{"data":{"a":"1"}}"#, r#"{"managed":{"one Apply timeless":{"f:data":{"f:a":{}}},"alice Update":{"f:data":{".":{},"f:a":{}}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"a":"1","c":"4"}}"#),
        ("ConfigMap", "apply", "two", r#"{"data":{"a":"9"}}"#, r#"409 Conflict Apply failed with 2 conflicts: conflicts with "alice" using v1:\n- .data.a\nconflicts with "one":\n- .data.a"#),
        ("ConfigMap", "force", "two", r#"{"data":{"a":"9","z":"0"}}"#, r#"{"managed":{"two Apply":{"f:data":{"f:a":{},"f:z":{}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"a":"9","c":"4","z":"0"}}"#),
        ("ConfigMap", "apply", "one", r#"{"data":{"q":"9"}}"#, r#"{"managed":{"one Apply":{"f:data":{"f:q":{}}},"two Apply":{"f:data":{"f:a":{},"f:z":{}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"a":"9","c":"4","q":"9","z":"0"}}"#),
        ("ConfigMap", "apply", "two", r#"{"metadata":{"finalizers":["x/a","x/b"]},"data":{"z":"0"}}"#, r#"{"managed":{"one Apply":{"f:data":{"f:q":{}}},"two Apply":{"f:data":{"f:z":{}},"f:metadata":{"f:finalizers":{"v:\"x/a\"":{},"v:\"x/b\"":{}}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"c":"4","q":"9","z":"0"},"finalizers":["x/a","x/b"]}"#),
        ("ConfigMap", "apply", "fin", r#"{"metadata":{"finalizers":["x/c","x/b"]}}"#, r#"{"managed":{"fin Apply":{"f:metadata":{"f:finalizers":{"v:\"x/b\"":{},"v:\"x/c\"":{}}}},"one Apply":{"f:data":{"f:q":{}}},"two Apply":{"f:data":{"f:z":{}},"f:metadata":{"f:finalizers":{"v:\"x/a\"":{},"v:\"x/b\"":{}}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"c":"4","q":"9","z":"0"},"finalizers":["x/a","x/c","x/b"]}"#),
        ("ConfigMap", "apply", "two", r#"{"metadata":{"finalizers":["x/a"]}}"#, r#"{"managed":{"fin Apply":{"f:metadata":{"f:finalizers":{"v:\"x/b\"":{},"v:\"x/c\"":{}}}},"one Apply":{"f:data":{"f:q":{}}},"two Apply":{"f:metadata":{"f:finalizers":{"v:\"x/a\"":{}}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"c":"4","q":"9"},"finalizers":["x/a","x/c","x/b"]}"#),
        ("ConfigMap", "apply", "fin", r#"{}"#, r#"{"managed":{"one Apply":{"f:data":{"f:q":{}}},"two Apply":{"f:metadata":{"f:finalizers":{"v:\"x/a\"":{}}}},"alice Update":{"f:data":{}},"bob Update":{"f:data":{"f:c":{}}}},"data":{"c":"4","q":"9"},"finalizers":["x/a"]}"#),
        ("ConfigMap", "update", "bob", r#"{"metadata":{"finalizers":["x/a"],"managedFields":[]},"data":{"c":"4","q":"9"}}"#, r#"{"managed":{}}"#),
        ("ConfigMap", "update", "bob", r#"{"metadata":{"finalizers":["x/a"]},"data":{"c":"4","n":"1","q":"9"}}"#, r#"{"managed":{}}"#),
        ("ConfigMap", "apply", "one", r#"{"data":{"n":"1"}}"#, r#"{"managed":{"one Apply timeless":{"f:data":{"f:n":{}}},"before-first-apply Update":{"f:data":{".":{},"f:c":{},"f:n":{},"f:q":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"x/a\"":{}}}}},"data":{"c":"4","n":"1","q":"9"},"finalizers":["x/a"]}"#),
        ("ConfigMap", "apply", "two", r#"{"data":{"n":"2"}}"#, r#"409 Conflict Apply failed with 2 conflicts: conflicts with "before-first-apply" using v1:\n- .data.n\nconflicts with "one":\n- .data.n"#),
        ("ConfigMap", "apply", "two", r#"{"metadata":{"managedFields":[]}}"#, r#"400 BadRequest metadata.managedFields must be nil"#),
        ("ConfigMap", "apply", "two", r#"{"bogus":1}"#, r#"500  failed to create typed patch object (/t; /v1, Kind=ConfigMap): .bogus: field not declared in schema"#),
        ("ConfigMap", "apply", "two", r#"{"apiVersion":"v2","kind":"ConfigMap"}"#, r#"400 BadRequest invalid object type: /v2, Kind=ConfigMap"#),
        ("ConfigMap", "update", "bob", r#"{"metadata":{"finalizers":["x/a"],"managedFields":[{"manager":"one","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:n":{}}}}]},"immutable":false,"data":{"c":"4","n":"1","q":"9"}}"#, r#"{"managed":{"one Apply timeless":{"f:data":{"f:n":{}}},"bob Update":{"f:immutable":{}}}}"#),
        ("Service", "apply", "one", r#"{"spec":{"selector":{"a":"b"},"ports":[{"name":"http","port":80},{"name":"dns","port":53,"protocol":"UDP"}]}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}},"f:selector":{}}}}}"#),
        ("Service", "apply", "two", r#"{"spec":{"selector":{"c":"d"},"ports":[{"name":"h2","port":80}]}}"#, r#"409 Conflict Apply failed with 2 conflicts: conflicts with "one":\n- .spec.selector\n- .spec.ports[port=80,protocol="TCP"].name"#),
        ("Service", "force", "two", r#"{"spec":{"selector":{"c":"d"}}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}},"two Apply":{"f:spec":{"f:selector":{}}}}}"#),
        ("Service", "apply", "one", r#"{"spec":{"ports":[{"name":"http","port":80,"protocol":"TCP"}]}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}},"two Apply":{"f:spec":{"f:selector":{}}}}}"#),
        ("Service", "apply status", "lb2", r#"{"status":{"conditions":[{"type":"R","status":"True","reason":"R","message":"","lastTransitionTime":"2025-01-01T00:00:00Z"}]}}"#, r#"{"managed":{"lb2 Apply status":{"f:status":{"f:conditions":{"k:{\"type\":\"R\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}},"one Apply":{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}},"two Apply":{"f:spec":{"f:selector":{}}}}}"#),
        ("Service", "apply", "one", r#"{"spec":{"ports":[{"name":"x","port":"q"}]}}"#, r#"500  failed to create typed patch object (/t; /v1, Kind=Service): .spec.ports[port="q",protocol="TCP"].port: expected numeric (int or float), got string"#),
        ("Service", "apply", "one", r#"{"spec":{"ports":[{"port":1},{"port":1}]}}"#, r#"500  failed to create typed patch object (/t; /v1, Kind=Service): .spec.ports: duplicate entries for key [port=1,protocol="TCP"]"#),
        ("Widget", "create", "alice", r#"{"spec":{"free":{"x":{"y":[1]}},"names":["a"],"opts":{"a":"b"},"parts":[{"color":"r","id":1}],"ref":{"a":"1"},"size":1,"tags":["t1","t2"]}}"#, r#"{"managed":{"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{".":{},"f:y":{}}},"f:names":{},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:color":{},"f:id":{}}},"f:ref":{},"f:size":{},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}}}}"#),
        ("Widget", "update", "bob", r#"{"spec":{"free":{"x":{"q":1,"y":[1]}},"names":["a"],"opts":{"a":"b"},"parts":[{"color":"r","id":1}],"ref":{"a":"1"},"size":1,"tags":["t1","t2"]}}"#, r#"{"managed":{"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{".":{},"f:y":{}}},"f:names":{},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:color":{},"f:id":{}}},"f:ref":{},"f:size":{},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}}}}"#),
        ("Widget", "update status", "ctl", r#"{"spec":{"free":{"x":{"q":1,"y":[1]}},"names":["a"],"opts":{"a":"b"},"parts":[{"color":"r","id":1}],"ref":{"a":"1"},"size":1,"tags":["t1","t2"]},"status":{"conditions":[{"status":"T","type":"R"}],"ready":true}}"#, r#"{"managed":{"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{".":{},"f:y":{}}},"f:names":{},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:color":{},"f:id":{}}},"f:ref":{},"f:size":{},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}},"ctl Update status":{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"R\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}}}"#),
        ("Widget", "apply", "one", r#"{"spec":{"tags":["t3","t2"],"parts":[{"id":2,"color":"g"}],"opts":{"c":"d"},"free":{"k":{"l":1}}}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:free":{"f:k":{".":{},"f:l":{}}},"f:opts":{"f:c":{}},"f:parts":{"k:{\"id\":2}":{".":{},"f:color":{},"f:id":{}}},"f:tags":{"v:\"t2\"":{},"v:\"t3\"":{}}}},"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{".":{},"f:y":{}}},"f:names":{},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:color":{},"f:id":{}}},"f:ref":{},"f:size":{},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}},"ctl Update status":{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"R\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}},"spec":{"free":{"k":{"l":1},"x":{"q":1,"y":[1]}},"names":["a"],"opts":{"a":"b","c":"d"},"parts":[{"color":"r","id":1},{"color":"g","id":2}],"ref":{"a":"1"},"size":1,"tags":["t1","t3","t2"]}}"#),
        ("Widget", "apply", "two", r#"{"spec":{"size":2,"ref":{"b":"2"},"names":["b"],"parts":[{"id":1,"color":"x"}],"free":{"x":{"y":[2]}}}}"#, r#"409 Conflict Apply failed with 5 conflicts: conflicts with "alice" using mrg.example.com/v1:\n- .spec.names\n- .spec.ref\n- .spec.size\n- .spec.free.x.y\n- .spec.parts[id=1].color"#),
        ("Widget", "force", "two", r#"{"spec":{"size":2,"ref":{"b":"2"},"names":["b"],"parts":[{"id":1,"color":"x"}],"free":{"x":{"y":[2]}}}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:free":{"f:k":{".":{},"f:l":{}}},"f:opts":{"f:c":{}},"f:parts":{"k:{\"id\":2}":{".":{},"f:color":{},"f:id":{}}},"f:tags":{"v:\"t2\"":{},"v:\"t3\"":{}}}},"two Apply":{"f:spec":{"f:free":{"f:x":{".":{},"f:y":{}}},"f:names":{},"f:parts":{"k:{\"id\":1}":{".":{},"f:color":{},"f:id":{}}},"f:ref":{},"f:size":{}}},"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{}},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:id":{}}},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}},"ctl Update status":{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"R\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}},"spec":{"free":{"k":{"l":1},"x":{"q":1,"y":[2]}},"names":["b"],"opts":{"a":"b","c":"d"},"parts":[{"color":"x","id":1},{"color":"g","id":2}],"ref":{"b":"2"},"size":2,"tags":["t1","t3","t2"]}}"#),
        ("Widget", "apply", "two", r#"{"spec":{"size":2}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:free":{"f:k":{".":{},"f:l":{}}},"f:opts":{"f:c":{}},"f:parts":{"k:{\"id\":2}":{".":{},"f:color":{},"f:id":{}}},"f:tags":{"v:\"t2\"":{},"v:\"t3\"":{}}}},"two Apply":{"f:spec":{"f:size":{}}},"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{}},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:id":{}}},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}},"ctl Update status":{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"R\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}},"spec":{"free":{"k":{"l":1},"x":{"q":1}},"opts":{"a":"b","c":"d"},"parts":[{"id":1},{"color":"g","id":2}],"size":2,"tags":["t1","t3","t2"]}}"#),
        ("Widget", "apply", "one", r#"{}"#, r#"{"managed":{"two Apply":{"f:spec":{"f:size":{}}},"alice Update":{"f:spec":{".":{},"f:free":{".":{},"f:x":{}},"f:opts":{".":{},"f:a":{}},"f:parts":{".":{},"k:{\"id\":1}":{".":{},"f:id":{}}},"f:tags":{".":{},"v:\"t1\"":{},"v:\"t2\"":{}}}},"bob Update":{"f:spec":{"f:free":{"f:x":{"f:q":{}}}}},"ctl Update status":{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"R\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}},"spec":{"free":{"x":{"q":1}},"opts":{"a":"b"},"parts":[{"id":1}],"size":2,"tags":["t1","t2"]}}"#),
        ("Widget", "apply", "two", r#"{"spec":{"bogus":1}}"#, r#"500  failed to create typed patch object (/t; mrg.example.com/v1, Kind=Widget): .spec.bogus: field not declared in schema"#),
        ("Deployment", "apply", "one", r#"{"spec":{"replicas":2,"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"a","image":"a:1","ports":[{"containerPort":80}],"env":[{"name":"X","value":"1"}]}]}}}}"#, r#"{"managed":{"one Apply":{"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:env":{"k:{\"name\":\"X\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}}}"#),
        ("Deployment", "apply", "two", r#"{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"a","image":"z","env":[{"name":"X","value":"2"},{"name":"Y","value":"2"}]}]}}}}"#, r#"409 Conflict Apply failed with 3 conflicts: conflicts with "one":\n- .spec.replicas\n- .spec.template.spec.containers[name="a"].image\n- .spec.template.spec.containers[name="a"].env[name="X"].value"#),
    ];

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn actor<'a>(manager: &'a str, api_version: &'a str, subresource: &'a str) -> Actor<'a> {
        Actor {
            manager,
            api_version,
            subresource,
            now: "2025-01-02T03:04:05Z".parse().unwrap(),
        }
    }

    /// Field sets by manager, operation and subresource.
    fn managed(object: &Value) -> Value {
        let entries = sent(object).as_array().into_iter().flatten().map(|entry| {
            let words = ["manager", "operation", "subresource"].map(|key| entry[key].as_str());
            let timeless = entry.get("time").is_none().then_some("timeless");
            let words: Vec<&str> = words.into_iter().chain([timeless]).flatten().collect();
            (words.join(" "), entry["fieldsV1"].clone())
        });
        Value::Object(entries.collect())
    }

    #[test]
    fn requests_do_what_the_real_server_does() {
        let widget = Schema::parse(&read(WIDGET));
        let mut live: Option<Value> = None;
        let mut last = "";
        for (kind, request, manager, body, want) in STEPS {
            if *kind != last {
                live = None;
                last = kind;
            }
            let (api_version, schema) = match *kind {
                "Widget" => ("mrg.example.com/v1", &widget),
                "Deployment" => ("apps/v1", BUILT_IN.schema("apps/v1", kind).unwrap()),
                _ => ("v1", BUILT_IN.schema("v1", kind).unwrap()),
            };
            let (operation, subresource) = request.split_once(' ').unwrap_or((request, ""));
            let actor = actor(manager, api_version, subresource);
            let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": {} });
            let fields: Map<String, Value> = read(body).as_object().unwrap().clone();
            object.as_object_mut().unwrap().extend(fields);
            object["metadata"]["name"] = "t".into();
            let answer = if ["apply", "force"].contains(&operation) {
                apply(live.as_ref(), &object, schema, &actor, operation == "force")
            } else {
                track_update(live.as_ref(), &mut object, schema, &actor).map(|()| object)
            };
            match answer {
                Ok(object) => {
                    let want = read(want);
                    assert_eq!(
                        managed(&object),
                        want["managed"],
                        "{manager} {request} {body}"
                    );
                    for key in ["data", "spec"] {
                        assert!(want.get(key).is_none_or(|v| *v == object[key]), "{object}");
                    }
                    let finalizers = &object["metadata"]["finalizers"];
                    assert!(
                        want.get("finalizers").is_none_or(|v| v == finalizers),
                        "{object}"
                    );
                    live = Some(object);
                }
                Err(e) => {
                    let got = format!("{} {} {}", e.code, e.reason, e.message);
                    assert_eq!(
                        got.replace('\n', "\\n"),
                        *want,
                        "{manager} {request} {body}"
                    );
                }
            }
        }
    }

    #[test]
    fn conflicts_have_causes() {
        let schema = BUILT_IN.schema("apps/v1", "Deployment").unwrap();
        let of = |replicas: u8| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": replicas } });
        let mut live = of(1);
        track_update(None, &mut live, schema, &actor("kubectl", "apps/v1", "")).unwrap();
        let refused = apply(
            Some(&live),
            &of(2),
            schema,
            &actor("two", "apps/v1", ""),
            false,
        )
        .unwrap_err();
        let message = "conflict with \"kubectl\" using apps/v1";
        assert_eq!(
            refused.message,
            format!("Apply failed with 1 conflict: {message}: .spec.replicas")
        );
        assert_eq!(
            refused.details,
            Some(json!({ "causes": [
            { "reason": "FieldManagerConflict", "message": message, "field": ".spec.replicas" },
        ] }))
        );
    }

    #[test]
    fn kubectl_takes_over_what_it_applied_on_its_side() {
        let schema = BUILT_IN.schema("v1", "ConfigMap").unwrap();
        let of = |data: Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "k" }, "data": data });
        let mut live = of(json!({ "a": "1", "b": "2" }));
        live["metadata"]["annotations"] = json!({ super::LAST_APPLIED: live.to_string() });
        track_update(
            None,
            &mut live,
            schema,
            &actor("kubectl-client-side-apply", "v1", ""),
        )
        .unwrap();
        let kubectl = actor("kubectl", "v1", "");
        assert!(
            apply(
                Some(&live),
                &of(json!({ "a": "5" })),
                schema,
                &actor("else", "v1", ""),
                false
            )
            .is_err()
        );
        let new = apply(
            Some(&live),
            &of(json!({ "a": "5" })),
            schema,
            &kubectl,
            false,
        )
        .unwrap();
        let kept = new["metadata"]["annotations"][super::LAST_APPLIED]
            .as_str()
            .unwrap();
        assert!(kept.ends_with("}\n"));
        assert_eq!(read(kept), of(json!({ "a": "5" })));
    }

    #[test]
    fn old_updaters_are_folded() {
        let schema = BUILT_IN.schema("v1", "ConfigMap").unwrap();
        let mut live = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": {} });
        track_update(None, &mut live, schema, &actor("m0", "v1", "")).unwrap();
        for n in 1..14 {
            let mut new = live.clone();
            new["data"][format!("k{n}")] = "1".into();
            track_update(
                Some(&live),
                &mut new,
                schema,
                &actor(&format!("m{n:02}"), "v1", ""),
            )
            .unwrap();
            live = new;
        }
        let managed = managed(&live);
        assert_eq!(managed.as_object().map(Map::len), Some(10));
        assert!(
            managed["ancient-changes Update"]["f:data"]
                .get("f:k1")
                .is_some()
        );
    }

    #[test]
    fn odd_objects_do_no_harm() {
        let schema = BUILT_IN.schema("v1", "Pod").unwrap();
        let odd = [
            json!(null),
            json!([]),
            json!({ "metadata": [], "spec": 1 }),
            json!({ "metadata": { "managedFields": {} } }),
        ];
        for old in &odd {
            for new in &odd {
                let mut changed = new.clone();
                track_update(Some(old), &mut changed, schema, &actor("m", "v1", "")).unwrap();
                let mut applied = new.clone();
                if let Some(fields) = applied.as_object_mut() {
                    fields.insert("apiVersion".to_owned(), "v1".into());
                    fields.insert("kind".to_owned(), "Pod".into());
                }
                let _ = apply(Some(old), &applied, schema, &actor("m", "v1", ""), true);
            }
        }
    }
}
