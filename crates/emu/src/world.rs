//! Hosts, links between them, and the thread that carries packets.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use engine::{Rng, Time};
use link::{Config, ConfigError};
use rt::tun::Tun;
use rt::{Clock, Timings};

use crate::capture::{self, CaptureLimits, CaptureReport};
use crate::multicast::{self, Entry, Router};
use crate::namespace::Namespace;
use crate::pump::{CaptureError, ChangeError, Counts, Egress, Handle, Pipe, Port, Pump, Report};
use crate::slice;

/// Length of a host's device queue: long enough that no packet is lost in front of a link's own
/// queue.
const DEVICE_QUEUE: u32 = 100_000;
/// Smallest MTU of a device with IPv6.
const MTU_MIN_6: u32 = 1280;
/// Maximum length of a device's name.
const NAME_MAX: usize = 15;

/// A world to create.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Hosts.
    pub hosts: Vec<HostPlan>,
    /// Links, one for each direction.
    pub links: Vec<LinkPlan>,
    /// Links from one host that share a device there. Multicast is sent over all of them, unicast
    /// over the one towards its destination.
    pub hubs: Vec<Vec<usize>>,
    /// Unicast routes.
    pub routes: Vec<Route>,
    /// Multicast routes, where hosts forward.
    pub group_routes: Vec<GroupRoute>,
    /// Seed of the links' errors.
    pub seed: u64,
    /// Maximum bytes of packets in flight; packets beyond that are dropped and counted.
    pub memory: u64,
    /// Host with the [`crate::Uplink`], to which other hosts send packets for addresses outside the
    /// world.
    pub uplink: Option<usize>,
}

impl Plan {
    /// Link over which a host sends packets for addresses outside the world.
    fn default_route(&self, at: usize) -> Option<usize> {
        let to = self.uplink?;
        let route = self.routes.iter().find(|route| route.at == at && route.to == to)?;
        Some(route.over)
    }
}

/// A host to create.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Name.
    pub name: String,
    /// IPv4 address, on all links.
    pub address: Ipv4Addr,
    /// IPv6 address.
    pub address6: Ipv6Addr,
    /// Whether it forwards packets of others.
    pub forwards: bool,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Number of the sending host.
    pub from: usize,
    /// Number of the receiving host.
    pub to: usize,
    /// Configuration of the link.
    pub config: Config,
    /// MTU in bytes.
    pub mtu: u32,
}

/// A route from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the host.
    pub at: usize,
    /// Number of the destination.
    pub to: usize,
    /// Number of the outgoing link.
    pub over: usize,
}

/// A multicast route from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoute {
    /// Number of the sending host.
    pub source: usize,
    /// Address of the group.
    pub group: Ipv4Addr,
    /// Numbers of the links, each once; no two lead to the same host.
    pub over: Vec<usize>,
}

/// Reason why a world was not created.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The plan contradicts itself.
    #[error("{0}")]
    Plan(String),
    /// A link is invalid.
    #[error("the link from {from} to {to}: {error}")]
    Link {
        /// Name of the sender.
        from: String,
        /// Name of the receiver.
        to: String,
        /// Fault of the configuration.
        error: ConfigError,
    },
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: String,
        /// Error of the system.
        error: io::Error,
    },
}

/// A host.
#[derive(Debug)]
pub struct Host {
    plan: HostPlan,
    namespace: Namespace,
    /// Lateness of the thread that plays this host, if there is one.
    timings: Arc<OnceLock<Arc<Timings>>>,
    /// Multicast router, active as long as the host lives.
    _router: Option<Router>,
}

impl Host {
    /// Creates a host without a device.
    pub(crate) fn bare(plan: &HostPlan) -> io::Result<Self> {
        make_host(plan, false).map_err(io::Error::other)
    }

    /// Configures its network: one line each, in the syntax of `ip`.
    pub(crate) fn configure(&self, lines: &[String]) -> io::Result<()> {
        self.namespace.ip(lines)
    }

    fn forward_groups(
        &mut self,
        plan: &Plan,
        devices: &Devices,
        index: usize,
    ) -> Result<(), WorldError> {
        if !self.plan.forwards {
            return Ok(());
        }
        let (names, entries) = devices.group_entries(plan, index);
        if entries.is_empty() {
            return Ok(());
        }
        let name = &self.plan.name;
        if names.len() > multicast::DEVICES_MAX {
            return Err(WorldError::Plan(format!(
                "{name} has {} neighbours; a host forwards to groups between {} at most",
                names.len(),
                multicast::DEVICES_MAX
            )));
        }
        let started = self.namespace.within(|| Router::start(&names, &entries));
        let what = || format!("{name}: forwarding what is sent to groups");
        let started = started.and_then(|router| router);
        self._router = Some(started.map_err(|error| WorldError::System { what: what(), error })?);
        Ok(())
    }

    /// Returns its plan.
    #[must_use]
    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// Makes the command run on the host.
    pub fn command<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.namespace.command(command)
    }

    /// Runs a function on the host in a separate thread: sockets opened there are the host's.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.within(run)
    }

    /// Moves the calling thread to the host permanently: sockets opened there are the host's.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn enter(&self) -> io::Result<()> {
        self.namespace.enter()
    }

    /// Returns the histogram in which a thread that plays this host records its lateness, for the
    /// [`Report`]. For one thread.
    #[must_use]
    pub fn timings(&self) -> &Arc<Timings> {
        self.timings.get_or_init(|| Arc::new(Timings::new()))
    }

    /// Returns a handle of its network namespace, for another thread to enter.
    pub(crate) fn entrance(&self) -> io::Result<Namespace> {
        self.namespace.try_clone()
    }

    /// Sets the maximum sizes of its TCP buffers in bytes, to send and to receive; 256 MiB each
    /// before.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn set_tcp_buffers(&self, send: u64, receive: u64) -> io::Result<()> {
        let triple = |initial: u64, most: u64| format!("4096 {} {most}", initial.min(most));
        self.namespace.sysctl("net.ipv4.tcp_rmem", &triple(131_072, receive))?;
        self.namespace.sysctl("net.ipv4.tcp_wmem", &triple(16_384, send))
    }

    /// Returns the descriptor of its network namespace, for other processes to enter.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.namespace.as_raw_fd()
    }
}

/// A running world.
#[derive(Debug)]
pub struct World {
    hosts: Vec<Host>,
    /// Device at which each link starts.
    devices: Vec<String>,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<Counts>>>,
    real_time: bool,
}

impl World {
    /// Creates hosts and links, and starts to carry packets.
    ///
    /// # Errors
    ///
    /// [`WorldError`] names a fault of the plan, or the operation that the system refused.
    pub fn start(plan: &Plan) -> Result<Self, WorldError> {
        let devices = Devices::from_plan(plan)?;
        let hosts = plan.hosts.iter().enumerate();
        let made = hosts.map(|(index, host)| make_host(host, plan.uplink == Some(index)));
        let mut hosts = made.collect::<Result<Vec<_>, _>>()?;
        let mut ports = Vec::new();
        for device in &devices.list {
            let tun = hosts[device.host].namespace.within(|| Tun::create(&device.name));
            let tun = tun.and_then(|tun| tun);
            let what =
                || format!("{}: making device {}", plan.hosts[device.host].name, device.name);
            let tun = tun.map_err(|error| WorldError::System { what: what(), error })?;
            let host = plan.hosts[device.host].name.clone();
            let name = device.name.clone();
            let (device, egress) = (capture::Device { host, name }, device.egress(plan));
            ports.push(Port { tun, device, egress, behind_since: None });
        }
        for (index, host) in hosts.iter_mut().enumerate() {
            configure(plan, &devices, index, host)?;
            host.forward_groups(plan, &devices, index)?;
        }
        let pipes = pipes(plan, &devices)?;
        let timings = hosts.iter().map(|host| Arc::clone(&host.timings)).collect();
        let made = Pump::new(ports, pipes, timings, plan.memory);
        let (pump, handle) = made.map_err(system("starting the links"))?;
        let (raised, real_time) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new().name("links".to_owned());
        let thread = thread.spawn(move || {
            rt::wake_exactly();
            let real_time = rt::hurry_links();
            if !real_time {
                slice::shorten();
            }
            let _ = raised.send(real_time);
            pump.run(real_time)
        });
        let thread = Some(thread.map_err(system("starting the links"))?);
        let real_time = real_time.recv().unwrap_or(false);
        let leaves =
            |link: &LinkPlan| devices.list[devices.index_of(link.from, link.to)].name.clone();
        let devices = plan.links.iter().map(leaves).collect();
        Ok(Self { hosts, devices, handle, thread, real_time })
    }

    /// Returns its hosts, in the order of the plan.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the device at which a link starts, on the sending host.
    #[must_use]
    pub fn device(&self, link: usize) -> &str {
        &self.devices[link]
    }

    /// Returns the host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.plan.name == name)
    }

    /// Whether the links run with a priority above all programs'.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Restarts its time now, on which links' outages, rates and delays depend, and returns the
    /// clock. Must be called before anything is sent. Without this call time starts when the world
    /// is created.
    ///
    /// # Errors
    ///
    /// The links have stopped.
    pub fn begin(&self) -> io::Result<Clock> {
        self.handle.begin().ok_or_else(|| io::Error::other("the links have stopped"))
    }

    /// Returns the clock of the links.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.handle.clock()
    }

    /// Returns control of the links, usable from any thread.
    #[must_use]
    pub fn links(&self) -> Links {
        Links(self.handle.clone())
    }

    /// Ends the world and returns the fate of all packets.
    ///
    /// # Errors
    ///
    /// The error that stopped the links earlier, if any.
    pub fn stop(mut self) -> io::Result<Report> {
        self.handle.stop();
        let thread = self.thread.take().ok_or_else(|| io::Error::other("stopped before"))?;
        let counts = thread.join().map_err(|_| io::Error::other("the links' thread failed"))??;
        Ok(self.handle.complete(counts))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// Control and statistics of running links.
#[derive(Clone, Debug)]
pub struct Links(Handle);

impl Links {
    /// Changes a link's configuration from now on; see [`link::Link::set_config`].
    ///
    /// # Errors
    ///
    /// [`ChangeError`] if the configuration is invalid, or the link no longer exists.
    pub fn change(
        &self,
        link: usize,
        change: impl FnOnce(&Config) -> Config + Send + 'static,
    ) -> Result<(), ChangeError> {
        self.0.change(link, change)
    }

    /// Starts a capture of these hosts, or all. Each has its own file below `folder`, in which each
    /// of its devices is an interface.
    ///
    /// # Errors
    ///
    /// [`CaptureError`] gives the reason.
    pub fn capture(
        &self,
        hosts: Option<Vec<String>>,
        folder: &Path,
        limits: CaptureLimits,
    ) -> Result<(), CaptureError> {
        self.0.capture(hosts, folder.to_owned(), limits)
    }

    /// Ends the capture, and waits until it is written.
    ///
    /// # Errors
    ///
    /// No capture is running, or a file could not be written.
    pub fn end_capture(&self) -> Result<CaptureReport, CaptureError> {
        self.0.end_capture()
    }

    /// Returns the time of the links' schedules, from the world's start.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Returns the fate of all packets so far; `None` if the world has ended. The thread that
    /// carries packets copies its counters; lateness is read without it.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        self.0.report()
    }

    /// Returns the packets that wait for a line or are in flight; `None` if the world has ended.
    /// Cheap enough to be polled.
    #[must_use]
    pub fn on_the_way(&self) -> Option<u64> {
        self.0.on_the_way()
    }
}

fn system(what: &str) -> impl FnOnce(io::Error) -> WorldError + '_ {
    move |error| WorldError::System { what: what.to_owned(), error }
}

fn make_host(plan: &HostPlan, has_uplink: bool) -> Result<Host, WorldError> {
    let namespace = Namespace::create();
    let namespace = namespace.map_err(system("making a network namespace"))?;
    // Parameters are set before devices exist, because devices inherit some of them.
    for (parameter, value) in parameters(plan.forwards || has_uplink) {
        let set = namespace.sysctl(parameter, value);
        let what = || format!("{}: configuring its network", plan.name);
        set.map_err(|error| WorldError::System { what: what(), error })?;
    }
    // Allows ordinary users to ping. In a user namespace there is one group.
    let group = |last: &str| namespace.sysctl("net.ipv4.ping_group_range", &format!("0 {last}"));
    if let Err(error) = group("2147483647").or_else(|_| group("0")) {
        tracing::debug!(%error, "only root can ping");
    }
    Ok(Host { plan: plan.clone(), namespace, timings: Arc::default(), _router: None })
}

/// Kernel parameters that differ from the defaults.
fn parameters(forwards: bool) -> [(&'static str, &'static str); 11] {
    let forwarding = if forwards { "1" } else { "0" };
    [
        // A link carries only programs' packets: no neighbour or router discovery, and no addresses
        // that would need it.
        ("net.ipv6.conf.default.addr_gen_mode", "1"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv4.ip_forward", forwarding),
        ("net.ipv6.conf.all.forwarding", forwarding),
        // Asymmetric routes: replies may leave by another link.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // The window of a fast link with a long delay: 256 MiB.
        ("net.ipv4.tcp_rmem", "4096 131072 268435456"),
        ("net.ipv4.tcp_wmem", "4096 16384 268435456"),
        // Servers of ordinary users may bind any port.
        ("net.ipv4.ip_unprivileged_port_start", "0"),
        // No run may influence the next.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ]
}

fn pipes(plan: &Plan, devices: &Devices) -> Result<Vec<Pipe>, WorldError> {
    let pipe = |link: &LinkPlan| {
        let (from, to) = (&plan.hosts[link.from].name, &plan.hosts[link.to].name);
        let rng = Rng::new(plan.seed, &link::stream(from, to, 0));
        Pipe::new(link.config.clone(), rng, devices.index_of(link.to, link.from))
            .map_err(|error| WorldError::Link { from: from.clone(), to: to.clone(), error })
    };
    plan.links.iter().map(pipe).collect()
}

/// A device of a host, for the links to and from one neighbour or a hub.
#[derive(Debug)]
struct Device {
    host: usize,
    name: String,
    neighbours: BTreeSet<usize>,
    /// Links that start here.
    links: Vec<usize>,
    mtu: u32,
}

#[derive(Debug)]
struct Devices {
    list: Vec<Device>,
    /// Device of each host for traffic from and to another.
    towards: BTreeMap<(usize, usize), usize>,
}

impl Devices {
    fn from_plan(plan: &Plan) -> Result<Self, WorldError> {
        let mut devices = Self { list: Vec::new(), towards: BTreeMap::new() };
        for hub in &plan.hubs {
            let Some(first) = hub.first() else { continue };
            let host = plan.links[*first].from;
            let members = hub.iter().map(|&link| plan.links[link].to).collect();
            devices.add(plan, host, members, "hub");
        }
        let mut directions = BTreeSet::new();
        for (index, link) in plan.links.iter().enumerate() {
            let ends = (link.from, link.to);
            let names = [&plan.hosts[ends.0].name, &plan.hosts[ends.1].name];
            if !directions.insert(ends) {
                let [from, to] = names;
                return Err(WorldError::Plan(format!(
                    "there are two links from {from} to {to}; the emulator has one a direction"
                )));
            }
            for (host, peer, name) in [(ends.0, ends.1, names[1]), (ends.1, ends.0, names[0])] {
                if !devices.towards.contains_key(&(host, peer)) {
                    devices.add(plan, host, BTreeSet::from([peer]), name);
                }
                let device = &mut devices.list[devices.towards[&(host, peer)]];
                device.mtu = device.mtu.min(link.mtu);
            }
            devices.list[devices.towards[&ends]].links.push(index);
        }
        Ok(devices)
    }

    fn add(&mut self, plan: &Plan, host: usize, neighbours: BTreeSet<usize>, name: &str) {
        let mut unique = shortened(name, "");
        let taken =
            |name: &str| name == "lo" || self.list.iter().any(|d| d.host == host && d.name == name);
        let mut number = 1;
        while taken(&unique) {
            number += 1;
            unique = shortened(name, &number.to_string());
        }
        for &peer in &neighbours {
            self.towards.insert((host, peer), self.list.len());
        }
        let links = Vec::with_capacity(plan.hubs.len());
        self.list.push(Device { host, name: unique, neighbours, links, mtu: 65_535 });
    }

    fn index_of(&self, host: usize, peer: usize) -> usize {
        self.towards[&(host, peer)]
    }

    /// A host's devices, and its multicast routes.
    fn group_entries(&self, plan: &Plan, host: usize) -> (Vec<&str>, Vec<Entry>) {
        let own = || (0..self.list.len()).filter(|device| self.list[*device].host == host);
        let number = |peer| own().position(|device| device == self.index_of(host, peer));
        let entry = |GroupRoute { source, group, over }: &GroupRoute| {
            let links = || over.iter().map(|link| &plan.links[*link]);
            let from = links().find(|link| link.to == host).and_then(|link| number(link.from))?;
            let to = links().filter(|link| link.from == host).filter_map(|link| number(link.to));
            // The hub itself repeats a packet to its origin.
            let to: BTreeSet<_> = to.filter(|to| *to != from).collect();
            let source = plan.hosts[*source].address;
            let entry = Entry { source, group: *group, from, to: to.into_iter().collect() };
            (!entry.to.is_empty()).then_some(entry)
        };
        let entries = plan.group_routes.iter().filter_map(entry).collect();
        (own().map(|device| self.list[device].name.as_str()).collect(), entries)
    }
}

/// Name of a device: letters, digits, dots and dashes of `name`, and `tail`.
fn shortened(name: &str, tail: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut short: String = name.chars().filter(allowed).take(NAME_MAX - tail.len()).collect();
    if short.is_empty() || short.starts_with('.') {
        "link".clone_into(&mut short);
    }
    short + tail
}

impl Device {
    fn egress(&self, plan: &Plan) -> Egress {
        match self.links.as_slice() {
            [] => Egress::Nowhere,
            [only] if self.neighbours.len() == 1 => Egress::One(*only),
            all => {
                let mut to = BTreeMap::new();
                for &link in all {
                    let host = &plan.hosts[plan.links[link].to];
                    to.insert(IpAddr::V4(host.address), link);
                    to.insert(IpAddr::V6(host.address6), link);
                }
                for route in plan.routes.iter().filter(|route| all.contains(&route.over)) {
                    let host = &plan.hosts[route.to];
                    to.entry(IpAddr::V4(host.address)).or_insert(route.over);
                    to.entry(IpAddr::V6(host.address6)).or_insert(route.over);
                }
                let repeats = plan.hosts[self.host].forwards;
                let out = plan.default_route(self.host).filter(|over| all.contains(over));
                Egress::Hub { to, all: all.to_vec(), repeats, out }
            }
        }
    }
}

fn configure(plan: &Plan, devices: &Devices, index: usize, host: &Host) -> Result<(), WorldError> {
    let HostPlan { name, address, address6, .. } = &plan.hosts[index];
    let mut lines = vec!["link set lo up".to_owned()];
    let own: Vec<_> = devices.list.iter().filter(|device| device.host == index).collect();
    for Device { name, mtu, .. } in &own {
        lines.push(format!(
            "link set dev {name} mtu {mtu} txqueuelen {DEVICE_QUEUE} multicast on up"
        ));
    }
    // A socket bound to an address multicasts over the device that has it. Where a host has
    // several, programs must choose.
    let first = own.first().map_or("lo", |device| &device.name);
    lines.push(format!("addr add {address}/32 dev {first}"));
    // A device below the minimum MTU (RFC 8200 §5) has no IPv6.
    let six = |device: &Device| device.mtu >= MTU_MIN_6;
    if let Some(device) = own.iter().find(|device| six(device)) {
        lines.push(format!("addr add {address6}/128 dev {} nodad", device.name));
    }
    if let Some(device) = own.first() {
        lines.push(format!("route add 224.0.0.0/4 dev {} src {address}", device.name));
    }
    for GroupRoute { group, over, .. } in plan.group_routes.iter().filter(|r| r.source == index) {
        let links = over.iter().map(|link| &plan.links[*link]);
        if let Some(link) = links.filter(|link| link.from == index).min_by_key(|link| link.to) {
            let device = &devices.list[devices.index_of(link.from, link.to)].name;
            lines.push(format!("route add {group}/32 dev {device} src {address}"));
        }
    }
    for route in plan.routes.iter().filter(|route| route.at == index) {
        let link = &plan.links[route.over];
        let device = &devices.list[devices.index_of(link.from, link.to)];
        let (name, to) = (&device.name, &plan.hosts[route.to]);
        lines.push(format!("route add {}/32 dev {name} src {address}", to.address));
        if six(device) {
            lines.push(format!("route add {}/128 dev {name} src {address6}", to.address6));
        }
    }
    if let Some(over) = plan.default_route(index) {
        let link = &plan.links[over];
        let device = &devices.list[devices.index_of(link.from, link.to)].name;
        lines.push(format!("route add default dev {device} src {address}"));
    }
    let what = || format!("{name}: configuring its network");
    let failed = |error| WorldError::System { what: what(), error };
    host.namespace.ip(&lines).map_err(failed)
}
