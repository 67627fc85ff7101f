//! Names that shells complete for options that take other values too, such as files.

use std::ffi::OsStr;
use std::fmt::Write as _;

use clap::Command;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;
use transport::contract::Feature;
use transport::protocol::{Kind, Protocol};
use transport::{SpecError, text};

/// Parser that reads any value of its kind, and proposes the known names to shells.
///
/// Options that use it hide the names in `--help`, which says which command lists them.
#[derive(Clone, Debug)]
pub(crate) struct Known<P> {
    parser: P,
    names: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for Known<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        self.parser.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// Links: names of `slowlight links`, or files.
#[cfg(feature = "compute")]
pub(crate) fn link() -> impl TypedValueParser<Value = String> {
    let names = || lab::preset::ALL.iter().map(|(name, _)| *name).collect();
    Known { parser: clap::builder::StringValueParser::new(), names }
}

/// Studies: names of `slowlight study list`, or files.
#[cfg(feature = "emulate")]
pub(crate) fn study() -> impl TypedValueParser<Value = String> {
    let names = || testbed::study::BUILT_IN.iter().map(|(name, _)| *name).collect();
    Known { parser: clap::builder::StringValueParser::new(), names }
}

/// Width of lines of names in errors, where the terminal's is not known.
const WIDTH: usize = 100;

/// Command whose last word is that of another.
const EMU_COMPARE: &str = "emu compare";

/// Reads protocols: short names, with or without a profile, or stacks. Errors list the names that
/// the command takes.
#[derive(Clone, Copy, Debug)]
struct Protocols {
    /// Command that takes them, if its last word does not name it.
    command: Option<&'static str>,
}

impl TypedValueParser for Protocols {
    type Value = Protocol;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Protocol, Error> {
        let takes = taken_by(self.command.unwrap_or(command.get_name()));
        let read = move |text: &str| read(text, takes);
        read.parse_ref(command, option, value)
    }
}

/// Protocols of the simulator.
#[cfg(feature = "compute")]
pub(crate) fn protocol() -> impl TypedValueParser<Value = Protocol> {
    let names = || Kind::all().map(Kind::name).collect();
    Known { parser: Protocols { command: None }, names }
}

/// Protocols that run over sockets.
#[cfg(feature = "sockets")]
pub(crate) fn socket_protocol() -> impl TypedValueParser<Value = Protocol> {
    Known { parser: Protocols { command: None }, names: over_sockets }
}

/// Protocols of `emu compare`.
#[cfg(feature = "emulate")]
pub(crate) fn emulated_protocol() -> impl TypedValueParser<Value = Protocol> {
    Known { parser: Protocols { command: Some(EMU_COMPARE) }, names: over_sockets }
}

#[cfg(any(feature = "emulate", feature = "sockets"))]
fn over_sockets() -> Vec<&'static str> {
    Kind::all().filter(|kind| kind.has_sockets()).map(Kind::name).collect()
}

/// Names of protocols for a world that reads them itself.
#[cfg(feature = "emulate")]
pub(crate) fn protocol_name() -> impl TypedValueParser<Value = String> {
    Known { parser: clap::builder::StringValueParser::new(), names: over_sockets }
}

/// Condition on a protocol.
type Takes = fn(Kind) -> bool;

/// Protocols that a command takes, by its last word, or `emu compare`.
fn taken_by(command: &str) -> Takes {
    match command {
        "compare" => |_| true,
        "send" => |kind| kind.has_sockets() && !kind.top().is_fetched,
        "get" | "rm" | "ls" => |kind| kind.is_entity() || kind.has(Feature::Directories),
        "status" | "suspend" | "resume" | "put-from" => Kind::is_entity,
        _ => Kind::has_sockets,
    }
}

fn read(text: &str, takes: Takes) -> Result<Protocol, SpecError> {
    let name = text.split('/').next().unwrap_or_default();
    if name.contains('+') || Kind::named(name).is_some() {
        return text.parse();
    }
    let names = || Kind::all().filter(|kind| takes(*kind)).map(Kind::name);
    let near = text::did_you_mean(name, names());
    let families = families(takes);
    let mut message = format!("there is no protocol {name:?}{near}");
    for (family, names) in families {
        let _ = write!(message, "\n{}", wrapped(&format!("{family}: {}", names.join(", "))));
    }
    Err(SpecError::invalid(message))
}

/// Names of the protocols that a command takes, by family.
fn families(takes: Takes) -> Vec<(String, Vec<&'static str>)> {
    let mut families: Vec<(String, Vec<&str>)> = Vec::new();
    for kind in Kind::all().filter(|kind| takes(*kind)) {
        match families.iter_mut().find(|(family, _)| *family == kind.family()) {
            Some((_, names)) => names.push(kind.name()),
            None => families.push((kind.family(), vec![kind.name()])),
        }
    }
    families
}

/// Paragraph of `--help` with the protocols that a command takes, by family.
pub(crate) fn protocols_help(path: &[&str]) -> String {
    let command = match path {
        ["emu", "compare"] => EMU_COMPARE,
        _ => path.last().copied().unwrap_or_default(),
    };
    let families = families(taken_by(command)).into_iter();
    let lines = families.map(|(family, names)| format!("- {family}: {}", names.join(", ")));
    format!("Protocols:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Lines below the error's first, each indented.
fn wrapped(text: &str) -> String {
    let width = width().max(40);
    let mut lines = vec!["  ".to_owned()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, String::len);
        if line > 4 && line + 1 + word.len() > width {
            lines.push("    ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            if !line.ends_with(' ') {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Columns of the terminal of standard error.
#[cfg(feature = "compute")]
fn width() -> usize {
    let size = console::Term::stderr().size_checked();
    size.map_or(WIDTH, |(_, columns)| usize::from(columns).min(WIDTH))
}

#[cfg(not(feature = "compute"))]
fn width() -> usize {
    WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, command: &str) -> String {
        read(text, taken_by(command)).unwrap_err().to_string()
    }

    #[test]
    fn errors_list_the_names_that_the_command_takes() {
        let error = refused("cdfp", "send");
        assert!(error.starts_with("there is no protocol \"cdfp\"; did you mean \"cfdp\"?\n"));
        assert!(error.contains("\n  CFDP: cfdp, cfdp-1, cfdp-ltp\n  LTP: ltp, "), "{error}");
        assert!(!error.contains("ftp") && !error.contains("saratoga-get"), "{error}");
        assert!(refused("x", "compare").lines().all(|line| line.len() <= WIDTH));
        assert!(refused("x", "compare").contains("\n  CFDP in bundles: cfdp-bp-tcpcl, "));
        assert!(!refused("x", "status").contains("LTP: "));
        assert!(read("cfdp/gsfc-2007", taken_by("compare")).is_ok());
    }

    #[test]
    fn every_protocol_has_a_family() {
        let all = families(|_| true);
        assert_eq!(all.iter().map(|(_, names)| names.len()).sum::<usize>(), Kind::all().count());
        let of = |family: &str| all.iter().find(|(name, _)| *name == family).unwrap().1.join(" ");
        assert_eq!(of("FTP over TCP"), "ftp ftp-get");
        assert_eq!(of("LTP"), "ltp ltp-green ltp-1k-red ltp-t");
        assert_eq!(of("programs over TCP"), "scp sftp rsync rsync-daemon telnet");
    }
}
