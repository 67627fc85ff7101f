//! Files from a lander by way of an orbiter to Earth, as Trinity College Dublin sent them in 2007.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;

use crate::one_hop::SIZES;
use crate::page::scenario_text;
use crate::trace::{Packet, trace};

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// DTN2 2.3.0 over UDP, with the patch of the study.
    Bundles,
    /// LTP-T at the pace of LTPlib of 2007.
    LtpT,
    /// Bundles over UDP as they are sent here by default.
    BundlesToday,
    /// Bundles over TCPCL 4 and TCP of today.
    Tcpcl,
    /// LTP-T as it is sent here by default.
    LtpTToday,
}

/// Those of the study.
pub(crate) const OF_STUDY: [Who; 2] = [Who::Bundles, Who::LtpT];
/// Those of today.
pub(crate) const TODAY: [Who; 3] = [Who::BundlesToday, Who::Tcpcl, Who::LtpTToday];
/// Light trip times of the second hop, in ms.
pub(crate) const LTTS: [u64; 4] = [10, 100, 1_000, 10_000];

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) who: Who,
    pub(crate) ltt_ms: u64,
    pub(crate) kib: u64,
}

impl Cell {
    fn scenario(self) -> Scenario {
        let mut text = scenario_text("ltpt-two-hops.toml");
        let shown = "ltp-t/ltplib-2007";
        assert!(text.contains(shown));
        text = text.replace(
            shown,
            match self.who {
                Who::Bundles => "bp-udp/dtn2-2007",
                Who::LtpT => shown,
                Who::BundlesToday => "bp-udp",
                Who::Tcpcl => "bp-tcpcl",
                Who::LtpTToday => "ltp-t",
            },
        );
        if self.who == Who::LtpT {
            // Timers that wait for as long as light takes.
            let timers = "checkpoint_timer = \"auto\"\nreport_timer = \"auto\"";
            for node in ["lander", "orbiter", "earth"] {
                text += &format!("[nodes.{node}.mib.default]\n{timers}\n");
            }
        }
        let mut scenario = Scenario::parse(&text, "ltpt-two-hops.toml").unwrap();
        scenario.transfers[0].size = Some(format!("{} KiB", self.kib).parse().unwrap());
        for link in &mut scenario.links {
            if link.from.as_deref() == Some("router") {
                link.delay = Some(format!("{} ms", self.ltt_ms).parse().unwrap());
            }
        }
        scenario.resolved().unwrap()
    }

    fn find(self) -> f64 {
        let scenario = self.scenario();
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        let transfer = &run.transfers[0];
        assert!(run.succeeded() && transfer.verified, "{self:?}: {run:?}");
        assert!(!transfer.wrong_success, "{self:?}: {run:?}");
        transfer.delivered_s.unwrap()
    }

    /// All packets of it.
    pub(crate) fn packets(self) -> Vec<Packet> {
        trace(&self.scenario()).1
    }
}

/// Seconds until the file of a cell is there.
pub(crate) fn time(who: Who, ltt_ms: u64, kib: u64) -> f64 {
    static FOUND: OnceLock<BTreeMap<Cell, f64>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut cells = Vec::new();
        for ltt_ms in LTTS {
            for who in OF_STUDY {
                cells.extend(SIZES.map(|kib| Cell { who, ltt_ms, kib }));
            }
            cells.extend(TODAY.map(|who| Cell { who, ltt_ms, kib: 4096 }));
        }
        cells.into_par_iter().map(|cell| (cell, cell.find())).collect()
    });
    found[&Cell { who, ltt_ms, kib }]
}

/// KiB a second, without the time that light takes once.
pub(crate) fn goodput(who: Who, ltt_ms: u64, kib: u64) -> f64 {
    kib as f64 / (time(who, ltt_ms, kib) - ltt_ms as f64 / 1000.0)
}

/// The mean over the light trip times.
pub(crate) fn mean_goodput(who: Who, kib: u64) -> f64 {
    LTTS.map(|ltt_ms| goodput(who, ltt_ms, kib)).iter().sum::<f64>() / LTTS.len() as f64
}
