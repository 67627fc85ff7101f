//! Parts shared by the two versions of TCPCL, the TCP convergence layer: [`crate::codec::tcpcl3`]
//! (RFC 7242) and [`crate::codec::tcpcl4`] (RFC 9174).
//!
//! Both sides of a connection start with the same four bytes and a version. A node that accepts
//! connections checks [`version`] before it decodes the rest.

use wire::{DecodeError, DecodeErrorKind};

/// TCP port of both versions.
pub const PORT: u16 = 4556;
/// Start of a contact header: `dtn!`.
pub const MAGIC: [u8; 4] = *b"dtn!";

/// Returns the version in a contact header; `None` if more bytes are needed.
///
/// # Errors
/// The bytes do not start a contact header.
pub fn version(bytes: &[u8]) -> Result<Option<u8>, DecodeError> {
    if bytes.iter().zip(&MAGIC).any(|(found, expected)| found != expected) {
        return Err(DecodeError::invalid(0, "a contact header does not begin with dtn!"));
    }
    Ok(bytes.get(MAGIC.len()).copied())
}

/// Turns a truncation error into `None`, unless the needed length exceeds the limit.
pub(crate) fn or_more<T>(
    read: Result<T, DecodeError>,
    max: usize,
) -> Result<Option<T>, DecodeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(DecodeError { offset, kind: DecodeErrorKind::Truncated { needed, .. } }) => {
            if offset.saturating_add(needed) > max {
                return Err(DecodeError::invalid(offset, "a message is longer than the bound"));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_distinguished() {
        assert_eq!(version(b"dtn!\x03"), Ok(Some(3)));
        assert_eq!(version(b"dtn!\x04\x00"), Ok(Some(4)));
        assert_eq!(version(b"dtn!"), Ok(None));
        assert_eq!(version(b""), Ok(None));
        assert!(version(b"dx").is_err() && version(b"SSH-2.0").is_err());
    }
}
