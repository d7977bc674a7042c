//! Zeros, which are known without being hashed, stored again or fetched.

use std::sync::OnceLock;

use super::{
    chunker::{MAX, MIN},
    id::Id,
};

/// Whether there is nothing else.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // Many at once, and out at the first that is not.
    let chunks = bytes.chunks_exact(64);
    let rest = chunks.remainder();
    chunks
        .into_iter()
        .all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// Zeros, at most as many as fit into the largest piece.
pub(crate) fn of(length: usize) -> &'static [u8] {
    // Pages that are only read cost no memory.
    static ZEROS: OnceLock<Vec<u8>> = OnceLock::new();
    &ZEROS.get_or_init(|| vec![0; MAX])[..length]
}

/// How many of the smallest pieces, all zeros, some data begins with. A cut in zeros comes as soon as
/// may be, so these are the pieces it is cut into.
pub(crate) fn pieces(data: &[u8]) -> usize {
    data.chunks_exact(MIN)
        .take_while(|piece| is_zero(piece))
        .count()
}

/// Whether a piece is one of those that uploads make of zeros.
pub(crate) fn is_piece(id: &Id) -> bool {
    static IDS: OnceLock<[Id; 2]> = OnceLock::new();
    IDS.get_or_init(|| [MIN, MAX].map(|length| Id::of(of(length))))
        .contains(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_byte_is_seen_wherever_it_is() {
        for length in [0, 1, 63, 64, 65, 1000] {
            assert!(is_zero(&vec![0; length]));
            for at in 0..length {
                let mut bytes = vec![0; length];
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {length}");
            }
        }
    }

    #[test]
    fn pieces_of_zeros_are_counted_from_the_front() {
        let mut data = vec![0; 3 * MIN + 5];
        assert_eq!(pieces(&data), 3);
        data[2 * MIN] = 1;
        assert_eq!(pieces(&data), 2);
        data[0] = 1;
        assert_eq!(pieces(&data), 0);
        assert_eq!(pieces(&data[..MIN - 1]), 0);
    }

    #[test]
    fn pieces_of_zeros_are_known_by_their_ids() {
        assert!(is_piece(&Id::of(&vec![0; MIN])));
        assert!(is_piece(&Id::of(&vec![0; MAX])));
        assert!(!is_piece(&Id::of(&vec![0; MIN + 1])));
    }
}
