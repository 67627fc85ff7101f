//! Commands: a verb and perhaps an argument.

use std::fmt;
use std::net::SocketAddr;

use wire::DecodeError;

use super::{AddressError, ExtendedPort, HostPort};

/// Representation of a file on the data connection (RFC 959 §3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// Lines ended by CR LF (TYPE A).
    Ascii,
    /// Unchanged bytes (TYPE I).
    Image,
}

/// One command of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the command of that name, as its source has it")]
pub enum Command<'a> {
    /// RFC 959 §4.1.1: login and change of directory.
    User(&'a str),
    Pass(&'a str),
    Acct(&'a str),
    Cwd(&'a str),
    Cdup,
    Rein,
    Quit,
    /// RFC 959 §4.1.2 and RFC 2428: transfer parameters. PORT and EPRT hold a decoded address.
    Port(SocketAddr),
    Eprt(SocketAddr),
    Pasv,
    /// Holds the requested protocol, or `ALL`.
    Epsv(&'a str),
    Type(Representation),
    /// MODE takes S, B or C; STRU takes F, R or P.
    Mode(char),
    Stru(char),
    /// RFC 959 §4.1.3: files.
    Retr(&'a str),
    Stor(&'a str),
    Stou,
    Appe(&'a str),
    Allo(&'a str),
    Rest(u64),
    Rnfr(&'a str),
    Rnto(&'a str),
    Abor,
    Dele(&'a str),
    Rmd(&'a str),
    Mkd(&'a str),
    Pwd,
    List(&'a str),
    Nlst(&'a str),
    Site(&'a str),
    Syst,
    Stat(&'a str),
    Help(&'a str),
    Noop,
    /// RFC 3659 §3, §4 and RFC 2389.
    Mdtm(&'a str),
    Size(&'a str),
    Feat,
    Opts(&'a str),
    /// CCSDS 717.0-B-1: restart, replies, records, best effort.
    Arst,
    Nars,
    Supp,
    Nsup,
    Idle(u32),
    Intr,
    Bets,
    Nbes,
    /// Source, destination.
    Copy(&'a str, &'a str),
    Read(&'a str),
    Updt(&'a str),
    /// Any other verb, as received, and its argument.
    Unknown(&'a str, &'a str),
}

impl<'a> Command<'a> {
    /// Decodes a line without its end.
    ///
    /// # Errors
    /// When a known verb's argument is missing or invalid; the offset is the argument's.
    pub fn decode(line: &'a str) -> Result<Self, DecodeError> {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let at = line.len() - argument.len();
        let name = || match argument {
            "" => Err(DecodeError::invalid(at, "an argument is missing")),
            argument => Ok(argument),
        };
        Ok(match verb.to_ascii_uppercase().as_str() {
            "USER" => Self::User(name()?),
            "PASS" => Self::Pass(argument),
            "ACCT" => Self::Acct(name()?),
            "CWD" | "XCWD" => Self::Cwd(name()?),
            "CDUP" | "XCUP" => Self::Cdup,
            "REIN" => Self::Rein,
            "QUIT" => Self::Quit,
            "PORT" => Self::Port(address(name()?.parse::<HostPort>().map(|a| a.0.into()), at)?),
            "EPRT" => Self::Eprt(address(name()?.parse::<ExtendedPort>().map(|a| a.0), at)?),
            "PASV" => Self::Pasv,
            "EPSV" => Self::Epsv(argument),
            "TYPE" => Self::Type(representation(name()?, at)?),
            "MODE" => Self::Mode(letter(name()?, at)?),
            "STRU" => Self::Stru(letter(name()?, at)?),
            "RETR" => Self::Retr(name()?),
            "STOR" => Self::Stor(name()?),
            "STOU" => Self::Stou,
            "APPE" => Self::Appe(name()?),
            "ALLO" => Self::Allo(argument),
            "REST" => Self::Rest(number(name()?, at)?),
            "RNFR" => Self::Rnfr(name()?),
            "RNTO" => Self::Rnto(name()?),
            "ABOR" => Self::Abor,
            "DELE" => Self::Dele(name()?),
            "RMD" | "XRMD" => Self::Rmd(name()?),
            "MKD" | "XMKD" => Self::Mkd(name()?),
            "PWD" | "XPWD" => Self::Pwd,
            "LIST" => Self::List(argument),
            "NLST" => Self::Nlst(argument),
            "SITE" => Self::Site(name()?),
            "SYST" => Self::Syst,
            "STAT" => Self::Stat(argument),
            "HELP" => Self::Help(argument),
            "NOOP" => Self::Noop,
            "MDTM" => Self::Mdtm(name()?),
            "SIZE" => Self::Size(name()?),
            "FEAT" => Self::Feat,
            "OPTS" => Self::Opts(name()?),
            "ARST" => Self::Arst,
            "NARS" => Self::Nars,
            "SUPP" => Self::Supp,
            "NSUP" => Self::Nsup,
            "IDLE" => Self::Idle(number(name()?, at)?),
            "INTR" => Self::Intr,
            "BETS" => Self::Bets,
            "NBES" => Self::Nbes,
            "COPY" => {
                let (from, to) = name()?
                    .split_once(' ')
                    .ok_or(DecodeError::invalid(at, "COPY takes two names"))?;
                Self::Copy(from, to)
            }
            "READ" => Self::Read(name()?),
            "UPDT" => Self::Updt(name()?),
            _ => Self::Unknown(verb, argument),
        })
    }
}

fn address(found: Result<SocketAddr, AddressError>, at: usize) -> Result<SocketAddr, DecodeError> {
    found.map_err(|error| match error {
        AddressError::Form(form) => DecodeError::invalid(at, form),
        AddressError::Protocol => DecodeError::invalid(at, "the protocol is neither 1 nor 2"),
    })
}

/// Parses `A`, `A N`, `I` or `L 8`, which equals `I` for 8-bit bytes.
fn representation(argument: &str, at: usize) -> Result<Representation, DecodeError> {
    let argument = argument.to_ascii_uppercase();
    match argument.split_whitespace().collect::<Vec<_>>()[..] {
        ["A"] | ["A", "N"] => Ok(Representation::Ascii),
        ["I"] | ["L", "8"] => Ok(Representation::Image),
        _ => Err(DecodeError::invalid(at, "the type is none of A, I and L 8")),
    }
}

fn letter(argument: &str, at: usize) -> Result<char, DecodeError> {
    let mut letters = argument.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Ok(letter.to_ascii_uppercase()),
        _ => Err(DecodeError::invalid(at, "one letter is wanted")),
    }
}

fn number<T: std::str::FromStr>(argument: &str, at: usize) -> Result<T, DecodeError> {
    argument.trim().parse().map_err(|_| DecodeError::invalid(at, "a number is wanted"))
}

impl fmt::Display for Command<'_> {
    /// Writes the line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, argument) = match self {
            Self::User(name) => ("USER", *name),
            Self::Pass(word) => ("PASS", *word),
            Self::Acct(name) => ("ACCT", *name),
            Self::Cwd(name) => ("CWD", *name),
            Self::Cdup => ("CDUP", ""),
            Self::Rein => ("REIN", ""),
            Self::Quit => ("QUIT", ""),
            Self::Port(SocketAddr::V4(to)) => return write!(f, "PORT {}", HostPort(*to)),
            // PORT cannot carry such an address.
            Self::Port(to) | Self::Eprt(to) => return write!(f, "EPRT {}", ExtendedPort(*to)),
            Self::Pasv => ("PASV", ""),
            Self::Epsv(protocol) => ("EPSV", *protocol),
            Self::Type(Representation::Ascii) => ("TYPE", "A"),
            Self::Type(Representation::Image) => ("TYPE", "I"),
            Self::Mode(mode) => return write!(f, "MODE {mode}"),
            Self::Stru(structure) => return write!(f, "STRU {structure}"),
            Self::Retr(name) => ("RETR", *name),
            Self::Stor(name) => ("STOR", *name),
            Self::Stou => ("STOU", ""),
            Self::Appe(name) => ("APPE", *name),
            Self::Allo(size) => ("ALLO", *size),
            Self::Rest(offset) => return write!(f, "REST {offset}"),
            Self::Rnfr(name) => ("RNFR", *name),
            Self::Rnto(name) => ("RNTO", *name),
            Self::Abor => ("ABOR", ""),
            Self::Dele(name) => ("DELE", *name),
            Self::Rmd(name) => ("RMD", *name),
            Self::Mkd(name) => ("MKD", *name),
            Self::Pwd => ("PWD", ""),
            Self::List(name) => ("LIST", *name),
            Self::Nlst(name) => ("NLST", *name),
            Self::Site(what) => ("SITE", *what),
            Self::Syst => ("SYST", ""),
            Self::Stat(name) => ("STAT", *name),
            Self::Help(what) => ("HELP", *what),
            Self::Noop => ("NOOP", ""),
            Self::Mdtm(name) => ("MDTM", *name),
            Self::Size(name) => ("SIZE", *name),
            Self::Feat => ("FEAT", ""),
            Self::Opts(what) => ("OPTS", *what),
            Self::Arst => ("ARST", ""),
            Self::Nars => ("NARS", ""),
            Self::Supp => ("SUPP", ""),
            Self::Nsup => ("NSUP", ""),
            Self::Idle(seconds) => return write!(f, "IDLE {seconds}"),
            Self::Intr => ("INTR", ""),
            Self::Bets => ("BETS", ""),
            Self::Nbes => ("NBES", ""),
            Self::Copy(from, to) => return write!(f, "COPY {from} {to}"),
            Self::Read(name) => ("READ", *name),
            Self::Updt(name) => ("UPDT", *name),
            Self::Unknown(verb, argument) => (*verb, *argument),
        };
        f.write_str(verb)?;
        if argument.is_empty() { Ok(()) } else { write!(f, " {argument}") }
    }
}
