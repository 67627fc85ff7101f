//! Indications of all engines, behind one type.

use std::fmt::Display;

use proto::bp::files;
use proto::programs::Latency;
use proto::{cfdp, ltp, norm, saratoga};
use wire::cfdp::{ConditionCode, DeliveryCode};

use crate::bundles;
use crate::over_tcp::OverTcpIndication;

/// Indication of any engine to its user.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyIndication {
    /// A CFDP entity's indication.
    Cfdp(cfdp::Indication),
    /// An LTP engine's indication.
    Ltp(ltp::Indication),
    /// A Saratoga peer's indication.
    Saratoga(saratoga::Indication),
    /// A NORM node's indication.
    Norm(norm::Indication),
    /// Indication of a node over TCP.
    OverTcp(OverTcpIndication),
    /// Indication to the user of a bundle node.
    Bundles(Box<files::Indication>),
}

/// End of a transfer, as one of its ends knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether this is the sender's view.
    pub at_sender: bool,
    /// The file's name at the receiver.
    pub name: String,
    /// Whether this end believes that the file is there, whole.
    pub success: bool,
    /// Whether it knows, where it is the sender: some only know that nobody asked for more.
    pub is_confirmed: bool,
    /// Whether a report of the overlay says so, rather than a transaction that is over, which
    /// may be one hop of several.
    pub is_report: bool,
    /// In the protocol's words.
    pub why: String,
}

impl End {
    /// A confirmed end with the result of an engine.
    fn of(at_sender: bool, name: &str, result: &Result<(), impl Display>) -> Self {
        Self {
            at_sender,
            name: name.to_owned(),
            success: result.is_ok(),
            is_confirmed: true,
            is_report: false,
            why: result.as_ref().err().map_or_else(|| "no error".to_owned(), ToString::to_string),
        }
    }
}

impl AnyIndication {
    /// The end of a transfer, if it tells of one.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        match self {
            Self::Cfdp(cfdp::Indication::TransactionFinished(finished)) => Some(End {
                at_sender: finished.role == cfdp::Role::Sender,
                name: finished.destination_name.clone(),
                success: finished.condition == ConditionCode::NoError
                    && finished.delivery == DeliveryCode::Complete,
                is_confirmed: true,
                is_report: false,
                why: finished.condition.to_string(),
            }),
            Self::Cfdp(cfdp::Indication::UserOperation(cfdp::OperationIndication::SfoReport(
                report,
            ))) => reported(report),
            Self::Cfdp(_) => None,
            Self::Ltp(ltp::Indication::Finished(finished)) => Some(End::of(
                finished.role == wire::ltp::End::Sender,
                &finished.name,
                &finished.result,
            )),
            Self::Ltp(_) => None,
            Self::Saratoga(saratoga::Indication::Finished(finished)) => Some(End::of(
                finished.id.role == saratoga::Role::Sender,
                &finished.name,
                &finished.result,
            )),
            Self::Saratoga(_) => None,
            Self::Norm(norm::Indication::Finished(finished)) => {
                let name = String::from_utf8_lossy(&finished.info);
                let end = End::of(finished.is_sender, &name, &finished.result);
                Some(End { is_confirmed: finished.is_confirmed, ..end })
            }
            Self::Norm(_) => None,
            Self::OverTcp(told) => told.end(),
            Self::Bundles(told) => bundles::end(told),
        }
    }

    /// Time that keys took to come back, and the name of their transfer, if it is about that.
    #[must_use]
    pub fn latency(&self) -> Option<(&str, Latency)> {
        match self {
            Self::OverTcp(told) => told.latency(),
            Self::Cfdp(_) | Self::Ltp(_) | Self::Saratoga(_) | Self::Norm(_) | Self::Bundles(_) => {
                None
            }
        }
    }

    /// The name of a file at its receiver, if it tells that all is ready for it to cross.
    #[must_use]
    pub fn begins(&self) -> Option<&str> {
        match self {
            Self::OverTcp(told) => told.begins(),
            Self::Cfdp(_) | Self::Ltp(_) | Self::Saratoga(_) | Self::Norm(_) | Self::Bundles(_) => {
                None
            }
        }
    }
}

/// End of a transfer according to a report of the store-and-forward overlay; `None` while the file
/// is on its way.
fn reported(report: &cfdp::SfoReported) -> Option<End> {
    let delivered = report.code == cfdp::SfoReported::DELIVERED;
    let failed = report.code == cfdp::SfoReported::FAILED;
    (delivered || failed).then(|| End {
        at_sender: true,
        name: String::from_utf8_lossy(&report.label).into_owned(),
        success: delivered
            && report.condition == ConditionCode::NoError
            && report.delivery == DeliveryCode::Complete,
        is_confirmed: true,
        is_report: true,
        why: format!("{} at entity {}", report.condition, report.reporter),
    })
}
