//! When commands run, with pods whose life is told through a channel, and once with a real watch.

use async_trait::async_trait;
use bowline_apiserver::{ApiServer, Fault, Rule, When};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::*;
use crate::hooks::Output;

/// Ends each command as its first word says, after as many seconds as its second.
#[derive(Default)]
struct Script(Mutex<Vec<String>>);

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
        self.0.lock().unwrap().push(line);
        if let Some(seconds) = command.get(1) {
            sleep(Duration::from_secs(seconds.parse().unwrap())).await;
        }
        let result = match command[0].as_str() {
            "fail" => Err("exit code 1".to_owned()),
            _ => Ok(()),
        };
        Ok(Output {
            stdout: String::new(),
            stderr: String::new(),
            result,
        })
    }
}

fn hooks(list: &[Value]) -> Arc<SpecHooks> {
    let list: Vec<Value> = list.iter().map(|exec| json!({ "exec": exec })).collect();
    let hooks = json!({"resources": [{"name": "h", "postHooks": list}]});
    let hooks = serde_json::from_value(hooks).unwrap();
    Arc::new(SpecHooks::new(Some(&hooks)).unwrap())
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"velero.io/restore-name": "r"}},
        "spec": {"containers": [{"name": "main", "image": "i"}, {"name": "side", "image": "i"}]},
    })
}

/// One pod and its hooks, with the life of the pod in our hands.
struct Scene {
    script: Arc<Script>,
    tracker: Arc<HookTracker>,
    told: Arc<Mutex<Vec<String>>>,
    life: watch::Sender<Seen>,
    runner: Arc<Runner>,
    visit: tokio::task::JoinHandle<(String, Vec<String>)>,
}

impl Scene {
    fn start(list: &[Value]) -> Self {
        let (script, tracker) = (Arc::<Script>::default(), Arc::<HookTracker>::default());
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let runner = Arc::new(Runner {
            exec: script.clone(),
            tracker: Arc::clone(&tracker),
            tell: {
                let told = Arc::clone(&told);
                Arc::new(move |_, _, message| {
                    if message.level == Level::Error {
                        told.lock().unwrap().push(message.to_string());
                    }
                })
            },
            over: CancellationToken::new(),
        });
        let pod = pod("web", "p");
        let mut visit = Visit::new(&runner, &pod, hooks(list).commands_for(&pod));
        visit.refuse_unknown();
        let (life, seen) = watch::channel(Seen::NotYet);
        let visit = tokio::spawn(visit.run(seen));
        Self {
            script,
            tracker,
            told,
            life,
            runner,
            visit,
        }
    }

    fn up(&self, containers: &[(&str, bool)]) {
        let containers = containers.iter().map(|(name, is_ready)| Container {
            name: (*name).to_owned(),
            is_running: true,
            is_ready: *is_ready,
        });
        self.life.send(Seen::Alive(containers.collect())).unwrap();
    }

    /// What ran, what went wrong, and how many were attempted and failed.
    async fn end(self) -> (Vec<String>, Vec<String>, (i64, i64)) {
        let (namespace, errors) = self.visit.await.unwrap();
        assert_eq!(namespace, "web");
        let status = self.tracker.status();
        let counts = (
            status.hooks_attempted.unwrap_or(0),
            status.hooks_failed.unwrap_or(0),
        );
        (self.script.0.lock().unwrap().clone(), errors, counts)
    }
}

async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_order_when_their_container_is_up() {
    let scene = Scene::start(&[
        json!({"command": ["1", "5"]}),
        json!({"command": ["2"], "container": "side"}),
        json!({"command": ["3"]}),
    ]);
    scene.up(&[]);
    pass(1).await;
    assert!(scene.script.0.lock().unwrap().is_empty());
    scene.up(&[("main", false)]);
    pass(1).await;
    // While the first still runs.
    scene.up(&[("main", false), ("side", false)]);
    assert_eq!(
        scene.end().await,
        (
            vec![
                "web/p/main: 1 5".into(),
                "web/p/main: 3".into(),
                "web/p/side: 2".into()
            ],
            vec![],
            (3, 0)
        )
    );
}

#[tokio::test(start_paused = true)]
async fn one_hook_that_wants_it_makes_all_wait_until_ready() {
    let scene = Scene::start(&[
        json!({"command": ["1"]}),
        json!({"command": ["2"], "waitForReady": true}),
        json!({"command": ["3"], "container": "side"}),
    ]);
    scene.up(&[("main", false), ("side", false)]);
    pass(1).await;
    assert_eq!(*scene.script.0.lock().unwrap(), ["web/p/side: 3"]);
    scene.up(&[("main", true)]);
    let (ran, errors, counts) = scene.end().await;
    assert_eq!(ran[1..], ["web/p/main: 1", "web/p/main: 2"]);
    assert_eq!((errors, counts), (vec![], (3, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_and_only_fail_is_the_end() {
    for (on_error, ran, errors, counts) in [
        (
            json!("Continue"),
            vec!["web/p/main: fail", "web/p/main: 2", "web/p/side: 3"],
            vec!["hook h in container main failed to execute, err: exit code 1"],
            (3, 1),
        ),
        (
            Value::Null,
            vec!["web/p/main: fail", "web/p/main: 2", "web/p/side: 3"],
            vec!["hook h in container main failed to execute, err: exit code 1"],
            (3, 1),
        ),
        (
            json!("Fail"),
            vec!["web/p/main: fail"],
            vec![
                "hook h in container main failed to execute, err: exit code 1",
                "hook h in container main in pod web/p not executed: hook h failed before",
                "hook h in container side in pod web/p not executed: hook h failed before",
            ],
            (3, 3),
        ),
    ] {
        let scene = Scene::start(&[
            json!({"command": ["fail"], "onError": on_error}),
            json!({"command": ["2"]}),
            json!({"command": ["3"], "container": "side"}),
        ]);
        scene.up(&[("main", true), ("side", true)]);
        let expected = (
            ran.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            errors.into_iter().map(str::to_owned).collect::<Vec<_>>(),
            counts,
        );
        assert_eq!(scene.end().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_waits_as_long_as_it_says() {
    let not_in_time = |container: &str, limit: &str| {
        format!(
            "hook h in container {container} in pod web/p not executed: its container did not come up within {limit}"
        )
    };
    // The longest wait counts for all.
    let scene = Scene::start(&[
        json!({"command": ["1"], "waitTimeout": "10s"}),
        json!({"command": ["2"], "container": "side", "waitTimeout": "1m"}),
    ]);
    let began = Instant::now();
    let (ran, errors, counts) = scene.end().await;
    assert_eq!(began.elapsed(), Duration::from_secs(60));
    assert_eq!(ran, [""; 0]);
    assert_eq!(
        errors,
        [not_in_time("main", "60s"), not_in_time("side", "60s")]
    );
    assert_eq!(counts, (2, 2));

    // Too late, but not for those who have all the time: it still runs, unless it says Fail.
    for (on_error, ran) in [("Continue", vec!["1", "2"]), ("Fail", vec![])] {
        let scene = Scene::start(&[
            json!({"command": ["1"], "waitTimeout": "10s", "onError": on_error}),
            json!({"command": ["2"]}),
        ]);
        pass(3600).await;
        scene.up(&[("main", true)]);
        let told = Arc::clone(&scene.told);
        let (did, errors, counts) = scene.end().await;
        let did: Vec<&str> = did.iter().map(|line| &line[line.len() - 1..]).collect();
        assert_eq!(did, ran, "{on_error}");
        let expired = "hook h in container main expired before executing";
        assert_eq!(errors[0], expired);
        assert_eq!(errors.len() as i64, counts.1);
        assert_eq!(counts, (2, if on_error == "Fail" { 2 } else { 1 }));
        assert_eq!(*told.lock().unwrap(), errors);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_in_a_pod_that_is_over() {
    for (end, why) in [
        (Seen::Gone, "the pod was deleted"),
        (
            Seen::Ended("Failed".to_owned()),
            "the pod entered phase Failed",
        ),
    ] {
        let scene = Scene::start(&[
            json!({"command": ["1"]}),
            json!({"command": ["2"], "container": "side"}),
        ]);
        scene.up(&[("main", true)]);
        pass(1).await;
        scene.life.send(end).unwrap();
        let expected = format!("hook h in container side in pod web/p not executed: {why}");
        assert_eq!(
            scene.end().await,
            (vec!["web/p/main: 1".to_owned()], vec![expected], (2, 1))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_not_there_is_not_waited_for() {
    let scene = Scene::start(&[
        json!({"command": ["1"], "container": "none"}),
        json!({"command": ["2"]}),
    ]);
    let expected =
        "hook h in container none in pod web/p not executed: the pod has no such container";
    assert_eq!(*scene.told.lock().unwrap(), [expected]);
    scene.up(&[("main", true)]);
    assert_eq!(
        scene.end().await,
        (
            vec!["web/p/main: 2".to_owned()],
            vec![expected.to_owned()],
            (2, 1)
        )
    );
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_waits_until_the_restore_is_over() {
    let scene = Scene::start(&[json!({"command": ["1"]})]);
    pass(100_000).await;
    assert!(!scene.visit.is_finished());
    scene.runner.over.cancel();
    let (_, errors, _) = scene.end().await;
    assert_eq!(
        errors,
        [
            "hook h in container main in pod web/p not executed: its container did not come up in time"
        ]
    );
}

fn running(containers: &[&str]) -> Patch<Value> {
    let statuses: Vec<Value> = containers
        .iter()
        .map(|name| {
            json!({
                "name": name, "ready": true, "image": "i", "imageID": "", "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            })
        })
        .collect();
    Patch::Merge(json!({"status": {"phase": "Running", "containerStatuses": statuses}}))
}

#[tokio::test]
async fn pods_are_watched_and_do_not_disturb_each_other() {
    let server = ApiServer::default();
    for name in ["a", "b"] {
        server
            .load(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .unwrap();
    }
    let client = Client::new(server.clone(), "default");
    let (script, tracker) = (Arc::<Script>::default(), Arc::<HookTracker>::default());
    let hooks = hooks(&[
        json!({"command": ["fail"], "onError": "Fail"}),
        json!({"command": ["0"]}),
    ]);
    let post = PostHooks::new(
        client.clone(),
        "r",
        hooks,
        script.clone(),
        Arc::clone(&tracker),
        Arc::new(|_, _, _| {}),
    );
    let api = |namespace: &str| Api::<Pod>::namespaced(client.clone(), namespace);
    for (namespace, name) in [
        ("a", "one"),
        ("a", "two"),
        ("a", "gone"),
        ("b", "three"),
        ("b", "early"),
    ] {
        server.load(&pod(namespace, name)).unwrap();
        if name == "early" {
            let status = running(&["main"]);
            let params = PatchParams::default();
            api("b").patch_status(name, &params, &status).await.unwrap();
        }
        assert!(post.start(&pod(namespace, name)));
    }
    assert!(!post.start(&json!({"metadata": {"namespace": "a", "name": "empty"}})));
    assert!(!post.start(&pod("a", "one")), "once is enough");
    // A pod that goes before anybody looks.
    api("a")
        .delete("gone", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let finish = tokio::spawn(post.finish(Duration::from_secs(60)));
    for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "three")] {
        let status = running(&["main", "side"]);
        let params = PatchParams::default();
        api(namespace)
            .patch_status(name, &params, &status)
            .await
            .unwrap();
    }
    let errors = finish.await.unwrap();
    let failed = "hook h in container main failed to execute, err: exit code 1";
    let not =
        |pod: &str, why: &str| format!("hook h in container main in pod {pod} not executed: {why}");
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    let errors: BTreeMap<String, Vec<String>> = errors
        .into_iter()
        .map(|(namespace, list)| (namespace, sorted(list)))
        .collect();
    let before = "hook h failed before";
    assert_eq!(
        errors,
        BTreeMap::from([
            (
                "a".to_owned(),
                sorted(vec![
                    failed.to_owned(),
                    failed.to_owned(),
                    not("a/one", before),
                    not("a/two", before),
                    not("a/gone", "the pod was deleted"),
                    not("a/gone", "the pod was deleted"),
                ])
            ),
            (
                "b".to_owned(),
                sorted(vec![
                    failed.to_owned(),
                    failed.to_owned(),
                    not("b/three", before),
                    not("b/early", before),
                ])
            ),
        ])
    );
    let status = tracker.status();
    assert_eq!(
        (status.hooks_attempted, status.hooks_failed),
        (Some(10), Some(10))
    );
    assert_eq!(script.0.lock().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_begins_anew() {
    let server = ApiServer::default();
    let client = Client::new(server.clone(), "default");
    let fault = |path: &str, fault: Fault| Rule {
        method: None,
        path: path.to_owned(),
        when: When::First(1),
        fault,
    };
    let faults = vec![
        fault("labelSelector", Fault::Status(500)),
        fault("watch=true", Fault::Cut(0)),
    ];
    server.set_faults(faults, 1);
    server.load(&pod("default", "p")).unwrap();
    let script = Arc::<Script>::default();
    let post = PostHooks::new(
        client.clone(),
        "r",
        hooks(&[json!({"command": ["0"]})]),
        script.clone(),
        Arc::default(),
        Arc::new(|_, _, _| {}),
    );
    post.start(&pod("default", "p"));
    let finish = tokio::spawn(post.finish(Duration::from_secs(600)));
    pass(60).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    pods.patch_status("p", &PatchParams::default(), &running(&["main"]))
        .await
        .unwrap();
    assert_eq!(finish.await.unwrap(), BTreeMap::new());
    assert_eq!(*script.0.lock().unwrap(), ["default/p/main: 0"]);
}
