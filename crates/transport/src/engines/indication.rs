//! What engines tell their users, behind one type.

use proto::bp::files;
use proto::programs::Latency;
use proto::{cfdp, ltp, norm, saratoga};
use wire::cfdp::{ConditionCode, DeliveryCode};

use crate::bundles;
use crate::over_tcp::OverTcpIndication;

/// What any engine tells its user.
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
    /// What a node over TCP tells.
    OverTcp(OverTcpIndication),
    /// What the user of a bundle node hears.
    Bundles(Box<files::Indication>),
}

/// How a transfer ended at one of its ends.
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
            Self::Ltp(ltp::Indication::Finished(finished)) => Some(End {
                at_sender: finished.role == wire::ltp::End::Sender,
                name: finished.name.clone(),
                success: finished.result.is_ok(),
                is_confirmed: true,
                is_report: false,
                why: match finished.result {
                    Ok(()) => "no error".to_owned(),
                    Err(failure) => failure.to_string(),
                },
            }),
            Self::Ltp(_) => None,
            Self::Saratoga(saratoga::Indication::Finished(finished)) => Some(End {
                at_sender: finished.id.role == saratoga::Role::Sender,
                name: finished.name.clone(),
                success: finished.result.is_ok(),
                is_confirmed: true,
                is_report: false,
                why: match finished.result {
                    Ok(()) => "no error".to_owned(),
                    Err(failure) => failure.to_string(),
                },
            }),
            Self::Saratoga(_) => None,
            Self::Norm(norm::Indication::Finished(finished)) => Some(End {
                at_sender: finished.is_sender,
                name: String::from_utf8_lossy(&finished.info).into_owned(),
                success: finished.result.is_ok(),
                is_confirmed: finished.is_confirmed,
                is_report: false,
                why: match &finished.result {
                    Ok(()) => "no error".to_owned(),
                    Err(failure) => failure.to_string(),
                },
            }),
            Self::Norm(_) => None,
            Self::OverTcp(told) => told.end(),
            Self::Bundles(told) => bundles::end(told),
        }
    }

    /// How long keys took to come back, if it tells of that, and the name of what they are of.
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

/// What a report of the store-and-forward overlay says of the end of a transfer; nothing while it
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
