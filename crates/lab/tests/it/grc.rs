//! Printed captures of the NASA GRC study (2011), compared with simulated runs: datagram lengths,
//! the sequence of PDUs, and the gaps between packets at the receiver.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use slowlight_lab as lab;

use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A datagram in a capture.
#[derive(Debug)]
struct Observations {
    at: f64,
    len: usize,
    kind: String,
    from_receiver: bool,
}

fn scenario(name: &str) -> Scenario {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../scenarios", name].iter().collect();
    Scenario::read(&path).unwrap().resolved().unwrap()
}

fn capture(scenario: &Scenario) -> (Run, Vec<u8>, Vec<Observations>) {
    let sink = Shared::default();
    let recorders = Recorders { pcap: Some(Box::new(sink.clone())), trace: None };
    let run = run::run(scenario, &run::contents(scenario).unwrap(), recorders).unwrap();
    assert!(run.succeeded(), "{run:?}");
    let bytes = sink.0.lock().unwrap().clone();
    let mut datagrams = Vec::new();
    for record in pcap::Reader::new(Cursor::new(bytes.clone())).unwrap() {
        let record = record.unwrap();
        let datagram = record.udp().unwrap();
        assert_eq!(datagram.checksum, pcap::Checksum::Right);
        datagrams.push(Observations {
            at: record.at.as_secs_f64(),
            len: datagram.data.len(),
            kind: transport::dissect::describe(
                &[&transport::dissect::cfdp::DISSECTOR],
                datagram.data,
            )
            .0,
            from_receiver: datagram.udp.source == 2502,
        });
    }
    (run, bytes, datagrams)
}

fn near(what: &str, measured: f64, printed: f64) {
    let error = (measured / printed - 1.0).abs();
    assert!(error <= 0.01, "{what}: {measured} s, printed {printed} s, {:.2} % off", 100.0 * error);
}

fn gap(datagrams: &[Observations], index: usize) -> f64 {
    datagrams[index + 1].at - datagrams[index].at
}

#[test]
fn ten_kilobytes_at_one_megabit() {
    let (run, bytes, datagrams) = capture(&scenario("grc-10kb.toml"));
    let lengths: Vec<_> = datagrams.iter().map(|s| (s.kind.as_str(), s.len)).collect();
    let mut expected = vec![("Metadata", 42)];
    expected.extend([("File Data", 1011); 10]);
    expected.extend([("File Data", 44), ("EOF", 20), ("ACK(EOF)", 13), ("Finished", 12)]);
    expected.push(("ACK(Finished)", 13));
    assert_eq!(lengths, expected);
    assert!(
        datagrams.iter().all(|s| s.from_receiver == (s.kind == "ACK(EOF)" || s.kind == "Finished"))
    );
    near("Metadata to data", gap(&datagrams, 0), 0.749e-3);
    for index in 1..=10 {
        near("data to data", gap(&datagrams, index), 8.284e-3);
    }
    near("short data to EOF", gap(&datagrams, 11), 0.732e-3);
    near("Finished to its ACK", gap(&datagrams, 14), 2.5008);
    near("wire time", run.transfers[0].wire_s.unwrap(), 2.586);
    tshark_agrees(&bytes, &datagrams);
}

#[test]
fn ten_megabytes_at_ten_megabits_with_three_losses() {
    let (run, bytes, datagrams) = capture(&scenario("grc-10mb.toml"));
    let first = |kind: &str| datagrams.iter().position(|s| s.kind == kind).unwrap();
    let count = |kind: &str| datagrams.iter().filter(|s| s.kind == kind).count();
    // 10,031 data PDUs: three were lost and retransmitted.
    assert_eq!(count("File Data"), 10_031);
    assert_eq!(run.transfers[0].traffic.packets_str, Some(10_031 + 3 + 3));
    let (eof, nak) = (first("EOF"), first("NAK"));
    assert_eq!(datagrams[eof - 1].len, 104, "the last of 10 MB: 14 + 90");
    assert_eq!((datagrams[nak].len, count("NAK")), (43, 1), "19 + 8 for each of three gaps");
    let before = |index: usize| &datagrams[index - 1];
    for index in 100..200 {
        near("data to data", gap(&datagrams, index), 0.884e-3);
    }
    assert_eq!(before(nak).kind, "ACK(EOF)");
    near("EOF to NAK", datagrams[nak].at - datagrams[eof].at, 0.5e-3);
    let repairs = &datagrams[nak + 1..nak + 4];
    assert!(repairs.iter().all(|s| s.kind == "File Data" && s.len == 1011), "{repairs:?}");
    near("EOF to the first repair", repairs[0].at - datagrams[eof].at, 2.504);
    let finished = first("Finished");
    near("last repair to Finished", datagrams[finished].at - repairs[2].at, 63.5e-3);
    near("Finished to its ACK", gap(&datagrams, finished), 2.5006);
    tshark_agrees(&bytes, &datagrams);
}

#[test]
fn naks_of_twenty_gaps_are_few_at_one_percent() {
    let mut world = scenario("grc-10mb.toml");
    for link in &mut world.links {
        link.delay = Some("25 ms".parse().unwrap());
        link.errors.drop = None;
        link.errors.per = Some("1e-2".parse().unwrap());
    }
    let (_, _, datagrams) = capture(&Scenario { seed: 7, ..world.clone() });
    let longest = datagrams.iter().filter(|s| s.kind == "NAK").map(|s| s.len).max();
    assert_eq!(longest, Some(19 + 8 * 20));
    let mut runs = BTreeMap::<u64, u32>::new();
    for seed in 1..=30 {
        let (run, _, datagrams) = capture(&Scenario { seed, ..world.clone() });
        let rts = run.transfers[0].traffic.packets_rts.unwrap();
        *runs.entry(rts).or_default() += 1;
        // A lost packet of the receiver is retransmitted, and lost Metadata is requested at once.
        let lost: u64 = run.links[1].lost.values().sum();
        let metadata = datagrams.iter().position(|s| s.kind == "Metadata").unwrap();
        let early = datagrams[..metadata].iter().filter(|s| s.from_receiver).count() as u64;
        assert!(rts - lost - early <= 9, "seed {seed}: {rts} packets, {lost} lost, {early} early");
    }
    println!("packets from the receiver, and runs: {runs:?}");
    let usual: u32 = runs.range(7..=9).map(|(_, runs)| runs).sum();
    assert!(usual >= 27, "{runs:?}; the study saw 7 to 9");
}

/// Compares each packet with tshark's decoding, if tshark is installed.
fn tshark_agrees(pcapng: &[u8], datagrams: &[Observations]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pcapng).unwrap();
    let Some(lines) = tshark(file.path()) else {
        assert!(std::env::var_os("CI").is_none(), "CI needs tshark");
        return;
    };
    assert_eq!(lines.len(), datagrams.len());
    for (line, datagrams) in lines.iter().zip(datagrams) {
        let (len, info) = line.split_once('\t').unwrap();
        assert_eq!(len.parse(), Ok(datagrams.len + 8), "UDP length");
        assert!(!info.contains("Malformed"), "{line}");
        // tshark shows an ACK without the acknowledged PDU.
        let word = datagrams.kind.split('(').next().unwrap_or_default();
        assert!(info.to_lowercase().contains(&word.to_lowercase()), "{line} for {datagrams:?}");
    }
}

fn tshark(path: &Path) -> Option<Vec<String>> {
    let output = Command::new("tshark")
        .args(["-d", "udp.port==2501,cfdp", "-d", "udp.port==2502,cfdp"])
        .args(["-T", "fields", "-e", "udp.length", "-e", "_ws.col.Info", "-r"])
        .arg(path)
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}
