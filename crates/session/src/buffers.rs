//! Bounds on data between the store and the paths, shared by the file protocols.

use crate::settings;

settings! {
    /// Bounds on data waiting to be written or sent, and on waiting replies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Buffers {
        /// Received bytes waiting to be written, in all sessions. Beyond it the driver is requested
        /// to pause; further data is dropped and requested again later.
        pub write_buffer: usize as Size [Least(WRITE_BUFFER_MIN)] = 8 << 20,
        /// Bytes collected into one write.
        pub write_piece: usize as Size [Least(1)] = 128 << 10,
        /// Bytes read ahead of the transmission, for each session.
        pub read_ahead: usize as Size = 1 << 20,
        /// Limit of all sessions together, shared equally.
        pub read_ahead_total: usize as Size = 64 << 20,
        /// Bytes requested in one read.
        pub read_piece: usize as Size [Least(1)] = 256 << 10,
        /// Waiting replies for sessions that are not active. Further ones are dropped; the peer
        /// requests them again.
        pub replies: usize as Number = 256,
    }
}

/// Minimum write buffer: the data of one datagram, which would be dropped as a whole.
const WRITE_BUFFER_MIN: u64 = 65_535;

/// Minimum bound on datagrams: some packets cannot be split.
pub const DATAGRAM_MIN: u64 = 64;
