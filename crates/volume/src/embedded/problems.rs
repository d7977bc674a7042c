//! What went wrong with single files, by name, up to a limit.

use std::sync::Mutex;

use super::save::lock;
use crate::Problem;

/// Problems that are kept by name; more are only counted.
const NAMED: usize = 1000;

/// Problems of files; all threads add to it.
#[derive(Default)]
pub(super) struct Problems(Mutex<(Vec<Problem>, u64)>);

impl Problems {
    pub(super) fn add(&self, path: &[u8], reason: impl ToString) {
        let mut problems = lock(&self.0);
        if problems.0.len() < NAMED {
            problems.0.push(Problem {
                path: String::from_utf8_lossy(path).into_owned(),
                reason: reason.to_string(),
            });
        } else {
            problems.1 += 1;
        }
    }

    /// All of them, by path.
    pub(super) fn take(&self) -> Vec<Problem> {
        let (mut named, more) = std::mem::take(&mut *lock(&self.0));
        named.sort_by(|a, b| a.path.cmp(&b.path));
        if more > 0 {
            named.push(Problem {
                path: format!("{more} more"),
                reason: "not listed here".to_owned(),
            });
        }
        named
    }
}
