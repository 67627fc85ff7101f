//! A session over one stream.

use std::collections::VecDeque;

use bytes::Bytes;
use engine::Time;
use wire::tcpcl4::{Message, RefuseReason, SegmentFlags, TermReason};

use super::super::layer::{LinkId, Neighbour, Refusal, TransferId};
use super::out::Out;
use super::protocol::{Agreement, Protocol};
use super::sending::Sending;

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer's contact header is awaited.
    Contact,
    /// TLS is being established.
    Securing,
    /// The peer's SESS_INIT is awaited.
    Init,
    /// Bundles cross.
    Established,
}

/// A bundle that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming {
    pub(super) id: TransferId,
    pub(super) transfer: u64,
    pub(super) received: u64,
    /// Nobody wants it: what still comes of it is thrown away.
    pub(super) is_unwanted: bool,
}

/// An answer to a segment. They leave in the order of the segments (RFC 9174 §5.2.3).
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Ack {
        flags: SegmentFlags,
        transfer: u64,
        length: u64,
    },
    /// It waits for the agent.
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

/// Security of a session's stream.
#[derive(Debug, Default)]
pub(super) struct Security {
    pub(super) peer_can_tls: bool,
    /// Once set, the stream is secured when all that goes in the clear has left: the name that
    /// the peer's certificate must carry, and the bytes of TLS that arrived already.
    pub(super) secures: Option<(Option<String>, Bytes)>,
    /// Names in the peer's certificate, once the stream is secured.
    pub(super) names: Option<Vec<String>>,
}

impl Security {
    /// Whether the peer's certificate names the node that it says it is.
    pub(super) fn names_itself(&self, node: &str) -> bool {
        self.names.iter().flatten().any(|name| name == node)
    }
}

/// Messages of the peer that are not complete.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The beginning of a message.
    pub(super) beginning: Vec<u8>,
    /// Bytes of data that are still to come of the segment under way, and its flags.
    pub(super) segment: Option<(u64, SegmentFlags)>,
    pub(super) coming: Option<Coming>,
    /// Bundles that began to come, where they have no numbers.
    pub(super) transfers_begun: u64,
    /// Bytes of the bundle that comes next, if the peer announced that.
    pub(super) next_length: Option<u64>,
}

/// Times by which either end learns that the other is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) keepalive_s: u16,
    pub(super) last_sent: Time,
    pub(super) last_received: Time,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: LinkId,
    pub(super) is_active: bool,
    pub(super) phase: Phase,
    pub(super) agreement: Agreement,
    pub(super) tls: Security,
    /// The peer, as the agent knows it.
    pub(super) neighbour: Option<Neighbour>,
    pub(super) incoming: Incoming,
    pub(super) answers: VecDeque<Answer>,
    pub(super) sending: VecDeque<Sending>,
    pub(super) next_transfer: u64,
    /// Bytes that are to be sent next.
    pub(super) out: Out,
    pub(super) is_blocked: bool,
    pub(super) is_paused: bool,
    /// The agent wants nothing more for now.
    pub(super) is_held: bool,
    pub(super) segment_mru: u64,
    pub(super) silence: Silence,
    /// SESS_TERM was sent; was received.
    pub(super) ends: (bool, bool),
    /// Why it ends, where that is said at the end.
    pub(super) end_reason: TermReason,
    /// What is to be sent goes out, and then the stream is given up.
    pub(super) is_over: bool,
}

impl Session {
    pub(super) fn new(link: LinkId, is_active: bool, protocol: Protocol, now: Time) -> Self {
        Self {
            link,
            is_active,
            phase: Phase::Contact,
            agreement: Agreement::new(protocol),
            tls: Security::default(),
            neighbour: None,
            incoming: Incoming::default(),
            answers: VecDeque::new(),
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

    /// Sends a message that has no data behind it, if it can be said.
    pub(super) fn say(&mut self, message: &Message<'_>) {
        if let Some(bytes) = self.agreement.write(message) {
            self.out.push(bytes.into());
        }
    }

    /// Sends the answers that nobody has to wait for any more.
    pub(super) fn answer(&mut self) {
        while let Some(answer) = self.answers.front() {
            let message = match *answer {
                Answer::Whole { .. } => return,
                Answer::Ack { flags, transfer, length } => Message::Ack { flags, transfer, length },
                Answer::Refuse { reason, transfer } => Message::Refuse { reason, transfer },
            };
            self.answers.pop_front();
            self.say(&message);
        }
    }

    /// The agent has decided on a bundle that came whole; whether there was one.
    pub(super) fn decide(&mut self, id: TransferId, refusal: Option<Refusal>) -> bool {
        let waits =
            |answer: &&mut Answer| matches!(answer, Answer::Whole { id: of, .. } if *of == id);
        let Some(answer) = self.answers.iter_mut().find(waits) else { return false };
        if let Answer::Whole { flags, transfer, length, .. } = *answer {
            *answer = match refusal {
                None => Answer::Ack { flags, transfer, length },
                Some(why) => Answer::Refuse { reason: reason(why), transfer },
            };
        }
        self.answer();
        true
    }

    /// What still comes of a bundle is thrown away.
    pub(super) fn drop_coming(&mut self, id: TransferId) {
        if let Some(coming) = self.incoming.coming.as_mut().filter(|coming| coming.id == id) {
            coming.is_unwanted = true;
        }
    }

    /// Bytes of data that were sent and are not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.sending.iter().map(|sending| sending.sent - sending.acknowledged).sum()
    }
}

/// The code of a refusal.
pub(super) const fn reason(why: Refusal) -> RefuseReason {
    match why {
        Refusal::Completed => RefuseReason::Completed,
        Refusal::NoResources => RefuseReason::NoResources,
        Refusal::Retransmit => RefuseReason::Retransmit,
        Refusal::NotAcceptable => RefuseReason::NotAcceptable,
    }
}

/// What a code means for the bundle.
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
