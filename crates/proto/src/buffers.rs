//! Bounds on data between the store and the paths, which protocols of files have in common.

use crate::settings;

settings! {
    /// Bounds on data that waits to be written or to be sent, and on replies that wait.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Buffers {
        /// Bytes of received data that wait to be written, in all. Beyond it the driver is asked to
        /// pause, and what still arrives is dropped and requested later.
        pub write_buffer: usize as Size [Least(WRITE_BUFFER_MIN)] = 8 << 20,
        /// Bytes collected into one write.
        pub write_piece: usize as Size [Least(1)] = 128 << 10,
        /// Bytes read ahead of what is sent, for each session.
        pub read_ahead: usize as Size = 1 << 20,
        /// Limit of all sessions together, which share it equally.
        pub read_ahead_total: usize as Size = 64 << 20,
        /// Bytes requested in one read.
        pub read_piece: usize as Size [Least(1)] = 256 << 10,
        /// Replies for sessions that are not under way which wait to be sent. More are dropped; the
        /// peer requests them again.
        pub replies: usize as Number = 256,
    }
}

/// The least that may wait to be written: the data of one datagram, which is dropped whole.
const WRITE_BUFFER_MIN: u64 = 65_535;

/// The least that a datagram may be bounded to: some packets are of one piece.
pub(crate) const DATAGRAM_MIN: u64 = 64;
