//! One session with one peer: a file that is sent or fetched, a directory that is listed, a file
//! that is deleted.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use engine::{FileName, PathId, Time};
use indicatif::ProgressBar;
use proto::ltpt::Otherwise;
use proto::{ltp, norm, saratoga};
use transport::engines::{AnyEngine, AnyIndication, EngineConfig};
use transport::protocol::{Family, Kind};
use transport::quantity::Span;

use super::leave::leave;
use super::{Ended, Id, LINGER, Notice, Rights, cancel, counts, notice, onward, random, under_way};
use crate::show;
use crate::transfer::{self, Measures, Options, Outcome, Screen, bind_error};

/// What is wanted of the peer.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Send the file `name` of the directory `root`; it is called `remote` there.
    Send {
        root: PathBuf,
        name: String,
        remote: String,
        /// Whether to ask first.
        asks: bool,
        /// Whether to delete it here once it is there.
        gives: bool,
        /// What to say to the applications of receivers.
        commands: Vec<String>,
    },
    /// Fetch a file into the directory `root`, as `name`.
    Get {
        remote: String,
        root: PathBuf,
        name: String,
        /// Whether to delete it there once it is here.
        takes: bool,
    },
    /// List a directory.
    List(String),
    /// Delete a file.
    Delete(String),
}

impl Wish {
    fn verb(&self) -> &'static str {
        match self {
            Self::Send { .. } => "sending",
            Self::Get { .. } => "fetching",
            Self::List(_) => "listing",
            Self::Delete(_) => "deleting",
        }
    }

    /// The name at the other end.
    fn remote(&self) -> &str {
        match self {
            Self::Send { remote, .. } | Self::Get { remote, .. } => remote,
            Self::List(name) | Self::Delete(name) => name,
        }
    }

    /// The file here.
    fn local(&self) -> PathBuf {
        match self {
            Self::Send { root, name, .. } | Self::Get { root, name, .. } => root.join(name),
            Self::List(_) | Self::Delete(_) => PathBuf::new(),
        }
    }
}

/// Where the peer is, and who this end and that are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) to: SocketAddr,
    /// How that is reached if it is a multicast group.
    pub(crate) group: Option<rt::Group>,
    pub(crate) listen: SocketAddr,
    /// The number given to this end, if any.
    pub(crate) entity: Option<u64>,
    pub(crate) remote_entity: u64,
    /// The engine of LTP-T that is there, if it is not the one that shall have the file.
    pub(crate) via: Option<u64>,
}

impl Ends {
    /// The engine that is there.
    fn next(&self) -> u64 {
        self.via.unwrap_or(self.remote_entity)
    }
}

/// Does what is wished for; returns when it is done or given up.
pub(crate) fn run(
    options: Options,
    ends: Ends,
    wish: Wish,
    timeout: Option<Span>,
) -> Result<ExitCode> {
    let (mut driver, mut client, _state) =
        prepare(options, ends, wish, timeout).map_err(transfer::usage)?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, |now, engine, event| client.on(now, engine, event))?;
    let left = match client.phase {
        Phase::Going(id) => Some(id),
        Phase::Loading | Phase::Over(..) | Phase::Refused(_) | Phase::Late(_) => None,
    };
    leave(&mut driver, left, client.options.light_time())?;
    client.end()
}

type Driver = rt::Driver<AnyEngine>;

/// Everything that can be wrong with the command is found out here.
fn prepare(
    options: Options,
    ends: Ends,
    wish: Wish,
    timeout: Option<Span>,
) -> Result<(Driver, Client, Option<tempfile::TempDir>)> {
    ensure!(ends.to.port() != 0, "nobody can listen on port 0");
    // What is deleted because it came must have come undamaged.
    let moves = matches!(wish, Wish::Send { gives: true, .. } | Wish::Get { takes: true, .. });
    ensure!(!moves || !options.udp_lite, "--give and --take do not go with --udp-lite");
    let is_blind = options.protocol.kind == Kind::SaratogaBlind;
    ensure!(!moves || !is_blind, "--give needs an answer, and {} has none", options.protocol);
    let keeps = matches!(wish, Wish::Get { .. });
    let rights = Rights::Client { keeps };
    let remote = Some(ends.next());
    let (mut config, mut path) =
        super::settings((&options, ends.to), ends.entity, 1, remote, rights)?;
    let peer = PathId(0);
    let own = super::number(&config);
    ensure!(
        ends.via.is_none() || own != ends.via,
        "this end and --via are both {}; give this end another number with --entity",
        ends.next()
    );
    config.set_path(ends.next(), peer);
    config.set_routes([(ends.remote_entity, ends.next())].into(), Otherwise::Nowhere);
    let named = super::named(&config).map_err(|error| super::within(&options, error))?;
    let known = named.into_iter().find(|(address, _)| *address == ends.to);
    if let (EngineConfig::Saratoga(peers), Some((_, name))) = (&mut config, known) {
        // Beacons have the path already.
        let remote = peers.remotes[&name].clone();
        path.rate_bps = remote.rate_bps.or(path.rate_bps).filter(|rate| *rate > 0);
        peers.config.remotes.insert(peer, remote);
    }
    let waker = rt::Waker::new().context("cannot start")?;
    let (store, state) = store(&wish, &waker)?;
    if let EngineConfig::Norm(node) = &mut config {
        node.config.groups.extend(ends.group.map(|_| peer));
    }
    let engine = config.build(random()?);
    let peers_max = peers_max(config.family());
    let settings = rt::Config {
        peers_max,
        tick: Duration::from_millis(10),
        udp_lite: super::udp_lite(&options, true),
        ..rt::Config::new(ends.listen, path)
    };
    let mut driver = rt::Driver::new(settings, engine, store, waker)
        .map_err(|error| bind_error(ends.listen, error))?;
    let path = match ends.group {
        Some(group) => crate::peers::join(&mut driver, group)?,
        None if peers_max > 0 => driver.add_peer(ends.to),
        None => driver
            .connect_peer(ends.to)
            .with_context(|| format!("there is no way to {}", ends.to))?,
    };
    ensure!(path == peer, "the only peer has another number than the first");
    let client = Client::new(options, ends, wish, timeout, driver.now());
    Ok((driver, client, state))
}

/// Addresses beside the peer's from which datagrams are received.
const fn peers_max(family: Family) -> usize {
    match family {
        // Receivers of NORM reply from whatever address they have.
        Family::Norm => RECEIVERS_MAX,
        // Some engines send from another port than the one that they listen on.
        Family::Ltp => PORTS_MAX,
        Family::Cfdp | Family::CfdpLtp | Family::Saratoga | Family::OverTcp | Family::Bundles => 0,
    }
}

/// Receivers of one sender that are told apart.
const RECEIVERS_MAX: usize = 1024;

/// Ports from which an LTP engine may send beside the one that it listens on.
const PORTS_MAX: usize = 64;

/// The store for a wish: only a file that is fetched leaves anything behind.
fn store(wish: &Wish, waker: &rt::Waker) -> Result<(rt::FileStore, Option<tempfile::TempDir>)> {
    if let Wish::Get { root, .. } = wish {
        let mut store = rt::FileStore::open(rt::StoreConfig::new(root), waker)?;
        // Only Saratoga fetches.
        super::sweep(&mut store, Family::Saratoga)?;
        return Ok((store, None));
    }
    let state = tempfile::tempdir().context("cannot make a directory for working files")?;
    let (root, access) = match wish {
        Wish::Send { root, name, .. } => {
            (root.as_path(), rt::Access::ReadOne(FileName::file(name)?))
        }
        Wish::Get { .. } | Wish::List(_) | Wish::Delete(_) => (state.path(), rt::Access::Full),
    };
    let config =
        rt::StoreConfig { access, state: state.path().join("state"), ..rt::StoreConfig::new(root) };
    Ok((rt::FileStore::open(config, waker)?, Some(state)))
}

/// The one session of this command.
struct Client {
    options: Options,
    ends: Ends,
    wish: Wish,
    screen: Screen,
    bar: ProgressBar,
    timeout: Option<Time>,
    began: Time,
    /// Octets moved by this process, as far as it was told.
    moved: u64,
    phase: Phase,
    /// Whether the user knows that nobody listens, or that nobody answers.
    refused: bool,
    /// Whether the peer has answered, or will not.
    answered: bool,
    /// Whether the bar says when the file will be there.
    has_eta: bool,
    /// When the progress was last another one.
    advanced: Time,
}

enum Phase {
    /// The records of an earlier run are being read.
    Loading,
    Going(Id),
    /// It is over; those who did not hear are answered until then.
    Over(Result<bool>, Time),
    /// The request makes no sense.
    Refused(String),
    /// Nothing came of it in the time given.
    Late(Id),
}

impl Client {
    fn new(options: Options, ends: Ends, wish: Wish, timeout: Option<Span>, now: Time) -> Self {
        let screen = Screen::new(options.json);
        let bar = match &wish {
            Wish::Send { .. } | Wish::Get { .. } => screen.bar(wish.remote(), None),
            Wish::List(_) | Wish::Delete(_) => ProgressBar::hidden(),
        };
        Self {
            options,
            ends,
            wish,
            screen,
            bar,
            timeout: timeout.map(|timeout| now + timeout.duration()),
            began: now,
            moved: 0,
            phase: Phase::Loading,
            refused: false,
            answered: false,
            has_eta: false,
            advanced: now,
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
                self.answered |= self.has_answered(engine);
                self.progress(now, engine);
                self.silence(now);
            }
            rt::Event::Refused(address) => self.refused(address),
            rt::Event::Indication(indication) => self.told(now, engine, notice(indication)),
        }
        if matches!(self.phase, Phase::Loading) && engine.is_ready() {
            self.start(now, engine);
        }
        let late = self.timeout.is_some_and(|timeout| now >= timeout);
        match &self.phase {
            Phase::Going(id) if late => {
                let id = *id;
                cancel(engine, now, id);
                self.phase = Phase::Late(id);
                self.timeout = Some(now + LINGER);
                rt::Control::Continue
            }
            Phase::Loading | Phase::Going(_) => rt::Control::Continue,
            Phase::Over(_, until) if now < *until && !under_way(engine).is_empty() => {
                rt::Control::Continue
            }
            Phase::Late(_) if !late && !under_way(engine).is_empty() => rt::Control::Continue,
            Phase::Over(..) | Phase::Late(_) | Phase::Refused(_) => rt::Control::Stop,
        }
    }

    /// It is no reason to end: the peer may be started later.
    fn refused(&mut self, address: SocketAddr) {
        if !self.refused && matches!(self.phase, Phase::Going(_)) {
            self.refused = true;
            self.screen.say(format_args!("nobody listens on {address}; trying on"));
        }
    }

    fn start(&mut self, now: Time, engine: &mut AnyEngine) {
        match self.ask(now, engine) {
            Ok(id) => {
                self.phase = Phase::Going(id);
                (self.began, self.advanced) = (now, now);
                let verb = self.wish.verb();
                self.screen.say(format_args!("{id}: {verb} {}", self.wish.remote()));
            }
            Err(error) => self.phase = Phase::Refused(format!("{error:#}")),
        }
    }

    fn ask(&self, now: Time, engine: &mut AnyEngine) -> Result<Id> {
        let peer = PathId(0);
        let kind = self.options.protocol.kind;
        match (engine, &self.wish) {
            (AnyEngine::Ltp(node), Wish::Send { name, remote, .. }) => {
                let request = ltp::SendRequest {
                    destination: self.ends.remote_entity,
                    source: FileName::file(name)?,
                    name: remote.clone(),
                    red: kind.red(),
                };
                Ok(Id::Ltp(node.send(now, request)?))
            }
            (AnyEngine::Saratoga(node, _), Wish::Send { name, remote, asks, .. }) => {
                let put = if *asks { saratoga::Put::Ask } else { kind.put() };
                let request = saratoga::PutRequest {
                    peer,
                    source: FileName::file(name)?,
                    name: remote.clone(),
                    put,
                    delete: false,
                    stream: false,
                };
                Ok(Id::Saratoga(node.put(now, request)?))
            }
            (AnyEngine::Saratoga(node, _), Wish::Get { remote, name, takes, .. }) => {
                let request = saratoga::GetRequest {
                    peer,
                    name: remote.clone(),
                    destination: FileName::file(name)?,
                    delete: *takes,
                };
                Ok(Id::Saratoga(node.get(now, request)?))
            }
            (AnyEngine::Saratoga(node, _), Wish::List(name)) => {
                Ok(Id::Saratoga(node.list(now, peer, name.clone())?))
            }
            (AnyEngine::Saratoga(node, _), Wish::Delete(name)) => {
                Ok(Id::Saratoga(node.delete(now, peer, name.clone())?))
            }
            (AnyEngine::Norm(node, _), Wish::Send { name, remote, commands, .. }) => {
                for command in commands {
                    node.command(now, peer, command.clone().into(), None)?;
                }
                let request = norm::SendRequest {
                    peer,
                    content: norm::Content::File(FileName::file(name)?),
                    info: remote.clone().into(),
                };
                Ok(Id::Norm(node.send(now, request)?))
            }
            (
                AnyEngine::Ltp(_)
                | AnyEngine::Norm(..)
                | AnyEngine::Cfdp(_)
                | AnyEngine::CfdpLtp(_)
                | AnyEngine::OverTcp(_)
                | AnyEngine::Bundles(_),
                _,
            ) => {
                anyhow::bail!("{} can only send", self.options.protocol)
            }
        }
    }

    fn told(&mut self, now: Time, engine: &AnyEngine, notice: Notice) {
        match notice {
            Notice::Ended(mut ended) => {
                if self.is_going(ended.id) {
                    // An engine on the way answers for the file, and nobody says more of it.
                    ended.is_confirmed &= self.ends.via.is_none();
                    let told = self.tell(now, engine, &ended);
                    // A receiver's last word may be lost; a sender's, too, with LTP.
                    let light = self.options.light_time();
                    self.phase = Phase::Over(told, now + LINGER.max(6 * light));
                }
            }
            Notice::Receiving { resumed, size, .. } => {
                self.moved = 0;
                if resumed > 0 {
                    let (have, size) = (show::bytes(resumed as f64), size.unwrap_or_default());
                    let size = show::bytes(size as f64);
                    self.screen.say(format_args!("going on: {have} of {size} are here"));
                }
            }
            Notice::Listing(entries) => {
                if let Err(error) = self.list(&entries) {
                    self.phase = Phase::Over(Err(error), now);
                }
            }
            Notice::Said(text) => self.screen.say(text),
            Notice::Noted(text) => tracing::debug!("{text}"),
            Notice::Onward(told) => self.screen.say(onward::words(&told)),
            // Who sends hears no commands.
            Notice::Command(_) | Notice::Nothing => {}
        }
    }

    /// Prints what a directory holds: a line an entry, as text or JSON.
    fn list(&self, entries: &[saratoga::Listed]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for entry in entries {
            let is_directory = matches!(
                entry.kind,
                saratoga::packet::EntryKind::Directory
                    | saratoga::packet::EntryKind::SpecialDirectory
            );
            if self.options.json {
                let kind = if is_directory { "directory" } else { "file" };
                let name = &entry.name;
                let line = serde_json::json!({
                    "name": name, "kind": kind, "bytes": entry.size, "modified": entry.modified,
                });
                writeln!(out, "{line}")?;
            } else {
                let end = if is_directory { "/" } else { "" };
                let (size, name) = (entry.size, entry.name.escape_debug());
                let modified = entry.modified.map_or_else(|| "-".to_owned(), utc);
                writeln!(out, "{size:>12} {modified:20} {name}{end}")?;
            }
        }
        Ok(())
    }

    /// Prints the outcome; whether what was wished for is done.
    fn tell(&self, now: Time, engine: &AnyEngine, ended: &Ended) -> Result<bool> {
        self.bar.finish_and_clear();
        let moved = if ended.result.is_ok() { ended.size - ended.resumed } else { self.moved };
        let measures =
            Measures { elapsed: Some(now.since(self.began)), moved, pdus: counts(engine) };
        let outcome = Outcome::session(&self.options.protocol, ended, self.wish.local(), measures);
        let id = ended.id();
        match (&ended.result, &self.wish) {
            (Ok(()), Wish::Send { root, name, gives, .. }) => {
                let known = match self.ends.via {
                    Some(via) => format!("engine {via} has it, to pass it on"),
                    None if ended.is_confirmed => "sent".to_owned(),
                    None => "sent, nobody says whether it came".to_owned(),
                };
                self.screen.say(format_args!("{id}: {known}: {}", outcome.summary()));
                if *gives && ended.is_confirmed {
                    let path = root.join(name);
                    std::fs::remove_file(&path)
                        .with_context(|| format!("cannot delete {}", path.display()))?;
                }
            }
            (Ok(()), Wish::Get { .. }) => {
                self.screen.say(format_args!("{id}: received: {}", outcome.summary()));
            }
            (Ok(()), Wish::Delete(name)) => {
                self.screen
                    .say(format_args!("{id}: {} is not there any more", name.escape_debug()));
            }
            (Ok(()), Wish::List(_)) => {}
            (Err(why), _) => {
                let moved = show::bytes(moved as f64);
                self.screen.say(format_args!("{id}: failed after {moved}: {why}"));
            }
        }
        // What a directory holds speaks for itself.
        let is_listed = ended.result.is_ok() && matches!(self.wish, Wish::List(_));
        if self.options.json && !is_listed {
            outcome.print()?;
        }
        Ok(ended.result.is_ok())
    }

    fn progress(&mut self, now: Time, engine: &AnyEngine) {
        // A block of LTP-T may go by another session than the first.
        let is_it = |id: Id| matches!(self.options.protocol.kind, Kind::LtpT) || self.is_going(id);
        let Some(report) = under_way(engine).into_iter().find(|report| is_it(report.id)) else {
            return;
        };
        if let (None, Some(size)) = (self.bar.length(), report.size) {
            self.bar.set_length(size);
            self.bar.set_style(transfer::style_without_answer());
        }
        if self.answered && !self.has_eta && self.bar.length().is_some() {
            self.has_eta = true;
            self.bar.set_style(transfer::style_with_length());
        }
        if self.moved != report.octets {
            self.advanced = now;
        }
        self.moved = report.octets;
        self.bar.set_position(report.octets);
        let elapsed = now.since(self.began).as_secs_f64();
        self.bar.set_message(if report.size == Some(report.octets) {
            "waiting for the receiver".to_owned()
        } else {
            show::rate(report.octets as f64 * 8.0 / elapsed.max(1e-3))
        });
    }

    /// Whether anything was received of the peer, or nothing will be.
    fn has_answered(&self, engine: &AnyEngine) -> bool {
        let is_sent = matches!(self.wish, Wish::Send { .. });
        let is_blind = is_sent && !self.options.protocol.kind.is_reliable();
        // Members of a group request what they lack, and nothing else.
        let is_group = self.ends.group.is_some();
        is_blind || is_group || counts(engine).is_none_or(|(_, received)| received > 0)
    }

    /// Reports once that a peer does not answer, when nothing was sent for a while either.
    fn silence(&mut self, now: Time) {
        let patience = transfer::patience(self.options.light_time());
        let is_going = matches!(self.phase, Phase::Going(_));
        let family = self.options.protocol.kind.family();
        // Without a rate NORM sends slowly until receivers report theirs.
        let is_probing = family == Family::Norm && self.options.rate.is_none();
        let since = if is_probing { self.began } else { self.advanced };
        if self.refused || self.answered || !is_going || now.since(since) < patience {
            return;
        }
        self.refused = true;
        let (to, protocol) = (self.ends.to, &self.options.protocol);
        let patience = Span(patience);
        self.screen.say(format_args!(
            "no answer from {to} for {patience}; trying on. Is `slowlight recv --protocol {protocol}` \
             running there, and does a firewall let UDP port {} through?",
            to.port()
        ));
    }

    /// Clause on the effect of the same command after this one was stopped.
    fn next(&self) -> &'static str {
        let resumes = match self.options.protocol.kind.family() {
            Family::Saratoga => self.options.protocol.kind.is_reliable(),
            Family::Cfdp
            | Family::Ltp
            | Family::CfdpLtp
            | Family::Norm
            | Family::OverTcp
            | Family::Bundles => false,
        };
        match self.wish {
            Wish::Send { .. } | Wish::Get { .. } if resumes => {
                "; the same command goes on from here"
            }
            Wish::Send { .. } | Wish::Get { .. } => "; the same command sends all of it again",
            Wish::List(_) | Wish::Delete(_) => "",
        }
    }

    fn is_going(&self, id: Id) -> bool {
        matches!(self.phase, Phase::Going(going) if going == id)
    }

    /// The exit code; tells of what did not come to an end.
    fn end(self) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        let next = self.next();
        let (id, why) = match self.phase {
            Phase::Over(told, _) => return told.map(|good| ExitCode::from(u8::from(!good))),
            Phase::Refused(why) => return Err(crate::Usage(why).into()),
            Phase::Loading => (None, "stopped"),
            Phase::Going(id) => (Some(id), "stopped"),
            Phase::Late(id) => (Some(id), "the time given is over"),
        };
        self.screen.say(format_args!("not finished: {why}{next}"));
        if self.options.json {
            let file = self.wish.local();
            let bytes = transfer::Bytes { file: size(&file), moved: self.moved };
            let role = if matches!(self.wish, Wish::Send { .. }) { "sender" } else { "receiver" };
            let remote = self.wish.remote().to_owned();
            let id = id.map(|id| id.to_string());
            let peer = Some(self.ends.remote_entity);
            let protocol = &self.options.protocol;
            Outcome::given_up(protocol, role, id, peer, (file, remote), bytes, why).print()?;
        }
        Ok(ExitCode::from(1))
    }
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// A time in seconds since 1970, as people read it.
fn utc(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}
