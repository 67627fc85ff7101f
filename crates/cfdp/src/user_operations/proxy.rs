//! Puts made for others (CCSDS 727.0-B-5 §6.2).

use bytes::Bytes;
use engine::{FileName, Time};

use super::{Asker, OperationIndication, Purpose, Refusal, message};
use crate::Entity;
use crate::indication::TransactionFinished;
use crate::pdu::{
    ConditionCode, DeliveryCode, EntityId, FileStatus, ProxyPut, PutDetail, UserOperation,
};
use crate::request::{FilestoreRequest, FilestoreResponse, PutRequest};

impl Entity {
    pub(super) fn proxy_requested(
        &mut self,
        now: Time,
        asker: Asker,
        put: &ProxyPut<'_>,
        all: &[UserOperation<'_>],
    ) {
        let config = &self.core.config;
        let wanted = if !config.remote(asker.entity).permissions.proxy_put {
            Err(Refusal::NotPermitted)
        } else if put.destination.value == config.entity {
            Err(Refusal::Loop)
        } else {
            wanted_put(asker, put, all).ok_or(Refusal::Name)
        };
        let started = wanted.and_then(|request| {
            self.submit(now, request, Purpose::Proxy(asker)).map_err(|(_, reason)| reason)
        });
        match started {
            Ok(Some(id)) => {
                let (from, original) = (EntityId(asker.entity), asker.original);
                self.core.indicate_operation(OperationIndication::ProxyPut { from, original, id });
            }
            Ok(None) => {}
            Err(reason) => {
                self.core.refuse(asker, reason);
                let refused = UserOperation::ProxyPutResponse {
                    condition: ConditionCode::FilestoreRejection,
                    delivery: DeliveryCode::Incomplete,
                    file_status: FileStatus::FilestoreRejection,
                };
                self.answer_proxy(now, asker, &refused, &[]);
            }
        }
    }

    /// Cancels a put requested by the same entity.
    pub(super) fn proxy_cancelled(&mut self, now: Time, asker: Asker, all: &[UserOperation<'_>]) {
        let wanted = message::originating(all);
        let mut puts = self.core.operations.puts.iter();
        let found = puts.find_map(|(id, purpose)| match purpose {
            Purpose::Proxy(other) => {
                let same = Some(other.original) == wanted && other.entity == asker.entity;
                same.then_some(*id)
            }
            Purpose::Answer { .. } | Purpose::Hop(_) | Purpose::Note => None,
        });
        // The response to a finished put was already sent.
        if let Some(id) = found {
            let _ended_meanwhile = self.cancel(now, id);
        }
        self.discharge(asker.original);
    }

    pub(super) fn proxy_ended(&mut self, now: Time, asker: Asker, finished: &TransactionFinished) {
        let response = UserOperation::ProxyPutResponse {
            condition: finished.condition,
            delivery: finished.delivery,
            file_status: finished.file_status,
        };
        self.answer_proxy(now, asker, &response, &finished.filestore_responses);
    }

    fn answer_proxy(
        &mut self,
        now: Time,
        asker: Asker,
        response: &UserOperation<'_>,
        filestore: &[FilestoreResponse],
    ) {
        let mut messages = message::response(response, asker.original);
        for response in filestore {
            let short = message::short(response);
            let operation = UserOperation::Proxy(PutDetail::FilestoreResponse(short.to_wire()));
            message::push(&mut messages, &operation);
        }
        self.answer(now, asker, messages);
    }
}

/// Requested put; `None` if a name in it is unusable.
fn wanted_put(asker: Asker, put: &ProxyPut<'_>, all: &[UserOperation<'_>]) -> Option<PutRequest> {
    let source = match put.source_name.to_str()? {
        "" => None,
        name => Some(FileName::file(name).ok()?),
    };
    let mut messages = Vec::new();
    let original = UserOperation::OriginatingTransactionId(message::field(asker.original));
    message::push(&mut messages, &original);
    let mut request = PutRequest {
        destination: put.destination.value,
        source,
        destination_name: put.destination_name.to_str()?.to_owned(),
        messages,
        ..PutRequest::default()
    };
    for operation in all {
        apply(&mut request, operation);
    }
    Some(request)
}

/// Applies an operation that accompanies a proxy put request.
fn apply(request: &mut PutRequest, operation: &UserOperation<'_>) {
    match operation {
        UserOperation::Proxy(PutDetail::MessageToUser(text)) => {
            request.messages.push(Bytes::copy_from_slice(text.0));
        }
        UserOperation::Proxy(PutDetail::FilestoreRequest(wanted)) => {
            request.filestore_requests.push(FilestoreRequest::from_wire(wanted));
        }
        UserOperation::Proxy(PutDetail::FaultHandlerOverride { condition, handler }) => {
            request.fault_handlers.push((*condition, *handler));
        }
        UserOperation::Proxy(PutDetail::FlowLabel(label)) => {
            request.flow_label = Some(Bytes::copy_from_slice(label.0));
        }
        UserOperation::ProxyTransmissionMode(mode) => request.mode = Some(*mode),
        UserOperation::ProxySegmentationControl(control) => {
            request.segmentation_control = *control;
        }
        UserOperation::ProxyClosureRequest(closure) => request.closure = Some(*closure),
        // Requests, and responses.
        _ => {}
    }
}
