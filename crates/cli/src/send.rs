//! `slowlight send`: sends a file over UDP, or by CFDP in bundles.

mod request;
pub(crate) mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use engine::{FileName, PathId, Time};
use indicatif::ProgressBar;
use proto::cfdp::{self, Indication, PutRequest, TransactionFinished};
use transport::engines::EngineConfig;
use transport::protocol::{Family, Protocol};
use transport::quantity::Span;
use transport::settings::named;
use wire::cfdp::{ChecksumType, FileStatus, TransactionId, TransmissionMode};

use crate::beside::{Hears, NodeOptions};
use crate::peers::GroupOptions;
use crate::scope;
use crate::session::{self, Ends, Wish};
use crate::show;
use crate::station::{self, Driver, Station};
use crate::transfer::{self, Measures, Options, Outcome, Screen, bind_error, resolve};
use request::RequestOptions;
use state::State;

/// How long a receiver is answered after the end: longer than the acknowledgement timer of most.
const LINGER: Duration = Duration::from_millis(1500);

/// How long a sender stays to answer the LTP of its receiver, once that has all.
const CLOSING: Duration = Duration::from_millis(500);

/// Soon after the records are read, the file shall be on its way.
const TICK: Duration = Duration::from_millis(10);

/// Send a file over UDP, or by CFDP in bundles
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send
    file: PathBuf,

    /// Receiver's address, as 192.0.2.1:7542 or host:7542
    #[arg(required_unless_present_any = ["group", "node"], conflicts_with = "node")]
    address: Option<String>,

    /// Name the file shall have at the receiver [default: the file's own]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,

    /// Address to send from [default: any]
    #[arg(long, value_name = "ADDR", conflicts_with = "node")]
    listen: Option<String>,

    /// Entity number of this end [default: the MIB's, or 1; with --node that of the node]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// Entity number of the receiver
    #[arg(long, value_name = "ID", default_value_t = 2)]
    remote_entity: u64,

    /// Give up after this time; the same command goes on later
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    cfdp: CfdpOptions,

    #[command(flatten)]
    node: NodeOptions,

    /// The engine at that address, if it is one on the way to the receiver; nobody reports whether
    /// the file comes further
    #[arg(long, value_name = "ID", help_heading = scope::LTP_T)]
    via: Option<u64>,

    #[command(flatten)]
    norm: NormOptions,

    #[command(flatten)]
    saratoga: SaratogaOptions,
}

/// Options of CFDP.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::CFDP)]
struct CfdpOptions {
    /// Transmission class: 1 sends once, 2 sends until all has arrived [default: 1 for the
    /// protocol cfdp-1, else the MIB's, or 2; over LTP and in bundles, which repeat what is lost, 1]
    #[arg(long, value_name = "CLASS", value_parser = clap::value_parser!(u8).range(1..=2))]
    class: Option<u8>,

    /// File checksum: modular, proximity1, crc32c, crc32 or null [default: crc32c]
    #[arg(long, value_name = "TYPE", value_parser = named::<ChecksumType>)]
    checksum: Option<ChecksumType>,

    /// How long to stay after the end to answer the receiver if it asks again, because the last
    /// acknowledgement may be lost [default: 1.5 s, or three round trips if that is longer]
    #[arg(long, value_name = "TIME")]
    linger: Option<Span>,

    /// Directory for the state of unfinished transfers
    /// [default: $XDG_STATE_HOME/slowlight or ~/.local/state/slowlight]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    #[command(flatten)]
    request: RequestOptions,
}

/// Options of NORM.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::NORM)]
struct NormOptions {
    /// Multicast group to send to, as 224.1.2.3 or 224.1.2.3:6003
    #[arg(long, value_name = "ADDR", conflicts_with = "address")]
    group: Option<String>,

    /// Network interface of the group, as eth0 [default: the routing table's]
    #[arg(long, value_name = "NAME", requires = "group")]
    interface: Option<String>,

    /// Multicast TTL (hop limit) [default: 1]
    #[arg(long, value_name = "N", requires = "group")]
    ttl: Option<u32>,

    /// Send the file as a stream, which may be a pipe, or - for standard input: bytes are sent as
    /// soon as they are read, and `slowlight recv --stream` delivers them as they arrive
    #[arg(long)]
    stream: bool,

    /// Let new data of a stream overwrite what receivers may lack, instead of waiting
    #[arg(long, requires = "stream")]
    push: bool,

    /// Send a command to the applications of receivers, ahead of the file; libnorm may deliver it
    /// more than once; may be repeated
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    command: Vec<String>,
}

/// Options of Saratoga.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
struct SaratogaOptions {
    /// Ask first whether the file is taken
    #[arg(long)]
    ask: bool,

    /// Delete the file here once it is there
    #[arg(long)]
    give: bool,
}

impl Args {
    fn address(&self) -> Result<&str> {
        self.address.as_deref().context("give the receiver's address")
    }

    /// The group to send to, if it is one.
    fn group(&self, protocol: &Protocol) -> Result<Option<rt::Group>> {
        let is_norm = protocol.kind.family() == Family::Norm;
        let options =
            GroupOptions::of(self.norm.group.clone(), self.norm.interface.clone(), self.norm.ttl);
        if self.norm.group.is_some() {
            return options.of_norm().map(Some);
        }
        let Some(to) = self.address.as_deref().filter(|_| is_norm) else { return Ok(None) };
        let to = resolve(to)?;
        to.ip().is_multicast().then(|| options.reached(to)).transpose()
    }
}

/// Sends the file; returns when the receiver has it, or with class 1 when it is sent.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    if !matches!(args.options.protocol.kind.family(), Family::Cfdp | Family::CfdpLtp) {
        if args.norm.stream {
            let (ends, source) = stream(&args).map_err(transfer::usage)?;
            return session::send_stream(args.options, ends, source, args.timeout);
        }
        let (ends, wish) = other(&args).map_err(transfer::usage)?;
        return session::run(args.options, ends, wish, args.timeout);
    }
    let (mut driver, mut sender, state) = prepare(args).map_err(transfer::usage)?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, &mut |now, station, event| sender.on(now, station, event))?;
    drop(driver);
    if sender.is_over() {
        state.remove();
    }
    sender.end()
}

/// What to send as a stream, and between whom.
fn stream(args: &Args) -> Result<(Ends, session::Source)> {
    let ends = ends(args)?;
    let from = args.file.clone();
    let called = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = args.remote.clone().unwrap_or_else(|| called.to_owned());
    Ok((ends, session::Source { from, name, push: args.norm.push }))
}

/// Between whom to send by another protocol than CFDP.
fn ends(args: &Args) -> Result<Ends> {
    let protocol = &args.options.protocol;
    ensure!(
        !protocol.kind.is_fetched(),
        "{protocol} is for who fetches: `slowlight get --protocol saratoga`"
    );
    let group = args.group(protocol)?;
    let to = match group {
        Some(group) => group.address,
        None => resolve(args.address()?)?,
    };
    let listen = transfer::from_address(args.listen.as_deref(), to)?;
    let (entity, remote_entity, via) = (args.entity, args.remote_entity, args.via);
    Ok(Ends { to, group, listen, entity, remote_entity, via })
}

/// What to send by another protocol, and between whom.
fn other(args: &Args) -> Result<(Ends, Wish)> {
    let ends = ends(args)?;
    let (root, name) = source(&args.file)?;
    let asked = args.file.file_name().and_then(|name| name.to_str()).unwrap_or(&name);
    let remote = args.remote.clone().unwrap_or_else(|| asked.to_owned());
    let (asks, gives, commands) =
        (args.saratoga.ask, args.saratoga.give, args.norm.command.clone());
    Ok((ends, Wish::Send { root, name, remote, asks, gives, commands }))
}

/// Everything that can be wrong with the command is found out here.
fn prepare(args: Args) -> Result<(Driver, Sender, State)> {
    ensure!(args.remote.as_deref() != Some(""), "--remote is empty; give the file a name");
    let (root, name) = source(&args.file)?;
    let path = root.join(&name);
    let waker = rt::Waker::new().context("cannot start")?;
    if let Some(mut beside) = args.node.beside(&args.options, args.entity)? {
        tell_of_one(beside.cfdp(), args.remote_entity)?;
        let put = put_request(&args, &name, beside.cfdp())?;
        let to = beside.socket().display().to_string();
        let (store, state) = open_store(&args, &path, &to, &put, &waker)?;
        // Where nobody answers, another entity may have the endpoint.
        let closes = put.closure.unwrap_or(beside.cfdp().remote(args.remote_entity).closure);
        let is_answered = closes || put.mode == Some(TransmissionMode::Acknowledged);
        let hears = if is_answered { Hears::Answers } else { Hears::Nothing };
        let driver = beside.run_with(store, waker, (TICK, hears))?;
        let sender = Sender::new(args, put, path, driver.now());
        return Ok((Driver::Node(Box::new(driver)), sender, state));
    }
    let to = resolve(args.address()?)?;
    ensure!(to.port() != 0, "address {:?}: nobody can listen on port 0", args.address()?);
    let listen = transfer::from_address(args.listen.as_deref(), to)?;
    let config = config(&args)?;
    let put = put_request(&args, &name, station::of_entity(&config).context("it has no entity")?)?;
    let (store, state) = open_store(&args, &path, &to.to_string(), &put, &waker)?;
    let path_info = args.options.path(station::rate_to(&config, Some(args.remote_entity)), to);
    let entity = Station::new(&config, rt::entropy().context("no entropy")?);
    let entity = entity.context("it has no entity")?;
    // Some LTP engines send from another port than the one that they listen on.
    let is_over_ltp = args.options.protocol.kind.family() == Family::CfdpLtp;
    let peers_max = if is_over_ltp { PORTS_MAX } else { 0 };
    let settings = rt::Config { peers_max, tick: TICK, ..rt::Config::new(listen, path_info) };
    let mut driver = rt::Driver::new(settings, entity, store, waker)
        .map_err(|error| bind_error(listen, error))?;
    if is_over_ltp {
        driver.add_peer(to);
    } else {
        driver.connect_peer(to).with_context(|| format!("there is no way to {to}"))?;
    }
    let sender = Sender::new(args, put, path, driver.now());
    Ok((Driver::Socket(Box::new(driver)), sender, state))
}

/// Ports from which an LTP engine may send beside the one that it listens on.
const PORTS_MAX: usize = 64;

/// A store that holds the one file, and the state of sending it; that of another transfer is forgotten.
fn open_store(
    args: &Args,
    path: &Path,
    to: &str,
    put: &PutRequest,
    waker: &rt::Waker,
) -> Result<(rt::FileStore, State)> {
    let mut state = State::open(args.cfdp.state.as_deref(), path, to, put)?;
    let root = path.parent().context("it has no folder")?;
    let name = path.file_name().and_then(|name| name.to_str()).context("it has no name")?;
    let config = rt::StoreConfig {
        access: rt::Access::ReadOne(FileName::file(name)?),
        state: state.directory().to_owned(),
        ..rt::StoreConfig::new(root)
    };
    let mut store = rt::FileStore::open(config, waker)?;
    if !state.is_current()? {
        store.reset().context("cannot forget an earlier transfer")?;
        state.begin()?;
    }
    Ok((store, state))
}

/// What this end is told: one transfer, whose receiver is known, so that nobody else is answered.
fn config(args: &Args) -> Result<EngineConfig> {
    let mut config = args.options.station(args.entity, 1)?;
    if let EngineConfig::CfdpLtp(told) = &mut config {
        // What only sends has nothing to remember of sessions.
        told.below.ltp.journal = false;
        config.set_path(args.remote_entity, PathId(0));
    }
    let entity = match &mut config {
        EngineConfig::Cfdp(entity) => entity.as_mut(),
        EngineConfig::CfdpLtp(told) => &mut told.cfdp,
        EngineConfig::Ltp(_)
        | EngineConfig::Saratoga(_)
        | EngineConfig::Norm(_)
        | EngineConfig::OverTcp(_)
        | EngineConfig::Bundles(_) => bail!("{} is not CFDP", args.options.protocol),
    };
    tell_of_one(entity, args.remote_entity)?;
    Ok(config)
}

/// There is one transfer, to another entity.
fn tell_of_one(entity: &mut cfdp::Config, remote: u64) -> Result<()> {
    ensure!(
        entity.entity != remote,
        "this end and --remote-entity are both {remote}; the two ends need numbers of their own"
    );
    entity.limits.transactions = 1;
    Ok(())
}

/// The directory and the name of the file to send, links resolved.
fn source(file: &Path) -> Result<(PathBuf, String)> {
    let path = file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
    let found = path.metadata().with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(found.is_file(), "{} is not a regular file", file.display());
    std::fs::File::open(&path).with_context(|| format!("cannot read {}", file.display()))?;
    let (Some(root), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{} has no name", file.display());
    };
    let name = name
        .to_str()
        .ok_or_else(|| anyhow!("the name of {} is not UTF-8; send a link to it", file.display()))?;
    Ok((root.to_owned(), name.to_owned()))
}

fn put_request(args: &Args, name: &str, config: &cfdp::Config) -> Result<PutRequest> {
    let mode = match args.cfdp.class {
        Some(1) => TransmissionMode::Unacknowledged,
        Some(_) => TransmissionMode::Acknowledged,
        None => args.options.mode(config, args.remote_entity),
    };
    let asked = args.file.file_name().and_then(|name| name.to_str()).unwrap_or(name);
    let mut put = PutRequest {
        destination: args.remote_entity,
        source: Some(FileName::file(name)?),
        source_name: Some(asked.to_owned()),
        destination_name: args.remote.clone().unwrap_or_else(|| asked.to_owned()),
        mode: Some(mode),
        checksum: args.cfdp.checksum,
        resume: true,
        ..PutRequest::default()
    };
    args.cfdp.request.apply(&mut put);
    Ok(put)
}

/// The one transaction of this command.
struct Sender {
    options: Options,
    file: PathBuf,
    put: PutRequest,
    screen: Screen,
    bar: ProgressBar,
    timeout: Option<Time>,
    linger: Option<Duration>,
    phase: Phase,
    began: Time,
    resumed: bool,
    /// File bytes that this process brought on their way.
    moved: u64,
    /// Whether the user was told that nobody listens, or that nobody answers.
    refused: bool,
    /// Whether the receiver has answered, or will not.
    answered: bool,
}

/// Where the command is.
enum Phase {
    /// The records of an earlier run are being read.
    Loading,
    /// The file is on its way.
    Sending(TransactionId),
    /// It is over, well or not; repeated questions of the receiver are answered until then.
    Over(Result<bool>, Time),
    /// It was given up by this side without the receiver's knowledge.
    GivenUp(Option<TransactionId>, String),
    /// The request makes no sense.
    Refused(String),
}

impl Sender {
    fn new(args: Args, put: PutRequest, file: PathBuf, now: Time) -> Self {
        let screen = Screen::new(args.options.json);
        let bar = screen.bar(&put.destination_name, None);
        Self {
            timeout: args.timeout.map(|timeout| now + timeout.duration()),
            linger: args.cfdp.linger.map(Span::duration),
            options: args.options,
            file,
            put,
            screen,
            bar,
            phase: Phase::Loading,
            began: now,
            resumed: false,
            moved: 0,
            refused: false,
            answered: false,
        }
    }

    fn on(
        &mut self,
        now: Time,
        station: &mut Station,
        event: rt::Event<Indication>,
    ) -> rt::Control {
        let stats = station.entity().stats();
        // An earlier process sent some of the file; this one sends what was asked for again.
        self.moved = stats.data_bytes + if self.resumed { stats.repair_bytes } else { 0 };
        match event {
            rt::Event::Tick => {
                self.progress(now, station);
                self.silence(now, station);
            }
            rt::Event::Refused(address) => self.refused(address),
            rt::Event::Indication(indication) => self.indication(now, station, indication),
        }
        if matches!(self.phase, Phase::Loading) && station.entity().is_restored() {
            self.start(now, station);
        }
        let late = self.timeout.is_some_and(|timeout| now >= timeout);
        match &self.phase {
            Phase::Loading | Phase::Sending(_) if late => {
                self.give_up("the time given is over".into());
                rt::Control::Stop
            }
            Phase::Loading | Phase::Sending(_) => rt::Control::Continue,
            Phase::Over(_, until) if now < *until => rt::Control::Continue,
            Phase::Over(..) | Phase::GivenUp(..) | Phase::Refused(_) => rt::Control::Stop,
        }
    }

    /// It is no reason to end: the receiver may be started later.
    fn refused(&mut self, address: SocketAddr) {
        if !self.refused && matches!(self.phase, Phase::Sending(_)) {
            self.refused = true;
            self.screen.say(format_args!("nobody listens on {address}; trying on"));
        }
    }

    fn indication(&mut self, now: Time, station: &Station, indication: Indication) {
        match indication {
            Indication::Restored { transactions } => self.resumed = transactions > 0,
            Indication::TransactionFinished(finished) => self.finished(now, station, &finished),
            Indication::Abandoned { condition, .. } => self.give_up(condition.to_string()),
            Indication::Fault { condition, .. } => self.screen.say(condition),
            Indication::Suspended { condition, .. } => {
                self.screen.say(format_args!("suspended: {condition}"));
            }
            Indication::PeerError { error, .. } => self.screen.say(error),
            Indication::LimitReached(limit) => {
                tracing::debug!(?limit, "a limit of the entity is reached");
            }
            Indication::RecordRefused { key } => {
                tracing::warn!(key, "the record of an earlier transfer cannot be read");
            }
            Indication::Transaction(_)
            | Indication::Misdirected { .. }
            | Indication::EofSent(_)
            | Indication::MetadataReceived(_)
            | Indication::FileSegmentReceived { .. }
            | Indication::EofReceived(_)
            | Indication::Resumed { .. }
            | Indication::Report(_)
            | Indication::ToldAgain { .. }
            | Indication::UserOperation(_) => {}
        }
    }

    /// Ends without the receiver's knowledge.
    fn give_up(&mut self, why: String) {
        let id = match self.phase {
            Phase::Sending(id) | Phase::GivenUp(Some(id), _) => Some(id),
            Phase::Loading | Phase::Over(..) | Phase::GivenUp(None, _) | Phase::Refused(_) => None,
        };
        self.phase = Phase::GivenUp(id, why);
    }

    /// Begins the transaction, or goes on with an interrupted one.
    fn start(&mut self, now: Time, station: &mut Station) {
        match station.put(now, self.put.clone()) {
            Ok(id) => {
                self.phase = Phase::Sending(id);
                self.began = now;
                let verb = if self.resumed { "going on with" } else { "sending" };
                self.screen.say(format_args!("{id}: {verb} {}", self.file.display()));
            }
            Err(error) => self.phase = Phase::Refused(error.to_string()),
        }
    }

    /// Tells how it ended, at once: the wait for the receiver's questions is nobody's business.
    fn finished(&mut self, now: Time, station: &Station, finished: &TransactionFinished) {
        let light = self.options.light_time();
        let linger = match self.put.mode {
            // A node carries what it has by itself.
            Some(_) | None if station.is_beside_node() => self.linger.unwrap_or_default(),
            Some(TransmissionMode::Unacknowledged) if !station.is_answered_below() => {
                Duration::ZERO
            }
            // The last word of what carries PDUs is to go out, and may be asked for again.
            Some(TransmissionMode::Unacknowledged) => self.linger.unwrap_or(CLOSING.max(6 * light)),
            Some(TransmissionMode::Acknowledged) | None => {
                self.linger.unwrap_or_else(|| LINGER.max(6 * light))
            }
        };
        let told = self.tell(now, station, finished);
        self.phase = Phase::Over(told, now + linger);
    }

    /// Prints the outcome; whether the file is there.
    fn tell(&self, now: Time, station: &Station, finished: &TransactionFinished) -> Result<bool> {
        self.bar.finish_and_clear();
        let elapsed = Some(now.since(self.began));
        let pdus = Some(station.counts());
        let measures = Measures { elapsed, moved: self.moved, pdus };
        let protocol = &self.options.protocol;
        let outcome = Outcome::new(protocol, finished, self.file.clone(), self.resumed, measures);
        if outcome.completed {
            let known = if transfer::is_unreported(finished) {
                "sent, nobody says whether it came"
            } else {
                "sent"
            };
            self.screen.say(format_args!("{}: {known}: {}", finished.id, outcome.summary()));
        } else {
            if let Some(why) = station.why_lost() {
                self.screen.say(why);
            }
            self.screen.say(format_args!(
                "{}: failed after {}: {} (file at the receiver: {})",
                finished.id,
                show::bytes(self.moved as f64),
                finished.condition,
                finished.file_status
            ));
            if finished.file_status == FileStatus::FilestoreRejection {
                // A Finished PDU has no place for the reason.
                self.screen.say(
                    "the receiver could not store the file: no space left, a folder that does not \
                     exist there, or a name it refuses; its output has the reason",
                );
            }
        }
        for response in &finished.filestore_responses {
            self.screen.say(request::described(response));
        }
        if self.options.json {
            outcome.print()?;
        }
        Ok(outcome.completed)
    }

    /// Somebody who should answer does not.
    fn silence(&mut self, now: Time, station: &Station) {
        let answers = self.expects_answers(station);
        // Bundles may be on their way for days.
        let is_quick = !station.is_beside_node();
        let patience = transfer::patience(self.options.light_time());
        let silent = station.counts().1 == 0 && now.since(self.began) > patience;
        let mut reports = station.entity().transactions();
        let sent = station.is_answered_below()
            || reports.any(|report| report.state == cfdp::State::Waiting);
        if is_quick && answers && silent && sent && !self.refused {
            self.refused = true;
            let entity = self.put.destination;
            self.screen.say(format_args!(
                "no answer yet; trying on. Does entity {entity} listen there, and know of its number?"
            ));
        }
    }

    fn expects_answers(&self, station: &Station) -> bool {
        let is_answered = self.put.mode != Some(TransmissionMode::Unacknowledged);
        is_answered || station.is_answered_below()
    }

    fn progress(&mut self, now: Time, station: &Station) {
        let Phase::Sending(id) = &self.phase else { return };
        let mut reports = station.entity().transactions();
        let Some(report) = reports.find(|report| report.id == *id) else { return };
        if let (None, Some(size)) = (self.bar.length(), report.size) {
            self.bar.set_length(size);
            self.bar.set_style(transfer::style_without_answer());
        }
        let is_answered = station.counts().1 > 0 || !self.expects_answers(station);
        if is_answered && !self.answered && self.bar.length().is_some() {
            self.answered = true;
            self.bar.set_style(transfer::style_with_length());
        }
        self.bar.set_position(report.progress);
        let elapsed = now.since(self.began).as_secs_f64();
        self.bar.set_message(match report.state {
            cfdp::State::Opening => "opening".to_owned(),
            cfdp::State::Suspended => "suspended".to_owned(),
            cfdp::State::Waiting => "waiting for the receiver".to_owned(),
            cfdp::State::Transferring | cfdp::State::Completing | cfdp::State::Closing => {
                show::rate(self.moved as f64 * 8.0 / elapsed.max(1e-3))
            }
        });
    }

    /// Whether nothing is left to go on with.
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(..))
    }

    /// The exit code; tells of what did not come to an end.
    fn end(self) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        let (id, why) = match self.phase {
            Phase::Over(told, _) => return told.map(|good| ExitCode::from(u8::from(!good))),
            Phase::Refused(why) => return Err(crate::Usage(why).into()),
            Phase::GivenUp(id, why) => (id, why),
            Phase::Loading => (None, "stopped".to_owned()),
            Phase::Sending(id) => (Some(id), "stopped".to_owned()),
        };
        self.screen.say(format_args!("not finished: {why}; the same command goes on from here"));
        if self.options.json {
            let len = self.file.metadata().map_or(0, |metadata| metadata.len());
            let bytes = transfer::Bytes { file: len, moved: self.moved };
            let names = (self.file, self.put.destination_name);
            let (protocol, peer) = (&self.options.protocol, self.put.destination);
            let id = id.map(|id| id.to_string());
            Outcome::given_up(protocol, "sender", id, Some(peer), names, bytes, &why).print()?;
        }
        Ok(ExitCode::from(1))
    }
}
