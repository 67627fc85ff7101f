//! Receives files by LTP, NORM or Saratoga, passes on what is for others (LTP-T), and with Saratoga serves what others
//! ask for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::{PathId, Time};
use indicatif::ProgressBar;
use proto::{ltpt, saratoga};
use transport::Configuration as _;
use transport::engines::{AnyEngine, AnyIndication, EngineConfig};
use transport::protocol::Kind;

use super::{Ended, Id, LINGER, Notice, Rights, Ways, notice, onward, random, under_way};
use crate::peers::{self, join};
use crate::show;
use crate::transfer::{self, Measures, Options, Outcome, Screen, bind_error};

/// What a server is told to do.
pub(crate) struct Service {
    pub(crate) listen: SocketAddr,
    pub(crate) root: PathBuf,
    /// The number given to this end, if any.
    pub(crate) entity: Option<u64>,
    /// Whether to end after the first file.
    pub(crate) once: bool,
    pub(crate) peers_max: usize,
    /// Whether others may fetch files and list directories, and delete files.
    pub(crate) gets: bool,
    pub(crate) deletes: bool,
    /// Whether and how this end says that it is there.
    pub(crate) beacons: Option<Announce>,
    /// The group that NORM is heard on.
    pub(crate) group: Option<rt::Group>,
    /// Whereto blocks of LTP-T for other engines go on.
    pub(crate) ways: Ways,
}

/// How a Saratoga peer says that it is there.
#[derive(Clone, Debug)]
pub(crate) struct Announce {
    pub(crate) interval: Duration,
    pub(crate) group: rt::Group,
    /// Its identifier, if that was given.
    pub(crate) eid: Option<String>,
}

impl Announce {
    /// Adds the group to those that beacons go to. What was given comes before the settings, and
    /// these before the name of this machine.
    fn settle(
        &self,
        config: &mut saratoga::Config,
        group: PathId,
        given: Option<u64>,
    ) -> Result<()> {
        let mut paths = config.beacons.take().map_or(Vec::new(), |beacons| beacons.paths);
        paths.push(group);
        config.beacons = Some(saratoga::Beacons { paths, interval: self.interval });
        if let Some(eid) = &self.eid {
            config.eid.clone_from(eid);
        } else if given.is_none() && config.eid == format!("ipn:{ENTITY}.0") {
            // All others that were told nothing have that number, too.
            config.eid = peers::machine().context("this machine has no name; give --eid")?;
        }
        Ok(())
    }
}

/// The number of a receiver that was given none.
const ENTITY: u64 = 2;

/// Receives until a signal comes, or with `once` the first file has come or failed.
pub(crate) fn serve(options: Options, service: Service) -> Result<ExitCode> {
    let (mut driver, mut server) = prepare(options, service).map_err(transfer::usage)?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, |now, engine, event| server.on(now, engine, event))?;
    server.failure.map_or(Ok(()), Err)?;
    let failed = server.service.once && server.first != Some(true);
    Ok(ExitCode::from(u8::from(failed)))
}

fn prepare(options: Options, service: Service) -> Result<(rt::Driver<AnyEngine>, Server)> {
    let rights = Rights::Server { gets: service.gets, deletes: service.deletes };
    let (mut config, path) =
        super::settings((&options, service.listen), service.entity, ENTITY, None, rights)?;
    let number = super::number(&config);
    let peers = match number {
        Some(own) => service.ways.settle(&mut config, own)?,
        None => peers(&mut config, service.beacons.is_some())
            .map_err(|error| super::within(&options, error))?,
    };
    // The driver numbers the path of the group after theirs.
    let group = PathId(u32::try_from(peers.len())?);
    if let (EngineConfig::Saratoga(peer), Some(announce)) = (&mut config, &service.beacons) {
        announce.settle(&mut peer.config, group, service.entity)?;
    }
    if let EngineConfig::Norm(node) = &mut config {
        node.config.groups.extend(service.group.map(|_| group));
        // What comes without a name is named by its number.
        node.config.receiver.store_data = true;
    }
    let waker = rt::Waker::new().context("cannot start")?;
    let mut store = rt::FileStore::open(rt::StoreConfig::new(&service.root), &waker)?;
    super::sweep(&mut store, options.protocol.kind.family())?;
    let engine = config.build(random()?);
    let listen = service.listen;
    let settings = rt::Config {
        peers_max: service.peers_max,
        udp_lite: super::udp_lite(&options, false),
        ..rt::Config::new(listen, path)
    };
    let mut driver = rt::Driver::new(settings, engine, store, waker)
        .map_err(|error| bind_error(listen, error))?;
    for address in peers {
        driver.add_peer(address);
    }
    let screen = Screen::new(options.json);
    if let Some(announce) = &service.beacons {
        tell_room(driver.engine_mut(), &service.root);
        let path = join(&mut driver, announce.group)?;
        ensure!(path == group, "the group has another number than the next");
    }
    if let Some(heard) = service.group {
        join(&mut driver, heard)?;
        screen.say(format_args!("hearing the group {}", heard.address));
    }
    let number = number.map(|number| format!(" as engine {number}")).unwrap_or_default();
    screen.say(format_args!(
        "receiving on {} into {} by {}{number}",
        driver.local(),
        service.root.display(),
        options.full_protocol()?,
    ));
    service.ways.tell(&screen, options.protocol.kind == Kind::LtpT);
    Ok((driver, Server::new(options, service, screen)))
}

/// The addresses of the peers that settings name; the driver numbers their paths from zero.
fn peers(config: &mut EngineConfig, has_group: bool) -> Result<Vec<SocketAddr>> {
    let named = super::named(config)?;
    let EngineConfig::Saratoga(peers) = config else { return Ok(Vec::new()) };
    for (index, (_, name)) in named.iter().enumerate() {
        let path = PathId(u32::try_from(index)?);
        peers.use_named(name, path);
        peers.add_beacon(path, None);
    }
    ensure!(
        peers.config.beacons.is_none() || has_group || !named.is_empty(),
        "beacons go to peers that are known: name them in [remotes], as [remotes.\"192.0.2.7:7542\"]"
    );
    Ok(named.into_iter().map(|(address, _)| address).collect())
}

/// Least time between two looks at how much room there is.
const ROOM: Duration = Duration::from_secs(1);

fn tell_room(engine: &mut AnyEngine, root: &Path) {
    if let AnyEngine::Saratoga(node, _) = engine {
        node.set_free_space(rt::free_octets(root).ok().map(|octets| octets / 1024));
    }
}

struct Server {
    options: Options,
    service: Service,
    screen: Screen,
    under_way: BTreeMap<Id, UnderWay>,
    /// Whether the first file came whole.
    first: Option<bool>,
    closing_until: Time,
    /// When to look again how much room there is.
    room_at: Time,
    failure: Option<anyhow::Error>,
}

/// A session as the user sees it.
struct UnderWay {
    bar: ProgressBar,
    began: Time,
}

impl Server {
    fn new(options: Options, service: Service, screen: Screen) -> Self {
        Self {
            options,
            service,
            screen,
            under_way: BTreeMap::new(),
            first: None,
            closing_until: Time::MAX,
            room_at: Time::ZERO,
            failure: None,
        }
    }

    fn on(
        &mut self,
        now: Time,
        engine: &mut AnyEngine,
        event: rt::Event<AnyIndication>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick => {
                self.progress(now, engine);
                self.room(now, engine);
            }
            rt::Event::Refused(_) => {}
            rt::Event::Indication(indication) => self.told(now, notice(indication)),
        }
        // The sender may not have heard the last of it: it asks again soon.
        let closed = self.service.once && self.first.is_some() && now >= self.closing_until;
        if closed || self.failure.is_some() { rt::Control::Stop } else { rt::Control::Continue }
    }

    /// Looks from time to time how much room there is for files, and lets the beacons say so.
    fn room(&mut self, now: Time, engine: &mut AnyEngine) {
        if let Some(announce) = self.service.beacons.as_ref().filter(|_| now >= self.room_at) {
            self.room_at = now + announce.interval.max(ROOM);
            tell_room(engine, &self.service.root);
        }
    }

    fn told(&mut self, now: Time, notice: Notice) {
        match notice {
            Notice::Receiving { id, name, size, resumed } => {
                let size = size.map(|size| show::bytes(size as f64));
                let about = match (name.is_empty(), size) {
                    (true, _) => "a file".to_owned(),
                    (false, Some(size)) => format!("{} ({size})", name.escape_debug()),
                    (false, None) => name.escape_debug().to_string(),
                };
                let had = if resumed > 0 {
                    format!(", of which {} are here", show::bytes(resumed as f64))
                } else {
                    String::new()
                };
                self.screen.say(format_args!("{id}: receiving {about}{had}"));
                let bar = self.screen.bar(&name, None);
                self.under_way.entry(id).or_insert(UnderWay { bar, began: now });
            }
            Notice::Ended(ended) if !ended.at_sender => self.ended(now, &ended),
            Notice::Ended(ended) => {
                let id = ended.id();
                let name = match &*ended.name {
                    "" => "the listing of the root".to_owned(),
                    name => name.escape_debug().to_string(),
                };
                match &ended.result {
                    Ok(()) => self.screen.say(format_args!("{id}: {name}: served")),
                    Err(why) => self.screen.say(format_args!("{id}: {name}: not served: {why}")),
                }
            }
            Notice::Said(text) => self.screen.say(text),
            Notice::Noted(text) => tracing::debug!("{text}"),
            Notice::Command(said) => {
                self.failure = said.tell(&self.options, &self.screen).err();
            }
            Notice::Onward(told) => self.passed(now, &told),
            Notice::Listing(_) | Notice::Nothing => {}
        }
    }

    /// Tells of a block for another engine.
    fn passed(&mut self, now: Time, told: &ltpt::Indication) {
        self.screen.say(onward::words(told));
        let Some((transfer, result)) = onward::outcome(told) else { return };
        if self.options.json {
            self.failure = onward::print(&self.options, &transfer, &result).err();
        }
        self.first.get_or_insert(result.is_ok());
        self.close_soon(now);
    }

    /// Whoever asks again hears the answer until then, if this was the first to end.
    fn close_soon(&mut self, now: Time) {
        // In a group, a sender says twice where its end is before it believes the answers.
        let repeats = if self.service.group.is_some() { 8 } else { 1 };
        let grace = repeats * LINGER + 4 * self.options.light_time();
        self.closing_until = self.closing_until.min(now + grace);
    }

    fn ended(&mut self, now: Time, ended: &Ended) {
        let under_way = self.under_way.remove(&ended.id);
        let elapsed = under_way.as_ref().map(|it| now.since(it.began));
        let received = under_way.as_ref().map_or(0, |it| it.bar.position());
        let moved = if ended.result.is_ok() { ended.size } else { received };
        let moved = moved.saturating_sub(ended.resumed);
        if let Some(under_way) = under_way {
            under_way.bar.finish_and_clear();
        }
        let file = self.service.root.join(&ended.name);
        let measures = Measures { elapsed, moved, pdus: None };
        let outcome = Outcome::session(&self.options.protocol, ended, file, measures);
        let id = ended.id();
        let name = match &*ended.name {
            "" => "a file".to_owned(),
            name => name.escape_debug().to_string(),
        };
        match &ended.result {
            Ok(()) => {
                self.screen.say(format_args!("{id}: received {name}: {}", outcome.summary()));
            }
            Err(why) => self.screen.say(format_args!("{id}: {name} failed: {why}")),
        }
        if self.options.json {
            self.failure = outcome.print().err();
        }
        self.first.get_or_insert(ended.result.is_ok());
        self.close_soon(now);
    }

    fn progress(&mut self, now: Time, engine: &AnyEngine) {
        let reports = under_way(engine);
        // One that goes on under another number, or ended without a word.
        self.under_way.retain(|id, _| reports.iter().any(|report| report.id == *id));
        for report in reports {
            let Some(it) = self.under_way.get(&report.id) else { continue };
            if let (None, Some(size)) = (it.bar.length(), report.size) {
                it.bar.set_length(size);
                it.bar.set_style(transfer::style_with_length());
                it.bar.set_prefix(report.name);
            }
            it.bar.set_position(report.octets);
            let elapsed = now.since(it.began).as_secs_f64();
            it.bar.set_message(show::rate(report.octets as f64 * 8.0 / elapsed.max(1e-3)));
        }
    }
}
