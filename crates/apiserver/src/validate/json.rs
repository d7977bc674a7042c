//! Reads a body. A parser of our own, as the server's refusals name the byte that is wrong in the words
//! of Go's parser, and as fields that come twice are warned of: the last one counts.

use serde_json::{Map, Number, Value};

use crate::status::{Result, Status};

/// How deep a body may be nested. The real server stops at 10000, with the same words; later steps
/// are recursive, and no object that people write comes near.
pub(super) const DEPTH: usize = 500;

/// The decode step for a request body: the object and the fields that came twice, as
/// `duplicate field "spec.x"`. The refusal lacks the words that need the kind:
/// `the object provided is unrecognized (must be of type X): `.
pub(crate) fn parse(body: &[u8]) -> Result<(Value, Vec<String>)> {
    let refuse = |problem: String| {
        Status::bad_request(format!(
            "couldn't get version/kind; json parse error: {problem} ({})",
            summary(body)
        ))
    };
    let mut parser = Parser {
        body,
        at: 0,
        depth: 0,
        path: String::new(),
        twice: Vec::new(),
    };
    let value = parser.document().map_err(refuse)?;
    let name = |value: &Value| match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        _ => "bool",
    };
    let value = match value {
        // Go's parser takes `null` for an object without fields.
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => value,
        other => {
            return Err(refuse(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                name(&other)
            )));
        }
    };
    for key in ["apiVersion", "kind"] {
        if !value[key].is_null() && !value[key].is_string() {
            let problem = format!(
                "json: cannot unmarshal {} into Go struct field .{key} of type string",
                name(&value[key])
            );
            return Err(refuse(problem));
        }
    }
    Ok((value, parser.twice))
}

/// The beginning of a body, for refusals: `{"kind":"Pod"…`, or its bytes if it does not look like JSON.
pub(crate) fn summary(body: &[u8]) -> String {
    let (head, more) = if body.len() > 30 {
        (&body[..30], " ...")
    } else {
        (body, "")
    };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

struct Parser<'a> {
    body: &'a [u8],
    at: usize,
    depth: usize,
    path: String,
    twice: Vec<String>,
}

type Read<T> = std::result::Result<T, String>;

impl Parser<'_> {
    fn document(&mut self) -> Read<Value> {
        let value = self.value()?;
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.wrong("after top-level value")),
        }
    }

    fn value(&mut self) -> Read<Value> {
        match self.peek() {
            None => Err(self.wrong("")),
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(_) => Err(self.wrong("looking for beginning of value")),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.body.get(self.at) {
            self.at += 1;
        }
        self.body.get(self.at).copied()
    }

    fn wrong(&self, context: &str) -> String {
        match self.body.get(self.at) {
            None => "unexpected end of JSON input".to_owned(),
            Some(b'\'') => format!("invalid character '\\'' {context}"),
            Some(b'"') => format!("invalid character '\"' {context}"),
            Some(byte) => {
                let shown = super::quoted(&char::from(*byte).to_string());
                format!("invalid character '{}' {context}", shown.trim_matches('"'))
            }
        }
    }

    fn enter(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong("exceeded max depth"));
        }
        self.at += 1;
        Ok(())
    }

    fn object(&mut self) -> Read<Value> {
        self.enter()?;
        let mut object = Map::new();
        let length = self.path.len();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.depth -= 1;
            return Ok(Value::Object(object));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.wrong("looking for beginning of object key string"));
            }
            let key = self.string()?;
            if self.peek() != Some(b':') {
                return Err(self.wrong("after object key"));
            }
            self.at += 1;
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if object.contains_key(&key) {
                let finding = format!("duplicate field \"{}\"", self.path);
                // The real server stops counting at 100 as well.
                if self.twice.len() < 100 && !self.twice.contains(&finding) {
                    self.twice.push(finding);
                }
            }
            let value = self.value()?;
            object.insert(key, value);
            self.path.truncate(length);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.wrong("after object key:value pair")),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Value::Object(object))
    }

    fn array(&mut self) -> Read<Value> {
        self.enter()?;
        let mut items = Vec::new();
        let length = self.path.len();
        if self.peek() == Some(b']') {
            self.at += 1;
            self.depth -= 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.path.push_str(&format!("[{}]", items.len()));
            let value = self.value()?;
            items.push(value);
            self.path.truncate(length);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.wrong("after array element")),
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Value::Array(items))
    }

    fn literal(&mut self, word: &str, value: Value) -> Read<Value> {
        for expected in word.bytes() {
            if self.body.get(self.at) != Some(&expected) {
                return Err(self.wrong(&format!(
                    "in literal {word} (expecting '{}')",
                    char::from(expected)
                )));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        if self.body[self.at] == b'-' {
            self.at += 1;
        }
        match self.body.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.body.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.body.get(self.at) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = String::from_utf8_lossy(&self.body[start..self.at]);
        let number = match (text.parse::<i64>(), text.parse::<u64>()) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => {
                let float = text.parse::<f64>().unwrap_or_default();
                let float = float.clamp(f64::MIN, f64::MAX);
                Number::from_f64(float).unwrap_or_else(|| 0.into())
            }
        };
        Ok(Value::Number(number))
    }

    fn digits(&mut self, context: &str) -> Read<()> {
        if !self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            return Err(self.wrong(context));
        }
        while self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Read<String> {
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.body.get(self.at) {
                None => return Err(self.wrong("")),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if *byte < 0x20 => return Err(self.wrong("in string literal")),
                Some(byte) => {
                    bytes.push(*byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn escape(&mut self) -> Read<char> {
        let c = match self.body.get(self.at) {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(*c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.wrong("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    /// Four hex digits, or two times four for a pair; halves of pairs stand for no character.
    fn unicode(&mut self) -> Read<char> {
        let first = self.hex()?;
        if (0xd800..0xdc00).contains(&first) && self.body[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or('\u{fffd}'))
    }

    fn hex(&mut self) -> Read<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self
                .body
                .get(self.at)
                .and_then(|byte| char::from(*byte).to_digit(16));
            match digit {
                Some(digit) => code = code * 16 + digit,
                None => return Err(self.wrong("in \\u hexadecimal character escape")),
            }
            self.at += 1;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DEPTH, parse};

    #[track_caller]
    fn refused(body: &str, expected: &str) {
        let status = parse(body.as_bytes()).unwrap_err();
        assert_eq!(status.code, 400);
        assert_eq!(
            status.message,
            format!("couldn't get version/kind; json parse error: {expected}")
        );
    }

    #[test]
    fn broken_bodies_are_refused_in_the_words_of_the_real_server() {
        refused("", "unexpected end of JSON input (<empty>)");
        refused("{", "unexpected end of JSON input ({)");
        refused("{\"a\"", "unexpected end of JSON input ({\"a\")");
        refused(
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string ({\"a\":1,})",
        );
        refused(
            "{a:1}",
            "invalid character 'a' looking for beginning of object key string ({a:1})",
        );
        refused(
            "nope",
            "invalid character 'o' in literal null (expecting 'u') (6e6f7065)",
        );
        let start = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",";
        let long = |rest: &str, expected: &str| {
            refused(
                &format!("{start}{rest}"),
                &format!("{expected} ({{\"apiVersion\":\"v1\",\"kind\":\"Con ...)"),
            );
        };
        long(
            "\"data\":{}} x",
            "invalid character 'x' after top-level value",
        );
        long(
            "\"metadata\":{\"name\":\"a\nb\"}}",
            "invalid character '\\n' in string literal",
        );
        long(
            "\"metadata\":{\"name\":\"a\\q\"}}",
            "invalid character 'q' in string escape code",
        );
        long(
            "\"metadata\":{\"name\":01}}",
            "invalid character '1' after object key:value pair",
        );
        long(
            "\"x\":tru}",
            "invalid character '}' in literal true (expecting 'e')",
        );
        long("\"x\":-}", "invalid character '}' in numeric literal");
        long(
            "\"x\":1.}",
            "invalid character '}' after decimal point in numeric literal",
        );
        long(
            "\"x\":1e}",
            "invalid character '}' in exponent of numeric literal",
        );
        long(
            "\"x\":{}]",
            "invalid character ']' after object key:value pair",
        );
        long("\"x\" \"a\"}", "invalid character '\"' after object key");
        long("\"x\":[1 2]}", "invalid character '2' after array element");
        long(
            "\"x\":\"\\u12x\"}",
            "invalid character 'x' in \\u hexadecimal character escape",
        );
        long(
            &format!("\"x\":{}", "[".repeat(DEPTH + 1)),
            "invalid character '[' exceeded max depth",
        );
    }

    #[test]
    fn bodies_that_are_no_objects_are_refused() {
        refused(
            "[1]",
            "json: cannot unmarshal array into Go value of type struct { APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b315d)",
        );
        refused(
            "{\"kind\":1}",
            "json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":1})",
        );
        assert_eq!(parse(b"null").unwrap().0, json!({}));
    }

    #[test]
    fn fields_that_come_twice_are_found() {
        let body = br#"{"spec":{"s":"aa","s":"bb","pu":{"x":{"a":1,"a":2}},"l":[{"n":1,"n":2,"n":3}]},"spec":{"s":"cc"}}"#;
        let (value, twice) = parse(body).unwrap();
        assert_eq!(value, json!({"spec": {"s": "cc"}}));
        let expected = ["spec.s", "spec.pu.x.a", "spec.l[0].n", "spec"];
        assert_eq!(
            twice,
            expected.map(|path| format!("duplicate field \"{path}\""))
        );
    }

    #[test]
    fn values_are_read() {
        let (value, _) = parse(b"{\"a\":[-0,1.5,1e3,18446744073709551615,true,null],\"b\":\"\\ud83d\\ude00\\ud800\\t\xff\"}").unwrap();
        assert_eq!(
            value,
            json!({"a": [0, 1.5, 1000.0, 18446744073709551615u64, true, null], "b": "😀\u{fffd}\t\u{fffd}"})
        );
    }
}
