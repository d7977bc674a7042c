//! How far copies of data are, how fast, and how long they will take.

use std::{fmt, iter::Sum, time::Duration};

use indicatif::{HumanBytes, HumanDuration};
use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Bytes of a copy, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pace {
    /// Bytes done.
    pub(crate) done: u64,
    /// Bytes in all; zero while not known.
    pub(crate) total: u64,
    /// Bytes a second, once there is something to tell it from.
    pub(crate) rate: Option<f64>,
}

impl Pace {
    /// The pace of a copy that began at that time, seen from `now`.
    pub(crate) fn new(done: i64, total: i64, since: Option<Timestamp>, now: Timestamp) -> Self {
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        // Objects know the time to the second.
        let seconds = since.map(|since| now.as_second() - since.as_second());
        let seconds = seconds.filter(|seconds| *seconds > 0 && done > 0);
        Self {
            done: bytes(done),
            total: bytes(total),
            rate: seconds.map(|seconds| bytes(done) as f64 / seconds as f64),
        }
    }

    /// How much of it is done; none while the total is not known.
    pub(crate) fn percentage(&self) -> Option<f64> {
        (self.total > 0).then(|| self.done as f64 / self.total as f64 * 100.0)
    }

    /// How long the rest takes at this rate.
    pub(crate) fn left(&self) -> Option<Duration> {
        let rest = self.total.checked_sub(self.done)?;
        let rate = self.rate.filter(|rate| *rate > 0.0)?;
        Duration::try_from_secs_f64(rest as f64 / rate).ok()
    }

    /// `33.33% (100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left)`; nothing if there is nothing to
    /// tell.
    pub(crate) fn words(&self) -> Option<String> {
        match (self.percentage(), self.done) {
            (Some(percentage), _) => Some(format!("{percentage:.2}% ({self})")),
            (None, 0) => None,
            (None, _) => Some(self.to_string()),
        }
    }
}

/// For programs: plain numbers, those that can be told.
impl Serialize for Pace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("bytesDone", &self.done)?;
        map.serialize_entry("totalBytes", &self.total)?;
        if let Some(percentage) = self.percentage() {
            map.serialize_entry("percentage", &((percentage * 100.0).round() / 100.0))?;
        }
        if let Some(rate) = self.rate {
            map.serialize_entry("bytesPerSecond", &(rate as u64))?;
        }
        if let Some(left) = self.left() {
            map.serialize_entry("secondsLeft", &left.as_secs())?;
        }
        map.end()
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HumanBytes(self.done))?;
        if self.total > 0 {
            write!(f, " of {}", HumanBytes(self.total))?;
        }
        if let Some(rate) = self.rate {
            write!(f, ", {}/s", HumanBytes(rate as u64))?;
        }
        if let Some(left) = self.left() {
            write!(f, ", {:#} left", HumanDuration(left))?;
        }
        Ok(())
    }
}

/// One copy of data, as it was seen last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transfer {
    /// What is copied.
    pub(crate) label: String,
    /// Whether it goes on.
    pub(crate) state: State,
    /// Bytes done.
    pub(crate) done: i64,
    /// Bytes in all; zero while not known.
    pub(crate) total: i64,
    /// When it began.
    pub(crate) since: Option<Timestamp>,
}

/// Whether a copy goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not yet.
    Waiting,
    /// Data moves.
    Moving,
    /// Nothing more will happen to it.
    Over,
}

impl Transfer {
    /// How far it is, and how fast while it goes on.
    pub(crate) fn pace(&self, now: Timestamp) -> Pace {
        let since = self.since.filter(|_| self.state == State::Moving);
        Pace::new(self.done, self.total, since, now)
    }
}

/// Copies that go on at the same time.
impl Sum for Pace {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            done: sum.done.saturating_add(one.done),
            total: sum.total.saturating_add(one.total),
            rate: match (sum.rate, one.rate) {
                (Some(sum), Some(one)) => Some(sum + one),
                (sum, one) => sum.or(one),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1024 * 1024;

    #[test]
    fn rate_and_time_left_come_once_they_can_be_told() {
        let now: Timestamp = "2026-11-15T03:30:00Z".parse().unwrap();
        for (done, total, since, wanted) in [
            (0, 0, None, "0 B"),
            (
                0,
                300 * MIB,
                Some("2026-11-15T03:29:00Z"),
                "0 B of 300.00 MiB",
            ),
            (100 * MIB, 300 * MIB, None, "100.00 MiB of 300.00 MiB"),
            // Within its first second.
            (
                100 * MIB,
                300 * MIB,
                Some("2026-11-15T03:30:00.2Z"),
                "100.00 MiB of 300.00 MiB",
            ),
            (
                100 * MIB,
                300 * MIB,
                Some("2026-11-15T03:29:50Z"),
                "100.00 MiB of 300.00 MiB, 10.00 MiB/s, 20s left",
            ),
            // A total that was estimated too low.
            (
                400 * MIB,
                300 * MIB,
                Some("2026-11-15T03:29:50Z"),
                "400.00 MiB of 300.00 MiB, 40.00 MiB/s",
            ),
            (-5, -5, Some("2026-11-15T03:29:50Z"), "0 B"),
            // A clock that runs behind the node's.
            (
                MIB,
                2 * MIB,
                Some("2026-11-15T03:31:00Z"),
                "1.00 MiB of 2.00 MiB",
            ),
        ] {
            let since = since.map(|since| since.parse().unwrap());
            assert_eq!(Pace::new(done, total, since, now).to_string(), wanted);
        }
    }

    #[test]
    fn several_copies_add_up() {
        let pace = |done, total, rate| Pace { done, total, rate };
        for (all, wanted) in [
            (vec![], pace(0, 0, None)),
            (
                vec![
                    pace(1, 10, Some(1.0)),
                    pace(2, 20, None),
                    pace(3, 30, Some(2.0)),
                ],
                pace(6, 60, Some(3.0)),
            ),
        ] {
            assert_eq!(all.into_iter().sum::<Pace>(), wanted);
        }
    }
}
