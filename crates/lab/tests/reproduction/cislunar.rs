//! Bundles over TCPCL from an orbiter of the Moon to Earth, as Wang, Wu, Wang and Taleb sent them in 2009.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use lab::link_spec::{LinkSpec, Window};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;

use crate::page::{Estimate, runs, scenario_text};
use crate::trace::{Packet, trace};

/// One way, in ms.
pub(crate) const DELAYS: [u64; 9] = [1280, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000];
/// The ends and the middle.
pub(crate) const SOME_DELAYS: [u64; 3] = [1280, 2000, 5000];
/// Bit errors in ten million.
pub(crate) const ERRORS: [u64; 3] = [0, 10, 100];
/// In s.
pub(crate) const OUTAGES: [u64; 5] = [0, 30, 60, 90, 120];
/// When an outage begins, in s: all transfers are under way then.
pub(crate) const BREAK_S: u64 = 60;
/// Octets of the file.
pub(crate) const FILE: f64 = 1e6;

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// DTN2 on Linux 2.4, whose windows grow as that kernel's do.
    Kernel,
    /// The same with a buffer for no more than 15 segments in flight: what the study's rate without errors says.
    Window,
    /// Bundles over TCP of today.
    Today,
    /// LTP.
    Ltp,
    /// Saratoga.
    Saratoga,
    /// CFDP, class 2.
    Cfdp,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) who: Who,
    pub(crate) delay_ms: u64,
    pub(crate) errors: u64,
    pub(crate) outage_s: u64,
}

/// What became of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Seconds until the file was on Earth.
    pub(crate) delivered: f64,
    /// Seconds from the first data to the last from the orbiter.
    pub(crate) sending: f64,
    /// Seconds from the connection's beginning to its end.
    pub(crate) connected: f64,
    /// Packets from the orbiter that were lost.
    pub(crate) lost: f64,
    /// Whether the file came whole, and the world to rest.
    pub(crate) is_whole: bool,
}

impl Cell {
    pub(crate) fn of(who: Who, delay_ms: u64, errors: u64, outage_s: u64) -> Self {
        Self { who, delay_ms, errors, outage_s }
    }

    fn protocol(self) -> &'static str {
        match self.who {
            Who::Kernel | Who::Window => "bp-tcpcl3/dtn2-2.5",
            Who::Today => "bp-tcpcl",
            Who::Ltp => "ltp",
            Who::Saratoga => "saratoga",
            Who::Cfdp => "cfdp",
        }
    }

    fn scenario(self, seed: u64) -> Scenario {
        let mut text = scenario_text("cislunar-bp.toml");
        let is_bundles = matches!(self.who, Who::Kernel | Who::Window | Who::Today);
        if !is_bundles {
            // These go from end to end; the orbiter routes.
            text = text.replace("via = [\"orbiter\"]\n", "");
        }
        if self.who == Who::Window {
            // 15 segments of 1,448 octets.
            text += "[nodes.orbiter.mib.tcp]\nsend_buffer = \"21720 B\"\nsend_buffer_initial = \"off\"\n";
        }
        let text = text.replace("bp-tcpcl3/dtn2-2.5", self.protocol());
        let mut scenario = Scenario::parse(&text, "cislunar-bp.toml").unwrap();
        scenario.seed = seed;
        for link in scenario.links.iter_mut().filter(|link| link.framing.is_some()) {
            self.set(link);
        }
        scenario.resolved().unwrap()
    }

    fn set(self, link: &mut LinkSpec) {
        link.delay = Some(format!("{} ms", self.delay_ms).parse().unwrap());
        link.datagram = Some("1472 B".parse().unwrap());
        if self.errors > 0 {
            // Of ten bits on the line two are start and stop bits, which the testbed could not damage.
            link.ber = Some(format!("{}e-8", 8 * self.errors).parse().unwrap());
        }
        if self.outage_s > 0 {
            let span = |seconds: u64| format!("{seconds} s").parse().unwrap();
            link.outages = Some(vec![Window { at: span(BREAK_S), lasts: span(self.outage_s) }]);
        }
    }

    /// All packets of a run.
    pub(crate) fn packets(self, seed: u64) -> Vec<Packet> {
        trace(&self.scenario(seed)).1
    }

    fn find(self, seed: u64) -> Found {
        let (run, packets) = trace(&self.scenario(seed));
        let there: Vec<_> = packets.iter().filter(|packet| leaves(packet)).collect();
        let span = |packets: Vec<&&Packet>| match (packets.first(), packets.last()) {
            (Some(first), Some(last)) => last.sent_s - first.sent_s,
            _ => 0.0,
        };
        let lost = there.iter().filter(|packet| is_data(packet) && is_lost(packet)).count();
        Found {
            delivered: run.transfers[0].delivered_s.unwrap_or(f64::INFINITY),
            sending: span(there.iter().filter(|packet| is_data(packet)).collect()),
            connected: span(there.iter().collect()),
            lost: lost as f64,
            is_whole: run.succeeded(),
        }
    }
}

/// Whether it is of the orbiter and goes to Earth, as the long link has it.
pub(crate) fn leaves(packet: &Packet) -> bool {
    packet.from == "orbiter-ppp" && packet.to == "earth-ppp"
}

/// Whether it carries some of the file, rather than a sign of life.
pub(crate) fn is_data(packet: &Packet) -> bool {
    packet.kind == "data" && packet.octets > 200
}

fn is_lost(packet: &Packet) -> bool {
    packet.fate != "delivered"
}

/// The cells that claims are about.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for errors in ERRORS {
        for delay_ms in DELAYS {
            cells.push(Cell::of(Who::Kernel, delay_ms, errors, 0));
        }
        for delay_ms in SOME_DELAYS {
            cells.push(Cell::of(Who::Window, delay_ms, errors, 0));
            for outage_s in [30, 60, 90, 120] {
                cells.push(Cell::of(Who::Kernel, delay_ms, errors, outage_s));
            }
        }
        for who in [Who::Today, Who::Ltp, Who::Saratoga, Who::Cfdp] {
            cells.push(Cell::of(who, 2000, errors, 0));
            cells.push(Cell::of(who, 2000, errors, 120));
        }
    }
    cells
}

/// All that was found.
fn all() -> &'static BTreeMap<Cell, Vec<Found>> {
    static FOUND: OnceLock<BTreeMap<Cell, Vec<Found>>> = OnceLock::new();
    FOUND.get_or_init(|| {
        // Without errors nothing is drawn.
        let count = |cell: &Cell| if cell.errors == 0 { 1 } else { runs(4) };
        let find = |cell: Cell| (cell, (1..=count(&cell)).map(|seed| cell.find(seed)).collect());
        cells().into_par_iter().map(find).collect()
    })
}

/// The mean of something over the runs of a cell.
pub(crate) fn mean(cell: Cell, of: fn(&Found) -> f64) -> Estimate {
    Estimate::of(&all()[&cell].iter().map(of).collect::<Vec<_>>())
}

/// Transfers with a break that came whole, and all with one.
pub(crate) fn ridden_out() -> (usize, usize) {
    let broken = all().iter().filter(|(cell, _)| cell.outage_s > 0).flat_map(|(_, found)| found);
    (broken.clone().filter(|found| found.is_whole).count(), broken.count())
}
