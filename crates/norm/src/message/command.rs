//! A sender's commands (RFC 5740 §4.2.3).
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the sender's instance, GRTT, back-off and group size |
//! | 1 | sub-type |
//! | … | content of the sub-type |
//!
//! | sub-type | header behind it | payload |
//! |---|---|---|
//! | 1 FLUSH | `fec_id` 8, object 16, payload id | nodes, 32 each |
//! | 2 EOT | reserved 24 | – |
//! | 3 SQUELCH | `fec_id` 8, object 16, payload id | objects, 16 each |
//! | 4 CC | reserved 8, sequence 16, seconds 32, microseconds 32, EXT_RATE | nodes, 64 each |
//! | 5 REPAIR_ADV | flags 8, reserved 16, EXT_CC | requests for repair |
//! | 6 ACK_REQ | reserved 8, type 8, number 8 | nodes, 32 each |
//! | 7 APPLICATION | reserved 24 | defined by the application |

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::extension::{self, EXT_CC, EXT_RATE, Extensions, read_extensions};
use super::fec::{PayloadId, Scheme};
use super::feedback::{CcFeedback, SendTime};
use super::list::{CcNodes, NodeList, ObjectList, read_list};
use super::request::Requests;
use super::{Area, Sender};

const FLUSH: u8 = 1;
const EOT: u8 = 2;
const SQUELCH: u8 = 3;
const CC: u8 = 4;
const REPAIR_ADV: u8 = 5;
const ACK_REQ: u8 = 6;
const APPLICATION: u8 = 7;

/// Length of a header up to the fourth byte of the sub-type's content.
const BASE: usize = 16;
/// Length of CC's send time, in bytes.
const SEND_TIME_LEN: usize = 8;
/// Length of EXT_RATE, in bytes.
const RATE_LEN: usize = 4;

/// A sender's command. `others` are header extensions without a field of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Requests receivers to check everything up to here and to request missing parts (§4.2.3.1).
    Flush {
        /// State of the sender.
        sender: Sender,
        /// FEC scheme of the object.
        fec: Scheme,
        /// Object the sender has reached.
        object: u16,
        /// Symbol the sender has reached.
        id: PayloadId,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Nodes requested to acknowledge everything up to here.
        ackers: NodeList<'a>,
    },
    /// The sender ends and repairs nothing any more (§4.2.3.2).
    Eot {
        /// State of the sender.
        sender: Sender,
        /// Other header extensions.
        others: Extensions<'a>,
    },
    /// Objects before this one, or in this list, are not repaired (§4.2.3.3).
    Squelch {
        /// State of the sender.
        sender: Sender,
        /// FEC scheme of the object.
        fec: Scheme,
        /// First object that is repaired.
        object: u16,
        /// First repaired block of that object; the symbol should be 0.
        id: PayloadId,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Later objects that are not repaired.
        invalid: ObjectList<'a>,
    },
    /// Measures round-trip times, and serves congestion control (§4.2.3.4).
    Cc {
        /// State of the sender.
        sender: Sender,
        /// Reserved, 0. The reference implementation has a flag here.
        reserved: u8,
        /// Sequence number of the command.
        sequence: u16,
        /// Send time.
        send_time: SendTime,
        /// EXT_RATE, the sender's quantised rate ([`super::rate`]): requests congestion control
        /// feedback.
        rate: Option<u16>,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Congestion control state of receivers at the sender.
        nodes: CcNodes<'a>,
    },
    /// Repeats requests of receivers to those that cannot have received them (§4.2.3.5).
    RepairAdv {
        /// State of the sender.
        sender: Sender,
        /// [`Command::REPAIR_ADV_LIMIT`] and reserved bits.
        flags: u8,
        /// Most limiting congestion control feedback.
        cc: Option<CcFeedback>,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Requested repairs.
        requests: Requests<'a>,
    },
    /// Requests acknowledgements (§4.2.3.6).
    AckReq {
        /// State of the sender.
        sender: Sender,
        /// `ack_type`, from [`super::Ack::APPLICATION`] on.
        kind: u8,
        /// `ack_id`, number of the request.
        id: u8,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Nodes requested to acknowledge.
        ackers: NodeList<'a>,
    },
    /// Message of an application (§4.2.3.7).
    Application {
        /// State of the sender.
        sender: Sender,
        /// Other header extensions.
        others: Extensions<'a>,
        /// Content of the message.
        payload: &'a [u8],
    },
    /// Sub-type that the specification does not define.
    Other {
        /// State of the sender.
        sender: Sender,
        /// Sub-type.
        subtype: u8,
        /// Rest of the header behind the sub-type: 3 bytes plus a multiple of 4.
        header: &'a [u8],
        /// Bytes behind the header.
        payload: &'a [u8],
    },
}

impl<'a> Command<'a> {
    /// The list of requests is truncated: request nothing behind its end.
    pub const REPAIR_ADV_LIMIT: u8 = 0x01;

    /// Returns the state of the sender.
    #[must_use]
    pub const fn sender(&self) -> Sender {
        match self {
            Self::Flush { sender, .. }
            | Self::Eot { sender, .. }
            | Self::Squelch { sender, .. }
            | Self::Cc { sender, .. }
            | Self::RepairAdv { sender, .. }
            | Self::AckReq { sender, .. }
            | Self::Application { sender, .. }
            | Self::Other { sender, .. } => *sender,
        }
    }

    /// Returns the sub-type on the wire.
    #[must_use]
    pub const fn subtype(&self) -> u8 {
        match self {
            Self::Flush { .. } => FLUSH,
            Self::Eot { .. } => EOT,
            Self::Squelch { .. } => SQUELCH,
            Self::Cc { .. } => CC,
            Self::RepairAdv { .. } => REPAIR_ADV,
            Self::AckReq { .. } => ACK_REQ,
            Self::Application { .. } => APPLICATION,
            Self::Other { subtype, .. } => *subtype,
        }
    }

    pub(super) fn read(area: Area<'a>, field_bits: u8) -> Result<Self, DecodeError> {
        let (mut header, mut payload) = (area.header, area.payload);
        let sender = Sender::read(&mut header)?;
        let plain = |header| Ok::<_, DecodeError>(read_extensions(header, None)?.1);
        Ok(match header.u8()? {
            FLUSH => {
                let (fec, object, id) = read_place(&mut header, field_bits)?;
                let (others, ackers) = (plain(header)?, read_list(payload, 4)?);
                Self::Flush { sender, fec, object, id, others, ackers }
            }
            EOT => {
                header.take(3)?;
                payload.finish()?;
                Self::Eot { sender, others: plain(header)? }
            }
            SQUELCH => {
                let (fec, object, id) = read_place(&mut header, field_bits)?;
                let (others, invalid) = (plain(header)?, read_list(payload, 2)?);
                Self::Squelch { sender, fec, object, id, others, invalid }
            }
            CC => Self::read_cc(sender, header, payload)?,
            REPAIR_ADV => {
                let flags = header.u8()?;
                header.u16()?;
                let (cc, others) = read_extensions(header, Some(EXT_CC))?;
                let cc = cc.map(CcFeedback::read).transpose()?;
                let requests = Requests::read(payload, field_bits)?;
                Self::RepairAdv { sender, flags, cc, others, requests }
            }
            ACK_REQ => {
                header.u8()?;
                let (kind, id) = (header.u8()?, header.u8()?);
                let (others, ackers) = (plain(header)?, read_list(payload, 4)?);
                Self::AckReq { sender, kind, id, others, ackers }
            }
            APPLICATION => {
                header.take(3)?;
                Self::Application { sender, others: plain(header)?, payload: payload.rest() }
            }
            subtype => {
                let (header, payload) = (header.rest(), payload.rest());
                Self::Other { sender, subtype, header, payload }
            }
        })
    }

    fn read_cc(
        sender: Sender,
        mut header: Reader<'a>,
        payload: Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let reserved = header.u8()?;
        let sequence = header.u16()?;
        let send_time = SendTime::read(&mut header)?;
        let (rate, others) = read_extensions(header, Some(EXT_RATE))?;
        let rate = match rate {
            Some(mut content) => {
                content.u8()?;
                Some(content.u16()?)
            }
            None => None,
        };
        let nodes = read_list(payload, 8)?;
        Ok(Self::Cc { sender, reserved, sequence, send_time, rate, others, nodes })
    }

    pub(super) fn header_len(&self) -> usize {
        match self {
            Self::Flush { fec, others, .. } | Self::Squelch { fec, others, .. } => {
                BASE + fec.payload_id_len().unwrap_or(0) + others.encoded_len()
            }
            Self::Cc { rate, others, .. } => {
                let rate = if rate.is_some() { RATE_LEN } else { 0 };
                BASE + SEND_TIME_LEN + rate + others.encoded_len()
            }
            Self::RepairAdv { cc, others, .. } => {
                BASE + CcFeedback::len(cc.as_ref()) + others.encoded_len()
            }
            Self::Eot { others, .. }
            | Self::AckReq { others, .. }
            | Self::Application { others, .. } => BASE + others.encoded_len(),
            Self::Other { header, .. } => BASE - 3 + header.len(),
        }
    }

    pub(super) fn payload_len(&self) -> usize {
        match self {
            Self::Flush { ackers, .. } | Self::AckReq { ackers, .. } => ackers.encoded_len(),
            Self::Eot { .. } => 0,
            Self::Squelch { invalid, .. } => invalid.encoded_len(),
            Self::Cc { nodes, .. } => nodes.encoded_len(),
            Self::RepairAdv { requests, .. } => requests.bytes().len(),
            Self::Application { payload, .. } | Self::Other { payload, .. } => payload.len(),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>, field_bits: u8) -> Result<(), EncodeError> {
        self.sender().write(writer)?;
        writer.u8(self.subtype())?;
        match self {
            Self::Flush { fec, object, id, others, ackers, .. } => {
                write_place(writer, *fec, *object, *id, field_bits)?;
                others.write(writer)?;
                ackers.write(writer)
            }
            Self::Eot { others, .. } => {
                writer.put(&[0; 3])?;
                others.write(writer)
            }
            Self::Squelch { fec, object, id, others, invalid, .. } => {
                write_place(writer, *fec, *object, *id, field_bits)?;
                others.write(writer)?;
                invalid.write(writer)
            }
            Self::Cc { reserved, sequence, send_time, rate, others, nodes, .. } => {
                writer.u8(*reserved)?;
                writer.put(&sequence.to_be_bytes())?;
                send_time.write(writer)?;
                if let Some(rate) = rate {
                    extension::write_head(writer, EXT_RATE, RATE_LEN)?;
                    writer.u8(0)?;
                    writer.put(&rate.to_be_bytes())?;
                }
                others.write(writer)?;
                nodes.write(writer)
            }
            Self::RepairAdv { flags, cc, others, requests, .. } => {
                writer.put(&[*flags, 0, 0])?;
                CcFeedback::write(cc.as_ref(), writer)?;
                others.write(writer)?;
                requests.write(writer)
            }
            Self::AckReq { kind, id, others, ackers, .. } => {
                writer.put(&[0, *kind, *id])?;
                others.write(writer)?;
                ackers.write(writer)
            }
            Self::Application { others, payload, .. } => {
                writer.put(&[0; 3])?;
                others.write(writer)?;
                writer.put(payload)
            }
            Self::Other { subtype, header, payload, .. } => {
                if matches!(*subtype, FLUSH..=APPLICATION) {
                    return Err(EncodeError::Conflict("the sub-type has a form of its own"));
                }
                writer.put(header)?;
                writer.put(payload)
            }
        }
    }
}

/// Reads the fields of FLUSH and SQUELCH behind the sub-type.
fn read_place(
    header: &mut Reader<'_>,
    field_bits: u8,
) -> Result<(Scheme, u16, PayloadId), DecodeError> {
    let fec = Scheme::from_code(header.u8()?);
    let object = header.u16()?;
    Ok((fec, object, PayloadId::read(header, fec, field_bits)?))
}

fn write_place(
    writer: &mut Writer<'_>,
    fec: Scheme,
    object: u16,
    id: PayloadId,
    field_bits: u8,
) -> Result<(), EncodeError> {
    writer.u8(fec.code())?;
    writer.put(&object.to_be_bytes())?;
    id.write(writer, fec, field_bits)
}
