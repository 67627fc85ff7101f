//! File as a block: the content, followed by the description in a separate segment.
//!
//! The description is last, so that it can hold the checksum of a file read once, and so that
//! earlier data is written directly to its place. Bytes: `SLF1`, the size (8), the CRC-32C of the
//! content (4), the name (UTF-8), the CRC-32C of everything before (4).

use wire::checksum::crc32c;

const MAGIC: &[u8; 4] = b"SLF1";
const FIXED: usize = 20;

/// Maximum bytes of a name.
pub(crate) const NAME_MAX: usize = 255;

/// Description of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) checksum: u32,
}

impl Description {
    /// Bytes of the description of a file with this name.
    pub(crate) fn len(name: &str) -> u64 {
        (FIXED + name.len()) as u64
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.checksum.to_be_bytes());
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&crc32c(&out).to_be_bytes());
        out
    }

    /// Decodes a description; `None` if it is invalid or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, check) = bytes.split_last_chunk::<4>()?;
        if crc32c(content) != u32::from_be_bytes(*check) {
            return None;
        }
        let rest = content.strip_prefix(MAGIC)?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (checksum, name) = rest.split_first_chunk::<4>()?;
        Some(Self {
            name: String::from_utf8(name.to_vec()).ok().filter(|name| name.len() <= NAME_MAX)?,
            size: u64::from_be_bytes(*size),
            checksum: u32::from_be_bytes(*checksum),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_round_trip_and_damage_is_detected() {
        let description = Description { name: "a/b".into(), size: 1 << 40, checksum: 7 };
        let bytes = description.to_vec();
        assert_eq!(bytes.len() as u64, Description::len("a/b"));
        assert_eq!(Description::decode(&bytes), Some(description));
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 4;
            assert_eq!(Description::decode(&damaged), None);
            assert_eq!(Description::decode(&bytes[..i]), None);
        }
    }
}
