//! Two LTP engines joined by a link.

use engine::Rng;

pub(super) use crate::test_world::{PATH, content, lose_numbers, lose_one_in, name};

use crate::segment::{
    Body, CancelReason, Claim, Claims, DataKind, End, Report, Segment, SessionId,
};
use crate::test_world::{self, Losses};
use crate::{Config, Finished, Indication, Node, PeerError, Red, SendRequest};

pub(super) type World = test_world::World<Node>;

impl World {
    /// Creates engines 1 and 2, 25 ms apart, at 10 Mbit/s.
    pub(super) fn new(configs: [Config; 2]) -> Self {
        let mut engine = 0;
        let nodes = configs.map(|config| {
            engine += 1;
            Node::new(Config { engine, ..config }, Rng::new(engine, "ltp"))
        });
        Self::between(nodes, test_world::path_info())
    }

    /// Creates two engines with the same settings.
    pub(super) fn with(config: &Config) -> Self {
        Self::new([config.clone(), config.clone()])
    }

    /// Lets a file of `len` bytes cross without losses.
    pub(super) fn crossed(config: &Config, len: usize, red: Red) -> Self {
        Self::crossed_with(config, len, red, Box::new(|_, _, _| false))
    }

    /// Lets a file of `len` bytes cross with these losses.
    pub(super) fn crossed_with(config: &Config, len: usize, red: Red, lose: Losses) -> Self {
        let mut world = Self::with(config);
        let file = content(len);
        world.lose(lose);
        world.send(&file, red);
        world.run();
        world.assert_delivered(&file);
        world
    }

    /// Sends a file from engine 1 to engine 2.
    pub(super) fn send(&mut self, content: &[u8], red: Red) -> SessionId {
        self.hosts[0].store.insert(name("source"), content.to_vec());
        let (source, copy) = (name("source"), "copy".to_owned());
        let request = SendRequest { destination: 2, source, name: copy, red };
        let now = self.now;
        let id = self.hosts[0]
            .engine
            .charge(|node| node.send(now, request))
            .expect("the request is sound");
        self.drain(0);
        id
    }

    /// Delivers a report to engine 1 that claims these ranges below `upper`, in reply to its last
    /// checkpoint.
    pub(super) fn answer(&mut self, id: SessionId, serial: u64, here: &[(u64, u64)], upper: u64) {
        let checkpoint = self.log.iter().rev().find_map(|sent| {
            match Segment::decode(&sent.bytes).expect("what an engine sends can be read").body {
                Body::Data(data) => data.checkpoint,
                _ => None,
            }
        });
        let checkpoint = checkpoint.expect("there is one").serial;
        let claim = |(from, to): &(u64, u64)| Claim { offset: *from, length: to - from };
        let claims: Vec<_> = here.iter().map(claim).collect();
        let claims = Claims::new(&claims);
        let report = Report { serial, checkpoint, lower: 0, upper, claims };
        let segment = Segment::new(id, Body::Report(report));
        self.hear(0, &segment.to_vec().expect("a segment"));
    }

    /// Result of a side's first session.
    pub(super) fn finished(&self, side: usize) -> Option<&Finished> {
        self.hosts[side].indications.iter().find_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        })
    }

    /// Protocol violations indicated at a side.
    pub(super) fn peer_errors(&self, side: usize) -> Vec<PeerError> {
        let error = |indication: &Indication| match indication {
            Indication::PeerError { error, .. } => Some(*error),
            _ => None,
        };
        self.hosts[side].indications.iter().filter_map(error).collect()
    }

    /// Asserts that the file arrived, and that both sides report success.
    pub(super) fn assert_delivered(&self, content: &[u8]) {
        let copy = self.hosts[1].store.get(&name("copy"));
        assert!(copy == Some(content), "{:#?}", self.transcript());
        for side in 0..2 {
            let finished = self.finished(side).expect("it ended");
            assert_eq!(finished.result, Ok(()), "{:#?}", self.transcript());
            assert_eq!(self.hosts[side].engine.sessions().count(), 0);
        }
    }

    /// Transcript. Serial numbers count from the first of their kind, which is random.
    pub(super) fn transcript(&self) -> Vec<String> {
        let mut serials = [None; 2];
        self.lines(|datagram| describe(datagram, &mut serials))
    }
}

/// Text of a segment; `serials` are the first ones of checkpoints and of reports.
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

/// Name in the specification (§3.2.4).
pub(crate) fn reason_name(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::User => "USR_CNCLD",
        CancelReason::Unreachable => "UNREACH",
        CancelReason::RetransmissionLimit => "RLEXC",
        CancelReason::Miscolored => "MISCOLORED",
        CancelReason::System => "SYS_CNCLD",
        CancelReason::CycleLimit => "RXMTCYCEXC",
        CancelReason::Other(_) => "reserved",
    }
}

/// Loses the first acknowledgement of a report.
pub(super) fn lose_first_report_ack() -> Losses {
    let mut lost = false;
    Box::new(move |_, _, datagram| {
        let segment = Segment::decode(datagram).expect("what an engine sends can be read");
        let is_ack = matches!(segment.body, Body::ReportAck { .. });
        is_ack && !std::mem::replace(&mut lost, true)
    })
}
