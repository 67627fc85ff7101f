//! Indications of a stack to its user, and information on request.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::scps::Agreed;

/// Connection number, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Listener number, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(crate) u32);

/// Indication of a stack to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A requested connection is established.
    Connected {
        /// The connection.
        connection: ConnectionId,
    },
    /// A peer's connection to a listener is established.
    Incoming {
        /// The listener.
        listener: ListenerId,
        /// The connection.
        connection: ConnectionId,
        /// Local address.
        local: SocketAddr,
        /// Remote address.
        remote: SocketAddr,
    },
    /// There is data to read; repeated after everything was read.
    Readable {
        /// The connection.
        connection: ConnectionId,
    },
    /// There is room again, after an incomplete write.
    Writable {
        /// The connection.
        connection: ConnectionId,
    },
    /// The peer has closed; all its data can be read.
    PeerClosed {
        /// The connection.
        connection: ConnectionId,
    },
    /// The connection is closed. Unread data remains until it is read or the connection is aborted;
    /// after that its number is unknown.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// Reason.
        reason: CloseReason,
    },
    /// A record can be read completely ([`Stack::record`](super::Stack::record)).
    Record {
        /// The connection.
        connection: ConnectionId,
    },
    /// Data was skipped, as the best-effort service allows
    /// ([`Stack::take_holes`](super::Stack::take_holes)).
    Holes {
        /// The connection.
        connection: ConnectionId,
    },
    /// SCPS-TP was offered, but the peer or a middlebox does not support it: the connection uses
    /// TCP.
    PlainTcp {
        /// The connection.
        connection: ConnectionId,
    },
    /// A listener's backlog is full; repeated after it was empty.
    BacklogFull {
        /// The listener.
        listener: ListenerId,
    },
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CloseReason {
    /// Closed by both sides, with all data delivered.
    Graceful,
    /// Refused: no listener at the peer.
    Refused,
    /// Reset by the peer.
    Reset,
    /// Timeout: the peer does not reply.
    TimedOut,
    /// Aborted by the user, or data arrived for a user that reads no more.
    Aborted,
}

/// Error of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Unknown connection.
    #[error("there is no such connection")]
    UnknownConnection,
    /// Unknown listener.
    #[error("there is no such listener")]
    UnknownListener,
    /// The address and port are in use.
    #[error("the address and port are in use")]
    InUse,
    /// The two addresses are not of the same family, or one is not a host address.
    #[error("the addresses do not fit together")]
    Address,
    /// No interface with a route is up.
    #[error("no interface leads there")]
    NoRoute,
    /// The maximum number of connections is reached.
    #[error("there are too many connections")]
    Full,
    /// The user has closed this direction.
    #[error("the connection is closed for writing")]
    Closing,
    /// The peer does not support SCPS-TP, which records need.
    #[error("the peer does not support records")]
    NoRecords,
    /// The last byte of the record was already sent.
    #[error("the last byte of the record was already sent")]
    RecordSent,
    /// The maximum number of records is reached.
    #[error("there are too many records that are not acknowledged")]
    TooManyRecords,
}

/// State of a connection (RFC 9293 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was sent and one received.
    SynReceived,
    /// Data can be sent and received.
    Established,
    /// Closed by the user; not acknowledged.
    FinWait1,
    /// Closed by the user; acknowledged.
    FinWait2,
    /// Closed by the peer.
    CloseWait,
    /// Closed by both at the same time.
    Closing,
    /// Closed by both, the peer first.
    LastAck,
    /// Closed by both and acknowledged; old segments may still arrive.
    TimeWait,
    /// No connection.
    Closed,
}

/// Information about a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// State.
    pub state: State,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// Data bytes of a full segment.
    pub mss: u64,
    /// Whether timestamps are used.
    pub timestamps: bool,
    /// Whether selective acknowledgments are used.
    pub sack: bool,
    /// Whether explicit congestion notification is used.
    pub ecn: bool,
    /// Negotiated SCPS-TP features; `None`: TCP.
    pub scps: Option<Agreed>,
    /// Whether the connection is suspended during an outage.
    pub suspended: bool,
    /// Window scale shifts of the peer and of this side.
    pub window_scale: (u8, u8),
    /// Congestion window, in bytes.
    pub cwnd: u64,
    /// Slow start threshold, in bytes.
    pub ssthresh: u64,
    /// Pacing rate in bit/s, if any.
    pub pacing_rate_bps: Option<u64>,
    /// Bytes that the peer's window allows in flight.
    pub peer_window: u64,
    /// Estimated bytes in the network.
    pub in_flight: u64,
    /// Smoothed round trip.
    pub srtt: Option<Duration>,
    /// Round trip variation.
    pub rttvar: Duration,
    /// Minimum round trip.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Bytes written that are unsent or unacknowledged.
    pub unacknowledged: u64,
    /// Readable bytes.
    pub readable: u64,
    /// Sizes of the send buffer and the receive buffer, in bytes.
    pub buffers: (u64, u64),
    /// Counters since its start.
    pub counts: Counts,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes of data acknowledged.
    pub bytes_acknowledged: u64,
    /// Bytes of data received in order.
    pub bytes_received: u64,
    /// Retransmitted segments with data or a FIN.
    pub retransmissions: u64,
    /// Recoveries without a timeout.
    pub recoveries: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Spurious losses.
    pub spurious: u64,
    /// Window reductions for congestion marks.
    pub ecn_reductions: u64,
    /// Duplicate acknowledgments received.
    pub duplicate_acks: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Tail loss probes.
    pub tail_loss_probes: u64,
    /// Selective negative acknowledgments sent, and received.
    pub snacks: (u64, u64),
    /// Losses attributed to corruption, including timeouts, and not reported to the congestion
    /// control.
    pub corruptions: u64,
    /// Ends of the peer's records dropped for lack of room.
    pub records_dropped: u64,
    /// Router reports that reduced the segment size.
    pub path_mtu_reports: u64,
    /// Reductions of the segment size because long segments vanished.
    pub black_holes: u64,
    /// Time during which the peer's receive window limited the sender.
    pub peer_window_limited: Duration,
    /// Time during which the send buffer limited the sender: all its data was sent, and it had no
    /// room for more.
    pub send_buffer_limited: Duration,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            segments_sent: self.segments_sent + other.segments_sent,
            segments_received: self.segments_received + other.segments_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_acknowledged: self.bytes_acknowledged + other.bytes_acknowledged,
            bytes_received: self.bytes_received + other.bytes_received,
            retransmissions: self.retransmissions + other.retransmissions,
            recoveries: self.recoveries + other.recoveries,
            timeouts: self.timeouts + other.timeouts,
            spurious: self.spurious + other.spurious,
            ecn_reductions: self.ecn_reductions + other.ecn_reductions,
            duplicate_acks: self.duplicate_acks + other.duplicate_acks,
            window_probes: self.window_probes + other.window_probes,
            tail_loss_probes: self.tail_loss_probes + other.tail_loss_probes,
            snacks: (self.snacks.0 + other.snacks.0, self.snacks.1 + other.snacks.1),
            corruptions: self.corruptions + other.corruptions,
            records_dropped: self.records_dropped + other.records_dropped,
            path_mtu_reports: self.path_mtu_reports + other.path_mtu_reports,
            black_holes: self.black_holes + other.black_holes,
            peer_window_limited: self.peer_window_limited + other.peer_window_limited,
            send_buffer_limited: self.send_buffer_limited + other.send_buffer_limited,
        }
    }
}

/// Counters of a stack: packets without a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets received.
    pub packets: u64,
    /// Packets of other protocols, or with extension headers.
    pub not_tcp: u64,
    /// Fragments.
    pub fragments: u64,
    /// Packets with a wrong checksum.
    pub bad_checksums: u64,
    /// Malformed packets or segments.
    pub malformed: u64,
    /// Packets for another host's address.
    pub misdirected: u64,
    /// Segments of no connection.
    pub strangers: u64,
    /// SYNs beyond a backlog, or beyond the connection limit.
    pub refused_syns: u64,
    /// SYN cookies sent.
    pub cookies_sent: u64,
    /// Connections made from returned cookies.
    pub cookies_accepted: u64,
    /// Replies to unknown connections dropped for lack of room.
    pub dropped_replies: u64,
    /// Packet-too-big reports applied.
    pub reports_taken: u64,
    /// Packet-too-big reports about nothing in flight, which may be forged (RFC 5927).
    pub reports_ignored: u64,
    /// Connections that offered or should have accepted SCPS-TP, and use TCP.
    pub plain_tcp: u64,
}
