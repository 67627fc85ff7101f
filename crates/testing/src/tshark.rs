//! Runs tshark over packets.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Output of tshark.
pub struct TsharkOutput {
    /// One line per packet: fields in columns separated by `|`.
    pub lines: Vec<String>,
    /// Standard error.
    pub stderr: String,
}

/// Returns one line of fields per packet, `_ws.malformed` first; `None`, and a printed reason,
/// without tshark.
pub fn tshark_lines<'a>(
    port: u16,
    dissector: &str,
    fields: &[&str],
    datagrams: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<String>> {
    let decode_as = format!("udp.port=={port},{dissector}");
    let options = ["-d", &decode_as, "-E", "occurrence=f", "-e", "_ws.malformed"];
    let whole = datagrams.map(|datagram| (datagram, datagram.len()));
    let shown = run_tshark(&options, fields, pcap(port, whole))?;
    Some(shown.lines)
}

/// Returns tshark's output for these packets; `None`, and a printed reason, without tshark.
pub fn run_tshark(options: &[&str], fields: &[&str], packets: Vec<u8>) -> Option<TsharkOutput> {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields", "-E", "separator=|"]).args(options);
    for field in fields {
        command.args(["-e", field]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI needs tshark: {error}");
            crate::skipped!("tshark cannot be run: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let writer = std::thread::spawn(move || stdin.write_all(&packets));
    let output = child.wait_with_output().expect("tshark ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tshark: {}\n{stderr}", output.status);
    writer.join().expect("the writer does not panic").expect("tshark reads all packets");
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    Some(TsharkOutput { lines: text.lines().map(str::to_owned).collect(), stderr })
}

/// Returns a classic pcap of raw IPv4 packets (link type 101), one datagram in each, truncated to
/// the given captured length.
pub fn pcap<'a>(port: u16, datagrams: impl Iterator<Item = (&'a [u8], usize)>) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 101_u32] {
        out.extend(word.to_be_bytes());
    }
    for (datagram, captured) in datagrams {
        let udp_len = 8 + datagram.len() as u16;
        let ip_len = 20 + udp_len;
        for word in [0, 0, 28 + captured as u32, u32::from(ip_len)] {
            out.extend(word.to_be_bytes());
        }
        out.extend([0x45, 0]);
        out.extend(ip_len.to_be_bytes());
        // No fragments, TTL 64, UDP, checksum left empty (tshark does not verify it).
        out.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        out.extend([127, 0, 0, 1, 127, 0, 0, 2]);
        for half in [port, port, udp_len, 0] {
            out.extend(half.to_be_bytes());
        }
        out.extend(&datagram[..captured]);
    }
    out
}

/// Returns a classic pcap of raw IP packets (link type 101).
pub fn raw_pcap<'a>(packets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, 101_u32] {
        out.extend(word.to_be_bytes());
    }
    for packet in packets {
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            out.extend(word.to_be_bytes());
        }
        out.extend(packet);
    }
    out
}

/// Parses a number as printed by tshark.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
