//! Status reports, suspension and resumption of transactions requested by other entities (CCSDS
//! 727.0-B-5 §6.4 to §6.6), and responses to this entity's requests.

use std::fmt::Write as _;

use engine::Time;

use super::{Access, Asker, OperationIndication, Received, Refusal, message};
use crate::Entity;
use crate::indication::{Report, Role, State};
use crate::pdu::{
    ConditionCode, Lv, PutDetail, Suspension, TransactionField, TransactionId, TransactionStatus,
    UserOperation,
};
use crate::request::FilestoreResponse;

impl Entity {
    pub(super) fn status_requested(
        &mut self,
        now: Time,
        asker: Asker,
        field: TransactionField,
        file: Lv<'_>,
    ) {
        let id = field.id();
        let permitted =
            self.may(asker, id, self.core.config.remote(asker.entity).permissions.status_report);
        let report = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        let report = report.filter(|_| permitted).map(super::Transaction::report);
        let status = if permitted { self.status_of(id) } else { TransactionStatus::Undefined };
        let messages = |success| {
            let response =
                UserOperation::RemoteStatusReportResponse { status, success, transaction: field };
            message::response(&response, asker.original)
        };
        if !permitted {
            self.core.refuse(asker, Refusal::NotPermitted);
        }
        match (report, file.to_str()) {
            (Some(report), Some(file)) if !file.is_empty() => {
                let content = describe(&report);
                let file = file.to_owned();
                self.answer_with_file(asker, content, file, messages(true), messages(false));
            }
            (Some(_) | None, _) => self.answer(now, asker, messages(false)),
        }
    }

    pub(super) fn suspend_requested(
        &mut self,
        now: Time,
        asker: Asker,
        field: TransactionField,
        suspend: bool,
    ) {
        let id = field.id();
        let access = self.core.config.remote(asker.entity).permissions.suspend;
        let permitted = self.may(asker, id, access);
        if permitted {
            // The returned status shows that a transaction has ended.
            let _unknown = if suspend { self.suspend(now, id) } else { self.resume(now, id) };
        } else {
            self.core.refuse(asker, Refusal::NotPermitted);
        }
        let known = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
        let state = known.filter(|_| permitted).map(|known| known.report().state);
        let suspended = state == Some(State::Suspended);
        let status = if permitted { self.status_of(id) } else { TransactionStatus::Undefined };
        let suspension = Suspension { suspended, status, transaction: field };
        let response = if suspend {
            UserOperation::RemoteSuspendResponse(suspension)
        } else {
            UserOperation::RemoteResumeResponse(suspension)
        };
        self.answer(now, asker, message::response(&response, asker.original));
    }

    /// Whether an entity may inspect or control a transaction.
    fn may(&self, asker: Asker, id: TransactionId, access: Access) -> bool {
        match access {
            Access::Nothing => false,
            Access::All => true,
            Access::Own => {
                let known = self.by_id.get(&id).and_then(|handle| self.slots.get(*handle));
                id.source.0 == asker.entity
                    || known.is_some_and(|known| known.base().peer == asker.entity)
            }
        }
    }

    fn status_of(&self, id: TransactionId) -> TransactionStatus {
        if self.by_id.contains_key(&id) {
            TransactionStatus::Active
        } else if self.closed.get(id).is_some() {
            TransactionStatus::Terminated
        } else {
            TransactionStatus::Unrecognized
        }
    }

    /// Indicates responses to requests of this entity.
    pub(super) fn answered(&mut self, received: &Received, all: &[UserOperation<'_>]) {
        if let Some(report) = all.iter().find_map(|operation| reported_by(operation, received, all))
        {
            self.core.indicate_operation(report);
        }
    }
}

/// Indication for an operation that is a response.
fn reported_by(
    operation: &UserOperation<'_>,
    received: &Received,
    all: &[UserOperation<'_>],
) -> Option<OperationIndication> {
    let from = received.finished.peer;
    let id = message::originating(all).unwrap_or(received.id());
    let good = received.finished.condition == ConditionCode::NoError;
    Some(match *operation {
        UserOperation::ProxyPutResponse { condition, delivery, file_status } => {
            OperationIndication::ProxyPutResponse {
                from,
                id,
                condition,
                delivery,
                file_status,
                filestore_responses: proxy_filestore_responses(all),
            }
        }
        UserOperation::DirectoryListingResponse { success, directory, file } => {
            OperationIndication::DirectoryListing {
                from,
                id,
                success: success && good,
                directory: directory.to_str_lossy().into_owned(),
                file: file.to_str_lossy().into_owned(),
            }
        }
        UserOperation::RemoteStatusReportResponse { status, success, transaction } => {
            OperationIndication::RemoteStatusReport {
                from,
                id,
                transaction: transaction.id(),
                status,
                success: success && good,
                file: received.finished.destination_name.clone(),
            }
        }
        UserOperation::RemoteSuspendResponse(Suspension { suspended, status, transaction }) => {
            let transaction = transaction.id();
            OperationIndication::RemoteSuspend { from, transaction, suspended, status }
        }
        UserOperation::RemoteResumeResponse(Suspension { suspended, status, transaction }) => {
            let transaction = transaction.id();
            OperationIndication::RemoteResume { from, transaction, suspended, status }
        }
        UserOperation::SfoReport(report) => super::sfo::reported(&report, all),
        _ => return None,
    })
}

fn proxy_filestore_responses(all: &[UserOperation<'_>]) -> Vec<FilestoreResponse> {
    let responses = all.iter().filter_map(|operation| {
        let UserOperation::Proxy(PutDetail::FilestoreResponse(response)) = operation else {
            return None;
        };
        Some(FilestoreResponse::from_wire(response))
    });
    responses.collect()
}

/// Report of a transaction as text, one field per line.
fn describe(report: &Report) -> String {
    let mut out = String::new();
    let role = match report.role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    let state = match report.state {
        State::Opening => "opening",
        State::Transferring => "transferring",
        State::Waiting => "waiting",
        State::Completing => "completing",
        State::Closing => "closing",
        State::Suspended => "suspended",
    };
    let size = report.size.map_or_else(|| "unknown".to_owned(), |size| size.to_string());
    let lines = [
        ("transaction", report.id.to_string()),
        ("role", role.to_owned()),
        ("peer", report.peer.to_string()),
        ("state", state.to_owned()),
        ("condition", report.condition.to_string()),
        ("progress_bytes", report.progress.to_string()),
        ("size_bytes", size),
        ("source", report.source_name.clone()),
        ("destination", report.destination_name.clone()),
    ];
    for (field, value) in lines {
        writeln!(out, "{field}: {value}").expect("writing to a string does not fail");
    }
    out
}
