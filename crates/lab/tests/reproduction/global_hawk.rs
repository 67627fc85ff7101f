//! Transfers over the emulated satellite of NASA's Global Hawk, as Ames and Glenn measured them in 2012.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;
use wire::tcp::{Flags, Segment, TcpOption};

use crate::page::{Estimate, prints, runs};

/// The window that 730 kbit/s at 600 ms make: 730,000 / 8 * 0.6 octets.
pub(crate) const NCFTP_WINDOW: u64 = 54_750;

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// FTP with a window of a fixed size.
    Ftp(u64),
    /// TCP with the kernel's own buffers, which grow.
    Tuned,
    /// Saratoga, at the link's rate.
    Saratoga,
}

/// What the emulator did to packets, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Errors {
    /// Nothing.
    None,
    /// It lost each with 10 to this power, whatever its length.
    PerPacket(i32),
    /// Each bit was in error with 10 to this power.
    PerBit(i32),
}

/// One configuration of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) who: Who,
    pub(crate) rtt_ms: u32,
    pub(crate) errors: Errors,
}

pub(crate) const RTTS: [u32; 4] = [0, 100, 300, 600];
pub(crate) const PER_PACKET: [Errors; 3] =
    [Errors::None, Errors::PerPacket(-7), Errors::PerPacket(-5)];
pub(crate) const PER_BIT: [Errors; 3] = [Errors::None, Errors::PerBit(-7), Errors::PerBit(-5)];
pub(crate) const CARRIERS: [Who; 3] = [Who::Ftp(NCFTP_WINDOW), Who::Tuned, Who::Saratoga];

/// The file, in MB: that of the study, or what takes less time.
fn size() -> u64 {
    std::env::var("SLOWLIGHT_SIZE_MB").map_or(10, |size| size.parse().unwrap())
}

impl Cell {
    fn scenario(self, seed: u64) -> Scenario {
        let path: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "../../scenarios/global-hawk.toml"].iter().collect();
        let text = std::fs::read_to_string(path).unwrap();
        let buffers = "tcp.receive_buffer = \"54750 B\"";
        assert!(text.contains(buffers) && text.contains("ftp/linux-2.6.32"));
        let text = match self.who {
            Who::Ftp(window) => text.replace("54750 B", &format!("{window} B")),
            Who::Tuned => text.replace(buffers, ""),
            Who::Saratoga => text.replace(buffers, "").replace("ftp/linux-2.6.32", "saratoga"),
        };
        let mut scenario = Scenario::parse(&text, "global-hawk.toml").unwrap();
        scenario.seed = seed;
        scenario.transfers[0].size = Some(format!("{} MB", size()).parse().unwrap());
        scenario.transfers[0].content = Some(lab::scenario::Content::Zeros);
        for link in scenario.links.iter_mut().filter(|link| link.bucket.is_some()) {
            link.delay = Some(format!("{} us", self.rtt_ms * 500).parse().unwrap());
            // Packets of 1,500 octets.
            link.datagram = Some("1472 B".parse().unwrap());
            let probability = |power: i32| Some(format!("1e{power}").parse().unwrap());
            match self.errors {
                Errors::None => {}
                Errors::PerPacket(power) => link.per = probability(power),
                Errors::PerBit(power) => link.ber = probability(power),
            }
        }
        scenario.resolved().unwrap()
    }

    /// Mbit/s, of FTP in the time that its clients tell.
    fn throughput(self, seed: u64) -> f64 {
        let scenario = self.scenario(seed);
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        assert!(run.succeeded(), "{self:?}, seed {seed}: {run:?}");
        let transfer = &run.transfers[0];
        8.0 * size() as f64 / transfer.transfer_s.or(transfer.delivered_s).unwrap()
    }

    /// The packets of one run at a node.
    fn capture(self, seed: u64, at: &str) -> Vec<pcap::Record> {
        let sink = Octets::default();
        let scenario = Scenario {
            capture: lab::scenario::Capture { at: Some(at.to_owned()), ..Default::default() },
            ..self.scenario(seed)
        };
        let contents = run::contents(&scenario).unwrap();
        let recorders = Recorders { pcap: Some(Box::new(sink.clone())), trace: None };
        assert!(run::run(&scenario, &contents, recorders).unwrap().succeeded());
        let octets = std::mem::take(&mut *sink.0.lock().unwrap());
        pcap::Reader::new(Cursor::new(octets)).unwrap().map(Result::unwrap).collect()
    }

    /// The segments of one run at the aircraft.
    pub(crate) fn segments(self, seed: u64) -> Vec<Seen> {
        let mut scales = BTreeMap::new();
        let records = self.capture(seed, "aircraft");
        records.iter().filter_map(|record| Seen::of(record, &mut scales)).collect()
    }

    /// Megabits of UDP's data that reach the ground in a second.
    pub(crate) fn udp_mbits(self) -> f64 {
        let records = self.capture(1, "ground");
        let arrives = |record: &pcap::Record| {
            let datagram = record.udp().filter(|datagram| datagram.data.len() > 1000)?;
            Some((record.at.as_secs_f64(), datagram.data.len() as f64))
        };
        let data: Vec<_> = records.iter().filter_map(arrives).collect();
        let octets: f64 = data[1..].iter().map(|(_, octets)| octets).sum();
        8e-6 * octets / (data[data.len() - 1].0 - data[0].0)
    }
}

/// A segment of TCP.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at_s: f64,
    pub(crate) from: Ipv4Addr,
    pub(crate) ports: (u16, u16),
    /// The window it announces, in octets.
    pub(crate) window: u64,
    pub(crate) has_sack: bool,
}

impl Seen {
    fn of(record: &pcap::Record, scales: &mut BTreeMap<(Ipv4Addr, u16, u16), u8>) -> Option<Self> {
        let (ip, payload) = wire::ip::Ipv4::decode(record.ip()?).ok()?;
        let segment = Segment::decode_unchecked(payload).ok()?;
        let header = &segment.header;
        let ports = (header.source, header.destination);
        let mut has_sack = false;
        let key = (ip.source, ports.0, ports.1);
        for option in segment.options {
            match option {
                Ok(TcpOption::WindowScale(scale)) => drop(scales.insert(key, scale)),
                Ok(TcpOption::Sack(_)) => has_sack = true,
                Ok(_) | Err(_) => {}
            }
        }
        let is_syn = header.flags.contains(Flags::SYN);
        let scale = if is_syn { 0 } else { scales.get(&key).copied().unwrap_or(0) };
        Some(Self {
            at_s: record.at.as_secs_f64(),
            from: ip.source,
            ports,
            window: u64::from(header.window) << scale,
            has_sack,
        })
    }
}

/// A capture in memory.
#[derive(Clone, Default)]
struct Octets(Arc<Mutex<Vec<u8>>>);

impl Write for Octets {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the claims look at, and all if the tables are to be printed.
fn grid() -> Vec<Cell> {
    let mut grid = Vec::new();
    for errors in PER_PACKET.into_iter().chain(PER_BIT.into_iter().skip(1)) {
        for rtt_ms in RTTS {
            let carriers = CARRIERS.into_iter().filter(|who| match who {
                Who::Ftp(_) | Who::Tuned => prints() || rtt_ms > 0,
                Who::Saratoga => true,
            });
            grid.extend(carriers.map(|who| Cell { who, rtt_ms, errors }));
        }
    }
    grid.push(Cell { who: Who::Ftp(12_000), rtt_ms: 600, errors: Errors::None });
    grid
}

/// The throughput of this configuration, in Mbit/s.
pub(crate) fn throughput(who: Who, rtt_ms: u32, errors: Errors) -> Estimate {
    static FOUND: OnceLock<BTreeMap<Cell, Estimate>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let estimate = |cell: Cell| {
            let samples: Vec<_> = (1..=runs(3)).map(|seed| cell.throughput(seed)).collect();
            (cell, Estimate::of(&samples))
        };
        grid().into_par_iter().map(estimate).collect()
    });
    found[&Cell { who, rtt_ms, errors }]
}
