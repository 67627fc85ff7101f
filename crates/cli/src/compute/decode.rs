//! `slowlight decode`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use lab::decode::{self, How, Language, Pdus};
use pcap::{Checksum, Datagrams, Found, Reader, Record, Skipped};
use transport::dissect::ETHERNET_MAX;
use wire::DecodeError;

use crate::Usage;
use crate::exit::Exit;

/// Options of `decode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Captures (pcapng, pcap), text files with hexadecimal digits, - for standard input, or the
    /// digits of one PDU
    ///
    /// In a text file, an empty line separates PDUs, and # starts a comment. Spaces, colons and
    /// dashes between digits are skipped. Of captures, UDP over IPv4 and IPv6 is decoded, with VLAN
    /// tags and in fragments; all else is skipped and counted.
    #[arg(value_name = "FILE|HEX", required = true, num_args = 1..)]
    what: Vec<String>,

    /// Protocol: cfdp, ltp, saratoga or norm [default: the one that decodes most PDUs]
    #[arg(long, value_name = "NAME")]
    protocol: Option<Language>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let given = args.protocol;
    let mut out = BufWriter::new(io::stdout().lock());
    let is_file = |what: &String| what == STDIN || Path::new(what).exists();
    let whole = if args.what.iter().any(is_file) {
        files(&args.what, given, &mut out)?
    } else {
        let bytes = hex(&args.what.join(" "))?;
        writeln!(out, "{}", lines(&bytes, given)?)?;
        true
    };
    out.flush()?;
    Ok(Exit::if_succeeded(whole).into())
}

/// Name of standard input.
const STDIN: &str = "-";

/// Decodes files; returns whether everything was a PDU.
fn files(names: &[String], given: Option<Language>, out: &mut impl Write) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    let mut whole = true;
    for name in names {
        if names.len() > 1 {
            writeln!(out, "{name}:")?;
        }
        whole &= file(name, given, &mut tally, out)?;
    }
    tally.report();
    Ok(whole)
}

/// Counts of captured packets.
#[derive(Default)]
struct Tally {
    packets: u64,
    /// Packets without a datagram.
    skipped: BTreeMap<Skipped, u64>,
    /// Datagrams with a wrong UDP checksum.
    wrong: u64,
    /// Packets with several PDUs, and these.
    joined: (u64, u64),
    /// Datagrams with bytes behind their PDUs.
    padded: u64,
    /// Datagrams that cannot be decoded and are longer than a packet of Ethernet.
    long: u64,
}

impl Tally {
    fn skip(&mut self, reason: Skipped) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Counts a datagram that completes its fragments, which were skipped so far.
    fn complete(&mut self, fragments: usize) {
        if let Some(waiting) = self.skipped.get_mut(&Skipped::Fragment) {
            *waiting = waiting.saturating_sub(fragments as u64 - 1);
        }
    }

    fn count(&mut self, pdus: &Pdus<'_>) {
        if pdus.lines.len() > 1 {
            self.joined.0 += 1;
            self.joined.1 += pdus.lines.len() as u64;
        }
        self.padded += u64::from(!pdus.surplus.is_empty());
    }

    fn report(&self) {
        for (reason, count) in self.skipped.iter().filter(|(_, count)| **count > 0) {
            tracing::warn!("{count} of {} packets skipped: {reason}", self.packets);
        }
        let (packets, pdus) = self.joined;
        if packets > 0 {
            tracing::warn!(
                "{packets} packets hold several PDUs, {pdus} in all: segmentation offload joined \
                 datagrams at the host of the capture"
            );
        }
        if self.long > 0 {
            tracing::warn!(
                "{} datagrams that cannot be decoded are longer than a packet of Ethernet; \
                 segmentation offload may have joined several. Turn it off before the capture: \
                 ethtool -K INTERFACE tx-udp-segmentation off gro off",
                self.long
            );
        }
        if self.padded > 0 {
            tracing::warn!("{} datagrams have bytes behind their last PDU", self.padded);
        }
        if self.wrong > 0 {
            tracing::warn!(
                "{} UDP checksums are wrong: damaged on the way, or captured before a network card wrote them",
                self.wrong
            );
        }
    }
}

/// Decodes one file; returns whether everything was a PDU.
fn file(
    name: &str,
    given: Option<Language>,
    tally: &mut Tally,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let path = Path::new(name);
    let mut source: Box<dyn Read> = match name {
        STDIN => Box::new(io::stdin().lock()),
        _ if path.is_dir() => {
            return Err(Usage(format!("{name} is a directory; name the captures in it")).into());
        }
        _ => Box::new(File::open(path).with_context(|| format!("cannot read {name}"))?),
    };
    let mut start = Vec::new();
    source.by_ref().take(4).read_to_end(&mut start).with_context(|| name.to_owned())?;
    let is_text = start.is_ascii() && start != PCAPNG;
    let source = BufReader::new(io::Cursor::new(start).chain(source));
    if is_text {
        return digits(name, source, given, out);
    }
    let language = match given {
        Some(language) => Some(language),
        // A pipe can be read once.
        None if !path.is_file() => None,
        None => Some(spoken(path)?),
    };
    let how = if given.is_some() { How::Requested } else { How::Guessed };
    capture(&mut Capture { name, language, how, tally }, source, out)
}

/// First bytes of a pcapng file, the only capture format that begins with ASCII.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Maximum length of a PDU in hexadecimal digits with the separators between them. PDUs in
/// datagrams have up to 64 KiB.
const DIGITS_MAX: usize = 1 << 20;

/// Prints the PDUs of a text of hexadecimal digits.
fn digits(
    name: &str,
    mut source: impl BufRead,
    given: Option<Language>,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let (mut whole, mut is_empty) = (true, true);
    while let Some(pdu) = next_pdu(&mut source).with_context(|| name.to_owned())? {
        is_empty = false;
        // An error of the file, not of the command line.
        let wrong = |error| anyhow::anyhow!("{name}: {error}");
        let values = nibbles(&pdu).map_err(wrong)?;
        if pdu.len() > DIGITS_MAX {
            anyhow::bail!("{name}: a PDU is too long; an empty line separates PDUs");
        }
        let bytes = pairs(&values).map_err(wrong)?;
        match lines(&bytes, given) {
            Ok(text) => writeln!(out, "{text}")?,
            Err(error) => {
                whole = false;
                writeln!(out, "{} bytes, {error}", bytes.len())?;
            }
        }
    }
    if is_empty {
        anyhow::bail!("{name} holds neither a capture nor hexadecimal digits");
    }
    Ok(whole)
}

/// Lines of the next PDU of a text, or the beginning of one that is longer than [`DIGITS_MAX`];
/// `None` at the end.
fn next_pdu(source: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut pdu = String::new();
    while pdu.len() <= DIGITS_MAX {
        let mut line = Vec::new();
        if source.by_ref().take(DIGITS_MAX as u64 + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line);
        match line.split('#').next().unwrap_or_default().trim() {
            "" if pdu.is_empty() => {}
            "" => break,
            digits if pdu.is_empty() => pdu.push_str(digits),
            digits => pdu.extend([" ", digits]),
        }
    }
    Ok(Some(pdu).filter(|pdu| !pdu.is_empty()))
}

/// Packets of a capture, as far as it can be read.
fn packets<R: Read>(
    name: &str,
    source: R,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Record>> + use<R>> {
    let place = name.to_owned();
    let reader = Reader::new(source).with_context(|| place.clone())?;
    Ok(reader.enumerate().map(move |(index, record)| {
        record.with_context(|| format!("{place}: packet {}", index + 1))
    }))
}

/// Protocol of most packets of a capture.
fn spoken(path: &Path) -> anyhow::Result<Language> {
    let name = path.display().to_string();
    let source = File::open(path).with_context(|| name.clone())?;
    let mut votes = decode::Votes::default();
    let mut datagrams = Datagrams::default();
    for record in packets(&name, BufReader::new(source))?.map_while(Result::ok) {
        if let Ok(datagram) = datagrams.next(&record) {
            votes.record(datagram.data);
        }
    }
    Ok(votes.most_likely())
}

/// A capture that is being printed.
struct Capture<'a> {
    name: &'a str,
    /// Protocol; if `None`, that of the first datagram that can be decoded.
    language: Option<Language>,
    how: How,
    tally: &'a mut Tally,
}

impl Capture<'_> {
    /// Decodes a datagram. Also returns the protocol.
    fn pdus<'a>(&mut self, data: &'a [u8]) -> (Language, Result<Pdus<'a>, DecodeError>) {
        let how = self.how;
        let reads = |language: &Language| language.pdus(data, how).is_ok();
        self.language = self.language.or_else(|| Language::all().find(reads));
        let language = self.language.unwrap_or_default();
        let pdus = language.pdus(data, how);
        match &pdus {
            Ok(pdus) => self.tally.count(pdus),
            Err(_) => self.tally.long += u64::from(data.len() > ETHERNET_MAX),
        }
        (language, pdus)
    }
}

/// Prints every PDU of a capture; returns whether all datagrams were PDUs.
fn capture(
    capture: &mut Capture<'_>,
    source: impl Read,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let mut whole = true;
    let mut datagrams = Datagrams::default();
    for record in packets(capture.name, source)? {
        capture.tally.packets += 1;
        let record = record?;
        let datagram = match datagrams.next(&record) {
            Ok(datagram) => datagram,
            Err(reason) => {
                capture.tally.skip(reason);
                continue;
            }
        };
        capture.tally.complete(datagram.fragments);
        capture.tally.wrong += u64::from(datagram.checksum == Checksum::Wrong);
        let (language, pdus) = capture.pdus(datagram.data);
        let (lines, rest) = match pdus {
            Ok(pdus) => (pdus.lines, decode::surplus(pdus.surplus)),
            Err(error) => (vec![(datagram.data.len(), Err(error))], String::new()),
        };
        let remarks = format!("{rest}{}", remarks(&record, &datagram));
        for (len, line) in lines {
            write!(out, "{} {} > {} ", record.at, datagram.source, datagram.destination)?;
            match line {
                Ok(text) => writeln!(out, "{text}{remarks}")?,
                Err(error) => {
                    whole = false;
                    writeln!(out, "{len} bytes, not {language}: {error}{remarks}")?;
                }
            }
        }
    }
    Ok(whole)
}

/// Remarks on the packet of a PDU, behind its line.
fn remarks(record: &Record, datagram: &Found<'_>) -> String {
    let mut remarks = String::new();
    if datagram.fragments > 1 {
        remarks += &format!(" (in {} fragments)", datagram.fragments);
    }
    if datagram.checksum == Checksum::Wrong {
        remarks += " (wrong UDP checksum)";
    }
    if let Some(comment) = &record.comment {
        remarks += &format!(" ({comment})");
    }
    remarks
}

/// A line for each PDU.
fn lines(bytes: &[u8], given: Option<Language>) -> anyhow::Result<String> {
    decode::lines(bytes, given).map_err(anyhow::Error::msg)
}

/// The bytes of hexadecimal digits, between which spaces, colons and dashes may stand.
fn hex(text: &str) -> Result<Vec<u8>, Usage> {
    pairs(&nibbles(text)?)
}

/// The values of hexadecimal digits.
fn nibbles(text: &str) -> Result<Vec<u8>, Usage> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let skipped = text.len() - digits.len();
    let mut values = Vec::new();
    for (index, c) in digits.char_indices() {
        match c.to_digit(16) {
            Some(value) => values.push(value as u8),
            None if c.is_whitespace() || matches!(c, ':' | '-') => {}
            None => {
                let (text, place) = (wire::excerpt(text), skipped + index + 1);
                return Err(Usage(format!(
                    "{text:?} is neither a capture nor hexadecimal: {c:?} at character {place}"
                )));
            }
        }
    }
    Ok(values)
}

/// The bytes of pairs of digits.
fn pairs(values: &[u8]) -> Result<Vec<u8>, Usage> {
    if values.is_empty() || !values.len().is_multiple_of(2) {
        return Err(Usage(format!(
            "{} hexadecimal digits are not whole bytes; a byte has two digits",
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
    fn a_long_text_is_neither_kept_nor_quoted() {
        let fault = |text: &[u8]| {
            let mut out = Vec::new();
            digits("a", text, None, &mut out).unwrap_err().to_string()
        };
        for text in [vec![0; 5 << 20], vec![b'z'; 5 << 20], b"28 zz ".repeat(1 << 20)] {
            let error = fault(&text);
            assert!(error.contains("is neither a capture nor hexadecimal"), "{error}");
            assert!(error.len() < 1000, "{}", error.len());
        }
        assert!(fault(&vec![b'0'; 5 << 20]).contains("an empty line separates PDUs"));
        // Each PDU is read by itself.
        let mut rest = &b"# none\n\n2800 0311\n0065#a\n\n \n28"[..];
        let pdus: Vec<_> = std::iter::from_fn(|| next_pdu(&mut rest).unwrap()).collect();
        assert_eq!(pdus, ["2800 0311 0065", "28"]);
    }

    #[test]
    fn one_line_a_pdu() {
        let ack = hex("28 00 03 11 0065 0001 0066 06 40 01").unwrap();
        let line = lines(&ack, None).unwrap();
        assert!(line.contains("ACK") && line.lines().count() == 1, "{line}");
        let wrong = hex("28 00 04 11 0065 0001 0066 06 40 01").unwrap();
        let wrong = lines(&wrong, None).unwrap_err().to_string();
        assert!(wrong.contains("not CFDP") && wrong.contains("not LTP"), "{wrong}");
        let ack = hex("09 65 82 2c 00 2a").unwrap();
        assert_eq!(lines(&ack, None).unwrap(), "101_300 report 42 acknowledged");
        let flush = hex("13 05 0069 00000001 1234 5543 01 05 0000 0000020c").unwrap();
        let line = lines(&flush, None).unwrap();
        assert!(line.starts_with("node 1 #105 FLUSH at object 0 symbol 2:12"), "{line}");
        assert_eq!(lines(&flush, "norm".parse().ok()).unwrap(), line);
        assert!(lines(&flush, "ltp".parse().ok()).is_err());
    }

    #[test]
    fn what_any_bytes_could_be_is_not_guessed() {
        // An acknowledgement of CFDP without its end; its first bytes are those of a beacon.
        let cut = hex("20 00 03 11 0065 0001 0066 06").unwrap();
        let reasons = lines(&cut, None).unwrap_err().to_string();
        assert!(reasons.contains("not Saratoga: byte 0: a beacon whose name"), "{reasons}");
        assert!(lines(&cut, "saratoga".parse().ok()).unwrap().contains("BEACON"));
        let named = [&[0x20, 0xc0, 0, 0], "höhe".as_bytes()].concat();
        assert!(lines(&named, None).unwrap().contains("BEACON"));
        let old = [&[0x00, 0, 0, 0], &[7_u8, 0, 7][..]].concat();
        assert!(lines(&old, None).is_err());
        // Reports of NORM, and commands that nobody has defined, are only read if asked for.
        for text in ["16 02 0000 00000001 07", "13 04 0000 00000001 00000000 08000000"] {
            let bytes = hex(text).unwrap();
            assert!(lines(&bytes, None).unwrap_err().to_string().contains("a defined form"));
            assert!(lines(&bytes, "norm".parse().ok()).is_ok());
        }
    }

    #[test]
    fn protocols_by_name() {
        for (text, expected) in
            [("norm", "NORM"), ("cfdp-1", "CFDP"), ("ltp-green", "LTP"), ("saratoga", "Saratoga")]
        {
            assert_eq!(text.parse::<Language>().unwrap().to_string(), expected);
        }
        assert!("nrom".parse::<Language>().is_err());
    }
}
