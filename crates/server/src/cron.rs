//! When a schedule is due: cron expressions in the dialect of Velero 1.18.
//!
//! The traps of that dialect: day of month and day of week must *both* match, ranges may wrap
//! (`22-5`), 7 is Sunday, `?` is `*`, and there are no seconds.
//!
//! Clocks that jump: a time that a jump forward leaves out is moved behind the jump, once per jump
//! (`30 2 * * *` runs at 3:30); a time that a jump backward repeats runs twice.

mod parse;

use jiff::{
    Timestamp,
    civil::{Date, Time},
    tz::{AmbiguousOffset, TimeZone},
};

/// How far ahead a date is looked for. The rarest one, 29 February on a given weekday across a year
/// 2100, comes back after 40 years.
const SEARCH_YEARS: i16 = 50;

/// The times of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The zone that the expression names; without one, that of whoever asks.
    zone: Option<TimeZone>,
    times: Times,
}

#[derive(Debug, Clone, PartialEq)]
enum Times {
    /// At certain minutes of certain days.
    Calendar(Calendar),
    /// So many seconds after the last time.
    Every(i64),
    /// Only by hand: `@manual`, `@triggered`, `@none`.
    Never,
}

/// Bit sets of the values that match.
#[derive(Debug, Clone, PartialEq)]
struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday; there is no bit 7.
    weekdays: u64,
}

impl Schedule {
    /// Reads an expression. The error is worded as Velero words it.
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::schedule(text)
    }

    /// The first time after `after`, or none when there is no such time in the next 50 years.
    #[must_use]
    pub fn next(&self, after: Timestamp, default_zone: &TimeZone) -> Option<Timestamp> {
        match &self.times {
            Times::Never => None,
            Times::Every(seconds) => {
                Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok()
            }
            Times::Calendar(calendar) => {
                calendar.next(after, self.zone.as_ref().unwrap_or(default_zone))
            }
        }
    }

    /// The last time after `after` that is not after `now`: of several missed times, the newest.
    #[must_use]
    pub fn latest(
        &self,
        after: Timestamp,
        now: Timestamp,
        default_zone: &TimeZone,
    ) -> Option<Timestamp> {
        if let Times::Every(seconds) = self.times {
            let passed = now.as_second() - after.as_second();
            let rounds = passed.div_euclid(seconds);
            let last = after.as_second() + rounds * seconds;
            return (rounds > 0)
                .then(|| Timestamp::from_second(last).ok())
                .flatten();
        }
        // Look back in growing steps, so that a minutely schedule that rested for a year is not
        // walked through minute by minute.
        const MINUTE: i64 = 60;
        const DAY: i64 = 24 * 60 * MINUTE;
        for back in [MINUTE, 60 * MINUTE, DAY, 31 * DAY, 366 * DAY, i64::MAX] {
            let start = now.as_second().saturating_sub(back).max(after.as_second());
            let start = Timestamp::from_second(start).ok()?;
            let mut found = None;
            let mut cursor = start;
            while let Some(time) = self.next(cursor, default_zone).filter(|time| *time <= now) {
                found = Some(time);
                cursor = time;
            }
            if found.is_some() || start <= after {
                return found;
            }
        }
        None
    }
}

impl Calendar {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // A day earlier: a jump of the clock may carry a time into the next day.
        let mut day = zone.to_datetime(after).date().yesterday().ok()?;
        let end = day.year().checked_add(SEARCH_YEARS)?;
        while day.year() <= end {
            if self.has_day(day)
                && let Some(time) = self.on(day, zone).into_iter().find(|time| *time > after)
            {
                return Some(time);
            }
            day = if has(self.months, day.month()) {
                day.tomorrow().ok()?
            } else {
                day.last_of_month().tomorrow().ok()?
            };
        }
        None
    }

    fn has_day(&self, day: Date) -> bool {
        has(self.months, day.month())
            && has(self.days, day.day())
            && has(self.weekdays, day.weekday().to_sunday_zero_offset())
    }

    /// The times of a day that matches, in order.
    fn on(&self, day: Date, zone: &TimeZone) -> Vec<Timestamp> {
        let mut times = Vec::new();
        let mut moved = None;
        for hour in (0..24).filter(|hour| has(self.hours, *hour)) {
            for minute in (0..60).filter(|minute| has(self.minutes, *minute)) {
                let at = day.to_datetime(Time::constant(hour, minute, 0, 0));
                let ambiguous = zone.to_ambiguous_timestamp(at);
                match ambiguous.offset() {
                    AmbiguousOffset::Unambiguous { .. } => times.extend(ambiguous.compatible()),
                    AmbiguousOffset::Gap { before, .. } => {
                        if moved.replace(before) != Some(before) {
                            times.extend(ambiguous.compatible());
                        }
                    }
                    AmbiguousOffset::Fold { .. } => {
                        times.extend(ambiguous.earlier());
                        times.extend(ambiguous.later());
                    }
                }
            }
        }
        times.sort_unstable();
        times.dedup();
        times
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> value & 1 == 1
}

#[cfg(test)]
mod tests;
