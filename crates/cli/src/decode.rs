//! `slowlight decode`.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use lab::protocol::{Family, Protocol};
use sim::pcap::Record;
use wire::DecodeError;
use wire::cfdp::Pdu;
use wire::ltp::Segment;
use wire::saratoga;

use crate::Usage;

/// Options of `decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A pcapng or pcap file, or the hexadecimal digits of one PDU
    #[arg(value_name = "FILE|HEX", required = true, num_args = 1..)]
    what: Vec<String>,

    /// Protocol: cfdp, ltp or saratoga [default: whichever can read the most of it]
    #[arg(long, value_name = "NAME")]
    protocol: Option<Protocol>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let asked = args.protocol.as_ref().map(|protocol| protocol.kind.family());
    let mut out = BufWriter::new(io::stdout().lock());
    let whole = match args.what.as_slice() {
        [file] if Path::new(file).exists() && !Path::new(file).is_dir() => {
            capture(Path::new(file), asked, &mut out)?
        }
        digits => one(&digits.join(" "), asked, &mut out)?,
    };
    out.flush()?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The protocols whose PDUs can be told.
const FAMILIES: [Family; 3] = [Family::Cfdp, Family::Ltp, Family::Saratoga];

/// One line about a datagram, or what is wrong with it.
fn line(family: Family, datagram: &[u8]) -> Result<String, DecodeError> {
    match family {
        Family::Cfdp => Pdu::decode(datagram).map(|pdu| pdu.to_string()),
        Family::Ltp => Segment::decode(datagram).map(|segment| segment.to_string()),
        Family::Saratoga => saratoga::Packet::decode(datagram).map(|packet| packet.to_string()),
    }
}

const fn name(family: Family) -> &'static str {
    match family {
        Family::Cfdp => "CFDP",
        Family::Ltp => "LTP",
        Family::Saratoga => "Saratoga",
    }
}

/// The datagrams of a capture, as far as it can be read.
fn datagrams(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Record>>> {
    let place = path.display().to_string();
    let reader = sim::pcap::read(path).with_context(|| place.clone())?;
    Ok(reader.enumerate().map(move |(index, record)| {
        record.with_context(|| format!("{place}: packet {}", index + 1))
    }))
}

/// The protocol that most of a capture is.
fn spoken(path: &Path) -> anyhow::Result<Family> {
    let mut counts = FAMILIES.map(|_| 0_u64);
    for record in datagrams(path)?.map_while(Result::ok) {
        let Some(datagram) = record.udp() else { continue };
        for (count, family) in counts.iter_mut().zip(FAMILIES) {
            *count += u64::from(line(family, datagram.data).is_ok());
        }
    }
    // Of equals the first: `max_by_key` would take the last.
    let best = FAMILIES.into_iter().zip(counts).rev().max_by_key(|(_, count)| *count);
    Ok(best.map_or(Family::Cfdp, |(family, _)| family))
}

/// Prints every datagram of a capture; whether all of them were PDUs.
fn capture(path: &Path, asked: Option<Family>, out: &mut impl Write) -> anyhow::Result<bool> {
    let is_file = path.is_file();
    let family = match asked {
        Some(family) => family,
        None if is_file => spoken(path)?,
        // What comes from a pipe can be read once.
        None => Family::Cfdp,
    };
    let mut whole = true;
    let (mut packets, mut read) = (0_u64, 0_u64);
    for record in datagrams(path)? {
        packets += 1;
        let record = record?;
        let Some(datagram) = record.udp() else { continue };
        read += 1;
        let (from, to) = (datagram.ip.source, datagram.ip.destination);
        let (from_port, to_port) = (datagram.udp.source, datagram.udp.destination);
        write!(out, "{} {from}:{from_port} > {to}:{to_port} ", record.at)?;
        match line(family, datagram.data) {
            Ok(text) => write!(out, "{text}")?,
            Err(error) => {
                whole = false;
                let (len, name) = (datagram.data.len(), name(family));
                write!(out, "{len} bytes, not {name}: {error}")?;
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
    if read < packets {
        tracing::warn!("{} of {packets} packets are not UDP over IPv4", packets - read);
    }
    Ok(whole)
}

fn one(digits: &str, asked: Option<Family>, out: &mut impl Write) -> anyhow::Result<bool> {
    let bytes = hex(digits)?;
    let tried: Vec<_> = asked.map_or_else(|| FAMILIES.to_vec(), |family| vec![family]);
    if let Some(text) = tried.iter().find_map(|family| line(*family, &bytes).ok()) {
        writeln!(out, "{text}")?;
        return Ok(true);
    }
    let reasons = tried.iter().filter_map(|family| {
        let error = line(*family, &bytes).err()?;
        Some(format!("not {}: {error}", name(*family)))
    });
    anyhow::bail!("{}", reasons.collect::<Vec<_>>().join("; "))
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
        assert!(one(ack, None, &mut out).unwrap());
        let line = String::from_utf8(out).unwrap();
        assert!(
            line.contains("ACK") && line.ends_with('\n') && line.lines().count() == 1,
            "{line}"
        );
        let wrong = one("28 00 04 11 0065 0001 0066 06 40 01", None, &mut Vec::new()).unwrap_err();
        assert!(wrong.to_string().contains("not CFDP") && wrong.to_string().contains("not LTP"));
        let mut out = Vec::new();
        assert!(one("09 65 82 2c 00 2a", None, &mut out).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), "101_300 report 42 acknowledged\n");
    }
}
