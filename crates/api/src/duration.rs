//! Durations in Go's syntax, the spelling of `metav1.Duration`.
//!
//! The schema of a custom resource says only `type: string`, so an API server lets `ttl: 3 days`
//! through. Such a text must not make a whole list unreadable: it is kept, written back as it came,
//! and refused with its reason when somebody asks for its value.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A signed length of time with nanosecond precision, or the text that failed to be one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Duration(Result<i64, BadDuration>);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("invalid duration {text:?}: expected numbers with units, such as \"1h30m\" or \"720h\"")]
pub struct BadDuration {
    text: String,
}

const NANOSECOND: u64 = 1;
const MICROSECOND: u64 = 1_000 * NANOSECOND;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

impl Duration {
    /// No time at all, `0s`. Velero reads it as "not set" in most places.
    pub const ZERO: Self = Self(Ok(0));

    /// So many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(Ok(nanos))
    }

    /// So many seconds; beyond 292 years it stays there.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(Ok(secs.saturating_mul(SECOND as i64)))
    }

    /// The value in nanoseconds, or what is wrong with the text.
    pub fn nanos(&self) -> Result<i64, &BadDuration> {
        self.0.as_ref().copied()
    }

    /// The value as an unsigned duration; negative ones count as zero.
    pub fn to_std(&self) -> Result<std::time::Duration, &BadDuration> {
        self.nanos()
            .map(|n| std::time::Duration::from_nanos(u64::try_from(n).unwrap_or(0)))
    }
}

impl From<std::time::Duration> for Duration {
    /// Beyond 292 years it stays there.
    fn from(duration: std::time::Duration) -> Self {
        Self::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for Duration {
    type Err = BadDuration;

    fn from_str(text: &str) -> Result<Self, BadDuration> {
        parse(text)
            .map(Self::from_nanos)
            .ok_or_else(|| BadDuration {
                text: text.to_owned(),
            })
    }
}

/// Go's `ParseDuration`: an optional sign, then numbers with units, or a lone `0`.
fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let unit = match &after[..unit_end] {
            "ns" => NANOSECOND,
            "us" | "µs" | "μs" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = total
            .checked_add(whole.checked_mul(unit)?)?
            .checked_add(fraction_of(fraction, unit))?;
        rest = &after[unit_end..];
    }
    match negative {
        true if total == 1 << 63 => Some(i64::MIN),
        true => i64::try_from(total).ok().map(|n| -n),
        false => i64::try_from(total).ok(),
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// `0.<digits>` of a unit, rounded down; digits beyond what a u64 holds do not count, as in Go.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes() {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
            .filter(|v| *v < 1 << 63)
        else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Go's canonical form: `1h30m0s`, `1.5s`, `250ms`, `0s`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = match &self.0 {
            Ok(nanos) => *nanos,
            Err(bad) => return f.pad(&bad.text),
        };
        let magnitude = nanos.unsigned_abs();
        let sign = if nanos < 0 { "-" } else { "" };
        let text = match magnitude {
            0 => "0s".to_owned(),
            n if n < MICROSECOND => format!("{sign}{n}ns"),
            n if n < MILLISECOND => format!("{sign}{}µs", decimal(n, MICROSECOND)),
            n if n < SECOND => format!("{sign}{}ms", decimal(n, MILLISECOND)),
            n if n < MINUTE => format!("{sign}{}s", decimal(n, SECOND)),
            n if n < HOUR => format!("{sign}{}m{}s", n / MINUTE, decimal(n % MINUTE, SECOND)),
            n => format!(
                "{sign}{}h{}m{}s",
                n / HOUR,
                n % HOUR / MINUTE,
                decimal(n % MINUTE, SECOND)
            ),
        };
        f.pad(&text)
    }
}

/// `value / unit` with just the decimals it needs.
fn decimal(value: u64, unit: u64) -> String {
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        digits => format!("{}.{digits}", value / unit),
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Ok(text.parse().unwrap_or_else(|bad| Self(Err(bad))))
    }
}

impl Default for Duration {
    fn default() -> Self {
        Self::ZERO
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::Duration;

    #[test]
    fn go_texts_are_read_and_written_canonically() {
        for (text, nanos, canonical) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("-0", 0, "0s"),
            ("1h0m0s", 3_600_000_000_000, "1h0m0s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("720h", 2_592_000_000_000_000, "720h0m0s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("-1m", -60_000_000_000, "-1m0s"),
            ("+1.5s", 1_500_000_000, "1.5s"),
            (".5m", 30_000_000_000, "30s"),
            ("2.s", 2_000_000_000, "2s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.000001s", 1_000_001_000, "1.000001s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("7µs", 7_000, "7µs"),
            ("7μs", 7_000, "7µs"),
            ("12ns", 12, "12ns"),
            (
                "2562047h47m16.854775807s",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-9223372036854775808ns",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            let duration: Duration = text.parse().expect(text);
            assert_eq!(duration.nanos(), Ok(nanos), "{text}");
            assert_eq!(duration.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn bad_texts_survive_and_say_why() {
        for text in [
            "",
            "-",
            "3 days",
            "1",
            "1d",
            ".s",
            "1h30",
            "9223372036854775808ns",
            "1h-1m",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
            let duration: Duration = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&duration).unwrap(), text);
            let why = duration.nanos().unwrap_err().to_string();
            assert!(why.contains(&format!("{text:?}")), "{why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_value_round_trips(nanos: i64) {
            let text = Duration::from_nanos(nanos).to_string();
            proptest::prop_assert_eq!(text.parse(), Ok(Duration::from_nanos(nanos)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Duration>();
        }
    }
}
