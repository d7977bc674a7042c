//! JSON in the spelling of Go's encoder, so that what we write is the same bytes as what Velero
//! writes for the same value.
//!
//! The differences to `serde_json` are escapes and fractions: `<`, `>` and `&`, and the two Unicode
//! line separators, are written as `\u003c` and so on; `1.0` is written as `1`. Key order is the
//! caller's: structs in field order, maps sorted.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{
    Map, Value,
    ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer},
};

/// One line, no white space: archive entries and the compressed files of the bucket.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    write(value, CompactFormatter)
}

/// Indented with two spaces: `velero-backup.json`.
pub fn to_vec_pretty<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    write(value, PrettyFormatter::new())
}

fn write<T: Serialize + ?Sized, F: Formatter>(value: &T, inner: F) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, GoEscapes(inner)))?;
    Ok(out)
}

/// Another formatter, with Go's escapes inside strings.
struct GoEscapes<F>(F);

/// Hands calls on to the wrapped formatter.
macro_rules! hand_on {
    ($( $name:ident ( $($arg:ident : $ty:ty)? ) ),+ $(,)?) => {
        $( fn $name<W: Write + ?Sized>(&mut self, writer: &mut W $(, $arg: $ty)?) -> io::Result<()> {
            self.0.$name(writer $(, $arg)?)
        } )+
    };
}

impl<F: Formatter> Formatter for GoEscapes<F> {
    hand_on!(
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        end_object_key(),
        begin_object_value(),
        end_object_value(),
    );

    /// The shortest digits that read back as the same number, with an exponent only far from one.
    fn write_f64<W: Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        match value.abs() {
            n if n != 0.0 && n < 1e-6 => write!(writer, "{value:e}"),
            n if n >= 1e21 => writer.write_all(format!("{value:e}").replace('e', "e+").as_bytes()),
            _ => write!(writer, "{value}"),
        }
    }

    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut done = 0;
        for (at, c) in fragment.char_indices() {
            if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
                writer.write_all(&fragment.as_bytes()[done..at])?;
                write!(writer, "\\u{:04x}", u32::from(c))?;
                done = at + c.len_utf8();
            }
        }
        writer.write_all(&fragment.as_bytes()[done..])
    }
}

/// The merge patch that turns `old` into `new`, or none when they are equal.
#[must_use]
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(was) => {
                if let Some(part) = merge_patch(was, value) {
                    patch.insert(key.clone(), part);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn escapes_are_those_of_go() {
        let value = json!({"b": "<a href=\"x\">&\u{2028}é\n", "a>": [1, 2.5, null]});
        let text = String::from_utf8(super::to_vec(&value).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"a\u003e":[1,2.5,null],"b":"\u003ca href=\"x\"\u003e\u0026\u2028é\n"}"#
        );
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn numbers_are_those_of_go() {
        let value = json!([
            1.0,
            -0.5,
            1e21,
            1e20,
            1e-7,
            0.000001,
            123456789012345678.0,
            i64::MIN,
            u64::MAX
        ]);
        let text = String::from_utf8(super::to_vec(&value).unwrap()).unwrap();
        assert_eq!(
            text,
            "[1,-0.5,1e+21,100000000000000000000,1e-7,0.000001,123456789012345680,-9223372036854775808,18446744073709551615]"
        );
    }

    #[test]
    fn pretty_is_two_spaces() {
        let text = String::from_utf8(super::to_vec_pretty(&json!({"a": [1]})).unwrap()).unwrap();
        assert_eq!(text, "{\n  \"a\": [\n    1\n  ]\n}");
    }

    #[test]
    fn a_patch_names_what_changed_and_what_went() {
        let old = json!({"a": 1, "b": {"c": [1], "d": "x"}, "e": 5});
        let new = json!({"a": 1, "b": {"c": [2], "d": "x"}, "f": {}});
        assert_eq!(
            super::merge_patch(&old, &new),
            Some(json!({"b": {"c": [2]}, "e": null, "f": {}}))
        );
        assert_eq!(super::merge_patch(&old, &old), None);
    }
}
