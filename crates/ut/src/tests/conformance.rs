//! Conformance suite of engines, over LTP and over bundles.

use std::time::Duration;

use ::cfdp::pdu::{ConditionCode, DeliveryCode, FileStatus, TransmissionMode};
use ::cfdp::{self, PutRequest, RequestError};
use engine::conformance::{self, Check, Options, PATH, Role, Subject, Verdict};
use engine::{FilestoreRequest, MemoryStore, Rng, StoreEffect, Ticket, Time};

use super::super::{
    BundlesConfig, Color, Config, Indication, Limits, LtpConfig, OverBundles, OverLtp, OverService,
};
use super::world::{CLASS_1, CLASS_2, Carried, bundle_node, open, request, small_buffers};
use bp::hosted::Hosted;
use testing::memory::Counted;

/// An entity over a layer, in a class.
struct Over<C> {
    engine: fn(&Self, Role, u64) -> C,
    mode: TransmissionMode,
    color: Color,
    closure: bool,
    /// Inactivity timeout of LTP's sessions.
    inactivity: ltp::Timer,
}

impl<C> Over<C> {
    fn entity(&self, number: u64) -> cfdp::Config {
        cfdp::Config {
            entity: number,
            default_remote: cfdp::Remote {
                mode: self.mode,
                closure: self.closure,
                crc: true,
                ..cfdp::Remote::default()
            },
            limits: cfdp::Limits {
                transactions: 16,
                finished: 64,
                gaps: 64,
                buffers: session::Buffers { replies: 8, ..small_buffers() },
                file_size: 1 << 20,
                // To a silent peer, four blocks fail in each inactivity timeout.
                ..cfdp::Limits::default()
            },
            ..cfdp::Config::default()
        }
    }
}

fn number(role: Role) -> u64 {
    if role == Role::Sender { 1 } else { 2 }
}

fn config(number: u64) -> Config {
    Config {
        pdu_max: 700,
        peers: [3 - number].into(),
        limits: Limits { window: 4, arrivals: 8, strangers: 8 },
        ..Config::default()
    }
}

fn ltp_config(inactivity: ltp::Timer) -> ltp::Config {
    ltp::Config {
        default_remote: ltp::Remote {
            datagram_max: Some(200),
            inactivity,
            ..ltp::Remote::default()
        },
        limits: ltp::Limits {
            sessions: 16,
            sessions_per_path: 12,
            closed: 64,
            gaps: 64,
            units: 4 << 10,
            units_total: 32 << 10,
            buffers: small_buffers(),
            ..ltp::Limits::default()
        },
        ..ltp::Config::default()
    }
}

fn over_ltp(over: &Over<OverLtp>, role: Role, seed: u64) -> OverLtp {
    let number = number(role);
    let below = LtpConfig { ltp: ltp_config(over.inactivity), color: over.color };
    let rng = Rng::new(seed, "over ltp");
    OverLtp::over_ltp(over.entity(number), config(number), &below, rng)
}

fn over_bundles(over: &Over<OverBundles>, role: Role, seed: u64) -> OverBundles {
    let number = number(role);
    let ltp = ltp::Config {
        limits: ltp::Limits { block: 1 << 20, ..ltp_config(over.inactivity).limits },
        ..ltp_config(over.inactivity)
    };
    let node = bundle_node(number, ltp, PATH, seed);
    let rng = Rng::new(seed, "over bundles");
    let below = BundlesConfig::default();
    let entity = OverService::over_service(over.entity(number), config(number), below, rng);
    let mut engine = Hosted::new(entity, node);
    engine.with_node(Time::ZERO, open);
    engine
}

impl<C: Carried> Subject for Over<C> {
    type Engine = Counted<C>;

    fn engine(&self, role: Role, seed: u64) -> Counted<C> {
        Counted::new(|| (self.engine)(self, role, seed))
    }

    fn size(&self) -> usize {
        // Three PDUs in about twelve datagrams.
        1_800
    }

    fn prepare(&self, role: Role, store: &mut MemoryStore) {
        let request = FilestoreRequest::CreateDirectory(bp::agent::Config::default().directory);
        store.execute(StoreEffect::Filestore { ticket: Ticket(0), request });
        if role == Role::Sender {
            store.insert(conformance::source(), conformance::content(self.size()));
        }
    }

    fn start(&self, engine: &mut Counted<C>, now: Time) -> bool {
        match engine.charge(|entity| entity.put(now, request())) {
            Ok(_) => true,
            Err(RequestError::NotReady) => false,
            Err(error) => panic!("the put is refused: {error}"),
        }
    }

    fn verdict(&self, role: Role, indication: &C::Indication) -> Option<Verdict> {
        match C::indication(indication)? {
            Indication::Cfdp(cfdp::Indication::TransactionFinished(finished)) => {
                let good = finished.condition == ConditionCode::NoError
                    && finished.delivery == DeliveryCode::Complete;
                Some(match (good, finished.file_status) {
                    (true, FileStatus::Retained) => Verdict::Delivered,
                    (true, _) if role == Role::Sender => Verdict::Unconfirmed,
                    _ => Verdict::Failed,
                })
            }
            Indication::Cfdp(cfdp::Indication::Abandoned { .. }) => Some(Verdict::Failed),
            // It ended well before its last restart, and reports that on request.
            Indication::Cfdp(cfdp::Indication::FinishedRepeated {
                condition, delivery, ..
            }) if *condition == ConditionCode::NoError && *delivery == DeliveryCode::Complete => {
                Some(Verdict::Delivered)
            }
            Indication::Cfdp(_) | Indication::Lost { .. } | Indication::Noted(_) => None,
        }
    }

    fn is_busy(&self, engine: &Counted<C>) -> bool {
        engine.entity().transactions().next().is_some()
    }

    fn memory(&self, engine: &Counted<C>) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        let ltp = 16 * (16 << 10) + (32 << 10) + 2 * (64 << 10) + (64 + 256) * 512;
        let cfdp = 16 * (8 << 10) + 2 * (64 << 10) + (64 + 256) * 512;
        ltp + cfdp + 64 * 1_024
    }

    fn is_reliable(&self) -> bool {
        self.mode == CLASS_2 || self.color == Color::Red
    }

    fn detects_damage(&self) -> bool {
        false
    }

    fn survives_restart(&self, role: Role) -> bool {
        // In class 1 the file's completion is reported once.
        self.mode == CLASS_2 || self.color == Color::Red && role == Role::Receiver && !self.closure
    }

    fn restart(&self, role: Role, engine: &mut Counted<C>, now: Time) -> bool {
        if role == Role::Receiver || self.mode == CLASS_1 {
            return true;
        }
        if !engine.entity().is_restored() {
            return false;
        }
        let again = PutRequest { resume: true, ..request() };
        engine.charge(|entity| entity.put(now, again)).expect("the put is sound");
        true
    }
}

const OVER_LTP: Over<OverLtp> = Over {
    engine: over_ltp,
    mode: CLASS_1,
    color: Color::Red,
    closure: false,
    inactivity: ltp::Timer::Auto,
};
const OVER_BUNDLES: Over<OverBundles> = Over {
    engine: over_bundles,
    mode: CLASS_1,
    color: Color::Red,
    closure: false,
    inactivity: ltp::Timer::Auto,
};

fn check_all<C: Carried>(subject: &Over<C>, positions: u64) {
    // Up to twelve blocks repeat their checkpoints until LTP's inactivity ends them.
    let events_max = 2_000_000;
    let options = Options { runs: 8, positions, events_max, ..Options::default() };
    for check in Check::ALL {
        conformance::check(subject, &options, check);
    }
}

#[test]
fn class_1_over_red_blocks_keeps_the_contract() {
    check_all(&OVER_LTP, 48);
}

/// Failed sessions stay until their cancellations have ended, and take the places of others.
#[test]
fn a_short_inactivity_keeps_the_contract() {
    let inactivity = ltp::Timer::Fixed(Duration::from_secs(300));
    check_all(&Over { inactivity, ..OVER_LTP }, 24);
    check_all(&Over { inactivity, mode: CLASS_2, ..OVER_LTP }, 24);
}

#[test]
fn class_1_with_closure_keeps_the_contract() {
    check_all(&Over { closure: true, ..OVER_LTP }, 48);
}

#[test]
fn class_2_over_red_blocks_keeps_the_contract() {
    check_all(&Over { mode: CLASS_2, ..OVER_LTP }, 48);
}

#[test]
fn class_2_with_green_data_keeps_the_contract() {
    check_all(&Over { mode: CLASS_2, color: Color::GreenData, ..OVER_LTP }, 48);
}

#[test]
fn class_1_over_green_blocks_keeps_the_contract() {
    check_all(&Over { color: Color::Green, ..OVER_LTP }, 48);
}

#[test]
fn class_1_over_bundles_keeps_the_contract() {
    check_all(&OVER_BUNDLES, 16);
}

#[test]
fn class_2_over_bundles_keeps_the_contract() {
    check_all(&Over { mode: CLASS_2, ..OVER_BUNDLES }, 16);
}
