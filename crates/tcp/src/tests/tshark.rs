//! Conversations as dissected by tshark: nothing malformed, every checksum good, and no more
//! anomalies than the losses explain.
#![expect(clippy::disallowed_methods, reason = "the test talks to another program")]
#![expect(clippy::disallowed_types, reason = "the test talks to another program")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::world::{User, World, content, finished, lose};
use crate::test_world::Sent;
use crate::{Backlog, Config, Options, Profile};

/// Dissects the packets, one line each: malformed, checksum of TCP and of IP, analysis notes,
/// stream and length.
fn ask(world: &World) -> Option<Vec<Vec<String>>> {
    let mut pcap = Vec::new();
    // Nanoseconds, raw IP packets.
    for word in [0xa1b2_3c4d, 0x0002_0004, 0, 0, 65_535, 101_u32] {
        pcap.extend(word.to_be_bytes());
    }
    for Sent { at, bytes, .. } in &world.log {
        let (seconds, nanos) = (at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000);
        for word in [seconds as u32, nanos as u32, bytes.len() as u32, bytes.len() as u32] {
            pcap.extend(word.to_be_bytes());
        }
        pcap.extend(bytes);
    }
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    command.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for field in [
        "_ws.malformed",
        "tcp.checksum.status",
        "ip.checksum.status",
        "tcp.analysis.flags",
        "tcp.stream",
        "tcp.len",
        "tcp.options.scps.vector",
        "tcp.options.snack.offset",
        "tcp.options.snack.size",
    ] {
        command.args(["-e", field]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI needs tshark: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let writer = std::thread::spawn(move || stdin.write_all(&pcap));
    let output = child.wait_with_output().expect("tshark ends");
    writer.join().expect("the writer does not panic").expect("tshark reads it all");
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

/// Number of packets with analysis notes; fails for invalid packets.
fn odd(world: &World) -> Option<usize> {
    let lines = ask(world)?;
    assert_eq!(lines.len(), world.log.len(), "one line a packet");
    let v6 = world.log[0].bytes[0] >> 4 == 6;
    for (line, text) in lines.iter().zip(world.transcript()) {
        let ip = if v6 { "" } else { "1" };
        assert_eq!(line[..3], ["", "1", ip], "{text}");
        assert_eq!(line[4], "0", "one conversation");
    }
    Some(lines.iter().filter(|line| !line[3].is_empty()).count())
}

fn converse(options: &Options, v6: bool, lost: &'static [usize]) -> World {
    let mut world = World::new([Config::default(), Config::default()], 1, v6);
    world.lose(lose(lost, &[]));
    world.line().delay = Duration::from_millis(20);
    world.line().rate_bps = Some(20_000_000);
    world.hosts[1].engine.template = User { content: content(50_000), ..User::default() };
    world.listen(options.clone(), Backlog::default());
    world.connect(options.clone(), User { content: content(100_000), ..User::default() });
    world.run();
    finished(&world).unwrap();
    world
}

#[test]
fn tshark_reports_no_anomalies_without_losses() {
    let plain = Options {
        timestamps: false,
        sack: false,
        window_scale: false,
        ecn: true,
        ..Options::default()
    };
    for options in [Options::default(), plain] {
        for v6 in [false, true] {
            if let Some(odd) = odd(&converse(&options, v6, &[])) {
                // The receive window grows fast in the first round trips, which a separate
                // acknowledgment announces: tshark takes it for a duplicate.
                assert!(odd <= 2, "{odd}");
            }
        }
    }
}

#[test]
fn tshark_reports_only_anomalies_caused_by_losses() {
    let world = converse(&Options::default(), false, &[5, 9, 10, 30]);
    let Some(odd) = odd(&world) else { return };
    // Four retransmissions, and the duplicate acknowledgments they took.
    assert!((4..60).contains(&odd), "{odd} of {}", world.log.len());
}

#[test]
fn tshark_decodes_scps_tp_except_snacks() {
    let options = Options { timestamps: true, ..Profile::ScpsVj.options() };
    let world = converse(&options, false, &[5, 9, 10, 30]);
    let Some(lines) = ask(&world) else { return };
    let mut snacks = 0;
    for (line, text) in lines.iter().zip(world.transcript()) {
        assert_eq!(line[1..3], ["1", "1"], "checksums: {text}");
        assert_eq!(line[6].is_empty(), !text.contains("SYN"), "{text}: {line:?}");
        assert!(line[6].is_empty() || line[6] == "0x40", "{text}: {line:?}");
        // It decodes offset and size, and then calls the packet malformed, as always.
        let snack = text.split_once(" snack ").map(|(_, hole)| hole);
        assert_eq!(line[0].is_empty(), snack.is_none(), "{text}: {line:?}");
        let read = snack.map(|_| format!("{}+{}", line[7], line[8]));
        assert_eq!(read.as_deref(), snack);
        snacks += u32::from(snack.is_some());
    }
    assert!(snacks >= 3, "{snacks}");
}
