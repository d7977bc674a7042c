//! Commands that run in pods around a backup or after a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::Duration;

record! {
    /// The hooks of a backup.
    pub struct BackupHooks {
        /// Hooks and the pods they are for.
        #[schemars(extend("nullable" = true))]
        pub resources: Option<Vec<BackupResourceHooks>>,
    }
}

record! {
    /// Hooks for the pods that a selection matches.
    pub struct BackupResourceHooks {
        /// The name, as logs show it.
        pub name: String,
        /// Namespaces of the pods; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_namespaces: Option<Vec<String>>,
        /// Namespaces to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_namespaces: Option<Vec<String>>,
        /// Resources; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_resources: Option<Vec<String>>,
        /// Resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_resources: Option<Vec<String>>,
        /// Labels of the pods.
        #[schemars(with = "Option<crate::schema::LabelSelector>", extend("nullable" = true))]
        pub label_selector: Option<LabelSelector>,
        /// Run before the pod and its volumes are backed up.
        pub pre: Option<Vec<BackupHook>>,
        /// Run after.
        pub post: Option<Vec<BackupHook>>,
    }
}

record! {
    /// One hook of a backup.
    pub struct BackupHook {
        /// A command in a container.
        pub exec: ExecHook,
    }
}

record! {
    /// A command in a container of the pod.
    pub struct ExecHook {
        /// The container; none means the first.
        pub container: Option<String>,
        /// The command and its arguments.
        #[schemars(length(min = 1))]
        pub command: Vec<String>,
        /// Whether a failure of the command fails the item.
        pub on_error: Option<HookErrorMode>,
        /// How long the command may run; zero means 30 seconds.
        pub timeout: Option<Duration>,
    }
}

record! {
    /// The hooks of a restore.
    pub struct RestoreHooks {
        /// Hooks and the pods they are for.
        pub resources: Option<Vec<RestoreResourceHooks>>,
    }
}

record! {
    /// Hooks for the restored pods that a selection matches.
    pub struct RestoreResourceHooks {
        /// The name, as logs show it.
        pub name: String,
        /// Namespaces of the pods; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_namespaces: Option<Vec<String>>,
        /// Namespaces to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_namespaces: Option<Vec<String>>,
        /// Resources; none means all.
        #[schemars(extend("nullable" = true))]
        pub included_resources: Option<Vec<String>>,
        /// Resources to leave out.
        #[schemars(extend("nullable" = true))]
        pub excluded_resources: Option<Vec<String>>,
        /// Labels of the pods.
        #[schemars(with = "Option<crate::schema::LabelSelector>", extend("nullable" = true))]
        pub label_selector: Option<LabelSelector>,
        /// Run once the pod is restored.
        pub post_hooks: Option<Vec<RestoreHook>>,
    }
}

record! {
    /// One hook of a restore: a command, init containers, or both.
    pub struct RestoreHook {
        /// A command in a container.
        pub exec: Option<ExecRestoreHook>,
        /// Init containers to put first into the pod.
        pub init: Option<InitRestoreHook>,
    }
}

record! {
    /// A command in a container of a restored pod.
    pub struct ExecRestoreHook {
        /// The container; none means the first.
        pub container: Option<String>,
        /// The command and its arguments.
        #[schemars(length(min = 1))]
        pub command: Vec<String>,
        /// Whether a failure of the command is an error of the restore.
        pub on_error: Option<HookErrorMode>,
        /// How long the command may run.
        pub exec_timeout: Option<Duration>,
        /// How long to wait for the container to run.
        pub wait_timeout: Option<Duration>,
        /// Whether to wait until the container is ready.
        #[schemars(extend("nullable" = true))]
        pub wait_for_ready: Option<bool>,
    }
}

record! {
    /// Init containers for a restored pod.
    pub struct InitRestoreHook {
        /// The containers, in order, as a pod has them.
        #[schemars(
            with = "Option<Vec<crate::schema::AnyObject>>",
            extend("x-kubernetes-preserve-unknown-fields" = true)
        )]
        pub init_containers: Option<Vec<Value>>,
        /// Not used by any version.
        pub timeout: Option<Duration>,
    }
}

word! {
    /// What a failing hook means.
    pub enum HookErrorMode {
        /// The failure is recorded, the work goes on.
        Continue,
        /// The item fails.
        Fail,
    }
}

record! {
    /// Hooks run and failed.
    pub struct HookStatus {
        /// Hooks run.
        pub hooks_attempted: Option<i64>,
        /// Hooks that failed.
        pub hooks_failed: Option<i64>,
    }
}
