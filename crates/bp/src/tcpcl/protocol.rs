//! Encoding of the protocols over streams. Sessions use the messages of version 4, a superset of
//! the others. Messages that a protocol lacks are inferred on reception, by [`super::decoding`],
//! and omitted on transmission.

use session::settings;

use crate::codec::mtcp::Framing;
use crate::codec::tcpcl3;
use crate::codec::tcpcl4::{Message, Segment, SegmentFlags, TermReason, transfer_length};

/// The protocol of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCPCL version 4 (RFC 9174).
    Tcpcl4,
    /// TCPCL version 3 (RFC 7242).
    Tcpcl3(Version3),
    /// MTCP or STCP: length-prefixed bundles from the connecting to the listening side. There are
    /// no acknowledgments and no refusals.
    Framed(Framing),
}

settings! {
    /// Capabilities of this side in version 3 (RFC 7242 §4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Version3 {
        /// Whether segments are acknowledged if the peer agrees. Without acknowledgments a bundle
        /// has only left.
        pub acks: bool = true,
        /// Whether the acknowledged part of a bundle is kept as a fragment when its stream breaks,
        /// if the peer agrees. The receiver acknowledges before the data is on disk: a crash at the
        /// same time loses them.
        pub reactive_fragmentation: bool = false,
        /// Whether bundles may be refused, if the peer agrees.
        pub refusals: bool = true,
        /// Whether the peer is requested to announce the lengths of bundles.
        pub lengths: bool = true,
        /// Seconds after which a peer may reconnect after a shutdown, 0 for never; `None` leaves it
        /// to the peer.
        pub reconnect_s: Option<u64> = None,
    }
}

/// Parameters of a session agreed by both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    pub(super) protocol: Protocol,
    /// Whether segments are acknowledged.
    pub(super) acks: bool,
    /// Whether bundles can be refused.
    pub(super) refusals: bool,
    /// Whether the acknowledged part of a bundle is kept when the stream breaks.
    pub(super) reactive: bool,
    /// Whether lengths of bundles are announced to the peer.
    pub(super) lengths: bool,
}

impl Agreement {
    /// Parameters before the negotiation.
    pub(super) const fn new(protocol: Protocol) -> Self {
        let has_acks = matches!(protocol, Protocol::Tcpcl4);
        Self { protocol, acks: has_acks, refusals: has_acks, reactive: false, lengths: has_acks }
    }

    /// Negotiates the capabilities of a version 3 session (RFC 7242 §4.2).
    pub(super) const fn agree(&mut self, ours: Version3, theirs: tcpcl3::Flags) {
        self.acks = ours.acks && theirs.acks;
        self.reactive = self.acks && ours.reactive_fragmentation && theirs.reactive_fragmentation;
        // Refusals require acknowledgments (§5.4), and lengths the peer's request (§5.5).
        self.refusals = self.acks && ours.refusals && theirs.refusals;
        self.lengths = theirs.lengths;
    }

    /// Whether a bundle is one segment, whose data is sent while it is read.
    pub(super) const fn is_framed(self) -> bool {
        match self.protocol {
            Protocol::Framed(_) => true,
            Protocol::Tcpcl4 | Protocol::Tcpcl3(_) => false,
        }
    }

    /// Encodes a message; `None` if the protocol lacks it.
    pub(super) fn write(self, message: &Message<'_>) -> Option<Vec<u8>> {
        match self.protocol {
            Protocol::Tcpcl4 => {
                Some(message.to_vec().expect("sessions make messages that have a form"))
            }
            Protocol::Tcpcl3(settings) => self.write_3(settings, message),
            Protocol::Framed(framing) => {
                let length = match message {
                    Message::Segment(segment) => segment.length,
                    Message::Keepalive => 0,
                    Message::Ack { .. }
                    | Message::Refuse { .. }
                    | Message::Terminate { .. }
                    | Message::Reject { .. }
                    | Message::Init(_)
                    | Message::Unknown { .. } => return None,
                };
                Some(framing.to_vec(length).expect("neighbours are not handed longer bundles"))
            }
        }
    }

    fn write_3(self, settings: Version3, message: &Message<'_>) -> Option<Vec<u8>> {
        use tcpcl3::Message as Three;
        let bytes = |message: Three| message.to_vec().expect("all reasons are known ones");
        match *message {
            Message::Segment(Segment { flags, extensions, length, .. }) => {
                let announced = transfer_length(&extensions).filter(|_| self.lengths);
                let mut out =
                    announced.map_or_else(Vec::new, |length| bytes(Three::Length { length }));
                let SegmentFlags { start, end } = flags;
                out.extend(bytes(Three::Segment { start, end, length }));
                Some(out)
            }
            Message::Ack { length, .. } => self.acks.then(|| bytes(Three::Ack { length })),
            Message::Refuse { reason, .. } => {
                let reason = tcpcl3::RefuseReason::from_code(in_both(reason.code()));
                self.refusals.then(|| bytes(Three::Refuse { reason }))
            }
            Message::Keepalive => Some(bytes(Three::Keepalive)),
            Message::Terminate { reason, .. } => {
                let reason = match reason {
                    TermReason::IdleTimeout => Some(tcpcl3::ShutdownReason::IdleTimeout),
                    TermReason::VersionMismatch => Some(tcpcl3::ShutdownReason::VersionMismatch),
                    TermReason::Busy | TermReason::ResourceExhaustion => {
                        Some(tcpcl3::ShutdownReason::Busy)
                    }
                    TermReason::Unknown | TermReason::ContactFailure | TermReason::Other(_) => None,
                };
                Some(bytes(Three::Shutdown { reason, reconnect_s: settings.reconnect_s }))
            }
            Message::Reject { .. } | Message::Init(_) | Message::Unknown { .. } => None,
        }
    }
}

/// Code of a refusal, if it has the same meaning in both versions; otherwise that of no reason.
pub(super) const fn in_both(code: u8) -> u8 {
    if code <= 3 { code } else { 0 }
}
