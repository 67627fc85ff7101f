//! Indications and transactions of an entity, as other protocols report theirs.

use cfdp::pdu::{ConditionCode, DeliveryCode, FileStatus};
use cfdp::{
    Entity, Indication, Limit, NoRoom, OperationIndication, Role, State, TransactionFinished,
};

use crate::contract::Progress;
use crate::event::{Ended, Event, Reception};

impl From<ut::Indication> for Event {
    fn from(indication: ut::Indication) -> Self {
        match indication {
            ut::Indication::Cfdp(indication) => indication.into(),
            ut::Indication::Lost { why, .. } => Self::Lost(why),
            ut::Indication::Noted(note) => Self::Warning(note.to_string()),
        }
    }
}

/// Transactions that advance by themselves.
pub(super) fn advancing(entity: &Entity) -> usize {
    entity.transactions().filter(|report| report.state != State::Suspended).count()
}

/// Progress of an entity's transactions.
pub(super) fn progress(entity: &Entity) -> Vec<Progress> {
    let progress = |report: cfdp::Report| Progress {
        id: report.id.into(),
        bytes: report.progress,
        confirmed: report.confirmed,
        size: report.size,
        name: report.destination_name,
        wait: match report.state {
            State::Opening => Some("opening"),
            State::Suspended => Some("suspended"),
            State::Waiting => Some("waiting for the receiver"),
            State::Transferring | State::Completing | State::Closing => None,
        },
    };
    entity.transactions().map(progress).collect()
}

/// Indication of an entity, as other protocols report theirs.
pub(super) fn report(entity: &Entity, indication: Indication) -> Event {
    match indication {
        Indication::Restored { transactions } => Event::Restored(transactions),
        Indication::MetadataReceived(metadata) if metadata.destination_name.is_empty() => {
            let (id, from) = (metadata.id, metadata.source);
            Event::Notice(format!("{id}: messages from entity {from}"))
        }
        Indication::MetadataReceived(metadata) => Event::Receiving(Reception {
            id: metadata.id.into(),
            name: metadata.destination_name,
            size: metadata.size,
            resumed: 0,
            from: entity.peer_address(metadata.id),
        }),
        Indication::TransactionFinished(finished) => {
            // That of a restored transaction was unknown at its begin.
            let address = entity.peer_address(finished.id);
            let refusal = finished.store_refusal();
            Event::Ended(Ended { address, ..ended(finished) }.with_refusal(refusal))
        }
        Indication::Abandoned { id, condition, .. } => {
            Event::Abandoned { id: id.into(), why: condition.to_string() }
        }
        Indication::Displaced(id) => Event::Continued(id.into()),
        Indication::NoRoom(NoRoom { id, name, progress }) => {
            Event::NoRoom { id: id.into(), name, bytes: progress }
        }
        Indication::FinishedRepeated { id, condition, delivery } => Event::Repeated {
            id: id.into(),
            condition: condition.to_string(),
            is_whole: condition == ConditionCode::NoError && delivery == DeliveryCode::Complete,
        },
        Indication::Fault { id, condition, .. } => Event::Notice(format!("{id}: {condition}")),
        Indication::Suspended { id, condition: ConditionCode::InactivityDetected } => {
            let is_ours = id.source.0 == entity.config().entity;
            let rest = if is_ours { "" } else { "; what arrived is kept until the sender resumes" };
            let why = format!("{}{rest}", ConditionCode::InactivityDetected);
            Event::Abandoned { id: id.into(), why }
        }
        Indication::Suspended { id, condition } => {
            Event::Notice(format!("{id}: suspended: {condition}"))
        }
        Indication::PeerError { id, error, .. } => Event::Notice(format!("{id}: {error}")),
        Indication::Misdirected { destination, .. } => {
            let here = entity.config().entity;
            Event::Notice(format!(
                "PDUs for entity {destination} come here and are dropped: this is entity {here}"
            ))
        }
        Indication::LimitReached(Limit::Transactions) => Event::Warning(
            "as many transactions as allowed are under way; one makes room for another".to_owned(),
        ),
        // Data dropped at these limits is requested again.
        Indication::LimitReached(
            limit @ (Limit::Gaps | Limit::WriteBuffer | Limit::Replies | Limit::Refusals),
        ) => Event::Log(format!("limit reached: {limit:?}")),
        Indication::RecordRefused { key } => {
            Event::Warning(format!("the record {key} of an earlier transfer cannot be read"))
        }
        Indication::UserOperation(operation) => operation_report(&operation),
        Indication::Transaction(_)
        | Indication::EofSent(_)
        | Indication::FileSegmentReceived { .. }
        | Indication::EofReceived(_)
        | Indication::Resumed { .. }
        | Indication::Report(_) => Event::Update,
    }
}

/// End of a transaction as its user sees it: completed if the file is in its place.
fn ended(finished: TransactionFinished) -> Ended {
    let at_sender = finished.role == Role::Sender;
    let is_kept = match finished.file_status {
        FileStatus::Retained | FileStatus::Unreported => true,
        FileStatus::Discarded | FileStatus::FilestoreRejection | FileStatus::Other(_) => false,
    };
    let is_error = finished.condition != ConditionCode::NoError;
    let is_whole = !is_error && finished.delivery == DeliveryCode::Complete && is_kept;
    let result = is_whole.then_some(()).ok_or(finished.condition);
    let (name, stored) = match finished.role {
        Role::Sender => (&finished.destination_name, None),
        Role::Receiver => (&finished.source_name, Some(finished.destination_name.clone())),
    };
    let end = Ended::new(finished.id.into(), at_sender, &**name, &result);
    Ended {
        stored,
        size: finished.size,
        // Class 1 without closure has no report.
        is_confirmed: !at_sender || is_error || finished.file_status != FileStatus::Unreported,
        peer: Some(finished.peer.0),
        transaction: Some(Box::new(finished)),
        ..end
    }
}

/// Report of an operation that another entity requested.
fn operation_report(operation: &OperationIndication) -> Event {
    Event::Notice(match operation {
        OperationIndication::Refused { from, id, reason } => {
            format!("{id}: refused a request of entity {from}: {reason}")
        }
        OperationIndication::ProxyPut { from, original, id } => {
            format!("{id}: sending a file for entity {from} ({original})")
        }
        OperationIndication::SfoForwarded { original, next, condition } => {
            format!("{original}: handed on to entity {next}: {condition}")
        }
        OperationIndication::Relayed { id, condition } => format!("{id}: relayed: {condition}"),
        // The transaction that brings a file or a reply has its own report.
        OperationIndication::SfoReceived { .. }
        | OperationIndication::SfoReport(_)
        | OperationIndication::ProxyPutResponse { .. }
        | OperationIndication::DirectoryListing { .. }
        | OperationIndication::RemoteStatusReport { .. }
        | OperationIndication::RemoteSuspend { .. }
        | OperationIndication::RemoteResume { .. } => return Event::Update,
    })
}
