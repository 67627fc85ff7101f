//! Outcome of a transaction, and its Finished PDU (CCSDS 727.0-B-5 §5.2.3).

use crate::pdu::{
    Body, ConditionCode, DeliveryCode, EntityId, FileStatus, Finished, Header, IdField, Pdu, Tlv,
    Tlvs,
};

use super::indication::TransactionFinished;
use super::request::FilestoreResponse;

/// Outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) condition: ConditionCode,
    pub(crate) delivery: DeliveryCode,
    pub(crate) file_status: FileStatus,
    pub(crate) responses: Vec<FilestoreResponse>,
    pub(crate) fault_location: Option<EntityId>,
}

impl Outcome {
    /// Outcome without an error, before anything else is known.
    pub(crate) fn new(delivery: DeliveryCode) -> Self {
        Self {
            condition: ConditionCode::NoError,
            delivery,
            file_status: FileStatus::Unreported,
            responses: Vec::new(),
            fault_location: None,
        }
    }

    /// Outcome in a Finished PDU.
    pub(crate) fn from_wire(finished: &Finished<'_>) -> Self {
        let responses = finished.tlvs.iter().filter_map(|tlv| match tlv {
            Tlv::FilestoreResponse(response) => Some(FilestoreResponse::from_wire(&response)),
            Tlv::FilestoreRequest(_)
            | Tlv::MessageToUser(_)
            | Tlv::FaultHandlerOverride { .. }
            | Tlv::FlowLabel(_)
            | Tlv::EntityId(_)
            | Tlv::Other { .. } => None,
        });
        Self {
            condition: finished.condition,
            delivery: finished.delivery,
            file_status: finished.file_status,
            responses: responses.collect(),
            fault_location: finished.fault_location().map(|id| id.entity()),
        }
    }

    /// Outcome as indicated to the user.
    pub(crate) fn reported(finished: &TransactionFinished) -> Self {
        Self {
            condition: finished.condition,
            delivery: finished.delivery,
            file_status: finished.file_status,
            responses: finished.filestore_responses.clone(),
            fault_location: finished.fault_location,
        }
    }

    /// Encodes a Finished PDU of at most `max` bytes. Responses that do not fit are dropped from
    /// the last on, because the sender needs the outcome in any case.
    pub(crate) fn encode(&self, header: &Header, end_system: bool, max: usize) -> Vec<u8> {
        let blameless = matches!(
            self.condition,
            ConditionCode::NoError | ConditionCode::UnsupportedChecksumType
        );
        let width = header.entity_width;
        let location = self.fault_location.filter(|id| !blameless && id.0 <= width.max_value());
        let encode = |count: usize| {
            let responses = self.responses.iter().take(count);
            let mut tlvs: Vec<Tlv<'_>> =
                responses.map(|response| Tlv::FilestoreResponse(response.to_wire())).collect();
            tlvs.extend(location.map(|id| Tlv::EntityId(IdField::new(id, width))));
            let body = Body::Finished(Finished {
                condition: self.condition,
                end_system,
                delivery: self.delivery,
                file_status: self.file_status,
                tlvs: Tlvs::new(&tlvs),
            });
            Pdu { header: *header, body }.to_vec().ok()
        };
        let fits = |pdu: &Vec<u8>| pdu.len() <= max;
        let fewer = (1..=self.responses.len()).rev().filter_map(&encode).find(fits);
        fewer.or_else(|| encode(0)).unwrap_or_default()
    }
}

/// Finished PDU with as many of its responses as fit into `max` bytes; other PDUs are unchanged.
pub(crate) fn fitted(pdu: Vec<u8>, max: usize) -> Vec<u8> {
    if pdu.len() <= max {
        return pdu;
    }
    match Pdu::decode(&pdu) {
        Ok(Pdu { header, body: Body::Finished(finished) }) => {
            Outcome::from_wire(&finished).encode(&header, finished.end_system, max)
        }
        Ok(_) | Err(_) => pdu,
    }
}
