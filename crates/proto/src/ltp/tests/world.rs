//! Two engines, their stores, and a link between them whose losses are chosen one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{
    Effect, Engine, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    TxBuf,
};
use wire::ltp::{Body, CancelReason, DataKind, End, Segment, SessionId};

use crate::ltp::{Config, Finished, Indication, Node, Red, SendRequest};

/// The path of either side to the other.
pub(super) const PATH: PathId = PathId(7);

/// What happens to a datagram: the side that sent it, its number there, and its octets. `true` loses
/// it.
type Fate = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

/// One host.
pub(super) struct Side {
    pub(super) node: Node,
    pub(super) store: MemoryStore,
    pub(super) indications: Vec<Indication>,
    held: Option<(Vec<Vec<u8>>, Time)>,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) sides: [Side; 2],
    pub(super) info: PathInfo,
    pub(super) lose: Fate,
    /// Every datagram: when it left, from which side, its octets, and whether it was lost.
    pub(super) log: Vec<(Time, usize, Vec<u8>, bool)>,
    events: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    event: u64,
    sent: [usize; 2],
}

impl World {
    /// Engines 1 and 2, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(configs: [Config; 2]) -> Self {
        let mut engine = 0;
        let sides = configs.map(|config| {
            engine += 1;
            Side {
                node: Node::new(Config { engine, ..config }, Rng::new(engine, "ltp")),
                store: MemoryStore::new(),
                indications: Vec::new(),
                held: None,
            }
        });
        let info = PathInfo {
            rate_bps: Some(10_000_000),
            overhead: 42,
            owlt: Some(Duration::from_millis(25)),
            ..PathInfo::datagram(1024)
        };
        let mut world = Self {
            now: Time::ZERO,
            sides,
            info,
            lose: Box::new(|_, _, _| false),
            log: Vec::new(),
            events: BTreeMap::new(),
            event: 0,
            sent: [0; 2],
        };
        for side in 0..2 {
            let event = PathEvent::Up(world.info.clone());
            world.input(side, Input::Path(PATH, event));
        }
        world
    }

    /// Two engines with the same settings.
    pub(super) fn with(config: &Config) -> Self {
        Self::new([config.clone(), config.clone()])
    }

    pub(super) fn input(&mut self, side: usize, input: Input<'_>) {
        self.sides[side].node.handle_input(self.now, input);
        self.drain(side);
    }

    /// Sends a file of these octets from engine 1 to engine 2.
    pub(super) fn send(&mut self, content: &[u8], red: Red) -> SessionId {
        self.sides[0].store.insert(name("source"), content.to_vec());
        let (source, copy) = (name("source"), "copy".to_owned());
        let request = SendRequest { destination: 2, source, name: copy, red };
        let id = self.sides[0].node.send(self.now, request).expect("the request is sound");
        self.drain(0);
        id
    }

    /// Does what a driver does before it waits.
    pub(super) fn drain(&mut self, side: usize) {
        loop {
            let mut busy = false;
            while let Some(effect) = self.sides[side].node.poll_effect() {
                busy = true;
                self.execute(side, effect);
            }
            while let Some(indication) = self.sides[side].node.poll_indication() {
                busy = true;
                self.sides[side].indications.push(indication);
            }
            if self.sides[side].held.is_none() {
                let mut tx = TxBuf::new(1);
                if let Some(transmit) = self.sides[side].node.poll_transmit(self.now, &mut tx) {
                    busy = true;
                    let datagrams: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
                    if transmit.not_before > self.now {
                        self.sides[side].held = Some((datagrams, transmit.not_before));
                    } else {
                        self.launch(side, datagrams);
                    }
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn execute(&mut self, side: usize, effect: Effect) {
        let host = &mut self.sides[side];
        if let Some((ticket, answer)) = host.store.execute(effect) {
            host.node.handle_input(self.now, Input::Done(ticket, answer));
        }
    }

    fn launch(&mut self, side: usize, datagrams: Vec<Vec<u8>>) {
        let mut at = self.now;
        for mut datagram in datagrams {
            let number = self.sent[side];
            self.sent[side] += 1;
            let lost = (self.lose)(side, number, &mut datagram);
            self.log.push((at, side, datagram.clone(), lost));
            at += self.info.transmission_time(datagram.len());
            if !lost {
                let delay = self.info.owlt.unwrap_or_default();
                self.event += 1;
                self.events.insert((at + delay, self.event), (1 - side, datagram));
            }
        }
    }

    /// Lets the next thing happen; `false` if nothing is left to happen.
    pub(super) fn step(&mut self) -> bool {
        let held = |side: &Side| side.held.as_ref().map(|(_, at)| *at);
        let timer = |side: &Side| side.node.poll_timeout().map(|deadline| deadline.at);
        let Some(next) = self.next_time() else { return false };
        let event = self.events.keys().next().map(|(at, _)| *at);
        self.now = self.now.max(next);
        if event == Some(next) {
            let (_, (to, datagram)) = self.events.pop_first().expect("there is an event");
            self.input(to, Input::Receive(Receive::datagram(PATH, &datagram)));
            return true;
        }
        for side in 0..2 {
            if held(&self.sides[side]).is_some_and(|at| at <= self.now) {
                let (datagrams, _) = self.sides[side].held.take().expect("something is held");
                self.launch(side, datagrams);
                self.drain(side);
                return true;
            }
            if timer(&self.sides[side]).is_some_and(|at| at <= self.now) {
                self.sides[side].node.handle_timeout(self.now);
                self.drain(side);
                return true;
            }
        }
        true
    }

    /// Runs until nothing is left to happen.
    pub(super) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end at {}: {:?}", self.now, self.sides[0].node.poll_timeout());
    }

    /// Runs until a moment.
    pub(super) fn run_until(&mut self, until: Time) {
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    fn next_time(&self) -> Option<Time> {
        let event = self.events.keys().next().map(|(at, _)| *at);
        let sides = self.sides.iter().flat_map(|side| {
            let held = side.held.as_ref().map(|(_, at)| *at);
            [held, side.node.poll_timeout().map(|deadline| deadline.at)]
        });
        sides.chain([event]).flatten().min()
    }

    /// How a side's first session ended.
    pub(super) fn finished(&self, side: usize) -> Option<&Finished> {
        self.sides[side].indications.iter().find_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        })
    }

    /// Asserts that the file arrived, and that both sides know.
    pub(super) fn assert_delivered(&self, content: &[u8]) {
        let copy = self.sides[1].store.get(&name("copy"));
        assert!(copy == Some(content), "{:#?}", self.transcript());
        for side in 0..2 {
            let finished = self.finished(side).expect("it ended");
            assert_eq!(finished.result, Ok(()), "{:#?}", self.transcript());
            assert_eq!(self.sides[side].node.sessions().count(), 0);
        }
    }

    /// What was said, without times: `>` from the sender, `<` from the receiver, `x` if lost. Serial
    /// numbers count from the first of their kind, which is random.
    pub(super) fn transcript(&self) -> Vec<String> {
        let mut serials = [None; 2];
        let line = |(_, side, datagram, lost): &(Time, usize, Vec<u8>, bool)| {
            let (from, lost) = (if *side == 0 { '>' } else { '<' }, if *lost { "x" } else { "" });
            format!("{from}{lost} {}", describe(datagram, &mut serials))
        };
        self.log.iter().map(line).collect()
    }
}

/// One segment; `serials` are the first of checkpoints and of reports.
fn describe(datagram: &[u8], serials: &mut [Option<u64>; 2]) -> String {
    let segment = Segment::decode(datagram).expect("what an engine sends can be read");
    let mut number = |of: usize, serial: u64| match serial {
        0 => 0,
        serial => 1 + serial.wrapping_sub(*serials[of].get_or_insert(serial)),
    };
    match segment.body {
        Body::Data(data) => {
            let color = match data.kind {
                DataKind::Red | DataKind::Checkpoint => "red",
                DataKind::EndOfRedPart => "red EORP",
                DataKind::EndOfRedBlock => "red EOB",
                DataKind::Green => "green",
                DataKind::EndOfGreenBlock => "green EOB",
            };
            let end = data.offset + data.data.len() as u64;
            let checkpoint = data.checkpoint.map(|checkpoint| {
                format!(" CP {}/{}", number(0, checkpoint.serial), number(1, checkpoint.report))
            });
            format!("{color} {}-{end}{}", data.offset, checkpoint.unwrap_or_default())
        }
        Body::Report(report) => {
            let claims: Vec<_> =
                report.received().map(|(start, end)| format!("{start}-{end}")).collect();
            let (serial, checkpoint) = (number(1, report.serial), number(0, report.checkpoint));
            let (lower, upper) = (report.lower, report.upper);
            format!("RS {serial}/{checkpoint} {lower}-{upper}: {}", claims.join(" "))
        }
        Body::ReportAck { serial } => format!("RA {}", number(1, serial)),
        Body::Cancel { by: End::Sender, reason } => format!("CS {}", reason_name(reason)),
        Body::Cancel { by: End::Receiver, reason } => format!("CR {}", reason_name(reason)),
        Body::CancelAck { by: End::Sender } => "CAS".to_owned(),
        Body::CancelAck { by: End::Receiver } => "CAR".to_owned(),
    }
}

fn reason_name(reason: CancelReason) -> String {
    reason.to_string()
}

/// A file whose octets all differ from their neighbours'.
pub(super) fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub(super) fn name(path: &str) -> FileName {
    FileName::file(path).expect("a plain name")
}

/// Loses the datagrams of the sender with these numbers, counted from 0.
pub(super) fn lose_numbers(numbers: &'static [usize]) -> Fate {
    Box::new(move |side, number, _| side == 0 && numbers.contains(&number))
}

/// Loses one datagram in `n` of the sender, drawn at random.
pub(super) fn lose_one_in(n: u64, seed: u64) -> Fate {
    let mut rng = Rng::new(seed, "losses");
    Box::new(move |side, _, _| side == 0 && rng.below(n) == 0)
}

/// Loses the first acknowledgement of a report.
pub(super) fn lose_first_report_ack() -> Fate {
    let mut lost = false;
    Box::new(move |_, _, datagram| {
        let segment = Segment::decode(datagram).expect("what an engine sends can be read");
        let is_ack = matches!(segment.body, Body::ReportAck { .. });
        is_ack && !std::mem::replace(&mut lost, true)
    })
}
