//! Kubernetes quantities (`10Gi`, `500m`, `1.5e3`): read, compared, and written canonically.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount with nano precision and the family of suffixes it was written in.
///
/// Amounts finer than one nano are rounded up, as Kubernetes does. Equality and order look at the
/// amount alone: `1024Mi` equals `1Gi`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    family: Family,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Binary,
    Decimal,
    Exponent,
}

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid quantity {text:?}: expected a number with an optional suffix, such as \"10Gi\" or \"500m\""
)]
pub struct BadQuantity {
    text: String,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes by power of a thousand, from nano up.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// So many bytes (or any other whole unit), in the binary family.
    #[must_use]
    pub const fn from_bytes(bytes: i64) -> Self {
        Self {
            nanos: bytes as i128 * NANO,
            family: Family::Binary,
        }
    }

    /// The amount in whole units, rounded up; `None` beyond what an i64 holds.
    #[must_use]
    pub fn value(&self) -> Option<i64> {
        let floor = self.nanos.div_euclid(NANO);
        let up = i128::from(self.nanos.rem_euclid(NANO) != 0);
        i64::try_from(floor + up).ok()
    }
}

impl FromStr for Quantity {
    type Err = BadQuantity;

    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        parse(text).ok_or_else(|| BadQuantity {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = u32::try_from(fraction.len()).ok()?;

    let (multiplier, family) = if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix)
    {
        ((1_i128 << (10 * (power + 1))) * NANO, Family::Binary)
    } else if let Some(power) = DECIMAL.iter().position(|s| *s == suffix) {
        (1000_i128.pow(u32::try_from(power).ok()?), Family::Decimal)
    } else {
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        if exponent < -9 {
            return None;
        }
        let power = u32::try_from(exponent + 9).ok()?;
        (10_i128.checked_pow(power)?, Family::Exponent)
    };
    let scaled = digits.checked_mul(multiplier)?;
    let divisor = 10_i128.checked_pow(scale)?;
    let rounded = scaled / divisor + i128::from(scaled % divisor != 0);
    Some(Quantity {
        nanos: if text.starts_with('-') {
            -rounded
        } else {
            rounded
        },
        family,
    })
}

/// The canonical form: no fraction, and the largest suffix of the family that allows it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nanos % NANO == 0;
        // Binary suffixes need a whole amount of at least one Ki; below that, decimal is canonical.
        let text = if self.nanos == 0 {
            "0".to_owned()
        } else if self.family == Family::Binary && whole && self.nanos.abs() >= 1024 * NANO {
            let (number, power) = shrink(self.nanos / NANO, 1024, BINARY.len() - 1);
            format!("{number}{}", BINARY[power])
        } else {
            let (number, power) = shrink(self.nanos, 1000, DECIMAL.len() - 1);
            match (self.family, power) {
                (Family::Exponent, 3) => number.to_string(),
                (Family::Exponent, _) => format!("{number}e{}", 3 * power as i32 - 9),
                _ => format!("{number}{}", DECIMAL[power]),
            }
        };
        f.pad(&text)
    }
}

/// Divides by `base` while it goes in evenly: the number left and how often it went in.
fn shrink(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut power = 0;
    while power < most && number % base == 0 {
        number /= base;
        power += 1;
    }
    (number, power)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn canonical_forms_are_those_of_kubernetes() {
        for (text, canonical, value) in [
            ("0", "0", 0),
            ("0Gi", "0", 0),
            ("1Gi", "1Gi", 1 << 30),
            ("1024Mi", "1Gi", 1 << 30),
            ("1536Mi", "1536Mi", 1536 << 20),
            ("1.5Gi", "1536Mi", 1536 << 20),
            ("0.5Gi", "512Mi", 512 << 20),
            ("1000", "1k", 1000),
            ("1024", "1024", 1024),
            ("100m", "100m", 1),
            ("1000m", "1", 1),
            ("1500m", "1500m", 2),
            ("1.5", "1500m", 2),
            ("2e3", "2e3", 2000),
            ("1E", "1E", 1_000_000_000_000_000_000),
            ("12E0", "12", 12),
            ("-5Mi", "-5Mi", -5 << 20),
            ("0.1n", "1n", 1),
            ("512.5Ki", "524800", 524_800),
        ] {
            let quantity: Quantity = text.parse().expect(text);
            assert_eq!(quantity.to_string(), canonical, "{text}");
            assert_eq!(quantity.value(), Some(value), "{text}");
            assert_eq!(canonical.parse::<Quantity>().unwrap(), quantity, "{text}");
        }
    }

    #[test]
    fn order_is_by_amount() {
        let mut sorted: Vec<Quantity> = ["2Gi", "1G", "1Gi", "999M", "1500m"]
            .map(|t| t.parse().unwrap())
            .to_vec();
        sorted.sort();
        let texts: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["1500m", "999M", "1G", "1Gi", "2Gi"]);
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in [
            "", "Gi", "1gi", "1.2.3", "1 Gi", "--1", "1e", "1e400", "0x10", "٣",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn bytes_round_trip(bytes: i64) {
            let quantity = Quantity::from_bytes(bytes);
            let back: Quantity = quantity.to_string().parse().unwrap();
            proptest::prop_assert_eq!(back.value(), Some(bytes));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Quantity>();
        }
    }
}
