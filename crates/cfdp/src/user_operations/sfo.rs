//! The store-and-forward overlay (CCSDS 727.0-B-5 §6.7; the bit layout is a profile, see
//! `crate::pdu`).
//!
//! Each hop is a separate transaction, with the request as its first message. A waypoint stores
//! the whole file as a working file, counts itself, and puts the file to the next hop. Reports are
//! messages alone: sent directly to a neighbour, otherwise as a separate overlay request, so that
//! the limit on waypoints applies to them too.

use bytes::Bytes;
use engine::Time;

use super::{OperationIndication, Purpose, Received, Refusal, SfoReported, custody, message};
use crate::Entity;
use crate::core::Core;
use crate::indication::TransactionFinished;
use crate::pdu::{
    ConditionCode, Direction, EntityId, Lv, PutDetail, SfoReport, SfoRequest, TraceControl,
    TransactionId, TransmissionMode, UserOperation, UserRequest,
};
use crate::request::{FilestoreResponse, PutRequest};

/// File on its way to the next entity.
#[derive(Debug)]
pub(super) struct Hop {
    /// Transaction that brought it.
    pub(super) original: TransactionId,
    next: u64,
    traced: Traced,
}

/// Identity of an overlay transfer in reports.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    trace: TraceControl,
    mode: TransmissionMode,
    label: Bytes,
    source: u64,
    destination: u64,
    prior_waypoints: u8,
}

/// Outcome of a hop, for a report.
#[derive(Clone, Copy, Debug)]
struct Outcome<'a> {
    code: u8,
    direction: Direction,
    finished: &'a TransactionFinished,
}

impl Hop {
    pub(super) fn new(original: TransactionId, next: u64, request: &SfoRequest<'_>) -> Self {
        Self { original, next, traced: Traced::new(request) }
    }
}

impl Traced {
    fn new(request: &SfoRequest<'_>) -> Self {
        Self {
            trace: request.trace,
            mode: request.mode,
            label: Bytes::copy_from_slice(request.label.0),
            source: request.source.value,
            destination: request.destination.value,
            prior_waypoints: request.prior_waypoints,
        }
    }
}

impl Core {
    /// Reason for not forwarding a request; `None` if it is forwarded.
    pub(super) fn sfo_refusal(&self, from: u64, request: &SfoRequest<'_>) -> Option<Refusal> {
        let settings = &self.config.user_operations;
        let next = settings.next_hop(request.destination.value);
        if !self.config.remote(from).permissions.store_and_forward {
            Some(Refusal::NotPermitted)
        } else if request.source.value == self.config.entity || next == self.config.entity {
            Some(Refusal::Loop)
        } else if request.prior_waypoints >= settings.waypoints_max || next == from {
            Some(Refusal::NoRoute)
        } else {
            None
        }
    }
}

impl Entity {
    pub(super) fn sfo_arrived(
        &mut self,
        now: Time,
        received: &Received,
        request: &SfoRequest<'_>,
        all: &[UserOperation<'_>],
    ) {
        if request.destination.value == self.core.config.entity {
            self.sfo_delivered(now, received, request, all);
            return;
        }
        let asker = received.asker();
        let refusal = self.core.sfo_refusal(asker.entity, request);
        let next = self.core.config.user_operations.next_hop(request.destination.value);
        let hop = Hop::new(asker.original, next, request);
        let started = match refusal {
            Some(reason) => Err((Purpose::Hop(Box::new(hop)), reason)),
            None => {
                let put = hop_request(next, request, received);
                self.submit(now, put, Purpose::Hop(Box::new(hop)))
            }
        };
        if let Err((purpose, reason)) = started {
            self.core.refuse(asker, reason);
            let failed = super::abandoned(self.nobodys_id());
            self.purpose_ended(now, purpose, &failed);
        }
    }

    fn sfo_delivered(
        &mut self,
        now: Time,
        received: &Received,
        request: &SfoRequest<'_>,
        all: &[UserOperation<'_>],
    ) {
        let finished = &received.finished;
        let report = all.iter().find_map(|operation| {
            let UserOperation::SfoReport(report) = operation else { return None };
            Some(report)
        });
        if let Some(report) = report {
            self.core.indicate_operation(reported(report, all));
            self.discharge(received.id());
            return;
        }
        let name = if received.has_file() { request.destination_name } else { Lv::default() };
        self.core.indicate_operation(OperationIndication::SfoReceived {
            id: finished.id,
            source: request.source.entity(),
            label: Bytes::copy_from_slice(request.label.0),
            prior_waypoints: request.prior_waypoints,
            destination_name: name.to_str_lossy().into_owned(),
            messages: sfo_messages(all),
            filestore_responses: finished.filestore_responses.clone(),
        });
        let traced = Traced::new(request);
        let wanted = matches!(traced.trace, TraceControl::Source | TraceControl::Both);
        if !wanted {
            self.discharge(received.id());
            return;
        }
        let outcome = Outcome {
            code: SfoReported::DELIVERED,
            direction: Direction::TowardReceiver,
            finished,
        };
        let purpose = Purpose::Answer { asker: received.asker(), spool: None };
        self.send_report(now, &traced, traced.source, outcome, purpose);
    }

    /// Processes the end of a hop: the stored file is released, with any outcome.
    pub(super) fn hop_ended(&mut self, now: Time, hop: &Hop, finished: &TransactionFinished) {
        // The record is removed first: a crash in between leaves a file without a record, not a
        // record without a file.
        self.discharge(hop.original);
        self.core.release(hop.original);
        self.core.indicate_operation(OperationIndication::SfoForwarded {
            original: hop.original,
            next: EntityId(hop.next),
            condition: finished.condition,
        });
        let good = finished.condition == ConditionCode::NoError;
        let outcome = Outcome {
            code: if good { SfoReported::FORWARDED } else { SfoReported::FAILED },
            direction: Direction::TowardSender,
            finished,
        };
        let traced = &hop.traced;
        let (to_source, to_destination) = match traced.trace {
            TraceControl::None => (false, false),
            TraceControl::Source => (true, false),
            TraceControl::Destination => (false, true),
            TraceControl::Both => (true, true),
        };
        if to_source {
            self.send_report(now, traced, traced.source, outcome, Purpose::Note);
        }
        if to_destination {
            self.send_report(now, traced, traced.destination, outcome, Purpose::Note);
        }
    }

    fn send_report(
        &mut self,
        now: Time,
        traced: &Traced,
        to: u64,
        Outcome { code, direction, finished }: Outcome<'_>,
        purpose: Purpose,
    ) {
        let own = self.core.config.entity;
        let next = self.core.config.user_operations.next_hop(to);
        let mut messages = Vec::new();
        if next != to {
            let request = SfoRequest {
                trace: TraceControl::None,
                mode: traced.mode,
                segmentation_control: false,
                closure_requested: false,
                prior_waypoints: 0,
                label: Lv(&traced.label),
                source: message::entity(own),
                destination: message::entity(to),
                source_name: Lv::default(),
                destination_name: Lv::default(),
            };
            message::push(&mut messages, &UserRequest::Sfo(request).into());
        }
        let report = SfoReport {
            label: Lv(&traced.label),
            source: message::entity(traced.source),
            destination: message::entity(traced.destination),
            reporter: message::entity(own),
            prior_waypoints: traced.prior_waypoints,
            report_code: code,
            condition: finished.condition,
            direction,
            delivery: finished.delivery,
            file_status: finished.file_status,
        };
        message::push(&mut messages, &UserOperation::SfoReport(report));
        // Only the destination reports filestore responses.
        let is_destination = direction == Direction::TowardReceiver;
        for response in finished.filestore_responses.iter().filter(|_| is_destination) {
            let short = message::short(response);
            let operation = UserOperation::Sfo(PutDetail::FilestoreResponse(short.to_wire()));
            message::push(&mut messages, &operation);
        }
        let request = PutRequest {
            destination: next,
            mode: Some(traced.mode),
            messages,
            ..PutRequest::default()
        };
        if let Err((purpose, _)) = self.submit(now, request, purpose) {
            self.purpose_ended(now, purpose, &super::abandoned(self.nobodys_id()));
        }
    }
}

/// Put to the next entity: the same messages, with one more waypoint in the request.
fn hop_request(next: u64, request: &SfoRequest<'_>, received: &Received) -> PutRequest {
    let has_file = received.has_file();
    let counted = SfoRequest { prior_waypoints: request.prior_waypoints + 1, ..*request };
    let mut put = PutRequest {
        destination: next,
        source: has_file.then(|| custody::spool_name(received.id())),
        source_name: has_file.then(|| request.source_name.to_str_lossy().into_owned()),
        destination_name: request.destination_name.to_str_lossy().into_owned(),
        mode: Some(request.mode),
        closure: Some(request.closure_requested),
        segmentation_control: request.segmentation_control,
        ..PutRequest::default()
    };
    message::push(&mut put.messages, &UserRequest::Sfo(counted).into());
    for bytes in &received.finished.messages {
        match UserOperation::decode(bytes) {
            Ok(Some(UserOperation::Request(UserRequest::Sfo(_)))) => continue,
            Ok(Some(UserOperation::Sfo(PutDetail::FaultHandlerOverride {
                condition,
                handler,
            }))) => {
                put.fault_handlers.push((condition, handler));
            }
            Ok(Some(UserOperation::Sfo(PutDetail::FlowLabel(label)))) => {
                put.flow_label = Some(Bytes::copy_from_slice(label.0));
            }
            Ok(Some(_) | None) | Err(_) => {}
        }
        put.messages.push(bytes.clone());
    }
    put
}

/// Report as indicated to the user.
pub(super) fn reported(report: &SfoReport<'_>, all: &[UserOperation<'_>]) -> OperationIndication {
    let responses = all.iter().filter_map(|operation| {
        let UserOperation::Sfo(PutDetail::FilestoreResponse(response)) = operation else {
            return None;
        };
        Some(FilestoreResponse::from_wire(response))
    });
    OperationIndication::SfoReport(SfoReported {
        label: Bytes::copy_from_slice(report.label.0),
        source: report.source.entity(),
        destination: report.destination.entity(),
        reporter: report.reporter.entity(),
        prior_waypoints: report.prior_waypoints,
        code: report.report_code,
        condition: report.condition,
        delivery: report.delivery,
        file_status: report.file_status,
        filestore_responses: responses.collect(),
    })
}

/// Messages to user in an overlay transfer.
fn sfo_messages(all: &[UserOperation<'_>]) -> Vec<Bytes> {
    let messages = all.iter().filter_map(|operation| {
        let UserOperation::Sfo(PutDetail::MessageToUser(text)) = operation else { return None };
        Some(Bytes::copy_from_slice(text.0))
    });
    messages.collect()
}
