//! Hosts, links between them, and the thread that carries their packets.

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

/// Packets that a host may queue in front of a link's own queue, so many that none is lost there.
const DEVICE_QUEUE: u32 = 100_000;
/// Bytes of the largest packet that a device with IPv6 takes at the least.
const MTU_MIN_6: u32 = 1280;
/// The most bytes of a device's name.
const NAME_MAX: usize = 15;

/// A world to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its hosts.
    pub hosts: Vec<HostPlan>,
    /// Its links, one for each direction.
    pub links: Vec<LinkPlan>,
    /// Links from one host that share a device there: what is sent to a group goes over all of
    /// them, anything else over the one towards its destination.
    pub hubs: Vec<Vec<usize>>,
    /// Over which link each host sends to which other.
    pub routes: Vec<Route>,
    /// Over which links goes what is sent to groups, where hosts forward it.
    pub group_routes: Vec<GroupRoute>,
    /// Where the errors of the links come from.
    pub seed: u64,
    /// Bytes that packets on their way may take; what is more is lost and counted.
    pub memory: u64,
    /// Number of the host that has the [`crate::Uplink`], to which other hosts send packets for
    /// addresses outside the world.
    pub uplink: Option<usize>,
}

impl Plan {
    /// Number of the link over which a host sends packets for addresses outside the world.
    fn default_route(&self, at: usize) -> Option<usize> {
        let to = self.uplink?;
        let route = self.routes.iter().find(|route| route.at == at && route.to == to)?;
        Some(route.over)
    }
}

/// A host to be made.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// What it is called.
    pub name: String,
    /// Its address, whatever the link.
    pub address: Ipv4Addr,
    /// Its address in IPv6.
    pub address6: Ipv6Addr,
    /// Whether it forwards packets of others.
    pub forwards: bool,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// The number of the host that sends.
    pub from: usize,
    /// The number of the host that receives.
    pub to: usize,
    /// What it does to packets.
    pub config: Config,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

/// How a host reaches another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The host.
    pub at: usize,
    /// The other.
    pub to: usize,
    /// The number of the link that it sends over.
    pub over: usize,
}

/// How a group hears what one host sends to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoute {
    /// The host that sends.
    pub source: usize,
    /// The group's address.
    pub group: Ipv4Addr,
    /// The numbers of the links that it goes over, each once; none leads where another led before.
    pub over: Vec<usize>,
}

/// Why a world was not made.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The plan contradicts itself.
    #[error("{0}")]
    Plan(String),
    /// A link is none.
    #[error("the link from {from} to {to}: {error}")]
    Link {
        /// Who sends over it.
        from: String,
        /// Who receives.
        to: String,
        /// What is wrong with it.
        error: ConfigError,
    },
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        error: io::Error,
    },
}

/// A host.
#[derive(Debug)]
pub struct Host {
    plan: HostPlan,
    namespace: Namespace,
    /// How late what had to be in time on it was, if there is such.
    timings: Arc<OnceLock<Arc<Timings>>>,
    /// Forwards what is sent to groups as long as the host lives.
    _router: Option<Router>,
}

impl Host {
    /// A host without a device.
    pub(crate) fn bare(plan: &HostPlan) -> io::Result<Self> {
        make_host(plan, false).map_err(io::Error::other)
    }

    /// Configures its network: one line each, as `ip` has them.
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

    /// What it was planned as.
    #[must_use]
    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// Has the command run on it.
    pub fn command<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.namespace.command(command)
    }

    /// Runs something on it, in a thread of its own: sockets that are opened there are the host's.
    ///
    /// # Errors
    /// The system refused.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.within(run)
    }

    /// Moves the calling thread there for good: sockets that it opens are the host's.
    ///
    /// # Errors
    /// The system refused.
    pub fn enter(&self) -> io::Result<()> {
        self.namespace.enter()
    }

    /// Where a thread that plays this host, and must be in time for what is measured, counts how late it
    /// was: it becomes part of the [`Report`]. For one thread.
    #[must_use]
    pub fn timings(&self) -> &Arc<Timings> {
        self.timings.get_or_init(|| Arc::new(Timings::new()))
    }

    /// Handle of its network namespace, for another thread to enter.
    pub(crate) fn entrance(&self) -> io::Result<Namespace> {
        self.namespace.try_clone()
    }

    /// Sets the growth limits of its TCP buffers in bytes, to send and to receive; 256 MiB each
    /// before.
    ///
    /// # Errors
    /// The system refused.
    pub fn set_tcp_buffers(&self, (send, receive): (u64, u64)) -> io::Result<()> {
        let triple = |initial: u64, most: u64| format!("4096 {} {most}", initial.min(most));
        self.namespace.sysctl("net.ipv4.tcp_rmem", &triple(131_072, receive))?;
        self.namespace.sysctl("net.ipv4.tcp_wmem", &triple(16_384, send))
    }

    /// The number of the descriptor of its network namespace, for others to enter it.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.namespace.as_raw_fd()
    }
}

/// A world that runs.
#[derive(Debug)]
pub struct World {
    hosts: Vec<Host>,
    /// The device that each link leaves by.
    devices: Vec<String>,
    handle: Handle,
    thread: Option<JoinHandle<io::Result<Counts>>>,
    real_time: bool,
}

impl World {
    /// Makes hosts and links, and begins to carry packets.
    ///
    /// # Errors
    /// [`WorldError`] says what was wrong with the plan, or what the system refused.
    pub fn start(plan: &Plan) -> Result<Self, WorldError> {
        let devices = Devices::of(plan)?;
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
        let leaves = |link: &LinkPlan| devices.list[devices.at(link.from, link.to)].name.clone();
        let devices = plan.links.iter().map(leaves).collect();
        Ok(Self { hosts, devices, handle, thread, real_time })
    }

    /// Its hosts, in the order of the plan.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The device at which a link begins, on the host that sends over it.
    #[must_use]
    pub fn device(&self, link: usize) -> &str {
        &self.devices[link]
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.plan.name == name)
    }

    /// Whether the links run with a priority above all programs'.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Lets its time begin now, by which links have outages and change their rates and delays; the
    /// answer is the clock that they go by. To be called before anything is sent. A
    /// world of which nobody says so began when it was made.
    ///
    /// # Errors
    /// The links have stopped.
    pub fn begin(&self) -> io::Result<Clock> {
        self.handle.begin().ok_or_else(|| io::Error::other("the links have stopped"))
    }

    /// The clock that links go by, of a world that began before.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.handle.clock()
    }

    /// Tells the links what to do, from any thread.
    #[must_use]
    pub fn links(&self) -> Links {
        Links(self.handle.clone())
    }

    /// Ends it, and says what became of all packets.
    ///
    /// # Errors
    /// What stopped the links before, if something did.
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

/// Changes links while they run, and looks at them.
#[derive(Clone, Debug)]
pub struct Links(Handle);

impl Links {
    /// Changes what a link does from now on; see [`link::Link::set_config`].
    ///
    /// # Errors
    /// [`ChangeError`] if it would be no link, or is gone.
    pub fn change(
        &self,
        link: usize,
        change: impl FnOnce(&Config) -> Config + Send + 'static,
    ) -> Result<(), ChangeError> {
        self.0.change(link, change)
    }

    /// Begins to capture what hosts send and receive: these, or all. Each has a file of its own below
    /// `folder`, in which each of its devices is an interface.
    ///
    /// # Errors
    /// [`CaptureError`] says what is in the way.
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
    /// There is none, or a file could not be written.
    pub fn end_capture(&self) -> Result<CaptureReport, CaptureError> {
        self.0.end_capture()
    }

    /// The time of the links: their rates, delays and outages change by it. It began when they did.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// What became of all packets so far; `None` if the world has ended. The thread that carries
    /// packets counts them for this; how late they were is read past it.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        self.0.report()
    }

    /// Packets that wait for a line or are on their way; `None` if the world has ended. That is all
    /// that some want to know again and again.
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
    // Before there are devices: some of it devices take over when they are made.
    for (parameter, value) in parameters(plan.forwards || has_uplink) {
        let set = namespace.sysctl(parameter, value);
        let what = || format!("{}: configuring its network", plan.name);
        set.map_err(|error| WorldError::System { what: what(), error })?;
    }
    // Programs of ordinary users may ping. In a user namespace there is one group.
    let group = |last: &str| namespace.sysctl("net.ipv4.ping_group_range", &format!("0 {last}"));
    if let Err(error) = group("2147483647").or_else(|_| group("0")) {
        tracing::debug!(%error, "only root can ping");
    }
    Ok(Host { plan: plan.clone(), namespace, timings: Arc::default(), _router: None })
}

/// What differs from a kernel's defaults.
fn parameters(forwards: bool) -> [(&'static str, &'static str); 11] {
    let forwarding = if forwards { "1" } else { "0" };
    [
        // A link carries what programs send, and nothing that a kernel sends of its own accord:
        // no search for neighbours or routers, and no addresses that would need one.
        ("net.ipv6.conf.default.addr_gen_mode", "1"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv4.ip_forward", forwarding),
        ("net.ipv6.conf.all.forwarding", forwarding),
        // What comes over another link than answers leave by is right where ways differ.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // The window that a fast link with a long delay needs: 256 MiB.
        ("net.ipv4.tcp_rmem", "4096 131072 268435456"),
        ("net.ipv4.tcp_wmem", "4096 16384 268435456"),
        // Servers of ordinary users may have any port.
        ("net.ipv4.ip_unprivileged_port_start", "0"),
        // Nothing of one run shall be remembered in the next.
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ]
}

fn pipes(plan: &Plan, devices: &Devices) -> Result<Vec<Pipe>, WorldError> {
    let pipe = |link: &LinkPlan| {
        let (from, to) = (&plan.hosts[link.from].name, &plan.hosts[link.to].name);
        let rng = Rng::new(plan.seed, &link::stream(from, to, 0));
        Pipe::new(link.config.clone(), rng, devices.at(link.to, link.from))
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
    /// The links that leave here.
    links: Vec<usize>,
    mtu: u32,
}

#[derive(Debug)]
struct Devices {
    list: Vec<Device>,
    /// The device of a host for what comes from, or goes to, another.
    towards: BTreeMap<(usize, usize), usize>,
}

impl Devices {
    fn of(plan: &Plan) -> Result<Self, WorldError> {
        let mut devices = Self { list: Vec::new(), towards: BTreeMap::new() };
        for hub in &plan.hubs {
            let Some(first) = hub.first() else { continue };
            let host = plan.links[*first].from;
            let members = hub.iter().map(|&link| plan.links[link].to).collect();
            devices.add(plan, host, members, "hub");
        }
        let mut seen = BTreeSet::new();
        for (index, link) in plan.links.iter().enumerate() {
            let ends = (link.from, link.to);
            let names = [&plan.hosts[ends.0].name, &plan.hosts[ends.1].name];
            if !seen.insert(ends) {
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

    fn at(&self, host: usize, peer: usize) -> usize {
        self.towards[&(host, peer)]
    }

    /// A host's devices, and what of theirs it forwards to groups.
    fn group_entries(&self, plan: &Plan, host: usize) -> (Vec<&str>, Vec<Entry>) {
        let own = || (0..self.list.len()).filter(|device| self.list[*device].host == host);
        let number = |peer| own().position(|device| device == self.at(host, peer));
        let entry = |GroupRoute { source, group, over }: &GroupRoute| {
            let links = || over.iter().map(|link| &plan.links[*link]);
            let from = links().find(|link| link.to == host).and_then(|link| number(link.from))?;
            let to = links().filter(|link| link.from == host).filter_map(|link| number(link.to));
            // Where it came from the hub repeats it.
            let to: BTreeSet<_> = to.filter(|to| *to != from).collect();
            let source = plan.hosts[*source].address;
            let entry = Entry { source, group: *group, from, to: to.into_iter().collect() };
            (!entry.to.is_empty()).then_some(entry)
        };
        let entries = plan.group_routes.iter().filter_map(entry).collect();
        (own().map(|device| self.list[device].name.as_str()).collect(), entries)
    }
}

/// A device's name: letters, digits, dots and dashes of `name`, and `tail`.
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
    // A socket that is bound to an address sends to groups over the device that has it: where a host
    // has several, programs have to say which.
    let first = own.first().map_or("lo", |device| &device.name);
    lines.push(format!("addr add {address}/32 dev {first}"));
    // A device with less than what IPv6 asks for (RFC 8200 §5) has none of it.
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
            let device = &devices.list[devices.at(link.from, link.to)].name;
            lines.push(format!("route add {group}/32 dev {device} src {address}"));
        }
    }
    for route in plan.routes.iter().filter(|route| route.at == index) {
        let link = &plan.links[route.over];
        let device = &devices.list[devices.at(link.from, link.to)];
        let (name, to) = (&device.name, &plan.hosts[route.to]);
        lines.push(format!("route add {}/32 dev {name} src {address}", to.address));
        if six(device) {
            lines.push(format!("route add {}/128 dev {name} src {address6}", to.address6));
        }
    }
    if let Some(over) = plan.default_route(index) {
        let link = &plan.links[over];
        let device = &devices.list[devices.at(link.from, link.to)].name;
        lines.push(format!("route add default dev {device} src {address}"));
    }
    let what = || format!("{name}: configuring its network");
    let failed = |error| WorldError::System { what: what(), error };
    host.namespace.ip(&lines).map_err(failed)
}
