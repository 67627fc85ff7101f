//! Counters.

use wire::cfdp::Body;

/// What an entity counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// PDUs sent.
    pub sent: PduCounts,
    /// PDUs received, whole and understood.
    pub received: PduCounts,
    /// Datagrams that were no PDU.
    pub decode_errors: u64,
    /// PDUs for another entity, or for no transaction under way, that were ignored.
    pub stray: u64,
    /// File names of peers that were refused.
    pub names_refused: u64,
    /// Data PDUs that brought nothing new.
    pub duplicate_data: u64,
    /// Data PDUs dropped because of a bound.
    pub data_dropped: u64,
    /// Bytes of file data sent for the first time.
    pub data_bytes: u64,
    /// Bytes of file data sent again.
    pub repair_bytes: u64,
    /// Storage effects that failed.
    pub storage_errors: u64,
    /// Records that could not be kept.
    pub record_errors: u64,
    /// Answers dropped because of a bound.
    pub replies_dropped: u64,
    /// ACK PDUs of unknown transactions left out because too many were sent to a peer within a second.
    pub refusals_left_out: u64,
    /// PDUs that would have begun a reception for which there was no place.
    pub receptions_refused: u64,
    /// PDUs left out because the path does not take any that large.
    pub oversize: u64,
}

/// PDUs by kind.
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
    /// Directives that the book does not name.
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

    /// PDUs of all kinds.
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
