//! The small numbers of CFDP and their names (CCSDS 727.0-B-5 §5, SANA registries).

use crate::codes::named_codes;

named_codes! {
    /// Why a PDU was issued, four bits (§5.2.1, table 5-5).
    ConditionCode {
        /// All is well.
        NoError = 0, "no error";
        /// Nobody acknowledged in time.
        PositiveAckLimitReached = 1, "positive ACK limit reached";
        /// The receiver is too far behind.
        KeepAliveLimitReached = 2, "keep-alive limit reached";
        /// The transmission mode cannot be used here.
        InvalidTransmissionMode = 3, "invalid transmission mode";
        /// The filestore refused.
        FilestoreRejection = 4, "filestore rejection";
        /// The file does not match its checksum.
        FileChecksumFailure = 5, "file checksum failure";
        /// Data beyond the end of the file.
        FileSizeError = 6, "file size error";
        /// Retransmission was asked for too often.
        NakLimitReached = 7, "NAK limit reached";
        /// Nothing came for too long.
        InactivityDetected = 8, "inactivity detected";
        /// The file's structure is invalid (older issues; reserved now).
        InvalidFileStructure = 9, "invalid file structure";
        /// The file stayed incomplete after the end was announced.
        CheckLimitReached = 10, "check limit reached";
        /// The checksum type is not supported.
        UnsupportedChecksumType = 11, "unsupported checksum type";
        /// A user asked to suspend.
        SuspendRequestReceived = 14, "suspend request received";
        /// A user asked to cancel.
        CancelRequestReceived = 15, "cancel request received";
    }
}

named_codes! {
    /// What to do about a fault, four bits (§5.4.4).
    FaultHandler {
        /// Cancel the transaction.
        Cancel = 1, "cancel";
        /// Suspend the transaction.
        Suspend = 2, "suspend";
        /// Go on.
        Ignore = 3, "ignore";
        /// Forget the transaction at once.
        Abandon = 4, "abandon";
    }
}

named_codes! {
    /// Which PDU an ACK answers, four bits (§5.2.4).
    Acknowledged {
        /// An EOF PDU.
        Eof = 4, "EOF";
        /// A Finished PDU.
        Finished = 5, "Finished";
    }
}

named_codes! {
    /// What the sender of an ACK knows about the transaction, two bits (§5.2.4).
    TransactionStatus {
        /// Known no longer, and it may have existed.
        Undefined = 0, "undefined";
        /// In progress.
        Active = 1, "active";
        /// Over, and remembered.
        Terminated = 2, "terminated";
        /// Certainly never seen.
        Unrecognized = 3, "unrecognized";
    }
}

named_codes! {
    /// What became of the delivered file, two bits (§5.2.3).
    FileStatus {
        /// Discarded on purpose.
        Discarded = 0, "discarded";
        /// Refused by the filestore.
        FilestoreRejection = 1, "filestore rejection";
        /// Kept.
        Retained = 2, "retained";
        /// Not told.
        Unreported = 3, "unreported";
    }
}

named_codes! {
    /// What a filestore request asks for, four bits (§5.4.1).
    FilestoreAction {
        /// Create an empty file.
        CreateFile = 0, "create file";
        /// Delete a file.
        DeleteFile = 1, "delete file";
        /// Rename a file; takes two names.
        RenameFile = 2, "rename file";
        /// Append the second file to the first; takes two names.
        AppendFile = 3, "append file";
        /// Replace the first file's contents by the second's; takes two names.
        ReplaceFile = 4, "replace file";
        /// Create a directory.
        CreateDirectory = 5, "create directory";
        /// Remove a directory.
        RemoveDirectory = 6, "remove directory";
        /// Delete a file if it is there.
        DenyFile = 7, "deny file";
        /// Remove a directory if it is there.
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

/// Which way a PDU travels: header bit "direction" (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the file's sender to its receiver.
    TowardReceiver,
    /// From the file's receiver to its sender.
    TowardSender,
}

/// Header bit "transmission mode" (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransmissionMode {
    /// Class 2 (and 4): lost data is asked for again.
    Acknowledged,
    /// Class 1 (and 3): sent once.
    Unacknowledged,
}

/// Which issues of the book a PDU follows: the header's three version bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 000: issues 1 to 4.
    V0,
    /// 001: issue 5.
    V1,
}

/// What a Prompt PDU asks the receiver for (§5.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PromptResponse {
    /// A NAK of everything missing.
    Nak,
    /// A Keep Alive.
    KeepAlive,
}

/// Whether everything arrived (§5.2.3, "delivery code").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryCode {
    /// Metadata, all data, and the checksum fits.
    Complete,
    /// Anything less.
    Incomplete,
}

/// Where records begin and end in a file data PDU (§5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordContinuation {
    /// Neither the start nor the end of a record is in the data.
    Middle,
    /// The first byte starts a record that does not end here.
    Start,
    /// The last byte ends a record that began earlier.
    End,
    /// The data starts with a record's start and ends with a record's end.
    StartAndEnd,
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
        match self {
            Self::Middle => 0,
            Self::Start => 1,
            Self::End => 2,
            Self::StartAndEnd => 3,
        }
    }
}
