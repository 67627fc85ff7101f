//! Packets in flight, in pooled buffers.

use std::net::SocketAddrV4;
use std::sync::Arc;

use engine::{Ecn, Time};
use wire::ip::{self, DONT_FRAGMENT, Ipv4, PROTOCOL_UDP};
use wire::udp::{self, Checksum, Udp};

/// Bytes of IPv4 and UDP headers in front of each datagram.
pub const HEADERS_LEN: usize = ip::HEADER_LEN + udp::HEADER_LEN;

/// An IPv4 packet inside a link.
#[derive(Debug)]
pub struct Packet {
    /// At least `len` bytes; bytes beyond are left from the buffer's earlier use. A packet to a
    /// group is in several links at once, all sharing this buffer.
    buffer: Arc<Vec<u8>>,
    len: usize,
    /// Counter of the packets pushed onto links in this world; identifies the packet in captures.
    pub(crate) serial: u64,
    /// Time at which it was pushed onto its current link.
    pub(crate) pushed: Time,
}

impl Packet {
    /// Returns the packet from its IP header on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Returns the packet from its IP header on, mutable; copies the buffer first if others share
    /// it.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut Arc::make_mut(&mut self.buffer)[..self.len]
    }

    /// Returns another handle to the packet, without a copy of its bytes.
    pub(crate) fn share(&self) -> Self {
        Self { buffer: Arc::clone(&self.buffer), ..*self }
    }

    /// Returns the data of a UDP datagram made by [`Pool::datagram`]; of any other packet, all of
    /// it.
    pub(crate) fn payload(&self) -> &[u8] {
        match self.bytes() {
            // Byte 9 is the protocol.
            bytes if bytes.get(9) == Some(&PROTOCOL_UDP) => {
                bytes.get(HEADERS_LEN..).unwrap_or_default()
            }
            bytes => bytes,
        }
    }
}

/// Addresses of a datagram, and options of its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) source: SocketAddrV4,
    pub(crate) destination: SocketAddrV4,
    pub(crate) id: u16,
    pub(crate) ttl: u8,
    pub(crate) ecn: Ecn,
    pub(crate) checksum: Checksum,
}

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<Arc<Vec<u8>>>,
}

impl Pool {
    /// Creates a packet around a datagram: the only copy of its data.
    pub(crate) fn datagram(&mut self, headers: &Headers, data: &[u8]) -> Packet {
        let mut shared = self.free.pop().unwrap_or_default();
        let buffer = Arc::get_mut(&mut shared).expect("no packet has a buffer that is free");
        let len = HEADERS_LEN + data.len();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        buffer[HEADERS_LEN..len].copy_from_slice(data);
        let ip = Ipv4 {
            traffic_class: ecn_bits(headers.ecn),
            total_len: u16::try_from(len).expect("a TxBuf takes no more than UDP can carry"),
            id: headers.id,
            fragment: DONT_FRAGMENT,
            ttl: headers.ttl,
            protocol: PROTOCOL_UDP,
            source: *headers.source.ip(),
            destination: *headers.destination.ip(),
        };
        let (head, datagram) = buffer[..len]
            .split_first_chunk_mut::<{ ip::HEADER_LEN }>()
            .expect("the buffer holds both headers");
        ip.encode(head);
        let ports = Udp { source: headers.source.port(), destination: headers.destination.port() };
        udp::encode(ports, ip.source, ip.destination, headers.checksum, datagram);
        Packet { buffer: shared, len, serial: 0, pushed: Time::ZERO }
    }

    /// Creates a packet of which an engine wrote every byte.
    pub(crate) fn packet(&mut self, bytes: &[u8]) -> Packet {
        let mut shared = self.free.pop().unwrap_or_default();
        let buffer = Arc::get_mut(&mut shared).expect("no packet has a buffer that is free");
        if buffer.len() < bytes.len() {
            buffer.resize(bytes.len(), 0);
        }
        buffer[..bytes.len()].copy_from_slice(bytes);
        Packet { buffer: shared, len: bytes.len(), serial: 0, pushed: Time::ZERO }
    }

    /// Creates a packet that replaces another: the incorrectly restored packet of a line.
    pub(crate) fn in_place_of(&mut self, packet: Packet, bytes: &[u8]) -> Packet {
        let other = Packet { serial: packet.serial, pushed: packet.pushed, ..self.packet(bytes) };
        self.recycle(packet);
        other
    }

    /// Takes a packet's buffer back if no other packet shares it.
    pub(crate) fn recycle(&mut self, packet: Packet) {
        if Arc::strong_count(&packet.buffer) == 1 {
            self.free.push(packet.buffer);
        }
    }
}

fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// Returns the ECN field of a packet's traffic class (RFC 3168 §5).
pub(crate) fn ecn(traffic_class: u8) -> Ecn {
    match traffic_class & 3 {
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        3 => Ecn::Ce,
        _ => Ecn::NotEct,
    }
}
