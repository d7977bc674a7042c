//! Who runs next. Pure: what is running, what waits, and which namespaces each touches are given.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// A backup that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) name: String,
    pub(super) stage: Stage,
    pub(super) created: Timestamp,
    /// The namespaces it touches.
    pub(super) namespaces: BTreeSet<String>,
}

/// Where a backup stands before its objects are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// This server works on it.
    Running,
    /// A server that is gone worked on it.
    Orphaned,
    /// It was next to run.
    Ready,
    /// It waits, at this place.
    Queued(i64),
    /// Nobody has looked at it.
    New,
}

/// What to do with a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Run it now.
    Start(String),
    /// Let it wait at this place, from 1.
    Wait(String, i64),
}

/// Decides for all backups that are not over. One waits while all slots are taken, or while one
/// before it, running or waiting, touches one of its namespaces.
pub(super) fn steps(mut backups: Vec<Waiting>, slots: usize) -> Vec<Step> {
    backups.sort_by(|a, b| (a.stage, a.created, &a.name).cmp(&(b.stage, b.created, &b.name)));
    let mut running = backups.iter().filter(|b| b.stage == Stage::Running).count();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut steps = Vec::new();
    let mut place = 0;
    for backup in &backups {
        let free = backup
            .namespaces
            .iter()
            .all(|ns| !taken.contains(ns.as_str()));
        taken.extend(backup.namespaces.iter().map(String::as_str));
        if backup.stage == Stage::Running {
            continue;
        }
        if free && running < slots.max(1) {
            running += 1;
            steps.push(Step::Start(backup.name.clone()));
            continue;
        }
        place += 1;
        // One that was running or chosen keeps its phase, and its turn.
        let stays = match backup.stage {
            Stage::Queued(at) => at == place,
            Stage::Orphaned | Stage::Ready | Stage::Running => true,
            Stage::New => false,
        };
        if !stays {
            steps.push(Step::Wait(backup.name.clone(), place));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(name: &str, stage: Stage, namespaces: &[&str]) -> Waiting {
        Waiting {
            name: name.to_owned(),
            stage,
            created: Timestamp::UNIX_EPOCH,
            namespaces: namespaces.iter().map(|ns| (*ns).to_owned()).collect(),
        }
    }

    fn decide(backups: &[Waiting], slots: usize) -> String {
        let words: Vec<String> = steps(backups.to_vec(), slots)
            .into_iter()
            .map(|step| match step {
                Step::Start(name) => format!("{name} starts"),
                Step::Wait(name, place) => format!("{name} waits at {place}"),
            })
            .collect();
        words.join(", ")
    }

    use Stage::{New, Orphaned, Queued, Ready, Running};

    #[test]
    fn one_slot_is_taken_in_order() {
        let a = backup("a", New, &["x"]);
        let b = backup("b", New, &["y"]);
        assert_eq!(decide(&[b.clone(), a.clone()], 1), "a starts, b waits at 1");
        let a = backup("a", Running, &["x"]);
        assert_eq!(decide(&[a, b], 2), "b starts");
    }

    #[test]
    fn backups_of_one_namespace_take_turns() {
        let running = backup("r", Running, &["x"]);
        let same = backup("a", New, &["x", "y"]);
        let behind = backup("b", New, &["y"]);
        let other = backup("c", New, &["z"]);
        assert_eq!(
            decide(&[running, same, behind, other], 3),
            "a waits at 1, b waits at 2, c starts"
        );
    }

    #[test]
    fn what_a_dead_server_left_comes_first() {
        let left = backup("z", Orphaned, &["x"]);
        let ready = backup("y", Ready, &["x"]);
        let queued = backup("q", Queued(1), &["x"]);
        let new = backup("a", New, &["x"]);
        assert_eq!(
            decide(&[new, queued, ready, left], 1),
            "z starts, q waits at 2, a waits at 3"
        );
    }

    #[test]
    fn places_are_counted_anew() {
        let queued = [
            backup("r", Running, &["x"]),
            backup("q2", Queued(2), &["x"]),
            backup("q5", Queued(5), &["x"]),
        ];
        assert_eq!(decide(&queued, 1), "q2 waits at 1, q5 waits at 2");
        assert_eq!(
            decide(
                &[backup("r", Running, &["x"]), backup("q", Queued(1), &["x"])],
                1
            ),
            ""
        );
    }

    #[test]
    fn no_slots_means_one() {
        assert_eq!(decide(&[backup("a", New, &[])], 0), "a starts");
    }
}
