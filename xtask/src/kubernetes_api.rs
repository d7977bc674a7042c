//! `cargo xtask kubernetes-api`: records what the real API server says of itself, for the embedded
//! one: groups, resources and schemas, without the words for people.

use std::fs;

use anyhow::Context;
use bowline_testbed::{Bed, Cache, Mode, Process, build::KUBERNETES};
use kube::Client;
use serde_json::{Value, json};

use crate::say;

pub(crate) async fn record() -> anyhow::Result<()> {
    let bed = Bed::up(&Cache::open()?, Mode::Api, Some(Process::me()?), &say).await?;
    let recorded = ask(&bed.client()).await;
    bed.down().await?;
    let file = crate::root().join("crates/apiserver/data/kubernetes-1.34.json");
    fs::write(&file, serde_json::to_vec(&recorded?)?)?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

async fn ask(client: &Client) -> anyhow::Result<Value> {
    let mut groups = Vec::new();
    for path in ["/api", "/apis"] {
        let list = get(
            client,
            path,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        )
        .await?;
        groups.extend(list["items"].as_array().context("no groups")?.clone());
    }
    let mut openapi = get(client, "/openapi/v2", "application/json").await?;
    let mut definitions = openapi["definitions"].take();
    without_words(&mut definitions);
    Ok(json!({
        "definitions": definitions,
        "groups": groups,
        "version": { "major": "1", "minor": "34", "gitVersion": format!("v{KUBERNETES}") },
    }))
}

async fn get(client: &Client, path: &str, accept: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path)
        .header("Accept", accept)
        .body(Vec::new())?;
    Ok(serde_json::from_str(&client.request_text(request).await?)?)
}

/// Takes descriptions away; a field of that name is an object, not a text.
fn without_words(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| {
                !(matches!(key.as_str(), "description" | "title") && value.is_string())
            });
            object.values_mut().for_each(without_words);
        }
        Value::Array(items) => items.iter_mut().for_each(without_words),
        _ => {}
    }
}
