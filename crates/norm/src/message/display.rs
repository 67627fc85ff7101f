//! One-line display of messages.

use std::fmt;

use super::{
    Ack, Body, CcFeedback, Command, Data, Extensions, FIELD_BITS_ASSUMED, Form, Fti, Info, Message,
    Nack, NodeId, NodeList, PayloadId, Position, Request, RequestFlags, Requests, Scheme, SendTime,
    Sender, group_size, loss, rate, rtt,
};

/// Maximum entries of a list shown; if there are more, only their number is shown.
const SHOWN: usize = 8;

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.write_str("none"),
            Self::ANY => f.write_str("any"),
            Self(id) => write!(f, "{id}"),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FEC {}", self.code())
    }
}

impl fmt::Display for PayloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.block, self.symbol)?;
        self.block_len.map_or(Ok(()), |len| write!(f, "/{len}"))
    }
}

impl fmt::Display for SendTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.sec, self.usec)
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} #{} {}", self.source, self.sequence, self.body)
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Info(info) => info.fmt(f),
            Self::Data(data) => data.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Nack(nack) => nack.fmt(f),
            Self::Ack(ack) => ack.fmt(f),
            Self::Report(report) => {
                write!(f, "REPORT of {} B", report.header.len() + report.payload.len())
            }
        }
    }
}

impl fmt::Display for Info<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INFO object {} of {} B {}", self.object, self.payload.len(), self.fec)?;
        spaced(f, &self.flags)?;
        write_fti(f, self.fec, self.fti)?;
        write_tail(f, self.sender, self.others)
    }
}

impl fmt::Display for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, id, len) = (self.object, self.id, self.payload.len());
        write!(f, "DATA object {object} symbol {id} of {len} B {}", self.fec)?;
        spaced(f, &self.flags)?;
        write_fti(f, self.fec, self.fti)?;
        write_tail(f, self.sender, self.others)
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = Extensions::NONE;
        let others = match *self {
            Self::Flush { fec, object, id, others, ackers, .. } => {
                write!(f, "FLUSH at object {object} symbol {id} {fec}")?;
                write_ackers(f, ackers)?;
                others
            }
            Self::Eot { others, .. } => {
                f.write_str("EOT")?;
                others
            }
            Self::Squelch { fec, object, id, others, invalid, .. } => {
                write!(f, "SQUELCH before object {object} symbol {id} {fec}")?;
                if !invalid.is_empty() {
                    f.write_str(" and objects")?;
                    write_list(f, invalid.iter(), invalid.len())?;
                }
                others
            }
            Self::Cc { sequence, send_time, rate: sent, others, nodes, .. } => {
                write!(f, "CC {sequence} sent {send_time}")?;
                sent.map_or(Ok(()), |sent| write!(f, " rate {:.0} B/s", rate(sent)))?;
                for node in nodes.iter().take(SHOWN) {
                    write!(f, ", node {}", node.node)?;
                    spaced(f, &node.flags)?;
                    write!(f, " RTT {:.3?} rate {:.0} B/s", rtt(node.rtt), rate(node.rate))?;
                }
                if nodes.len() > SHOWN {
                    write!(f, " and {} more", nodes.len() - SHOWN)?;
                }
                others
            }
            Self::RepairAdv { flags, cc, others, requests, .. } => {
                f.write_str("REPAIR_ADV")?;
                if flags & Self::REPAIR_ADV_LIMIT != 0 {
                    f.write_str(" LIMIT")?;
                }
                write!(f, "{requests}")?;
                write_cc(f, cc)?;
                others
            }
            Self::AckReq { kind, id, others, ackers, .. } => {
                write!(f, "ACK_REQ {id} of type {kind}")?;
                write_ackers(f, ackers)?;
                others
            }
            Self::Application { others, payload, .. } => {
                write!(f, "APPLICATION of {} B", payload.len())?;
                others
            }
            Self::Other { subtype, header, payload, .. } => {
                write!(f, "command {subtype} of {} B", header.len() + payload.len())?;
                none
            }
        };
        write_tail(f, self.sender(), others)
    }
}

impl fmt::Display for Nack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NACK to {} instance {}{}", self.server, self.instance, self.requests)?;
        write_response(f, self.grtt_response)?;
        write_cc(f, self.cc)?;
        write_others(f, self.others)
    }
}

impl fmt::Display for Ack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Self::CC => f.write_str("ACK(CC)")?,
            Self::FLUSH => f.write_str("ACK(FLUSH)")?,
            kind => write!(f, "ACK({kind}) {}", self.id)?,
        }
        write!(f, " to {} instance {}", self.server, self.instance)?;
        match Position::decode(self.payload, FIELD_BITS_ASSUMED) {
            Ok(Position { fec, object, id }) if self.kind == Self::FLUSH => {
                write!(f, " of object {object} symbol {id} {fec}")?;
            }
            Ok(_) | Err(_) if self.payload.is_empty() => {}
            Ok(_) | Err(_) => write!(f, " of {} B", self.payload.len())?,
        }
        write_response(f, self.grtt_response)?;
        write_cc(f, self.cc)?;
        write_others(f, self.others)
    }
}

impl fmt::Display for Requests<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for request in self.iter().take(SHOWN) {
            write!(f, ", {request}")?;
        }
        match self.iter().count() {
            count if count > SHOWN => write!(f, " and {} more requests", count - SHOWN),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Items | Form::Ranges => f.write_str("needs")?,
            Form::Erasures => f.write_str("lacks so many in blocks of")?,
            Form::Other(code) => write!(f, "request of form {code}:")?,
        }
        spaced(f, &self.flags)?;
        for (first, last) in self.ranges().take(SHOWN) {
            f.write_str(" ")?;
            write_position(f, self.flags, first)?;
            if self.form == Form::Ranges {
                f.write_str("–")?;
                write_position(f, self.flags, last)?;
            }
        }
        match self.ranges().count() {
            count if count > SHOWN => write!(f, " and {} more", count - SHOWN),
            _ => Ok(()),
        }
    }
}

/// Writes the relevant parts of a position.
fn write_position(
    f: &mut fmt::Formatter<'_>,
    flags: RequestFlags,
    position: Position,
) -> fmt::Result {
    write!(f, "{}", position.object)?;
    let id = position.id;
    if flags.contains(RequestFlags::OBJECT) {
        return Ok(());
    }
    if flags.contains(RequestFlags::SEGMENT) {
        return write!(f, ":{}:{}", id.block, id.symbol);
    }
    if flags.contains(RequestFlags::BLOCK) {
        return write!(f, ":{}", id.block);
    }
    Ok(())
}

fn write_fti(f: &mut fmt::Formatter<'_>, fec: Scheme, fti: Option<Fti>) -> fmt::Result {
    let Some(fti) = fti else { return Ok(()) };
    let Fti { object_size, segment_size, block_len, parity, .. } = fti;
    write!(f, " FTI {object_size} B in {segment_size} B, blocks of {block_len}")?;
    if !matches!(fec, Scheme::Compact | Scheme::RaptorQ) {
        write!(f, "+{parity}")?;
    }
    match fec {
        Scheme::ReedSolomonM => write!(f, " over GF(2^{})", fti.effective_field_bits()),
        Scheme::SmallBlockSystematic | Scheme::Compact => write!(f, " of code {}", fti.instance),
        Scheme::RaptorQ if fti.sub_blocks != 1 => write!(f, " of {} parts", fti.sub_blocks),
        Scheme::NoCode | Scheme::ReedSolomon8 | Scheme::RaptorQ | Scheme::Other(_) => Ok(()),
    }
}

fn write_ackers(f: &mut fmt::Formatter<'_>, ackers: NodeList<'_>) -> fmt::Result {
    if ackers.is_empty() {
        return Ok(());
    }
    f.write_str(", to be acknowledged by")?;
    write_list(f, ackers.iter(), ackers.len())
}

fn write_list(
    f: &mut fmt::Formatter<'_>,
    list: impl Iterator<Item = impl fmt::Display>,
    count: usize,
) -> fmt::Result {
    for entry in list.take(SHOWN) {
        write!(f, " {entry}")?;
    }
    if count > SHOWN {
        write!(f, " and {} more", count - SHOWN)?;
    }
    Ok(())
}

fn write_response(f: &mut fmt::Formatter<'_>, response: SendTime) -> fmt::Result {
    if response.is_some() { write!(f, ", response {response}") } else { Ok(()) }
}

fn write_cc(f: &mut fmt::Formatter<'_>, cc: Option<CcFeedback>) -> fmt::Result {
    let Some(cc) = cc else { return Ok(()) };
    write!(f, ", CC {}", cc.sequence)?;
    spaced(f, &cc.flags)?;
    let (rtt, loss, rate) = (rtt(cc.rtt), loss(cc.loss), rate(cc.rate));
    write!(f, " RTT {rtt:.3?} loss {loss:.4} rate {rate:.0} B/s")
}

fn write_tail(f: &mut fmt::Formatter<'_>, sender: Sender, others: Extensions<'_>) -> fmt::Result {
    let Sender { instance, grtt, backoff, group_size: size } = sender;
    let (grtt, size) = (rtt(grtt), group_size(size));
    write!(f, ", instance {instance} GRTT {grtt:.3?} backoff {backoff} group {size}")?;
    write_others(f, others)
}

fn write_others(f: &mut fmt::Formatter<'_>, others: Extensions<'_>) -> fmt::Result {
    for extension in others.iter() {
        write!(f, ", extension {} of {} B", extension.kind, extension.value.len())?;
    }
    Ok(())
}

/// Writes a space and the text, or nothing.
fn spaced(f: &mut fmt::Formatter<'_>, what: &impl fmt::Display) -> fmt::Result {
    let text = what.to_string();
    if text.is_empty() { Ok(()) } else { write!(f, " {text}") }
}
