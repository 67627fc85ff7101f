//! What crossed the links of a run.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;

/// A packet on a link.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) sent_s: f64,
    pub(crate) at_s: f64,
    /// Where the link begins, and where it ends.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) octets: u64,
    /// What it is, as its protocol says.
    pub(crate) kind: String,
    pub(crate) fate: String,
}

impl Packet {
    fn read(line: &str) -> Self {
        let cells: Vec<_> = line.split('\t').collect();
        let text = |cell: usize| cells[cell].to_owned();
        Self {
            sent_s: cells[0].parse().unwrap(),
            at_s: cells[1].parse().unwrap(),
            from: text(2),
            to: text(3),
            octets: cells[4].parse().unwrap(),
            kind: text(5),
            fate: text(7),
        }
    }
}

/// Runs a scenario with its trace.
pub(crate) fn trace(scenario: &Scenario) -> (Run, Vec<Packet>) {
    let sink = Lines::default();
    let recorders = Recorders { trace: Some(Box::new(sink.clone())), pcap: None };
    let contents = run::contents(scenario).unwrap();
    let run = run::run(scenario, &contents, recorders).unwrap();
    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    (run, text.lines().skip(1).map(Packet::read).collect())
}

/// A trace in memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
