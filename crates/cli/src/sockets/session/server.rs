//! Receives files, relays blocks for other engines (LTP-T), and serves files (Saratoga).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crossbeam_channel::Receiver;
use engine::{PathId, Time};
use ltp::ltpt;
use service::monitor::{Monitor, Status, Tally, Transfer};
use transport::contract::Feature;
use transport::door::{self, Door};
use transport::protocol::{Kind, Protocol};
use transport::{Configuration, Ended, Event, Progress, Reception, Role, TransferId, Transport};
use tree::{Existing, Unpacked};
use ut::Receives;

use super::closing::Closing;
use super::output::Output;
use super::strangers::Strangers;
use super::{Driver, Routes, Runner, configured, routes};
use crate::exit::Exit;
use crate::show;
use crate::sockets::beacons::Beacons;
use crate::sockets::cfdp_over_node::Node;
use crate::sockets::contacts;
use crate::sockets::directories::announce_space;
use crate::sockets::outcome::{self, Measures, Outcome};
use crate::sockets::peers::join;
use crate::sockets::screen::{Bar, Screen, Shown};
use crate::sockets::transfer::{self, Options};
use crate::state;
use crate::stop::stop_flag;

/// Time between looks at progress.
const TICK: Duration = Duration::from_millis(100);

/// Silence of a sender that requested the end of a transaction again and received it, or that may
/// send another pack of a folder.
const REPEATED: Duration = Duration::from_secs(2);

/// Service of this end to its peers.
pub(crate) struct Service {
    pub(crate) listen: SocketAddr,
    pub(crate) root: PathBuf,
    /// The number given to this end, if any.
    pub(crate) entity: Option<u64>,
    /// Whether the first datagrams of each peer decide about the protocol.
    pub(crate) takes_any: bool,
    /// Whether to exit after the first file.
    pub(crate) once: bool,
    pub(crate) peers_max: usize,
    /// Treatment of files that exist.
    pub(crate) existing: Existing,
    /// Role of this process.
    pub(crate) role: Role,
    /// Beacons of this end, if it sends any.
    pub(crate) beacons: Option<Beacons>,
    /// Multicast group to receive.
    pub(crate) group: Option<rt::Group>,
    /// Routes of blocks for other engines.
    pub(crate) routes: Routes,
    /// Whether received files go to standard output.
    pub(crate) stdout: bool,
    /// Unix socket for reports about this process, if it has one.
    pub(crate) socket: Option<PathBuf>,
}

/// Default number of a receiver.
const ENTITY: u64 = 2;

/// Receives until a signal, or with `once` until the first file is complete or has failed.
pub(crate) fn serve(options: Options, service: Service, node: Option<Node>) -> Result<ExitCode> {
    let (mut runner, mut server) = prepare(options, service, node).map_err(transfer::usage)?;
    server.monitor = Some(server.monitor(&runner)?);
    if server.service.stdout {
        server.output = Some(Output::start(&server.service.root)?);
    }
    let stop = stop_flag()?;
    runner.run(&stop, &mut |now, transport, event| server.on(now, transport, event))?;
    server.report_unpacked();
    // What was received is confirmed: it is written before anything else is reported.
    server.output.map_or(Ok(()), Output::end)?;
    server.failure.map_or(Ok(()), Err)?;
    let is_whole = server.first == Some(true) && !server.is_any_lost;
    let failed = server.service.once && !is_whole;
    Ok(Exit::if_succeeded(!failed).into())
}

/// Validates the command.
fn prepare(options: Options, service: Service, node: Option<Node>) -> Result<(Runner, Server)> {
    let waker = rt::Waker::new().context("cannot start")?;
    let screen = Screen::new(options.json);
    let (reports, unpacked) = crossbeam_channel::unbounded();
    let open_store = || -> Result<rt::FileStore> {
        // Of two files of one name for standard output, the second must not replace the first.
        let existing = if service.stdout { Existing::Fail } else { service.existing };
        let unpack = rt::Unpack { existing, keeps_packs: service.stdout, reports };
        let config =
            rt::StoreConfig { unpack: Some(unpack), ..rt::StoreConfig::new(&service.root) };
        let mut store = rt::FileStore::open(config, &waker)?;
        for protocol in protocols(&options, &service) {
            super::sweep(&mut store, protocol.kind.adapter().spools())?;
        }
        Ok(store)
    };
    let Some(mut node) = node else {
        let store = open_store()?;
        let opened = if service.takes_any { open_door } else { open };
        let driver = opened(&options, &service, store, waker, &screen)?;
        return Ok((
            Runner::Socket(Box::new(driver)),
            Server::new(options, service, screen, unpacked),
        ));
    };
    node.set_strangers(service.peers_max);
    let (entity, socket) = (node.entity, node.socket().to_owned());
    let driver = node.run_with(open_store()?, waker, TICK, Receives::All)?;
    screen.print(format_args!(
        "receiving by the node at {} into {} as entity {entity}",
        socket.display(),
        service.root.display()
    ));
    Ok((Runner::Node(Box::new(driver)), Server::new(options, service, screen, unpacked)))
}

/// Protocols that the service receives.
fn protocols(options: &Options, service: &Service) -> Vec<Protocol> {
    if service.takes_any { door::protocols().collect() } else { vec![options.protocol.clone()] }
}

/// The driver of a socket where the first datagrams of each peer decide about the protocol.
fn open_door(
    options: &Options,
    service: &Service,
    store: rt::FileStore,
    waker: rt::Waker,
    screen: &Screen,
) -> Result<Driver> {
    let mut members = Vec::new();
    let mut info = None;
    for protocol in protocols(options, service) {
        let options = Options { protocol: protocol.clone(), ..options.clone() };
        let (mut configuration, path) =
            configured(&options, service.listen, service.entity, ENTITY, None, service.role)?;
        configuration.store_unnamed(None);
        info.get_or_insert(path);
        members.push((configuration, protocol));
    }
    let path = info.context("no protocol")?;
    let door = Door::new(&members, &mut rt::entropy().context("no entropy")?);
    let settings = rt::Config {
        peers_max: service.peers_max,
        tick: TICK,
        ..rt::Config::new(service.listen, path)
    };
    let mut driver = super::open(settings, Box::new(door), store, waker)?;
    let own = service.entity.unwrap_or(ENTITY);
    options.contacts.follow(&mut driver, own, None, options.light_time())?;
    let names: Vec<_> = members.iter().map(|(_, protocol)| protocol.to_string()).collect();
    screen.print(format_args!(
        "receiving on {} into {} by {}",
        driver.local(),
        service.root.display(),
        names.join(", ")
    ));
    Ok(driver)
}

/// The driver of a server's socket.
fn open(
    options: &Options,
    service: &Service,
    store: rt::FileStore,
    waker: rt::Waker,
    screen: &Screen,
) -> Result<Driver> {
    let (mut configuration, path) =
        configured(options, service.listen, service.entity, ENTITY, None, service.role)?;
    let number = configuration.number();
    let mut peers = service.routes.settle(configuration.as_mut())?;
    peers.extend(named_peers(configuration.as_mut(), options, service.beacons.is_some())?);
    // The driver numbers the path of the group after theirs.
    let group = PathId(u32::try_from(peers.len())?);
    if let Some(beacons) = &service.beacons {
        beacons.settle(configuration.as_mut(), group, service.entity, ENTITY)?;
    }
    if service.group.is_some() {
        super::join_group(configuration.as_mut(), group);
    }
    configuration.store_unnamed(None);
    let transport = configuration.build(rt::entropy().context("no entropy")?);
    let settings = rt::Config {
        peers_max: service.peers_max,
        tick: TICK,
        udp_lite: super::udp_lite(options, false),
        ..rt::Config::new(service.listen, path)
    };
    let mut driver = super::open(settings, transport, store, waker)?;
    let own = number.or(service.entity).unwrap_or(ENTITY);
    options.contacts.follow(&mut driver, own, None, options.light_time())?;
    for address in peers {
        driver.add_peer(address);
    }
    if let Some(beacons) = &service.beacons {
        announce_space(driver.engine_mut().as_mut(), &service.root);
        let path = join(&mut driver, beacons.group)?;
        ensure!(path == group, "the group has another number than the next");
    }
    join_group(&mut driver, service, screen)?;
    let word = if configuration.cfdp().is_some() { "entity" } else { "engine" };
    let number = number.map(|number| format!(" as {word} {number}")).unwrap_or_default();
    screen.print(format_args!(
        "receiving on {} into {} by {}{number}",
        driver.local(),
        service.root.display(),
        options.full_protocol()?,
    ));
    if !options.protocol.kind.is_entity() {
        service.routes.print(screen, options.protocol.kind.has(Feature::Relays));
    }
    Ok(driver)
}

/// Receives the group of a sender, if the service has one.
pub(super) fn join_group(driver: &mut Driver, service: &Service, screen: &Screen) -> Result<()> {
    if let Some(group) = service.group {
        join(driver, group)?;
        screen.print(format_args!("hearing the group {}", group.address));
    }
    Ok(())
}

/// Addresses of the peers in the settings; the driver numbers their paths from zero.
fn named_peers(
    configuration: &mut dyn Configuration,
    options: &Options,
    has_group: bool,
) -> Result<Vec<SocketAddr>> {
    let named = super::named_peers(configuration, options)?;
    for ((_, name), path) in named.iter().zip(0..) {
        if let Some(peers) = configuration.named_peers() {
            peers.apply_to(PathId(path), name);
        }
        if let Some(beacons) = configuration.beacons() {
            beacons.add(PathId(path), None);
        }
    }
    let has_beacons = configuration.beacons().is_some_and(|beacons| beacons.is_on());
    let has_peers = !has_beacons || has_group || !named.is_empty();
    let hint = "beacons go to peers that are known: name them in [remotes], as [remotes.\"192.0.2.7:7542\"]";
    has_peers
        .then(|| named.into_iter().map(|(address, _)| address).collect())
        .ok_or_else(|| super::within(options, anyhow::anyhow!(hint)))
}

/// Minimum interval of checks of the free space.
const ROOM: Duration = Duration::from_secs(1);

struct Server {
    options: Options,
    service: Service,
    screen: Screen,
    under_way: BTreeMap<TransferId, UnderWay>,
    /// Whether the first file is complete.
    first: Option<bool>,
    closing: Closing,
    /// Whether the first transfer was over before its sender could be informed.
    is_repeated: bool,
    /// Time of the next check of the free space.
    room_at: Time,
    /// Peers of other protocols.
    strangers: Strangers,
    /// Whether packs of a folder were received.
    has_packs: bool,
    /// Reports about packs.
    unpacked: Receiver<Unpacked>,
    /// Whether a file was lost for lack of room.
    is_any_lost: bool,
    failure: Option<anyhow::Error>,
    /// Writer to standard output, if received files go there.
    output: Option<Output>,
    /// Reports about this process.
    monitor: Option<Monitor>,
    tally: Tally,
    contact: rt::Contact,
}

/// Progress of a transfer.
struct UnderWay {
    bar: Bar,
    /// Address of the sender, if it is known.
    peer: Option<SocketAddr>,
    /// Bytes that an earlier process had received.
    before: u64,
    resumed: bool,
}

impl UnderWay {
    /// Bytes received since this process began. Of a transfer that failed the last report counts.
    fn moved(&self, transport: &dyn Transport, ended: &Ended) -> u64 {
        let transfers = transport.transfers();
        let last = transfers.iter().find(|report| report.id == ended.id);
        let received = match (ended.is_success(), last) {
            (true, _) => ended.size,
            (false, Some(report)) => report.bytes,
            (false, None) => self.bar.moved(),
        };
        received.saturating_sub(self.before)
    }
}

impl Server {
    fn new(
        options: Options,
        service: Service,
        screen: Screen,
        unpacked: Receiver<Unpacked>,
    ) -> Self {
        let own = (!service.takes_any).then_some(&options.protocol);
        let strangers = Strangers::new(own);
        Self {
            options,
            service,
            screen,
            under_way: BTreeMap::new(),
            first: None,
            closing: Closing::default(),
            is_repeated: false,
            room_at: Time::ZERO,
            strangers,
            unpacked,
            has_packs: false,
            is_any_lost: false,
            failure: None,
            output: None,
            monitor: None,
            tally: Tally::default(),
            contact: rt::Contact::Open,
        }
    }

    /// Begins to report about this process.
    fn monitor(&self, runner: &Runner) -> Result<Monitor> {
        let (protocol, address) = match runner {
            Runner::Socket(driver) => {
                let names = protocols(&self.options, &self.service);
                let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                (names.join(", "), driver.local().to_string())
            }
            Runner::Node(_) => (self.options.full_protocol()?.to_string(), "a node".to_owned()),
        };
        let status = Status::begin("receiver", &protocol, &self.service.root, &address);
        let reports = state::reports(None);
        Monitor::begin(status, reports.as_deref(), self.service.socket.as_deref())
            .map_err(|error| transfer::usage(error.into()))
    }

    /// Reports about this process.
    fn report(&mut self, now: Time, transport: &dyn Transport) {
        let Some(monitor) = self.monitor.as_mut().filter(|monitor| monitor.is_due()) else {
            return;
        };
        let reports = transport.transfers();
        let moved = |report: &Progress| {
            let before = self.under_way.get(&report.id).map_or(report.bytes, |it| it.before);
            report.bytes.saturating_sub(before)
        };
        let moved = self.tally.delivered_bytes + reports.iter().map(moved).sum::<u64>();
        let transfers = reports.into_iter().map(|report| Transfer {
            id: report.id.to_string(),
            name: report.name,
            bytes: report.bytes,
            confirmed: None,
            size: report.size,
        });
        monitor.report(moved, |status| {
            status.pause = contacts::described(now, self.contact);
            status.transfers = transfers.collect();
            status.tally.clone_from(&self.tally);
        });
    }

    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick => {
                self.progress(now, transport);
                self.room(now, transport);
                self.report_unpacked();
                self.report(now, transport);
                if self.output.as_ref().is_some_and(Output::has_failed) {
                    self.failure = Some(anyhow::anyhow!("standard output has failed"));
                }
            }
            // A receiver has no single peer that could refuse.
            rt::Event::Refused(_) => {}
            rt::Event::NewPeer { from, datagram } => {
                if let Some(text) = self.strangers.described(now, from, &datagram) {
                    self.screen.print(text);
                }
            }
            rt::Event::Contact(contact) => {
                self.contact = contact;
                if let Some(text) = contacts::described(now, contact) {
                    self.screen.print(text);
                }
            }
            rt::Event::Indication(event) => self.event(now, transport, event),
        }
        let has_more = self.is_repeated || self.has_packs;
        let least = if has_more { REPEATED } else { Duration::ZERO };
        // A folder is several transfers.
        let is_waiting = self.has_packs && !transport.transfers().is_empty();
        let is_closed = self.service.once
            && !is_waiting
            && self.closing.check(now, transport, least, self.options.light_time());
        if is_closed || self.failure.is_some() { rt::Control::Stop } else { rt::Control::Continue }
    }

    /// Reports what became of received packs.
    fn report_unpacked(&mut self) {
        for unpacked in self.unpacked.try_iter() {
            self.tally.delivered_files += unpacked.files;
            self.screen.print(outcome::unpacked_line(&unpacked));
        }
    }

    /// Protocol of a transfer.
    fn protocol(&self, id: &TransferId) -> Protocol {
        let kind = id.protocol().and_then(Kind::named);
        kind.map_or_else(|| self.options.protocol.clone(), Protocol::plain)
    }

    /// Checks the free space, which beacons announce, at intervals.
    fn room(&mut self, now: Time, transport: &mut dyn Transport) {
        if let Some(beacons) = self.service.beacons.as_ref().filter(|_| now >= self.room_at) {
            self.room_at = now + beacons.interval.max(ROOM);
            announce_space(transport, &self.service.root);
        }
    }

    fn event(&mut self, now: Time, transport: &dyn Transport, event: Event) {
        match transport.reported(event) {
            Event::Receiving(reception) => self.receiving(now, reception),
            Event::Ended(ended) if !ended.at_sender => self.ended(now, transport, &ended),
            Event::Ended(ended) => self.served(&ended),
            Event::Abandoned { id, why } => self.abandoned(now, &id, &why),
            Event::Repeated { id, condition, is_whole } => {
                self.repeated(now, &id, &condition, is_whole);
            }
            Event::Continued(id) => {
                if let Some(under_way) = self.under_way.remove(&id) {
                    under_way.bar.clear();
                }
            }
            Event::NoRoom { id, name, bytes } => self.no_room(&id, &name, bytes),
            Event::Restored(transfers) => self.restored(now, transport, transfers),
            Event::Message { sender, content } => {
                self.failure = message(sender, &content, &self.options, &self.screen).err();
            }
            Event::Relay(indication) => self.relayed(now, &indication),
            Event::Notice(text) => self.screen.print(text),
            Event::Warning(text) => tracing::warn!("{text}"),
            Event::Log(text) => tracing::debug!("{text}"),
            Event::Listing(_)
            | Event::Begins(_)
            | Event::Latency(..)
            | Event::Entity(_)
            | Event::Lost(_)
            | Event::Stream(_)
            | Event::Left
            | Event::Update => {}
        }
    }

    fn receiving(&mut self, now: Time, reception: Reception) {
        let Reception { id, name, size, resumed, from: peer } = reception;
        let entity = id.originator().filter(|_| !name.is_empty());
        let from = match (entity, peer) {
            (Some(number), Some(peer)) => format!(" from entity {number} at {peer}"),
            (Some(number), None) => format!(" from entity {number}"),
            (None, Some(peer)) => format!(" from {peer}"),
            (None, None) => String::new(),
        };
        let size_text = size.map(|size| format!(" ({})", show::bytes(size as f64)));
        let about = match &*name {
            "" => "a file".to_owned(),
            name => format!("{}{}", name.escape_debug(), size_text.unwrap_or_default()),
        };
        let had = match resumed {
            0 => String::new(),
            bytes => format!(", of which {} are here", show::bytes(bytes as f64)),
        };
        self.screen.print(format_args!("{id}: receiving {about}{had}{from}"));
        let bar = Bar::new(self.screen.bar(&name, size.filter(|_| !name.is_empty())), now);
        let under_way = UnderWay { bar, peer, before: resumed, resumed: resumed > 0 };
        if resumed > 0 {
            self.under_way.insert(id, under_way);
        } else {
            self.under_way.entry(id).or_insert(under_way);
        }
    }

    /// Shows transfers that an earlier process left.
    fn restored(&mut self, now: Time, transport: &dyn Transport, transfers: usize) {
        if transfers > 0 {
            self.screen.print(format_args!(
                "{transfers} interrupted transactions resume when their senders do"
            ));
        }
        for report in transport.transfers() {
            let bar = Bar::new(self.screen.bar(&report.name, report.size), now);
            let under_way = UnderWay { bar, peer: None, before: report.bytes, resumed: true };
            self.under_way.insert(report.id, under_way);
        }
    }

    fn ended(&mut self, now: Time, transport: &dyn Transport, ended: &Ended) {
        let under_way = self.under_way.remove(&ended.id);
        let measures = Measures {
            peer: under_way.as_ref().and_then(|it| it.peer).or(ended.address),
            elapsed: under_way.as_ref().map(|it| now.since(it.bar.began)),
            moved: match &under_way {
                Some(it) => it.moved(transport, ended),
                None if ended.is_success() => ended.size.saturating_sub(ended.resumed),
                None => 0,
            },
            datagrams: None,
            resumed: under_way.as_ref().is_some_and(|it| it.resumed),
        };
        if let Some(under_way) = under_way {
            under_way.bar.clear();
        }
        let file = self.service.root.join(ended.local_name());
        let outcome = Outcome::from_ended(&self.protocol(&ended.id), ended, file, measures);
        let (id, name) = (&ended.id, ended.local_name());
        let has_file = ended.transaction.is_none() || !name.is_empty();
        let name = match name {
            "" => "a file".to_owned(),
            name => name.escape_debug().to_string(),
        };
        match &ended.result {
            Ok(()) if has_file => {
                self.screen.print(format_args!("{id}: received {name}: {}", outcome.summary()));
                self.tally.delivered_files += u64::from(!tree::is_pack(ended.local_name()));
                self.tally.delivered_bytes += measures.moved;
                let file = self.service.root.join(ended.local_name());
                let taken = self.output.as_mut().map(|output| output.take(&file));
                self.failure = taken.and_then(Result::err);
            }
            // A put with messages only was printed on reception.
            Ok(()) => {}
            Err(why) => {
                let status = outcome::status(ended, "file");
                let text = format!("{id}: {name} failed: {why}{status}");
                self.screen.print(&text);
                self.tally.fail(text);
            }
        }
        if self.options.json {
            self.failure = outcome.print().err();
        }
        if self.first.is_none() && measures.resumed && ended.transaction.is_some() {
            // A transfer that an earlier process had almost completed ends before its sender is
            // known, which receives the end on request.
            self.is_repeated = transport.transfers().iter().all(|report| report.id != ended.id);
        }
        if tree::is_pack(ended.local_name()) {
            self.has_packs = true;
            self.first = Some(self.first.unwrap_or(true) && ended.is_success());
            self.closing.restart(now);
        } else {
            self.first.get_or_insert(ended.is_success());
            self.closing.begin(now);
        }
    }

    /// Prints the end of a file that was sent at a peer's request.
    fn served(&self, ended: &Ended) {
        let (id, is_request) = (&ended.id, ended.transaction.is_none());
        let name = match &*ended.name {
            "" => "the listing of the root".to_owned(),
            name => name.escape_debug().to_string(),
        };
        match &ended.result {
            Ok(()) if is_request => self.screen.print(format_args!("{id}: {name}: served")),
            Err(why) if is_request => {
                self.screen.print(format_args!("{id}: {name}: not served: {why}"));
            }
            // The request to the CFDP entity was printed before.
            Ok(()) | Err(_) => {}
        }
    }

    /// Prints a transfer that ended without its sender's knowledge.
    fn abandoned(&mut self, now: Time, id: &TransferId, why: &str) {
        let under_way = self.under_way.remove(id);
        let text = format!("{id}: given up: {why}");
        self.screen.print(&text);
        self.tally.fail(text);
        if self.options.json {
            let outcome = Outcome::given_up(
                &self.protocol(id),
                false,
                Some(id),
                self.service.root.clone(),
                String::new(),
                why,
            );
            let bar = under_way.as_ref().map(|it| (it.bar.size(), it.bar.moved(), it.before));
            let (size, position, before) = bar.unwrap_or_default();
            let moved = position.saturating_sub(before);
            let peer = under_way.as_ref().and_then(|it| it.peer);
            let outcome = outcome.after(id.originator(), size.unwrap_or(0), moved).at_address(peer);
            self.failure = outcome.print().err();
        }
        self.first.get_or_insert(false);
        self.closing.begin(now);
    }

    /// Reports a file that nobody will send again.
    fn no_room(&mut self, id: &TransferId, name: &str, bytes: u64) {
        if let Some(under_way) = self.under_way.remove(id) {
            under_way.bar.clear();
        }
        self.is_any_lost = true;
        let name =
            if name.is_empty() { "a file".to_owned() } else { name.escape_debug().to_string() };
        tracing::warn!(
            "{id}: {name} is lost after {}: too many transfers are under way, and class 1 does not \
             retransmit",
            show::bytes(bytes as f64)
        );
    }

    /// Reports that a sender requested the end of a transfer that an earlier process received.
    fn repeated(&mut self, now: Time, id: &TransferId, condition: &str, is_whole: bool) {
        if self.service.once && self.first.is_none() {
            self.screen.print(format_args!("{id}: was received before: {condition}"));
            self.first = Some(is_whole);
            self.is_repeated = true;
        }
        if self.is_repeated {
            self.closing.begin(now);
        }
    }

    /// Prints the state of a block for another engine.
    fn relayed(&mut self, now: Time, indication: &ltpt::Indication) {
        self.screen.print(routes::words(indication));
        let Some((transfer, result)) = routes::outcome(indication) else { return };
        if self.options.json {
            self.failure = routes::print(&self.options, &transfer, &result).err();
        }
        self.first.get_or_insert(result.is_ok());
        self.closing.begin(now);
    }

    fn progress(&mut self, now: Time, transport: &dyn Transport) {
        let reports = transport.transfers();
        // A transfer may be resumed under another number, or end without a report.
        self.under_way.retain(|id, _| reports.iter().any(|report| report.id == *id));
        for report in reports {
            if let Some(it) = self.under_way.get_mut(&report.id) {
                let moved = report.bytes.saturating_sub(it.before);
                it.bar.learn(&report);
                it.bar.show(now, &Shown::received(report.bytes, moved, report.wait));
            }
        }
    }
}

/// Shows a message of a sender's application (NORM_CMD(APPLICATION)) to people, and to programs as
/// a line of JSON: its text, or hexadecimal digits if it is no text.
pub(super) fn message(
    sender: u32,
    content: &[u8],
    options: &Options,
    screen: &Screen,
) -> Result<()> {
    screen.print(format_args!(
        "command of sender {sender:08x}: {:?}",
        String::from_utf8_lossy(content)
    ));
    if !options.json {
        return Ok(());
    }
    let (key, value) = match std::str::from_utf8(content) {
        Ok(text) => ("command", text.to_owned()),
        Err(_) => ("command_hex", content.iter().map(|byte| format!("{byte:02x}")).collect()),
    };
    outcome::print_json(&serde_json::json!({ "sender": sender, key: value }))
}
