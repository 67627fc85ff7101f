//! `slowlight decode`.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use wire::cfdp::Pdu;

use crate::Usage;

/// Options of `decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pcapng or pcap file, or the hexadecimal digits of one PDU
    #[arg(value_name = "FILE|HEX", required = true, num_args = 1..)]
    what: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let whole = match args.what.as_slice() {
        [file] if Path::new(file).exists() && !Path::new(file).is_dir() => {
            capture(Path::new(file), &mut out)?
        }
        digits => one(&digits.join(" "), &mut out)?,
    };
    out.flush()?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints every datagram of a capture; whether all of them were PDUs.
fn capture(path: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    let reader = sim::pcap::read(path).with_context(|| format!("{}", path.display()))?;
    let mut whole = true;
    let (mut packets, mut datagrams) = (0_u64, 0_u64);
    for record in reader {
        packets += 1;
        let record = record.with_context(|| format!("{}: packet {packets}", path.display()))?;
        let Some(datagram) = record.udp() else { continue };
        datagrams += 1;
        let (from, to) = (datagram.ip.source, datagram.ip.destination);
        let (from_port, to_port) = (datagram.udp.source, datagram.udp.destination);
        write!(out, "{} {from}:{from_port} > {to}:{to_port} ", record.at)?;
        match Pdu::decode(datagram.data) {
            Ok(pdu) => write!(out, "{pdu}")?,
            Err(error) => {
                whole = false;
                write!(out, "{} bytes, not CFDP: {error}", datagram.data.len())?;
            }
        }
        if !datagram.checksum_ok {
            write!(out, " (wrong UDP checksum)")?;
        }
        match &record.comment {
            Some(comment) => writeln!(out, " ({comment})")?,
            None => writeln!(out)?,
        }
    }
    if datagrams < packets {
        tracing::warn!("{} of {packets} packets are not UDP over IPv4", packets - datagrams);
    }
    Ok(whole)
}

fn one(digits: &str, out: &mut impl Write) -> anyhow::Result<bool> {
    let bytes = hex(digits)?;
    let pdu = Pdu::decode(&bytes).context("not a CFDP PDU")?;
    writeln!(out, "{pdu}")?;
    Ok(true)
}

/// The bytes of hexadecimal digits, between which spaces, colons and dashes may stand.
fn hex(text: &str) -> Result<Vec<u8>, Usage> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let skipped = text.len() - digits.len();
    let mut values = Vec::new();
    for (index, c) in digits.char_indices() {
        match c.to_digit(16) {
            Some(value) => values.push(value as u8),
            None if c.is_whitespace() || matches!(c, ':' | '-') => {}
            None => {
                return Err(Usage(format!(
                    "{text:?} is neither a file nor hexadecimal: {c:?} at character {}",
                    skipped + index + 1
                )));
            }
        }
    }
    if values.is_empty() || !values.len().is_multiple_of(2) {
        return Err(Usage(format!(
            "{} hexadecimal digits are not whole bytes; give two a byte",
            values.len()
        )));
    }
    Ok(values.chunks(2).map(|pair| (pair[0] << 4) | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_says_where_it_is_wrong() {
        assert_eq!(hex("0x28 00:03-11").unwrap(), [0x28, 0, 3, 0x11]);
        assert!(hex("28 0g").unwrap_err().to_string().contains("'g' at character 5"));
        assert!(hex("280").unwrap_err().to_string().contains("3 hexadecimal digits"));
        assert!(hex("").is_err());
    }

    #[test]
    fn one_line_a_pdu() {
        let mut out = Vec::new();
        let ack = "28 00 03 11 0065 0001 0066 06 40 01";
        assert!(one(ack, &mut out).unwrap());
        let line = String::from_utf8(out).unwrap();
        assert!(
            line.contains("ACK") && line.ends_with('\n') && line.lines().count() == 1,
            "{line}"
        );
        assert!(one("28 00 04 11 0065 0001 0066 06 40 01", &mut Vec::new()).is_err());
    }
}
