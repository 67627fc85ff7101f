//! Throughput and memory of erasure codes for long blocks: the tables of `docs/coded.md`.
//!
//! `cargo run --profile production -p slowlight-bench --example codes`
//!
//! * Each number is measured in a process of its own, in one thread.
//! * Random source segments are missing, and as many parity segments replace them. If a code needs
//!   more, it gets one more at a time.
//! * Throughput is source bytes over CPU time, the best of three runs of at least half a second.
//! * Memory is the growth of the resident set, beyond the block and the parity received.
//! * Coefficients and plans that depend only on the length of the block count as memory, not as
//!   time.

#![expect(clippy::print_stdout, reason = "printing is its purpose")]

use std::error::Error;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use engine::Rng;
use norm::fec::{Code, Decoder, Encoder, Field, Long, LongWork, ReadColumns, SliceColumns};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder, SourceBlockEncodingPlan,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Length of a segment, in bytes.
const SEGMENT: usize = 1_400;

/// CPU time of a run, in seconds, and number of runs.
const RUN_TIME: f64 = 0.5;
const RUNS: usize = 3;

/// Products of segments and coefficients beyond which a code is not measured.
const WORK_MAX: usize = 1 << 26;

const CODES: [&str; 4] = ["rs8", "rs16", "long", "raptorq"];
const LENGTHS: [usize; 4] = [100, 1_000, 10_000, 50_000];
/// Losses, in thousandths.
const LOSSES: [usize; 4] = [1, 10, 100, 300];
/// Loss of the table of memory.
const MEMORY_LOSS: usize = 100;

/// Spare parity segments, should as many as are missing not suffice.
const SPARE: usize = 4;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [code, step, length, lost] => {
            let block = Block::new(length.parse()?, lost.parse()?);
            match *code {
                "rs8" => Rizzo(Field::Gf8).step(step, &block),
                "rs16" => Rizzo(Field::Gf16).step(step, &block),
                "long" => Leopard.step(step, &block),
                "raptorq" => RaptorQ.step(step, &block),
                _ => Err("which code?".into()),
            }
        }
        _ => tables(),
    }
}

/// Measures everything, and prints both tables.
fn tables() -> Result<()> {
    let mut memory = String::new();
    println!("| segments | lost | {} |", CODES.join(" | "));
    println!("|---|---|{}", "---|".repeat(CODES.len()));
    for length in LENGTHS {
        for loss in LOSSES {
            let lost = length * loss / 1000;
            if lost == 0 {
                continue;
            }
            let mut cells = [String::new(), String::new()];
            for code in CODES {
                let found = both(code, length, lost)?;
                let cell = |of: fn(&Measured) -> String| match &found {
                    Some([encoded, decoded]) => format!(" {}, {} |", of(encoded), of(decoded)),
                    None => " – |".to_owned(),
                };
                cells[0] += &cell(|it| format!("{:.2}", it.gbit_per_s));
                cells[1] += &cell(|it| format!("{:.1}", it.memory as f64 / 1e6));
            }
            println!("| {length} | {lost} |{}", cells[0]);
            if loss == MEMORY_LOSS {
                memory += &format!("| {length} | {lost} |{}\n", cells[1]);
            }
        }
    }
    println!("\n{memory}");
    Ok(())
}

/// Measures encoding and recovery in child processes; `None` if the code has no such block.
fn both(code: &str, length: usize, lost: usize) -> Result<Option<[Measured; 2]>> {
    let exists = match code {
        "rs8" => length + lost + SPARE <= 255,
        "rs16" => length + lost + SPARE <= 65_535 && length * lost <= WORK_MAX,
        "long" => lost + SPARE <= usize::from(positions(length, lost)),
        _ => true,
    };
    if !exists {
        return Ok(None);
    }
    let child = |step: &str, input: &[u8]| -> Result<Vec<u8>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([code, step, &length.to_string(), &lost.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(input)?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("{code} {step} {length} {lost} fails").into());
        }
        Ok(output.stdout)
    };
    let parity = child("parity", &[])?;
    let encoded = Measured::read(&child("encode", &[])?)?;
    let decoded = Measured::read(&child("decode", &parity)?)?;
    Ok(Some([encoded, decoded]))
}

/// Block with losses.
struct Block {
    source: Vec<u8>,
    /// Places of missing source segments, in ascending order.
    missing: Vec<usize>,
    /// Whether the segment at each place is missing.
    is_missing: Vec<bool>,
}

impl Block {
    fn new(length: usize, lost: usize) -> Self {
        let mut rng = Rng::new(1, "codes");
        let mut source = vec![0; length * SEGMENT];
        rng.fill(&mut source);
        let mut is_missing = vec![false; length];
        let mut left = lost.min(length);
        while left > 0 {
            let place = rng.below(length as u64) as usize;
            left -= usize::from(!std::mem::replace(&mut is_missing[place], true));
        }
        let missing = (0..length).filter(|place| is_missing[*place]).collect();
        Self { source, missing, is_missing }
    }

    fn length(&self) -> usize {
        self.is_missing.len()
    }

    /// Source segments that arrived, with their places.
    fn arrived(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let segments = self.source.chunks(SEGMENT).enumerate();
        segments.filter(|(place, _)| !self.is_missing[*place])
    }
}

/// Result of a measurement.
struct Measured {
    gbit_per_s: f64,
    memory: u64,
}

impl Measured {
    /// Runs `run` repeatedly. `before` is the resident set without the code.
    fn of(block: &Block, before: u64, mut run: impl FnMut()) -> Result<Self> {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let start = cpu_seconds()?;
            let mut count = 0;
            let time = loop {
                run();
                count += 1;
                let time = cpu_seconds()? - start;
                if time >= RUN_TIME {
                    break time / f64::from(count);
                }
            };
            best = best.min(time);
        }
        let memory = status_bytes("VmHWM:")?.saturating_sub(before);
        Ok(Self { gbit_per_s: block.source.len() as f64 * 8.0 / best / 1e9, memory })
    }

    fn print(&self) {
        println!("{} {}", self.gbit_per_s, self.memory);
    }

    fn read(line: &[u8]) -> Result<Self> {
        let line = std::str::from_utf8(line)?;
        let (speed, memory) = line.trim().split_once(' ').ok_or("not a measurement")?;
        Ok(Self { gbit_per_s: speed.parse()?, memory: memory.parse()? })
    }
}

/// CPU time of this thread.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = stat.split(' ').next().ok_or("no time")?.parse()?;
    Ok(nanoseconds / 1e9)
}

/// Memory of this process, by a key of its status.
fn status_bytes(key: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("no memory")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}

/// Makes parity segments, one behind the other.
type Encode<'a> = Box<dyn FnMut() -> Vec<u8> + 'a>;

/// Recovers missing segments, and returns whether it could.
type Decode<'a> = Box<dyn FnMut() -> bool + 'a>;

/// Code to measure.
trait Measurable: Sized {
    /// Makes the first `count` parity segments.
    fn encoder<'a>(&self, block: &'a Block, count: usize) -> Result<Encode<'a>>;

    /// Recovers the missing segments from all of `parity`. `file` has the source segments, too: a
    /// code may recover the block in place.
    fn decoder<'a>(
        &self,
        block: &'a Block,
        parity: &'a [u8],
        file: &'a mut [u8],
    ) -> Result<Decode<'a>>;

    /// Prints parity, or measures encoding or recovery.
    fn step(&self, step: &str, block: &Block) -> Result<()> {
        let lost = block.missing.len();
        match step {
            "parity" => std::io::stdout().write_all(&self.encoder(block, lost + SPARE)?())?,
            "encode" => {
                let before = fresh_peak()? + (lost * SEGMENT) as u64;
                let mut encode = self.encoder(block, lost)?;
                Measured::of(block, before, || _ = black_box(encode()))?.print();
            }
            "decode" => {
                let mut parity = Vec::with_capacity((lost + SPARE) * SEGMENT);
                std::io::stdin().read_to_end(&mut parity)?;
                let mut file = block.source.clone();
                let before = fresh_peak()?;
                let mut is_enough = |count: &usize| {
                    let parity = &parity[..count * SEGMENT];
                    self.decoder(block, parity, &mut file).is_ok_and(|mut decode| decode())
                };
                let count = (lost..=lost + SPARE).find(|count| is_enough(count));
                let parity = &parity[..count.ok_or("parity does not suffice")? * SEGMENT];
                let mut decode = self.decoder(block, parity, &mut file)?;
                Measured::of(block, before, || _ = black_box(decode()))?.print();
            }
            _ => return Err("which step?".into()),
        }
        Ok(())
    }
}

/// Forgets the peak of the resident set, and returns its size.
fn fresh_peak() -> Result<u64> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    status_bytes("VmRSS:")
}

/// The code of FEC ids 2, 5 and 129.
struct Rizzo(Field);

impl Measurable for Rizzo {
    fn encoder<'a>(&self, block: &'a Block, count: usize) -> Result<Encode<'a>> {
        let code = Code::new(self.0, block.length(), count)?;
        let mut encoder = Encoder::with_rows(code, SEGMENT, count)?;
        Ok(Box::new(move || {
            encoder.reset();
            encoder.add_run(0, &block.source);
            let mut made = Vec::with_capacity(count * SEGMENT);
            (0..count).for_each(|row| made.extend_from_slice(encoder.parity(row)));
            made
        }))
    }

    fn decoder<'a>(
        &self,
        block: &'a Block,
        parity: &'a [u8],
        _: &'a mut [u8],
    ) -> Result<Decode<'a>> {
        let (length, count) = (block.length(), parity.len() / SEGMENT);
        let code = Code::for_recovery(self.0, length, count)?;
        let mut decoder = Decoder::with_room(code, SEGMENT, length, count)?;
        Ok(Box::new(move || {
            decoder.start(length as u16);
            for (place, segment) in block.arrived() {
                decoder.add(place as u16, segment);
            }
            for (esi, segment) in (length as u16..).zip(parity.chunks(SEGMENT)) {
                decoder.add(esi, segment);
            }
            decoder.recover().is_ok()
        }))
    }
}

/// The code of FEC id 130, with as many parity positions as a sender has that knows the loss.
struct Leopard;

fn positions(length: usize, lost: usize) -> u16 {
    Long::positions(length as u16, Some(lost as f64 / length as f64))
}

fn leopard(block: &Block) -> Result<Long> {
    let positions = positions(block.length(), block.missing.len());
    Ok(Long::new(block.length() as u16, positions, SEGMENT)?)
}

impl Measurable for Leopard {
    fn encoder<'a>(&self, block: &'a Block, count: usize) -> Result<Encode<'a>> {
        let code = leopard(block)?;
        let mut work = LongWork::default();
        Ok(Box::new(move || {
            let mut made = vec![0; count * SEGMENT];
            let mut source = ReadColumns::new(&block.source, SEGMENT);
            let encoded = code.encode(&mut work, &mut source, 0..count as u16, &mut made);
            if encoded.is_ok() { made } else { Vec::new() }
        }))
    }

    fn decoder<'a>(
        &self,
        block: &'a Block,
        parity: &'a [u8],
        file: &'a mut [u8],
    ) -> Result<Decode<'a>> {
        let code = leopard(block)?;
        let mut work = LongWork::default();
        let missing: Vec<u16> = block.missing.iter().map(|place| *place as u16).collect();
        let rows: Vec<(u16, u16)> = (0..).zip(missing.iter().copied()).collect();
        Ok(Box::new(move || {
            for (segment, place) in parity.chunks(SEGMENT).zip(&missing) {
                let at = usize::from(*place) * SEGMENT;
                file[at..at + SEGMENT].copy_from_slice(segment);
            }
            let mut columns = SliceColumns::new(file, SEGMENT);
            code.recover(&mut work, &mut columns, &missing, &rows).is_ok()
        }))
    }
}

/// The code of FEC id 6.
struct RaptorQ;

fn transmission(block: &Block) -> ObjectTransmissionInformation {
    ObjectTransmissionInformation::new(block.source.len() as u64, SEGMENT as u16, 1, 1, 4)
}

impl Measurable for RaptorQ {
    fn encoder<'a>(&self, block: &'a Block, count: usize) -> Result<Encode<'a>> {
        let plan = SourceBlockEncodingPlan::generate(block.length() as u16);
        Ok(Box::new(move || {
            let information = transmission(block);
            let encoder =
                SourceBlockEncoder::with_encoding_plan(0, &information, &block.source, &plan);
            let packets = encoder.repair_packets(0, count as u32);
            let mut made = Vec::with_capacity(count * SEGMENT);
            packets.iter().for_each(|packet| made.extend_from_slice(packet.data()));
            made
        }))
    }

    fn decoder<'a>(
        &self,
        block: &'a Block,
        parity: &'a [u8],
        _: &'a mut [u8],
    ) -> Result<Decode<'a>> {
        let packet =
            |esi, bytes: &[u8]| EncodingPacket::new(PayloadId::new(0, esi), bytes.to_vec());
        Ok(Box::new(move || {
            let information = transmission(block);
            let mut decoder =
                SourceBlockDecoder::new(0, &information, information.transfer_length());
            let source = block.arrived().map(|(place, bytes)| packet(place as u32, bytes));
            let parity = (block.length() as u32..).zip(parity.chunks(SEGMENT));
            let parity = parity.map(|(esi, bytes)| packet(esi, bytes));
            decoder.decode(source.chain(parity)).is_some()
        }))
    }
}
