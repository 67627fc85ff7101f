//! The transfers of a scenario between hosts of an emulated world, by the simulator's engines with
//! the same configuration, and by [tools].

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use emu::{Host, Report, World};
use engine::{PathId, PathInfo, Time};
use lab::link_spec::time;
use lab::metrics::TransferMetrics;
use lab::outcome::{ByFile, Observations};
use lab::plan::{self, EnginePlan, PathPlan};
use lab::run::{self, Run};
use lab::scenario::{Scenario, Transfer};
use lab::topology::Topology;
use link::{Back, PathOutages, Rate};
use rt::{Clock, Control, Driver, Group, Waker};
use sim::Store;
use transport::text::SpecError;

use super::error::TransfersError;
use super::host::{EmulatedHost, Planned};
use super::paths::KnownPath;
use super::tools::{self, Errand, Ports, Ties};
use crate::scratch::Scratch;
use crate::tool::Outcome;

/// Interval at which hosts are polled for completion.
const LOOK: Duration = Duration::from_millis(25);
/// Number of consecutive polls without activity for the world to be at rest: packets between a
/// link and a host are not visible.
const RESTS: u32 = 3;
/// Minimum silence, in addition to the time that packets need, while other traffic keeps links
/// busy.
const GRACE: Duration = Duration::from_secs(1);
/// Multicast TTL.
const GROUP_TTL: u32 = 64;
/// Minimum size of a socket buffer in bytes, granted by every system.
const BUFFER_MIN: usize = 200_000;
/// Lateness of hosts up to which they catch up with their rate, as over any real socket.
const CATCH_UP: Duration = Duration::from_millis(10);
/// Length of the datagram by which routes are compared, in bytes.
const DATAGRAM: usize = 1472;

/// Progress of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Ended transfers reported by hosts.
    pub ended: u64,
    /// Datagrams received by engines.
    pub received: u64,
    /// Bytes in them.
    pub received_bytes: u64,
}

/// State of a host, as its own thread sees it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Standing {
    at_rest: bool,
    ended: u64,
    sent: u64,
    received: u64,
    received_bytes: u64,
    /// Reason why its driver failed.
    failed: Option<String>,
}

/// A host with an engine.
struct Player<'a> {
    /// Number of the host.
    index: usize,
    host: &'a Host,
    config: rt::Config,
    peers: Vec<(PathId, SocketAddr)>,
    /// Groups, each with the device that leads there.
    groups: Vec<(PathId, SocketAddr, Option<&'a str>)>,
    emulated: EmulatedHost,
    /// Whether everything it sends is paced.
    paced: bool,
}

/// Runs the transfers of a resolved scenario in `world`, which was made from its
/// [`plan`](super::plan). Ends when all transfers have ended, at the scenario's time limit, or
/// when `cancelled` is set. Calls `progress` regularly.
///
/// # Errors
///
/// [`TransfersError`] gives the reason.
pub fn run(
    world: &World,
    scenario: &Scenario,
    contents: &[Bytes],
    cancelled: &AtomicBool,
    progress: impl FnMut(Progress),
) -> Result<Run, TransfersError> {
    let ports = Ports::default();
    carry_out(world, Stay::Begins, &ports, scenario, contents, cancelled, progress)
}

/// Runs transfers in a world that started before and has other traffic: ends when nothing more
/// happens to these transfers. Their start times are in the world's time.
///
/// # Errors
///
/// [`TransfersError`] gives the reason.
pub(super) fn run_in(
    world: &World,
    ports: &Ports,
    scenario: &Scenario,
    contents: &[Bytes],
    cancelled: &AtomicBool,
    progress: impl FnMut(Progress),
) -> Result<Run, TransfersError> {
    let topology = Topology::new(scenario)?;
    let mut ways = Vec::new();
    for stations in scenario.transfers.iter().flat_map(Transfer::ways) {
        let stations: Vec<_> = stations.into_iter().filter_map(|it| topology.node(it)).collect();
        let back: Vec<_> = stations.iter().copied().rev().collect();
        for link in [stations, back].iter().filter_map(|way| topology.route_by(way)).flatten() {
            ways.push((link, scenario.links[link].config()?));
        }
    }
    carry_out(world, Stay::Began { ways }, ports, scenario, contents, cancelled, progress)
}

/// Whether a world exists for its transfers only.
enum Stay {
    /// It starts and ends with them.
    Begins,
    /// It started before.
    Began {
        /// Links on their routes.
        ways: Vec<(usize, link::Config)>,
    },
}

fn carry_out(
    world: &World,
    stay: Stay,
    ports: &Ports,
    scenario: &Scenario,
    contents: &[Bytes],
    cancelled: &AtomicBool,
    progress: impl FnMut(Progress),
) -> Result<Run, TransfersError> {
    run::refuse_streams(scenario)?;
    let topology = Topology::new(scenario)?;
    plan::check_ways(scenario, &topology)?;
    let (own, own_contents) = own_transfers(scenario, contents);
    let folder = Scratch::new().map_err(|error| {
        let tool = "a folder for tools".to_owned();
        TransfersError::Tool { tool, error }
    })?;
    let company = Company {
        players: players(world, &own, &topology, &own_contents)?,
        errands: tools::errands(world, ports, scenario, &topology, contents, &folder)?,
    };
    let Played { hosts, outcomes, ended, clock } =
        play(world, stay, scenario, &company.errands, company.players, cancelled, progress)?;
    let time_s = clock.now().as_secs_f64();
    let report = world.links().report();
    let report = report.ok_or_else(|| TransfersError::Links(io::Error::other("they stopped")))?;
    let alone = scenario.transfers.len() == 1;
    let observations = Observations { alone, ..observations(&own, &hosts, &report) };
    let by_engines =
        observations.transfers(&own, &topology, &own_contents, |host, file, content| {
            hosts.get(&host).and_then(|emulated| emulated.store().get(file)) == Some(content)
        })?;
    let mut by_tools = Vec::new();
    for (errand, outcome) in company.errands.iter().zip(outcomes) {
        by_tools.push(errand.metrics(scenario, &topology, outcome.transpose()?)?);
    }
    let names: Vec<_> = scenario.nodes.keys().collect();
    let under_way = hosts.iter().map(|(host, emulated)| {
        (names[*host].clone(), emulated.engine().map_or(0, |engine| engine.under_way()))
    });
    Ok(Run {
        seed: scenario.seed,
        ended,
        time_s,
        events: hosts.values().map(|emulated| emulated.record().events).sum(),
        transfers: in_order(scenario, by_engines, by_tools),
        links: observations.links(scenario),
        gateways: BTreeMap::new(),
        bundle_nodes: BTreeMap::new(),
        under_way: under_way.filter(|(_, count)| *count > 0).collect(),
    })
}

/// Returns the scenario with slowlight's own transfers only, and their files.
fn own_transfers(scenario: &Scenario, contents: &[Bytes]) -> (Scenario, Vec<Bytes>) {
    let all = scenario.transfers.iter().cloned().zip(contents.iter().cloned());
    let (transfers, contents) = all.filter(|(transfer, _)| transfer.tool.is_none()).unzip();
    (Scenario { transfers, ..scenario.clone() }, contents)
}

/// Returns the results of all transfers, in the scenario's order.
fn in_order(
    scenario: &Scenario,
    by_engines: Vec<TransferMetrics>,
    by_tools: Vec<TransferMetrics>,
) -> Vec<TransferMetrics> {
    let (mut by_engines, mut by_tools) = (by_engines.into_iter(), by_tools.into_iter());
    let next = |transfer: &Transfer| match transfer.tool {
        Some(_) => by_tools.next(),
        None => by_engines.next(),
    };
    scenario.transfers.iter().filter_map(next).collect()
}

fn players<'a>(
    world: &'a World,
    scenario: &Scenario,
    topology: &Topology<'_>,
    contents: &[Bytes],
) -> Result<Vec<Player<'a>>, TransfersError> {
    let nodes: Vec<_> = scenario.nodes.iter().collect();
    let mut players = Vec::new();
    for part in plan::engines(scenario, topology)? {
        let (name, node) = nodes[part.host];
        let mut store = Store::of_host(scenario.seed, name);
        plan::fill_store(&mut store, scenario, name, node, contents)?;
        let mut player = player(world, scenario, topology, part, name, store)?;
        for crash in &node.crashes {
            player.emulated.plan(time(crash.at), Planned::Crash);
            if let Some(restart) = crash.restart {
                player.emulated.plan(time(restart), Planned::Restart);
            }
        }
        players.push(player);
    }
    for (index, transfer) in scenario.transfers.iter().enumerate() {
        for (begins, request) in plan::requests(scenario, transfer)? {
            let host = topology.node(begins);
            let start = time(transfer.start.unwrap_or_default());
            for player in players.iter_mut().filter(|player| Some(player.index) == host) {
                player.emulated.plan(start, Planned::Request(index, Box::new(request.clone())));
            }
        }
    }
    Ok(players)
}

fn player<'a>(
    world: &'a World,
    scenario: &Scenario,
    topology: &Topology<'_>,
    part: EnginePlan,
    name: &str,
    store: Store,
) -> Result<Player<'a>, TransfersError> {
    let EnginePlan { host: index, port, mut config, paths, interfaces: _ } = part;
    config.allow_catch_up(CATCH_UP);
    let (mut peers, mut groups, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let mut infos = Vec::new();
    for way in paths {
        match way {
            PathPlan::Peer { path, remote, link, info } => {
                infos.push(info.clone());
                peers.push((path, remote.into()));
                let first = vec![scenario.links[link].config()?.outages];
                let mut hosts = world.hosts().iter();
                let peer = hosts.position(|host| host.plan().address == *remote.ip());
                let route = peer.and_then(|peer| topology.route(peer, index));
                let last = route.and_then(|route| route.last().copied());
                let back = last.map(|last| scenario.links[last].config()).transpose()?;
                let back = back.map(|link| Back {
                    delay: link.delay.propagation_at(Time::ZERO),
                    outages: link.outages,
                });
                let outages = PathOutages { first, back };
                known.push(KnownPath { path, info, outages });
            }
            PathPlan::Listen { info } => infos.push(info),
            PathPlan::Group { path, remote, info, links, .. } => {
                infos.push(info.clone());
                let own: Vec<_> = links.iter().filter(|(from, _)| *from == index).collect();
                let device = own.first().map(|(_, link)| world.device(*link));
                groups.push((path, remote.into(), device));
                let first = own.iter().map(|(_, link)| Ok(scenario.links[*link].config()?.outages));
                let first = first.collect::<Result<_, SpecError>>()?;
                let outages = PathOutages { first, back: None };
                known.push(KnownPath { path, info, outages });
            }
        }
    }
    // As in the simulator, an unexpected peer has a path like the first expected one.
    let stranger = infos.first().cloned().unwrap_or_else(|| PathInfo::datagram(DATAGRAM));
    let paced = infos.iter().all(|info| info.rate_bps.is_some());
    // Batches are as long as the slowest route allows.
    let slowest = infos.into_iter().max_by_key(|info| info.transmission_time(DATAGRAM));
    let host = &world.hosts()[index];
    let listen = SocketAddr::from((host.plan().address, port));
    let mut driver = rt::Config::new(listen, slowest.unwrap_or_else(|| stranger.clone()));
    driver.tick = LOOK;
    if let Some(rate) = incoming(scenario, name)? {
        // A buffer for 125 ms is plenty, and systems grant it without a warning.
        let receive = usize::try_from(rate / 64).unwrap_or(usize::MAX);
        driver.buffers.receive = driver.buffers.receive.min(receive.max(BUFFER_MIN));
    }
    if paced {
        driver.buffers.send = BUFFER_MIN;
    }
    let emulated = EmulatedHost::new(name, scenario.seed, config, store, known, stranger);
    let emulated = emulated.timed(host.timings());
    Ok(Player { index, host, config: driver, peers, groups, emulated, paced })
}

/// Rate at which packets can reach a host, in bit/s; `None` if a link has none.
fn incoming(scenario: &Scenario, name: &str) -> Result<Option<u64>, SpecError> {
    let mut sum = Some(0);
    for link in scenario.links.iter().filter(|link| link.to.as_deref() == Some(name)) {
        let rate = match link.config()?.rate {
            Rate::Constant(rate) => Some(rate),
            Rate::Infinite | Rate::Steps(_) => None,
        };
        sum = sum.zip(rate).map(|(sum, rate)| rate.saturating_add(sum));
    }
    Ok(sum)
}

/// Participants of a run.
struct Company<'a> {
    players: Vec<Player<'a>>,
    errands: Vec<Errand<'a>>,
}

/// Results of a run.
struct Played {
    /// Hosts.
    hosts: BTreeMap<usize, EmulatedHost>,
    /// Outcomes of the errands in order; `None` if one never started.
    outcomes: Vec<Option<Result<Outcome, TransfersError>>>,
    /// Reason why the run ended.
    ended: String,
    /// Clock of the world.
    clock: Clock,
}

/// Runs all participants.
fn play(
    world: &World,
    stay: Stay,
    scenario: &Scenario,
    errands: &[Errand<'_>],
    players: Vec<Player<'_>>,
    cancelled: &AtomicBool,
    progress: impl FnMut(Progress),
) -> Result<Played, TransfersError> {
    let until = scenario.limits.time.map_or(Time::MAX, time);
    let stop = AtomicBool::new(false);
    let at_work = AtomicUsize::new(errands.len());
    let standings: Vec<_> = players.iter().map(|_| Mutex::new(Standing::default())).collect();
    let (ready, all_ready) = mpsc::channel();
    thread::scope(|scope| {
        let mut begins = Vec::new();
        let mut threads = Vec::new();
        for (player, standing) in players.into_iter().zip(&standings) {
            let (begin, began) = mpsc::channel();
            begins.push(begin);
            let (ready, stop) = (ready.clone(), &stop);
            threads.push(scope.spawn(move || player.play(standing, &ready, &began, stop)));
        }
        let mut carriers = Vec::new();
        for errand in errands {
            let (begin, began) = mpsc::channel();
            begins.push(begin);
            let ready = ready.clone();
            let ties = Ties { ready, begin: began, stop: &stop, at_work: &at_work };
            carriers.push(scope.spawn(move || errand.run(&ties)));
        }
        drop(ready);
        // If one host fails, the others notice by the end of their channels.
        let failed = await_all(&all_ready, begins.len(), cancelled, &stop).err();
        let begin = || match stay {
            Stay::Begins => world.begin().map_err(TransfersError::Links),
            Stay::Began { .. } => Ok(world.clock()),
        };
        let started = failed.map_or_else(begin, Err);
        let clock = started.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        for begin in begins {
            // A failed host has reported the reason.
            let _ = begin.send(clock);
        }
        let errands = (errands.len(), &at_work);
        let watch = Watch { world, stay, standings: &standings, errands, clock, until };
        let ended = watch.until_over(cancelled, progress);
        stop.store(true, Ordering::Relaxed);
        let hosts = threads.into_iter().filter_map(|thread| thread.join().ok().flatten());
        let hosts = hosts.collect();
        let outcomes = carriers.into_iter().map(|thread| thread.join().ok().flatten()).collect();
        Ok(Played { hosts, outcomes, ended, clock })
    })
}

/// Waits until all participants are ready. If `cancelled`, sets `stop`, and participants still
/// preparing give up.
fn await_all(
    ready: &mpsc::Receiver<Result<(), TransfersError>>,
    count: usize,
    cancelled: &AtomicBool,
    stop: &AtomicBool,
) -> Result<(), TransfersError> {
    let mut left = count;
    while left > 0 {
        if cancelled.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
        match ready.recv_timeout(LOOK) {
            Ok(who) => {
                who?;
                left -= 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TransfersError::Links(io::Error::other("a host is gone")));
            }
        }
    }
    Ok(())
}

impl Player<'_> {
    fn play(
        self,
        standing: &Mutex<Standing>,
        ready: &mpsc::Sender<Result<(), TransfersError>>,
        begin: &mpsc::Receiver<Clock>,
        stop: &AtomicBool,
    ) -> Option<(usize, EmulatedHost)> {
        let index = self.index;
        let name = self.host.plan().name.clone();
        let paced = self.paced;
        let mut driver = match self.open() {
            Ok(driver) => driver,
            Err(error) => {
                let _ = ready.send(Err(TransfersError::Host { host: name, error }));
                return None;
            }
        };
        if paced {
            // Sends packets on time on a busy machine. Without the privilege they are as late as
            // ordinary programs.
            let _ = rt::hurry();
        }
        let _ = ready.send(Ok(()));
        driver.set_clock(begin.recv().ok()?);
        let ran = driver.run(stop, |_, emulated, _| {
            let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
            *standing = Standing::from_host(emulated);
            Control::Continue
        });
        let emulated = driver.into_engine();
        if let Err(error) = ran {
            let failed = Some(format!("{name}: {error}"));
            let mut standing = standing.lock().unwrap_or_else(PoisonError::into_inner);
            *standing = Standing { failed, ..Standing::from_host(&emulated) };
        }
        Some((index, emulated))
    }

    /// Enters the host and opens its sockets.
    fn open(self) -> io::Result<Driver<EmulatedHost>> {
        self.host.enter()?;
        let mut driver = Driver::without_store(self.config, self.emulated, Waker::new()?)?;
        for (path, address) in self.peers {
            driver.add_peer_at(path, address);
        }
        for (path, address, device) in self.groups {
            let interface = device.map_or(Ok(0), rt::interface)?;
            driver.join_group_at(path, Group { address, interface, ttl: GROUP_TTL })?;
        }
        Ok(driver)
    }
}

impl Standing {
    fn from_host(emulated: &EmulatedHost) -> Self {
        let record = emulated.record();
        Self {
            at_rest: emulated.is_at_rest(),
            ended: record.ends.len() as u64,
            sent: record.stats.sent.packets,
            received: record.stats.received.packets,
            received_bytes: record.stats.received.payload_bytes,
            failed: None,
        }
    }
}

/// Monitor of a run.
struct Watch<'a> {
    world: &'a World,
    stay: Stay,
    standings: &'a [Mutex<Standing>],
    /// Number of transfers by tools, and of unfinished ones.
    errands: (usize, &'a AtomicUsize),
    clock: Clock,
    until: Time,
}

impl Watch<'_> {
    /// Waits until no further activity is possible. Returns the reason.
    fn until_over(&self, cancelled: &AtomicBool, mut progress: impl FnMut(Progress)) -> String {
        let (mut before, mut rests, mut still_since) = (Vec::new(), 0, None);
        loop {
            let now = self.clock.now();
            let standings: Vec<_> = self
                .standings
                .iter()
                .map(|standing| standing.lock().unwrap_or_else(PoisonError::into_inner).clone())
                .collect();
            let sum = |of: fn(&Standing) -> u64| standings.iter().map(of).sum::<u64>();
            let at_work = self.errands.1.load(Ordering::Relaxed);
            progress(Progress {
                elapsed: now.since(Time::ZERO),
                ended: sum(|standing| standing.ended) + (self.errands.0 - at_work) as u64,
                received: sum(|standing| standing.received),
                received_bytes: sum(|standing| standing.received_bytes),
            });
            if let Some(why) = standings.iter().find_map(|standing| standing.failed.as_ref()) {
                return format!("stuck: {why}");
            }
            if cancelled.load(Ordering::Relaxed) {
                return "cancelled".to_owned();
            }
            if now >= self.until {
                return "time limit".to_owned();
            }
            let at_rest = at_work == 0 && standings.iter().all(|standing| standing.at_rest);
            let still = at_rest && standings == before;
            still_since = if still { still_since.or(Some(now)) } else { None };
            rests = if still && self.links_are_empty() { rests + 1 } else { 0 };
            if rests >= RESTS || still_since.is_some_and(|since| self.has_waited(since, now)) {
                return "idle".to_owned();
            }
            before = standings;
            thread::sleep(LOOK.min(self.until.since(now)));
        }
    }

    /// Whether everything in flight at the start of the silence has arrived, with time for a reply,
    /// in a world with other traffic.
    fn has_waited(&self, since: Time, now: Time) -> bool {
        let Stay::Began { ways } = &self.stay else { return false };
        if now.since(since) < GRACE {
            return false;
        }
        let Some(report) = self.world.links().report() else { return true };
        let light = |config: &link::Config| config.delay.propagation_at(now);
        let queue = |index: usize, config: &link::Config| {
            let bits = 8 * report.links.get(index).map_or(0, |link| link.stats.queued.bytes);
            let rate = config.rate.bps_at(now).filter(|rate| *rate > 0);
            rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bits as f64 / rate as f64))
        };
        let way = |(index, config): &(usize, link::Config)| light(config) + queue(*index, config);
        now.since(since) > GRACE + ways.iter().map(way).sum::<Duration>()
    }

    fn links_are_empty(&self) -> bool {
        // Stopped links carry nothing.
        self.world.links().on_the_way().is_none_or(|packets| packets == 0)
    }
}

fn observations(
    scenario: &Scenario,
    hosts: &BTreeMap<usize, EmulatedHost>,
    report: &Report,
) -> Observations {
    let mut answers = vec![None; scenario.transfers.len()];
    let mut ends = ByFile::default();
    for (host, emulated) in hosts {
        for (transfer, answer) in &emulated.record().answers {
            let before: Result<(), String> = answers[*transfer].take().unwrap_or(Ok(()));
            answers[*transfer] = Some(before.and(answer.clone()));
        }
        for (at, end) in &emulated.record().ends {
            ends.push(*host, end.name.clone(), (*at, end.clone()));
        }
    }
    let of_host = |host| hosts.get(&host);
    Observations {
        answers,
        begins: ByFile::default(),
        latencies: ByFile::default(),
        ends,
        hosts: (0..scenario.nodes.len())
            .map(|host| {
                of_host(host).map(|emulated| emulated.record().stats.clone()).unwrap_or_default()
            })
            .collect(),
        repairs: (0..scenario.nodes.len())
            .map(|host| of_host(host).and_then(EmulatedHost::engine)?.counters().repairs)
            .collect(),
        buffers: vec![None; scenario.nodes.len()],
        bundles: vec![None; scenario.nodes.len()],
        links: report.links.iter().map(|link| link.stats.clone()).collect(),
        alone: true,
    }
}
