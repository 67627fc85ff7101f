//! Session over one stream.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use engine::Time;

use super::super::admission::Standing;
use super::super::layer::{LinkId, Neighbour, Refusal, TransferId};
use super::out::Out;
use super::protocol::{Agreement, Protocol};
use super::sending::Sending;
use crate::codec::bp7::Eid;
use crate::codec::tcpcl4::{Message, RefuseReason, SegmentFlags, TermReason};

/// Peer of a session.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    /// Its address, if known.
    pub(super) address: Option<IpAddr>,
    /// By its address at first, then by its name.
    pub(super) standing: Standing,
    /// Its node ID, as far as it counts.
    pub(super) node: Option<Eid>,
    /// Time of the stream's start.
    pub(super) since: Time,
}

/// Phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for the peer's contact header.
    Contact,
    /// Establishing TLS.
    Securing,
    /// Waiting for the peer's SESS_INIT.
    Init,
    /// Established.
    Established,
}

/// A bundle being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub(super) id: TransferId,
    pub(super) transfer: u64,
    pub(super) received: u64,
    /// Length in bytes, if announced.
    pub(super) total: Option<u64>,
    /// Whether it was refused: the rest is discarded.
    pub(super) is_unwanted: bool,
}

/// Reply to a segment. Replies are sent in the order of the segments (RFC 9174 §5.2.3).
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Ack {
        flags: SegmentFlags,
        transfer: u64,
        length: u64,
    },
    /// Waiting for the agent's decision.
    Whole {
        id: TransferId,
        flags: SegmentFlags,
        transfer: u64,
        length: u64,
    },
    Refuse {
        reason: RefuseReason,
        transfer: u64,
    },
}

/// TLS state of a session's stream.
#[derive(Debug, Default)]
pub(super) struct Security {
    /// If set, TLS starts when all cleartext bytes have been sent: the name required in the peer's
    /// certificate, and the bytes of TLS received already.
    pub(super) secures: Option<(Option<String>, Bytes)>,
    /// Names in the peer's certificate, once the stream is secured.
    pub(super) names: Option<Vec<String>>,
}

impl Security {
    /// Whether the peer's certificate names this node ID.
    pub(super) fn names_itself(&self, node: &str) -> bool {
        self.names.iter().flatten().any(|name| name == node)
    }
}

/// Incomplete messages of the peer.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Beginning of a message.
    pub(super) beginning: Vec<u8>,
    /// Missing data bytes of the current segment, and its flags.
    pub(super) segment: Option<(u64, SegmentFlags)>,
    pub(super) coming: Option<Coming>,
    /// Bundles started by the peer, where the protocol has no transfer numbers.
    pub(super) transfers_begun: u64,
    /// Length of the next bundle, if announced.
    pub(super) next_length: Option<u64>,
    /// Time of the last data of a transfer.
    pub(super) last_data: Time,
}

impl Incoming {
    /// The beginning of a message, with the bytes that follow. A message that comes whole is not
    /// copied.
    pub(super) fn gather<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.beginning.is_empty() {
            return bytes.into();
        }
        self.beginning.extend_from_slice(bytes);
        std::mem::take(&mut self.beginning).into()
    }
}

/// Timers that show both ends the other is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) keepalive_s: u16,
    pub(super) last_sent: Time,
    pub(super) last_received: Time,
}

impl Silence {
    /// Interval of keepalives, if there are any.
    pub(super) fn interval(self) -> Option<Duration> {
        (self.keepalive_s > 0).then(|| Duration::from_secs(self.keepalive_s.into()))
    }
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: LinkId,
    pub(super) is_active: bool,
    pub(super) peer: Remote,
    pub(super) phase: Phase,
    pub(super) agreement: Agreement,
    pub(super) tls: Security,
    /// The neighbour reported to the agent.
    pub(super) neighbour: Option<Neighbour>,
    pub(super) incoming: Incoming,
    pub(super) replies: VecDeque<Reply>,
    pub(super) sending: VecDeque<Sending>,
    pub(super) next_transfer: u64,
    /// Bytes to send next.
    pub(super) out: Out,
    pub(super) is_blocked: bool,
    pub(super) is_paused: bool,
    /// Whether the agent has paused the peer.
    pub(super) is_held: bool,
    pub(super) segment_mru: u64,
    pub(super) silence: Silence,
    /// Whether SESS_TERM was sent, and was received.
    pub(super) ends: (bool, bool),
    /// Reason sent with the end of the session.
    pub(super) end_reason: TermReason,
    /// Whether the stream is closed once the queue is sent.
    pub(super) is_over: bool,
}

impl Session {
    pub(super) fn new(link: LinkId, is_active: bool, protocol: Protocol, peer: Remote) -> Self {
        let now = peer.since;
        Self {
            link,
            is_active,
            peer,
            phase: Phase::Contact,
            agreement: Agreement::new(protocol),
            tls: Security::default(),
            neighbour: None,
            incoming: Incoming::default(),
            replies: VecDeque::new(),
            sending: VecDeque::new(),
            next_transfer: 0,
            out: Out::default(),
            is_blocked: false,
            is_paused: false,
            is_held: false,
            segment_mru: 0,
            silence: Silence { keepalive_s: 0, last_sent: now, last_received: now },
            ends: (false, false),
            end_reason: TermReason::Unknown,
            is_over: false,
        }
    }

    /// Queues a message without data, if the protocol defines it.
    pub(super) fn send(&mut self, message: &Message<'_>) {
        if let Some(bytes) = self.agreement.write(message) {
            self.out.push(bytes.into());
        }
    }

    /// Adds a reply, and sends those that wait for nothing any more.
    pub(super) fn reply(&mut self, reply: Reply) {
        self.replies.push_back(reply);
        self.send_replies();
    }

    fn send_replies(&mut self) {
        while let Some(reply) = self.replies.front() {
            let message = match *reply {
                Reply::Whole { .. } => return,
                Reply::Ack { flags, transfer, length } => Message::Ack { flags, transfer, length },
                Reply::Refuse { reason, transfer } => Message::Refuse { reason, transfer },
            };
            self.replies.pop_front();
            self.send(&message);
        }
    }

    /// Records the agent's decision on a complete bundle; returns whether there was one.
    pub(super) fn decide(&mut self, id: TransferId, refusal: Option<Refusal>) -> bool {
        let waits = |reply: &&mut Reply| matches!(reply, Reply::Whole { id: of, .. } if *of == id);
        let Some(reply) = self.replies.iter_mut().find(waits) else { return false };
        if let Reply::Whole { flags, transfer, length, .. } = *reply {
            *reply = match refusal {
                None => Reply::Ack { flags, transfer, length },
                Some(why) => Reply::Refuse { reason: reason(why), transfer },
            };
        }
        self.send_replies();
        true
    }

    /// Discards the rest of a bundle.
    pub(super) fn drop_coming(&mut self, id: TransferId) {
        if let Some(coming) = self.incoming.coming.as_mut().filter(|coming| coming.id == id) {
            coming.is_unwanted = true;
        }
    }

    /// Unacknowledged bytes of data.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.sending.iter().map(|sending| sending.sent - sending.acknowledged).sum()
    }
}

/// Code of a refusal.
pub(super) const fn reason(why: Refusal) -> RefuseReason {
    match why {
        Refusal::Completed => RefuseReason::Completed,
        Refusal::NoResources => RefuseReason::NoResources,
        Refusal::Retransmit => RefuseReason::Retransmit,
        Refusal::NotAcceptable => RefuseReason::NotAcceptable,
    }
}

/// Refusal of a code.
pub(super) const fn refusal(reason: RefuseReason) -> Refusal {
    match reason {
        RefuseReason::Completed => Refusal::Completed,
        RefuseReason::Retransmit => Refusal::Retransmit,
        RefuseReason::NotAcceptable | RefuseReason::ExtensionFailure => Refusal::NotAcceptable,
        RefuseReason::NoResources
        | RefuseReason::Unknown
        | RefuseReason::SessionTerminating
        | RefuseReason::Other(_) => Refusal::NoResources,
    }
}
