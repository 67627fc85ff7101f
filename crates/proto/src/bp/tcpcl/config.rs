//! The settings of the layer.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::bp7::Eid;
use wire::tcpcl4::Bounds;

use super::super::layer::LinkId;
use super::protocol::Protocol;
use crate::settings;
use crate::settings::form::{Leaf, OFF, Size};
use crate::settings::{Base, Kind, Value, Wrong};

settings! {
    /// Settings of a [`Tcpcl`](super::Tcpcl).
    #[derive(Clone, Debug)]
    pub struct Config [check: Self::order_reconnects] {
        /// The node, as peers see it; `None` does not name it.
        pub node: Eid = Eid::None,
        /// Neighbours to which it connects, and the paths to them.
        pub peers: BTreeMap<LinkId, Peer> = BTreeMap::new(),
        /// The protocol over streams.
        pub protocol: Protocol = Protocol::Tcpcl4,
        /// Security of streams, which TCPCL has from version 4 on.
        pub tls: Tls = Tls::Never,
        /// Proof that the certificate of a peer on a secured stream must give before bundles cross.
        pub proof: Proof = Proof::Authority,
        /// Time between keepalives, or `off`. The lesser of both sides' holds (RFC 9174 §5.1.1). Over
        /// MTCP and STCP only the side that connects sends them, and nobody waits for them.
        pub keepalive_s("keepalive"): u16 as WholeSeconds = 30,
        /// Most bytes of data in a segment that is sent: everything else waits so long.
        pub segment: usize as Size [Least(1)] = 64 << 10,
        /// Bytes of data that a segment of a peer may have.
        pub segment_mru: u64 = 16 << 20,
        /// Bytes that a bundle of a peer may have.
        pub transfer_mru: u64 = 16 << 30,
        /// Time that a peer may take until the session is established, and to end it.
        pub patience: Duration as Span [Interval] = Duration::from_secs(60),
        /// Time after which a connection is tried again; twice as long after each further failure.
        pub reconnect: Duration as Span [Interval] = Duration::from_secs(1),
        /// The longest of these times.
        pub reconnect_max: Duration as Span [Interval] = Duration::from_secs(600),
        /// Bounds on what the layer holds.
        pub limits: Limits as Inline = Limits::default(),
    }
}

impl Config {
    fn order_reconnects(&mut self) -> Result<(), Wrong> {
        self.reconnect_max = self.reconnect_max.max(self.reconnect);
        Ok(())
    }
}

/// Form of whole seconds; none are `off`.
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

/// Form of bytes without a bound where it is `off`.
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

/// A neighbour to which the layer connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The stream to it.
    pub path: PathId,
    /// The name that its certificate must carry.
    pub server_name: String,
}

/// Whether streams are secured (RFC 9174 §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// They are not.
    Never,
    /// They are where both sides can.
    IfBothCan,
    /// A peer that cannot is not spoken with.
    Always,
}

/// What the certificate of a peer must prove (RFC 9174 §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// That an authority is trusted, which the driver looks at.
    Authority,
    /// Also that it is the node that it says it is, and over these links that it is this one (§4.4.4.3).
    Node(BTreeMap<LinkId, Eid>),
}

settings! {
    /// Bounds on what the layer holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Sessions, those included that begin.
        pub sessions: usize = 1024,
        /// Bundles under way to a neighbour at one time.
        pub window: usize as Number [Least(1)] = 64,
        /// Bytes of bundles under way to a neighbour at one time, up to which there may be more of
        /// them than `window`.
        pub window_bytes: u64 = 0,
        /// Bundles and parts of bundles of a peer that are not acknowledged, before it is held back.
        pub unanswered: usize = 4096,
        /// Bytes of data of a session that are sent and not acknowledged, beyond which no segment is
        /// sent; or `off`.
        pub unacknowledged: u64 as Unbounded [Least(1)] = u64::MAX,
        /// Bytes that are read ahead of a bundle in a file.
        pub read_ahead: usize = 512 << 10,
        /// Bounds of messages.
        pub messages: Bounds = Bounds::default(),
    }
}
