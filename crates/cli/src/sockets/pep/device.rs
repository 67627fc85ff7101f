//! TUN device between the kernel, which forwards, and slowlight's own TCP at the side of the long
//! link.

use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use rt::tun::Tun;
use serde_json::Value;
use service::gateway::{Gateway, OwnTcp};

/// Creates the device. Its MTU is the smallest of the long link's interfaces.
pub(super) fn open(own: &OwnTcp, gateway: &Gateway) -> Result<Tun> {
    let device = &own.device;
    let strict = std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter")?;
    ensure!(
        strict.trim() != "1",
        "packets of our own TCP have addresses of other hosts, and this host drops those that come \
         from where it would not send to; sysctl -w net.ipv4.conf.all.rp_filter=2"
    );
    let mtu = gateway.wan.interfaces.iter().map(|name| mtu(name)).min_by_key(|mtu| {
        // An error sorts before any MTU.
        mtu.as_ref().map_or(0, |mtu| *mtu)
    });
    let mtu = mtu.expect("a side has an interface")?;
    let tun = Tun::create(device).map_err(|error| match error.raw_os_error() {
        Some(EBUSY) => anyhow!("there is a device {device}; choose another name by wan.own.device"),
        Some(_) | None => anyhow!(error).context(format!("TUN device {device}")),
    })?;
    let loose = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
    std::fs::write(&loose, "0").with_context(|| loose.clone())?;
    for line in lines(device, &mtu.to_string()) {
        let output = Command::new("ip").args(line.split(' ')).output().context("ip")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip {line}: {}", message.trim());
    }
    Ok(tun)
}

/// Address of the device: the dummy of RFC 7600. Without an address the kernel drops packets from
/// the device wherever `rp_filter` is on, loose (2) or strict.
const ADDRESS: &str = "192.0.0.8/32";

/// Arguments of `ip` that configure it.
fn lines(device: &str, mtu: &str) -> [String; 3] {
    [
        format!("addr add {ADDRESS} dev {device} scope host"),
        format!("link set {device} mtu {mtu} txqueuelen 10000 addrgenmode none"),
        format!("link set {device} up"),
    ]
}

/// Shell commands equivalent to [`open`].
pub(super) fn shell(own: &OwnTcp, gateway: &Gateway) -> String {
    let device = &own.device;
    let wan = gateway.wan.interfaces.iter().map(|name| format!(" /sys/class/net/{name}/mtu"));
    let mtu = format!("\"$(sort -n{} | head -n 1)\"", wan.collect::<String>());
    let lines = lines(device, &mtu).map(|line| format!("ip {line}\n")).concat();
    format!(
        "ip tuntap add dev {device} mode tun\n\
         echo 0 > /proc/sys/net/ipv4/conf/{device}/rp_filter\n{lines}"
    )
}

const EBUSY: i32 = 16;

/// MTU of an interface.
fn mtu(name: &str) -> Result<u64> {
    let output = Command::new("ip").args(["-j", "link", "show", "dev", name]).output()?;
    let links: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    links[0]["mtu"].as_u64().with_context(|| format!("ip does not tell the MTU of {name}"))
}
