//! Which hooks a restored pod has.

use bowline_api::v1::Restore;
use serde_json::json;

use super::*;

fn spec_hooks(resources: &Value) -> SpecHooks {
    let hooks = serde_json::from_value(json!({ "resources": resources })).unwrap();
    SpecHooks::new(Some(&hooks)).unwrap()
}

fn pod(annotations: Value) -> Value {
    json!({
        "metadata": {"namespace": "web", "name": "p", "labels": {"app": "shop"}, "annotations": annotations},
        "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
    })
}

fn seconds(count: u64) -> Option<std::time::Duration> {
    Some(std::time::Duration::from_secs(count))
}

#[test]
fn annotations_give_one_command() {
    let hook = |annotations: Value| {
        let mut hooks = SpecHooks::default().commands_for(&pod(annotations));
        assert!(hooks.len() < 2);
        hooks.pop()
    };
    assert_eq!(hook(json!({})), None);
    assert_eq!(
        hook(json!({"post.hook.restore.velero.io/command": ""})),
        None
    );
    assert_eq!(
        hook(json!({"post.hook.restore.velero.io/container": "main"})),
        None
    );
    let expected = PodHook {
        hook: Hook {
            source: Source::Annotation,
            name: String::new(),
            index: 0,
            exec: ExecHook {
                container: Some("main".into()),
                command: vec!["/bin/thaw now".into()],
                ..Default::default()
            },
            warning: None,
        },
        wait_timeout: None,
        wait_for_ready: false,
    };
    assert_eq!(
        hook(json!({"post.hook.restore.velero.io/command": "/bin/thaw now"})),
        Some(expected)
    );
    let full = hook(json!({
        "post.hook.restore.velero.io/command": "[\"a\", \"b\"]",
        "post.hook.restore.velero.io/container": "side",
        "post.hook.restore.velero.io/on-error": "Fail",
        "post.hook.restore.velero.io/exec-timeout": "1m",
        "post.hook.restore.velero.io/wait-timeout": "2m",
        "post.hook.restore.velero.io/wait-for-ready": "T",
    }))
    .unwrap();
    assert_eq!(full.container(), "side");
    assert_eq!(full.hook.exec.command, ["a", "b"]);
    assert_eq!(full.hook.exec.on_error, Some(HookErrorMode::Fail));
    assert_eq!(full.hook.exec.timeout, Some(Duration::from_secs(60)));
    assert_eq!(
        (full.wait_timeout, full.wait_for_ready),
        (seconds(120), true)
    );
    let odd = hook(json!({
        "post.hook.restore.velero.io/command": "a",
        "post.hook.restore.velero.io/on-error": "Perhaps",
        "post.hook.restore.velero.io/exec-timeout": "soon",
        "post.hook.restore.velero.io/wait-timeout": "-1m",
        "post.hook.restore.velero.io/wait-for-ready": "maybe",
    }))
    .unwrap();
    assert_eq!((odd.wait_timeout, odd.wait_for_ready), (None, false));
    assert_eq!(
        (odd.hook.exec.on_error, odd.hook.exec.timeout),
        (None, None)
    );
    let warning = odd.hook.warning.unwrap();
    assert!(
        warning.starts_with("Unable to parse exec timeout soon, ignoring: "),
        "{warning}"
    );
    assert!(
        warning.ends_with("; Unable to parse wait for ready maybe, ignoring"),
        "{warning}"
    );
}

#[test]
fn the_spec_gives_commands_by_namespace_and_labels() {
    let exec = |command: &str| json!({"exec": {"command": [command]}});
    let hooks = spec_hooks(&json!([
        {"name": "all", "postHooks": [exec("1"), {"init": {}}, {"exec": {
            "command": ["2"], "container": "side", "onError": "Fail", "execTimeout": "5s",
            "waitTimeout": "1m", "waitForReady": true,
        }}]},
        {"name": "here", "includedNamespaces": ["w*"], "labelSelector": {"matchLabels": {"app": "shop"}}, "postHooks": [exec("3")]},
        {"name": "away", "excludedNamespaces": ["web"], "postHooks": [exec("4")]},
        {"name": "labels", "labelSelector": {"matchLabels": {"app": "db"}}, "postHooks": [exec("5")]},
        // Restore hooks are for pods, whatever is said here.
        {"name": "kinds", "includedResources": ["services"], "postHooks": [exec("6")]},
    ]));
    let found = hooks.commands_for(&pod(json!({})));
    let told: Vec<_> = found
        .iter()
        .map(|hook| {
            (
                hook.hook.name.as_str(),
                hook.hook.index,
                hook.container(),
                hook.hook.exec.command[0].as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("all", 0, "main", "1"),
            ("all", 2, "side", "2"),
            ("here", 0, "main", "3"),
            ("kinds", 0, "main", "6")
        ]
    );
    let second = &found[1];
    assert_eq!(
        (second.wait_timeout, second.wait_for_ready),
        (seconds(60), true)
    );
    assert_eq!(second.hook.exec.on_error, Some(HookErrorMode::Fail));
    assert_eq!(second.hook.exec.timeout, Some(Duration::from_secs(5)));
    assert_eq!(found[0].wait_timeout, None);

    let annotated = pod(json!({"post.hook.restore.velero.io/command": "own"}));
    let only: Vec<_> = hooks.commands_for(&annotated);
    assert_eq!(only.len(), 1);
    assert_eq!(only[0].hook.shown_name(), "<from-annotation>");
    assert_eq!(
        hooks.commands_for(&json!({"metadata": {"namespace": "web"}})),
        []
    );
}

fn restore(mapping: &[(&str, &str)]) -> Restore {
    let mut restore = Restore::default();
    restore.metadata.uid = Some("uid-1".to_owned());
    let mapping = mapping
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
    restore.spec.namespace_mapping = Some(mapping.collect());
    restore
}

/// The names of the init containers that a pod has in the end.
fn init(hooks: &SpecHooks, pod: &mut Value, restore: &Restore) -> Vec<String> {
    hooks.add_init(pod, restore).unwrap();
    let containers = pod["spec"]["initContainers"].as_array();
    let containers = containers.into_iter().flatten();
    containers
        .map(|container| text(container, "/name").to_owned())
        .collect()
}

#[test]
fn init_containers_go_first_but_for_the_one_that_waits() {
    let container = |name: &str| json!({"name": name, "image": "i", "command": ["c"]});
    let hooks = spec_hooks(&json!([
        {"name": "a", "includedNamespaces": ["web-2"], "postHooks": [
            {"init": {"initContainers": [container("one"), container("two")]}},
            {"exec": {"command": ["x"]}},
        ]},
        {"name": "b", "includedNamespaces": ["web"], "postHooks": [{"init": {"initContainers": [container("three")]}}]},
    ]));
    let mapped = restore(&[("web", "web-2")]);
    for (own, restore, expected) in [
        (json!(null), &mapped, vec!["one", "two"]),
        (json!([{"name": "own"}]), &mapped, vec!["one", "two", "own"]),
        (
            json!([{"name": "restore-wait"}, {"name": "own"}]),
            &mapped,
            vec!["restore-wait", "one", "two", "own"],
        ),
        (
            json!([{"name": "own"}, {"name": "restore-wait"}]),
            &self::restore(&[]),
            vec!["three", "own", "restore-wait"],
        ),
    ] {
        let mut pod = pod(json!({}));
        pod["spec"]["initContainers"] = own;
        assert_eq!(init(&hooks, &mut pod, restore), expected);
    }
    let mut elsewhere = pod(json!({}));
    elsewhere["metadata"]["namespace"] = "other".into();
    let before = elsewhere.clone();
    hooks.add_init(&mut elsewhere, &mapped).unwrap();
    assert_eq!(elsewhere, before);
    assert!(hooks.may_have_init(&elsewhere));
    assert!(!SpecHooks::default().may_have_init(&elsewhere));
}

#[test]
fn annotations_give_one_init_container() {
    let hooks = spec_hooks(&json!([{"name": "a", "postHooks": [
        {"init": {"initContainers": [{"name": "spec", "image": "i", "command": ["c"]}]}},
    ]}]));
    let made = |annotations: Value, restore: &Restore| {
        let mut pod = pod(annotations);
        assert!(SpecHooks::default().may_have_init(&pod));
        hooks.add_init(&mut pod, restore).unwrap();
        assert_eq!(pod["spec"]["initContainers"].as_array().unwrap().len(), 1);
        pod["spec"]["initContainers"][0].take()
    };
    let image = "init.hook.restore.velero.io/container-image";
    assert_eq!(
        made(
            json!({
                image: "busybox", "init.hook.restore.velero.io/container-name": "mine",
                "init.hook.restore.velero.io/command": "[\"sh\", \"-c\", \"true\"]",
            }),
            &restore(&[]),
        ),
        json!({"name": "mine", "image": "busybox", "command": ["sh", "-c", "true"]})
    );
    // Without a command the image's own is run; without a name it gets one that the next restore
    // does not use.
    let first = made(json!({image: "busybox"}), &restore(&[]));
    assert_eq!(first, made(json!({image: "busybox"}), &restore(&[])));
    let name = first["name"].as_str().unwrap();
    let digits = name.strip_prefix("velero-restore-init-").unwrap();
    assert!(
        digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        "{name}"
    );
    assert_eq!(first, json!({"name": name, "image": "busybox"}));
    let mut later = restore(&[]);
    later.metadata.uid = Some("uid-2".to_owned());
    assert_ne!(made(json!({image: "busybox"}), &later)["name"], name);
}

#[test]
fn unsound_hooks_are_refused() {
    let spec = json!({"hooks": {"resources": [
        {"name": "fine", "postHooks": [{"init": {"initContainers": [{"name": "n", "image": "i", "command": ["c"]}]}}]},
        {"name": "bad", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}, "postHooks": [
            {"init": {"initContainers": [{"name": "n", "image": "i"}, {"name": "n", "command": ["c"]}, {"image": "i", "command": ["c"]}]}},
            {"exec": {"command": ["c"], "execTimeout": "soon", "waitTimeout": "1m"}},
            {"exec": {"command": ["c"], "waitTimeout": "later"}},
        ]},
    ]}});
    let spec: RestoreSpec = serde_json::from_value(spec).unwrap();
    let container = "invalid init container in restore hook \"bad\": invalid InitContainer in restore hook, it doesn't have Command, Name or Image field";
    let expected = [
        "invalid restore hooks: \"Is\" is not a valid label selector operator",
        container,
        container,
        container,
        "spec.hooks.resources[1].postHooks[1].exec.execTimeout: invalid duration \"soon\": expected numbers with units, such as \"1h30m\" or \"720h\"",
        "spec.hooks.resources[1].postHooks[2].exec.waitTimeout: invalid duration \"later\": expected numbers with units, such as \"1h30m\" or \"720h\"",
    ];
    assert_eq!(validate(&spec), expected);
    assert!(SpecHooks::new(spec.hooks.as_ref()).is_err());
    assert_eq!(validate(&RestoreSpec::default()), [""; 0]);
}
