//! Measurements of the emulator on this machine with real sockets: timing and throughput.

mod bulk;
mod crossing;
mod sleep_accuracy;
mod stamp;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use link::Config;

use crate::world::{Host, HostPlan, LinkPlan, Plan, Route};

pub use self::bulk::{Flood, Load, Stream, flood, stream};
pub use self::crossing::{Crossing, Errors, Pace, cross, errors, rate};
pub use self::sleep_accuracy::is_calm;
pub use self::stamp::Stamped;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Returns a plan of two hosts, `near` and `far`, and the links between them.
#[must_use]
pub fn pair(there: Config, back: Config, seed: u64, memory: u64) -> Plan {
    let link = |from, to, config| LinkPlan { from, to, config, mtu: 1500 };
    Plan {
        hosts: hosts().into(),
        links: vec![link(0, 1, there), link(1, 0, back)],
        hubs: Vec::new(),
        routes: vec![Route { at: 0, to: 1, over: 0 }, Route { at: 1, to: 0, over: 1 }],
        group_routes: Vec::new(),
        seed,
        memory,
        uplink: None,
    }
}

/// Creates two such hosts with a veth pair between them and no emulator: an upper bound for any
/// emulator on this machine.
///
/// # Errors
///
/// The system refused.
pub fn wire() -> io::Result<[Host; 2]> {
    let [near, far] = hosts().map(|plan| Host::bare(&plan));
    let (near, far) = (near?, far?);
    let of_far = format!("/proc/{}/fd/{}", std::process::id(), far.descriptor());
    near.configure(&[
        format!("link add wire mtu 1500 type veth peer name wire mtu 1500 netns {of_far}"),
        "link set lo up".to_owned(),
        "link set wire txqueuelen 10000 up".to_owned(),
        format!("addr add {NEAR}/24 dev wire"),
    ])?;
    far.configure(&[
        "link set lo up".to_owned(),
        "link set wire txqueuelen 10000 up".to_owned(),
        format!("addr add {FAR}/24 dev wire"),
    ])?;
    Ok([near, far])
}

fn hosts() -> [HostPlan; 2] {
    [("near", NEAR, 1), ("far", FAR, 2)].map(|(name, address, number)| HostPlan {
        name: name.to_owned(),
        address,
        address6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number),
        forwards: false,
    })
}
