//! Messages of NORM.

use norm::message::{Ack, Body, Command, Message};
use wire::DecodeError;

use super::{Described, Dissector, by_likeness, single};

/// Reader of NORM messages.
pub const DISSECTOR: Dissector =
    Dissector { title: "NORM", line: Some(line), split, plausible, begins, describe };

/// Only receivers send other messages.
fn begins(datagram: &[u8]) -> bool {
    Message::decode(datagram).is_ok_and(|message| {
        let is_first = match message.body {
            Body::Info(_) | Body::Data(_) => true,
            Body::Command(Command::Other { .. }) => false,
            Body::Command(_) => true,
            Body::Nack(_) | Body::Ack(_) | Body::Report(_) => false,
        };
        is_first && message.to_vec().is_ok_and(|bytes| bytes == datagram)
    })
}

/// Messages of one sender with consecutive sequence numbers.
fn split(packet: &[u8]) -> Vec<&[u8]> {
    let Ok(first) = Message::decode(packet) else { return single(packet) };
    by_likeness(packet, |part| {
        // The source, before the whole message.
        if part.bytes.get(4..8) != packet.get(4..8) {
            return false;
        }
        Message::decode(part.bytes).is_ok_and(|next| {
            let sequence = first.sequence.wrapping_add(part.number as u16);
            next.source == first.source && next.sequence == sequence
        })
    })
}

fn line(datagram: &[u8]) -> Result<String, DecodeError> {
    Message::decode(datagram).map(|message| message.to_string())
}

fn plausible(datagram: &[u8]) -> Result<(), DecodeError> {
    match Message::decode(datagram)?.body {
        Body::Report(_) | Body::Command(Command::Other { .. }) => {
            Err(DecodeError::invalid(0, "a message without a defined form"))
        }
        Body::Info(_) | Body::Data(_) | Body::Command(_) | Body::Nack(_) | Body::Ack(_) => Ok(()),
    }
}

fn describe(datagram: &[u8]) -> Described {
    let (kind, number) = match Message::decode(datagram).map(|message| message.body) {
        Ok(Body::Info(_)) => ("NORM_INFO", None),
        Ok(Body::Data(data)) => {
            // Block and symbol in one increasing number.
            let at = u64::from(data.id.block) << 16 | u64::from(data.id.symbol);
            ("NORM_DATA", Some(at))
        }
        Ok(Body::Command(command)) => match command {
            Command::Flush { .. } => ("NORM_CMD(FLUSH)", None),
            Command::Eot { .. } => ("NORM_CMD(EOT)", None),
            Command::Squelch { .. } => ("NORM_CMD(SQUELCH)", None),
            Command::Cc { sequence, .. } => ("NORM_CMD(CC)", Some(u64::from(sequence))),
            Command::RepairAdv { .. } => ("NORM_CMD(REPAIR_ADV)", None),
            Command::AckReq { .. } => ("NORM_CMD(ACK_REQ)", None),
            Command::Application { .. } => ("NORM_CMD(APPLICATION)", None),
            Command::Other { .. } => ("NORM_CMD", None),
        },
        Ok(Body::Nack(_)) => ("NORM_NACK", None),
        Ok(Body::Ack(ack)) if ack.kind == Ack::CC => ("NORM_ACK(CC)", None),
        Ok(Body::Ack(ack)) if ack.kind == Ack::FLUSH => ("NORM_ACK(FLUSH)", None),
        Ok(Body::Ack(_)) => ("NORM_ACK", None),
        Ok(Body::Report(_)) => ("NORM_REPORT", None),
        Err(error) => return (format!("not NORM: {error}"), None),
    };
    (kind.to_owned(), number)
}
