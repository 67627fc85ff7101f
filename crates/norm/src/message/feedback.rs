//! Feedback of receivers: NACK and ACK (RFC 5740 §4.3), and congestion control feedback
//! (§4.2.3.5).
//!
//! | bytes | field |
//! |---|---|
//! | 4 | `server_id`, the sender it is for |
//! | 2 | `instance_id` of that sender |
//! | 2 | reserved; in ACK its type and its number |
//! | 8 | `grtt_response`, seconds and microseconds |
//! | 12 | EXT_CC: `het` 3, `hel` 3, sequence 16, flags 8, round-trip time 8, loss 16, rate 16, |
//! | | reserved 16 |
//! | … | other header extensions |
//! | … | NACK: requests for repair; ACK: content of its type |

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::extension::{self, EXT_CC, Extensions, read_extensions};
use super::request::Requests;
use super::{Area, NodeId};

/// Length of EXT_CC, in bytes.
const CC_LEN: usize = 12;

/// Time on the sender's clock, which receivers echo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendTime {
    /// Seconds since an epoch chosen by the sender.
    pub sec: u32,
    /// Microseconds.
    pub usec: u32,
}

impl SendTime {
    /// No measurement: the receiver has not received a CMD(CC) yet.
    pub const NONE: Self = Self { sec: 0, usec: 0 };

    /// Whether this is a measurement.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.sec != 0 || self.usec != 0
    }

    /// Returns the time in microseconds.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.sec as u64 * 1_000_000 + self.usec as u64
    }

    /// Creates a time from microseconds; seconds wrap at 2^32.
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
    /// State of a receiver in congestion control.
    CcFlags {
        /// The receiver is the current limiting receiver.
        CLR = 0x01, "CLR";
        /// The receiver is a potential limiting receiver.
        PLR = 0x02, "PLR";
        /// The receiver has measured its round-trip time.
        RTT = 0x04, "RTT";
        /// The receiver has lost nothing yet, and the rate is measured.
        START = 0x08, "START";
        /// The receiver is leaving.
        LEAVE = 0x10, "LEAVE";
        /// The rate is measured, not computed. Defined by the reference implementation, not by RFC
        /// 5740.
        LIMIT = 0x20, "LIMIT";
    }
}

/// Congestion control feedback, the header extension EXT_CC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcFeedback {
    /// Latest `cc_sequence` received.
    pub sequence: u16,
    /// State of the receiver.
    pub flags: CcFlags,
    /// Round-trip time of the receiver, quantised ([`super::rtt`]).
    pub rtt: u8,
    /// Loss fraction, quantised ([`super::loss`]).
    pub loss: u16,
    /// Rate of the receiver, quantised ([`super::rate`]).
    pub rate: u16,
    /// Lower 16 bits of the loss fraction, below `loss`. RFC 5740 reserves the field, sent as 0 and
    /// ignored; the reference implementation puts the bits here.
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

/// Request of a receiver for repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack<'a> {
    /// Sender it is for.
    pub server: NodeId,
    /// Instance of that sender.
    pub instance: u16,
    /// Send time of the last CMD(CC), plus the time since its reception.
    pub grtt_response: SendTime,
    /// Congestion control feedback.
    pub cc: Option<CcFeedback>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// Requested repairs.
    pub requests: Requests<'a>,
}

/// Acknowledgement of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Sender it is for.
    pub server: NodeId,
    /// Instance of that sender.
    pub instance: u16,
    /// `ack_type`: [`Ack::CC`], [`Ack::FLUSH`], or application-defined from [`Ack::APPLICATION`]
    /// on.
    pub kind: u8,
    /// `ack_id`, number of the request; not used with [`Ack::CC`] and [`Ack::FLUSH`].
    pub id: u8,
    /// As in [`Nack`].
    pub grtt_response: SendTime,
    /// Congestion control feedback.
    pub cc: Option<CcFeedback>,
    /// Other header extensions.
    pub others: Extensions<'a>,
    /// Content of the type: empty with [`Ack::CC`], a [`super::Position`] with [`Ack::FLUSH`].
    pub payload: &'a [u8],
}

impl Ack<'_> {
    /// Response to a CMD(CC).
    pub const CC: u8 = 1;
    /// Response to a CMD(FLUSH) that names the receiver.
    pub const FLUSH: u8 = 2;
    /// First application-defined type.
    pub const APPLICATION: u8 = 16;
}

/// Length of the header of NACK and ACK without extensions, in bytes.
const BASE: usize = 24;

impl<'a> Nack<'a> {
    pub(super) fn read(area: Area<'a>, field_bits: u8) -> Result<Self, DecodeError> {
        let (mut header, payload) = (area.header, area.payload);
        let server = NodeId(header.u32()?);
        let instance = header.u16()?;
        header.u16()?;
        let grtt_response = SendTime::read(&mut header)?;
        let (cc, others) = read_extensions(header, Some(EXT_CC))?;
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
        let (cc, others) = read_extensions(header, Some(EXT_CC))?;
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
