//! `slowlight send`: sends a file over UDP.

mod request;
mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use engine::{FileName, Time};
use indicatif::ProgressBar;
use lab::mib::Checksum;
use lab::quantity::Span;
use proto::cfdp::{self, Entity, Indication, PutRequest, TransactionFinished};
use wire::cfdp::{TransactionId, TransmissionMode};

use crate::transfer::{
    self, Measures, Options, Outcome, Screen, bind_error, bytes_text, rate_text, resolve,
};
use request::RequestOptions;
use state::State;

/// Send a file over UDP
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File to send
    file: PathBuf,

    /// Receiver's address, as 192.0.2.1:7542 or host:7542
    address: String,

    /// Name the file shall have at the receiver [default: the file's own]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,

    /// Address to send from [default: any]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Entity number of this end
    #[arg(long, value_name = "ID", default_value_t = 1)]
    entity: u64,

    /// Entity number of the receiver
    #[arg(long, value_name = "ID", default_value_t = 2)]
    remote_entity: u64,

    /// Transmission class: 1 sends once, 2 sends until all has arrived [default: 2]
    #[arg(long, value_name = "CLASS", value_parser = clap::value_parser!(u8).range(1..=2))]
    class: Option<u8>,

    /// File checksum: modular, proximity1, crc32c, crc32 or null [default: crc32c]
    #[arg(long, value_name = "TYPE", value_parser = request::named::<Checksum>)]
    checksum: Option<Checksum>,

    /// Give up after this time; the same command goes on later
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,

    /// Directory for the state of unfinished transfers
    /// [default: $XDG_STATE_HOME/slowlight or ~/.local/state/slowlight]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    request: RequestOptions,
}

/// Sends the file; returns when the receiver has it, or with class 1 when it is sent.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let (mut driver, mut sender, state) = prepare(args).map_err(|error| transfer::usage(&error))?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, |now, entity, event| sender.on(now, entity, event))?;
    let statistics = driver.statistics();
    drop(driver);
    let code = sender.end(statistics)?;
    if sender.is_over() {
        state.remove();
    }
    Ok(code)
}

/// Everything that can be wrong with the command is found out here.
fn prepare(args: Args) -> Result<(rt::Driver<Entity>, Sender, State)> {
    let to = resolve(&args.address)?;
    let (root, name) = source(&args.file)?;
    let listen = match &args.listen {
        Some(address) => resolve(address)?,
        None if to.is_ipv4() => ([0, 0, 0, 0], 0).into(),
        None => ([0u16; 8], 0).into(),
    };
    let put = put_request(&args, &name)?;
    let mut config = args.options.entity(args.entity)?;
    // One transfer, whose receiver is known: nobody else is answered.
    config.limits.transactions = 1;
    let waker = rt::Waker::new().context("cannot start")?;
    let path = root.join(&name);
    let mut state = State::open(args.state.as_deref(), &path, to, &put)?;
    let mut store = rt::FileStore::open(
        rt::StoreConfig {
            access: rt::Access::ReadOne(FileName::file(&name)?),
            state: state.directory().to_owned(),
            ..rt::StoreConfig::new(&root)
        },
        &waker,
    )?;
    if !state.is_current()? {
        store.reset().context("cannot forget an earlier transfer")?;
        state.begin()?;
    }
    let entity = Entity::new(config, rt::entropy().context("no entropy")?);
    let settings = rt::Config {
        peers_max: 0,
        // Soon after the records are read, the file shall be on its way.
        tick: Duration::from_millis(10),
        ..rt::Config::new(listen, args.options.path())
    };
    let mut driver = rt::Driver::new(settings, entity, store, waker)
        .map_err(|error| bind_error(listen, error))?;
    driver.connect_peer(to).with_context(|| format!("there is no way to {to}"))?;
    let sender = Sender::new(args, put, path, driver.now());
    Ok((driver, sender, state))
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

fn put_request(args: &Args, name: &str) -> Result<PutRequest> {
    let mode = match args.class {
        Some(1) => TransmissionMode::Unacknowledged,
        Some(_) => TransmissionMode::Acknowledged,
        None => args.options.protocol.kind.class().into(),
    };
    let asked = args.file.file_name().and_then(|name| name.to_str()).unwrap_or(name);
    let mut put = PutRequest {
        destination: args.remote_entity,
        source: Some(FileName::file(name)?),
        source_name: Some(asked.to_owned()),
        destination_name: args.remote.clone().unwrap_or_else(|| asked.to_owned()),
        mode: Some(mode),
        checksum: args.checksum.map(Into::into),
        resume: true,
        ..PutRequest::default()
    };
    args.request.apply(&mut put);
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
    phase: Phase,
    began: Time,
    before: u64,
    resumed: bool,
    /// Whether the user was told that nobody listens.
    refused: bool,
}

/// Where the command is.
enum Phase {
    /// The records of an earlier run are being read.
    Loading,
    /// The file is on its way.
    Sending(TransactionId),
    /// It is over; repeated questions of the receiver are answered until then.
    Over(Box<TransactionFinished>, Duration, Time),
    /// It was given up by this side without the receiver's knowledge.
    GivenUp(String),
}

impl Sender {
    fn new(args: Args, put: PutRequest, file: PathBuf, now: Time) -> Self {
        let screen = Screen::new(args.options.json);
        let bar = screen.bar(&put.destination_name, None);
        Self {
            timeout: args.timeout.map(|timeout| now + timeout.duration()),
            options: args.options,
            file,
            put,
            screen,
            bar,
            phase: Phase::Loading,
            began: now,
            before: 0,
            resumed: false,
            refused: false,
        }
    }

    fn on(&mut self, now: Time, entity: &mut Entity, event: rt::Event<Indication>) -> rt::Control {
        match event {
            rt::Event::Tick => self.progress(now, entity),
            rt::Event::Refused(address) => self.refused(address),
            rt::Event::Indication(indication) => self.indication(now, indication),
        }
        if matches!(self.phase, Phase::Loading) && entity.is_restored() {
            self.start(now, entity);
        }
        let late = self.timeout.is_some_and(|timeout| now >= timeout);
        match &self.phase {
            Phase::Loading | Phase::Sending(_) if late => {
                self.phase = Phase::GivenUp("the time given is over".into());
                rt::Control::Stop
            }
            Phase::Loading | Phase::Sending(_) => rt::Control::Continue,
            Phase::Over(_, _, until) if now < *until => rt::Control::Continue,
            Phase::Over(..) | Phase::GivenUp(_) => rt::Control::Stop,
        }
    }

    /// It is no reason to end: the receiver may be started later.
    fn refused(&mut self, address: SocketAddr) {
        if !self.refused && matches!(self.phase, Phase::Sending(_)) {
            self.refused = true;
            self.screen.say(format_args!("nobody listens on {address}; trying on"));
        }
    }

    fn indication(&mut self, now: Time, indication: Indication) {
        match indication {
            Indication::Restored { transactions } => self.resumed = transactions > 0,
            Indication::TransactionFinished(finished) => self.finished(now, finished),
            Indication::Abandoned { condition, .. } => {
                self.phase = Phase::GivenUp(condition.to_string());
            }
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
            | Indication::EofSent(_)
            | Indication::MetadataReceived(_)
            | Indication::FileSegmentReceived { .. }
            | Indication::EofReceived(_)
            | Indication::Resumed { .. }
            | Indication::Report(_)
            | Indication::UserOperation(_) => {}
        }
    }

    /// Begins the transaction, or goes on with an interrupted one.
    fn start(&mut self, now: Time, entity: &mut Entity) {
        match entity.put(now, self.put.clone()) {
            Ok(id) => {
                self.phase = Phase::Sending(id);
                self.began = now;
                let report = entity.transactions().find(|report| report.id == id);
                self.before = report.map_or(0, |report| report.progress);
                let verb = if self.resumed { "going on with" } else { "sending" };
                self.screen.say(format_args!("{id}: {verb} {}", self.file.display()));
            }
            Err(error) => self.phase = Phase::GivenUp(error.to_string()),
        }
    }

    fn finished(&mut self, now: Time, finished: TransactionFinished) {
        let elapsed = now.since(self.began);
        // The receiver repeats its Finished until it has our ACK, which may be lost once.
        let linger = match self.put.mode {
            Some(TransmissionMode::Unacknowledged) => Duration::ZERO,
            Some(TransmissionMode::Acknowledged) | None => {
                Duration::from_millis(100) + 3 * self.options.light_time()
            }
        };
        self.phase = Phase::Over(Box::new(finished), elapsed, now + linger);
    }

    fn progress(&self, now: Time, entity: &Entity) {
        let Phase::Sending(id) = &self.phase else { return };
        let Some(report) = entity.transactions().find(|report| report.id == *id) else { return };
        if let (None, Some(size)) = (self.bar.length(), report.size) {
            self.bar.set_length(size);
            self.bar.set_style(transfer::style_with_length());
        }
        self.bar.set_position(report.progress);
        let elapsed = now.since(self.began).as_secs_f64();
        let moved = report.progress.saturating_sub(self.before) as f64 * 8.0;
        self.bar.set_message(match report.state {
            cfdp::State::Opening => "opening".to_owned(),
            cfdp::State::Suspended => "suspended".to_owned(),
            cfdp::State::Waiting => "waiting for the receiver".to_owned(),
            cfdp::State::Transferring | cfdp::State::Completing | cfdp::State::Closing => {
                rate_text(moved / elapsed.max(1e-3))
            }
        });
    }

    /// Whether nothing is left to go on with.
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(..))
    }

    /// Tells how it ended.
    fn end(&self, statistics: rt::Statistics) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        let (finished, elapsed) = match &self.phase {
            Phase::Over(finished, elapsed, _) => (finished, *elapsed),
            Phase::GivenUp(why) => {
                self.screen
                    .say(format_args!("not finished: {why}; the same command goes on from here"));
                return Ok(ExitCode::from(1));
            }
            Phase::Loading | Phase::Sending(_) => {
                self.screen.say("stopped; the same command goes on from here");
                return Ok(ExitCode::from(1));
            }
        };
        let measures =
            Measures { elapsed: Some(elapsed), before: self.before, statistics: Some(statistics) };
        let protocol = &self.options.protocol;
        let outcome = Outcome::new(protocol, finished, self.file.clone(), self.resumed, measures);
        if outcome.completed {
            self.screen.say(format_args!("{}: sent: {}", finished.id, outcome.summary()));
        } else {
            self.screen.say(format_args!(
                "{}: failed after {}: {} (file at the receiver: {})",
                finished.id,
                bytes_text(finished.size),
                finished.condition,
                finished.file_status
            ));
        }
        for response in &finished.filestore_responses {
            self.screen.say(request::described(response));
        }
        if self.options.json {
            outcome.print()?;
        }
        Ok(ExitCode::from(u8::from(!outcome.completed)))
    }
}
