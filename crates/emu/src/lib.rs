//! The real-time world: modelled links between network namespaces, which unmodified programs use.
//!
//! A [`Plan`] describes hosts and links; [`World::start`] creates them. Each host is a network
//! namespace, each end of a link a TUN device in it. One thread reads the hosts' packets and lets
//! a [`link::Link`] decide when and whether each arrives. It delivers them at that time, with the
//! simulator's code. Packets of many segments (up to 64 KB) are never cut: each segment has its
//! own time and fate, and adjacent segments that arrive together are delivered as one packet
//! again.
//!
//! Namespaces and devices have no name outside. However the process ends, the kernel removes them.

mod capture;
mod enter;
mod fit;
mod isolate;
pub mod measure;
mod multicast;
mod names;
mod namespace;
mod parent;
mod publish;
mod pump;
mod slice;
mod sockets;
mod store;
mod trust;
mod uplink;
mod user;
mod watch;
mod world;

pub use rt::signals::{Requests, carry_out};
pub use rt::{Bounds, Lateness, Timings};

pub use self::capture::{CaptureLimits, CaptureReport};
pub use self::enter::{EnterError, run_inside};
pub use self::fit::{Capacity, Misfit};
pub use self::isolate::{
    IsolateError, Isolation, exit_code, is_outer, isolate, isolate_with, unmarked,
};
pub use self::names::{Name, enclosing_world, name_hosts};
pub use self::publish::publish;
pub use self::pump::{CaptureError, ChangeError, LinkReport, Report};
pub use self::sockets::{Listening, listening};
pub use self::trust::Doubt;
pub use self::uplink::{Keeper, Range, Uplink, UplinkError, restore_forwarding};
pub use self::user::{User, UserError};
pub use self::world::{
    GroupRoute, Host, HostPlan, LinkPlan, Links, Plan, Route, World, WorldError,
};
