//! What PDUs say, a line each, and which protocol they are of.

use std::fmt;
use std::str::FromStr;

use transport::protocol::{Family, Protocol};
use transport::text::SpecError;
use wire::cfdp::Pdu;
use wire::ltp::Segment;
use wire::{DecodeError, norm, saratoga};

/// A protocol whose PDUs can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// CFDP.
    Cfdp,
    /// LTP.
    Ltp,
    /// Saratoga.
    Saratoga,
    /// NORM.
    Norm,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cfdp => "CFDP",
            Self::Ltp => "LTP",
            Self::Saratoga => "Saratoga",
            Self::Norm => "NORM",
        })
    }
}

/// By the name of a protocol that speaks it.
impl FromStr for Language {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let pieces =
            |what| SpecError::invalid(format!("{what} over TCP, which is not put together here"));
        match text.parse::<Protocol>()?.kind.on_the_wire() {
            Family::Cfdp => Ok(Self::Cfdp),
            Family::Ltp | Family::CfdpLtp => Ok(Self::Ltp),
            Family::Saratoga => Ok(Self::Saratoga),
            Family::Norm => Ok(Self::Norm),
            Family::OverTcp => Err(pieces("FTP is text")),
            Family::Bundles => Err(pieces("bundles come in pieces")),
        }
    }
}

impl Language {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Self; 4] = [Self::Cfdp, Self::Ltp, Self::Saratoga, Self::Norm];

    /// One line about a datagram.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn line(self, datagram: &[u8]) -> Result<String, DecodeError> {
        match self {
            Self::Cfdp => Pdu::decode(datagram).map(|pdu| pdu.to_string()),
            Self::Ltp => Segment::decode(datagram).map(|segment| segment.to_string()),
            Self::Saratoga => match saratoga::Packet::decode(datagram) {
                // Which version a packet is of stands in its first bits.
                Err(error) => saratoga::v0::Packet::decode(datagram)
                    .map(|packet| format!("version 0 {packet}"))
                    .map_err(|_| error),
                Ok(packet) => Ok(packet.to_string()),
            },
            Self::Norm => norm::Message::decode(datagram).map(|message| message.to_string()),
        }
    }

    /// The same where the protocol is only guessed: what almost any octets could be counts for
    /// nothing.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or that it could be anything.
    pub fn likely(self, datagram: &[u8]) -> Result<String, DecodeError> {
        match self {
            Self::Cfdp | Self::Ltp => {}
            Self::Saratoga => {
                // A PDU of CFDP may begin as a beacon does, whose name takes all that follows.
                let name = match saratoga::Packet::decode(datagram) {
                    Ok(saratoga::Packet::Beacon(beacon)) => Some(beacon.eid),
                    Ok(_) => None,
                    Err(_) => match saratoga::v0::Packet::decode(datagram) {
                        Ok(saratoga::v0::Packet::Beacon(beacon)) => Some(beacon.eid),
                        Ok(_) | Err(_) => None,
                    },
                };
                if name.is_some_and(|name| !is_text(name)) {
                    return Err(DecodeError::invalid(0, "a beacon whose name is no text"));
                }
            }
            Self::Norm => match norm::Message::decode(datagram)?.body {
                norm::Body::Report(_) | norm::Body::Command(norm::Command::Other { .. }) => {
                    return Err(DecodeError::invalid(0, "a message without a defined form"));
                }
                norm::Body::Info(_)
                | norm::Body::Data(_)
                | norm::Body::Command(_)
                | norm::Body::Nack(_)
                | norm::Body::Ack(_) => {}
            },
        }
        self.line(datagram)
    }
}

fn is_text(octets: &[u8]) -> bool {
    std::str::from_utf8(octets).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// How many datagrams each protocol can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Votes([u64; Language::ALL.len()]);

impl Votes {
    /// Counts a datagram.
    pub fn hear(&mut self, datagram: &[u8]) {
        for (count, language) in self.0.iter_mut().zip(Language::ALL) {
            *count += u64::from(language.likely(datagram).is_ok());
        }
    }

    /// The protocol that can read most of them; of equals the first.
    #[must_use]
    pub fn most(&self) -> Language {
        // `max_by_key` takes the last of equals.
        let best = Language::ALL.into_iter().zip(self.0).rev().max_by_key(|(_, count)| *count);
        best.map_or(Language::Cfdp, |(language, _)| language)
    }
}

/// The line about one PDU, of the protocol that is named, or of the first that can read it.
///
/// # Errors
///
/// Why none of them can.
pub fn one(bytes: &[u8], asked: Option<Language>) -> Result<String, String> {
    let told = |language: &Language| match asked {
        Some(_) => language.line(bytes),
        None => language.likely(bytes),
    };
    let tried = asked.map_or(Language::ALL.to_vec(), |language| vec![language]);
    let mut reasons = Vec::new();
    for language in &tried {
        match told(language) {
            Ok(text) => return Ok(text),
            Err(error) => reasons.push(format!("not {language}: {error}")),
        }
    }
    Err(reasons.join("; "))
}
