//! Points in time and ages, spelled as Go and kubectl spell them.

use bowline_api::{Duration, Time};
use jiff::{Timestamp, tz::TimeZone};

/// The clock and the time zone that a command prints with; tests pin both.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// The moment that ages count from.
    pub(crate) now: Timestamp,
    /// The zone that times are shown in.
    pub(crate) zone: TimeZone,
}

impl Clock {
    /// Now, in the zone of this machine.
    pub(crate) fn system() -> Self {
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        Self {
            now: Timestamp::now(),
            zone,
        }
    }

    /// `2026-11-15 03:19:31 +0000 UTC`, as Go prints a time.
    pub(crate) fn show(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        zoned.strftime("%Y-%m-%d %H:%M:%S %z %Z").to_string()
    }

    /// The time of an object, which Go cannot tell from none if it is its first moment.
    pub(crate) fn show_or(&self, time: Option<Time>, none: &str) -> String {
        match time {
            Some(time) if !is_zero(time) => self.show(time.0),
            _ => none.to_owned(),
        }
    }

    /// `29d`, `3h ago` or `n/a`.
    pub(crate) fn age(&self, time: Option<Timestamp>) -> String {
        let Some(time) = time else {
            return "n/a".to_owned();
        };
        let nanos = time.as_nanosecond() - self.now.as_nanosecond();
        if nanos >= 0 {
            short_age(nanos)
        } else {
            format!("{} ago", short_age(-nanos))
        }
    }
}

/// Go's zero time, `0001-01-01T00:00:00Z`, which stands for none.
pub(crate) fn is_zero(time: Time) -> bool {
    time.0.as_second() == -62_135_596_800
}

/// A moment and a while later.
pub(crate) fn after(time: Timestamp, by: &Duration) -> Option<Timestamp> {
    let nanos = by.nanos().ok()?;
    Timestamp::from_nanosecond(time.as_nanosecond() + i128::from(nanos)).ok()
}

/// One number and one unit, rounded down; kubectl's short form.
fn short_age(nanos: i128) -> String {
    let seconds = nanos / 1_000_000_000;
    match seconds {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 24 * 3600 => format!("{}h", s / 3600),
        s if s < 365 * 24 * 3600 => format!("{}d", s / (24 * 3600)),
        s => format!("{}y", s / (365 * 24 * 3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock {
            now: "2026-11-15T03:30:00Z".parse().unwrap(),
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn ages_are_one_number_rounded_down() {
        for (time, wanted) in [
            ("2026-12-15T03:29:59Z", "29d"),
            ("2026-11-15T03:30:00Z", "0s"),
            ("2026-11-15T03:29:01Z", "59s ago"),
            ("2026-11-15T01:30:01Z", "1h ago"),
            ("2026-11-15T04:29:59Z", "59m"),
            ("2024-11-14T03:30:00Z", "2y ago"),
        ] {
            let time = time.parse().unwrap();
            assert_eq!(clock().age(Some(time)), wanted, "{time}");
        }
        assert_eq!(clock().age(None), "n/a");
    }

    #[test]
    fn times_are_shown_in_the_zone_with_its_offset() {
        let time = "2022-01-20T03:01:10Z".parse().unwrap();
        assert_eq!(clock().show(time), "2022-01-20 03:01:10 +0000 UTC");
        let zone = TimeZone::posix("CST-8").unwrap();
        let shanghai = Clock { zone, ..clock() };
        assert_eq!(shanghai.show(time), "2022-01-20 11:01:10 +0800 CST");
    }
}
