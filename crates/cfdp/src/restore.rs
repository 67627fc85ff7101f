//! Restoring transactions from the records of an earlier run.

use bytes::Bytes;
use engine::{Completion, EffectError, FileName, IndexRequest, PathId, Time};
use session::path::Handle;
use session::{Credit, Turns as _};

use super::closed::Over;
use super::core::{Base, Job};
use super::indication::Indication;
use super::journal::{self, ReceiverRecord, Record};
use super::request::{FilestoreRequest, PutRequest};
use super::sender::Sender;
use super::{Entity, Transaction};
use crate::pdu::{Body, Direction, Header, Lv, Metadata, Pdu, Tlv};

impl Entity {
    /// Restores the records; without them, starts without transactions.
    pub(super) fn restore(&mut self, now: Time, answer: Result<Completion, EffectError>) {
        self.loaded = true;
        let Ok(Completion::Records(records)) = answer else {
            self.core.stats.record_errors += 1;
            return;
        };
        let mut transactions = 0;
        let mut finished = Vec::new();
        let mut owed = Vec::new();
        for (key, value) in records {
            if !key.starts_with(journal::RECORD_PREFIX) {
                continue;
            }
            let taken = match journal::decode(&value) {
                Some(Record::Sequence(next)) => {
                    self.sequence = self.core.config.first_sequence.unwrap_or(0).max(next);
                    self.sequence_reserved = self.sequence;
                    self.sequence_safe = self.sequence;
                    continue;
                }
                Some(Record::Sender { source, unbounded, metadata }) => {
                    self.restore_sender(now, &key, source, unbounded, &metadata)
                }
                Some(Record::Receiver(record)) => self.restore_receiver(now, record),
                Some(Record::Finished { order, pdu, subject }) => {
                    finished.push((order, Over { pdu, subject, since: now }));
                    continue;
                }
                Some(Record::Owed { order, pdu, subject, metadata }) => {
                    finished.push((order, Over { pdu: pdu.clone(), subject, since: now }));
                    owed.push((order, pdu, metadata));
                    continue;
                }
                None => false,
            };
            if taken {
                transactions += 1;
            } else {
                self.refuse_record(key);
            }
        }
        finished.sort_by_key(|(order, _)| *order);
        let first_repeated = finished.len().saturating_sub(self.core.config.finished_resends);
        for (number, (order, over)) in finished.into_iter().enumerate() {
            self.core.finished = self.core.finished.max(order);
            let id = Pdu::decode(&over.pdu).ok().map(|pdu| pdu.header.transaction());
            if let Some(id) = id {
                if number >= first_repeated
                    && let Some(path) = self.way_to(id.source.0)
                {
                    self.reply(path, Some(over.pdu.clone()), &mut Credit::Unlimited);
                }
                self.remember(id, over);
            }
        }
        owed.sort_unstable();
        for (order, pdu, metadata) in owed {
            self.restore_owed(order, &pdu, &metadata);
        }
        if transactions > 0 {
            self.core.user.indicate(Indication::Restored { transactions });
        }
    }

    /// Configured path to another entity.
    fn way_to(&self, number: u64) -> Option<PathId> {
        self.core.config.remotes.get(&number).and_then(|remote| remote.path)
    }

    /// Sets the path to another entity.
    pub fn set_way(&mut self, number: u64, path: PathId) {
        let config = &mut self.core.config;
        let remote = config.remotes.entry(number);
        remote.or_insert_with(|| config.default_remote.clone()).path = Some(path);
    }

    /// Source entities in the records. Paths to them must exist before the records are restored.
    pub fn sources(records: &[(String, Bytes)]) -> impl Iterator<Item = u64> + '_ {
        records.iter().filter_map(|(key, _)| journal::source_of(key))
    }

    fn refuse_record(&mut self, key: String) {
        let request = IndexRequest::Remove { key: key.clone() };
        self.core.shared.index(Handle::NOBODY, Job::Forget, request);
        self.core.user.indicate(Indication::RecordRefused { key });
    }

    fn restore_sender(
        &mut self,
        now: Time,
        key: &str,
        source: Option<FileName>,
        unbounded: bool,
        metadata: &[u8],
    ) -> bool {
        let Ok(Pdu { header, body: Body::Metadata(described) }) = Pdu::decode(metadata) else {
            return false;
        };
        let id = header.transaction();
        if journal::sender_key(id) != key {
            return false;
        }
        let request = described_put(&header, &described, source, unbounded);
        if header.source.0 != self.core.config.entity {
            return self.restore_forward(now, &header, &described, request);
        }
        if !self.is_free(id) {
            return false;
        }
        let handle = self.slots.reserve();
        let remote = self.core.config.remote(request.destination).clone();
        let mut base = Base::new(handle, header, request.destination, remote);
        base.seat.path = base.seat.path.or_else(|| self.core.shared.only_path());
        let size = (!unbounded).then_some(described.file_size);
        let mut sender = Sender::restored(base, request, size);
        sender.start(&mut self.core, now);
        self.fill(handle, id, Transaction::Sender(Box::new(sender)));
        self.settle(handle);
        true
    }

    fn restore_receiver(&mut self, now: Time, record: ReceiverRecord) -> bool {
        let first = if record.metadata.is_empty() { &record.eof } else { &record.metadata };
        let Ok(pdu) = Pdu::decode(first) else { return false };
        let header = pdu.header;
        if header.source.0 == self.core.config.entity
            || header.direction != Direction::TowardReceiver
            || !self.is_free(header.transaction())
        {
            return false;
        }
        let path = self.way_to(header.source.0).or_else(|| self.core.shared.only_path());
        let handle = self.begin_reception(now, path, &header);
        if let Some(Transaction::Receiver(receiver)) = self.slots.get_mut(handle) {
            receiver.restore(&mut self.core, now, record);
        }
        self.settle(handle);
        true
    }
}

/// Put described by a Metadata PDU, with its local file name.
pub(super) fn described_put(
    header: &Header,
    described: &Metadata<'_>,
    source: Option<FileName>,
    unbounded: bool,
) -> PutRequest {
    let mut request = PutRequest {
        destination: header.destination.0,
        source,
        source_name: Some(described.source_name.to_str_lossy().into_owned()),
        destination_name: described.destination_name.to_str_lossy().into_owned(),
        mode: Some(header.mode),
        closure: Some(described.closure_requested),
        checksum: Some(described.checksum_type),
        segmentation_control: header.segmentation_control,
        unbounded,
        ..PutRequest::default()
    };
    for tlv in described.tlvs {
        add_option(&mut request, &tlv);
    }
    request
}

/// Adds an option of a Metadata PDU to the put request that the PDU describes.
fn add_option(request: &mut PutRequest, tlv: &Tlv<'_>) {
    let copy = |value: &Lv<'_>| Bytes::copy_from_slice(value.0);
    match tlv {
        Tlv::FilestoreRequest(wanted) => {
            request.filestore_requests.push(FilestoreRequest::from_wire(wanted));
        }
        Tlv::MessageToUser(message) => request.messages.push(copy(message)),
        Tlv::FaultHandlerOverride { condition, handler } => {
            request.fault_handlers.push((*condition, *handler));
        }
        Tlv::FlowLabel(label) => request.flow_label = Some(copy(label)),
        Tlv::FilestoreResponse(_) | Tlv::EntityId(_) | Tlv::Other { .. } => {}
    }
}
