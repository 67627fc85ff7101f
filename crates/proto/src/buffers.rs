//! Bounds on data between the store and the paths, which protocols of files have in common.

/// Bounds on data that waits to be written or to be sent, and on replies that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Bytes of received data that wait to be written, in all. Beyond it the driver is asked to
    /// pause, and what still arrives is dropped and requested later.
    pub write_buffer: usize,
    /// Bytes collected into one write.
    pub write_piece: usize,
    /// Bytes read ahead of what is sent, for each session.
    pub read_ahead: usize,
    /// Limit of all sessions together, which share it equally.
    pub read_ahead_total: usize,
    /// Bytes requested in one read.
    pub read_piece: usize,
    /// Replies for sessions that are not under way which wait to be sent. More are dropped; the
    /// peer requests them again.
    pub replies: usize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            write_buffer: 8 << 20,
            write_piece: 128 << 10,
            read_ahead: 1 << 20,
            read_ahead_total: 64 << 20,
            read_piece: 256 << 10,
            replies: 256,
        }
    }
}
