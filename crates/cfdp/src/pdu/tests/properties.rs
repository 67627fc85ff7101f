//! Properties of the codec over arbitrary PDUs, messages and bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::checksum::Checksum;

use super::super::*;
use super::encoded;

/// Source of an arbitrary PDU. Owns the bytes that the PDU borrows.
#[derive(Clone, Debug)]
struct Seed {
    header: Header,
    kind: u8,
    codes: [u8; 4],
    numbers: [u64; 3],
    strings: [Vec<u8>; 3],
    tlvs: Vec<TlvSeed>,
    pairs: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct TlvSeed {
    kind: u8,
    codes: [u8; 2],
    id: IdField,
    strings: [Vec<u8>; 3],
}

fn width() -> impl Strategy<Value = Width> {
    (1..=8_u8).prop_map(|bytes| Width::new(bytes).unwrap())
}

fn id_field() -> impl Strategy<Value = IdField> {
    (any::<u64>(), width())
        .prop_map(|(value, width)| IdField { value: value & width.max_value(), width })
}

fn strings() -> impl Strategy<Value = [Vec<u8>; 3]> {
    [vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..60), vec(any::<u8>(), 0..60)]
}

fn header() -> impl Strategy<Value = Header> {
    (any::<[bool; 6]>(), any::<[u64; 3]>(), width(), width()).prop_map(
        |(flags, ids, entity_width, sequence_width)| {
            let current = flags[0];
            Header {
                version: if current { Version::V1 } else { Version::V0 },
                direction: if flags[1] {
                    Direction::TowardSender
                } else {
                    Direction::TowardReceiver
                },
                mode: if flags[2] {
                    TransmissionMode::Unacknowledged
                } else {
                    TransmissionMode::Acknowledged
                },
                crc: flags[3],
                large_file: current && flags[4],
                segmentation_control: flags[5],
                entity_width,
                sequence_width,
                source: EntityId(ids[0] & entity_width.max_value()),
                sequence: ids[1] & sequence_width.max_value(),
                destination: EntityId(ids[2] & entity_width.max_value()),
            }
        },
    )
}

fn tlv_seed() -> impl Strategy<Value = TlvSeed> {
    (0..8_u8, any::<[u8; 2]>(), id_field(), strings())
        .prop_map(|(kind, codes, id, strings)| TlvSeed { kind, codes, id, strings })
}

fn seed() -> impl Strategy<Value = Seed> {
    (
        header(),
        0..9_u8,
        any::<[u8; 4]>(),
        any::<[u64; 3]>(),
        strings(),
        vec(tlv_seed(), 0..4),
        vec(any::<(u64, u64)>(), 0..6),
    )
        .prop_map(|(header, kind, codes, numbers, strings, tlvs, pairs)| {
            let mut seed = Seed { header, kind, codes, numbers, strings, tlvs, pairs };
            seed.normalise();
            seed
        })
}

impl Seed {
    /// Removes values that this version and these widths cannot carry.
    fn normalise(&mut self) {
        let metadata = self.kind == 4;
        if self.header.version == Version::V0 && !metadata {
            self.header.segmentation_control = false;
        }
        if !self.header.large_file {
            let narrow = |value: &mut u64| *value &= u64::from(u32::MAX);
            self.numbers.iter_mut().for_each(narrow);
            for (start, end) in &mut self.pairs {
                narrow(start);
                narrow(end);
            }
        }
    }

    /// Builds the PDU and passes it to `look`.
    fn with_pdu<T>(&self, look: impl FnOnce(&Pdu<'_>) -> T) -> T {
        let tlvs: Vec<_> = self.tlvs.iter().map(TlvSeed::tlv).collect();
        let pairs: Vec<_> =
            self.pairs.iter().map(|&(start, end)| SegmentRequest { start, end }).collect();
        let body = self.body(Tlvs::new(&tlvs), SegmentRequests::new(&pairs));
        look(&Pdu { header: self.header, body })
    }

    fn body<'a>(&'a self, tlvs: Tlvs<'a>, requests: SegmentRequests<'a>) -> Body<'a> {
        let [first, second, third] = &self.strings;
        let [code, condition, status, flags] = self.codes;
        let condition = ConditionCode::from_code(condition & 0x0f);
        let current = self.header.version == Version::V1;
        match self.kind {
            0 => Body::FileData(FileData {
                segment_metadata: (current && flags & 1 != 0).then_some(SegmentMetadata {
                    continuation: RecordContinuation::from_bits(flags >> 6),
                    metadata: second,
                }),
                offset: self.numbers[0],
                data: first,
            }),
            1 => Body::Eof(Eof {
                condition,
                checksum: self.numbers[1] as u32,
                file_size: self.numbers[0],
                fault_location: self.tlvs.first().map(|tlv| tlv.id),
            }),
            2 => Body::Finished(Finished {
                condition,
                end_system: current || flags & 1 != 0,
                delivery: outcome_delivery(flags),
                file_status: FileStatus::from_code(status & 3),
                tlvs,
            }),
            3 => Body::Ack(Ack {
                directive: Acknowledged::from_code(code & 0x0f),
                subtype: flags & 0x0f,
                condition,
                status: TransactionStatus::from_code(status & 3),
            }),
            4 => Body::Metadata(Metadata {
                closure_requested: flags & 1 != 0,
                checksum_type: ChecksumType::from_code(code & 0x0f),
                file_size: self.numbers[0],
                source_name: Lv(first),
                destination_name: Lv(third),
                tlvs,
            }),
            5 => Body::Nak(Nak {
                scope_start: self.numbers[0],
                scope_end: self.numbers[1],
                requests,
            }),
            6 => Body::Prompt(Prompt {
                response: if flags & 1 != 0 {
                    PromptResponse::Nak
                } else {
                    PromptResponse::KeepAlive
                },
            }),
            7 => Body::KeepAlive(KeepAlive { progress: self.numbers[0] }),
            _ => Body::Unknown { code: code | 0x10, data: first },
        }
    }
}

fn outcome_delivery(flags: u8) -> DeliveryCode {
    if flags & 2 == 0 { DeliveryCode::Complete } else { DeliveryCode::Incomplete }
}

impl TlvSeed {
    fn filestore_request(&self) -> FilestoreRequest<'_> {
        let action = FilestoreAction::from_code(self.codes[0] & 0x0f);
        let second = if action.has_second_name() { Lv(&self.strings[1]) } else { Lv::default() };
        FilestoreRequest { action, first: Lv(&self.strings[0]), second }
    }

    fn filestore_response(&self) -> FilestoreResponse<'_> {
        let FilestoreRequest { action, first, second } = self.filestore_request();
        let status = FilestoreStatus(self.codes[1] & 0x0f);
        FilestoreResponse { action, status, first, second, message: Lv(&self.strings[2]) }
    }

    fn tlv(&self) -> Tlv<'_> {
        match self.kind {
            0 => Tlv::FilestoreRequest(self.filestore_request()),
            1 => Tlv::FilestoreResponse(self.filestore_response()),
            2 => Tlv::MessageToUser(Lv(&self.strings[0])),
            3 => Tlv::FaultHandlerOverride {
                condition: ConditionCode::from_code(self.codes[0] & 0x0f),
                handler: FaultHandler::from_code(self.codes[1] & 0x0f),
            },
            4 => Tlv::FlowLabel(Lv(&self.strings[0])),
            5 => Tlv::EntityId(self.id),
            6 => Tlv::Other { code: 3, value: Lv(&self.strings[0]) },
            _ => Tlv::Other { code: self.codes[0] | 0x08, value: Lv(&self.strings[1]) },
        }
    }

    fn transaction(&self) -> TransactionField {
        let [low, high] = self.codes;
        let sequence = u64::from(u16::from_be_bytes([high, low]));
        TransactionField {
            source: self.id,
            sequence: IdField { value: sequence, width: Width::fitting(sequence) },
        }
    }

    fn mode(&self) -> TransmissionMode {
        if self.codes[0] & 1 != 0 {
            TransmissionMode::Acknowledged
        } else {
            TransmissionMode::Unacknowledged
        }
    }

    fn sfo_request(&self) -> SfoRequest<'_> {
        let [low, high] = self.codes;
        let traces = [
            TraceControl::None,
            TraceControl::Source,
            TraceControl::Destination,
            TraceControl::Both,
        ];
        SfoRequest {
            trace: traces[usize::from(high & 3)],
            mode: self.mode(),
            segmentation_control: low & 2 != 0,
            closure_requested: high & 1 != 0,
            prior_waypoints: low,
            label: Lv(&self.strings[2]),
            source: self.id,
            destination: self.transaction().sequence,
            source_name: Lv(&self.strings[0]),
            destination_name: Lv(&self.strings[1]),
        }
    }

    fn sfo_report(&self) -> SfoReport<'_> {
        let [low, high] = self.codes;
        let toward_sender = low & 1 != 0;
        SfoReport {
            label: Lv(&self.strings[0]),
            source: self.id,
            destination: self.transaction().sequence,
            reporter: self.id,
            prior_waypoints: low,
            report_code: high,
            condition: ConditionCode::from_code(high & 0x0f),
            direction: if toward_sender {
                Direction::TowardSender
            } else {
                Direction::TowardReceiver
            },
            delivery: outcome_delivery(low),
            file_status: FileStatus::from_code(high & 3),
        }
    }

    /// Returns one operation of each type.
    fn operations(&self) -> Vec<UserOperation<'_>> {
        use UserOperation as U;
        let [first, second, third] = [0, 1, 2].map(|i| Lv(&self.strings[i]));
        let [low, high] = self.codes;
        let condition = ConditionCode::from_code(high & 0x0f);
        let handler = FaultHandler::from_code(low & 0x0f);
        let status = TransactionStatus::from_code(low & 3);
        let file_status = FileStatus::from_code(high & 3);
        let delivery = outcome_delivery(low);
        let flag = low & 1 != 0;
        let (transaction, id) = (self.transaction(), self.id);
        let put = ProxyPut { destination: id, source_name: first, destination_name: second };
        let suspension = Suspension { suspended: flag, status, transaction };
        let details = [
            PutDetail::MessageToUser(first),
            PutDetail::FilestoreRequest(self.filestore_request()),
            PutDetail::FaultHandlerOverride { condition, handler },
            PutDetail::FlowLabel(second),
            PutDetail::FilestoreResponse(self.filestore_response()),
        ];
        let requests = [
            UserRequest::ProxyPut(put),
            UserRequest::ProxyPutCancel,
            UserRequest::DirectoryListing { directory: first, file: second },
            UserRequest::RemoteStatusReport { transaction, file: third },
            UserRequest::RemoteSuspend(transaction),
            UserRequest::RemoteResume(transaction),
            UserRequest::Sfo(self.sfo_request()),
        ];
        let others = [
            U::ProxyTransmissionMode(self.mode()),
            U::ProxySegmentationControl(flag),
            U::ProxyPutResponse { condition, delivery, file_status },
            U::OriginatingTransactionId(transaction),
            U::ProxyClosureRequest(flag),
            U::DirectoryListingResponse { success: flag, directory: first, file: second },
            U::RemoteStatusReportResponse { status, success: flag, transaction },
            U::RemoteSuspendResponse(suspension),
            U::RemoteResumeResponse(suspension),
            U::SfoReport(self.sfo_report()),
            U::Other { code: low | 0x80, data: first.0 },
        ];
        let details = details.into_iter().flat_map(|detail| [U::Proxy(detail), U::Sfo(detail)]);
        requests.into_iter().map(U::Request).chain(details).chain(others).collect()
    }
}

/// Decodes arbitrary bytes: no panic, errors within the input, and decoded values survive a round
/// trip.
fn survive(bytes: &[u8]) {
    match Pdu::decode(bytes) {
        Ok(pdu) => {
            assert!(!pdu.to_string().is_empty());
            let again = pdu.to_vec().unwrap();
            assert_eq!(Pdu::decode(&again), Ok(pdu));
        }
        Err(error) => assert!(error.offset <= bytes.len(), "{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pdus_round_trip(seed in seed()) {
        seed.with_pdu(|pdu| {
            let bytes = encoded(pdu);
            assert_eq!(Pdu::decode(&bytes), Ok(*pdu));
            assert_eq!(Header::decode(&bytes[..pdu.header.encoded_len()]).unwrap().transaction(),
                pdu.header.transaction());
        });
    }

    #[test]
    fn any_other_length_is_an_error(seed in seed()) {
        seed.with_pdu(|pdu| {
            let mut bytes = encoded(pdu);
            for len in 0..bytes.len() {
                let error = Pdu::decode(&bytes[..len]).unwrap_err();
                assert!(error.offset <= len, "{error} in {len} bytes");
            }
            bytes.push(0);
            assert!(Pdu::decode(&bytes).is_err());
        });
    }

    /// Except the flip of the CRC flag itself, which no CRC can detect.
    #[test]
    fn a_crc_finds_any_flipped_bit(mut seed in seed()) {
        seed.header.crc = true;
        seed.with_pdu(|pdu| {
            let mut bytes = encoded(pdu);
            for bit in (0..8 * bytes.len()).filter(|bit| *bit != 6) {
                let mask = 0x80 >> (bit % 8);
                bytes[bit / 8] ^= mask;
                assert!(Pdu::decode(&bytes).is_err(), "bit {bit}");
                bytes[bit / 8] ^= mask;
            }
        });
    }

    #[test]
    fn arbitrary_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        survive(&bytes);
        if let Ok(Some(operation)) = UserOperation::decode(&bytes) {
            assert!(!operation.to_string().is_empty());
        }
    }

    #[test]
    fn damaged_pdus_are_survived(seed in seed(), damage in vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = seed.with_pdu(encoded);
        for (place, byte) in damage {
            let len = bytes.len();
            bytes[place % len] = byte;
        }
        survive(&bytes);
    }

    #[test]
    fn user_operations_round_trip(seed in tlv_seed()) {
        for operation in seed.operations() {
            let bytes = operation.to_vec().unwrap();
            prop_assert_eq!(bytes.len(), operation.encoded_len());
            prop_assert_eq!(UserOperation::decode(&bytes), Ok(Some(operation)));
            for len in 5..bytes.len() {
                // A truncated message may be a shorter one, but only of an unknown type.
                match UserOperation::decode(&bytes[..len]) {
                    Err(error) => prop_assert!(error.offset <= len),
                    Ok(shorter) => {
 assert!(matches!(shorter, Some(UserOperation::Other { .. }))); }
                }
            }
        }
    }

    #[test]
    fn damaged_user_operations_are_survived(
        seed in tlv_seed(), place in any::<usize>(), byte in any::<u8>(),
    ) {
        for operation in seed.operations() {
            let mut bytes = operation.to_vec().unwrap();
            let len = bytes.len();
            bytes[4 + place % (len - 4)] = byte;
            match UserOperation::decode(&bytes) {
                Ok(Some(operation)) => {
                    let again = operation.to_vec().unwrap();
                    prop_assert_eq!(UserOperation::decode(&again), Ok(Some(operation)));
                }
                Ok(None) => prop_assert!(false, "the prefix is intact"),
                Err(error) => prop_assert!(error.offset <= len),
            }
        }
    }

    #[test]
    fn modular_checksums_accept_pieces_in_any_order(
        file in vec(any::<u8>(), 0..300),
        start in 0..9_u64,
        mut cuts in vec(0..300_usize, 0..6),
        rotation in any::<usize>(),
    ) {
        // The definition, byte by byte.
        let expected = file.iter().enumerate().fold(0_u32, |sum, (i, byte)| {
            let place = (start + i as u64) % 4;
            sum.wrapping_add(u32::from(*byte) << (24 - 8 * place))
        });
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(file.len()));
        cuts.extend([0, file.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let turn = rotation % pieces.len();
        pieces.rotate_left(turn);
        let mut checksum = Checksum::new(ChecksumType::Modular).unwrap();
        for piece in pieces {
            checksum.update(start + piece.start as u64, &file[piece]);
        }
        prop_assert_eq!(checksum.finish(), expected);
    }

    #[test]
    fn checksums_take_a_file_in_pieces(file in vec(any::<u8>(), 0..300), cut in 0..300_usize) {
        let cut = cut.min(file.len());
        for kind in (0..16).map(ChecksumType::from_code).filter(|kind| kind.is_supported()) {
            let mut first = Checksum::new(kind).unwrap();
            first.update(0, &file[..cut]);
            let mut second = Checksum::resume(kind, first.finish(), first.position()).unwrap();
            second.update(cut as u64, &file[cut..]);
            prop_assert_eq!(Some(second.finish()), Checksum::compute(kind, &file));
            prop_assert_eq!(second.position(), file.len() as u64);
        }
    }
}
