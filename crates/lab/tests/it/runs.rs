//! Runs shared by the tests of several protocols.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Cursor, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use lab::compare::{Plan, Row, compare};
use lab::content;
use lab::link_spec::{Errors, LinkSpec};
use lab::preset::Preset;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use pcap::Record;
use slowlight_lab as lab;
use transport::quantity::Probability;

/// 10 MB at 10 Mbit/s over a link with this delay and this share of packets lost.
pub(crate) fn row(protocol: &str, delay: &str, per: f64, runs: u32) -> Row {
    let mut link = Preset::find("terrestrial").unwrap();
    for hop in &mut link.hops {
        let delay = Some(delay.parse().unwrap());
        let lossy = LinkSpec {
            errors: Errors { per: Some(Probability(per)), ..Errors::default() },
            delay,
            ..LinkSpec::default()
        };
        *hop = lossy.over(hop);
    }
    let plan = Plan {
        runs,
        ..Plan::new(
            link,
            vec![protocol.parse().unwrap()],
            content::made_up(1, 0, 10_000_000).unwrap(),
        )
    };
    let rows = compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels");
    rows.into_iter().next().unwrap()
}

/// One run of a world.
pub(crate) fn run_once(toml: &str, recorders: Recorders) -> Run {
    let scenario: Scenario = toml::from_str(toml).unwrap();
    let scenario = scenario.resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    run::run(&scenario, &contents, recorders).unwrap()
}

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Recorders that capture into it.
    pub(crate) fn recorders(&self) -> Recorders {
        Recorders { pcap: Some(Box::new(self.clone())), trace: None }
    }

    /// Number of packets that a port sent between these times.
    pub(crate) fn sent_between(&self, port: u16, from: f64, to: f64) -> usize {
        let during = |record: &&Record| (from..to).contains(&record.at.as_secs_f64());
        let records = self.records();
        let sent = records.iter().filter(during).filter_map(Record::udp);
        sent.filter(|datagram| datagram.udp.source == port).count()
    }

    /// The capture.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    /// The packets of the capture.
    pub(crate) fn records(&self) -> Vec<Record> {
        pcap::Reader::new(Cursor::new(self.bytes())).unwrap().map(Result::unwrap).collect()
    }
}
