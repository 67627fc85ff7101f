//! Counters of an entity.

use crate::pdu::Body;

/// Counters since the entity's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// PDUs sent.
    pub sent: PduCounts,
    /// Valid PDUs received.
    pub received: PduCounts,
    /// Datagrams that are not valid PDUs.
    pub decode_errors: u64,
    /// Datagrams with bytes behind their PDU, which were ignored.
    pub surplus: u64,
    /// Ignored PDUs, for another entity or for no transaction under way.
    pub stray: u64,
    /// Refused file names of peers.
    pub names_refused: u64,
    /// Duplicate data PDUs.
    pub duplicate_data: u64,
    /// Data PDUs dropped because of a limit.
    pub data_dropped: u64,
    /// Bytes of file data sent for the first time.
    pub data_bytes: u64,
    /// Bytes of file data retransmitted.
    pub repair_bytes: u64,
    /// Failed storage effects.
    pub storage_errors: u64,
    /// Records that could not be stored.
    pub record_errors: u64,
    /// Replies dropped because of a limit.
    pub replies_dropped: u64,
    /// ACK PDUs of unknown transactions suppressed because too many were sent to a peer within a
    /// second.
    pub refusals_left_out: u64,
    /// PDUs that would have started a reception for which there was no slot.
    pub receptions_refused: u64,
    /// Receptions removed to make room for others.
    pub receptions_displaced: u64,
    /// Files of class 1 lost because their reception was refused or removed.
    pub files_without_room: u64,
    /// PDUs not sent because the peer has not proven that it receives any.
    pub held_back: u64,
    /// PDUs dropped because they exceed the path's MTU.
    pub oversize: u64,
}

/// Number of PDUs by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PduCounts {
    /// Metadata.
    pub metadata: u64,
    /// File data.
    pub file_data: u64,
    /// EOF.
    pub eof: u64,
    /// Finished.
    pub finished: u64,
    /// ACK.
    pub ack: u64,
    /// NAK.
    pub nak: u64,
    /// Prompt.
    pub prompt: u64,
    /// Keep Alive.
    pub keep_alive: u64,
    /// Unknown directives.
    pub unknown: u64,
}

impl PduCounts {
    pub(crate) fn count(&mut self, body: &Body<'_>) {
        let counter = match body {
            Body::FileData(_) => &mut self.file_data,
            Body::Eof(_) => &mut self.eof,
            Body::Finished(_) => &mut self.finished,
            Body::Ack(_) => &mut self.ack,
            Body::Metadata(_) => &mut self.metadata,
            Body::Nak(_) => &mut self.nak,
            Body::Prompt(_) => &mut self.prompt,
            Body::KeepAlive(_) => &mut self.keep_alive,
            Body::Unknown { .. } => &mut self.unknown,
        };
        *counter += 1;
    }

    /// Total of all types.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.metadata
            + self.file_data
            + self.eof
            + self.finished
            + self.ack
            + self.nak
            + self.prompt
            + self.keep_alive
            + self.unknown
    }
}
