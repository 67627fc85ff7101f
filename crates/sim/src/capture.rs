//! A capture at one interface, in order of time, with the fate of each packet as a comment.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use engine::Time;

use crate::pcap::{Direction, LinkType, Writer};

/// Everything one interface sends and receives.
///
/// A packet's fate is known long after it was sent, and comments cannot be added to what is
/// written, so records wait until all before them are complete.
pub(crate) struct Capture {
    pub(crate) host: usize,
    pub(crate) peer: usize,
    writer: Writer<Box<dyn Write + Send>>,
    interface: u32,
    link_type: LinkType,
    waiting: VecDeque<Waiting>,
    free: Vec<Vec<u8>>,
    error: Option<io::Error>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("host", &self.host)
            .field("peer", &self.peer)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

struct Waiting {
    serial: u64,
    at: Time,
    direction: Direction,
    bytes: Vec<u8>,
    /// `None` while the packet's fate is open.
    comment: Option<Comment>,
}

enum Comment {
    Nothing,
    Says(String),
}

/// Who stands at the two ends of the wire, for the made-up Ethernet addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
}

impl Capture {
    pub(crate) fn new(
        (host, peer): (usize, usize),
        name: &str,
        link_type: LinkType,
        sink: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let mut writer = Writer::new(sink)?;
        let interface = writer.interface(name, link_type)?;
        let (waiting, free) = (VecDeque::new(), Vec::new());
        Ok(Self { host, peer, writer, interface, link_type, waiting, free, error: None })
    }

    /// A packet was sent; its fate follows through [`Capture::resolve`].
    pub(crate) fn sent(&mut self, at: Time, serial: u64, ends: Ends, packet: &[u8]) {
        let bytes = self.frame(ends, packet);
        let direction = Direction::Out;
        self.waiting.push_back(Waiting { serial, at, direction, bytes, comment: None });
    }

    /// A packet arrived.
    pub(crate) fn received(&mut self, at: Time, serial: u64, ends: Ends, packet: &[u8]) {
        let bytes = self.frame(ends, packet);
        let (direction, comment) = (Direction::In, Some(Comment::Nothing));
        self.waiting.push_back(Waiting { serial, at, direction, bytes, comment });
        self.write_complete();
    }

    /// The fate of a packet that was sent; `None` when there is nothing to say of it.
    pub(crate) fn resolve(&mut self, serial: u64, says: Option<&str>) {
        let sent = |record: &&mut Waiting| {
            record.serial == serial && matches!(record.direction, Direction::Out)
        };
        if let Some(record) = self.waiting.iter_mut().find(sent) {
            record.comment = Some(match says {
                Some(says) => Comment::Says(says.to_owned()),
                None => Comment::Nothing,
            });
        }
        self.write_complete();
    }

    /// Writes what waits, fates open or not, and reports the first error of the whole capture.
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
            Some(Comment::Says(says)) => Some(says.as_str()),
            None => Some("under way when the capture ended"),
        };
        if self.error.is_none() {
            let bytes = (&[][..], &record.bytes[..]);
            let (interface, direction) = (self.interface, record.direction);
            let written = self.writer.packet(record.at, interface, direction, bytes, comment);
            self.error = written.err();
        }
        self.free.push(record.bytes);
    }

    fn frame(&mut self, ends: Ends, packet: &[u8]) -> Vec<u8> {
        let mut bytes = self.free.pop().unwrap_or_default();
        bytes.clear();
        if self.link_type == LinkType::Ethernet {
            bytes.extend_from_slice(&address(ends.to));
            bytes.extend_from_slice(&address(ends.from));
            bytes.extend_from_slice(&[0x08, 0x00]);
        }
        bytes.extend_from_slice(packet);
        bytes
    }
}

/// A locally administered Ethernet address made from the host's IPv4 address.
fn address(host: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = host.octets();
    [0x02, 0x00, a, b, c, d]
}
