//! Puts objects into a cluster: made if they are not there, or applied if that is wanted.

use std::io::Write;

use anyhow::Context as _;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::Value;

use crate::cluster::Plain;

/// Makes or applies one object, and says what became of it.
pub(super) async fn object(
    client: &Client,
    object: &Value,
    apply: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let api = api_of(client, object);
    let done = match apply {
        true => {
            let params = PatchParams::apply("bowline").force();
            let patched = api.patch(&name, &params, &Patch::Apply(object)).await;
            patched
                .plain()
                .with_context(|| format!("apply {kind} {name}"))?;
            "applied".to_owned()
        }
        false => {
            let typed: DynamicObject = serde_json::from_value(object.clone())?;
            match api.create(&PostParams::default(), &typed).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let old = api.get(&name).await.ok();
                    let old = old.and_then(|old| other_image(&old.data, object));
                    let old = old.map(|image| format!(" with image {image}; --apply changes it"));
                    format!("already exists{}, proceeding", old.unwrap_or_default())
                }
                other => {
                    other
                        .plain()
                        .with_context(|| format!("create {kind} {name}"))?;
                    "created".to_owned()
                }
            }
        }
    };
    writeln!(out, "{kind}/{name}: {done}")?;
    out.flush()?;
    Ok(())
}

/// The API of the object's kind; the kinds of an installation have regular plurals.
fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = text(&object["kind"]);
    let plural = format!("{}s", kind.to_lowercase());
    let gvk = GroupVersionKind::gvk(group, version, &kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The image of a workload that exists already, if it is not the one that was to be installed.
fn other_image(old: &Value, new: &Value) -> Option<String> {
    let image = |object: &Value| {
        let containers = &object["spec"]["template"]["spec"]["containers"];
        containers[0]["image"].as_str().map(str::to_owned)
    };
    let (old, new) = (image(old)?, image(new)?);
    (old != new).then_some(old)
}
