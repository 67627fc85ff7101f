//! Events that transports report, the same for all protocols.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use cfdp::pdu::{ConditionCode, DeliveryCode, TransactionId};
use ltp::ltpt;
use models::programs::Latency;

/// Number of a transfer, as people read it and as its transport looks it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId {
    text: String,
    originator: Option<u64>,
    /// Name of its protocol, where several protocols number transfers.
    protocol: Option<&'static str>,
}

impl TransferId {
    /// Number with this text form.
    #[must_use]
    pub fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), originator: None, protocol: None }
    }

    /// This transfer, as one of a protocol among several.
    #[must_use]
    pub fn within(self, protocol: &'static str) -> Self {
        Self { protocol: Some(protocol), ..self }
    }

    /// Name of its protocol, if it is one among several.
    #[must_use]
    pub fn protocol(&self) -> Option<&'static str> {
        self.protocol
    }

    /// Its number within its protocol.
    #[must_use]
    pub fn number(&self) -> &str {
        &self.text
    }

    /// This event, for a transfer that the engine of this number began.
    #[must_use]
    pub fn begun_by(self, originator: u64) -> Self {
        Self { originator: Some(originator), ..self }
    }

    /// Number of the engine that began the transfer, if engines have numbers.
    #[must_use]
    pub fn originator(&self) -> Option<u64> {
        self.originator
    }

    /// Whether the number has this text form.
    pub(crate) fn is(&self, other: &impl ToString) -> bool {
        self.text == other.to_string()
    }
}

impl From<TransactionId> for TransferId {
    fn from(id: TransactionId) -> Self {
        Self::new(id).begun_by(id.source.0)
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(protocol) = self.protocol {
            write!(f, "{protocol} ")?;
        }
        f.write_str(&self.text)
    }
}

/// End of a transfer from the view of one of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The transfer.
    pub id: TransferId,
    /// Whether this is the sender's view.
    pub at_sender: bool,
    /// Name of the file at the receiver, as given by its sender.
    pub name: String,
    /// Name under which the receiver stored the file, if that may differ.
    pub stored: Option<String>,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes that an earlier session had received.
    pub resumed: u64,
    /// Whether the peer or this end confirmed the transfer; some senders only know that nobody
    /// requested more.
    pub is_confirmed: bool,
    /// Whether the source is a report of the overlay, instead of the end of a transaction, which
    /// may be one hop of several.
    pub is_report: bool,
    /// Number of the entity or engine at the other side, if known.
    pub peer: Option<u64>,
    /// Address of the other side, if it became known after the begin.
    pub address: Option<SocketAddr>,
    /// Report of a CFDP entity, if there is one.
    pub transaction: Option<Box<cfdp::TransactionFinished>>,
    /// Success if the complete file is there, otherwise the reason in the protocol's words.
    pub result: Result<(), String>,
}

impl Ended {
    /// A confirmed end with the result of an engine.
    pub fn new(
        id: TransferId,
        at_sender: bool,
        name: impl Into<String>,
        result: &Result<(), impl fmt::Display>,
    ) -> Self {
        Self {
            id,
            at_sender,
            name: name.into(),
            stored: None,
            size: 0,
            resumed: 0,
            is_confirmed: true,
            is_report: false,
            peer: None,
            address: None,
            transaction: None,
            result: result.as_ref().copied().map_err(ToString::to_string),
        }
    }

    /// This end with the reason why the receiver cannot store the file, if there is one. All
    /// protocols use the same words.
    #[must_use]
    pub fn with_refusal(self, reason: Option<impl fmt::Display>) -> Self {
        let Some(reason) = reason else { return self };
        let who = if self.at_sender { "the receiver cannot" } else { "cannot" };
        Self { result: Err(format!("{who} store the file: {reason}")), ..self }
    }

    /// Whether this end believes that the complete file is there.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.result.is_ok()
    }

    /// Name of the file here.
    #[must_use]
    pub fn local_name(&self) -> &str {
        self.stored.as_deref().unwrap_or(&self.name)
    }
}

/// Event of a stream without a length (see [`Streams`](crate::Streams)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A peer begins one.
    Opened(TransferId),
    /// Something can be read.
    Readable(TransferId),
}

/// Begin of a reception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reception {
    /// The transfer.
    pub id: TransferId,
    /// Name of the file; empty while it is unknown.
    pub name: String,
    /// Size of the file, if it is known.
    pub size: Option<u64>,
    /// Bytes that an earlier session received.
    pub resumed: u64,
    /// Address of the sender, if the transport knows it.
    pub from: Option<SocketAddr>,
}

/// Event that a transport reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A file is being received. Its name and size may follow later, in
    /// [`Progress`](crate::Progress).
    Receiving(Reception),
    /// A transfer ended.
    Ended(Ended),
    /// A transfer was given up without informing the peer, which may resume it.
    Abandoned {
        /// The transfer.
        id: TransferId,
        /// The reason.
        why: String,
    },
    /// A file that nobody sends again is lost, because too many transfers are under way.
    NoRoom {
        /// The transfer.
        id: TransferId,
        /// Name of the file; empty if it is unknown.
        name: String,
        /// Bytes received.
        bytes: u64,
    },
    /// Another transfer resumed this one, or its sender's next packet does.
    Continued(TransferId),
    /// A sender requested the end of a completed transfer again.
    Repeated {
        /// The transfer.
        id: TransferId,
        /// Reason for its end.
        condition: String,
        /// Whether the file arrived whole.
        is_whole: bool,
    },
    /// The records of an earlier process were read, with this number of interrupted transfers.
    Restored(usize),
    /// Client and server are ready for the file of this name.
    Begins(String),
    /// Echo times of typed keys, and the name of their transfer.
    Latency(String, Latency),
    /// Contents of a peer's directory.
    Listing(Vec<saratoga::Listed>),
    /// Message of a sender's application to all receivers.
    Message {
        /// Number of the sender.
        sender: u32,
        /// Content of the message.
        content: Bytes,
    },
    /// State of a block for another engine.
    Relay(ltpt::Indication),
    /// Indication of a CFDP entity to its user.
    Entity(Box<cfdp::Indication>),
    /// A PDU could not be delivered by the layer below, with the reason.
    Lost(&'static str),
    /// Event of a stream.
    Stream(StreamEvent),
    /// The end of the session was sent, as
    /// [`Groups::leave`](crate::contract::Groups::leave) requests.
    Left,
    /// Text for people.
    Notice(String),
    /// Log message about an error.
    Warning(String),
    /// Log message.
    Log(String),
    /// Change without a report: a transport may be ready now, or a transfer may have advanced.
    Update,
}

impl Event {
    /// This event, about transfers of a protocol among several.
    #[must_use]
    pub fn within(self, protocol: &'static str) -> Self {
        match self {
            Self::Receiving(it) => Self::Receiving(Reception { id: it.id.within(protocol), ..it }),
            Self::Ended(it) => Self::Ended(Ended { id: it.id.within(protocol), ..it }),
            Self::Abandoned { id, why } => Self::Abandoned { id: id.within(protocol), why },
            Self::NoRoom { id, name, bytes } => {
                Self::NoRoom { id: id.within(protocol), name, bytes }
            }
            Self::Continued(id) => Self::Continued(id.within(protocol)),
            Self::Repeated { id, condition, is_whole } => {
                Self::Repeated { id: id.within(protocol), condition, is_whole }
            }
            Self::Stream(StreamEvent::Opened(id)) => {
                Self::Stream(StreamEvent::Opened(id.within(protocol)))
            }
            Self::Stream(StreamEvent::Readable(id)) => {
                Self::Stream(StreamEvent::Readable(id.within(protocol)))
            }
            Self::Restored(_)
            | Self::Begins(_)
            | Self::Latency(..)
            | Self::Listing(_)
            | Self::Message { .. }
            | Self::Relay(_)
            | Self::Entity(_)
            | Self::Lost(_)
            | Self::Left
            | Self::Notice(_)
            | Self::Warning(_)
            | Self::Log(_)
            | Self::Update => self,
        }
    }

    /// End of a transfer, if this event is one.
    #[must_use]
    pub fn end(&self) -> Option<Ended> {
        match self {
            Self::Ended(ended) => Some(ended.clone()),
            Self::Entity(indication) => end_of(indication),
            Self::Receiving(_)
            | Self::Abandoned { .. }
            | Self::NoRoom { .. }
            | Self::Continued(_)
            | Self::Repeated { .. }
            | Self::Restored(_)
            | Self::Begins(_)
            | Self::Latency(..)
            | Self::Listing(_)
            | Self::Message { .. }
            | Self::Relay(_)
            | Self::Lost(_)
            | Self::Stream(_)
            | Self::Left
            | Self::Notice(_)
            | Self::Warning(_)
            | Self::Log(_)
            | Self::Update => None,
        }
    }
}

/// End of a transfer, if the indication reports one.
fn end_of(indication: &cfdp::Indication) -> Option<Ended> {
    match indication {
        cfdp::Indication::TransactionFinished(finished) => {
            let result = match (finished.condition, finished.delivery) {
                (ConditionCode::NoError, DeliveryCode::Complete) => Ok(()),
                (condition, _) => Err(condition.to_string()),
            };
            let (id, at_sender) = (finished.id.into(), finished.role == cfdp::Role::Sender);
            let end = Ended::new(id, at_sender, &*finished.destination_name, &result);
            Some(Ended { size: finished.size, ..end })
        }
        cfdp::Indication::UserOperation(cfdp::OperationIndication::SfoReport(report)) => {
            reported(report)
        }
        _ => None,
    }
}

/// End of a transfer according to a report of the store-and-forward overlay; `None` while the file
/// is on its way.
fn reported(report: &cfdp::SfoReported) -> Option<Ended> {
    let delivered = report.code == cfdp::SfoReported::DELIVERED;
    let failed = report.code == cfdp::SfoReported::FAILED;
    let is_whole = delivered
        && report.condition == ConditionCode::NoError
        && report.delivery == DeliveryCode::Complete;
    let why = || format!("{} at entity {}", report.condition, report.reporter);
    (delivered || failed).then(|| {
        let name = String::from_utf8_lossy(&report.label);
        let result = is_whole.then_some(()).ok_or_else(why);
        let end = Ended::new(TransferId::default(), true, name, &result);
        Ended { is_report: true, ..end }
    })
}

impl From<cfdp::Indication> for Event {
    fn from(indication: cfdp::Indication) -> Self {
        Self::Entity(Box::new(indication))
    }
}

impl From<Ended> for Event {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}
