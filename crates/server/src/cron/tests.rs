//! The dialect against what Velero's cron library says, and where ours does better.

use jiff::{Timestamp, tz::TimeZone};

use super::Schedule;

fn time(text: &str) -> Timestamp {
    text.parse().expect(text)
}

/// Up to three next times, or the error, spelled as in the golden file.
fn answer(after: &str, expression: &str) -> String {
    let schedule = match Schedule::parse(expression) {
        Ok(schedule) => schedule,
        Err(why) => return format!("ERR {why}"),
    };
    let mut cursor = time(after);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let Some(next) = schedule.next(cursor, &TimeZone::UTC) else {
            answers.push("never".to_owned());
            break;
        };
        answers.push(next.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        cursor = next;
    }
    answers.join(" ")
}

#[test]
fn expressions_mean_what_they_mean_to_velero() {
    for line in include_str!("../../tests/golden/cron.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let mut parts = line.splitn(3, '|');
        let mut part = || parts.next().expect("three parts");
        let (after, expression, expected) = (part(), part(), part());
        assert_eq!(answer(after, expression), expected, "{expression:?}");
    }
}

#[test]
fn rare_dates_are_waited_for() {
    assert_eq!(
        answer("2026-11-15T03:20:30Z", "0 0 29 2 1"),
        "2044-02-29T00:00:00Z 2072-02-29T00:00:00Z 2112-02-29T00:00:00Z"
    );
    assert_eq!(answer("2026-11-15T03:20:30Z", "0 0 30 2 *"), "never");
}

#[test]
fn times_that_a_clock_leaves_out_are_moved_behind_the_jump() {
    for (after, expression, expected) in [
        // No midnight on 4 November 2018: it runs at one o'clock.
        (
            "2018-11-03T04:00:00Z",
            "CRON_TZ=America/Sao_Paulo 0 0 * * *",
            "2018-11-04T03:00:00Z 2018-11-05T02:00:00Z 2018-11-06T02:00:00Z",
        ),
        // Half an hour is left out on Lord Howe: 2:15 runs at 2:45.
        (
            "2026-10-03T04:00:00Z",
            "CRON_TZ=Australia/Lord_Howe 15 2 * * *",
            "2026-10-03T15:45:00Z 2026-10-04T15:15:00Z 2026-10-05T15:15:00Z",
        ),
    ] {
        assert_eq!(answer(after, expression), expected, "{expression}");
    }
}

#[test]
fn the_default_zone_is_the_askers() {
    let tokyo = TimeZone::get("Asia/Tokyo").expect("bundled");
    let schedule = Schedule::parse("0 1 * * *").expect("sound");
    assert_eq!(
        schedule.next(time("2026-11-15T00:00:00Z"), &tokyo),
        Some(time("2026-11-15T16:00:00Z"))
    );
}

#[test]
fn of_missed_times_the_newest_counts() {
    let now = time("2026-11-15T03:20:30Z");
    for (expression, after, expected) in [
        (
            "* * * * *",
            "2020-01-01T00:00:00Z",
            Some("2026-11-15T03:20:00Z"),
        ),
        (
            "0 1 * * *",
            "2026-11-10T00:00:00Z",
            Some("2026-11-15T01:00:00Z"),
        ),
        ("0 1 * * *", "2026-11-15T01:00:00Z", None),
        (
            "0 0 1 1 *",
            "2020-01-01T00:00:00Z",
            Some("2026-01-01T00:00:00Z"),
        ),
        (
            "0 0 29 2 *",
            "2019-01-01T00:00:00Z",
            Some("2024-02-29T00:00:00Z"),
        ),
        (
            "@every 90m",
            "2026-11-15T00:00:00Z",
            Some("2026-11-15T03:00:00Z"),
        ),
        ("@every 90m", "2026-11-15T03:00:00Z", None),
        ("@manual", "2020-01-01T00:00:00Z", None),
    ] {
        let schedule = Schedule::parse(expression).expect(expression);
        assert_eq!(
            schedule.latest(time(after), now, &TimeZone::UTC),
            expected.map(time),
            "{expression} after {after}"
        );
    }
}
