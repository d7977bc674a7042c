//! The formats of texts that CRD schemas are checked for. All others, `int32` and `int64` among them, say
//! nothing to the real server and nothing to us; the rare ones are told of in `known`.

use std::{net::IpAddr, sync::LazyLock};

use regex::Regex;

/// Whether the server checks a format; dashes do not count. `isbn`, `creditcard`, `ssn`, `rgbcolor` and
/// `bsonobjectid` are checked by the real server only.
pub(super) fn known(format: &str) -> bool {
    const KNOWN: [&str; 17] = [
        "byte", "cidr", "date", "datetime", "duration", "email", "hexcolor", "hostname", "ipv4",
        "ipv6", "mac", "password", "uri", "uuid", "uuid3", "uuid4", "uuid5",
    ];
    KNOWN.contains(&format.replace('-', "").as_str())
}

/// Whether a text has a format.
pub(super) fn matches(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "byte" => BYTE.is_match(text),
        "cidr" => cidr(text),
        "date" => date(text),
        "datetime" => date_time(text),
        "duration" => duration(text),
        "email" => EMAIL.is_match(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "hostname" => {
            text.len() <= 255 && text.split('.').all(|p| p.len() <= 63) && HOSTNAME.is_match(text)
        }
        "ipv4" => text.contains('.') && address(text).is_some(),
        "ipv6" => text.contains(':') && address(text).is_some(),
        "mac" => MAC.is_match(text),
        "uri" => uri(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some(b'3')),
        "uuid4" => uuid(text, Some(b'4')),
        "uuid5" => uuid(text, Some(b'5')),
        _ => true,
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are written by us")
}

static BYTE: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static HEX_COLOR: LazyLock<Regex> =
    LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        "^(?i:([0-9a-f]{2}(:[0-9a-f]{2}){5}(([:][0-9a-f]{2}){2}|(:[0-9a-f]{2}){14})?)|\
         ([0-9a-f]{2}(-[0-9a-f]{2}){5}((-[0-9a-f]{2}){2}|(-[0-9a-f]{2}){14})?)|\
         ([0-9a-f]{4}(\\.[0-9a-f]{4}){2}(\\.[0-9a-f]{4}|(\\.[0-9a-f]{4}){7})?))$",
    )
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
// An address, with a name before it or without; comments and quoted parts are left out.
static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:[^<>@]*<[^\s<>@,;:]+@[^\s<>@,;:]+>|\s*[^\s<>@,;:()]+@[^\s<>@,;:()]+\s*)$")
});

/// An address; zeros before numbers are let pass, as they always were.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let plain = parts.len() == 4
        && parts
            .iter()
            .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    let numbers = plain.then(|| parts.iter().map(|p| p.trim_start_matches('0')));
    let text = numbers?
        .map(|p| if p.is_empty() { "0" } else { p })
        .collect::<Vec<_>>()
        .join(".");
    text.parse().ok()
}

fn cidr(text: &str) -> bool {
    let Some((head, bits)) = text.split_once('/') else {
        return false;
    };
    let limit = match address(head) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= limit)
}

fn date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        pattern("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
    });
    let lower = text.to_lowercase();
    let mut halves = lower.split('t');
    let (Some(day), Some(time)) = (halves.next(), halves.next()) else {
        return false;
    };
    date(day)
        && TIME
            .captures(time)
            .is_some_and(|c| &c[1] <= "23" && &c[2] <= "59" && &c[3] <= "59")
}

/// A duration of Go, `1h2m`, or of Scala, `3 days`.
fn duration(text: &str) -> bool {
    static GO: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^[+-]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$"));
    static SCALA: LazyLock<Regex> = LazyLock::new(|| pattern(r"(\d+)\s*([A-Za-zµ]+)"));
    const EXACT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const START: [&str; 8] = [
        "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
    ];
    GO.is_match(text)
        || SCALA.captures_iter(text).any(|found| {
            let unit = found[2].to_lowercase();
            EXACT.contains(&unit.as_str()) || START.iter().any(|start| unit.starts_with(start))
        })
}

/// An absolute URI or an absolute path.
fn uri(text: &str) -> bool {
    static URI: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^(/|[A-Za-z][A-Za-z0-9+.\-]*:)[^\x00-\x20\x7f]*$"));
    static ESCAPE: LazyLock<Regex> = LazyLock::new(|| pattern("%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)"));
    URI.is_match(text) && !ESCAPE.is_match(text)
}

fn uuid(text: &str, version: Option<u8>) -> bool {
    static UUID: LazyLock<Regex> = LazyLock::new(|| {
        pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
    });
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let variant = |b: u8| matches!(b.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
    UUID.is_match(text)
        && version.is_none_or(|v| digits[12] == v && (v == b'3' || variant(digits[16])))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn formats_are_told_apart() {
        let good = [
            ("date-time", "2020-01-01T00:00:00Z"),
            ("date-time", "2020-01-01t00:00:00z"),
            ("date", "2020-02-29"),
            ("byte", "YWJj"),
            ("uuid", "74418A95-c250-4859-90a3-996d4876add2"),
            ("uuid4", "74418a95c250485990a3996d4876add2"),
            ("ipv4", "01.2.3.4"),
            ("ipv4", "::ffff:1.2.3.4"),
            ("ipv6", "::1"),
            ("cidr", "10.0.0.0/8"),
            ("email", "a@b"),
            ("email", "A B <a@b.c>"),
            ("hostname", "a-b.example.com"),
            ("uri", "/x"),
            ("uri", "http://a/b?c"),
            ("duration", "1h2m"),
            ("duration", "3 days"),
            ("mac", "01:23:45:67:89:ab"),
            ("hexcolor", "#fff"),
        ];
        for (format, text) in good {
            assert!(matches(format, text), "{format} {text}");
        }
        let bad = [
            ("date-time", "2020-13-01T00:00:00Z"),
            ("date-time", "2020-01-01T00:00:60Z"),
            ("date", "2020-2-1"),
            ("byte", ""),
            ("uuid", "x"),
            ("uuid3", "74418a95-c250-4859-90a3-996d4876add2"),
            ("ipv4", "1.2.3"),
            ("ipv6", "1.2.3.4"),
            ("cidr", "10.0.0.0/33"),
            ("uri", "foo"),
            ("uri", "/%zz"),
            ("duration", "5"),
            ("mac", "01:23"),
            ("hostname", "-a"),
        ];
        for (format, text) in bad {
            assert!(!matches(format, text), "{format} {text}");
        }
        for format in [
            "date-time",
            "date",
            "byte",
            "uuid",
            "ipv4",
            "ipv6",
            "cidr",
            "email",
            "hostname",
            "uri",
            "duration",
            "mac",
        ] {
            assert!(!matches(format, "@ !"), "{format}");
        }
    }
}
