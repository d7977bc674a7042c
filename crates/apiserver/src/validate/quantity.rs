//! Amounts of resources, `1500m` or `2Gi`: which texts are amounts, and the one spelling that the server
//! gives out for all of the same amount.

/// The amount in the spelling of the server, or what is wrong with it.
pub(super) fn canonical(text: &str) -> Result<String, &'static str> {
    const SHAPE: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    let points = number.matches('.').count();
    if number.is_empty() || points > 1 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SHAPE);
    }
    let scale = Scale::of(suffix).ok_or("unable to parse quantity's suffix")?;
    let sign = if text.starts_with('-') { "-" } else { "" };
    // What does not fit is left as it was said; the real server caps it.
    Ok(nano(number, scale).map_or_else(
        || text.to_owned(),
        |amount| format!("{sign}{}", spell(amount, scale)),
    ))
}

#[derive(Clone, Copy)]
enum Scale {
    /// Powers of two: `Ki`.
    Binary(u32),
    /// Powers of ten: `k`.
    Decimal(i32),
    /// Powers of ten as an exponent: `e3`.
    Exponent(i32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
            .iter()
            .position(|s| *s == suffix);
        if let Some(index) = binary {
            return Some(Self::Binary(10 * (u32::try_from(index).ok()? + 1)));
        }
        let decimal = DECIMAL.iter().find(|(_, s)| *s == suffix);
        if let Some((exponent, _)) = decimal {
            return Some(Self::Decimal(*exponent));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        exponent.parse().ok().map(Self::Exponent)
    }
}

const DECIMAL: [(i32, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];

/// The amount in billionths, rounded up.
fn nano(number: &str, scale: Scale) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let (binary, decimal) = match scale {
        Scale::Binary(power) => (power, 0),
        Scale::Decimal(power) | Scale::Exponent(power) => (0, power),
    };
    let power = decimal
        .checked_add(9)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let ten = 10u128.checked_pow(power.unsigned_abs());
    let digits = digits.checked_mul(1 << binary)?;
    match ten {
        Some(ten) if power >= 0 => digits.checked_mul(ten),
        Some(ten) => Some(digits.div_ceil(ten)),
        None => None,
    }
}

fn spell(nano: u128, scale: Scale) -> String {
    const ONE: u128 = 1_000_000_000;
    if let Scale::Binary(_) = scale
        && nano >= 1024 * ONE
    {
        let mut amount = nano.div_ceil(ONE);
        let mut power = 0;
        while amount.is_multiple_of(1024) && power < 6 {
            amount /= 1024;
            power += 1;
        }
        return format!(
            "{amount}{}",
            ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]
        );
    }
    if nano == 0 {
        return "0".to_owned();
    }
    let (mut amount, mut index) = (nano, 0);
    while amount.is_multiple_of(1000) && index + 1 < DECIMAL.len() {
        amount /= 1000;
        index += 1;
    }
    match (scale, DECIMAL[index]) {
        (Scale::Exponent(_), (0, _)) => amount.to_string(),
        (Scale::Exponent(_), (power, _)) => format!("{amount}e{power}"),
        (_, (_, suffix)) => format!("{amount}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn amounts_have_one_spelling() {
        let same = [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1e3", "1e3"),
            ("100", "100"),
            ("2000", "2k"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("-1500m", "-1500m"),
            (".5", "500m"),
            ("1000k", "1M"),
            (".", "0"),
            ("0.5Ki", "512"),
        ];
        for (said, expected) in same {
            assert_eq!(canonical(said).as_deref(), Ok(expected), "{said}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "abc", "1x", "1.."] {
            assert!(
                canonical(text)
                    .unwrap_err()
                    .starts_with("quantities must match"),
                "{text}"
            );
        }
        for text in ["1Ki2", "1e", "1m1", "1ki"] {
            assert_eq!(
                canonical(text).unwrap_err(),
                "unable to parse quantity's suffix",
                "{text}"
            );
        }
    }
}
