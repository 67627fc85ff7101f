//! Suite of the engine contract, over both classes.

use std::time::Duration;

use bytes::Bytes;
use engine::conformance::{self, Options, Role, Subject, Verdict};
use engine::{PathInfo, Rng, Time};
use testing::memory::Counted;
use testing::world::small_buffers;

use crate::pdu::{
    Body, ChecksumType, ConditionCode, DeliveryCode, Direction, EntityId, FileStatus, Header, Lv,
    Metadata, Pdu, Tlvs, TransmissionMode, Version, Width,
};
use crate::{Config, Entity, Indication, Limits, NakMode, Naks, PutRequest, Remote, RequestError};

struct Cfdp {
    mode: TransmissionMode,
    checksum: ChecksumType,
    nak_mode: NakMode,
    transactions: usize,
}

const CLASS_2: Cfdp = Cfdp {
    mode: TransmissionMode::Acknowledged,
    checksum: ChecksumType::Crc32c,
    nak_mode: NakMode::Deferred,
    transactions: 16,
};

impl Cfdp {
    fn config(&self, role: Role) -> Config {
        Config {
            entity: if role == Role::Sender { 1 } else { 2 },
            default_remote: Remote {
                mode: self.mode,
                closure: true,
                checksum: self.checksum,
                naks: Naks { mode: self.nak_mode, ..Naks::default() },
                crc: true,
                datagram_max: Some(200),
                ..Remote::default()
            },
            limits: Limits {
                transactions: self.transactions,
                finished: 64,
                gaps: 64,
                buffers: small_buffers(),
                file_size: 1 << 20,
                ..Limits::default()
            },
            ..Config::default()
        }
    }

    fn request(&self) -> PutRequest {
        PutRequest {
            destination: 2,
            source: Some(conformance::source()),
            destination_name: "copy".to_owned(),
            ..PutRequest::default()
        }
    }
}

impl Subject for Cfdp {
    type Engine = Counted<Entity>;

    fn engine(&self, role: Role, seed: u64) -> Counted<Entity> {
        Counted::new(|| Entity::new(self.config(role), Rng::new(seed, "cfdp")))
    }

    fn start(&self, engine: &mut Counted<Entity>, now: Time) -> bool {
        match engine.charge(|entity| entity.put(now, self.request())) {
            Ok(_) => true,
            Err(RequestError::NotReady) => false,
            Err(error) => panic!("the put is refused: {error}"),
        }
    }

    fn verdict(&self, role: Role, indication: &Indication) -> Option<Verdict> {
        match indication {
            Indication::TransactionFinished(finished) => {
                let good = finished.condition == ConditionCode::NoError
                    && finished.delivery == DeliveryCode::Complete;
                Some(match (good, finished.file_status) {
                    (true, FileStatus::Retained) => Verdict::Delivered,
                    (true, _) if role == Role::Sender => Verdict::Unconfirmed,
                    _ => Verdict::Failed,
                })
            }
            Indication::Abandoned { .. } => Some(Verdict::Failed),
            _ => None,
        }
    }

    fn is_busy(&self, engine: &Counted<Entity>) -> bool {
        engine.transactions().next().is_some()
    }

    fn memory(&self, engine: &Counted<Entity>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        let limits = self.config(Role::Receiver).limits;
        // Transactions with their gaps, file data in both directions, finished ones and replies.
        limits.transactions * (8 << 10) + 2 * limits.buffers.write_buffer + (64 + 256) * 512
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1024)
    }

    fn is_reliable(&self) -> bool {
        self.mode == TransmissionMode::Acknowledged
    }

    fn opening(&self, n: u64) -> Vec<Bytes> {
        let header = Header {
            version: Version::V1,
            direction: Direction::TowardReceiver,
            mode: self.mode,
            crc: true,
            large_file: false,
            segmentation_control: false,
            entity_width: Width::ONE,
            sequence_width: Width::FOUR,
            source: EntityId(9),
            sequence: n,
            destination: EntityId(2),
        };
        let body = Body::Metadata(Metadata {
            closure_requested: true,
            checksum_type: self.checksum,
            file_size: 100_000,
            source_name: Lv(b"flood"),
            destination_name: Lv(b"flood"),
            tlvs: Tlvs::NONE,
        });
        vec![Pdu { header, body }.to_vec().expect("a sound PDU").into()]
    }

    fn survives_restart(&self, _role: Role) -> bool {
        self.mode == TransmissionMode::Acknowledged
    }

    fn restart(&self, role: Role, engine: &mut Counted<Entity>, now: Time) -> bool {
        if role == Role::Receiver || self.mode == TransmissionMode::Unacknowledged {
            return true;
        }
        if !engine.is_restored() {
            return false;
        }
        let request = PutRequest { resume: true, ..self.request() };
        engine.put(now, request).expect("the put is sound");
        true
    }
}

#[test]
fn class_2_keeps_the_contract() {
    conformance::check_all(&CLASS_2, &Options::default());
}

#[test]
fn class_2_with_a_checksum_in_any_order_keeps_the_contract() {
    let subject = Cfdp { checksum: ChecksumType::Modular, ..CLASS_2 };
    conformance::check_all(&subject, &Options { runs: 8, ..Options::default() });
}

#[test]
fn class_2_with_early_naks_keeps_the_contract() {
    for nak_mode in [NakMode::Asynchronous(Duration::from_millis(40)), NakMode::Immediate] {
        let subject = Cfdp { nak_mode, transactions: 8, ..CLASS_2 };
        conformance::check_all(&subject, &Options { seed: 117, ..Options::default() });
    }
}

#[test]
fn class_1_keeps_the_contract() {
    let subject = Cfdp { mode: TransmissionMode::Unacknowledged, ..CLASS_2 };
    conformance::check_all(&subject, &Options::default());
}
