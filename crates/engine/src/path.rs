//! Paths: whom an engine talks to. Where that is (an address, a TCP connection, an LTP span, a
//! multicast group) is the driver's affair.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Ticket, Time};

/// A peer, group or connection, numbered by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// What a path carries.
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

/// What the driver knows of a path when it comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// What the path carries.
    pub kind: PathKind,
    /// The rate at which to send, in bit/s; `None` sends as fast as the driver takes.
    pub rate_bps: Option<u64>,
    /// Bytes the lower layers add to each datagram, counted by `rate_bps`.
    pub overhead: usize,
    /// The one-way light time to the peer, where it is known.
    pub owlt: Option<Duration>,
    /// The rate of the return link, in bit/s, where it is known.
    pub return_bps: Option<u64>,
    /// When the contact ends, where that is known.
    pub until: Option<Time>,
    /// The two ends of a stream, ours first, for protocols that carry addresses.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// The ticket of the [`StreamEffect::Connect`](crate::StreamEffect::Connect) or
    /// [`StreamEffect::Listen`](crate::StreamEffect::Listen) that brought it up.
    pub ticket: Option<Ticket>,
}

impl PathInfo {
    /// A datagram path of which nothing but the MTU is known.
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

    /// A stream of which nothing is known.
    #[must_use]
    pub fn stream() -> Self {
        Self { kind: PathKind::Stream, ..Self::datagram(0) }
    }

    /// Time the path's rate needs for a datagram of `len` bytes of protocol data.
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

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The path can be used, or what is known of it changed.
    Up(PathInfo),
    /// The path cannot be used: an outage, a contact's end, a closed connection. A stream that goes
    /// down before both its halves have ended was reset, or its peer does not answer.
    Down,
    /// Nothing the peer sends can arrive from now on: an outage of the return link, by a contact plan
    /// or schedule known beforehand. What was in flight has arrived.
    ///
    /// This state is independent of `Up` and `Down`, which leave it as it is: a path begins with its
    /// return up, and a driver repeats `ReturnDown` after each `Up` while it holds. Sending goes on
    /// while the path itself is up; timers that wait for the peer stand still while either
    /// direction is down. No event means that nothing is known of the return link.
    ReturnDown,
    /// Data from the peer can arrive again.
    ReturnUp,
    /// No room for one more MTU (datagram, message), or none at all (stream).
    Blocked,
    /// There is room again.
    Writable,
    /// The peer sends no more on this stream.
    ReadClosed,
    /// Bytes of a best-effort stream that did not come: zeros are handed in in their place. The end of
    /// the stream is told later.
    Missing {
        /// Bytes of the peer's stream before them.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// TLS is established; the names the peer's certificate carries.
    Secured(Vec<String>),
}

/// The ECN field of the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not take part.
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
/// begins and ends anywhere.
///
/// Both `path` and `from` are up when an engine is handed bytes: a driver that hears from a peer
/// it did not know numbers it and brings it up first.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// The path they arrived on; for a group, the group.
    pub path: PathId,
    /// Who sent them: the same as `path` unless that is a group.
    pub from: PathId,
    /// The congestion mark they carry.
    pub ecn: Ecn,
    /// Length of each datagram but the last, which may be shorter.
    pub stride: usize,
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
}

impl<'a> Receive<'a> {
    /// The longest piece of a stream, in bytes. An engine with less room than this left asks for
    /// [`PathEffect::PauseRead`](crate::PathEffect::PauseRead) before it is handed the next.
    pub const PIECE_MAX: usize = 65_536;

    /// One datagram from the peer of `path`.
    #[must_use]
    pub fn datagram(path: PathId, bytes: &'a [u8]) -> Self {
        Self { path, from: path, ecn: Ecn::NotEct, stride: bytes.len(), bytes }
    }

    /// The datagrams of the batch, in order. An empty datagram is one datagram.
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
