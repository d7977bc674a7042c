//! Where files are cut: Rabin fingerprints over a window of 64 bytes, so that equal stretches of
//! different files are cut alike. The cuts are restic's, so that its data and ours are stored once.

use std::sync::Arc;

use super::crypto::random;

/// Files up to this size are one piece.
pub(crate) const MIN: usize = 512 * 1024;
/// No piece is larger.
pub(crate) const MAX: usize = 8 * 1024 * 1024;
const WINDOW: usize = 64;
/// One position in about a million is a cut.
const MASK: u64 = (1 << 20) - 1;
/// The degree of a repository's polynomial.
const DEGREE: u32 = 53;
/// Stretches that are looked at side by side, since one alone waits for its own last step.
const LANES: usize = 4;
/// Their length.
const STRETCH: usize = 8 * 1024;

/// What cuts files, for one polynomial.
#[derive(Clone)]
pub(crate) struct Chunker {
    tables: Arc<Tables>,
}

struct Tables {
    /// What a byte that leaves the window has left in the fingerprint.
    out: [u64; 256],
    /// What brings the fingerprint back below the polynomial.
    reduce: [u64; 256],
    shift: u32,
}

impl Chunker {
    pub(crate) fn new(polynomial: u64) -> Self {
        let degree = degree(polynomial);
        let shift = degree.saturating_sub(8);
        let append = |hash: u64, byte: u8| modulo((hash << 8) | u64::from(byte), polynomial);
        let out = std::array::from_fn(|byte| {
            (1..WINDOW).fold(append(0, byte as u8), |hash, _| append(hash, 0))
        });
        let reduce = std::array::from_fn(|byte| {
            let high = (byte as u64) << degree;
            modulo(high, polynomial) | high
        });
        let tables = Arc::new(Tables { out, reduce, shift });
        Self { tables }
    }

    /// The length of the first piece of `data`, which begins where a piece begins. `None`: it goes
    /// on beyond `data`. Lengths up to `seen` are known to be none.
    pub(crate) fn cut(&self, data: &[u8], seen: usize) -> Option<usize> {
        let end = data.len().min(MAX);
        let mut at = MIN.max(seen + 1);
        while at + LANES * STRETCH <= end {
            if let Some(cut) = self.lanes(data, at) {
                return Some(cut);
            }
            at += LANES * STRETCH;
        }
        if at <= end
            && let Some(cut) = self.stretch(data, at, end + 1)
        {
            return Some(cut);
        }
        (data.len() >= MAX).then_some(MAX)
    }

    /// The first cut in a stretch of lengths, `from..to`.
    fn stretch(&self, data: &[u8], from: usize, to: usize) -> Option<usize> {
        let tables = &*self.tables;
        let mut digest = tables.window(data, from);
        let mut length = from;
        loop {
            if digest & MASK == 0 {
                return Some(length);
            }
            length += 1;
            if length >= to {
                return None;
            }
            digest = tables.slide(digest, data[length - 1 - WINDOW], data[length - 1]);
        }
    }

    /// The first cut in `LANES` stretches from `from` on.
    fn lanes(&self, data: &[u8], from: usize) -> Option<usize> {
        let tables = &*self.tables;
        let starts: [usize; LANES] = std::array::from_fn(|lane| from + lane * STRETCH);
        let mut digests = starts.map(|start| tables.window(data, start));
        let mut found = [None; LANES];
        // Bytes that leave and that come, for each lane; equally long, which spares checks.
        let leave = starts.map(|start| &data[start - WINDOW..start - WINDOW + STRETCH]);
        let come = starts.map(|start| &data[start..start + STRETCH]);
        for step in 0..STRETCH {
            for lane in 0..LANES {
                if digests[lane] & MASK == 0 && found[lane].is_none() {
                    found[lane] = Some(starts[lane] + step);
                }
                digests[lane] = tables.slide(digests[lane], leave[lane][step], come[lane][step]);
            }
            if found[0].is_some() {
                break;
            }
        }
        found.into_iter().flatten().next()
    }
}

impl Tables {
    /// The fingerprint of the window that ends after `length` bytes.
    fn window(&self, data: &[u8], length: usize) -> u64 {
        let window = &data[length - WINDOW..length];
        window
            .iter()
            .fold(0, |digest, byte| self.append(digest, *byte))
    }

    #[inline(always)]
    fn slide(&self, digest: u64, leaves: u8, comes: u8) -> u64 {
        self.append(digest ^ self.out[usize::from(leaves)], comes)
    }

    #[inline(always)]
    fn append(&self, digest: u64, byte: u8) -> u64 {
        let top = (digest >> self.shift) as u8;
        ((digest << 8) | u64::from(byte)) ^ self.reduce[usize::from(top)]
    }
}

/// A polynomial for a new repository: irreducible, of degree 53.
pub(crate) fn polynomial() -> u64 {
    loop {
        let mut bytes = [0; 8];
        random(&mut bytes);
        let bits = u64::from_le_bytes(bytes) & ((1 << (DEGREE + 1)) - 1);
        let candidate = bits | (1 << DEGREE) | 1;
        if is_irreducible(candidate) {
            return candidate;
        }
    }
}

/// Whether it can be used.
pub(crate) fn is_sound(polynomial: u64) -> bool {
    degree(polynomial) == DEGREE && is_irreducible(polynomial)
}

fn degree(polynomial: u64) -> u32 {
    63 - (polynomial | 1).leading_zeros()
}

fn modulo(mut value: u64, by: u64) -> u64 {
    let to = degree(by);
    while value != 0 && degree(value) >= to && value >> to != 0 {
        value ^= by << (degree(value) - to);
    }
    value
}

fn multiply(a: u64, mut b: u64, by: u64) -> u64 {
    let (mut product, mut shifted) = (0, modulo(a, by));
    while b != 0 {
        if b & 1 == 1 {
            product ^= shifted;
        }
        shifted = modulo(shifted << 1, by);
        b >>= 1;
    }
    product
}

/// Rabin's test: the degree is a prime p, so x^(2^p) = x, and gcd(x^2 - x, f) = 1.
fn is_irreducible(polynomial: u64) -> bool {
    let p = degree(polynomial);
    if p != DEGREE {
        return false;
    }
    let mut power = 2;
    for step in 0..p {
        power = multiply(power, power, polynomial);
        if step == 0 && gcd(polynomial, power ^ 2) != 1 {
            return false;
        }
    }
    power == 2
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, modulo(a, b)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `github.com/restic/chunker` describes itself: bytes that look random, from a seed.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 23_u64;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect()
    }

    fn cuts(chunker: &Chunker, mut data: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while !data.is_empty() {
            let cut = chunker.cut(data, 0).unwrap_or(data.len());
            lengths.push(cut);
            data = &data[cut..];
        }
        lengths
    }

    /// The same, byte after byte with a window kept apart.
    fn slowly(polynomial: u64, mut data: &[u8]) -> Vec<usize> {
        let chunker = Chunker::new(polynomial);
        let mut lengths = Vec::new();
        while !data.is_empty() {
            let end = data.len().min(MAX);
            let cut = (MIN..=end).find(|length| {
                let mut digest = 0;
                for byte in &data[length - WINDOW..*length] {
                    digest = modulo((digest << 8) | u64::from(*byte), polynomial);
                }
                digest & MASK == 0
            });
            let cut = cut.unwrap_or(end);
            lengths.push(cut);
            data = &data[cut..];
        }
        drop(chunker);
        lengths
    }

    #[test]
    fn cuts_are_where_the_definition_says() {
        let polynomial = 0x3D_A335_8B4D_C173;
        let data = bytes(6 << 20);
        let chunker = Chunker::new(polynomial);
        assert_eq!(cuts(&chunker, &data), slowly(polynomial, &data));
        // Zeros are cut as soon as may be; small files not at all.
        assert_eq!(chunker.cut(&vec![0; 2 << 20], 0), Some(MIN));
        assert_eq!(chunker.cut(&data[..MIN - 1], 0), None);
    }

    #[test]
    fn a_cut_needs_nothing_of_what_follows_it() {
        let data = bytes(4 << 20);
        let chunker = Chunker::new(0x3D_A335_8B4D_C173);
        let first = chunker.cut(&data, 0).unwrap();
        for extra in [0, 1, 100, 40_000] {
            assert_eq!(chunker.cut(&data[..first + extra], MIN), Some(first));
        }
        assert_eq!(chunker.cut(&data[..first - 1], 0), None);
    }

    #[test]
    fn polynomials_are_told_apart() {
        assert!(is_sound(0x3D_A335_8B4D_C173));
        assert!(!is_sound(0x3D_A335_8B4D_C172));
        assert!(!is_sound(7));
        assert!(is_sound(polynomial()));
    }
}
