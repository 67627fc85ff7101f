//! Parser of incoming messages.

use bytes::{Buf as _, BytesMut};

use super::{MAC, n};

/// Maximum bytes of a message.
const MESSAGE_MAX: usize = 256 << 10;
/// Maximum bytes of a version line (RFC 4253 §4.2).
const VERSION_MAX: usize = 255;
/// Received bytes of incomplete messages.
#[derive(Debug, Default)]
pub(super) struct Intake {
    raw: BytesMut,
    /// Whether the version line has arrived.
    has_version: bool,
    /// Whether messages have authentication codes.
    has_keys: bool,
}

impl Intake {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Takes the next complete message: its number and content.
    pub(super) fn next(&mut self) -> Result<Option<(u8, BytesMut)>, &'static str> {
        if !self.has_version {
            let Some(end) = self.raw.iter().position(|byte| *byte == b'\n') else {
                return if self.raw.len() > VERSION_MAX { Err("no version") } else { Ok(None) };
            };
            let line = self.raw.split_to(end + 1);
            if !line.starts_with(b"SSH-2.0-") {
                return Err("no version");
            }
            self.has_version = true;
            return Ok(Some((n::VERSION, BytesMut::new())));
        }
        let Some(length) = self.raw.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(6..=MESSAGE_MAX).contains(&length) {
            return Err("the length of a message");
        }
        let mac = if self.has_keys { MAC } else { 0 };
        if self.raw.len() < 4 + length + mac {
            return Ok(None);
        }
        let mut message = self.raw.split_to(4 + length + mac);
        let padding = usize::from(message[4]);
        let number = message[5];
        message.advance(6);
        let body = (length - 2).checked_sub(padding).ok_or("the length of the padding")?;
        message.truncate(body);
        self.has_keys |= number == n::NEWKEYS;
        Ok(Some((number, message)))
    }
}
