//! `decode` of captures as other programs write them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Classic capture of Ethernet: header, then each packet with its own.
const ETHERNET: &str = "d4c3b2a1020004000000000000000000ffff000001000000";
/// Capture of packets that begin with their IP header.
const RAW: &str = "d4c3b2a1020004000000000000000000ffff000065000000";

/// Two PDUs in one packet, as segmentation offload leaves them.
const JOINED: &str = "020000000002020000000001 0800
    450000 3a 0001 0000 40 11 f6ae c0000201 c0000202 9c40 09c4 0026 0000
    300008 00 010802 00000000 61626364 300008 00 010802 00000004 65666768";
/// A Metadata PDU with a VLAN tag.
const TAGGED: &str = "020000000002020000000001 8100 0064 0800
    450000 39 0001 0000 40 11 f6af c0000201 c0000202 9c40 09c4 0025 0000
    20001600010802070000000004077372632e62696e07676f742e62696e";
/// Two fragments of the packet in [`TAGGED`].
const FRAGMENTS: [&str; 2] = [
    "450000 24 0001 2000 40 11 d6c4 c0000201 c0000202 9c40 09c4 0025 0000 2000160001080207",
    "450000 29 0001 0002 40 11 f6bd c0000201 c0000202
     0000000004077372632e62696e07676f742e62696e",
];
/// ARP, padded.
const ARP: &str = "020000000002020000000001 0806 0001080006040001
    000000000000000000000000000000000000000000000000000000000000000000000000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Exit code, output and log of `decode` of these packets.
fn decode(header: &str, packets: &[&str]) -> (Option<i32>, String, String) {
    let mut capture = bytes(header);
    for packet in packets {
        let packet = bytes(packet);
        let len = (packet.len() as u32).to_le_bytes();
        capture.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
        capture.extend_from_slice(&[len, len].concat());
        capture.extend_from_slice(&packet);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    let output = command.arg("decode").arg(file.path()).env_remove("RUST_LOG").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn joined_datagrams_are_shown_one_by_one() {
    let (code, lines, log) = decode(ETHERNET, &[JOINED, JOINED]);
    assert_eq!((code, lines.lines().count()), (Some(0), 4), "{lines}{log}");
    let ports = "192.0.2.1:40000 > 192.0.2.2:2500";
    assert!(lines.lines().all(|line| line.contains(ports)), "{lines}");
    assert!(log.contains("2 packets hold several PDUs, 4 in all: segmentation offload"), "{log}");
}

#[test]
fn tagged_and_fragmented_datagrams_are_shown() {
    let (code, lines, log) = decode(ETHERNET, &[TAGGED]);
    assert_eq!((code, lines.lines().count(), log.as_str()), (Some(0), 1, ""), "{lines}");
    assert!(lines.contains("Metadata") && lines.contains("src.bin"), "{lines}");
    let (code, fragments, log) = decode(RAW, &FRAGMENTS);
    assert_eq!((code, log.as_str()), (Some(0), ""), "{fragments}");
    assert_eq!(fragments.trim_end(), format!("{} (in 2 fragments)", lines.trim_end()));
}

#[test]
fn what_is_skipped_is_counted_by_its_reason() {
    let (code, lines, log) = decode(ETHERNET, &[ARP, TAGGED, ARP]);
    assert_eq!((code, lines.lines().count()), (Some(0), 1), "{lines}");
    assert!(log.contains("2 of 3 packets skipped: ARP") && log.lines().count() == 1, "{log}");
    let (code, lines, log) = decode(RAW, &[FRAGMENTS[0], FRAGMENTS[0]]);
    assert_eq!((code, lines.as_str()), (Some(0), ""));
    assert!(log.contains("2 of 2 packets skipped: IP fragments"), "{log}");
}

#[test]
fn bytes_behind_a_pdu_are_counted() {
    // The datagram is four bytes longer, of any value.
    let longer = TAGGED.replace(" 39 ", " 3d ").replace("f6af", "f6ab").replace("0025", "0029");
    let (code, lines, log) = decode(ETHERNET, &[&(longer.clone() + "01020304"), TAGGED]);
    assert_eq!((code, lines.lines().count()), (Some(0), 2), "{lines}{log}");
    assert!(lines.lines().next().unwrap().ends_with("(4 bytes follow)"), "{lines}");
    assert!(log.contains("1 datagrams have bytes behind their last PDU"), "{log}");
    // Padding of the frame is not of the datagram.
    let (code, padded, log) = decode(ETHERNET, &[&(TAGGED.to_owned() + "00000000")]);
    assert_eq!((code, padded.contains("follow"), log.as_str()), (Some(0), false, ""));
}

#[test]
fn a_joined_packet_that_cannot_be_separated_names_the_remedy() {
    // 1,500 bytes of no protocol: 0x5f8 with the headers.
    let packet = format!(
        "4500 05f8 0001 0000 40 11 f0f0 c0000201 c0000202 9c40 09c4 05e4 0000 {}",
        "ff".repeat(1500)
    );
    let (code, lines, log) = decode(RAW, &[&packet]);
    assert_eq!((code, lines.lines().count()), (Some(1), 1), "{lines}{log}");
    assert!(log.contains("segmentation offload") && log.contains("ethtool -K"), "{log}");
}
