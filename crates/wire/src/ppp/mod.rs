//! PPP in HDLC-like framing over bytes (RFC 1661 §2, RFC 1662 §3 and §4).
//!
//! | bytes | field | here |
//! |---|---|---|
//! | 1 | flag, 0x7e; one between two frames is enough | [`FLAG`] |
//! | 2 | address 0xff and control 0x03 | omitted by [`Framing::compresses_address`] |
//! | 1–2 | protocol | one byte by [`Framing::compresses_protocol`], if the upper one is zero |
//! | – | information | [`Frame::information`] |
//! | 2 or 4 | frame check sequence, the low byte first | [`Fcs`] |
//! | 1 | flag | |
//!
//! Between flags, 0x7e, 0x7d and the control characters of a map ([`Framing::accm`]) are sent as
//! 0x7d and the byte with bit 0x20 inverted. LCP's frames always use the defaults.

pub mod control;

use std::fmt;

use crc::{CRC_16_IBM_SDLC, Crc, Table};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// Start and end of a frame.
pub const FLAG: u8 = 0x7e;
/// Escape: the next byte has its bit 0x20 inverted.
pub const ESCAPE: u8 = 0x7d;
/// Default maximum receive unit (RFC 1661 §6.1).
pub const MRU_DEFAULT: usize = 1500;

/// Protocol: IPv4.
pub const IPV4: u16 = 0x0021;
/// Protocol: TCP over IPv4, header compressed ([`crate::vj::Kind::Compressed`]).
pub const VJ_COMPRESSED: u16 = 0x002d;
/// Protocol: TCP over IPv4, header whole ([`crate::vj::Kind::Uncompressed`]).
pub const VJ_UNCOMPRESSED: u16 = 0x002f;
/// Protocol: IPv6.
pub const IPV6: u16 = 0x0057;
/// Protocol: IPCP, which configures IPv4.
pub const IPCP: u16 = 0x8021;
/// Protocol: LCP, which configures the line.
pub const LCP: u16 = 0xc021;

const ADDRESS: u8 = 0xff;
const CONTROL: u8 = 0x03;
const CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_IBM_SDLC);

/// Length of the frame check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fcs {
    /// 16 bits, the default.
    #[default]
    Bits16,
    /// 32 bits (RFC 1570 §2.4).
    Bits32,
}

impl Fcs {
    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Bits16 => 2,
            Self::Bits32 => 4,
        }
    }

    /// Always `false`.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// Check sequence in progress.
#[derive(Clone)]
enum Check {
    Bits16(crc::Digest<'static, u16, Table<1>>),
    Bits32(crc32fast::Hasher),
}

impl Check {
    fn new(fcs: Fcs) -> Self {
        static CRC: Crc<u16, Table<1>> = CRC16;
        match fcs {
            Fcs::Bits16 => Self::Bits16(CRC.digest()),
            Fcs::Bits32 => Self::Bits32(crc32fast::Hasher::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Bits16(digest) => digest.update(bytes),
            Self::Bits32(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the bytes on the line, low byte first, and their number.
    fn finish(self) -> ([u8; 4], usize) {
        match self {
            Self::Bits16(digest) => {
                let [low, high] = digest.finalize().to_le_bytes();
                ([low, high, 0, 0], 2)
            }
            Self::Bits32(hasher) => (hasher.finalize().to_le_bytes(), 4),
        }
    }
}

/// Returns the check sequence over `bytes`, as on the line.
fn check_sequence(fcs: Fcs, bytes: &[u8]) -> ([u8; 4], usize) {
    let mut check = Check::new(fcs);
    check.update(bytes);
    check.finish()
}

/// Negotiated framing of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Framing {
    /// Control characters to escape, bit n for character n (RFC 1662 §7.1). A receiver drops
    /// unescaped ones: the line inserted them.
    pub accm: u32,
    /// Check sequence.
    pub fcs: Fcs,
    /// Whether address and control are omitted (RFC 1661 §6.6).
    pub compresses_address: bool,
    /// Whether a protocol below 256 takes one byte (RFC 1661 §6.5).
    pub compresses_protocol: bool,
}

impl Default for Framing {
    /// Framing before any negotiation.
    fn default() -> Self {
        Self {
            accm: 0xffff_ffff,
            fcs: Fcs::Bits16,
            compresses_address: false,
            compresses_protocol: false,
        }
    }
}

impl Framing {
    /// Returns the framing for a protocol: LCP always uses the defaults (RFC 1661 §6.5, §6.6; RFC
    /// 1662 §7.1).
    #[must_use]
    pub fn for_protocol(&self, protocol: u16) -> Self {
        if protocol == LCP { Self::default() } else { *self }
    }

    /// Whether this byte is escaped.
    fn escapes(&self, byte: u8) -> bool {
        byte == FLAG || byte == ESCAPE || byte < 0x20 && self.accm >> byte & 1 != 0
    }

    /// Returns address, control and protocol, as far as they are sent.
    fn head(&self, protocol: u16) -> ([u8; 4], usize) {
        let [high, low] = protocol.to_be_bytes();
        // 0x00ff stays uncompressed: its single byte would look like an address.
        let is_short = self.compresses_protocol && high == 0 && low & 1 == 1 && low != ADDRESS;
        match (self.compresses_address, is_short) {
            (false, false) => ([ADDRESS, CONTROL, high, low], 4),
            (false, true) => ([ADDRESS, CONTROL, low, 0], 3),
            (true, false) => ([high, low, 0, 0], 2),
            (true, true) => ([low, 0, 0, 0], 1),
        }
    }

    /// Returns the bytes before and behind a packet: the head, and the check sequence over both.
    fn around(&self, protocol: u16, information: &[u8]) -> (([u8; 4], usize), ([u8; 4], usize)) {
        let (head, head_len) = self.head(protocol);
        let mut check = Check::new(self.fcs);
        check.update(&head[..head_len]);
        check.update(information);
        ((head, head_len), check.finish())
    }

    /// Appends a frame. If the last byte of `out` is a flag, it is also the frame's first.
    pub fn encode(&self, protocol: u16, information: &[u8], out: &mut Vec<u8>) {
        let framing = self.for_protocol(protocol);
        let ((head, head_len), (fcs, fcs_len)) = framing.around(protocol, information);
        if out.last() != Some(&FLAG) {
            out.push(FLAG);
        }
        for part in [&head[..head_len], information, &fcs[..fcs_len]] {
            framing.stuff(part, out);
        }
        out.push(FLAG);
    }

    fn stuff(&self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len());
        for byte in bytes {
            if self.escapes(*byte) {
                out.extend([ESCAPE, byte ^ 0x20]);
            } else {
                out.push(*byte);
            }
        }
    }

    /// Length of the bytes that [`encode`](Self::encode) appends behind a flag, without writing
    /// them.
    #[must_use]
    pub fn encoded_len(&self, protocol: u16, information: &[u8]) -> usize {
        let framing = self.for_protocol(protocol);
        let ((head, head_len), (fcs, fcs_len)) = framing.around(protocol, information);
        let stuffed = |bytes: &[u8]| {
            bytes.len() + bytes.iter().filter(|byte| framing.escapes(**byte)).count()
        };
        stuffed(&head[..head_len]) + stuffed(information) + stuffed(&fcs[..fcs_len]) + 1
    }
}

/// A complete received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Protocol of the information.
    pub protocol: u16,
    /// Packet, and perhaps padding.
    pub information: &'a [u8],
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PPP protocol {:#06x} length {}", self.protocol, self.information.len())
    }
}

/// Reason why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The sender aborted it: a flag follows an escape.
    #[error("aborted by the sender")]
    Aborted,
    /// Shorter than a protocol and a check sequence.
    #[error("too short")]
    Short,
    /// Longer than the maximum.
    #[error("too long")]
    Long,
    /// The check sequence does not match.
    #[error("the check sequence does not match")]
    Check,
    /// The protocol's low byte is even, or its high byte odd (RFC 1661 §2).
    #[error("no protocol")]
    Protocol,
}

impl<'a> Frame<'a> {
    /// Decodes the bytes between two flags, after unescaping.
    ///
    /// # Errors
    /// When the bytes are not a frame, or were damaged.
    pub fn decode(bytes: &'a [u8], framing: &Framing) -> Result<Self, FrameError> {
        let body = match checked(bytes, framing.fcs) {
            // LCP uses the default check sequence, regardless of negotiated options.
            Err(FrameError::Check) if framing.fcs != Fcs::Bits16 => {
                let body = checked(bytes, Fcs::Bits16)?;
                let is_lcp = body.starts_with(&[ADDRESS, CONTROL, 0xc0, 0x21]);
                if is_lcp { body } else { return Err(FrameError::Check) }
            }
            body => body?,
        };
        // A frame without address and control is recognised, because no protocol starts with 0xff.
        let body = body.strip_prefix(&[ADDRESS, CONTROL]).unwrap_or(body);
        match body {
            [low, information @ ..] if low & 1 == 1 => {
                Ok(Self { protocol: u16::from(*low), information })
            }
            [high, low, information @ ..] if low & 1 == 1 => {
                Ok(Self { protocol: u16::from_be_bytes([*high, *low]), information })
            }
            [_, _, ..] => Err(FrameError::Protocol),
            [] | [_] => Err(FrameError::Short),
        }
    }
}

/// Returns the bytes that the check sequence covers, if it matches.
fn checked(bytes: &[u8], fcs: Fcs) -> Result<&[u8], FrameError> {
    let end = bytes.len().checked_sub(fcs.len()).ok_or(FrameError::Short)?;
    let (body, found) = bytes.split_at(end);
    let (expected, len) = check_sequence(fcs, body);
    if found == &expected[..len] { Ok(body) } else { Err(FrameError::Check) }
}

/// Finds frames in the bytes of a line, received in arbitrary pieces.
#[derive(Debug)]
pub struct Deframer {
    framing: Framing,
    most: usize,
    frame: Vec<u8>,
    /// Whether the content of `frame` was returned.
    is_returned: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first flag: bytes are the end of an earlier frame.
    Hunting,
    Inside,
    /// After 0x7d.
    Escaped,
    /// The frame is too long; it ends with the next flag.
    Overlong,
}

impl Deframer {
    /// Creates a reader of frames with up to `mru` bytes of information.
    #[must_use]
    pub fn new(framing: Framing, mru: usize) -> Self {
        let most = mru.saturating_add(4 + framing.fcs.len());
        Self { framing, most, frame: Vec::new(), is_returned: false, state: State::Hunting }
    }

    /// Consumes bytes from the front of `line` until a frame ends, and returns it; `None` when
    /// `line` is used up.
    pub fn next<'a>(&'a mut self, line: &mut &[u8]) -> Option<Result<Frame<'a>, FrameError>> {
        if std::mem::take(&mut self.is_returned) {
            self.frame.clear();
        }
        while let Some((byte, rest)) = line.split_first() {
            *line = rest;
            if let Some(end) = self.take(*byte) {
                self.is_returned = true;
                return Some(end.and_then(|()| Frame::decode(&self.frame, &self.framing)));
            }
        }
        None
    }

    /// Processes a byte; `Some` if it ends a frame.
    fn take(&mut self, byte: u8) -> Option<Result<(), FrameError>> {
        if byte == FLAG {
            return match std::mem::replace(&mut self.state, State::Inside) {
                State::Hunting => None,
                State::Inside => (!self.frame.is_empty()).then_some(Ok(())),
                State::Escaped => Some(Err(FrameError::Aborted)),
                State::Overlong => Some(Err(FrameError::Long)),
            };
        }
        let turned = match self.state {
            State::Hunting | State::Overlong => return None,
            State::Inside | State::Escaped if self.is_foreign(byte) => return None,
            State::Inside if byte == ESCAPE => {
                self.state = State::Escaped;
                return None;
            }
            State::Inside => byte,
            State::Escaped => byte ^ 0x20,
        };
        if self.frame.len() == self.most {
            self.state = State::Overlong;
            return None;
        }
        self.state = State::Inside;
        self.frame.push(turned);
        None
    }

    /// Whether the line inserted this byte.
    fn is_foreign(&self, byte: u8) -> bool {
        byte < 0x20 && self.framing.accm >> byte & 1 != 0
    }
}
