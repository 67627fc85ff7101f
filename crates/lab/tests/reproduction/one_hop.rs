//! Files over one hop of an emulated space link, as Trinity College Dublin sent them in 2007.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;

use crate::page::scenario_text;
use crate::trace::{Packet, trace};

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// sftp of OpenSSH 4.2.
    Sftp,
    /// LTPlib of 2007, all of the block red.
    Red,
    /// The same, all green.
    Green,
    /// The same, the first 1,000 octets red.
    FirstRed,
    /// Bundles over UDP by DTN2 2.3.0, with the patch of the study.
    Bundles,
}

/// The variants of LTP.
pub(crate) const LTP: [Who; 3] = [Who::Red, Who::Green, Who::FirstRed];
/// Light trip times, in ms.
pub(crate) const LTTS: [u64; 7] = [0, 1, 10, 100, 1_000, 10_000, 100_000];
/// Files, in KiB: 1 to 4,096.
pub(crate) const SIZES: [u64; 13] = {
    let mut sizes = [1; 13];
    let mut index = 1;
    while index < 13 {
        sizes[index] = 2 * sizes[index - 1];
        index += 1;
    }
    sizes
};

/// One transfer of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) who: Who,
    pub(crate) ltt_ms: u64,
    pub(crate) kib: u64,
}

/// What became of it, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Until the file was there.
    pub(crate) delivered: Option<f64>,
    /// Until it could begin to cross.
    pub(crate) ready: Option<f64>,
    pub(crate) failure: Option<String>,
}

impl Cell {
    fn scenario(self) -> Scenario {
        let text = scenario_text("ltpt-one-hop.toml");
        let sftp = "sftp/openssh-4.2+linux-2.6.18";
        assert!(text.contains(sftp));
        let protocol = match self.who {
            Who::Sftp => sftp,
            Who::Red => "ltp/ltplib-2007",
            Who::Green => "ltp-green/ltplib-2007",
            Who::FirstRed => "ltp-1k-red/ltplib-2007",
            Who::Bundles => "bp-udp/dtn2-2007",
        };
        let mut text = text.replace(sftp, protocol);
        if LTP.contains(&self.who) {
            // Timers that wait for as long as light takes, as they must where it takes 100 s.
            let timers = "checkpoint_timer = \"auto\"\nreport_timer = \"auto\"";
            let table = |node| format!("[nodes.{node}.mib.default]\n{timers}\n");
            let tables = table("lander") + &table("earth") + "[[links]]";
            text = text.replacen("[[links]]", &tables, 1);
        }
        let mut scenario = Scenario::parse(&text, "ltpt-one-hop.toml").unwrap();
        scenario.transfers[0].size = Some(format!("{} KiB", self.kib).parse().unwrap());
        for link in &mut scenario.links {
            if link.from.as_deref() == Some("router") {
                link.delay = Some(format!("{} ms", self.ltt_ms).parse().unwrap());
            }
            // Full Ethernet frames.
            link.datagram = Some("1472 B".parse().unwrap());
        }
        scenario.resolved().unwrap()
    }

    fn find(self) -> Found {
        let scenario = self.scenario();
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        let transfer = &run.transfers[0];
        assert!(!transfer.wrong_success, "{self:?}: {run:?}");
        let (delivered, ready) = (transfer.delivered_s, transfer.ready_s);
        Found { delivered, ready, failure: transfer.failure.clone() }
    }

    /// All packets of it.
    pub(crate) fn packets(self) -> Vec<Packet> {
        trace(&self.scenario()).1
    }
}

/// What became of a transfer of the grid.
pub(crate) fn found(cell: Cell) -> &'static Found {
    static FOUND: OnceLock<BTreeMap<Cell, Found>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mut cells = Vec::new();
        for who in [Who::Sftp, Who::Bundles].into_iter().chain(LTP) {
            for ltt_ms in LTTS {
                cells.extend(SIZES.map(|kib| Cell { who, ltt_ms, kib }));
            }
        }
        cells.into_par_iter().map(|cell| (cell, cell.find())).collect()
    });
    &found[&cell]
}
