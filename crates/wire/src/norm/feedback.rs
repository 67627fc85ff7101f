//! What receivers say: NACK and ACK (RFC 5740 §4.3), and congestion control feedback (§4.2.3.5).
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `server_id`, the sender it is for |
//! | 2 | `instance_id` of that sender |
//! | 2 | reserved; in ACK its type and its number |
//! | 8 | `grtt_response`, seconds and microseconds |
//! | 12 | EXT_CC: `het` 3, `hel` 3, sequence 16, flags 8, round-trip time 8, loss 16, rate 16, reserved 16 |
//! | … | other header extensions |
//! | … | NACK: requests for repair; ACK: what its type says |

use super::extension::{self, EXT_CC, Extensions};
use super::request::Requests;
use super::{Area, NodeId};
use crate::cursor::{Reader, Writer};
use crate::{DecodeError, EncodeError};

/// Bytes of EXT_CC.
const CC_LEN: usize = 12;

/// A time of the sender's clock, which receivers send back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendTime {
    /// Seconds since a moment that the sender chose.
    pub sec: u32,
    /// Microseconds.
    pub usec: u32,
}

impl SendTime {
    /// No measurement: the receiver has not heard a CMD(CC) yet.
    pub const NONE: Self = Self { sec: 0, usec: 0 };

    /// Whether it is a measurement.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.sec != 0 || self.usec != 0
    }

    /// The time as microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.sec as u64 * 1_000_000 + self.usec as u64
    }

    /// The time of so many microseconds; seconds wrap at 2^32.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self { sec: (micros / 1_000_000) as u32, usec: (micros % 1_000_000) as u32 }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { sec: reader.u32()?, usec: reader.u32()? })
    }

    pub(super) fn write(self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(&self.sec.to_be_bytes())?;
        writer.put(&self.usec.to_be_bytes())
    }
}

super::flags! {
    /// A receiver's part in congestion control.
    CcFlags {
        /// It is the current limiting receiver.
        CLR = 0x01, "CLR";
        /// It is a potential limiting receiver.
        PLR = 0x02, "PLR";
        /// It has measured its round-trip time.
        RTT = 0x04, "RTT";
        /// It has lost nothing yet, and the rate is what it measured.
        START = 0x08, "START";
        /// It is leaving.
        LEAVE = 0x10, "LEAVE";
        /// The rate is measured and not computed. Of the reference implementation, not of RFC 5740.
        LIMIT = 0x20, "LIMIT";
    }
}

/// Congestion control feedback, the header extension EXT_CC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcFeedback {
    /// The latest `cc_sequence` received.
    pub sequence: u16,
    /// The receiver's part.
    pub flags: CcFlags,
    /// The receiver's round-trip time, quantised ([`super::rtt`]).
    pub rtt: u8,
    /// The fraction of loss, quantised ([`super::loss`]).
    pub loss: u16,
    /// The receiver's rate, quantised ([`super::rate`]).
    pub rate: u16,
    /// 16 more bits of the fraction of loss, below those of `loss`. RFC 5740 reserves the field, sent as
    /// 0 and not looked at; the reference implementation puts the bits there.
    pub loss_low: u16,
}

impl CcFeedback {
    pub(super) fn read(mut content: Reader<'_>) -> Result<Self, DecodeError> {
        let at = content.offset();
        if content.remaining() + 2 != CC_LEN {
            return Err(DecodeError::invalid(at, "EXT_CC is not 3 words long"));
        }
        let sequence = content.u16()?;
        let flags = CcFlags(content.u8()?);
        let rtt = content.u8()?;
        let (loss, rate) = (content.u16()?, content.u16()?);
        Ok(Self { sequence, flags, rtt, loss, rate, loss_low: content.u16()? })
    }

    pub(super) const fn len(feedback: Option<&Self>) -> usize {
        if feedback.is_some() { CC_LEN } else { 0 }
    }

    pub(super) fn write(
        feedback: Option<&Self>,
        writer: &mut Writer<'_>,
    ) -> Result<(), EncodeError> {
        let Some(feedback) = feedback else { return Ok(()) };
        extension::write_head(writer, EXT_CC, CC_LEN)?;
        writer.put(&feedback.sequence.to_be_bytes())?;
        writer.put(&[feedback.flags.0, feedback.rtt])?;
        for half in [feedback.loss, feedback.rate, feedback.loss_low] {
            writer.put(&half.to_be_bytes())?;
        }
        Ok(())
    }
}

/// A receiver asks for repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack<'a> {
    /// The sender it is for.
    pub server: NodeId,
    /// That sender's instance.
    pub instance: u16,
    /// When the sender would have sent its last CMD(CC) had it done so just now.
    pub grtt_response: SendTime,
    /// Congestion control feedback.
    pub cc: Option<CcFeedback>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// What is needed.
    pub requests: Requests<'a>,
}

/// A receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The sender it is for.
    pub server: NodeId,
    /// That sender's instance.
    pub instance: u16,
    /// `ack_type`, what is acknowledged: [`Ack::CC`], [`Ack::FLUSH`], or from [`Ack::APPLICATION`] on
    /// what the application likes.
    pub kind: u8,
    /// `ack_id`, the number of the request; not used with [`Ack::CC`] and [`Ack::FLUSH`].
    pub id: u8,
    /// As in [`Nack`].
    pub grtt_response: SendTime,
    /// Congestion control feedback.
    pub cc: Option<CcFeedback>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// What the type says: nothing with [`Ack::CC`], a [`super::Position`] with [`Ack::FLUSH`].
    pub payload: &'a [u8],
}

impl Ack<'_> {
    /// The answer to a CMD(CC).
    pub const CC: u8 = 1;
    /// The answer to a CMD(FLUSH) that names the receiver.
    pub const FLUSH: u8 = 2;
    /// The first of the types of applications.
    pub const APPLICATION: u8 = 16;
}

/// Bytes of the header of NACK and of ACK without extensions.
const BASE: usize = 24;

impl<'a> Nack<'a> {
    pub(super) fn read(area: Area<'a>, field_bits: u8) -> Result<Self, DecodeError> {
        let (mut header, payload) = (area.header, area.payload);
        let server = NodeId(header.u32()?);
        let instance = header.u16()?;
        header.u16()?;
        let grtt_response = SendTime::read(&mut header)?;
        let (cc, others) = Extensions::read(header, Some(EXT_CC))?;
        let cc = cc.map(CcFeedback::read).transpose()?;
        let requests = Requests::read(payload, field_bits)?;
        Ok(Self { server, instance, grtt_response, cc, others, requests })
    }

    pub(super) fn header_len(&self) -> usize {
        BASE + CcFeedback::len(self.cc.as_ref()) + self.others.encoded_len()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(&self.server.0.to_be_bytes())?;
        writer.put(&self.instance.to_be_bytes())?;
        writer.put(&[0; 2])?;
        self.grtt_response.write(writer)?;
        CcFeedback::write(self.cc.as_ref(), writer)?;
        self.others.write(writer)?;
        self.requests.write(writer)
    }
}

impl<'a> Ack<'a> {
    pub(super) fn read(area: Area<'a>) -> Result<Self, DecodeError> {
        let (mut header, mut payload) = (area.header, area.payload);
        let server = NodeId(header.u32()?);
        let instance = header.u16()?;
        let (kind, id) = (header.u8()?, header.u8()?);
        let grtt_response = SendTime::read(&mut header)?;
        let (cc, others) = Extensions::read(header, Some(EXT_CC))?;
        let cc = cc.map(CcFeedback::read).transpose()?;
        let payload = payload.rest();
        Ok(Self { server, instance, kind, id, grtt_response, cc, others, payload })
    }

    pub(super) fn header_len(&self) -> usize {
        BASE + CcFeedback::len(self.cc.as_ref()) + self.others.encoded_len()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.put(&self.server.0.to_be_bytes())?;
        writer.put(&self.instance.to_be_bytes())?;
        writer.put(&[self.kind, self.id])?;
        self.grtt_response.write(writer)?;
        CcFeedback::write(self.cc.as_ref(), writer)?;
        self.others.write(writer)?;
        writer.put(self.payload)
    }
}
