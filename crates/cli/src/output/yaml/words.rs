//! Words that YAML takes for something else unless they are quoted, by the rules of the Go library.

/// Whether a plain word would be read as null, a boolean, a number or a time.
pub(super) fn reads_as_other(words: &str) -> bool {
    const OTHERS: &[&str] = &[
        "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true",
        "True", "TRUE", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE",
        ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf",
        "-.Inf", "-.INF",
    ];
    OTHERS.contains(&words) || is_number(words) || is_base_60(words) || is_time(words)
}

fn is_number(words: &str) -> bool {
    if !words.starts_with(|c: char| matches!(c, '+' | '-' | '.') || c.is_ascii_digit()) {
        return false;
    }
    let plain = words.replace('_', "");
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let in_base =
        |digits: &str, base: u32| !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    let lower = unsigned.to_ascii_lowercase();
    for (prefix, base) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            return in_base(digits, base);
        }
    }
    is_decimal(unsigned)
}

/// `[0-9]+(.[0-9]*)?` or `.[0-9]+`, with an exponent or without.
fn is_decimal(text: &str) -> bool {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let number_is_good = match number.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !number.is_empty() && digits(number),
    };
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    number_is_good && exponent_is_good
}

/// `12:30:45`, which older YAML reads as a number of seconds.
fn is_base_60(words: &str) -> bool {
    let unsigned = words.strip_prefix(['+', '-']).unwrap_or(words);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let numeric = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    first.starts_with(|c: char| c.is_ascii_digit())
        && numeric(first)
        && numeric(fraction)
        && !rest.is_empty()
        && rest.iter().all(|part| match part.as_bytes() {
            [one] => one.is_ascii_digit(),
            [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
            _ => false,
        })
}

/// `2026-11-15`, `2026-11-15T03:19:31Z`, `2026-11-15 3:19:31.5`.
fn is_time(words: &str) -> bool {
    let (date, time) = match words.find(['T', 't', ' ']) {
        Some(at) => (&words[..at], Some((&words[at..=at], &words[at + 1..]))),
        None => (words, None),
    };
    let numbers = |text: &str, between: char| -> Option<Vec<u32>> {
        text.split(between)
            .map(|part| {
                let short = (1..=2).contains(&part.len()) || part.len() == 4;
                let digits = part.bytes().all(|b| b.is_ascii_digit());
                (short && digits).then(|| part.parse().ok()).flatten()
            })
            .collect()
    };
    let date_is_good = date.len() > 4
        && date.as_bytes()[4] == b'-'
        && numbers(date, '-').is_some_and(|parts| {
            parts.len() == 3 && (1..=12).contains(&parts[1]) && (1..=31).contains(&parts[2])
        });
    let Some((between, clock)) = time else {
        return date_is_good;
    };
    let zone = clock.find(['Z', '+', '-']);
    let zone_is_good = match (between, zone) {
        (" ", None) => true,
        (" ", Some(_)) | (_, None) => false,
        (_, Some(at)) => {
            &clock[at..] == "Z" || numbers(&clock[at + 1..], ':').is_some_and(|p| p.len() == 2)
        }
    };
    let clock = &clock[..zone.unwrap_or(clock.len())];
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    date_is_good
        && zone_is_good
        && fraction.bytes().all(|b| b.is_ascii_digit())
        && numbers(clock, ':').is_some_and(|p| p.len() == 3 && p[0] < 24 && p[1] < 60 && p[2] < 60)
}

#[cfg(test)]
mod tests {
    use super::reads_as_other;

    #[test]
    fn numbers_times_and_switches_are_not_words() {
        for other in [
            "",
            "~",
            "yes",
            "1.5",
            "0x1f",
            "1e3",
            "2020-01-01",
            ".5",
            "+1",
            "0o17",
            "1_000",
            "007",
            "12:30:45",
            ".inf",
            "2026-11-15T03:18:45Z",
            "2001-1-1 1:1:1",
            "-0",
            "3.",
        ] {
            assert!(reads_as_other(other), "{other}");
        }
        for word in [
            "a",
            "1.2.3",
            "v1.34.4",
            "10m0s",
            "1e",
            "0x",
            "NaN",
            "-",
            "2026-13-01",
            "12:70",
            "1-2-3",
        ] {
            assert!(!reads_as_other(word), "{word}");
        }
    }
}
