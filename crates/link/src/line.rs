//! What PPP makes of packets between the two ends of a line: compressed headers, and a length that
//! depends on the bytes.

use std::collections::VecDeque;

use wire::ppp;
use wire::vj::{Compressor, Decompressor, Kind};

use crate::{Config, Fate, Framing};

/// How many connections' headers both ends keep (RFC 1332 §4).
pub use wire::vj::Slots as HeaderCompression;

/// The longest compressed header, and more than that.
const HEAD_MOST: usize = 24;

/// The two ends of a line that carries PPP, beside the [`Link`](crate::Link) that it is: a driver shows
/// each packet to [`enter`](Self::enter) before it pushes it, and to [`leave`](Self::leave) when it pops
/// it.
///
/// Compressed headers hold changes since the packet before: after a loss, packets are wrong or missing at
/// the far end until one comes with its whole header (RFC 1144 §4.1). Errors of the link strike the
/// compressed frame, and so do they if the far end gets it damaged.
#[derive(Debug)]
pub struct Line {
    framing: Framing,
    ends: Option<Ends>,
    /// What was entered and has not left, in this order.
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

/// What a line did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStats {
    /// Packets that entered with a compressed header.
    pub compressed: u64,
    /// TCP packets that entered with their slot and their whole header.
    pub uncompressed: u64,
    /// Packets that entered as they were.
    pub plain: u64,
    /// Bytes of IP packets that entered, and of what they became.
    pub before: u64,
    /// See [`before`](Self::before).
    pub after: u64,
    /// Packets that arrived and could not be restored.
    pub tossed: u64,
    /// Packets that were restored to something else, which TCP's checksum has to find.
    pub wrong: u64,
}

/// What of a packet is not in it any more: the front of the frame that stands for its first bytes.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    bytes: [u8; HEAD_MOST],
    len: u8,
    /// Bytes of the packet that it stands for.
    replaced: u8,
}

/// What comes out at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The packet as the link left it: whole, damaged or lost by its [`Fate`].
    Same,
    /// This packet, without damage to be applied.
    Changed(Vec<u8>),
    /// Nothing: the frame arrived, and no packet can be made of it.
    Tossed,
}

impl Line {
    /// The line of a link with this configuration; `None` if its packets are of no concern.
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

    /// What it did.
    #[must_use]
    pub fn stats(&self) -> &LineStats {
        &self.stats
    }

    /// Takes a packet that the link has room for, and returns how many bytes it has on the line, for
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
                // The slot is in the place of the protocol.
                head.put(&frame[..10], 10);
            }
            Kind::Compressed => {
                self.stats.compressed += 1;
                // Both headers are gone; the frame ends with the packet's data.
                let tcp = usize::from(packet[0] & 0x0f) * 4;
                let headers = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
                let data = packet.len() - headers;
                head.put(&frame[..frame.len() - data], headers);
            }
        }
        self.heads.push_back(head);
        self.framing.exact_len(protocol(packet, kind), frame)
    }

    /// The link did not take the packet that entered last. The far end will not have its header, so all
    /// connections begin anew.
    pub fn withdraw(&mut self) {
        if let Some(ends) = &mut self.ends {
            self.heads.pop_back();
            ends.compressor = Compressor::new(ends.slots);
        }
    }

    /// What comes of a packet that leaves the link, `packet` being what was entered.
    pub fn leave(&mut self, fate: &Fate, packet: &[u8]) -> Left {
        let Some(ends) = &mut self.ends else { return Left::Same };
        let Some(head) = self.heads.pop_front() else { return Left::Same };
        let damage = match fate {
            Fate::Lost(_) => {
                // The check sequence tells, or the carrier.
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
        // 24 bytes at most in place of 120 at most.
        (self.len, self.replaced) = (bytes.len() as u8, replaced as u8);
    }
}

/// PPP's protocol of a packet.
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
