//! How a repository's files are encrypted: AES-256 in counter mode, authenticated by Poly1305-AES.
//! Stored are 16 random bytes, the ciphertext, and 16 bytes of authentication.

use aes::{
    Aes128, Aes256,
    cipher::{BlockCipherEncrypt, KeyInit, StreamCipher},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ctr::Ctr128BE;
use poly1305::Poly1305;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

const IV: usize = 16;
const MAC: usize = 16;
/// What encryption adds to a text.
pub(crate) const OVERHEAD: usize = IV + MAC;

/// The keys of a repository, or those made of a password.
#[derive(Clone)]
pub(crate) struct Key {
    encrypt: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
    /// The cipher of `mac_k`, which takes longer to make than to use.
    mac: Aes128,
    cipher: Aes256,
}

/// A key as a repository writes it.
#[derive(Serialize, Deserialize)]
struct Written {
    mac: WrittenMac,
    encrypt: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenMac {
    k: String,
    r: String,
}

/// It is not what was encrypted, or the key is another.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unauthentic;

/// Fills a buffer with random bytes.
pub(crate) fn random(bytes: &mut [u8]) {
    SystemRandom::new()
        .fill(bytes)
        .expect("the system has random bytes");
}

impl Key {
    /// From 64 bytes: the encryption key, then the two of authentication.
    pub(crate) fn new(bytes: &[u8; 64]) -> Self {
        let (mut encrypt, mut mac_k, mut mac_r) = ([0; 32], [0; 16], [0; 16]);
        encrypt.copy_from_slice(&bytes[..32]);
        mac_k.copy_from_slice(&bytes[32..48]);
        mac_r.copy_from_slice(&bytes[48..]);
        Self {
            encrypt,
            mac_k,
            mac_r,
            mac: Aes128::new(&mac_k.into()),
            cipher: Aes256::new(&encrypt.into()),
        }
    }

    pub(crate) fn random() -> Self {
        let mut bytes = [0; 64];
        random(&mut bytes);
        Self::new(&bytes)
    }

    /// Reads what [`to_json`](Self::to_json) writes.
    pub(crate) fn from_json(text: &[u8]) -> Option<Self> {
        let written: Written = serde_json::from_slice(text).ok()?;
        let mut bytes = [0; 64];
        let parts = [
            (0..32, &written.encrypt),
            (32..48, &written.mac.k),
            (48..64, &written.mac.r),
        ];
        for (range, text) in parts {
            let part = STANDARD.decode(text).ok()?;
            let place = &mut bytes[range];
            (part.len() == place.len()).then(|| place.copy_from_slice(&part))?;
        }
        Some(Self::new(&bytes))
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let written = Written {
            mac: WrittenMac {
                k: STANDARD.encode(self.mac_k),
                r: STANDARD.encode(self.mac_r),
            },
            encrypt: STANDARD.encode(self.encrypt),
        };
        serde_json::to_vec(&written).expect("strings are JSON")
    }

    /// Encrypts `text` and adds it to `out`.
    pub(crate) fn seal(&self, text: &[u8], out: &mut Vec<u8>) {
        let mut iv = [0; IV];
        random(&mut iv);
        out.reserve(text.len() + OVERHEAD);
        out.extend_from_slice(&iv);
        let at = out.len();
        out.extend_from_slice(text);
        self.stream(&iv).apply_keystream(&mut out[at..]);
        let mac = self.authenticate(&iv, &out[at..]);
        out.extend_from_slice(&mac);
    }

    /// Decrypts in place; the text is what is left.
    pub(crate) fn open<'a>(&self, sealed: &'a mut [u8]) -> Result<&'a mut [u8], Unauthentic> {
        let len = sealed.len().checked_sub(MAC).filter(|len| *len >= IV);
        let (rest, mac) = sealed.split_at_mut(len.ok_or(Unauthentic)?);
        let (iv, text) = rest.split_at_mut(IV);
        let iv: [u8; IV] = (&*iv).try_into().map_err(|_| Unauthentic)?;
        // Not a secret of the one who stores it: plain comparison would do, this one is constant.
        let expected = self.authenticate(&iv, text);
        let differs = expected.iter().zip(&*mac).fold(0, |d, (a, b)| d | (a ^ b));
        if differs != 0 {
            return Err(Unauthentic);
        }
        self.stream(&iv).apply_keystream(text);
        Ok(text)
    }

    fn stream(&self, iv: &[u8; IV]) -> Ctr128BE<Aes256> {
        use ctr::cipher::InnerIvInit;
        let core = ctr::CtrCore::inner_iv_init(self.cipher.clone(), &(*iv).into());
        Ctr128BE::from_core(core)
    }

    fn authenticate(&self, iv: &[u8; IV], text: &[u8]) -> [u8; MAC] {
        let mut nonce = (*iv).into();
        self.mac.encrypt_block(&mut nonce);
        let mut key = [0; 32];
        key[..16].copy_from_slice(&self.mac_r);
        key[16..].copy_from_slice(&nonce);
        Poly1305::new(&key.into()).compute_unpadded(text).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_a_changed_bit_does_not() {
        let key = Key::random();
        for len in [0, 1, 15, 16, 17, 1000, 70_000] {
            let text: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut sealed = Vec::new();
            key.seal(&text, &mut sealed);
            assert_eq!(sealed.len(), text.len() + OVERHEAD);
            for at in [0, len / 2, len + OVERHEAD - 1] {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(key.open(&mut changed), Err(Unauthentic));
            }
            assert_eq!(key.open(&mut sealed), Ok(&mut text.clone()[..]));
        }
        assert_eq!(key.open(&mut [0; 31]), Err(Unauthentic));
    }

    #[test]
    fn keys_are_written_as_restic_does() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let text = Key::new(&bytes).to_json();
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{"mac":{"k":"ICEiIyQlJicoKSorLC0uLw==","r":"MDEyMzQ1Njc4OTo7PD0+Pw=="},"encrypt":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}"#
        );
        let again = Key::from_json(&text).unwrap();
        assert_eq!(again.to_json(), text);
        assert!(Key::from_json(b"{}").is_none());
    }
}
