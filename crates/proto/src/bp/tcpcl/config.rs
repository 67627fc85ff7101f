//! What the layer is told.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::PathId;
use wire::bp7::Eid;
use wire::tcpcl4::Bounds;

use super::super::layer::LinkId;
use super::protocol::Protocol;

/// Settings of a [`Tcpcl`](super::Tcpcl).
#[derive(Clone, Debug)]
pub struct Config {
    /// This node, as it tells its peers; nobody if it does not say.
    pub node: Eid,
    /// Neighbours to which it connects, and the paths to them.
    pub peers: BTreeMap<LinkId, Peer>,
    /// What is spoken.
    pub protocol: Protocol,
    /// Whether streams are secured. Only version 4 of TCPCL can that.
    pub tls: Tls,
    /// What the certificate of a peer whose stream is secured must prove before bundles cross.
    pub proof: Proof,
    /// Seconds between signs of life; 0 for none. The lesser of both sides' holds (RFC 9174 §5.1.1). Over
    /// MTCP and STCP only who connects gives such signs, and nobody waits for them.
    pub keepalive_s: u16,
    /// Octets of data in a segment that is sent, at most: what else is to be sent waits so long.
    pub segment: usize,
    /// Octets of data that a segment of a peer may have.
    pub segment_mru: u64,
    /// Octets that a bundle of a peer may have.
    pub transfer_mru: u64,
    /// How long a peer may take until the session is established, and to end it.
    pub patience: Duration,
    /// How long to wait until a connection is tried again, at first and at most.
    pub reconnect: (Duration, Duration),
    /// Bounds.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: Eid::None,
            peers: BTreeMap::new(),
            protocol: Protocol::Tcpcl4,
            tls: Tls::Never,
            proof: Proof::Authority,
            keepalive_s: 30,
            segment: 64 << 10,
            segment_mru: 16 << 20,
            transfer_mru: 16 << 30,
            patience: Duration::from_secs(60),
            reconnect: (Duration::from_secs(1), Duration::from_secs(600)),
            limits: Limits::default(),
        }
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

/// Bounds on what the layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions, those included that begin.
    pub sessions: usize,
    /// Bundles under way to a neighbour at one time.
    pub window: usize,
    /// Octets of bundles under way to a neighbour at one time, up to which there may be more of them than `window`.
    pub window_octets: u64,
    /// Bundles and parts of bundles of a peer that are not acknowledged, before it is held back.
    pub unanswered: usize,
    /// Octets of data of a session that are sent and not acknowledged, beyond which no segment is.
    pub unacknowledged: u64,
    /// Octets that are read ahead of a bundle that is in a file.
    pub read_ahead: usize,
    /// Of messages.
    pub messages: Bounds,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1024,
            window: 64,
            window_octets: 0,
            unanswered: 4096,
            unacknowledged: u64::MAX,
            read_ahead: 512 << 10,
            messages: Bounds::default(),
        }
    }
}
