//! From the text of an expression to bit sets, with Velero's words for what is wrong.

use jiff::tz::TimeZone;

use super::{Calendar, Schedule, Times};

const LONGEST: usize = 1024;

/// The values of a field.
struct Field {
    min: u32,
    max: u32,
    /// Names of values, from `min` on.
    names: &'static [&'static str],
}

const MINUTES: Field = Field::numbers(0, 59);
const HOURS: Field = Field::numbers(0, 23);
const DAYS: Field = Field::numbers(1, 31);
const MONTHS: Field = Field {
    min: 1,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
const WEEKDAYS: Field = Field {
    min: 0,
    max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

pub(super) fn schedule(text: &str) -> Result<Schedule, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("spec too long: {} > {LONGEST}", text.len()));
    }
    let (zone, text) = zone(text)?;
    let times = if text.starts_with('@') {
        descriptor(text)?
    } else {
        Times::Calendar(fields(text)?)
    };
    Ok(Schedule { zone, times })
}

/// Takes `TZ=<zone> ` or `CRON_TZ=<zone> ` off the front.
fn zone(text: &str) -> Result<(Option<TimeZone>, &str), String> {
    let Some(rest) = text
        .strip_prefix("TZ=")
        .or_else(|| text.strip_prefix("CRON_TZ="))
    else {
        return Ok((None, text));
    };
    let Some((name, rest)) = rest.split_once(' ') else {
        return Err(format!("missing fields after timezone in spec {text:?}"));
    };
    let name = ['"', '\'']
        .into_iter()
        .find_map(|quote| name.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(name);
    if let Some(why) = bad_zone_name(name) {
        return Err(format!("invalid timezone {name:?}: {why}"));
    }
    let zone = match name {
        // Go's name for whatever the process runs in.
        "Local" => None,
        _ => Some(
            TimeZone::get(name)
                .map_err(|_| format!("unknown time zone {name:?}: unknown time zone {name}"))?,
        ),
    };
    let rest = rest.trim();
    if rest.is_empty() {
        return Err(format!("missing fields after timezone {name:?}"));
    }
    Ok((zone, rest))
}

fn bad_zone_name(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("empty timezone string".to_owned());
    }
    if name.len() > 64 {
        return Some("timezone string too long (max 64 chars)".to_owned());
    }
    let good = |c: char| c.is_ascii_alphanumeric() || "/_-+:".contains(c);
    name.char_indices()
        .find(|(_, c)| !good(*c))
        .map(|(at, c)| format!("invalid character {c:?} at position {at} in timezone"))
}

fn descriptor(text: &str) -> Result<Times, String> {
    let fields_of = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        "@triggered" | "@manual" | "@none" => return Ok(Times::Never),
        _ => {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text:?}"));
            };
            let nanos = every
                .parse::<bowline_api::Duration>()
                .ok()
                .and_then(|every| every.nanos().ok())
                .ok_or_else(|| {
                    format!("failed to parse duration {text:?}: time: invalid duration {every:?}")
                })?;
            let seconds = nanos / 1_000_000_000;
            if seconds < 1 {
                return Err(format!("@every duration must be at least 1s: {text:?}"));
            }
            return Ok(Times::Every(seconds));
        }
    };
    fields(fields_of).map(Times::Calendar)
}

fn fields(text: &str) -> Result<Calendar, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    };
    if fields
        .iter()
        .flat_map(|field| field.split(','))
        .any(|part| part.starts_with('H'))
    {
        return Err("h expressions require hash option to be enabled".to_owned());
    }
    let (minutes, hours, months) = (
        MINUTES.bits(minutes)?,
        HOURS.bits(hours)?,
        MONTHS.bits(months)?,
    );
    if days.contains(['L', 'W', 'l', 'w']) {
        return Err(
            "extended day-of-month syntax requires DomL option (for L, L-n) or DomW option \
             (for nW, LW) to be enabled"
                .to_owned(),
        );
    }
    let days = DAYS.bits(days)?;
    if weekdays.contains('#') {
        return Err("#n/#L syntax requires DowNth or DowLast option to be enabled".to_owned());
    }
    let weekdays = WEEKDAYS.bits(weekdays)?;
    Ok(Calendar {
        minutes,
        hours,
        days,
        months,
        weekdays: weekdays & 0x7f | weekdays >> 7 & 1,
    })
}

impl Field {
    const fn numbers(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            names: &[],
        }
    }

    /// The values of a comma-separated list; empty entries count for nothing.
    fn bits(&self, list: &str) -> Result<u64, String> {
        list.split(',')
            .filter(|part| !part.is_empty())
            .try_fold(0, |bits, part| Ok(bits | self.range(part)?))
    }

    /// `*`, `a`, `a-b`, each perhaps with `/step`. A range that ends before it begins wraps.
    fn range(&self, text: &str) -> Result<u64, String> {
        let mut slashes = text.split('/');
        let range = slashes.next().unwrap_or_default();
        let step = slashes.next();
        let ends: Vec<&str> = range.split('-').collect();
        let (start, mut end) = match ends[..] {
            ["*" | "?", ..] => (self.min, self.max),
            [value] => {
                let value = self.value(value)?;
                (value, value)
            }
            [low, high] => (self.value(low)?, self.value(high)?),
            _ => return Err(format!("too many hyphens: {range:?}")),
        };
        if slashes.next().is_some() {
            return Err(format!("too many slashes: {text:?}"));
        }
        let step = match step {
            Some(step) => {
                // `5/20` means from 5 on.
                if ends.len() == 1 {
                    end = self.max;
                }
                number(step)?
            }
            None => 1,
        };
        if start < self.min {
            let min = self.min;
            return Err(format!(
                "beginning of range ({start}) below minimum ({min}): {text:?}"
            ));
        }
        if end > self.max {
            let max = self.max;
            return Err(format!(
                "end of range ({end}) above maximum ({max}): {text:?}"
            ));
        }
        if step == 0 {
            return Err(format!("step of range must be a positive number: {text:?}"));
        }
        let all = self.max - self.min + 1;
        let size = if start > end {
            (self.max + 1).saturating_sub(start) + end - self.min + 1
        } else {
            end - start + 1
        };
        if step > 1 && step >= size {
            return Err(format!(
                "step ({step}) must be less than range size ({size}): {text:?}"
            ));
        }
        let end = if start > end { end + all } else { end };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        Ok((start..=end)
            .step_by(step)
            .map(|value| if value > self.max { value - all } else { value })
            .fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let name = text.to_ascii_lowercase();
        match self.names.iter().position(|known| *known == name) {
            Some(at) => Ok(self.min + at as u32),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let why = if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        "invalid syntax"
    } else if digits.parse::<i64>().is_err() {
        "value out of range"
    } else {
        // Anything beyond a u32 is beyond every field too.
        return Ok(digits.parse().unwrap_or(u32::MAX));
    };
    Err(format!(
        "failed to parse int from {text:?}: strconv.Atoi: parsing {text:?}: {why}"
    ))
}
