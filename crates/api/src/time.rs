//! Points in time as Kubernetes writes them.

use std::{borrow::Cow, fmt};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time; read in any RFC 3339 form, written in UTC with whole seconds
/// (`2026-11-15T03:19:32Z`), the spelling of `metav1.Time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime("%Y-%m-%dT%H:%M:%SZ").fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let time = text
            .parse()
            .map_err(|e| de::Error::custom(format_args!("time {text:?}: {e}")))?;
        Ok(Self(time))
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn spelling_is_utc_with_whole_seconds() {
        for (read, written) in [
            ("2026-11-15T03:19:32Z", "2026-11-15T03:19:32Z"),
            ("2026-11-15T03:19:32.987654321Z", "2026-11-15T03:19:32Z"),
            ("2026-11-15T05:19:32+02:00", "2026-11-15T03:19:32Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            let time: Time = serde_json::from_value(read.into()).unwrap();
            assert_eq!(serde_json::to_value(time).unwrap(), written);
        }
    }

    #[test]
    fn a_bad_time_is_named() {
        let err = serde_json::from_value::<Time>("yesterday".into()).unwrap_err();
        assert!(err.to_string().contains("yesterday"), "{err}");
    }
}
