//! Small files, packed and unpacked in memory.

use std::io::{self, Read, Write};

use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};

pub(super) fn pack(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text)?;
    packed.finish()
}

/// Unpacks up to `largest` bytes; more is refused rather than cut.
pub(super) fn unpack(packed: &[u8], largest: usize) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    MultiGzDecoder::new(packed)
        .take(largest as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| format!("not gzip, or damaged: {e}"))?;
    if text.len() > largest {
        return Err(format!("larger than {largest} bytes unpacked"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_and_nothing_else() {
        let packed = pack(&[b'x'; 100]).unwrap();
        assert_eq!(unpack(&packed, 100).unwrap(), [b'x'; 100]);
        assert_eq!(
            unpack(&packed, 99).unwrap_err(),
            "larger than 99 bytes unpacked"
        );
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut], 100).is_err(), "{cut}");
        }
        assert!(unpack(b"plain text", 100).is_err());
    }
}
