//! Discovery of neighbours on this machine's links: beacons by multicast, in a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bp::discovery::{Config, Discovery, Found, Link, News, Statistics};
use engine::{Ecn, Rng, Time};

use crate::group::watch;
use crate::interface::addresses;
use crate::{Buffers, Clock, Group, Ready, ReceiveBuffers, Sent, Socket, Waker, interface};

/// Batches read from a socket per turn, and the pause after a turn with more.
const BATCHES: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait of the thread.
const TICK: Duration = Duration::from_secs(1);
/// Buffers of a socket: a few beacons.
const BUFFERS: Buffers = Buffers { receive: 1 << 16, send: 1 << 14 };
/// News that wait for the user; further ones are dropped.
const NEWS_MAX: usize = 1024;

/// Links with beacons, and settings of the discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Multicast groups with their ports, on each interface.
    pub groups: Vec<SocketAddr>,
    /// Settings of the discovery.
    pub discovery: Config,
}

/// State that the thread shares with its user.
#[derive(Debug, Default)]
struct State {
    /// Settings that the thread has not applied yet.
    config: Option<DiscoveryConfig>,
    news: Vec<News>,
    found: Vec<Found>,
    statistics: Statistics,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running discovery, until it is dropped.
#[derive(Debug)]
pub struct Discoverer {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Discoverer {
    /// Starts the thread. An interface that is missing or down is retried in each period.
    ///
    /// # Errors
    ///
    /// The system refuses a thread or a descriptor.
    pub fn start(config: &DiscoveryConfig, rng: Rng) -> io::Result<Self> {
        let (shared, waker) = (Arc::new(Shared::default()), Waker::new()?);
        let clock = Clock::start();
        let mut worker = Worker {
            discovery: Discovery::new(clock.now(), config.discovery.clone(), rng),
            members: Vec::new(),
            links: BTreeMap::new(),
            any: None,
            clock,
            waker: waker.clone(),
            shared: Arc::clone(&shared),
        };
        worker.attach(config);
        let thread = std::thread::Builder::new().name("discovery".to_owned());
        let thread = Some(thread.spawn(move || worker.run())?);
        Ok(Self { shared, waker, thread })
    }

    /// Replaces the settings.
    pub fn configure(&self, config: DiscoveryConfig) {
        self.shared.state().config = Some(config);
        self.waker.wake();
    }

    /// Removes and returns the news since the last call.
    #[must_use]
    pub fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.shared.state().news)
    }

    /// Returns the nodes that are found now.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        self.shared.state().found.clone()
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.state().statistics
    }
}

impl Drop for Discoverer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the discovery has panicked");
        }
    }
}

/// A group on an interface.
#[derive(Debug)]
struct Member {
    interface: String,
    address: SocketAddr,
    /// Sockets, while the interface works.
    sockets: Option<Sockets>,
}

#[derive(Debug)]
struct Sockets {
    group: Group,
    receiver: Socket,
    sender: Socket,
}

impl Sockets {
    fn open(interface: u32, address: SocketAddr) -> io::Result<Self> {
        let group = Group { interface, ..Group::new(address) };
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let sender = Socket::bind((any, 0).into(), BUFFERS)?;
        sender.aim(&group)?;
        Ok(Self { group, receiver: Socket::join(&group, BUFFERS)?, sender })
    }
}

impl Member {
    /// Opens the sockets if they are not, or belong to an earlier interface of the name.
    fn open(&mut self, any: &mut Option<OwnedFd>) -> io::Result<&Sockets> {
        let index = interface(&self.interface)?;
        let kept = self.sockets.take().filter(|sockets| sockets.group.interface == index);
        let sockets = match kept {
            Some(sockets) => sockets,
            None => {
                let sockets = Sockets::open(index, self.address)?;
                watch(any, &sockets.receiver)?;
                sockets
            }
        };
        Ok(self.sockets.insert(sockets))
    }
}

struct Worker {
    discovery: Discovery,
    members: Vec<Member>,
    /// Interfaces, and whether a beacon left by each in the last round.
    links: BTreeMap<String, (Link, bool)>,
    /// Epoll descriptor over the receivers.
    any: Option<OwnedFd>,
    clock: Clock,
    waker: Waker,
    shared: Arc<Shared>,
}

impl Worker {
    /// Replaces the groups.
    fn attach(&mut self, config: &DiscoveryConfig) {
        let all = config.interfaces.iter().flat_map(|interface| {
            let on_it = |address: &SocketAddr| (interface.clone(), *address);
            config.groups.iter().map(on_it)
        });
        let all: Vec<(String, SocketAddr)> = all.collect();
        self.members.retain(|member| all.contains(&(member.interface.clone(), member.address)));
        for (interface, address) in all {
            let is_it = |it: &Member| it.interface == interface && it.address == address;
            if !self.members.iter().any(is_it) {
                self.members.push(Member { interface, address, sockets: None });
            }
        }
        self.links.retain(|name, _| config.interfaces.contains(name));
        for interface in &config.interfaces {
            let link = Link { interface: interface.clone(), own: Vec::new() };
            self.links.entry(interface.clone()).or_insert((link, true));
        }
    }

    fn run(mut self) {
        let mut buffers = ReceiveBuffers::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            let config = self.shared.state().config.take();
            if let Some(config) = config {
                self.attach(&config);
                self.discovery.configure(now, config.discovery);
            }
            self.discovery.handle_timeout(now);
            if self.discovery.begin_beacons(now) {
                self.announce();
            }
            let has_more = self.receive(now, &mut buffers);
            self.publish();
            if has_more {
                // A flood does not take the processor; the kernel drops the rest.
                std::thread::sleep(PAUSE);
            }
            self.wait();
        }
    }

    /// Sends a beacon to each group, and reports interfaces that do not work any more.
    fn announce(&mut self) {
        let mut errors: BTreeMap<String, io::Error> = BTreeMap::new();
        let mut working: Vec<String> = Vec::new();
        for (name, (link, _)) in &mut self.links {
            match interface(name).and_then(addresses) {
                Ok(own) => link.own = own,
                Err(error) => {
                    link.own.clear();
                    errors.insert(name.clone(), error);
                }
            }
        }
        for member in &mut self.members {
            let Some((link, _)) = self.links.get(&member.interface) else { continue };
            let beacon = self.discovery.beacon(link, member.address.is_ipv4());
            match member.open(&mut self.any).and_then(|sockets| sockets.send(beacon.as_deref())) {
                Ok(()) => working.push(member.interface.clone()),
                Err(error) => {
                    member.sockets = None;
                    errors.insert(member.interface.clone(), error);
                }
            }
        }
        for (name, (_, works)) in &mut self.links {
            let worked = std::mem::replace(works, working.contains(name));
            if let (true, false, Some(error)) = (worked, *works, errors.get(name)) {
                tracing::warn!(interface = name, %error, "no discovery there; it is retried");
            }
        }
    }

    /// Takes the datagrams that have arrived. Returns whether there may be more.
    fn receive(&mut self, now: Time, buffers: &mut ReceiveBuffers) -> bool {
        let mut has_more = false;
        for member in &self.members {
            let Some(sockets) = &member.sockets else { continue };
            let Some((link, _)) = self.links.get(&member.interface) else { continue };
            let discovery = &mut self.discovery;
            for batch in 0.. {
                let received = sockets.receiver.receive(buffers, |arrival| {
                    for bytes in arrival.bytes.chunks(arrival.stride.max(1)) {
                        discovery.handle_datagram(now, arrival.from, link, bytes);
                    }
                });
                if received.unwrap_or(0) == 0 {
                    break;
                }
                if batch >= BATCHES {
                    has_more = true;
                    break;
                }
            }
        }
        has_more
    }

    fn publish(&mut self) {
        let mut state = self.shared.state();
        while let Some(news) = self.discovery.poll_news() {
            if state.news.len() < NEWS_MAX {
                state.news.push(news);
            }
        }
        if !state.found.iter().eq(self.discovery.found()) {
            state.found = self.discovery.found().cloned().collect();
        }
        state.statistics = self.discovery.statistics();
    }

    fn wait(&self) {
        let timeout = self.discovery.poll_timeout().since(self.clock.now()).min(TICK);
        let interest = Ready { readable: true, writable: false };
        let waited = match &self.any {
            Some(any) => self.waker.wait(any, interest, Some(timeout)).map(drop),
            None => self.waker.wait_alone(Some(timeout)),
        };
        if let Err(error) = waited {
            // Cannot happen; if it does, it must not become a busy loop.
            tracing::error!(%error, "waiting failed");
            std::thread::sleep(PAUSE);
        }
    }
}

impl Sockets {
    fn send(&self, beacon: Option<&[u8]>) -> io::Result<()> {
        let Some(bytes) = beacon else { return Ok(()) };
        let to = self.group.destination();
        match self.sender.send(to, None, Ecn::NotEct, bytes, bytes.len())? {
            Sent::All | Sent::Blocked(_) | Sent::Congested(_) => Ok(()),
            Sent::Refused(refusal) => Err(refusal.error.into()),
        }
    }
}
