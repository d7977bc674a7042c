//! Words from the wire: phases, policies and other strings with a known set of values.
//!
//! A word type has one variant per known value and `Other` for what a newer writer may say, so that
//! an older process reads, shows and writes back an object it does not fully understand.

/// Defines a word type: its variants, their spelling on the wire, and an `Other` that keeps the rest.
///
/// `Name = "spelling"` where the spelling is not the variant's own name.
macro_rules! word {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident $(= $text:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )+
            /// A value that this version does not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// Every known value, in the order of the schema.
            pub const KNOWN: &'static [&'static str] = &[ $( word!(@text $variant $($text)?) ),+ ];

            /// The spelling on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => word!(@text $variant $($text)?), )+
                    Self::Other(text) => text,
                }
            }
        }

        /// No value at all, which no object of a sound writer has.
        impl Default for $name {
            fn default() -> Self {
                Self::from("")
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( word!(@text $variant $($text)?) => Self::$variant, )+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok(Self::from(text.as_ref()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::KNOWN })
            }
        }
    };
    (@text $variant:ident) => { stringify!($variant) };
    (@text $variant:ident $text:literal) => { $text };
}

#[cfg(test)]
#[expect(
    unreachable_pub,
    reason = "the macro makes public types, here as elsewhere"
)]
mod tests {
    word! {
        /// A word for these tests.
        pub enum Colour {
            /// The colour of done.
            Green,
            /// Nothing said.
            Unset = "",
        }
    }

    #[test]
    fn unknown_words_survive() {
        for text in ["Green", "", "Mauve", "green"] {
            let json = serde_json::Value::from(text);
            let word: Colour = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&word).unwrap(), json);
        }
        assert_eq!(Colour::from(""), Colour::Unset);
        assert_eq!(Colour::from("Mauve"), Colour::Other("Mauve".into()));
        assert_eq!(Colour::KNOWN, ["Green", ""]);
    }
}
