//! Warnings and errors of a backup or restore, by place.

use std::collections::BTreeMap;

record! {
    /// `<backup>-results.gz` and `restore-<restore>-results.gz`.
    pub struct Results {
        /// What went wrong.
        pub errors: Findings,
        /// What somebody should know.
        pub warnings: Findings,
        /// How long hooks held pods. Velero does not write it.
        pub hook_windows: Option<HookWindows>,
    }
}

record! {
    /// How long hooks held pods, by namespace and name. A map with one key, since Velero's command
    /// line takes every value of the file for [`Findings`] and gives up on a list.
    pub struct HookWindows {
        /// The pods in which hooks ran.
        pub pods: Vec<HookWindow>,
    }
}

record! {
    /// How long hooks held a pod: from just before its first hook until just after its last.
    pub struct HookWindow {
        /// The pod's namespace.
        pub namespace: String,
        /// The pod.
        pub pod: String,
        /// The time, to the millisecond.
        pub seconds: f64,
    }
}

record! {
    /// Messages by the place they are about.
    pub struct Findings {
        /// About the work as a whole.
        pub velero: Option<Vec<String>>,
        /// About cluster-scoped items.
        pub cluster: Option<Vec<String>>,
        /// About items in a namespace.
        pub namespaces: Option<BTreeMap<String, Vec<String>>>,
    }
}
