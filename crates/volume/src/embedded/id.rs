//! Names in a repository: SHA-256 of what they name.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The SHA-256 of a file or blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Id(pub(crate) [u8; 32]);

impl Id {
    /// The id of some bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(id)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut id = [0; 32];
        hex::decode_to_slice(text, &mut id).ok()?;
        Some(Self(id))
    }

    /// The first digits, for people.
    pub(crate) fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }

    /// Adds the digits to a JSON text.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + 64, 0);
        // As long as it must be.
        let _ = hex::encode_to_slice(self.0, &mut out[at..]);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = [0; 64];
        hex::encode_to_slice(self.0, &mut digits).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(std::str::from_utf8(&digits).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl de::Visitor<'_> for Digits {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 hexadecimal digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Id::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Digits)
    }
}
