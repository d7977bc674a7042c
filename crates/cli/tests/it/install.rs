//! `bowline install` without a cluster.

use std::{
    io::Read,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn bowline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    // No cluster of whoever runs the tests is ever touched.
    command
        .args(args)
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .env("HOME", "/nonexistent")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("RUST_BACKTRACE");
    command
}

fn output(args: &[&str]) -> (Output, String, String) {
    let output = bowline(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn crds_are_printed_as_yaml_and_json_alike() {
    let (_, yaml, err) = output(&["install", "--crds-only", "--dry-run", "-o", "yaml"]);
    assert_eq!(err, "");
    let (_, json, _) = output(&["install", "--crds-only", "--dry-run", "-o", "json"]);
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(yaml, json);
    assert_eq!(json["kind"], "List");
    assert_eq!(json["items"].as_array().unwrap().len(), 15);
}

#[test]
fn what_install_cannot_do_yet_is_refused_by_name() {
    let (output, out, err) = output(&["install", "--provider", "aws"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out, "");
    assert!(err.contains("--provider"), "{err}");
    let (_, _, err) = self::output(&["install"]);
    assert!(err.contains("--crds-only"), "{err}");
}

#[test]
fn without_a_cluster_the_error_says_what_was_looked_for() {
    let (output, out, err) = output(&["install", "--crds-only"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out, "");
    assert!(err.starts_with("bowline: find a cluster: "), "{err}");

    let (_, _, err) = self::output(&["install", "--crds-only", "--kubeconfig", "/no/such/file"]);
    assert!(err.contains("/no/such/file"), "{err}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = bowline(&["install", "--crds-only", "--dry-run", "-o", "yaml"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(err, "");
}
