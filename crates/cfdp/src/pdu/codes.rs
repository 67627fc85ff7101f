//! The small numbers of CFDP and their names (CCSDS 727.0-B-5 §5, SANA registries).

use wire::named_codes;

named_codes! {
    /// Reason why a PDU was issued, four bits (§5.2.1, table 5-5).
    ConditionCode {
        /// No error.
        NoError = 0, "no error";
        /// No acknowledgement arrived in time.
        PositiveAckLimitReached = 1, "positive ACK limit reached";
        /// The receiver is too far behind.
        KeepAliveLimitReached = 2, "keep-alive limit reached";
        /// The transmission mode is not supported here.
        InvalidTransmissionMode = 3, "invalid transmission mode";
        /// The filestore refused the request.
        FilestoreRejection = 4, "filestore rejection";
        /// The file does not match its checksum.
        FileChecksumFailure = 5, "file checksum failure";
        /// Data beyond the end of the file.
        FileSizeError = 6, "file size error";
        /// The limit of NAK retransmissions was reached.
        NakLimitReached = 7, "NAK limit reached";
        /// No PDU arrived within the inactivity timeout.
        InactivityDetected = 8, "inactivity detected";
        /// The file's structure is invalid (older issues; reserved now).
        InvalidFileStructure = 9, "invalid file structure";
        /// The file stayed incomplete after its EOF.
        CheckLimitReached = 10, "check limit reached";
        /// The checksum type is not supported.
        UnsupportedChecksumType = 11, "unsupported checksum type";
        /// A user requested suspension.
        SuspendRequestReceived = 14, "suspend request received";
        /// A user requested cancellation.
        CancelRequestReceived = 15, "cancel request received";
    }
}

named_codes! {
    /// Action on a fault, four bits (§5.4.4).
    FaultHandler {
        /// Cancel the transaction.
        Cancel = 1, "cancel";
        /// Suspend the transaction.
        Suspend = 2, "suspend";
        /// Continue.
        Ignore = 3, "ignore";
        /// Abandon the transaction at once.
        Abandon = 4, "abandon";
    }
}

named_codes! {
    /// PDU that an ACK acknowledges, four bits (§5.2.4).
    Acknowledged {
        /// An EOF PDU.
        Eof = 4, "EOF";
        /// A Finished PDU.
        Finished = 5, "Finished";
    }
}

named_codes! {
    /// State of the transaction at the sender of an ACK, two bits (§5.2.4).
    TransactionStatus {
        /// The transaction is no longer known; it may have existed.
        Undefined = 0, "undefined";
        /// In progress.
        Active = 1, "active";
        /// Ended, and remembered.
        Terminated = 2, "terminated";
        /// Certainly unknown.
        Unrecognized = 3, "unrecognized";
    }
}

named_codes! {
    /// Status of the delivered file, two bits (§5.2.3).
    FileStatus {
        /// Discarded on purpose.
        Discarded = 0, "discarded";
        /// Refused by the filestore.
        FilestoreRejection = 1, "filestore rejection";
        /// Kept.
        Retained = 2, "retained";
        /// Not reported.
        Unreported = 3, "unreported";
    }
}

named_codes! {
    /// Action of a filestore request, four bits (§5.4.1).
    FilestoreAction {
        /// Create an empty file.
        CreateFile = 0, "create file";
        /// Delete a file.
        DeleteFile = 1, "delete file";
        /// Rename a file; takes two names.
        RenameFile = 2, "rename file";
        /// Append the second file to the first; takes two names.
        AppendFile = 3, "append file";
        /// Replace the first file's content by the second's; takes two names.
        ReplaceFile = 4, "replace file";
        /// Create a directory.
        CreateDirectory = 5, "create directory";
        /// Remove a directory.
        RemoveDirectory = 6, "remove directory";
        /// Delete a file if it exists.
        DenyFile = 7, "deny file";
        /// Remove a directory if it exists.
        DenyDirectory = 8, "deny directory";
    }
}

impl FilestoreAction {
    /// Whether requests and responses carry a second file name (§5.4.1.2).
    #[must_use]
    pub const fn has_second_name(self) -> bool {
        matches!(self, Self::RenameFile | Self::AppendFile | Self::ReplaceFile)
    }
}

/// Direction of a PDU: header bit "direction" (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the file's sender to its receiver.
    TowardReceiver,
    /// From the file's receiver to its sender.
    TowardSender,
}

/// Header bit "transmission mode" (§5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransmissionMode {
    /// Class 2 (and 4): lost data is retransmitted.
    #[default]
    Acknowledged,
    /// Class 1 (and 3): sent once.
    Unacknowledged,
}

/// Issues of the book that a PDU follows: the header's three version bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 000: issues 1 to 4.
    V0,
    /// 001: issue 5.
    V1,
}

/// Response that a Prompt PDU requests from the receiver (§5.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptResponse {
    /// NAK of everything missing.
    Nak,
    /// A Keep Alive.
    KeepAlive,
}

/// Completeness of the delivery (§5.2.3, "delivery code").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryCode {
    /// Metadata and all data arrived, and the checksum matches.
    Complete,
    /// Anything less.
    Incomplete,
}

/// Position of record boundaries in a file data PDU (§5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordContinuation {
    /// The data holds neither the start nor the end of a record.
    Middle = 0,
    /// The first byte starts a record that does not end here.
    Start = 1,
    /// The last byte ends a record that started earlier.
    End = 2,
    /// The data starts with a record's start and ends with a record's end.
    StartAndEnd = 3,
}

impl RecordContinuation {
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Middle,
            1 => Self::Start,
            2 => Self::End,
            _ => Self::StartAndEnd,
        }
    }

    pub(super) const fn bits(self) -> u8 {
        self as u8
    }
}
