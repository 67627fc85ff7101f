//! One-line display of PDUs.

use std::fmt;

use super::codes::{DeliveryCode, PromptResponse, Version};
use super::directive::{
    Ack, Eof, FileData, Finished, KeepAlive, Metadata, Nak, Prompt, SegmentRequest,
};
use super::header::Header;
use super::tlv::{FilestoreRequest, FilestoreResponse, Tlv, Tlvs};
use super::user::{ProxyPut, PutDetail, Suspension, UserOperation, UserRequest};
use super::{Body, Pdu};

impl fmt::Display for Pdu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.header, self.body)
    }
}

impl fmt::Display for Header {
    /// Writes `101_1 → 102` toward the receiver, `101_1 ← 102` toward the sender; then unusual
    /// fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            super::Direction::TowardReceiver => '→',
            super::Direction::TowardSender => '←',
        };
        write!(f, "{} {arrow} {}", self.transaction(), self.destination)?;
        if self.version == Version::V0 {
            f.write_str(" v0")?;
        }
        match self.mode {
            super::TransmissionMode::Acknowledged => {}
            super::TransmissionMode::Unacknowledged => f.write_str(" unacknowledged")?,
        }
        for (flag, text) in [
            (self.large_file, " large"),
            (self.segmentation_control, " records"),
            (self.crc, " CRC"),
        ] {
            if flag {
                f.write_str(text)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileData(data) => data.fmt(f),
            Self::Eof(eof) => eof.fmt(f),
            Self::Finished(finished) => finished.fmt(f),
            Self::Ack(ack) => ack.fmt(f),
            Self::Metadata(metadata) => metadata.fmt(f),
            Self::Nak(nak) => nak.fmt(f),
            Self::Prompt(Prompt { response: PromptResponse::Nak }) => f.write_str("Prompt NAK"),
            Self::Prompt(Prompt { response: PromptResponse::KeepAlive }) => {
                f.write_str("Prompt Keep Alive")
            }
            Self::KeepAlive(KeepAlive { progress }) => write!(f, "Keep Alive {progress}"),
            Self::Unknown { code, data } => {
                write!(f, "directive {code:#04x}, {} B", data.len())
            }
        }
    }
}

impl fmt::Display for FileData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = u128::from(self.offset) + self.data.len() as u128;
        write!(f, "File Data {}..{end}", self.offset)?;
        match self.segment_metadata {
            Some(segment) => write!(
                f,
                " record {:?} metadata \"{}\"",
                segment.continuation,
                segment.metadata.escape_ascii()
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Eof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EOF {} B checksum {:08x} {}", self.file_size, self.checksum, self.condition)?;
        match self.fault_location {
            Some(id) => write!(f, " at {id}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delivery = match self.delivery {
            DeliveryCode::Complete => "complete",
            DeliveryCode::Incomplete => "incomplete",
        };
        write!(f, "Finished {} {delivery} {}", self.condition, self.file_status)?;
        if !self.end_system {
            f.write_str(" not the end system")?;
        }
        write_tlvs(f, &self.tlvs)
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ACK {} {} {}", self.directive, self.condition, self.status)
    }
}

impl fmt::Display for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metadata")?;
        if self.file_size > 0 {
            write!(f, " {} B", self.file_size)?;
        }
        write!(f, " {} → {} {}", self.source_name, self.destination_name, self.checksum_type)?;
        if self.closure_requested {
            f.write_str(" closure")?;
        }
        write_tlvs(f, &self.tlvs)
    }
}

impl fmt::Display for Nak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NAK {}..{}", self.scope_start, self.scope_end)?;
        if !self.requests.is_empty() {
            f.write_str(" want")?;
        }
        for request in self.requests {
            if request == SegmentRequest::METADATA {
                f.write_str(" metadata")?;
            } else {
                write!(f, " {}..{}", request.start, request.end)?;
            }
        }
        Ok(())
    }
}

/// Writes each TLV after "; ".
fn write_tlvs(f: &mut fmt::Formatter<'_>, tlvs: &Tlvs<'_>) -> fmt::Result {
    tlvs.iter().try_for_each(|tlv| write!(f, "; {tlv}"))
}

impl fmt::Display for Tlv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FilestoreRequest(request) => request.fmt(f),
            Self::FilestoreResponse(response) => response.fmt(f),
            Self::MessageToUser(message) => match UserOperation::decode(message.0) {
                Ok(Some(operation)) => operation.fmt(f),
                Ok(None) => write!(f, "message {message}"),
                Err(error) => write!(f, "bad user operation {message}: {error}"),
            },
            Self::FaultHandlerOverride { condition, handler } => {
                write!(f, "on {condition} {handler}")
            }
            Self::FlowLabel(label) => write!(f, "flow label {label}"),
            Self::EntityId(id) => write!(f, "fault at {id}"),
            Self::Other { code, value } => write!(f, "TLV {code} {value}"),
        }
    }
}

impl fmt::Display for FilestoreRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.first)?;
        if self.action.has_second_name() { write!(f, " {}", self.second) } else { Ok(()) }
    }
}

impl fmt::Display for FilestoreResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action, self.first)?;
        if self.action.has_second_name() {
            write!(f, " {}", self.second)?;
        }
        write!(f, ": {}", self.status.meaning(self.action))?;
        if self.message.is_empty() { Ok(()) } else { write!(f, " {}", self.message) }
    }
}

impl fmt::Display for UserOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(request) => write!(f, "{request}"),
            Self::Proxy(PutDetail::FilestoreRequest(request)) => write!(f, "proxy {request}"),
            Self::Proxy(PutDetail::FilestoreResponse(response)) => write!(f, "proxy {response}"),
            Self::OriginatingTransactionId(transaction) => {
                write!(f, "originating transaction {}", transaction.id())
            }
            Self::DirectoryListingResponse { success, directory, file } => {
                let outcome = if *success { "made" } else { "refused" };
                write!(f, "directory listing {outcome} {directory} → {file}")
            }
            Self::RemoteStatusReportResponse { status, transaction, .. } => {
                write!(f, "status report {} {status}", transaction.id())
            }
            Self::RemoteSuspendResponse(Suspension { suspended, status, transaction })
            | Self::RemoteResumeResponse(Suspension { suspended, status, transaction }) => {
                let state = if *suspended { "suspended" } else { "not suspended" };
                write!(f, "{} is {state}, {status}", transaction.id())
            }
            Self::Proxy(_)
            | Self::ProxyTransmissionMode(_)
            | Self::ProxySegmentationControl(_)
            | Self::ProxyPutResponse { .. }
            | Self::ProxyClosureRequest(_)
            | Self::Sfo(_)
            | Self::SfoReport(_)
            | Self::Other { .. } => write!(f, "{self:?}"),
        }
    }
}

impl fmt::Display for UserRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProxyPut(ProxyPut { destination, source_name, destination_name }) => {
                write!(f, "proxy put {source_name} → {destination} {destination_name}")
            }
            Self::ProxyPutCancel => f.write_str("proxy put cancel"),
            Self::DirectoryListing { directory, file } => {
                write!(f, "directory listing request {directory} → {file}")
            }
            Self::RemoteStatusReport { transaction, file } => {
                write!(f, "status report request {} → {file}", transaction.id())
            }
            Self::RemoteSuspend(transaction) => write!(f, "suspend request {}", transaction.id()),
            Self::RemoteResume(transaction) => write!(f, "resume request {}", transaction.id()),
            Self::Sfo(_) => write!(f, "{self:?}"),
        }
    }
}
