//! TUN device between the kernel and slowlight's own TCP.

use std::fmt;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, ensure};
use rt::tun::Tun;

use crate::Usage;

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefixed {
    pub(crate) address: IpAddr,
    bits: u8,
}

impl FromStr for Prefixed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "an address and the length of its network, as 10.9.0.2/24".to_owned();
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 31 } else { 127 };
        if !(1..=most).contains(&bits) {
            return Err(format!("a network of more than one address has 1 to {most} bits"));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Whether two addresses are in the same network.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()) >> (32 - u32::from(bits)) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()) >> (128 - u32::from(bits)) == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Device and the addresses on both sides.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct Device {
    /// Own address and prefix length; no other host or kernel device may have it
    #[arg(long, value_name = "ADDR/BITS", default_value = "10.9.0.2/24")]
    pub(crate) address: Prefixed,

    /// Kernel's address in the same network
    #[arg(long, value_name = "ADDR", default_value = "10.9.0.1")]
    pub(crate) kernel: IpAddr,

    /// Name of the TUN device, which exists during the run
    #[arg(long, value_name = "NAME", default_value = "slowtcp")]
    pub(crate) device: String,

    /// MTU: largest IP packet, e.g. "1500 B"
    #[arg(long, value_name = "SIZE", default_value = "1500 B", value_parser = crate::whole::bytes_within(576_u32..=65_535))]
    mtu: u32,
}

impl Device {
    /// Creates the device.
    pub(crate) fn open(&self) -> Result<Tun> {
        let Prefixed { address, bits } = self.address;
        if address == self.kernel || !shares(address, self.kernel, bits) {
            let message = format!(
                "--kernel: invalid address {}: expected another one in the network of --address {}",
                self.kernel, self.address
            );
            return Err(Usage(message).into());
        }
        if address.is_ipv6() && self.mtu < 1280 {
            return Err(Usage("IPv6 needs --mtu 1280 at least".to_owned()).into());
        }
        let tun = Tun::create(&self.device).map_err(|error| {
            let remedy = match error.raw_os_error() {
                Some(libc_eperm) if libc_eperm == EPERM => {
                    "only root may make it: run it as root, or in a namespace of your own: \
                     unshare -rn slowlight tcp ..."
                }
                Some(libc_ebusy) if libc_ebusy == EBUSY => {
                    "there is one of this name: choose another by --device"
                }
                Some(_) | None => "the device cannot be made",
            };
            anyhow!(error).context(format!("TUN device {}: {remedy}", self.device))
        })?;
        self.configure().with_context(|| format!("TUN device {}", self.device))?;
        Ok(tun)
    }

    fn configure(&self) -> Result<()> {
        let Self { kernel, device, mtu, .. } = self;
        let bits = self.address.bits;
        // No neighbour discovery and no duplicate detection: nobody would reply.
        let nodad = if kernel.is_ipv6() { " nodad" } else { "" };
        let lines = format!(
            "link set {device} mtu {mtu} txqueuelen 10000\n\
             addr add {kernel}/{bits} dev {device}{nodad}\n\
             link set {device} up\n"
        );
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!("there is no program ip; install iproute2"),
            _ => anyhow!(error).context("ip"),
        })?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip: {}", message.trim().replace('\n', "; "));
        Ok(())
    }
}

const EPERM: i32 = 1;
const EBUSY: i32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let shares = |one: &str, other: &str, bits| {
            shares(one.parse().unwrap(), other.parse().unwrap(), bits)
        };
        assert!(shares("10.9.0.1", "10.9.0.2", 24) && !shares("10.9.0.1", "10.9.1.2", 24));
        assert!(shares("10.9.0.0", "10.9.0.1", 31) && shares("10.9.0.0", "100.9.0.1", 1));
        assert!(shares("fd00::1", "fd00::2", 64) && !shares("fd00::1", "fd01::2", 64));
        assert!(!shares("fd00::1", "10.9.0.1", 8));
        for wrong in ["10.9.0.2", "10.9.0.2/32", "10.9.0.2/0", "x/24", "10.9.0.2/x", "::1/128"] {
            assert!(wrong.parse::<Prefixed>().is_err(), "{wrong}");
        }
        assert_eq!("10.9.0.2/24".parse::<Prefixed>().unwrap().to_string(), "10.9.0.2/24");
    }
}
