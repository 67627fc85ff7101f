//! IP interface of a driver: a TUN device and changes of its state.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use engine::{Engine, Input, PathEvent, PathId, PathInfo, Receive, TxBuf};

use crate::TunStatistics;
use crate::frame::{HEADER_MAX, Shape, Train, Vnet, complete};
use crate::interface::{Condition, Monitor};
use crate::pump::Pump;
use crate::refusals::forgivable;
use crate::tun::{PACKET_MAX, Packet, Tun};

/// Maximum packets per batch.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Returns a buffer for packets to an interface. It holds the longest IP packet, longer than any
/// UDP datagram.
pub(crate) fn batch() -> TxBuf {
    TxBuf::with_limits(SEGMENTS_MAX, PACKET_MAX)
}

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A packet was passed to the engine.
    Packet,
    /// A packet was unreadable.
    Nonsense,
    /// No packet is waiting.
    Nothing,
}

/// An interface as an engine's path: the engine receives what this machine's kernel sends there,
/// and the reverse.
///
/// Packets of many segments reach the engine as a batch of equal length with complete checksums.
/// Adjacent packets of the engine's batch are joined into one.
#[derive(Debug)]
pub(crate) struct Port {
    tun: Tun,
    monitor: Monitor,
    path: PathId,
    condition: Condition,
    packet: Vec<u8>,
    batch: Vec<u8>,
    pub(crate) paused: bool,
    pub(crate) statistics: TunStatistics,
}

impl Port {
    /// Takes over a device, which has this name in the calling thread's network namespace.
    pub(crate) fn open(tun: Tun, name: &str, path: PathId) -> io::Result<Self> {
        Ok(Self {
            tun,
            monitor: Monitor::open(name)?,
            path,
            condition: Condition { up: false, mtu: 0 },
            packet: vec![0; PACKET_MAX],
            batch: Vec::new(),
            paused: false,
            statistics: TunStatistics::default(),
        })
    }

    /// Returns a descriptor that is readable when the state has changed.
    pub(crate) fn monitor(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }

    /// Returns the change since the last call, and its event for the engine.
    pub(crate) fn news(&mut self) -> io::Result<Option<(Condition, PathEvent)>> {
        let Some(condition) = self.monitor.news()?.filter(|news| *news != self.condition) else {
            return Ok(None);
        };
        let was_up = std::mem::replace(&mut self.condition, condition).up;
        Ok(match (was_up, condition.up) {
            (_, true) | (true, false) => Some((condition, self.event())),
            (false, false) => None,
        })
    }

    /// Returns the event for an engine that opens the path.
    pub(crate) fn event(&self) -> PathEvent {
        match self.condition {
            Condition { up: true, mtu } => PathEvent::Up(PathInfo::datagram(mtu)),
            Condition { up: false, .. } => PathEvent::Down,
        }
    }

    /// Reads a packet and passes it to the engine.
    pub(crate) fn read(&mut self, pump: &mut Pump<impl Engine>) -> io::Result<Read> {
        let read = match self.tun.read(&mut self.packet) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(Read::Nothing),
            // The interface is down, for example.
            Err(error) => return forgivable(error).map(|_| Read::Nothing),
        };
        let shape = match read {
            Packet::Unreadable => None,
            Packet::Whole(vnet, len) => {
                Shape::from_packet(&vnet, &self.packet[..len]).ok().map(|shape| (shape, len))
            }
        };
        let Some((shape, len)) = shape else {
            self.statistics.unreadable += 1;
            return Ok(Read::Nonsense);
        };
        self.statistics.reads += 1;
        self.statistics.packets_received += u64::from(shape.segments());
        let bytes = cut(&shape, &mut self.packet[..len], &mut self.batch);
        let receive =
            Receive { stride: shape.segment_len(0), ..Receive::datagram(self.path, bytes) };
        pump.pass(Input::Receive(receive));
        Ok(Read::Packet)
    }

    /// Writes the batch, adjacent packets joined.
    pub(crate) fn send(&mut self, tx: &TxBuf) -> io::Result<()> {
        let Self { tun, statistics, .. } = self;
        let mut packets = tx.datagrams().peekable();
        while let Some(first) = packets.next() {
            let mut rest = [&[][..]; SEGMENTS_MAX];
            let mut count = 1;
            let written = match Train::begin(first) {
                None => tun.write(&Vnet::default(), first, []),
                Some(mut train) => {
                    while let Some(next) = packets.next_if(|next| train.take(first, next)) {
                        rest[count] = next;
                        count += 1;
                    }
                    let mut header = [0; HEADER_MAX];
                    let (vnet, len) = train.header(first, &mut header);
                    rest[0] = first;
                    let payloads = rest[..count].iter().map(|packet| &packet[len..]);
                    tun.write(&vnet, &header[..len], payloads)
                }
            };
            statistics.writes += 1;
            match written {
                Ok(()) => statistics.packets_sent += count as u64,
                Err(error) => {
                    forgivable(error)?;
                    statistics.refused += count as u64;
                }
            }
        }
        Ok(())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// Cuts a packet into its segments, with their checksums.
fn cut<'a>(shape: &Shape, packet: &'a mut [u8], batch: &'a mut Vec<u8>) -> &'a [u8] {
    if shape.segments() == 1 {
        if let Some(checksum) = shape.checksum() {
            complete(packet, checksum);
        }
        return packet;
    }
    batch.clear();
    let mut header = [0; HEADER_MAX];
    for index in 0..shape.segments() {
        let start = batch.len();
        let (vnet, len) = shape.header(packet, index..index + 1, &mut header);
        batch.extend_from_slice(&header[..len]);
        batch.extend_from_slice(&packet[shape.payload(index..index + 1)]);
        if let Some(checksum) = vnet.checksum {
            complete(&mut batch[start..], checksum);
        }
    }
    batch
}
