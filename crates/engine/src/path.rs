//! Paths to an engine's peers. The driver alone handles their addresses (socket address, TCP
//! connection, LTP span, multicast group).

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Ticket, Time};

/// A peer, group or connection, numbered by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Kind of data a path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Datagrams of at most `mtu` bytes of protocol data; each may be lost or arrive twice.
    Datagram {
        /// Largest datagram, in bytes, without the lower layers' headers.
        mtu: usize,
    },
    /// An ordered stream of bytes.
    Stream,
    /// Whole messages of at most `max` bytes, delivered by the layer below.
    Message {
        /// Largest message, in bytes.
        max: usize,
    },
}

/// Properties of a path known to the driver when it comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Kind of data the path carries.
    pub kind: PathKind,
    /// Rate at which to send, in bit/s; `None` sends as fast as the driver takes.
    pub rate_bps: Option<u64>,
    /// Bytes the lower layers add to each datagram, counted by `rate_bps`.
    pub overhead: usize,
    /// One-way light time to the peer, if known.
    pub owlt: Option<Duration>,
    /// Rate of the return link, in bit/s, if known.
    pub return_bps: Option<u64>,
    /// End of the contact, if known.
    pub until: Option<Time>,
    /// Local and remote address of a stream, for protocols that carry addresses.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Ticket of the [`StreamEffect::Connect`](crate::StreamEffect::Connect) or
    /// [`StreamEffect::Listen`](crate::StreamEffect::Listen) that brought it up.
    pub ticket: Option<Ticket>,
}

impl PathInfo {
    /// Creates a datagram path of which only the MTU is known.
    #[must_use]
    pub fn datagram(mtu: usize) -> Self {
        Self {
            kind: PathKind::Datagram { mtu },
            rate_bps: None,
            overhead: 0,
            owlt: None,
            return_bps: None,
            until: None,
            ends: None,
            ticket: None,
        }
    }

    /// Creates a stream without known properties.
    #[must_use]
    pub fn stream() -> Self {
        Self { kind: PathKind::Stream, ..Self::datagram(0) }
    }

    /// Returns the time the path's rate needs for a datagram of `len` bytes of protocol data.
    #[must_use]
    pub fn transmission_time(&self, len: usize) -> Duration {
        match self.rate_bps {
            // 1,024 + 42 bytes at 10 Mbit/s: 8,528 bits * 1e9 / 1e7 = 852,800 ns.
            Some(rate) if rate > 0 => {
                let bits = (len + self.overhead) as u128 * 8;
                let nanos = (bits * 1_000_000_000).div_ceil(u128::from(rate));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            Some(_) | None => Duration::ZERO,
        }
    }
}

/// Change of a path's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The path is usable, or its known properties changed.
    Up(PathInfo),
    /// The path is unusable: an outage, the end of a contact, a closed connection. A stream that
    /// goes down before both its halves have ended was reset, or its peer does not respond.
    Down,
    /// Nothing from the peer can arrive from now on: an outage of the return link that a contact
    /// plan or schedule announced. Data in flight has arrived.
    ///
    /// This state is independent of `Up` and `Down`, which do not change it. A path starts with its
    /// return link up, and a driver repeats `ReturnDown` after each `Up` while it holds. Sending
    /// continues while the path itself is up; timers that wait for the peer are suspended while
    /// either direction is down. Without events, the state of the return link is unknown.
    ReturnDown,
    /// Data from the peer can arrive again.
    ReturnUp,
    /// No room for one more MTU (datagram, message), or for any byte (stream).
    Blocked,
    /// There is room again.
    Writable,
    /// The system refused datagrams of the batch that was pulled last for this path, for example
    /// because of a packet filter: they are lost. Reported before the next pull.
    Unsent,
    /// The peer sends no more on this stream.
    ReadClosed,
    /// Bytes of a best-effort stream that were lost: zeros are delivered in their place. The end of
    /// the stream is reported later.
    Missing {
        /// Bytes of the peer's stream before the gap.
        offset: u64,
        /// Length of the gap, in bytes.
        bytes: u64,
    },
    /// TLS is established; holds the names in the peer's certificate.
    Secured(Vec<String>),
}

/// The ECN field of the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable, code point 10.
    Ect0,
    /// ECN-capable, code point 01.
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// Bytes that arrived: one datagram, several received in one batch, or a piece of a stream, which
/// starts and ends anywhere.
///
/// Both `path` and `from` are up when an engine receives bytes. A driver that receives from an
/// unknown peer numbers it and brings it up first.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Path on which the bytes arrived; for a group, the group.
    pub path: PathId,
    /// Sender: the same as `path` except for a group.
    pub from: PathId,
    /// Congestion mark.
    pub ecn: Ecn,
    /// Length of each datagram but the last, which may be shorter.
    pub stride: usize,
    /// Datagrams, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> Receive<'a> {
    /// Longest piece of a stream, in bytes. An engine with less room left requests
    /// [`PathEffect::PauseRead`](crate::PathEffect::PauseRead) before it receives the next.
    pub const PIECE_MAX: usize = 65_536;

    /// One datagram from the peer of `path`.
    #[must_use]
    pub fn datagram(path: PathId, bytes: &'a [u8]) -> Self {
        Self { path, from: path, ecn: Ecn::NotEct, stride: bytes.len(), bytes }
    }

    /// Returns the datagrams of the batch, in order. An empty datagram counts as one datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(self.bytes);
        empty.into_iter().chain(self.bytes.chunks(self.stride.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_splits_at_its_stride() {
        let batch = Receive { stride: 4, ..Receive::datagram(PathId(1), b"aaaabbbbcc") };
        let parts: Vec<_> = batch.datagrams().collect();
        assert_eq!(parts, [&b"aaaa"[..], b"bbbb", b"cc"]);
        assert_eq!(Receive::datagram(PathId(1), b"").datagrams().count(), 1);
    }

    #[test]
    fn transmission_time_counts_the_overhead() {
        let info =
            PathInfo { rate_bps: Some(10_000_000), overhead: 42, ..PathInfo::datagram(1024) };
        assert_eq!(info.transmission_time(1024), Duration::from_nanos(852_800));
        assert_eq!(PathInfo::datagram(1024).transmission_time(1024), Duration::ZERO);
    }
}
