//! Checksums over a file: CFDP's (CCSDS 727.0-B-5 §4.2.2), also used by other protocols.

use crc::{Algorithm, Crc, Table};

use crate::named_codes;

/// CRC-32 of the Proximity-1 link protocol (CCSDS 211.2-B): not reflected, initial register 0.
const PROXIMITY_1_ALGORITHM: Algorithm<u32> = Algorithm {
    width: 32,
    poly: 0x00a0_0805,
    init: 0,
    refin: false,
    refout: false,
    xorout: 0,
    check: 0x5169_3c0c,
    residue: 0,
};

static PROXIMITY_1: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&PROXIMITY_1_ALGORITHM);

named_codes! {
    /// Kind of a file's checksum, four bits (SANA "CFDP Checksum Identifiers").
    ChecksumType {
        /// Sum of big-endian 32-bit words (§4.2.2).
        Modular = 0, "modular";
        /// CRC-32 of the Proximity-1 link protocol.
        Proximity1Crc32 = 1, "CRC-32 (Proximity-1)";
        /// CRC-32C (Castagnoli).
        Crc32c = 2, "CRC-32C";
        /// CRC-32 of IEEE 802.3.
        Crc32 = 3, "CRC-32";
        /// Always zero.
        Null = 15, "null";
    }
}

impl ChecksumType {
    /// Whether [`Checksum`] can compute this kind.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        match self {
            Self::Modular | Self::Proximity1Crc32 | Self::Crc32c | Self::Crc32 | Self::Null => true,
            Self::Other(_) => false,
        }
    }

    /// Whether the file must be fed in order from its start; otherwise pieces may come in any
    /// order, each byte once.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        match self {
            Self::Proximity1Crc32 | Self::Crc32c | Self::Crc32 => true,
            Self::Modular | Self::Null | Self::Other(_) => false,
        }
    }
}

/// Returns the CRC-32C of some bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Checksum computation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    kind: ChecksumType,
    value: u32,
    position: u64,
}

impl Checksum {
    /// Creates an empty checksum; `None` if the type is unknown.
    #[must_use]
    pub const fn new(kind: ChecksumType) -> Option<Self> {
        Self::resume(kind, 0, 0)
    }

    /// Resumes from earlier results of [`Checksum::finish`] and [`Checksum::position`]; `None` if
    /// the type is unknown.
    #[must_use]
    pub const fn resume(kind: ChecksumType, value: u32, position: u64) -> Option<Self> {
        if kind.is_supported() { Some(Self { kind, value, position }) } else { None }
    }

    /// Returns the checksum of a file in memory; `None` if the type is unknown.
    #[must_use]
    pub fn compute(kind: ChecksumType, file: &[u8]) -> Option<u32> {
        let mut checksum = Self::new(kind)?;
        checksum.update(0, file);
        Some(checksum.finish())
    }

    /// Returns its type.
    #[must_use]
    pub const fn kind(&self) -> ChecksumType {
        self.kind
    }

    /// End of the last piece fed: the offset at which a sequential type continues.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Adds the piece of the file that starts at `offset`.
    ///
    /// # Panics
    /// If the type is sequential and `offset` is not [`Checksum::position`].
    pub fn update(&mut self, offset: u64, piece: &[u8]) {
        assert!(
            !self.kind.is_sequential() || offset == self.position,
            "a CRC takes the file in order: piece at {offset}, expected {}",
            self.position
        );
        self.position = offset.saturating_add(piece.len() as u64);
        self.value = match self.kind {
            ChecksumType::Modular => self.value.wrapping_add(modular(offset, piece)),
            ChecksumType::Proximity1Crc32 => {
                let mut digest = PROXIMITY_1.digest_with_initial(self.value);
                digest.update(piece);
                digest.finalize()
            }
            ChecksumType::Crc32c => crc32c::crc32c_append(self.value, piece),
            ChecksumType::Crc32 => {
                let mut hasher = crc32fast::Hasher::new_with_initial(self.value);
                hasher.update(piece);
                hasher.finalize()
            }
            ChecksumType::Null | ChecksumType::Other(_) => 0,
        };
    }

    /// Returns the checksum of the pieces fed so far.
    #[must_use]
    pub const fn finish(&self) -> u32 {
        self.value
    }
}

/// Returns the share of a piece in the modular checksum. The file is split into big-endian words
/// at multiples of four; a piece that starts or ends within a word counts as zeros elsewhere.
///
/// A piece "ab" at offset 3 adds 0x00000061 (end of the first word) and 0x62000000 (start of the
/// second).
fn modular(offset: u64, piece: &[u8]) -> u32 {
    let lead = (offset % 4) as usize;
    let (head, rest) = piece.split_at(if lead == 0 { 0 } else { (4 - lead).min(piece.len()) });
    let (words, tail) = rest.as_chunks::<4>();
    let body = words.iter().fold(0_u32, |sum, word| sum.wrapping_add(u32::from_be_bytes(*word)));
    body.wrapping_add(partial_word(lead, head)).wrapping_add(partial_word(0, tail))
}

/// Returns the word with `bytes` from position `start` on and zeros elsewhere.
fn partial_word(start: usize, bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[start..start + bytes.len()].copy_from_slice(bytes);
    u32::from_be_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_known_strings() {
        let cases = [
            (ChecksumType::Modular, 0x9f68_6a6c),
            (ChecksumType::Proximity1Crc32, 0x5169_3c0c),
            (ChecksumType::Crc32c, 0xe306_9283),
            (ChecksumType::Crc32, 0xcbf4_3926),
            (ChecksumType::Null, 0),
        ];
        for (kind, expected) in cases {
            assert_eq!(Checksum::compute(kind, b"123456789"), Some(expected), "{kind}");
        }
        let bytes: Vec<u8> = (0..=0x0e).collect();
        assert_eq!(Checksum::compute(ChecksumType::Modular, &bytes), Some(0x181c_2015));
        assert_eq!(Checksum::compute(ChecksumType::Other(7), b""), None);
    }

    #[test]
    #[should_panic(expected = "a CRC takes the file in order")]
    fn a_crc_refuses_pieces_out_of_order() {
        let mut checksum = Checksum::new(ChecksumType::Crc32c).unwrap();
        checksum.update(1, b"x");
    }
}
