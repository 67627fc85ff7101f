//! Parts shared by the two versions of TCPCL, the TCP convergence layer: [`crate::codec::tcpcl3`]
//! (RFC 7242) and [`crate::codec::tcpcl4`] (RFC 9174).
//!
//! Both sides of a connection start with the same four bytes and a version. A node that accepts
//! connections checks [`version`] before it decodes the rest.

use wire::DecodeError;

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

/// Error of a message that may be longer than its bound.
pub(super) const TOO_LONG: &str = "a message is longer than the bound";

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
