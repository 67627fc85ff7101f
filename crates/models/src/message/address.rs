//! Addresses of data connections in commands and replies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::str::FromStr;

use thiserror::Error;

/// Error in the address of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Malformed argument; holds the expected form.
    #[error("it is not of the form {0}")]
    Form(&'static str),
    /// The protocol is neither 1, IPv4, nor 2, IPv6 (RFC 2428 §2).
    #[error("the network protocol is neither 1 nor 2")]
    Protocol,
}

/// `h1,h2,h3,h4,p1,p2` of PORT and of the reply to PASV (RFC 959 §4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort(pub SocketAddrV4);

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        const FORM: AddressError = AddressError::Form("h1,h2,h3,h4,p1,p2");
        let mut bytes = [0; 6];
        let mut parts = text.trim().split(',');
        for byte in &mut bytes {
            *byte = parts.next().and_then(|part| part.trim().parse().ok()).ok_or(FORM)?;
        }
        if parts.next().is_some() {
            return Err(FORM);
        }
        let [a, b, c, d, high, low] = bytes;
        let port = u16::from_be_bytes([high, low]);
        Ok(Self(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port)))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0.ip().octets();
        let [high, low] = self.0.port().to_be_bytes();
        write!(f, "{a},{b},{c},{d},{high},{low}")
    }
}

/// `|protocol|address|port|` of EPRT (RFC 2428 §2), with any printable delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedPort(pub SocketAddr);

impl FromStr for ExtendedPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        const FORM: AddressError = AddressError::Form("|protocol|address|port|");
        let (protocol, address, port) = fields(text).ok_or(FORM)?;
        let ip = match protocol {
            "1" => address.parse::<Ipv4Addr>().map(IpAddr::V4),
            "2" => address.parse::<Ipv6Addr>().map(IpAddr::V6),
            _ => return Err(AddressError::Protocol),
        };
        let (ip, port) = (ip.map_err(|_| FORM)?, port.parse().map_err(|_| FORM)?);
        Ok(Self(SocketAddr::new(ip, port)))
    }
}

impl fmt::Display for ExtendedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.0.is_ipv4() { 1 } else { 2 };
        write!(f, "|{protocol}|{}|{}|", self.0.ip(), self.0.port())
    }
}

/// Returns the three fields between four delimiters; the first byte is the delimiter.
fn fields(text: &str) -> Option<(&str, &str, &str)> {
    let delimiter = text.chars().next().filter(|c| matches!(c, '!'..='~'))?;
    let mut parts = text.split(delimiter);
    let fields = (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let ("", protocol, address, port, "") = fields else { return None };
    parts.next().is_none().then_some((protocol, address, port))
}

/// Returns the port in the text of the reply 229 to EPSV: `(|||port|)` (RFC 2428 §3).
#[must_use]
pub fn passive_port(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once('(')?;
    let (inner, _) = rest.split_once(')')?;
    let ("", "", port) = fields(inner)? else { return None };
    port.parse().ok()
}

/// Returns the address in the text of the reply 227 to PASV. Its form is not standardised: six
/// numbers anywhere in the text (RFC 1123 §4.1.2.6).
#[must_use]
pub fn passive_reply(text: &str) -> Option<SocketAddrV4> {
    let is_inside = |c: char| c.is_ascii_digit() || c == ',';
    let runs = text.split(|c| !is_inside(c));
    runs.filter_map(|run| HostPort::from_str(run).ok()).map(|found| found.0).next()
}
