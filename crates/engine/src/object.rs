//! A user's object as bytes: from the API server's JSON to the archive's, in one pass and without
//! building a tree, and the few facts that decisions need.
//!
//! The archive's JSON has sorted keys, no white space and Go's escapes (see `bowline_api::json`).

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap};

/// How deep an object may nest; the API server allows ten thousand, nothing real comes near.
const MAX_DEPTH: usize = 1000;

/// JSON that is not, or is nested too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadJson {
    /// Something unexpected.
    #[error("malformed JSON at byte {0}")]
    Malformed(usize),
    /// Deeper than we go.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// What is known of an object without understanding it: slices of its JSON as it came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    name: &'a [u8],
    namespace: &'a [u8],
    labels: &'a [u8],
    annotations: &'a [u8],
    deletion: &'a [u8],
    api_version: &'a [u8],
    /// The whole object.
    pub raw: &'a [u8],
}

impl<'a> Facts<'a> {
    /// Looks at one object.
    ///
    /// # Errors
    /// When it is not one JSON object.
    pub fn of(object: &'a [u8]) -> Result<Self, BadJson> {
        Canonical::default().write(object, "", "", &mut Vec::new())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Cow<'a, str> {
        text(self.name)
    }

    /// The namespace; empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Cow<'a, str> {
        text(self.namespace)
    }

    /// Its own group and version; empty in lists of built-in kinds.
    #[must_use]
    pub fn api_version(&self) -> Cow<'a, str> {
        text(self.api_version)
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        !matches!(self.deletion, b"" | b"null" | b"\"\"")
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<String> {
        lookup(self.labels, key)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<String> {
        lookup(self.annotations, key)
    }

    /// Whether these bytes occur in it: a cheap no for what is not there.
    #[must_use]
    pub fn mentions(&self, words: &str) -> bool {
        contains(self.raw, words.as_bytes())
    }

    /// Its labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        serde_json::from_slice(self.labels).unwrap_or_default()
    }

    /// Whether one of its annotations' keys or values has these bytes.
    #[must_use]
    pub fn annotations_mention(&self, words: &str) -> bool {
        contains(self.annotations, words.as_bytes())
    }
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    memchr::memmem::find(bytes, words).is_some()
}

/// A JSON string's text.
fn text(quoted: &[u8]) -> Cow<'_, str> {
    match quoted {
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => String::from_utf8_lossy(inner),
        [] => Cow::Borrowed(""),
        _ => Cow::Owned(serde_json::from_slice(quoted).unwrap_or_default()),
    }
}

/// A value of a map of strings.
fn lookup(map: &[u8], key: &str) -> Option<String> {
    if !contains(map, key.as_bytes()) {
        return None;
    }
    let map: std::collections::HashMap<Cow<'_, str>, Cow<'_, str>> =
        serde_json::from_slice(map).ok()?;
    map.get(key).map(|value| value.clone().into_owned())
}

/// Rewrites objects for the archive. Keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Canonical {
    members: Vec<Member>,
    scratch: Vec<u8>,
}

/// A member of an object in the output: `"key":value`.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

/// Which object is being read; facts are in the first two.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Metadata,
    Elsewhere,
}

impl Canonical {
    /// Appends `object` to `out`; one that does not say its type gets the one given.
    ///
    /// # Errors
    /// When it is not one JSON object; `out` is as it was.
    pub fn write<'a>(
        &mut self,
        object: &'a [u8],
        api_version: &str,
        kind: &str,
        out: &mut Vec<u8>,
    ) -> Result<Facts<'a>, BadJson> {
        self.members.clear();
        let start = out.len();
        let mut pass = Pass {
            input: object,
            at: 0,
            out,
            canonical: self,
            facts: Facts {
                raw: object,
                ..Facts::default()
            },
            defaults: [("apiVersion", api_version), ("kind", kind)],
        };
        let done = pass.whole();
        let facts = pass.facts;
        if done.is_err() {
            out.truncate(start);
        }
        done.map(|()| facts)
    }
}

struct Pass<'a, 'o> {
    input: &'a [u8],
    at: usize,
    out: &'o mut Vec<u8>,
    canonical: &'o mut Canonical,
    facts: Facts<'a>,
    defaults: [(&'o str, &'o str); 2],
}

impl<'a> Pass<'a, '_> {
    fn whole(&mut self) -> Result<(), BadJson> {
        self.space();
        if self.peek() != Some(b'{') {
            return Err(BadJson::Malformed(self.at));
        }
        self.object(Place::Root, 0)?;
        self.space();
        if self.at == self.input.len() {
            Ok(())
        } else {
            Err(BadJson::Malformed(self.at))
        }
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), BadJson> {
        if self.peek() != Some(byte) {
            return Err(BadJson::Malformed(self.at));
        }
        self.at += 1;
        self.out.push(byte);
        Ok(())
    }

    fn value(&mut self, place: Place, depth: usize) -> Result<(), BadJson> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(place, depth + 1),
            Some(b'[') => self.array(depth + 1),
            _ => self.word(),
        }
    }

    /// A number, `true`, `false` or `null`, copied as it is.
    fn word(&mut self) -> Result<(), BadJson> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'0'..=b'9' | b'a'..=b'z' | b'-' | b'+' | b'.' | b'E')
        ) {
            self.at += 1;
        }
        let word = &self.input[start..self.at];
        let known = matches!(word, b"true" | b"false" | b"null")
            || matches!(word, [b'-' | b'0'..=b'9', ..]);
        if !known {
            return Err(BadJson::Malformed(start));
        }
        self.out.extend_from_slice(word);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), BadJson> {
        if depth > MAX_DEPTH {
            return Err(BadJson::TooDeep);
        }
        self.take(b'[')?;
        self.space();
        if self.peek() == Some(b']') {
            return self.take(b']');
        }
        loop {
            self.space();
            self.value(Place::Elsewhere, depth)?;
            self.space();
            match self.peek() {
                Some(b',') => self.take(b',')?,
                _ => return self.take(b']'),
            }
        }
    }

    fn object(&mut self, place: Place, depth: usize) -> Result<(), BadJson> {
        if depth > MAX_DEPTH {
            return Err(BadJson::TooDeep);
        }
        self.take(b'{')?;
        let (body, first) = (self.out.len(), self.canonical.members.len());
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                self.space();
                self.member(place, depth)?;
                self.space();
                match self.peek() {
                    Some(b',') => self.take(b',')?,
                    Some(b'}') => break self.at += 1,
                    _ => return Err(BadJson::Malformed(self.at)),
                }
            }
        }
        if place == Place::Root {
            self.defaults(first);
        }
        self.sort(body, first);
        self.out.push(b'}');
        Ok(())
    }

    fn member(&mut self, place: Place, depth: usize) -> Result<(), BadJson> {
        let (start, key_from) = (self.out.len(), self.at);
        if self.peek() != Some(b'"') {
            return Err(BadJson::Malformed(self.at));
        }
        self.string()?;
        let key = &self.input[key_from..self.at];
        let key_end = self.out.len();
        self.space();
        self.take(b':')?;
        self.space();
        let value_from = self.at;
        let inner = match (place, key) {
            (Place::Root, b"\"metadata\"") => Place::Metadata,
            _ => Place::Elsewhere,
        };
        self.value(inner, depth)?;
        let value = &self.input[value_from..self.at];
        if place != Place::Elsewhere {
            self.note(place, key, value);
        }
        self.canonical.members.push(Member {
            start,
            key_end,
            end: self.out.len(),
        });
        Ok(())
    }

    fn note(&mut self, place: Place, key: &[u8], value: &'a [u8]) {
        match (place, key) {
            (Place::Metadata, b"\"name\"") => self.facts.name = value,
            (Place::Metadata, b"\"namespace\"") => self.facts.namespace = value,
            (Place::Metadata, b"\"labels\"") => self.facts.labels = value,
            (Place::Metadata, b"\"annotations\"") => self.facts.annotations = value,
            (Place::Metadata, b"\"deletionTimestamp\"") => self.facts.deletion = value,
            (Place::Root, b"\"apiVersion\"") => self.facts.api_version = value,
            _ => {}
        }
    }

    /// Adds what the object's type is, where the object does not say.
    fn defaults(&mut self, first: usize) {
        for (key, value) in self.defaults {
            let quoted = |m: &Member| &self.out[m.start + 1..m.key_end - 1] == key.as_bytes();
            if value.is_empty() || self.canonical.members[first..].iter().any(quoted) {
                continue;
            }
            if self.canonical.members.len() > first {
                self.out.push(b',');
            }
            let start = self.out.len();
            self.out.push(b'"');
            self.out.extend_from_slice(key.as_bytes());
            self.out.push(b'"');
            let key_end = self.out.len();
            self.out.extend_from_slice(b":\"");
            self.out.extend_from_slice(value.as_bytes());
            self.out.push(b'"');
            self.canonical.members.push(Member {
                start,
                key_end,
                end: self.out.len(),
            });
        }
    }

    /// Puts the members of the object that began at `body` in order.
    fn sort(&mut self, body: usize, first: usize) {
        let Canonical { members, scratch } = &mut *self.canonical;
        let ours = &mut members[first..];
        let out = &mut *self.out;
        let order =
            |a: &Member, b: &Member| compare(&out[a.start..a.key_end], &out[b.start..b.key_end]);
        if !ours.is_sorted_by(|a, b| order(a, b) != Ordering::Greater) {
            ours.sort_by(order);
            scratch.clear();
            for member in ours.iter() {
                if !scratch.is_empty() {
                    scratch.push(b',');
                }
                scratch.extend_from_slice(&out[member.start..member.end]);
            }
            out.truncate(body);
            out.extend_from_slice(scratch);
        }
        members.truncate(first);
    }

    /// Copies a string, with Go's escapes.
    fn string(&mut self) -> Result<(), BadJson> {
        let start = self.at;
        let mut copied = start;
        let mut at = start + 1;
        loop {
            let Some(step) = self.input[at.min(self.input.len())..]
                .iter()
                .position(|b| SPECIAL[usize::from(*b)])
            else {
                return Err(BadJson::Malformed(start));
            };
            at += step;
            match self.input[at] {
                b'"' => break,
                b'\\' => at += 2,
                b'<' | b'>' | b'&' => {
                    self.out.extend_from_slice(&self.input[copied..at]);
                    let hex = char::from_digit(u32::from(self.input[at] & 15), 16);
                    let high = self.input[at] >> 4;
                    self.out.extend_from_slice(b"\\u00");
                    self.out.push(b'0' + high);
                    self.out.push(hex.map_or(b'0', |c| c as u8));
                    at += 1;
                    copied = at;
                }
                0xe2 => {
                    if let [0xe2, 0x80, last @ (0xa8 | 0xa9), ..] = self.input[at..] {
                        self.out.extend_from_slice(&self.input[copied..at]);
                        self.out.extend_from_slice(if last == 0xa8 {
                            b"\\u2028"
                        } else {
                            b"\\u2029"
                        });
                        at += 3;
                        copied = at;
                    } else {
                        at += 1;
                    }
                }
                _ => return Err(BadJson::Malformed(at)),
            }
        }
        self.at = at + 1;
        self.out.extend_from_slice(&self.input[copied..self.at]);
        Ok(())
    }
}

/// Bytes inside a string that are not just copied.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = true;
        control += 1;
    }
    let special = [b'"', b'\\', b'<', b'>', b'&', 0xe2];
    let mut at = 0;
    while at < special.len() {
        table[special[at] as usize] = true;
        at += 1;
    }
    table
};

/// Orders quoted keys as their texts are ordered.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    if a.contains(&b'\\') || b.contains(&b'\\') {
        return text(a).as_bytes().cmp(text(b).as_bytes());
    }
    // Without the quotes: `"a"` comes before `"ab"`.
    a[1..a.len() - 1].cmp(&b[1..b.len() - 1])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn canonical(object: &str) -> Result<String, BadJson> {
        let mut out = b"before".to_vec();
        Canonical::default().write(object.as_bytes(), "v1", "Thing", &mut out)?;
        Ok(String::from_utf8(out).unwrap().split_off("before".len()))
    }

    #[test]
    fn keys_are_sorted_and_types_filled_in() {
        assert_eq!(
            canonical(r#" {"metadata": {"name": "b", "a": {}}, "data" : {"z":"1","a":[1, -2.5e3,true,null,{"y":1,"x":2}]}} "#),
            Ok(r#"{"apiVersion":"v1","data":{"a":[1,-2.5e3,true,null,{"x":2,"y":1}],"z":"1"},"kind":"Thing","metadata":{"a":{},"name":"b"}}"#.to_owned())
        );
        assert_eq!(
            canonical(r#"{"kind":"Own","apiVersion":"v2"}"#),
            Ok(r#"{"apiVersion":"v2","kind":"Own"}"#.to_owned())
        );
        assert_eq!(
            canonical("{}"),
            Ok(r#"{"apiVersion":"v1","kind":"Thing"}"#.to_owned())
        );
    }

    /// The slow way, which is known to write what Velero writes.
    #[test]
    fn bytes_are_those_of_the_encoder() {
        let awkward = json!({
            "apiVersion": "v1", "kind": "Thing",
            "<tag>": "a<b>&c", "a": "\u{2028}\u{2029}\u{2027}é\u{1f600}", "a.b": "\"\\\n\t\u{1}", "a/": 1,
            "A": "", "ab": {"\"q\"": 1, "\u{e9}": 2, "z": 3}, "": [[], {}, [{}]],
        });
        let raw = serde_json::to_vec(&awkward).unwrap();
        let mut out = Vec::new();
        Canonical::default().write(&raw, "", "", &mut out).unwrap();
        assert_eq!(out, bowline_api::json::to_vec(&awkward).unwrap());
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), awkward);
    }

    #[test]
    fn facts_are_found() {
        let raw = br#"{"spec":{"name":"no"},"metadata":{"labels":{"a":"b","velero.io/exclude-from-backup":"true"},"annotations":null,"name":"n\u002d1","namespace":"ns","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let mut out = Vec::new();
        let facts = Canonical::default()
            .write(raw, "v1", "Pod", &mut out)
            .unwrap();
        assert_eq!(facts.name(), "n-1");
        assert_eq!(facts.namespace(), "ns");
        assert_eq!(
            facts.label("velero.io/exclude-from-backup").as_deref(),
            Some("true")
        );
        assert_eq!(facts.label("b"), None);
        assert_eq!(facts.annotation("a"), None);
        assert!(facts.is_deleting());
        assert!(facts.mentions("spec"));
    }

    #[test]
    fn what_is_not_json_is_refused_and_leaves_nothing() {
        for bad in [
            "",
            "[]",
            "1",
            "{",
            "{}{}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":tru}"#,
            r#"{"a":"x}"#,
            r#"{"a":"\"#,
            "{\"a\":\"\n\"}",
            r#"{a:1}"#,
            r#"{"a":[1 2]}"#,
        ] {
            assert!(canonical(bad).is_err(), "{bad}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(2000), "]".repeat(2000));
        assert_eq!(canonical(&deep), Err(BadJson::TooDeep));
    }
}
