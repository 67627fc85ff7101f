//! Limit of what a peer is sent before it has proved that it receives.
//!
//! The source address of a datagram can be forged. A host that sends more than it receives from an
//! address amplifies an attack on the true owner of the address. Bytes count without the headers
//! of UDP and IP; a limit on packets makes the ratio hold with those headers, too.

use crate::FACTOR;

/// Bytes and packets that a peer may still be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    bytes: u64,
    packets: u64,
}

impl Allowance {
    /// Notes a received packet.
    pub fn received(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_add(FACTOR * len as u64);
        self.packets = self.packets.saturating_add(FACTOR);
    }

    /// Bytes that may be sent.
    pub fn bytes(self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Whether a packet of this length may be sent.
    pub fn admits(self, len: usize) -> bool {
        self.packets > 0 && self.bytes >= len as u64
    }

    /// Notes a packet to be sent; `false` if it exceeds the allowance and must not be sent.
    pub fn take(&mut self, len: usize) -> bool {
        let admits = self.admits(len);
        if admits {
            self.bytes -= len as u64;
            self.packets -= 1;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_the_bytes_and_packets_are_allowed() {
        let mut allowance = Allowance::default();
        assert!(!allowance.take(0), "nothing was received");
        allowance.received(10);
        assert!(!allowance.take(31) && allowance.take(20) && !allowance.take(11));
        assert!(allowance.take(1) && allowance.take(1) && !allowance.take(1), "three packets");
        allowance.received(10);
        assert!(allowance.take(38) && !allowance.take(1));
    }
}
