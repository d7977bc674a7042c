//! Signed URLs for objects in a folder, which the server itself serves:
//! `<publicUrl>/objects/<bucket>/<key>?expires=<unix seconds>&signature=<hex HMAC-SHA256>`.

use std::{
    fmt::{self, Debug, Write},
    sync::{OnceLock, RwLock},
};

use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};

static PUBLIC_URL: RwLock<Option<String>> = RwLock::new(None);

/// Sets the address that is used by locations without `publicUrl`.
pub fn set_public_url(url: String) {
    if let Ok(mut place) = PUBLIC_URL.write() {
        *place = Some(url);
    }
}

pub(super) fn public_url() -> Option<String> {
    PUBLIC_URL.read().ok()?.clone()
}

/// Makes and checks signed URLs.
#[derive(Clone)]
pub struct Signer(hmac::Key);

impl Signer {
    /// A signer with this key.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The signer of this process; its key is random and gone with the process.
    #[must_use]
    pub fn process() -> Self {
        static PROCESS: OnceLock<Signer> = OnceLock::new();
        PROCESS
            .get_or_init(|| {
                let mut key = [0; 32];
                SystemRandom::new()
                    .fill(&mut key)
                    .expect("the system has random bytes");
                Self::new(&key)
            })
            .clone()
    }

    /// The URL of an object, good until `expires` (seconds since 1970).
    #[must_use]
    pub fn url(&self, public_url: &str, bucket: &str, key: &str, expires: u64) -> String {
        let tag = hmac::sign(&self.0, text(bucket, key, expires).as_bytes());
        let mut url = format!(
            "{}/objects/{}/{}?expires={expires}&signature=",
            public_url.trim_end_matches('/'),
            escaped(bucket),
            escaped(key)
        );
        for byte in tag.as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(url, "{byte:02x}");
        }
        url
    }

    /// Whether a signature is ours and not too old. `bucket` and `key` are those of the URL,
    /// unescaped; `now` is in seconds since 1970.
    #[must_use]
    pub fn check(&self, bucket: &str, key: &str, expires: u64, signature: &str, now: u64) -> bool {
        let Some(tag) = unhex(signature) else {
            return false;
        };
        now <= expires && hmac::verify(&self.0, text(bucket, key, expires).as_bytes(), &tag).is_ok()
    }
}

/// Without the key.
impl Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

/// What is signed. Buckets hold no `/` and keys no line break, so no two objects share it.
fn text(bucket: &str, key: &str, expires: u64) -> String {
    format!("{bucket}/{key}\n{expires}")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

/// A path for a URL: all but slashes and the letters that need no escape is escaped.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(byte.into());
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_one_object_and_a_while() {
        let signer = Signer::process();
        let url = signer.url("http://host:1/", "b", "backups/x/system:x ü.gz", 100);
        let (start, signature) = url.split_once("&signature=").unwrap();
        assert_eq!(
            start,
            "http://host:1/objects/b/backups/x/system%3Ax%20%C3%BC.gz?expires=100"
        );
        let key = "backups/x/system:x ü.gz";
        assert!(signer.check("b", key, 100, signature, 100));
        assert!(Signer::process().check("b", key, 100, signature, 1));
        assert!(!signer.check("b", key, 100, signature, 101));
        assert!(!signer.check("b", key, 101, signature, 1));
        assert!(!signer.check("b", "backups/x/other", 100, signature, 1));
        assert!(!signer.check("c", key, 100, signature, 1));
        assert!(!signer.check("b", key, 100, &signature[2..], 1));
        assert!(!signer.check("b", key, 100, "é", 1));
        assert!(!Signer::new(b"other").check("b", key, 100, signature, 1));
    }
}
