//! Bytes that a link layer adds to an IP packet.

use wire::ppp;

/// The frame around each IP packet, as far as the rate counts it.
///
/// Frames consist of header, packet and trailer. Bit errors strike any of the three, but not the
/// preamble and the gap between frames, which carry no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// The bare IP packet: for UDP over IPv4, 28 bytes more than the datagram's data.
    #[default]
    Raw,
    /// Ethernet II (IEEE 802.3 §3.1.1), without padding of short frames: 14 bytes of header.
    Ethernet {
        /// Count the frame check sequence, 4 bytes.
        fcs: bool,
        /// Count preamble and start frame delimiter, 8 bytes.
        preamble: bool,
        /// Count the gap between packets, 12 bytes.
        ifg: bool,
    },
    /// PPP in HDLC-like framing over bytes (RFC 1662 §3.1, §4): flag, address, control, 2 bytes of
    /// protocol, FCS, flag.
    Ppp {
        /// Length of the frame check sequence.
        fcs: Fcs,
        /// Whether address, control and protocol are compressed to 1 byte (RFC 1661 §6.5, §6.6).
        compressed: bool,
        /// Bytes spent on escaping 0x7d and 0x7e (no control characters mapped).
        stuffing: Stuffing,
        /// Whether each byte has a start and a stop bit, as on an asynchronous serial line (8N1).
        serial: bool,
    },
    /// PPP in bit-synchronous framing with the same fields (RFC 1662 §5.2): a zero bit follows
    /// five ones.
    Hdlc {
        /// Length of the frame check sequence.
        fcs: Fcs,
        /// Bits spent on stuffing, an estimate.
        stuffing: Stuffing,
    },
    /// A header of this many bytes.
    Custom(u16),
}

/// Length of PPP's frame check sequence (RFC 1662 §C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fcs {
    /// 16 bits, the default of PPP.
    #[default]
    Bits16,
    /// 32 bits.
    Bits32,
}

/// Cost of transparency. It depends on the data, but a link has only the length. A caller that has
/// the bytes passes the exact length to [`Link::push_framed`](crate::Link::push_framed), as
/// returned by a [`Line`](crate::Line).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stuffing {
    /// No cost.
    None,
    /// Average for random data, rounded up to a byte: 2 of 256 bytes are escaped, or a bit is
    /// stuffed every 62 (mean distance between runs of five ones).
    #[default]
    Random,
    /// Maximum: every byte escaped, or a bit stuffed after every fifth.
    Worst,
    /// Exact cost of each packet's bytes; computed from the length alone it is 0.
    Exact,
}

impl Framing {
    /// Returns the bytes added to each packet, without stuffing.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.idle() + self.header() + self.trailer()
    }

    /// Returns the bytes that the rate counts for an IP packet of `len` bytes.
    #[must_use]
    pub fn framed_len(&self, len: usize) -> usize {
        let stuffed = match self {
            Self::Raw | Self::Ethernet { .. } | Self::Custom(_) => 0,
            // A check sequence is as random as the packet; headers need no escapes.
            Self::Ppp { stuffing, fcs, .. } => match stuffing {
                Stuffing::None | Stuffing::Exact => 0,
                Stuffing::Random => (len + fcs.len()).div_ceil(128),
                Stuffing::Worst => len + fcs.len(),
            },
            Self::Hdlc { stuffing, fcs } => match stuffing {
                Stuffing::None | Stuffing::Exact => 0,
                Stuffing::Random => (len + fcs.len()).div_ceil(62),
                Stuffing::Worst => (len + fcs.len()).div_ceil(5),
            },
        };
        let bytes = len + self.overhead() + stuffed;
        if self.is_serial() { on_serial_line(bytes) } else { bytes }
    }

    fn is_serial(&self) -> bool {
        matches!(self, Self::Ppp { serial: true, .. })
    }

    /// Whether the length on the line depends on a packet's bytes.
    pub(crate) fn is_exact(&self) -> bool {
        match self {
            Self::Ppp { stuffing, .. } | Self::Hdlc { stuffing, .. } => {
                *stuffing == Stuffing::Exact
            }
            Self::Raw | Self::Ethernet { .. } | Self::Custom(_) => false,
        }
    }

    /// Returns the bytes that the rate counts for this PPP information field.
    pub(crate) fn exact_len(&self, protocol: u16, information: &[u8]) -> usize {
        let Self::Ppp { fcs, compressed, stuffing: Stuffing::Exact, serial } = *self else {
            return self.framed_len(information.len());
        };
        let ppp = ppp::Framing {
            accm: 0,
            fcs: match fcs {
                Fcs::Bits16 => ppp::Fcs::Bits16,
                Fcs::Bits32 => ppp::Fcs::Bits32,
            },
            compresses_address: compressed,
            compresses_protocol: compressed,
        };
        // Each frame has its own opening flag.
        let bytes = 1 + ppp.encoded_len(protocol, information);
        if serial { on_serial_line(bytes) } else { bytes }
    }

    /// Returns the counted bytes that carry no data an error could damage.
    pub(crate) fn idle(&self) -> usize {
        match self {
            Self::Ethernet { preamble, ifg, .. } => {
                usize::from(*preamble) * 8 + usize::from(*ifg) * 12
            }
            Self::Raw | Self::Ppp { .. } | Self::Hdlc { .. } | Self::Custom(_) => 0,
        }
    }

    /// Returns the length of the frame header before the packet.
    pub(crate) fn header(&self) -> usize {
        match self {
            Self::Raw => 0,
            Self::Ethernet { .. } => 14,
            Self::Ppp { compressed: true, .. } => 2,
            Self::Ppp { compressed: false, .. } | Self::Hdlc { .. } => 5,
            Self::Custom(bytes) => usize::from(*bytes),
        }
    }

    fn trailer(&self) -> usize {
        match self {
            Self::Raw | Self::Custom(_) => 0,
            Self::Ethernet { fcs, .. } => usize::from(*fcs) * 4,
            Self::Ppp { fcs, .. } | Self::Hdlc { fcs, .. } => fcs.len() + 1,
        }
    }
}

/// Returns the counted bytes for this many bytes with start and stop bits.
fn on_serial_line(bytes: usize) -> usize {
    (bytes * 10).div_ceil(8)
}

impl Fcs {
    fn len(self) -> usize {
        match self {
            Self::Bits16 => 2,
            Self::Bits32 => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_known_frames() {
        let ethernet = |fcs, preamble, ifg| Framing::Ethernet { fcs, preamble, ifg };
        assert_eq!(Framing::Raw.framed_len(1_500), 1_500);
        assert_eq!(ethernet(false, false, false).framed_len(1_039), 1_053);
        assert_eq!(ethernet(true, true, true).framed_len(1_500), 1_538);
        assert_eq!(Framing::Custom(7).framed_len(10), 17);
        let ppp = |compressed, stuffing| Framing::Ppp {
            fcs: Fcs::Bits16,
            compressed,
            stuffing,
            serial: false,
        };
        assert_eq!(ppp(false, Stuffing::None).framed_len(1_500), 1_508);
        assert_eq!(ppp(true, Stuffing::None).framed_len(1_500), 1_505);
        // 1,502 bytes * 2 / 256 = 11.7 escapes.
        assert_eq!(ppp(false, Stuffing::Random).framed_len(1_500), 1_520);
        assert_eq!(ppp(false, Stuffing::Worst).framed_len(1_500), 3_010);
        let hdlc = |stuffing| Framing::Hdlc { fcs: Fcs::Bits32, stuffing };
        // 1,504 bytes / 62 = 24.3.
        assert_eq!(hdlc(Stuffing::Random).framed_len(1_500), 1_535);
        assert_eq!(hdlc(Stuffing::Worst).framed_len(1_500), 1_811);
    }
}
