//! Which hooks a pod has, and what running them means, with a scripted [`Exec`].

use std::sync::Mutex;

use async_trait::async_trait;
use bowline_api::v1::HookStatus;
use serde_json::json;

use super::*;

fn pod(annotations: Value) -> Value {
    json!({
        "metadata": {
            "namespace": "web", "name": "p", "labels": { "app": "shop" }, "annotations": annotations
        },
        "spec": { "containers": [{ "name": "main" }, { "name": "side" }] },
        "status": { "phase": "Running" }
    })
}

fn spec_hooks(resources: Value) -> SpecHooks {
    let hooks: BackupHooks = serde_json::from_value(json!({ "resources": resources })).unwrap();
    SpecHooks::new(Some(&hooks), |kind| {
        matches!(kind, "po" | "Pod").then(|| "pods".to_owned())
    })
    .unwrap()
}

/// Ends each command as its first word says: a number is an exit code.
#[derive(Default)]
struct Script {
    ran: Mutex<Vec<String>>,
}

#[async_trait]
impl Exec for Script {
    async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[String],
    ) -> Result<Output, String> {
        let line = format!("{namespace}/{pod}/{container}: {}", command.join(" "));
        self.ran.lock().unwrap().push(line);
        let result = match command[0].as_str() {
            "0" => Ok(()),
            "hang" => std::future::pending().await,
            "unreachable" => return Err("start command: no node".to_owned()),
            code => Err(format!("command terminated with exit code {code}")),
        };
        Ok(Output {
            stdout: "out\n".into(),
            stderr: "err\n".into(),
            result,
        })
    }
}

/// What happened: the verdict, the messages as `level text`, what ran, and the counts.
struct Story {
    verdict: Verdict,
    lines: Vec<String>,
    messages: Vec<Message>,
    ran: Vec<String>,
    counts: (i64, i64),
}

async fn play(hooks: &SpecHooks, pod: &Value, phase: Phase) -> Story {
    let (script, tracker) = (Script::default(), HookTracker::default());
    let Outcome { verdict, messages } = run(&script, hooks, pod, phase, &tracker).await;
    Story {
        verdict,
        lines: messages
            .iter()
            .map(|m| format!("{:?} {m}", m.level))
            .collect(),
        messages,
        ran: script.ran.into_inner().unwrap(),
        counts: counts(&tracker),
    }
}

fn counts(tracker: &HookTracker) -> (i64, i64) {
    let HookStatus {
        hooks_attempted,
        hooks_failed,
        ..
    } = tracker.status();
    (hooks_attempted.unwrap_or(0), hooks_failed.unwrap_or(0))
}

#[test]
fn annotations_are_read_by_phase_and_old_keys_count_as_pre() {
    for (annotations, phase, command) in [
        (json!({}), Phase::Pre, None),
        (
            json!({ "pre.hook.backup.velero.io/command": "a" }),
            Phase::Pre,
            Some(vec!["a"]),
        ),
        (
            json!({ "pre.hook.backup.velero.io/command": "a" }),
            Phase::Post,
            None,
        ),
        (
            json!({ "post.hook.backup.velero.io/command": "a" }),
            Phase::Post,
            Some(vec!["a"]),
        ),
        (
            json!({ "hook.backup.velero.io/command": "a" }),
            Phase::Pre,
            Some(vec!["a"]),
        ),
        (
            json!({ "hook.backup.velero.io/command": "a" }),
            Phase::Post,
            None,
        ),
        (
            json!({
                "hook.backup.velero.io/command": "old", "pre.hook.backup.velero.io/command": "new"
            }),
            Phase::Pre,
            Some(vec!["new"]),
        ),
        (
            json!({ "pre.hook.backup.velero.io/command": "" }),
            Phase::Pre,
            None,
        ),
        (
            json!({ "pre.hook.backup.velero.io/container": "side" }),
            Phase::Pre,
            None,
        ),
        (
            json!({ "pre.hook.backup.velero.io/command": "a b; c" }),
            Phase::Pre,
            Some(vec!["a b; c"]),
        ),
        (
            json!({ "pre.hook.backup.velero.io/command": "[\"a\", \"b c\"]" }),
            Phase::Pre,
            Some(vec!["a", "b c"]),
        ),
        (
            json!({ "pre.hook.backup.velero.io/command": "[a, b" }),
            Phase::Pre,
            Some(vec!["[a, b"]),
        ),
    ] {
        let hooks = SpecHooks::default().of_pod(&pod(annotations.clone()), phase);
        let found: Vec<Vec<String>> = hooks.into_iter().map(|h| h.exec.command).collect();
        let expected: Vec<Vec<&str>> = command.into_iter().collect();
        assert_eq!(found, expected, "{annotations} {phase:?}");
    }
}

#[test]
fn settings_of_an_annotation_hook_are_read_with_its_prefix() {
    let full = pod(json!({
        "pre.hook.backup.velero.io/command": "a",
        "pre.hook.backup.velero.io/container": "side",
        "pre.hook.backup.velero.io/on-error": "Fail",
        "pre.hook.backup.velero.io/timeout": "2m",
        "post.hook.backup.velero.io/command": "b",
        "post.hook.backup.velero.io/on-error": "Sometimes",
        "post.hook.backup.velero.io/timeout": "soon"
    }));
    let hooks = SpecHooks::default();
    let pre = hooks.of_pod(&full, Phase::Pre).remove(0);
    assert_eq!(
        pre,
        Hook {
            source: Source::Annotation,
            name: String::new(),
            index: 0,
            exec: ExecHook {
                container: Some("side".into()),
                command: vec!["a".into()],
                on_error: Some(HookErrorMode::Fail),
                timeout: Some(Duration::from_secs(120)),
                ..Default::default()
            },
            warning: None,
        }
    );
    let post = hooks.of_pod(&full, Phase::Post).remove(0);
    assert_eq!(post.exec.on_error, None);
    assert_eq!(post.exec.timeout, None);
    let warning = post.warning.unwrap();
    assert!(
        warning.starts_with("Unable to parse provided timeout soon, using default: "),
        "{warning}"
    );
}

#[test]
fn spec_hooks_are_chosen_by_namespace_resource_and_labels() {
    let entry = |selection: Value| {
        let mut entry = json!({ "name": "h", "pre": [{ "exec": { "command": ["0"] } }] });
        entry
            .as_object_mut()
            .unwrap()
            .extend(selection.as_object().unwrap().clone());
        spec_hooks(json!([entry]))
    };
    for (selection, chosen) in [
        (json!({}), true),
        (json!({ "includedNamespaces": ["web"] }), true),
        (json!({ "includedNamespaces": ["w*"] }), true),
        (
            json!({ "includedNamespaces": ["*"], "excludedNamespaces": ["web"] }),
            false,
        ),
        (json!({ "includedNamespaces": ["db"] }), false),
        (json!({ "includedResources": ["pods"] }), true),
        (json!({ "includedResources": ["po"] }), true),
        (json!({ "includedResources": ["Pod", "services"] }), true),
        (json!({ "includedResources": ["*"] }), true),
        (json!({ "includedResources": ["services"] }), false),
        (json!({ "excludedResources": ["Pod"] }), false),
        (json!({ "excludedResources": ["*"] }), true),
        (
            json!({ "labelSelector": { "matchLabels": { "app": "shop" } } }),
            true,
        ),
        (
            json!({ "labelSelector": { "matchLabels": { "app": "bank" } } }),
            false,
        ),
        (json!({ "labelSelector": {} }), true),
    ] {
        let hooks = entry(selection.clone());
        assert_eq!(
            hooks.of_pod(&pod(json!({})), Phase::Pre).len(),
            usize::from(chosen),
            "{selection}"
        );
        assert_eq!(
            hooks.of_pod(&pod(json!({})), Phase::Post),
            [],
            "{selection}"
        );
    }
}

#[test]
fn spec_hooks_come_in_order_unless_an_annotation_takes_the_phase() {
    let hook = |word: &str| json!({ "exec": { "command": [word] } });
    let hooks = spec_hooks(json!([
        { "name": "one", "pre": [hook("a"), hook("b")], "post": [hook("z")] },
        { "name": "other", "includedNamespaces": ["db"], "pre": [hook("x")] },
        { "name": "two", "pre": [hook("c")] }
    ]));
    let list = |pod: &Value, phase| -> Vec<String> {
        let hooks = hooks.of_pod(pod, phase).into_iter();
        hooks
            .map(|h| format!("{}[{}] {}", h.name, h.index, h.exec.command[0]))
            .collect()
    };
    let plain = pod(json!({}));
    assert_eq!(
        list(&plain, Phase::Pre),
        ["one[0] a", "one[1] b", "two[0] c"]
    );
    assert_eq!(list(&plain, Phase::Post), ["one[0] z"]);
    let marked = pod(json!({ "pre.hook.backup.velero.io/command": "own" }));
    assert_eq!(list(&marked, Phase::Pre), ["[0] own"]);
    assert_eq!(list(&marked, Phase::Post), ["one[0] z"]);
}

#[test]
fn an_unsound_selector_of_a_hook_is_refused() {
    let hooks: BackupHooks = serde_json::from_value(json!({ "resources": [{
        "name": "h", "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] }
    }] }))
    .unwrap();
    assert_eq!(
        SpecHooks::new(Some(&hooks), |_| None).unwrap_err(),
        "label selector of hook \"h\": \"Is\" is not a valid label selector operator"
    );
    assert!(SpecHooks::new(None, |_| None).is_ok());
}

fn annotated(command: &str, settings: &[(&str, &str)]) -> Value {
    let mut annotations = json!({ "pre.hook.backup.velero.io/command": command });
    for (key, value) in settings {
        annotations[format!("pre.hook.backup.velero.io/{key}")] = json!(value);
    }
    pod(annotations)
}

#[tokio::test]
async fn a_hook_that_works_is_told_with_its_output() {
    let pod = annotated("0", &[("container", "side"), ("timeout", "20s")]);
    let story = play(&SpecHooks::default(), &pod, Phase::Pre).await;
    assert_eq!(story.verdict, Verdict::GoOn);
    assert_eq!(story.ran, ["web/p/side: 0"]);
    assert_eq!(story.counts, (1, 0));
    assert_eq!(
        story.lines,
        [
            "Info running exec hook",
            "Info stdout: out\n",
            "Info stderr: err\n"
        ]
    );
    let fields: Vec<String> = story.messages[0]
        .fields
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        fields,
        [
            "hookSource=annotation",
            "hookType=exec",
            "hookPhase=pre",
            "hookName=<from-annotation>",
            "hookContainer=side",
            "hookCommand=[0]",
            "hookOnError=Fail",
            "hookTimeout={20s}",
        ]
    );
}

#[tokio::test]
async fn a_failing_hook_is_an_error_and_only_fail_leaves_the_pod_out() {
    let why = "command terminated with exit code 3";
    for (on_error, leaves_out) in [
        (&[][..], false),
        (&[("on-error", "Continue")], false),
        (&[("on-error", "Whatever")], false),
        (&[("on-error", "Fail")], true),
    ] {
        let story = play(&SpecHooks::default(), &annotated("3", on_error), Phase::Pre).await;
        let mut errors = vec![format!("Error Error executing hook: {why}")];
        if leaves_out {
            errors.push(format!("Error Error running pre hooks for pod: {why}"));
        }
        assert_eq!(&story.lines[3..], errors, "{on_error:?}");
        assert_eq!(
            story.verdict,
            if leaves_out {
                Verdict::LeaveOut(why.into())
            } else {
                Verdict::GoOn
            }
        );
        assert_eq!(story.counts, (1, 1));
    }
}

#[tokio::test]
async fn hooks_that_cannot_start_are_errors_of_the_same_kind() {
    let mut empty = annotated("0", &[]);
    empty["spec"]["containers"] = json!([]);
    for (pod, error) in [
        (
            annotated("0", &[("container", "gone")]),
            "no such container: \"gone\"",
        ),
        (empty, "need at least 1 container"),
        (annotated("[]", &[]), "command is required"),
        (annotated("unreachable", &[]), "start command: no node"),
    ] {
        let story = play(&SpecHooks::default(), &pod, Phase::Pre).await;
        let last = story.lines.last().unwrap();
        assert_eq!(last, &format!("Error Error executing hook: {error}"));
        assert_eq!(story.verdict, Verdict::GoOn);
        assert_eq!(story.counts, (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_is_given_up_after_its_timeout() {
    for (settings, error) in [
        (&[][..], "timed out after 30s"),
        (&[("timeout", "0s")], "timed out after 30s"),
        (&[("timeout", "90s")], "timed out after 1m30s"),
        (&[("timeout", "soon")], "timed out after 30s"),
    ] {
        let story = play(
            &SpecHooks::default(),
            &annotated("hang", settings),
            Phase::Pre,
        )
        .await;
        let last = story.lines.last().unwrap();
        assert_eq!(last, &format!("Error Error executing hook: {error}"));
        let warned = story.messages.iter().any(|m| m.level == Level::Warning);
        assert_eq!(warned, settings == [("timeout", "soon")]);
    }
    // A negative timeout is none, not one that is over at once.
    let endless = annotated("0", &[("timeout", "-1s")]);
    let story = play(&SpecHooks::default(), &endless, Phase::Pre).await;
    assert_eq!(story.counts, (1, 0));
}

#[tokio::test]
async fn a_finished_pod_s_hooks_count_as_done() {
    for phase in ["Succeeded", "Failed"] {
        let mut pod = annotated("3", &[("on-error", "Fail")]);
        pod["status"]["phase"] = json!(phase);
        let story = play(&SpecHooks::default(), &pod, Phase::Pre).await;
        assert_eq!(story.verdict, Verdict::GoOn);
        assert_eq!(story.ran, [""; 0]);
        assert_eq!(story.counts, (1, 0));
        assert_eq!(
            story.lines,
            [format!(
                "Info Pod entered phase {phase} before some post-backup exec hooks ran"
            )]
        );
    }
}

#[tokio::test]
async fn after_fail_the_rest_is_counted_but_not_run() {
    let hook =
        |word: &str, on_error: &str| json!({ "exec": { "command": [word], "onError": on_error } });
    let hooks = spec_hooks(json!([
        { "name": "one", "post": [hook("1", "Continue"), hook("2", "Fail"), hook("0", "Fail")] },
        { "name": "two", "post": [hook("0", "Fail")] }
    ]));
    let story = play(&hooks, &pod(json!({})), Phase::Post).await;
    assert_eq!(story.ran, ["web/p/main: 1", "web/p/main: 2"]);
    assert_eq!(story.counts, (4, 2));
    let why = "command terminated with exit code 2";
    assert_eq!(story.verdict, Verdict::LeaveOut(why.into()));
    let last = story.messages.last().unwrap();
    assert_eq!(
        last,
        &Message {
            level: Level::Error,
            text: "Error running post hooks for pod".into(),
            error: Some(why.into()),
            fields: vec![("name", "p".into())],
        }
    );
}

#[test]
fn a_hook_is_counted_once_and_its_first_end_counts() {
    let tracker = HookTracker::default();
    let hook = SpecHooks::default()
        .of_pod(&annotated("0", &[]), Phase::Pre)
        .remove(0);
    let second = Hook {
        index: 1,
        ..hook.clone()
    };
    let elsewhere = Hook {
        exec: ExecHook {
            container: Some("side".into()),
            ..hook.exec.clone()
        },
        ..hook.clone()
    };
    assert_eq!(tracker.status(), HookStatus::default());
    for _ in 0..2 {
        tracker.attempt("web", "p", Phase::Pre, &hook);
    }
    tracker.record("web", "p", Phase::Pre, &hook, false);
    tracker.record("web", "p", Phase::Pre, &hook, true);
    assert_eq!(counts(&tracker), (1, 0));
    tracker.attempt("web", "p", Phase::Post, &hook);
    tracker.attempt("web", "q", Phase::Pre, &hook);
    tracker.attempt("web", "p", Phase::Pre, &second);
    tracker.record("web", "p", Phase::Pre, &elsewhere, true);
    assert_eq!(counts(&tracker), (5, 1));
}

#[tokio::test]
async fn a_pod_without_hooks_goes_on_in_silence() {
    let story = play(&SpecHooks::default(), &pod(json!({})), Phase::Pre).await;
    assert_eq!(story.verdict, Verdict::GoOn);
    assert_eq!(story.messages, []);
    assert_eq!(story.counts, (0, 0));
}

#[tokio::test]
async fn hooks_may_run_in_a_task_of_their_own() {
    let task = tokio::spawn(async {
        let (script, tracker) = (Script::default(), HookTracker::default());
        let pod = annotated("0", &[]);
        run(&script, &SpecHooks::default(), &pod, Phase::Pre, &tracker).await
    });
    assert_eq!(task.await.unwrap().verdict, Verdict::GoOn);
}
