//! PPP on a line: compressed headers, and a length that depends on the bytes.

use std::collections::VecDeque;

use wire::ppp;
use wire::vj::{Compressor, Decompressor, Kind};

use crate::{Config, Fate, Framing};

/// Number of connections whose headers both ends keep (RFC 1332 §4).
pub use wire::vj::Slots as HeaderCompression;

/// Upper bound of the length of a compressed header.
const HEAD_MOST: usize = 24;

/// Both ends of a line that carries PPP, used next to its [`Link`](crate::Link). A driver passes
/// each packet to [`enter`](Self::enter) before it pushes it, and to [`leave`](Self::leave) when
/// it pops it.
///
/// Compressed headers hold changes relative to the previous packet. After a loss, packets are
/// wrong or missing at the far end until one arrives with its whole header (RFC 1144 §4.1). Errors
/// of the link strike the compressed frame, so a damaged frame has the same effect.
#[derive(Debug)]
pub struct Line {
    framing: Framing,
    ends: Option<Ends>,
    /// Heads of packets that entered and have not left, in order.
    heads: VecDeque<Head>,
    scratch: Vec<u8>,
    frame: Vec<u8>,
    stats: LineStats,
}

#[derive(Debug)]
struct Ends {
    slots: HeaderCompression,
    compressor: Compressor,
    decompressor: Decompressor,
}

/// Counters of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Packets that entered with a compressed header.
    pub compressed: u64,
    /// TCP packets that entered with their slot number and whole header.
    pub uncompressed: u64,
    /// Packets that entered unchanged.
    pub plain: u64,
    /// Bytes of IP packets that entered.
    pub before: u64,
    /// Bytes of these packets after compression.
    pub after: u64,
    /// Packets that arrived and could not be restored.
    pub tossed: u64,
    /// Packets restored incorrectly, to be detected by TCP's checksum.
    pub wrong: u64,
}

/// Front of the frame, which replaces the packet's first bytes.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    bytes: [u8; HEAD_MOST],
    len: u8,
    /// Number of bytes of the packet that it replaces.
    replaced: u8,
}

/// Result at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The packet as it left the link: whole, damaged or lost by its [`Fate`].
    Same,
    /// This packet, without damage to apply.
    Changed(Vec<u8>),
    /// No packet: the frame arrived and could not be restored.
    Tossed,
}

impl Line {
    /// Creates the line of a link with this configuration; `None` if neither header compression nor
    /// exact stuffing needs the packets' bytes.
    #[must_use]
    pub fn new(config: &Config) -> Option<Self> {
        let ends = config.header_compression.map(|slots| Ends {
            slots,
            compressor: Compressor::new(slots),
            decompressor: Decompressor::new(slots),
        });
        (ends.is_some() || config.framing.is_exact()).then(|| Self {
            framing: config.framing,
            ends,
            heads: VecDeque::new(),
            scratch: Vec::new(),
            frame: Vec::new(),
            stats: LineStats::default(),
        })
    }

    /// Returns its counters.
    #[must_use]
    pub fn stats(&self) -> &LineStats {
        &self.stats
    }

    /// Takes a packet that the link has room for, and returns its length on the line for
    /// [`Link::push_framed`](crate::Link::push_framed).
    pub fn enter(&mut self, packet: &[u8]) -> usize {
        self.stats.before += packet.len() as u64;
        let Some(ends) = &mut self.ends else {
            self.stats.plain += 1;
            self.stats.after += packet.len() as u64;
            return self.framing.exact_len(protocol(packet, Kind::Ip), packet);
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        let (kind, frame) = ends.compressor.compress(&mut self.scratch);
        self.stats.after += frame.len() as u64;
        let mut head = Head { kind, bytes: [0; HEAD_MOST], len: 0, replaced: 0 };
        match kind {
            Kind::Ip => self.stats.plain += 1,
            Kind::Uncompressed => {
                self.stats.uncompressed += 1;
                // The slot number replaces the protocol.
                head.put(&frame[..10], 10);
            }
            Kind::Compressed => {
                self.stats.compressed += 1;
                // Both headers have been read; the frame ends with the packet's data.
                let tcp = usize::from(packet[0] & 0x0f) * 4;
                let headers = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
                let data = packet.len() - headers;
                head.put(&frame[..frame.len() - data], headers);
            }
        }
        self.heads.push_back(head);
        self.framing.exact_len(protocol(packet, kind), frame)
    }

    /// Reports that the link did not take the packet that entered last. The far end will not have
    /// its header, so all connections restart with whole headers.
    pub fn withdraw(&mut self) {
        if let Some(ends) = &mut self.ends {
            self.heads.pop_back();
            ends.compressor = Compressor::new(ends.slots);
        }
    }

    /// Returns the packet as it arrives at the far end; `packet` is the packet that entered the
    /// link.
    pub fn leave(&mut self, fate: &Fate, packet: &[u8]) -> Left {
        let Some(ends) = &mut self.ends else { return Left::Same };
        let Some(head) = self.heads.pop_front() else { return Left::Same };
        let damage = match fate {
            Fate::Lost(_) => {
                // The check sequence or the carrier detects the loss.
                ends.decompressor.toss();
                return Left::Same;
            }
            Fate::Delivered if head.kind == Kind::Ip => return Left::Same,
            Fate::Delivered => None,
            Fate::Damaged(damage) => Some(damage),
        };
        self.frame.clear();
        self.frame.extend_from_slice(&head.bytes[..usize::from(head.len)]);
        self.frame.extend_from_slice(&packet[usize::from(head.replaced)..]);
        if let Some(damage) = damage {
            damage.apply(&mut self.frame);
        }
        self.scratch.clear();
        if ends.decompressor.decompress(head.kind, &self.frame, &mut self.scratch).is_err() {
            self.stats.tossed += 1;
            return Left::Tossed;
        }
        if damage.is_none() && self.scratch == packet {
            return Left::Same;
        }
        self.stats.wrong += u64::from(self.scratch != packet);
        Left::Changed(self.scratch.clone())
    }
}

impl Head {
    fn put(&mut self, bytes: &[u8], replaced: usize) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        // At most 24 bytes replace at most 120.
        (self.len, self.replaced) = (bytes.len() as u8, replaced as u8);
    }
}

/// Returns the PPP protocol of a packet.
fn protocol(packet: &[u8], kind: Kind) -> u16 {
    match kind {
        Kind::Compressed => ppp::VJ_COMPRESSED,
        Kind::Uncompressed => ppp::VJ_UNCOMPRESSED,
        Kind::Ip if packet.first().is_some_and(|first| first >> 4 == 6) => ppp::IPV6,
        Kind::Ip => ppp::IPV4,
    }
}

#[cfg(test)]
mod tests;
