//! Settings of the layer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use session::settings;
use session::settings::form::{Leaf, OFF, Size};
use session::settings::{Base, Kind, Value, Wrong};

use super::super::admission::Admission;
use super::super::layer::LinkId;
use super::protocol::Protocol;
use crate::codec::bp7::Eid;
use crate::codec::tcpcl4::Bounds;

settings! {
    /// Settings of a [`Tcpcl`](super::Tcpcl).
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::order_reconnects] {
        /// Node ID announced to peers; `None` announces none.
        pub node: Eid = Eid::None,
        /// Neighbours to connect to, and the paths to them.
        pub peers: BTreeMap<LinkId, Peer> = BTreeMap::new(),
        /// The protocol over streams.
        pub protocol: Protocol = Protocol::Tcpcl4,
        /// TLS on streams, available from version 4 of TCPCL on.
        pub tls: Tls = Tls::Never,
        /// Proof required of a peer's certificate on a secured stream.
        pub proof: Proof = Proof::Authority,
        /// Keepalive interval, or `off`; the lesser of both sides applies (RFC 9174 §5.1.1). Over
        /// MTCP and STCP only the connecting side sends keepalives, and no timeout depends on them.
        pub keepalive_s("keepalive"): u16 as WholeSeconds = 30,
        /// Longest segment sent, in bytes of data: other messages wait that long.
        pub segment: usize as Size [Least(1)] = 64 << 10,
        /// Longest segment accepted, in bytes of data.
        pub segment_mru: u64 = 16 << 20,
        /// Longest bundle accepted, in bytes.
        pub transfer_mru: u64 = 16 << 30,
        /// Timeout for establishing a session, and for ending it.
        pub patience: Duration as Span [Interval] = Duration::from_secs(60),
        /// First pause before a connection is retried; doubled after each further failure.
        pub reconnect: Duration as Span [Interval] = Duration::from_secs(1),
        /// Longest pause before a connection is retried.
        pub reconnect_max: Duration as Span [Interval] = Duration::from_secs(600),
        /// Timeout for the contact header of a peer that connects, at most `patience`.
        pub greeting: Duration = Duration::from_secs(60),
        /// Silence after which the session of a stranger without keepalives ends (RFC 9174 §6.2).
        pub idle: Option<Duration> = None,
        /// Silence within a transfer after which the session of its sender ends.
        pub stall: Option<Duration> = None,
        /// Peers that may connect, and the names that they may have.
        pub admission: Admission = Admission::default(),
        /// Bounds on the layer's memory.
        pub limits: Limits as Inline = Limits::default(),
    }
}

impl Config {
    fn order_reconnects(&mut self) -> Result<(), Wrong> {
        self.reconnect_max = self.reconnect_max.max(self.reconnect);
        Ok(())
    }
}

/// Form of whole seconds; 0 is `off`.
#[derive(Debug)]
pub struct WholeSeconds;

impl Leaf<u16> for WholeSeconds {
    fn kind() -> Kind {
        Kind::from(Base::Span).or(OFF)
    }

    fn get(seconds: &u16) -> Option<Value> {
        Some(match *seconds {
            0 => Value::Word(OFF),
            seconds => Value::Span(Duration::from_secs(seconds.into())),
        })
    }

    fn set(seconds: &mut u16, value: Value) -> Result<(), String> {
        let span = match value {
            Value::Span(span) if span.subsec_nanos() > 0 => None,
            Value::Span(span) => u16::try_from(span.as_secs()).ok(),
            _ => Some(0),
        };
        *seconds = span.ok_or(" is whole seconds up to 65535; 0 and \"off\" send none")?;
        Ok(())
    }
}

/// Form of a number of bytes; `off` is unbounded.
#[derive(Debug)]
struct Unbounded;

impl Leaf<u64> for Unbounded {
    fn kind() -> Kind {
        Kind::from(Base::Size).or(OFF)
    }

    fn get(most: &u64) -> Option<Value> {
        if *most == u64::MAX { Some(Value::Word(OFF)) } else { Size::get(most) }
    }

    fn set(most: &mut u64, value: Value) -> Result<(), String> {
        if value == Value::Word(OFF) {
            *most = u64::MAX;
            return Ok(());
        }
        Size::set(most, value)
    }
}

/// A neighbour to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The stream to it.
    pub path: PathId,
    /// Name required in its certificate.
    pub server_name: String,
    /// Its node ID; `None` is the one that it announces.
    pub node: Option<Eid>,
}

/// Use of TLS (RFC 9174 §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    Never,
    /// If both sides support it.
    IfBothCan,
    /// Always: peers without it are rejected.
    Always,
}

/// Proof required of a peer's certificate (RFC 9174 §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A trusted authority signed it, which the driver checks.
    Authority,
    /// It also names the node ID that the peer announces, which over these links must be this one
    /// (§4.4.4.3).
    Node(BTreeMap<LinkId, Eid>),
}

settings! {
    /// Bounds on the layer's memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions, including those being established. Neighbours have places that strangers do
        /// not get, up to half of all.
        pub sessions: usize = 1024,
        /// Sessions that the peers at one address may open.
        pub per_address: usize = 1024,
        /// Bundles in transit to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 64,
        /// Bytes in transit to a neighbour below which there may be more bundles than `window`.
        pub window_bytes: u64 = 0,
        /// Unacknowledged bundles and segments of a peer before it is paused.
        pub unanswered: usize = 4096,
        /// Unacknowledged bytes of a session beyond which no segment is sent, or `off`.
        pub unacknowledged: u64 as Unbounded [Least(1)] = u64::MAX,
        /// Bytes read ahead from a bundle's file.
        pub read_ahead: usize = 512 << 10,
        /// Bounds on messages.
        pub messages: Bounds = Bounds::default(),
    }
}
