//! Transfers over the space-to-ground link simulator of New Mexico State University, as Horan and Wang
//! measured them in 2000.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use engine::Rng;
use lab::link_spec::Vector;
use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;

use crate::page::{Estimate, runs, scenario_text};
use crate::trace::{Packet, trace};

/// The stored errors: 1 Mbit of data, each octet of which goes with a start and a stop bit.
const VECTOR_BITS: u64 = 1_250_000;

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// The kernel's TCP.
    Ftp,
    /// The same, if it acknowledged each segment.
    FtpAckingEach,
    /// The same, if it had one segment in flight at most.
    FtpOneSegment,
    /// The reference implementation of SCPS-TP with Van Jacobson's congestion control, as like the
    /// kernel's TCP as it can be: without SNACK.
    FpVj,
    /// The same with SNACK.
    FpVjSnack,
    /// The same with Vegas, without SNACK.
    FpVegas,
}

/// One configuration of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) who: Who,
    pub(crate) timestamps: bool,
    pub(crate) compressed: bool,
    /// The file, in kB.
    pub(crate) size: u64,
    /// Bit errors in a million: the vector's.
    pub(crate) errors: u64,
    /// Acknowledgments at 2,400 bit/s.
    pub(crate) asymmetric: bool,
    /// Added to each way.
    pub(crate) delay_ms: u32,
}

/// 100 kB by FTP over the symmetric link, without errors.
pub(crate) const BASE: Cell = Cell {
    who: Who::Ftp,
    timestamps: true,
    compressed: false,
    size: 100,
    errors: 0,
    asymmetric: false,
    delay_ms: 0,
};

pub(crate) const SIZES: [u64; 4] = [1, 10, 100, 1000];
pub(crate) const ERRORS: [u64; 3] = [0, 1, 10];

impl Cell {
    fn settings(self) -> String {
        let mut lines = format!("tcp.timestamps = {}\n", self.timestamps);
        match self.who {
            Who::Ftp | Who::FpVjSnack => {}
            Who::FpVj | Who::FpVegas => lines += "tcp.scps = \"off\"\n",
            Who::FtpAckingEach => lines += "tcp.ack.every = 1\n",
            Who::FtpOneSegment => lines += "tcp.send_buffer = \"1448 B\"\n",
        }
        lines
    }

    fn protocol(self) -> &'static str {
        match self.who {
            Who::Ftp | Who::FtpAckingEach | Who::FtpOneSegment => "ftp/linux-2.2",
            Who::FpVj | Who::FpVjSnack => "ftp/scps-vj",
            Who::FpVegas => "ftp/scps-vegas",
        }
    }

    fn scenario(self, seed: u64) -> Scenario {
        let text = scenario_text("sgls.toml");
        let mib = |node: &str| format!("[nodes.{node}.mib]\n{}", self.settings());
        let text = text.replace("ftp/linux-2.2", self.protocol()).replacen(
            "[[links]]",
            &format!("{}{}[[links]]", mib("satellite"), mib("ground")),
            1,
        );
        let mut scenario = Scenario::parse(&text, "sgls.toml").unwrap();
        scenario.seed = seed;
        scenario.transfers[0].size = Some(format!("{} kB", self.size).parse().unwrap());
        for link in scenario.links.iter_mut().filter(|link| link.rate.is_some()) {
            let is_back = link.from.as_deref() == Some("ground");
            if is_back && self.asymmetric {
                link.rate = Some("2400 bit/s".parse().unwrap());
            }
            let delay = 15.6 + f64::from(self.delay_ms);
            link.delay = Some(format!("{delay} ms").parse().unwrap());
            link.header_compression = Some(self.compressed);
            if self.errors > 0 {
                link.error_vector = Some(vector(seed, is_back, self.errors));
            }
        }
        scenario.resolved().unwrap()
    }

    /// Seconds from the server's 150 to its 226.
    fn transfer_s(self, seed: u64) -> f64 {
        let scenario = self.scenario(seed);
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        assert!(run.succeeded(), "{self:?}, seed {seed}: {run:?}");
        run.transfers[0].transfer_s.unwrap()
    }

    /// What the line to the ground and the line back carried in the run of this seed.
    pub(crate) fn packets(self, seed: u64) -> Vec<Packet> {
        let (run, mut packets) = trace(&self.scenario(seed));
        assert!(run.succeeded());
        packets.retain(|packet| packet.from != "satellite" && packet.to != "satellite");
        packets
    }
}

/// A vector with so many errors, anywhere: where in it a run begins is as good as random.
fn vector(seed: u64, is_back: bool, errors: u64) -> Vector {
    let mut rng = Rng::new(seed, if is_back { "errors back" } else { "errors" });
    let mut bits = BTreeSet::new();
    while (bits.len() as u64) < errors {
        bits.insert(rng.below(VECTOR_BITS));
    }
    Vector { bits: VECTOR_BITS, errors: bits.into_iter().collect(), drawn: None }
}

/// Every cell that a claim looks at.
fn grid() -> BTreeSet<Cell> {
    let mut grid = BTreeSet::new();
    for asymmetric in [false, true] {
        for timestamps in [false, true] {
            for size in SIZES {
                let base = Cell { timestamps, size, asymmetric, ..BASE };
                for who in [Who::Ftp, Who::FpVj, Who::FpVegas] {
                    grid.extend(ERRORS.map(|errors| Cell { who, errors, ..base }));
                }
                for who in [Who::FpVj, Who::FpVegas] {
                    grid.extend([3, 120, 1280].map(|delay_ms| Cell { who, delay_ms, ..base }));
                }
                grid.extend(ERRORS.map(|errors| Cell { errors, compressed: true, ..base }));
                for compressed in [false, true] {
                    let delays = [3, 120, 1280];
                    grid.extend(delays.map(|delay_ms| Cell { compressed, delay_ms, ..base }));
                }
            }
        }
        let large = Cell { size: 1000, asymmetric, ..BASE };
        grid.insert(Cell { who: Who::FtpAckingEach, ..large });
        grid.extend(ERRORS.map(|errors| Cell { who: Who::FpVjSnack, errors, ..large }));
        grid.insert(Cell { who: Who::FtpOneSegment, errors: 10, ..large });
    }
    grid
}

/// The time that a file took in this configuration.
pub(crate) fn time(cell: Cell) -> Estimate {
    static TIMES: OnceLock<BTreeMap<Cell, Estimate>> = OnceLock::new();
    let times = TIMES.get_or_init(|| {
        let cells: Vec<_> = grid().into_iter().collect();
        let estimate = |cell: Cell| {
            let samples: Vec<_> = (1..=runs(10)).map(|seed| cell.transfer_s(seed)).collect();
            (cell, Estimate::of(&samples))
        };
        cells.into_par_iter().map(estimate).collect()
    });
    times[&cell]
}
