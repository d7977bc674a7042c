//! Real Kubernetes, S3 and Velero on one machine, and the scenarios that run on them.
//!
//! ```text
//!   build      etcd, Kubernetes, CSI, versitygw, restic, Velero: from Go modules, each once
//!   azurite    a stand-in for Azure, from npm
//!   bed        a cluster made of those programs: API only, or with a node that runs pods
//!   csi        volumes and snapshots on a bed, by a driver that keeps them in a folder
//!   machine    the namespaces that a node bed lives in, so that ending it leaves nothing behind
//!   peer       the real Velero: its command line, its server as a process or in the cluster
//!   ours       Bowline in the cluster
//!   servers    Velero's server and ours, taking turns
//!   fill, zoo  many objects; an object of every kind
//!   tree       files of every kind
//!   scene      what one scenario gets: a client, fresh names, a bucket, processes, deadlines
//!   scenarios  the promises, each as a story on a bed
//! ```
//!
//! Everything lives under [`Cache`], in the user's cache folder. Nothing here prints: progress goes
//! to a [`Say`].

pub mod azurite;
pub mod bed;
pub mod build;
pub mod conformance;
pub mod contents;
pub mod csi;
pub mod fill;
pub mod image;
pub mod leftovers;
pub mod measure;
pub mod ours;
pub mod peer;
pub mod proxy;
pub mod relay;
pub mod requirements;
pub mod run;
pub mod scenarios;
pub mod scene;
pub mod servers;
pub mod tree;
pub mod zoo;

mod cache;
mod lock;
mod loops;
mod machine;
mod pki;
mod process;
mod wait;

pub use bed::{Bed, Mode};
pub use cache::Cache;
pub use process::Process;
pub use wait::wait_for;

/// Where a long step says what it is doing.
pub type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);
