//! What a stack tells its user, and answers when asked.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::scps::Agreed;

/// A connection, as its stack numbers it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A listener, as its stack numbers it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(crate) u32);

/// What a stack tells its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indication {
    /// A connection that was asked for is established.
    Connected {
        /// Which.
        connection: ConnectionId,
    },
    /// A peer has established a connection to a listener.
    Incoming {
        /// The listener.
        listener: ListenerId,
        /// The connection.
        connection: ConnectionId,
        /// Its near end.
        local: SocketAddr,
        /// Its far end.
        remote: SocketAddr,
    },
    /// There is something to read; told again after all was read.
    Readable {
        /// Where.
        connection: ConnectionId,
    },
    /// There is room again, after a write that was not taken whole.
    Writable {
        /// Where.
        connection: ConnectionId,
    },
    /// The peer writes no more; all that it wrote can be read.
    PeerClosed {
        /// Which.
        connection: ConnectionId,
    },
    /// The connection is over. What can still be read stays until it is read, or the connection is
    /// aborted; after that its number is unknown.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// A record can be read whole ([`Stack::record`](super::Stack::record)).
    Record {
        /// Where.
        connection: ConnectionId,
    },
    /// Data was left out, as the best-effort service allows
    /// ([`Stack::take_holes`](super::Stack::take_holes)).
    Holes {
        /// Where.
        connection: ConnectionId,
    },
    /// SCPS-TP was offered, and the peer, or something on the way, does not have it: it is TCP.
    PlainTcp {
        /// Which.
        connection: ConnectionId,
    },
    /// A listener's backlog ran full; told again after it was empty.
    BacklogFull {
        /// Which.
        listener: ListenerId,
    },
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CloseReason {
    /// Both sides have closed it, and know all that was written to be delivered.
    Graceful,
    /// Nobody listens at the peer.
    Refused,
    /// The peer has reset it.
    Reset,
    /// The peer does not answer.
    TimedOut,
    /// The user has aborted it, or there was data for a user that reads no more.
    Aborted,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// There is no such connection, or no more.
    #[error("there is no such connection")]
    UnknownConnection,
    /// There is no such listener, or no more.
    #[error("there is no such listener")]
    UnknownListener,
    /// The address and port are taken.
    #[error("the address and port are in use")]
    InUse,
    /// The two addresses are not of the same family, or one is no address of a host.
    #[error("the addresses do not fit together")]
    Address,
    /// No interface is up that leads there.
    #[error("no interface leads there")]
    NoRoute,
    /// There are as many connections as the stack may hold.
    #[error("there are too many connections")]
    Full,
    /// The user has closed this direction.
    #[error("the connection is closed for writing")]
    Closing,
    /// Ends of records are SCPS-TP's, which the peer does not have.
    #[error("the peer takes no ends of records")]
    NoRecords,
    /// What the record ends with has left already.
    #[error("what the record ends with was sent before its end was said")]
    RecordSent,
    /// There are as many records under way as may be.
    #[error("there are too many records that are not acknowledged")]
    TooManyRecords,
}

/// A state of a connection (RFC 9293 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A SYN is sent.
    SynSent,
    /// A SYN is sent and one received.
    SynReceived,
    /// Data goes both ways.
    Established,
    /// The user has closed; the peer does not know yet.
    FinWait1,
    /// The user has closed, and the peer knows.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both have closed at the same time.
    Closing,
    /// Both have closed, the peer first.
    LastAck,
    /// Both have closed, and both know; old segments may still come.
    TimeWait,
    /// There is no connection.
    Closed,
}

/// The condition of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// The state.
    pub state: State,
    /// The near end.
    pub local: SocketAddr,
    /// The far end.
    pub remote: SocketAddr,
    /// Data of a full segment, in bytes.
    pub mss: u64,
    /// Both sides understand time stamps.
    pub timestamps: bool,
    /// Both sides understand selective acknowledgments.
    pub sack: bool,
    /// Both sides understand explicit congestion notification.
    pub ecn: bool,
    /// What both sides do of SCPS-TP; `None`: it is TCP.
    pub scps: Option<Agreed>,
    /// The link is away, and the connection stands still.
    pub suspended: bool,
    /// By how much the peer's windows are shifted, and this side's.
    pub window_scale: (u8, u8),
    /// The congestion window, in bytes.
    pub cwnd: u64,
    /// The slow-start threshold, in bytes.
    pub ssthresh: u64,
    /// The rate of sending, if there is one, in bit/s.
    pub pacing_rate_bps: Option<u64>,
    /// Bytes that may be in flight for the peer's window.
    pub peer_window: u64,
    /// Bytes thought to be in the network.
    pub in_flight: u64,
    /// The smoothed round trip.
    pub srtt: Option<Duration>,
    /// Its variation.
    pub rttvar: Duration,
    /// The least round trip.
    pub min_rtt: Option<Duration>,
    /// The retransmission time-out.
    pub rto: Duration,
    /// Bytes written that are not acknowledged, or not sent.
    pub unacknowledged: u64,
    /// Bytes that wait to be read.
    pub readable: u64,
    /// The sizes of the send buffer and the receive buffer, in bytes.
    pub buffers: (u64, u64),
    /// Counts since the beginning.
    pub counts: Counts,
}

/// Counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Bytes of data sent, those that were sent again included.
    pub bytes_sent: u64,
    /// Bytes of data acknowledged.
    pub bytes_acknowledged: u64,
    /// Bytes of data received in order.
    pub bytes_received: u64,
    /// Segments with data, or a FIN, that were sent again.
    pub retransmissions: u64,
    /// Recoveries without the timer.
    pub recoveries: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// Losses that were none, as it turned out.
    pub spurious: u64,
    /// Reductions of the window for congestion marks.
    pub ecn_reductions: u64,
    /// Duplicate acknowledgments received.
    pub duplicate_acks: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Tail loss probes.
    pub tail_loss_probes: u64,
    /// Selective negative acknowledgments sent, and received.
    pub snacks: (u64, u64),
    /// Losses that were put down to corruption, so that the congestion control was not told of them;
    /// time-outs among them.
    pub corruptions: u64,
    /// Ends of records of the peer for which there was no room.
    pub records_dropped: u64,
    /// Reports of routers after which segments are shorter.
    pub path_mtu_reports: u64,
    /// Times that segments became shorter because long ones vanished.
    pub black_holes: u64,
    /// Time for which the peer's receive window stopped the sender.
    pub peer_window_limited: Duration,
    /// Time for which the send buffer stopped the sender: all data in it was sent, and it had no
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

/// Counts of a stack: packets that led to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets received.
    pub packets: u64,
    /// They are of another protocol, or have extension headers.
    pub not_tcp: u64,
    /// They are pieces of packets.
    pub fragments: u64,
    /// A checksum is wrong.
    pub bad_checksums: u64,
    /// They are no packets, or no segments.
    pub malformed: u64,
    /// They are for an address of somebody else.
    pub misdirected: u64,
    /// They belong to no connection.
    pub strangers: u64,
    /// SYNs beyond a backlog, or beyond the bound on connections.
    pub refused_syns: u64,
    /// SYN cookies sent.
    pub cookies_sent: u64,
    /// Connections made of a cookie that came back.
    pub cookies_accepted: u64,
    /// Answers to strangers that found no room.
    pub dropped_replies: u64,
    /// Reports that a packet was too long, of which use was made.
    pub reports_taken: u64,
    /// Such reports about nothing in flight, which may be forged (RFC 5927).
    pub reports_ignored: u64,
    /// Connections that offered SCPS-TP, or were to take it up, and are TCP.
    pub plain_tcp: u64,
}
