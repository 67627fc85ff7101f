//! Measures accuracy and capacity of the emulator on this machine; prints one line of JSON each.
//!
//! `cargo run --release -p slowlight-bench --bin exact -- delay SECONDS BIT/S SECONDS` (or `rate
//! BIT/S SECONDS`, `loss SECONDS`, `wire SECONDS`, `link SECONDS`, `tcp BIT/S SECONDS`)

#![expect(clippy::print_stdout, reason = "printing is its purpose")]

use std::error::Error;
use std::time::Duration;

use emu::measure::{self, Load, Pace};
use emu::{Host, Isolation, Report, World};
use link::{Config, Delay, ErrorKind, ErrorModel, Queue, Rate};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MEMORY: u64 = 1 << 30;
/// Length of the measured IP packets, in bytes.
const PACKET: usize = 1_000;
/// Length of a datagram in a flood, with its headers, in bytes.
const DATAGRAM: usize = 1_024;
const HEADERS: usize = 28;
const PATIENCE: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    if let Isolation::Over(code) = emu::isolate()? {
        std::process::exit(code);
    }
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let numbers: Vec<f64> =
        arguments.map(|text| text.parse()).collect::<std::result::Result<_, _>>()?;
    match (what.as_str(), numbers.as_slice()) {
        ("delay", &[delay, bps, seconds]) => delays(delay, bps, seconds),
        ("rate", &[bps, seconds]) => rate(bps, seconds),
        ("loss", &[seconds]) => losses(seconds),
        ("wire", &[seconds]) => {
            let [near, far] = measure::wire()?;
            capacity("wire", &near, &far, seconds, &|| None)
        }
        ("link", &[seconds]) => {
            let erasures = ErrorModel::dropping(ErrorKind::PerPacket(1e-6));
            let there = Config { errors: vec![erasures], ..config(None, 0.01) };
            let world = world(there, config(None, 0.01))?;
            let [near, far] = ends(&world)?;
            capacity("link", near, far, seconds, &|| world.links().report())
        }
        ("tcp", &[bps, seconds]) => tcp(bps, seconds),
        _ => Err("what? delay, rate, loss, wire, link or tcp, with their numbers".into()),
    }
}

/// Returns a link without errors and with an unlimited queue.
fn config(bps: Option<f64>, delay: f64) -> Config {
    Config {
        rate: bps.map_or(Rate::Infinite, |bps| Rate::Constant(bps as u64)),
        delay: Delay::Constant(Duration::from_secs_f64(delay)),
        queue: Queue { packets: None, bytes: None },
        ..Config::default()
    }
}

fn world(there: Config, back: Config) -> Result<World> {
    Ok(World::start(&measure::pair(there, back, 1, MEMORY))?)
}

fn ends(world: &World) -> Result<[&Host; 2]> {
    match world.hosts() {
        [near, far] => Ok([near, far]),
        _ => Err("a pair has two hosts".into()),
    }
}

fn print_line(mut line: Value, report: Option<&Report>, real_time: bool) {
    if let (Some(fields), Some(report)) = (line.as_object_mut(), report) {
        let late = &report.links[0].lateness;
        let micros = |share| late.quantile(share).as_nanos() as f64 / 1e3;
        fields.insert("late_us".into(), json!([micros(0.5), micros(0.99), micros(0.999)]));
        fields.insert("latest_us".into(), json!(late.most().as_nanos() as f64 / 1e3));
        fields.insert("unattended_us".into(), json!(report.unattended.as_nanos() as f64 / 1e3));
        fields.insert("real_time".into(), json!(real_time));
        fields.insert("no_memory".into(), json!(report.no_memory));
    }
    println!("{line}");
}

/// Measures one-way delays at half the rate of a link.
fn delays(delay: f64, bps: f64, seconds: f64) -> Result<()> {
    let world = world(config(Some(bps), delay), config(None, 0.0))?;
    let [near, far] = ends(&world)?;
    let gap = Duration::from_secs_f64(2.0 * 8.0 * PACKET as f64 / bps);
    let count = (seconds / gap.as_secs_f64()) as u32;
    let delay = Duration::from_secs_f64(delay);
    let pace = Pace { len: PACKET, gap, count, at_once: 1, patience: delay + PATIENCE };
    let (crossings, reordered) = measure::cross(near, far, &pace)?;
    let errors = measure::errors(&crossings, PACKET, Some(bps as u64), delay);
    let micros = |share| errors.quantile(share) as f64 / 1e3;
    let real_time = world.is_real_time();
    let report = world.stop()?;
    let line = json!({
        "what": "delay", "delay_s": delay.as_secs_f64(), "rate_bps": bps, "sent": count,
        "packets": errors.packets(), "reordered": reordered, "least_us": micros(0.0),
        "p50_us": micros(0.5), "p99_us": micros(0.99), "p999_us": micros(0.999),
        "most_us": micros(1.0),
    });
    print_line(line, Some(&report), real_time);
    Ok(())
}

/// Measures the rate of a line that is always busy.
fn rate(bps: f64, seconds: f64) -> Result<()> {
    let world = world(config(Some(bps), 0.01), config(None, 0.0))?;
    let [near, far] = ends(&world)?;
    // 1.5 times the line rate: the excess waits in the queue.
    let gap = Duration::from_secs_f64(8.0 * PACKET as f64 / bps / 1.5);
    let count = (seconds / gap.as_secs_f64()) as u32;
    let patience = PATIENCE + Duration::from_secs_f64(seconds);
    // Sent in batches, so that it always has something to do.
    let pace = Pace { len: PACKET, gap, count, at_once: 60, patience };
    let (crossings, reordered) = measure::cross(near, far, &pace)?;
    let measured = measure::rate(&crossings, PACKET).ok_or("no packet arrived")?;
    let came = crossings.iter().filter(|crossing| crossing.came.is_some()).count();
    let real_time = world.is_real_time();
    let report = world.stop()?;
    let line = json!({
        "what": "rate", "rate_bps": bps, "measured_bps": measured,
        "error": measured / bps - 1.0, "sent": count, "packets": came, "reordered": reordered,
    });
    print_line(line, Some(&report), real_time);
    Ok(())
}

/// Measures losses for each kind of error, and their expected number.
fn losses(seconds: f64) -> Result<()> {
    let bits = PACKET as f64 * 8.0;
    let of_bits = |ber: f64| 1.0 - (1.0 - ber).powf(bits);
    let kinds = [
        ("per packet", ErrorModel::dropping(ErrorKind::PerPacket(0.01)), 0.01),
        ("bit errors", ErrorModel::dropping(ErrorKind::BitErrorRate(1e-6)), of_bits(1e-6)),
        // The checksum of a damaged packet fails, and the host drops it.
        ("damage", ErrorModel::damaging(ErrorKind::BitErrorRate(1e-6)), of_bits(1e-6)),
    ];
    for (name, model, probability) in kinds {
        let there = Config { errors: vec![model], ..config(None, 0.01) };
        let world = world(there, config(None, 0.0))?;
        let [near, far] = ends(&world)?;
        let gap = Duration::from_micros(25);
        let count = (seconds / gap.as_secs_f64()) as u32;
        let pace = Pace { len: PACKET, gap, count, at_once: 1, patience: PATIENCE };
        let (crossings, reordered) = measure::cross(near, far, &pace)?;
        let lost = crossings.iter().filter(|crossing| crossing.came.is_none()).count();
        let real_time = world.is_real_time();
        let report = world.stop()?;
        let line = json!({
            "what": "loss", "kind": name, "probability": probability, "sent": count,
            "lost": lost, "reordered": reordered,
        });
        print_line(line, Some(&report), real_time);
    }
    Ok(())
}

/// Returns the CPU time of the thread that carries packets, in seconds; 0 if there is none.
fn carried_for() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |thread: &std::fs::DirEntry, name: &str| {
        std::fs::read_to_string(thread.path().join(name)).unwrap_or_default()
    };
    let mut links = threads.filter(|thread| read(thread, "comm").trim() == "links");
    let times = links.next().map(|thread| read(&thread, "schedstat")).unwrap_or_default();
    let nanos = times.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or_default() / 1e9
}

/// Measures the throughput between two hosts: datagrams in batches, single datagrams, and TCP.
fn capacity(
    between: &str,
    near: &Host,
    far: &Host,
    seconds: f64,
    report: &dyn Fn() -> Option<Report>,
) -> Result<()> {
    let time = Duration::from_secs_f64(seconds);
    for batches in [true, false] {
        let load = Load { datagram: DATAGRAM, batches, time };
        let before = carried_for();
        let flood = measure::flood(near, far, &load)?;
        let busy = carried_for() - before;
        let line = json!({
            "what": "udp", "between": between, "batches": batches, "sent": flood.sent,
            "packets": flood.received, "reordered": flood.reordered,
            "packets_s": flood.per_second(),
            // Throughput of a dedicated CPU.
            "alone_s": if busy > 0.0 { flood.received as f64 / busy } else { 0.0 },
            "bps": flood.per_second() * (DATAGRAM + HEADERS) as f64 * 8.0,
        });
        print_line(line, report().as_ref(), true);
    }
    for congestion in ["cubic", "bbr"] {
        let before = carried_for();
        let stream = match measure::stream(near, far, time, Some(congestion)) {
            // Some kernels lack it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let busy = carried_for() - before;
        let line = json!({
            "what": "tcp", "between": between, "congestion": congestion, "bytes": stream.bytes,
            "intact": stream.intact, "bps": stream.bps(),
            "alone_bps": if busy > 0.0 { stream.bytes as f64 * 8.0 / busy } else { 0.0 },
        });
        print_line(line, report().as_ref(), true);
    }
    Ok(())
}

/// Measures TCP's goodput over a link with a rate.
fn tcp(bps: f64, seconds: f64) -> Result<()> {
    // Twice the bandwidth-delay product: the line stays busy when the window is halved.
    let queue = Queue { packets: Some(4_000), bytes: None };
    let there = Config { queue, ..config(Some(bps), 0.01) };
    let world = world(there, config(None, 0.01))?;
    let [near, far] = ends(&world)?;
    let stream = measure::stream(near, far, Duration::from_secs_f64(seconds), Some("cubic"))?;
    let real_time = world.is_real_time();
    let report = world.stop()?;
    // 1,500 bytes carry 1,448: 20 of IP, 32 of TCP with its time stamps.
    let line = json!({
        "what": "tcp at a rate", "rate_bps": bps, "bytes": stream.bytes,
        "intact": stream.intact, "bps": stream.bps(), "line_bps": stream.bps() * 1500.0 / 1448.0,
    });
    print_line(line, Some(&report), real_time);
    Ok(())
}
