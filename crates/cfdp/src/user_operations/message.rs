//! Decoding and encoding of messages to user that are user operations.

use bytes::Bytes;

use crate::pdu::{
    IdField, SfoRequest, TransactionField, TransactionId, UserOperation, UserRequest, Width,
};
use crate::request::FilestoreResponse;

/// User operations among the messages of one transaction, in order. Malformed ones are skipped.
pub(super) fn operations(messages: &[Bytes]) -> Vec<UserOperation<'_>> {
    messages.iter().filter_map(|message| UserOperation::decode(message).ok().flatten()).collect()
}

/// Whether one of the messages may be a user operation.
pub(crate) fn has_operation(messages: &[Bytes]) -> bool {
    messages.iter().any(|message| message.starts_with(b"cfdp"))
}

/// First request among the operations.
pub(super) fn first_request<'a>(operations: &[UserOperation<'a>]) -> Option<UserRequest<'a>> {
    operations.iter().find_map(|operation| {
        if let UserOperation::Request(request) = operation { Some(*request) } else { None }
    })
}

/// Store-and-forward request among the operations, if any.
pub(super) fn sfo_request<'a>(operations: &[UserOperation<'a>]) -> Option<SfoRequest<'a>> {
    operations.iter().find_map(|operation| match operation {
        UserOperation::Request(UserRequest::Sfo(request)) => Some(*request),
        _ => None,
    })
}

/// Transaction that caused the one with which these operations arrived. The first such message
/// counts: messages that a proxy passes on follow the proxy's own.
pub(super) fn originating(operations: &[UserOperation<'_>]) -> Option<TransactionId> {
    operations.iter().find_map(|operation| {
        if let UserOperation::OriginatingTransactionId(field) = operation {
            Some(field.id())
        } else {
            None
        }
    })
}

/// Encodes one operation; `None` if a value in it does not fit a message of 255 bytes.
pub(super) fn encode(operation: &UserOperation<'_>) -> Option<Bytes> {
    let message = operation.to_vec().ok()?;
    (message.len() <= 255).then(|| message.into())
}

/// Appends a message if it fits.
pub(super) fn push(messages: &mut Vec<Bytes>, operation: &UserOperation<'_>) {
    messages.extend(encode(operation));
}

/// Messages of a response to the request in transaction `original`.
pub(super) fn response(operation: &UserOperation<'_>, original: TransactionId) -> Vec<Bytes> {
    let mut messages = Vec::new();
    push(&mut messages, operation);
    push(&mut messages, &UserOperation::OriginatingTransactionId(field(original)));
    messages
}

/// Transaction identifier in as few bytes as possible.
pub(super) fn field(id: TransactionId) -> TransactionField {
    TransactionField::new(id, Width::fitting(id.source.0), Width::fitting(id.sequence))
}

/// Filestore response, without names that would make it too long.
pub(super) fn short(response: &FilestoreResponse) -> FilestoreResponse {
    let long = response.first.len() + response.second.len() + response.message.len() > 230;
    if !long {
        return response.clone();
    }
    FilestoreResponse { message: String::new(), ..response.clone() }
}

/// Entity number in as few bytes as possible.
pub(super) fn entity(number: u64) -> IdField {
    IdField::new(crate::pdu::EntityId(number), Width::fitting(number))
}
