//! FTP and SCPS over the small satellite's link of 2000 (`scenarios/sgls.toml`): the causes of
//! deviations given in `docs/reproduction/003-scps-tcp-sgls.md`.

use lab::link_spec::Vector;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;

use super::Kept;

/// 1 MB from the satellite.
#[derive(Clone, Copy, Debug)]
struct Cell {
    protocol: &'static str,
    /// Settings of both nodes, in addition to timestamps.
    settings: &'static str,
    timestamps: bool,
    compressed: bool,
    /// Bit errors in a million.
    errors: u64,
    /// Acknowledgments at 2,400 bit/s.
    asymmetric: bool,
}

const FTP: Cell = Cell {
    protocol: "ftp/linux-2.2",
    settings: "",
    timestamps: true,
    compressed: false,
    errors: 0,
    asymmetric: false,
};
const VJ: Cell = Cell { protocol: "ftp/scps-vj", settings: "tcp.scps = \"off\"", ..FTP };
const VEGAS: Cell = Cell { protocol: "ftp/scps-vegas", ..VJ };

/// A packet on the line to the ground, or on the return line.
struct Packet {
    sent_s: f64,
    at_s: f64,
    from: String,
    bytes: u64,
    fate: String,
}

impl Cell {
    fn scenario(self, seed: u64) -> Scenario {
        let text = include_str!("../../../../../scenarios/sgls.toml");
        let Self { settings, timestamps, .. } = self;
        let mib = ["satellite", "ground"]
            .map(|node| format!("[nodes.{node}.mib]\ntcp.timestamps = {timestamps}\n{settings}\n"));
        let text = text.replace(FTP.protocol, self.protocol).replace("100 kB", "1 MB");
        let text = text.replacen("[[links]]", &(mib.concat() + "[[links]]"), 1);
        let mut scenario = Scenario::parse(&text, "sgls.toml").unwrap();
        scenario.seed = seed;
        for link in scenario.links.iter_mut().filter(|link| link.rate.is_some()) {
            if self.asymmetric && link.from.as_deref() == Some("ground") {
                link.rate = Some("2400 bit/s".parse().unwrap());
            }
            link.header_compression = Some(self.compressed);
            if self.errors > 0 {
                // 1 Mbit of data, each byte with a start and a stop bit.
                let drawn = Some(self.errors);
                link.errors.error_vector =
                    Some(Vector { bits: 1_250_000, errors: Vec::new(), drawn });
            }
        }
        scenario.resolved().unwrap()
    }

    fn run(self, seed: u64, recorders: Recorders) -> Run {
        let scenario = self.scenario(seed);
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, recorders).unwrap();
        assert!(run.succeeded(), "{self:?}, seed {seed}: {run:?}");
        run
    }

    /// Seconds from the server's 150 to its 226.
    fn transfer_s(self) -> f64 {
        let time = |seed| self.run(seed, Recorders::default()).transfers[0].transfer_s.unwrap();
        mean_of(10, time)
    }

    fn packets(self, seed: u64) -> Vec<Packet> {
        let trace = Kept::default();
        self.run(seed, Recorders { trace: Some(Box::new(trace.clone())), pcap: None });
        let text = String::from_utf8(trace.bytes()).unwrap();
        let mut packets = Vec::new();
        for line in text.lines().skip(1) {
            let cells: Vec<_> = line.split('\t').collect();
            // The satellite's own PPP device is not a line.
            if cells[2] != "satellite" && cells[3] != "satellite" {
                packets.push(Packet {
                    sent_s: cells[0].parse().unwrap(),
                    at_s: cells[1].parse().unwrap(),
                    from: cells[2].to_owned(),
                    bytes: cells[4].parse().unwrap(),
                    fate: cells[7].to_owned(),
                });
            }
        }
        packets
    }
}

/// Mean over runs with the seeds from 1 on.
fn mean_of(runs: u32, of: impl Fn(u64) -> f64) -> f64 {
    (1..=u64::from(runs)).map(of).sum::<f64>() / f64::from(runs)
}

/// Additional time of one relative to the other, in percent.
fn slower(cell: Cell, base: Cell) -> f64 {
    100.0 * (cell.transfer_s() / base.transfer_s() - 1.0)
}

/// Whether a value differs from the study's by at most a third of the latter, which implies the
/// same sign.
fn is_near(percent: f64, study: f64) -> bool {
    (percent - study).abs() <= study.abs() / 3.0
}

/// Total idle time of the line to the ground, counting pauses of more than 250 ms, in seconds.
fn silence(packets: &[Packet]) -> f64 {
    let data: Vec<_> = packets.iter().filter(|packet| packet.bytes > 1000).collect();
    let gap = |pair: &[&Packet]| pair[1].sent_s - pair[0].at_s;
    data.windows(2).map(gap).filter(|gap| *gap > 0.25).sum()
}

#[test]
fn acknowledgments_take_less_time_than_two_segments() {
    let large = Cell { asymmetric: true, ..FTP };
    let packets = large.packets(1);
    let segments = packets.iter().filter(|packet| packet.bytes == 1500).count() as f64;
    let acks =
        packets.iter().filter(|packet| packet.from == "ground" && packet.bytes == 52).count();
    assert!((0.45..0.6).contains(&(acks as f64 / segments)), "{acks} ACKs, {segments} segments");
    // With an acknowledgment per segment the return link limits the transfer.
    let each = Cell { settings: "tcp.ack.every = 1", ..large };
    let slower = slower(each, Cell { asymmetric: false, ..each });
    assert!(is_near(slower, 74.0), "{slower} %");
}

#[test]
fn at_1e_5_vegas_waits_no_longer_for_timeouts_than_vj() {
    let silence_of = |cell: Cell| {
        let cell = Cell { errors: 10, ..cell };
        mean_of(5, |seed| silence(&cell.packets(seed)))
    };
    let [vj, vegas] = [VJ, VEGAS].map(silence_of);
    assert!(vj > 5.0 && vegas < 1.3 * vj, "idle: VJ {vj} s, Vegas {vegas} s");
    // A sender with one segment in flight at a time takes twice as long.
    let base = Cell { errors: 10, ..FTP };
    let slower = slower(Cell { settings: "tcp.send_buffer = \"1448 B\"", ..base }, base);
    assert!(is_near(slower, 100.0), "{slower} %");
}

#[test]
fn timestamps_reduce_compression_and_the_cost_of_losses() {
    let fates = |timestamps| {
        let packets = Cell { compressed: true, errors: 10, timestamps, ..FTP }.packets(1);
        let having =
            |fate: &str| packets.iter().filter(|packet| packet.fate.contains(fate)).count();
        (having("error vector"), having("header not restored"))
    };
    let (with, without) = (fates(true), fates(false));
    // Lost packets, and packets whose header was not restored.
    assert!(with.1 < without.1, "{with:?} {without:?}");
    assert!(without.1 > without.0 / 2, "{without:?}");
}
