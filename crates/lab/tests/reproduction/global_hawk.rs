//! Transfers over the emulated satellite of NASA's Global Hawk, as Ames and Glenn measured them in 2012.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use rayon::prelude::*;
use slowlight_lab as lab;
use wire::tcp::{Flags, Segment, TcpOption};

use crate::page::{Estimate, runs, scenario_text};

/// The window that 730 kbit/s at 600 ms make: 730,000 / 8 * 0.6 octets.
pub(crate) const NCFTP_WINDOW: u64 = 54_750;

/// Who carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// FTP with a window of a fixed size.
    Ftp(u64),
    /// TCP with the kernel's own buffers, which grow.
    Tuned,
    /// scp with a channel's window of 2 MiB, as OpenSSH has had it since 2007.
    Scp,
    /// sftp of the same.
    Sftp,
    /// rsync over the same.
    Rsync,
    /// Saratoga, at the link's rate.
    Saratoga,
}

/// What stands on both sides of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pep {
    /// Routers.
    None,
    /// Gateways of SCPS with this window, in octets, and this rate, in Mbit/s.
    Scps(u32, u32),
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
    pub(crate) pep: Pep,
    pub(crate) rtt_ms: u32,
    pub(crate) errors: Errors,
    /// The file, in MB.
    pub(crate) mb: u64,
}

pub(crate) const RTTS: [u32; 4] = [0, 100, 300, 600];
pub(crate) const PER_PACKET: [Errors; 3] =
    [Errors::None, Errors::PerPacket(-7), Errors::PerPacket(-5)];
pub(crate) const PER_BIT: [Errors; 3] = [Errors::None, Errors::PerBit(-7), Errors::PerBit(-5)];
/// Those without a gateway, and those of them that one can help.
pub(crate) const TCP: [Who; 5] =
    [Who::Ftp(NCFTP_WINDOW), Who::Tuned, Who::Scp, Who::Sftp, Who::Rsync];
/// Twice 10 Mbit/s times 800 ms, and 10 Mbit/s: what the study told its gateways.
pub(crate) const SCPS: Pep = Pep::Scps(2_000_000, 10);

/// The file of most cells, in MB: that of the study, or what takes less time.
pub(crate) fn usual_mb() -> u64 {
    std::env::var("SLOWLIGHT_SIZE_MB").map_or(10, |size| size.parse().unwrap())
}

impl Pep {
    /// The tables of both gateways.
    fn tables(self) -> String {
        let Self::Scps(window, rate) = self else { return String::new() };
        let table = |node: &str| {
            format!(
                "[nodes.{node}.pep.wan]
                towards = \"emulator\"
                profile = \"scps-rate\"
                rate = \"{rate} Mbit/s\"
                buffer = \"{window} B\"
                tcp.rto.min = \"800 ms\"
                tcp.any_room = true
                [nodes.{node}.pep.lan]
                profile = \"scps-vj\"
                tcp.scps = \"off\"\n"
            )
        };
        table("aircraft-gateway") + &table("ground-gateway")
    }
}

/// The study's world, in which `protocol` carries the file with windows of this size.
fn world(protocol: &str, window: Option<u64>, pep: Pep) -> Scenario {
    let text = scenario_text("global-hawk.toml");
    let buffers = "tcp.receive_buffer = \"54750 B\"";
    assert!(text.contains(buffers) && text.contains(KERNEL));
    let told = window.map(|window| format!("tcp.receive_buffer = \"{window} B\""));
    let text = text.replace(buffers, &told.unwrap_or_default());
    let text = text.replace(&format!("ftp/{KERNEL}"), protocol);
    let text = text.replacen("[[links]]", &format!("{}[[links]]", pep.tables()), 1);
    Scenario::parse(&text, "global-hawk.toml").unwrap()
}

/// The kernel of the aircraft's host.
const KERNEL: &str = "linux-2.6.32";

/// Keys that are typed, one by one.
pub(crate) fn median_echo_s(pep: Pep, rtt_ms: u32) -> f64 {
    let mut scenario = world(&format!("telnet/{KERNEL}"), None, pep);
    scenario.transfers[0].size = Some("500 B".parse().unwrap());
    emulate(&mut scenario, rtt_ms, Errors::None, 1472);
    let run = simulate(&scenario.resolved().unwrap(), Recorders::default());
    run.transfers[0].latency.unwrap().median_s
}

/// Tells the emulator what to do to packets, of which the longest have so many octets of data.
fn emulate(scenario: &mut Scenario, rtt_ms: u32, errors: Errors, datagram: u32) {
    // 8,388,608 bit/s times 300 ms are 208 packets of 1,514 octets.
    let under_way = 8_388_608 * u64::from(rtt_ms) / 2000 / 8 / 1514;
    for link in scenario.links.iter_mut().filter(|link| link.bucket.is_some()) {
        link.delay = Some(format!("{} us", rtt_ms * 500).parse().unwrap());
        link.queue = Some(format!("{} packets", 1000 - under_way).parse().unwrap());
        link.datagram = Some(format!("{datagram} B").parse().unwrap());
        let probability = |power: i32| Some(format!("1e{power}").parse().unwrap());
        match errors {
            Errors::None => {}
            Errors::PerPacket(power) => link.per = probability(power),
            Errors::PerBit(power) => link.ber = probability(power),
        }
    }
}

fn simulate(scenario: &Scenario, recorders: Recorders) -> Run {
    let contents = run::contents(scenario).unwrap();
    let run = run::run(scenario, &contents, recorders).unwrap();
    assert!(run.succeeded(), "{run:?}");
    run
}

impl Cell {
    fn scenario(self, seed: u64, datagram: u32) -> Scenario {
        let program = |name: &str| format!("{name}/openssh-9.2-legacy+{KERNEL}");
        let ftp = format!("ftp/{KERNEL}");
        let (protocol, window) = match self.who {
            Who::Ftp(window) => (ftp, Some(window)),
            Who::Tuned => (ftp, None),
            Who::Scp => (program("scp"), None),
            Who::Sftp => (program("sftp"), None),
            Who::Rsync => (program("rsync"), None),
            Who::Saratoga => ("saratoga".to_owned(), None),
        };
        let mut scenario = world(&protocol, window, self.pep);
        scenario.seed = seed;
        scenario.transfers[0].size = Some(format!("{} MB", self.mb).parse().unwrap());
        scenario.transfers[0].content = Some(lab::scenario::Content::Zeros);
        emulate(&mut scenario, self.rtt_ms, self.errors, datagram);
        scenario.resolved().unwrap()
    }

    /// Mbit/s, in the time that clients tell: from when the file may cross.
    fn throughput(self, seed: u64) -> f64 {
        let run = simulate(&self.scenario(seed, 1472), Recorders::default());
        let transfer = &run.transfers[0];
        8.0 * self.mb as f64 / transfer.transfer_s.or(transfer.delivered_s).unwrap()
    }

    /// The packets of a run at a node.
    fn capture(scenario: Scenario, at: &str) -> Vec<pcap::Record> {
        let sink = Octets::default();
        let at = Some(at.to_owned());
        let capture = lab::scenario::Capture { at, ..Default::default() };
        let scenario = Scenario { capture, ..scenario };
        simulate(&scenario, Recorders { pcap: Some(Box::new(sink.clone())), trace: None });
        let octets = std::mem::take(&mut *sink.0.lock().unwrap());
        pcap::Reader::new(Cursor::new(octets)).unwrap().map(Result::unwrap).collect()
    }

    /// The segments of one run at a node.
    pub(crate) fn segments(self, seed: u64, at: &str) -> Vec<Seen> {
        let mut scales = BTreeMap::new();
        let records = Self::capture(self.scenario(seed, 1472), at);
        records.iter().filter_map(|record| Seen::of(record, &mut scales)).collect()
    }

    /// Megabits of UDP's data that reach the ground in a second, in datagrams of so many octets.
    pub(crate) fn udp_mbits(self, datagram: u32) -> f64 {
        let records = Self::capture(self.scenario(1, datagram), "ground");
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
    /// The number of the interface that it crossed.
    pub(crate) interface: u32,
    pub(crate) from: Ipv4Addr,
    pub(crate) ports: (u16, u16),
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    /// Octets of data.
    pub(crate) data: u32,
    /// The window it announces, in octets.
    pub(crate) window: u64,
    pub(crate) has_sack: bool,
}

/// The shifts of windows, by interface and sender.
type Scales = BTreeMap<(u32, Ipv4Addr, u16, u16), u8>;

impl Seen {
    fn of(record: &pcap::Record, scales: &mut Scales) -> Option<Self> {
        let (ip, payload) = wire::ip::Ipv4::decode(record.ip()?).ok()?;
        let segment = Segment::decode_unchecked(payload).ok()?;
        let header = &segment.header;
        let ports = (header.source, header.destination);
        let mut has_sack = false;
        let key = (record.interface, ip.source, ports.0, ports.1);
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
            interface: record.interface,
            from: ip.source,
            ports,
            sequence: header.sequence,
            acknowledgment: header.acknowledgment,
            data: segment.payload.len() as u32,
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

/// Runs of a cell: a file of the study's size takes its time, and without errors all are alike.
fn runs_of(cell: Cell) -> u64 {
    runs(if cell.mb > 10 { 1 } else { 3 })
}

/// The throughputs of these configurations, in Mbit/s.
pub(crate) fn throughputs(cells: impl IntoIterator<Item = Cell>) -> Throughputs {
    let cells: BTreeSet<_> = cells.into_iter().collect();
    let cells: Vec<_> = cells.into_iter().collect();
    let estimate = |cell: Cell| {
        let samples: Vec<_> = (1..=runs_of(cell)).map(|seed| cell.throughput(seed)).collect();
        (cell, Estimate::of(&samples))
    };
    Throughputs(cells.into_par_iter().map(estimate).collect())
}

/// What was found, by configuration.
#[derive(Debug)]
pub(crate) struct Throughputs(BTreeMap<Cell, Estimate>);

impl Throughputs {
    pub(crate) fn of(&self, cell: Cell) -> Estimate {
        self.0[&cell]
    }
}
