//! The messages to user that are user operations, as they come and as they go.

use bytes::Bytes;
use wire::cfdp::{TransactionField, TransactionId, UserOperation, Width};

use crate::cfdp::request::FilestoreResponse;

/// The user operations among the messages of one transaction, in order. What begins as one and
/// does not go on as one is left out.
pub(super) fn operations(messages: &[Bytes]) -> Vec<UserOperation<'_>> {
    messages.iter().filter_map(|message| UserOperation::decode(message).ok().flatten()).collect()
}

/// Whether one of the messages may be a user operation.
pub(crate) fn has_operation(messages: &[Bytes]) -> bool {
    messages.iter().any(|message| message.starts_with(b"cfdp"))
}

/// Whether the messages ask this entity to do something after the transaction.
pub(super) fn asks(operation: &UserOperation<'_>) -> bool {
    match operation {
        UserOperation::ProxyPutRequest { .. }
        | UserOperation::ProxyPutCancel
        | UserOperation::DirectoryListingRequest { .. }
        | UserOperation::RemoteStatusReportRequest { .. }
        | UserOperation::RemoteSuspendRequest(_)
        | UserOperation::RemoteResumeRequest(_)
        | UserOperation::SfoRequest(_) => true,
        UserOperation::ProxyMessageToUser(_)
        | UserOperation::ProxyFilestoreRequest(_)
        | UserOperation::ProxyFaultHandlerOverride { .. }
        | UserOperation::ProxyTransmissionMode(_)
        | UserOperation::ProxyFlowLabel(_)
        | UserOperation::ProxySegmentationControl(_)
        | UserOperation::ProxyPutResponse { .. }
        | UserOperation::ProxyFilestoreResponse(_)
        | UserOperation::OriginatingTransactionId(_)
        | UserOperation::ProxyClosureRequest(_)
        | UserOperation::DirectoryListingResponse { .. }
        | UserOperation::RemoteStatusReportResponse { .. }
        | UserOperation::RemoteSuspendResponse { .. }
        | UserOperation::RemoteResumeResponse { .. }
        | UserOperation::SfoMessageToUser(_)
        | UserOperation::SfoFlowLabel(_)
        | UserOperation::SfoFaultHandlerOverride { .. }
        | UserOperation::SfoFilestoreRequest(_)
        | UserOperation::SfoReport(_)
        | UserOperation::SfoFilestoreResponse(_)
        | UserOperation::Other { .. } => false,
    }
}

/// The transaction that caused the one these operations came with. The first counts: what a proxy
/// was asked to pass on comes after its own.
pub(super) fn originating(operations: &[UserOperation<'_>]) -> Option<TransactionId> {
    operations.iter().find_map(|operation| {
        if let UserOperation::OriginatingTransactionId(field) = operation {
            Some(field.id())
        } else {
            None
        }
    })
}

/// A message of its own; `None` if a value in it does not fit a message of 255 bytes.
pub(super) fn encode(operation: &UserOperation<'_>) -> Option<Bytes> {
    let message = operation.to_vec().ok()?;
    (message.len() <= 255).then(|| message.into())
}

/// Appends a message if it fits.
pub(super) fn push(messages: &mut Vec<Bytes>, operation: &UserOperation<'_>) {
    messages.extend(encode(operation));
}

/// A transaction id in as few octets as hold it.
pub(super) fn field(id: TransactionId) -> TransactionField {
    TransactionField::new(id, Width::fitting(id.source.0), Width::fitting(id.sequence))
}

/// The names a filestore response may carry, without what would make it too long.
pub(super) fn short(response: &FilestoreResponse) -> FilestoreResponse {
    let long = response.first.len() + response.second.len() + response.message.len() > 230;
    if !long {
        return response.clone();
    }
    FilestoreResponse { message: String::new(), ..response.clone() }
}
