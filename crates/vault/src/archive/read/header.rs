//! The 512 bytes before each entry of a tar archive.

/// The size of a header; bodies are filled up to a multiple of it.
pub(super) const BLOCK: usize = 512;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// Says more about the next entry.
    Pax,
    /// Says more about all entries.
    Global,
    /// Holds the next entry's name.
    LongName,
    /// Holds what the next entry links to.
    LongLink,
    /// Something that no backup holds.
    Other(&'static str),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) kind: Kind,
}

impl Header {
    /// `block` has [`BLOCK`] bytes.
    pub(super) fn parse(block: &[u8]) -> Result<Self, &'static str> {
        let field = |from: usize, length: usize| block.get(from..from + length).unwrap_or_default();
        let sum = number(field(148, 8)).ok_or("a header's checksum is no number")?;
        // Summed as if the sum itself were spaces.
        let expected: u64 = block.iter().map(|b| u64::from(*b)).sum::<u64>()
            - field(148, 8).iter().map(|b| u64::from(*b)).sum::<u64>()
            + 8 * u64::from(b' ');
        if sum != expected {
            return Err("a header's checksum is wrong");
        }
        let size = number(field(124, 12)).ok_or("a header's size is no number")?;
        // Offsets are added to it; no archive comes near.
        if size > u64::MAX / 4 {
            return Err("a header's size is no size");
        }
        let mut path = text(field(0, 100))?.to_owned();
        // In the GNU format something else is in the prefix's place.
        if field(257, 6) == b"ustar\0" {
            let prefix = text(field(345, 155))?;
            if !prefix.is_empty() {
                path = format!("{prefix}/{path}");
            }
        }
        let kind = match field(156, 1) {
            b"0" | b"\0" | b"7" => Kind::File,
            b"5" => Kind::Folder,
            b"x" => Kind::Pax,
            b"g" => Kind::Global,
            b"L" => Kind::LongName,
            b"K" => Kind::LongLink,
            b"1" | b"2" => Kind::Other("a link"),
            b"3" | b"4" => Kind::Other("a device"),
            b"6" => Kind::Other("a pipe"),
            b"S" => Kind::Other("a sparse file"),
            _ => Kind::Other("of an unknown type"),
        };
        Ok(Self { path, size, kind })
    }
}

fn text(field: &[u8]) -> Result<&str, &'static str> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).map_err(|_| "a name is not UTF-8")
}

/// Octal digits, or binary after a marked first byte.
fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let (first, rest) = field.split_first()?;
        let bytes = std::iter::once(first & 0x7f).chain(rest.iter().copied());
        return bytes.into_iter().try_fold(0_u64, |number, byte| {
            number.checked_mul(256)?.checked_add(byte.into())
        });
    }
    let digits = text(field).ok()?.trim_matches(' ');
    if digits.is_empty() {
        return Some(0);
    }
    let is_octal = digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    is_octal.then(|| u64::from_str_radix(digits, 8).ok())?
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_octal_or_marked() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b" 644 \0\0\0", Some(0o644)),
            (b"\0\0\0\0", Some(0)),
            (b"0000009\0", None),
            (b"-000001\0", None),
            (b"+000001\0", None),
            (&[0x80, 0, 0, 1, 2], Some(258)),
            (&[0xff; 12], None),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }
}
