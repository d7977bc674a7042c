//! Warnings and errors of a backup or restore, by place.

use std::collections::BTreeMap;

record! {
    /// `<backup>-results.gz` and `restore-<restore>-results.gz`.
    pub struct Results {
        /// What went wrong.
        pub errors: Findings,
        /// What somebody should know.
        pub warnings: Findings,
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
