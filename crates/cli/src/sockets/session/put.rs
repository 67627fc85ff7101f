//! Requests to send a file by CFDP, with messages, filestore requests and fault handlers.

use bytes::Bytes;
use cfdp::pdu::{
    ChecksumType, ConditionCode, FaultHandler, FilestoreAction, FilestoreStatus, TransmissionMode,
};
use cfdp::{Config, FilestoreRequest, FilestoreResponse, PutRequest};
use transport::protocol::Kind;
use transport::quantity::Span;
use transport::settings::named;

use crate::sockets::scope;

/// Options of CFDP.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::CFDP)]
pub(crate) struct CfdpOptions {
    /// Transmission class: 1 (unacknowledged) or 2 (acknowledged)
    ///
    /// [default: 1 for cfdp-1, over LTP and in bundles, which are reliable themselves; else the
    /// MIB's, or 2]
    #[arg(long, value_name = "CLASS", value_parser = crate::whole::within(1_u8..=2))]
    class: Option<u8>,

    /// File checksum: modular, proximity1, crc32c, crc32 or null [default: crc32c]
    #[arg(long, value_name = "TYPE", value_parser = named::<ChecksumType>)]
    checksum_type: Option<ChecksumType>,

    /// Time to stay after the end, to repeat a lost last acknowledgment [default: 1.5 s; none if
    /// --delay is above 250 ms]
    ///
    /// The receiver has the file in any case, and closes the transaction by itself if the
    /// acknowledgment is lost.
    #[arg(long, value_name = "DURATION")]
    pub(crate) linger: Option<Span>,

    #[command(flatten)]
    request: RequestOptions,
}

/// Options of the Metadata PDU.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::CFDP_REQUEST)]
struct RequestOptions {
    /// Message to the receiver's user: text, or bytes as hex:00ff; repeatable
    #[arg(long, value_name = "TEXT|hex:BYTES", value_parser = message)]
    message: Vec<Bytes>,

    /// Filestore request after delivery, e.g. "rename OLD NEW"; repeatable, done in order
    ///
    /// Actions: create, delete, rename, append, replace, create-directory, remove-directory, deny
    /// and deny-directory.
    #[arg(long, value_name = "ACTION NAME [NAME]", value_parser = filestore)]
    filestore: Vec<FilestoreRequest>,

    /// Fault handler of both ends, e.g. "nak-limit=suspend"; repeatable
    #[arg(long, value_name = "CONDITION=HANDLER", value_parser = fault)]
    fault: Vec<(ConditionCode, FaultHandler)>,

    /// Request transaction closure: a class 1 receiver reports how it ended
    #[arg(long)]
    closure: bool,

    /// Unbounded file: its size is open until its end, e.g. while it is being written
    #[arg(long)]
    unbounded: bool,
}

impl CfdpOptions {
    /// Whether it has requests that go with one file.
    pub(crate) fn has_request(&self) -> bool {
        let RequestOptions { message, filestore, unbounded, fault: _, closure: _ } = &self.request;
        !message.is_empty() || !filestore.is_empty() || *unbounded
    }

    /// Request without names, by this protocol to entity `remote`, for an entity with these settings.
    pub(super) fn request(&self, kind: Kind, remote: u64, config: &Config) -> PutRequest {
        let Self { class, checksum_type, request, linger: _ } = self;
        PutRequest {
            destination: remote,
            mode: Some(class.map_or_else(|| mode(kind, config, remote), mode_of)),
            checksum: *checksum_type,
            messages: request.message.clone(),
            filestore_requests: request.filestore.clone(),
            fault_handlers: request.fault.clone(),
            closure: request.closure.then_some(true),
            unbounded: request.unbounded,
            resume: true,
            ..PutRequest::default()
        }
    }
}

fn mode_of(class: u8) -> TransmissionMode {
    match class {
        1 => TransmissionMode::Unacknowledged,
        _ => TransmissionMode::Acknowledged,
    }
}

/// Transmission mode without --class: the protocol's if its name implies one, else the MIB's.
pub(crate) fn mode(kind: Kind, config: &Config, remote: u64) -> TransmissionMode {
    if kind.is_reliable() { config.remote(remote).mode } else { TransmissionMode::Unacknowledged }
}

fn message(text: &str) -> Result<Bytes, String> {
    let bytes = match text.strip_prefix("hex:") {
        Some(digits) => hex(digits)?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.len() > 255 {
        return Err(format!("{} bytes; a message has at most 255", bytes.len()));
    }
    Ok(bytes.into())
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| format!("{digits:?} is not pairs of hexadecimal digits"))
}

/// Filestore actions by name.
const ACTIONS: &[(&str, FilestoreAction)] = &[
    ("create", FilestoreAction::CreateFile),
    ("delete", FilestoreAction::DeleteFile),
    ("rename", FilestoreAction::RenameFile),
    ("append", FilestoreAction::AppendFile),
    ("replace", FilestoreAction::ReplaceFile),
    ("create-directory", FilestoreAction::CreateDirectory),
    ("remove-directory", FilestoreAction::RemoveDirectory),
    ("deny", FilestoreAction::DenyFile),
    ("deny-directory", FilestoreAction::DenyDirectory),
];

/// Result of a request, for people.
pub(super) fn described(response: &FilestoreResponse) -> String {
    let known = ACTIONS.iter().find(|(_, known)| *known == response.action);
    let action = known.map_or_else(|| response.action.to_string(), |(name, _)| (*name).to_owned());
    let result = match response.status {
        FilestoreStatus::SUCCESSFUL => "done".to_owned(),
        FilestoreStatus::NOT_PERFORMED => "not carried out".to_owned(),
        FilestoreStatus(code) => format!("refused (status {code})"),
    };
    let names = [action.as_str(), &response.first, &response.second];
    let words = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ");
    format!("{words}: {result}")
}

/// Filestore request: an action with one or two names. A single name may contain spaces.
fn filestore(text: &str) -> Result<FilestoreRequest, String> {
    let (verb, names) = text.trim().split_once(' ').unwrap_or((text, ""));
    let Some((_, action)) = ACTIONS.iter().find(|(name, _)| *name == verb) else {
        let names = ACTIONS.iter().map(|(name, _)| *name);
        let near = transport::text::did_you_mean(verb, names.clone());
        let known = names.collect::<Vec<_>>().join(", ");
        return Err(format!("there is no action {verb:?}{near} (actions: {known})"));
    };
    let (first, second) = if action.has_second_name() {
        let mut names = names.split_whitespace();
        match (names.next(), names.next(), names.next()) {
            (Some(first), Some(second), None) => (first, second),
            _ => return Err(format!("{verb} takes two names without blanks")),
        }
    } else {
        (names.trim(), "")
    };
    if first.is_empty() {
        return Err(format!("{verb} takes a name"));
    }
    Ok(FilestoreRequest { action: *action, first: first.to_owned(), second: second.to_owned() })
}

fn fault(text: &str) -> Result<(ConditionCode, FaultHandler), String> {
    let (condition, handler) = text.split_once('=').ok_or_else(|| {
        format!("invalid fault {text:?}: expected CONDITION=HANDLER, such as nak-limit=suspend")
    })?;
    Ok((named(condition)?, named(handler)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write() {
        assert_eq!(message("hello").unwrap(), "hello");
        assert_eq!(message("hex:00fF").unwrap(), Bytes::from_static(b"\x00\xff"));
        assert!(message("hex:0").is_err() && message("hex:0g").is_err());
        assert!(message(&"x".repeat(256)).is_err());
        let request = filestore("rename a b").unwrap();
        assert_eq!(request.action, FilestoreAction::RenameFile);
        assert_eq!((request.first.as_str(), request.second.as_str()), ("a", "b"));
        assert_eq!(filestore("delete two words").unwrap().first, "two words");
        assert!(filestore("rename a").is_err() && filestore("delete").is_err());
        assert!(filestore("delte a").unwrap_err().contains("did you mean \"delete\"?"));
        let expected = (ConditionCode::NakLimitReached, FaultHandler::Suspend);
        assert_eq!(fault("nak-limit=suspend").unwrap(), expected);
        assert!(fault("nak-limit").is_err());
        assert!(fault("nak=cancel").unwrap_err().contains("nak-limit"));
        let response = FilestoreResponse {
            action: FilestoreAction::DeleteFile,
            status: FilestoreStatus::DELETE_FILE_MISSING,
            first: "a".to_owned(),
            second: String::new(),
            message: String::new(),
        };
        assert_eq!(described(&response), "delete a: refused (status 1)");
    }
}
