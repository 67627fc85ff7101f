//! A capture at the interfaces of one host, ordered by time, with each packet's fate as a comment.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use engine::Time;
use pcap::{Direction, LinkType, Writer};

/// All packets that some interfaces of a host send and receive.
///
/// A packet's fate is known long after it was sent, and comments cannot be added to written
/// records. Records therefore wait until all before them are complete.
pub(crate) struct Capture {
    host: usize,
    /// Each interface with the host it leads to.
    interfaces: Vec<(usize, Interface)>,
    writer: Writer<Box<dyn Write + Send>>,
    waiting: VecDeque<Waiting>,
    free: Vec<Vec<u8>>,
    error: Option<io::Error>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("host", &self.host)
            .field("interfaces", &self.interfaces)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

/// An interface in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    number: u32,
    link_type: LinkType,
}

struct Waiting {
    serial: u64,
    interface: Interface,
    at: Time,
    direction: Direction,
    bytes: Vec<u8>,
    /// `None` while the packet's fate is open.
    comment: Option<Comment>,
}

enum Comment {
    Nothing,
    Text(String),
}

/// Hosts at the two ends of the wire, for the made-up Ethernet addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
}

impl Capture {
    pub(crate) fn new(host: usize, sink: Box<dyn Write + Send>) -> io::Result<Self> {
        let writer = Writer::new(sink)?;
        let (waiting, free) = (VecDeque::new(), Vec::new());
        Ok(Self { host, interfaces: Vec::new(), writer, waiting, free, error: None })
    }

    /// Adds the interface towards `peer`.
    pub(crate) fn add_interface(
        &mut self,
        peer: usize,
        name: &str,
        link_type: LinkType,
    ) -> io::Result<Interface> {
        let interface = Interface { number: self.writer.interface(name, link_type)?, link_type };
        self.interfaces.push((peer, interface));
        Ok(interface)
    }

    /// Returns the interface at the first of two hosts that leads to the second, if captured.
    pub(crate) fn interface(&self, host: usize, peer: usize) -> Option<Interface> {
        let mut interfaces = self.interfaces.iter().filter(|_| host == self.host);
        interfaces.find(|(to, _)| *to == peer).map(|(_, interface)| *interface)
    }

    /// Records a sent packet; its fate follows in [`Capture::resolve`].
    pub(crate) fn sent(
        &mut self,
        at: Time,
        interface: Interface,
        serial: u64,
        ends: Ends,
        packet: &[u8],
    ) {
        let bytes = self.frame(interface, ends, packet);
        let (direction, comment) = (Direction::Out, None);
        self.waiting.push_back(Waiting { serial, interface, at, direction, bytes, comment });
    }

    /// Records a received packet.
    pub(crate) fn received(
        &mut self,
        at: Time,
        interface: Interface,
        serial: u64,
        ends: Ends,
        packet: &[u8],
    ) {
        let bytes = self.frame(interface, ends, packet);
        let (direction, comment) = (Direction::In, Some(Comment::Nothing));
        self.waiting.push_back(Waiting { serial, interface, at, direction, bytes, comment });
        self.write_complete();
    }

    /// Adds the fate of a sent packet; `None` if it has no comment.
    pub(crate) fn resolve(&mut self, serial: u64, comment: Option<&str>) {
        let sent = |record: &&mut Waiting| {
            record.serial == serial && matches!(record.direction, Direction::Out)
        };
        if let Some(record) = self.waiting.iter_mut().find(sent) {
            record.comment = Some(match comment {
                Some(comment) => Comment::Text(comment.to_owned()),
                None => Comment::Nothing,
            });
        }
        self.write_complete();
    }

    /// Writes all waiting records, even with unknown fates, and returns the first error of the
    /// capture.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        while let Some(record) = self.waiting.pop_front() {
            self.write(record);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    fn write_complete(&mut self) {
        while self.waiting.front().is_some_and(|record| record.comment.is_some()) {
            if let Some(record) = self.waiting.pop_front() {
                self.write(record);
            }
        }
    }

    fn write(&mut self, record: Waiting) {
        let comment = match &record.comment {
            Some(Comment::Nothing) => None,
            Some(Comment::Text(comment)) => Some(comment.as_str()),
            None => Some("under way when the capture ended"),
        };
        if self.error.is_none() {
            let (interface, direction) = (record.interface.number, record.direction);
            let written = self.writer.packet(
                record.at,
                interface,
                direction,
                &[][..],
                &record.bytes[..],
                comment,
            );
            self.error = written.err();
        }
        self.free.push(record.bytes);
    }

    fn frame(&mut self, interface: Interface, ends: Ends, packet: &[u8]) -> Vec<u8> {
        let mut bytes = self.free.pop().unwrap_or_default();
        bytes.clear();
        if interface.link_type == LinkType::Ethernet {
            bytes.extend_from_slice(&group_address(packet).unwrap_or(address(ends.to)));
            bytes.extend_from_slice(&address(ends.from));
            bytes.extend_from_slice(&[0x08, 0x00]);
        }
        bytes.extend_from_slice(packet);
        bytes
    }
}

/// Returns a locally administered Ethernet address made from the host's IPv4 address.
fn address(host: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = host.octets();
    [0x02, 0x00, a, b, c, d]
}

/// Returns the Ethernet address of the group a packet is sent to (RFC 1112 §6.4).
fn group_address(packet: &[u8]) -> Option<[u8; 6]> {
    let destination = Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?);
    let [_, b, c, d] = destination.octets();
    destination.is_multicast().then_some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}
