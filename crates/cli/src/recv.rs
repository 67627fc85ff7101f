//! `slowlight recv`: receives files over UDP, or by CFDP in bundles.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::Time;
use indicatif::ProgressBar;
use proto::cfdp::{
    Entity, Indication, Limit, MetadataReceived, OperationIndication, Role, TransactionFinished,
};
use transport::protocol::Family;
use wire::cfdp::{ConditionCode, DeliveryCode, TransactionId};

use crate::beside::{Hears, NodeOptions};
use crate::peers::{self, GroupOptions};
use crate::scope;
use crate::session::{self, Ways};
use crate::show;
use crate::station::{self, Driver, Station};
use crate::transfer::{self, Measures, Options, Outcome, Screen, bind_error, resolve};

/// Receive files over UDP, or by CFDP in bundles
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address to listen on, as 192.0.2.1:7542, or :7542 for all addresses
    #[arg(long, value_name = "ADDR", required_unless_present = "node", conflicts_with = "node")]
    listen: Option<String>,

    /// Directory that receives the files
    #[arg(long, value_name = "DIR", required_unless_present = "stream")]
    root: Option<PathBuf>,

    /// Entity number of this end [default: the MIB's, or 2; with --node that of the node]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// End after the first transaction, with exit code 1 if it failed
    #[arg(long)]
    once: bool,

    /// Peers remembered at the same time
    #[arg(long, value_name = "N", default_value_t = 1024)]
    peers_max: usize,

    #[command(flatten)]
    options: Options,

    /// Another entity and its address, as 3=192.0.2.7:7542: replies, and files forwarded to it for
    /// others, go there, whatever port it sends from; may be repeated
    #[arg(long, value_name = "ID=ADDR", conflicts_with = "node", help_heading = scope::CFDP_AND_LTP)]
    peer: Vec<String>,

    #[command(flatten)]
    node: NodeOptions,

    /// An engine and the next one on the way to it, as 4=3, or any=3 for all engines without a
    /// route of their own; may be repeated
    #[arg(long, value_name = "ID=ID", requires = "peer", help_heading = scope::LTP_T)]
    route: Vec<String>,

    /// Receive a stream into this file, or - for standard output, and end when it ends, with exit
    /// code 1 if part of it is missing; files are not received
    #[arg(long, value_name = "FILE", conflicts_with = "root", help_heading = scope::NORM)]
    stream: Option<PathBuf>,

    #[command(flatten, next_help_heading = scope::NORM_AND_SARATOGA)]
    group: GroupOptions,

    #[command(flatten)]
    saratoga: SaratogaOptions,
}

/// Options of Saratoga.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
struct SaratogaOptions {
    /// Let others fetch files, and list directories
    #[arg(long)]
    serve: bool,

    /// Let others delete files
    #[arg(long)]
    allow_delete: bool,

    /// Send a beacon every so many seconds to a multicast group: that this end is there, and what
    /// it does
    #[arg(long, value_name = "SECONDS", value_parser = peers::seconds)]
    beacon: Option<Duration>,

    /// Identifier in beacons, which nobody else has [default: ipn:N.0 with --entity N, else the
    /// settings' one, else the name of this machine]
    #[arg(long, value_name = "TEXT")]
    eid: Option<String>,
}

impl Args {
    fn listen(&self) -> Result<SocketAddr> {
        resolve(self.listen.as_deref().context("give an address to listen on with --listen")?)
    }
}

/// Receives until a signal comes, or with `--once` the first transaction has ended.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let family = args.options.protocol.kind.family();
    if !matches!(family, Family::Cfdp | Family::CfdpLtp) {
        return other(args, family).map_err(transfer::usage)?;
    }
    let (mut driver, mut receiver) = prepare(args).map_err(transfer::usage)?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, &mut |now, station, event| receiver.on(now, station.entity(), event))?;
    receiver.failure.map_or(Ok(()), Err)?;
    let failed = receiver.once && receiver.first != Some(true);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Receives by another protocol; the outer error is one of the command line.
fn other(args: Args, family: Family) -> Result<Result<ExitCode>> {
    let listen = args.listen()?;
    let service = session::Service {
        listen,
        group: (family == Family::Norm && args.group != GroupOptions::default())
            .then(|| args.group.of_norm())
            .transpose()?,
        beacons: beacons(&args, family, listen)?,
        root: args.root.unwrap_or_default(),
        entity: args.entity,
        once: args.once,
        ways: Ways::new(known_peers(&args.peer)?, &args.route)?,
        peers_max: args.peers_max,
        gets: args.saratoga.serve,
        deletes: args.saratoga.allow_delete,
    };
    Ok(match args.stream {
        Some(to) => session::receive_stream(args.options, &service, &to),
        None => session::serve(args.options, service),
    })
}

/// The beacons to send, if any are wanted.
fn beacons(args: &Args, family: Family, listen: SocketAddr) -> Result<Option<session::Announce>> {
    let Some(interval) = args.saratoga.beacon else {
        let grouped = family != Family::Norm && args.group != GroupOptions::default();
        let given = args.saratoga.eid.is_some() || grouped;
        ensure!(!given, "--eid, --group and --interface are for beacons; give --beacon SECONDS");
        return Ok(None);
    };
    let eid = args.saratoga.eid.clone();
    let fits = eid.as_ref().is_none_or(|eid| (1..=255).contains(&eid.len()));
    ensure!(fits, "--eid has 1 to 255 octets");
    Ok(Some(session::Announce { interval, group: args.group.group(listen.ip())?, eid }))
}

/// Everything that can be wrong with the command is found out here.
fn prepare(args: Args) -> Result<(Driver, Receiver)> {
    let root = args.root.clone().context("give --root")?;
    let waker = rt::Waker::new().context("cannot start")?;
    let screen = Screen::new(args.options.json);
    if let Some(mut beside) = args.node.beside(&args.options, args.entity)? {
        beside.set_strangers(args.peers_max);
        let (entity, socket) = (beside.entity, beside.socket().to_owned());
        let driver = beside.run_with(open_store(&root, &waker)?, waker, (TICK, Hears::All))?;
        screen.say(format_args!(
            "receiving by the node at {} into {} as entity {entity}",
            socket.display(),
            root.display()
        ));
        return Ok((Driver::Node(Box::new(driver)), Receiver::new(args, root, screen)));
    }
    let listen = args.listen()?;
    let mut config = args.options.station(args.entity, 2)?;
    let number = station::of_entity(&config).context("it has no entity")?.entity;
    let paths = peers::paths(&known_peers(&args.peer)?)?;
    let mut store = open_store(&root, &waker)?;
    session::sweep(&mut store, config.family())?;
    for (id, path) in paths.to {
        config.set_path(id, path);
    }
    let path = args.options.path(station::rate_to(&config, None), listen);
    let entity = Station::new(&config, rt::entropy().context("no entropy")?);
    let entity = entity.context("it has no entity")?;
    let settings = rt::Config { peers_max: args.peers_max, ..rt::Config::new(listen, path) };
    let mut driver = rt::Driver::new(settings, entity, store, waker)
        .map_err(|error| bind_error(listen, error))?;
    for address in paths.addresses {
        driver.add_peer(address);
    }
    screen.say(format_args!(
        "receiving on {} into {} as entity {}",
        driver.local(),
        root.display(),
        number
    ));
    Ok((Driver::Socket(Box::new(driver)), Receiver::new(args, root, screen)))
}

/// The files that come, and what is remembered of them.
fn open_store(root: &Path, waker: &rt::Waker) -> Result<rt::FileStore> {
    let mut store = rt::FileStore::open(rt::StoreConfig::new(root), waker)?;
    store.sweep("rx-", "cfdp-").context("cannot look through the working files")?;
    Ok(store)
}

/// Peers' entity numbers and addresses.
fn known_peers(texts: &[String]) -> Result<Vec<(u64, SocketAddr)>> {
    let known = |text: &String| {
        let (id, address) = text
            .split_once('=')
            .and_then(|(id, address)| Some((id.parse().ok()?, address)))
            .with_context(|| format!("peer {text:?}: write it like 3=192.0.2.7:7542"))?;
        let address = resolve(address)?;
        ensure!(address.port() != 0, "peer {text:?}: nobody can listen on port 0");
        Ok((id, address))
    };
    let peers = texts.iter().map(known).collect::<Result<Vec<_>>>()?;
    for (index, (id, _)) in peers.iter().enumerate() {
        ensure!(
            peers[..index].iter().all(|(before, _)| before != id),
            "--peer {id} is given twice; an entity has one address"
        );
    }
    Ok(peers)
}

/// How often what is under way is shown.
const TICK: Duration = Duration::from_millis(100);

/// How long after the first transaction its last acknowledgement is waited for.
const CLOSING: Duration = Duration::from_secs(5);

/// How long a sender that asked again may need to hear the answer.
const TOLD_AGAIN: Duration = Duration::from_secs(2);

/// What is shown of the transactions under way.
struct Receiver {
    options: Options,
    root: PathBuf,
    once: bool,
    screen: Screen,
    under_way: BTreeMap<TransactionId, UnderWay>,
    /// Whether the first transaction to end was complete.
    first: Option<bool>,
    closing_until: Time,
    /// Whether the first transaction was over before its sender could be told.
    told_again: bool,
    failure: Option<anyhow::Error>,
}

/// A transaction as the user sees it.
struct UnderWay {
    bar: ProgressBar,
    began: Time,
    /// Bytes that an earlier process had received.
    before: u64,
    resumed: bool,
}

impl UnderWay {
    /// Bytes received since this process began. Of what failed the last that was heard counts.
    fn moved(&self, entity: &Entity, finished: &TransactionFinished) -> u64 {
        let mut reports = entity.transactions();
        let received = match finished.delivery {
            DeliveryCode::Complete => finished.size,
            DeliveryCode::Incomplete => reports
                .find(|report| report.id == finished.id)
                .map_or_else(|| self.bar.position(), |report| report.progress),
        };
        received.saturating_sub(self.before)
    }
}

impl Receiver {
    fn new(args: Args, root: PathBuf, screen: Screen) -> Self {
        Self {
            options: args.options,
            root,
            once: args.once,
            screen,
            under_way: BTreeMap::new(),
            first: None,
            closing_until: Time::MAX,
            told_again: false,
            failure: None,
        }
    }

    fn on(&mut self, now: Time, entity: &Entity, event: rt::Event<Indication>) -> rt::Control {
        match event {
            rt::Event::Tick => self.progress(now, entity),
            // It has no single peer that could refuse.
            rt::Event::Refused(_) => {}
            rt::Event::Indication(indication) => self.indication(now, entity, indication),
        }
        let closed = self.once
            && self.first.is_some()
            && (now >= self.closing_until
                || !self.told_again && entity.transactions().next().is_none());
        if closed || self.failure.is_some() { rt::Control::Stop } else { rt::Control::Continue }
    }

    fn indication(&mut self, now: Time, entity: &Entity, indication: Indication) {
        match indication {
            Indication::MetadataReceived(metadata) => self.begun(now, &metadata),
            Indication::TransactionFinished(finished) if finished.role == Role::Receiver => {
                self.finished(now, entity, &finished);
            }
            Indication::Abandoned { id, condition, .. } => self.abandoned(now, id, condition),
            Indication::Fault { id, condition, .. } => {
                self.screen.say(format_args!("{id}: {condition}"));
            }
            Indication::Misdirected { destination, .. } => {
                let here = entity.config().entity;
                self.screen.say(format_args!(
                    "PDUs for entity {destination} come here and are dropped: this is entity {here}"
                ));
            }
            Indication::Suspended { id, condition } => {
                self.screen.say(format_args!("{id}: suspended: {condition}"));
            }
            Indication::PeerError { id, error, .. } => {
                self.screen.say(format_args!("{id}: {error}"));
            }
            Indication::LimitReached(Limit::Transactions) => {
                tracing::warn!("as many transactions as allowed are under way; one is refused");
            }
            // What is dropped at these is asked for again.
            Indication::LimitReached(
                limit @ (Limit::Gaps | Limit::WriteBuffer | Limit::Replies | Limit::Refusals),
            ) => tracing::debug!(?limit, "a limit of the entity is reached"),
            Indication::RecordRefused { key } => {
                tracing::warn!(key, "the record of an earlier transfer cannot be read");
            }
            Indication::Restored { transactions } => {
                if transactions > 0 {
                    self.screen.say(format_args!(
                        "{transactions} interrupted transactions go on when their senders do"
                    ));
                }
                self.restored(now, entity);
            }
            Indication::ToldAgain { id, condition, delivery } => {
                // An earlier process had received it, and its sender had not heard of that.
                if self.once && self.first.is_none() {
                    self.screen.say(format_args!("{id}: was received before: {condition}"));
                    let good = condition == ConditionCode::NoError;
                    self.first = Some(good && delivery == DeliveryCode::Complete);
                    self.told_again = true;
                }
                if self.told_again {
                    self.closing_until = self.closing_until.min(now + TOLD_AGAIN);
                }
            }
            Indication::Transaction(_)
            | Indication::EofSent(_)
            | Indication::FileSegmentReceived { .. }
            | Indication::EofReceived(_)
            | Indication::TransactionFinished(_)
            | Indication::Resumed { .. }
            | Indication::Report(_) => {}
            Indication::UserOperation(told) => self.served(&told),
        }
    }

    /// Tells of a transaction that ended without its sender's knowledge.
    fn abandoned(&mut self, now: Time, id: TransactionId, condition: ConditionCode) {
        let under_way = self.under_way.remove(&id);
        self.screen.say(format_args!("{id}: abandoned: {condition}"));
        if self.options.json {
            let names = (self.root.clone(), String::new());
            let (protocol, why) = (&self.options.protocol, condition.to_string());
            let bytes = under_way.map_or_else(Default::default, |it| transfer::Bytes {
                file: it.bar.length().unwrap_or(0),
                moved: it.bar.position().saturating_sub(it.before),
            });
            let peer = id.source.0;
            let outcome = Outcome::given_up(
                protocol,
                "receiver",
                Some(id.to_string()),
                Some(peer),
                names,
                bytes,
                &why,
            );
            self.failure = outcome.print().err();
        }
        self.first.get_or_insert(false);
        self.closing_until = self.closing_until.min(now + CLOSING);
    }

    /// Takes up what an earlier process left.
    fn restored(&mut self, now: Time, entity: &Entity) {
        for report in entity.transactions().filter(|report| report.role == Role::Receiver) {
            let bar = self.screen.bar(&report.destination_name, report.size);
            let under_way = UnderWay { bar, began: now, before: report.progress, resumed: true };
            self.under_way.insert(report.id, under_way);
        }
    }

    /// What was done for another entity, or refused.
    fn served(&self, told: &OperationIndication) {
        match told {
            OperationIndication::Refused { from, id, reason } => {
                self.screen.say(format_args!("{id}: entity {from} asked in vain: {reason}"));
            }
            OperationIndication::ProxyPut { from, original, id } => {
                self.screen
                    .say(format_args!("{id}: sending a file for entity {from} ({original})"));
            }
            OperationIndication::SfoForwarded { original, next, condition } => {
                self.screen
                    .say(format_args!("{original}: handed on to entity {next}: {condition}"));
            }
            OperationIndication::Relayed { id, condition } => {
                self.screen.say(format_args!("{id}: relayed: {condition}"));
            }
            // The transaction that brings a file or an answer is told of itself.
            OperationIndication::SfoReceived { .. }
            | OperationIndication::SfoReport(_)
            | OperationIndication::ProxyPutResponse { .. }
            | OperationIndication::DirectoryListing { .. }
            | OperationIndication::RemoteStatusReport { .. }
            | OperationIndication::RemoteSuspend { .. }
            | OperationIndication::RemoteResume { .. } => {}
        }
    }

    fn begun(&mut self, now: Time, metadata: &MetadataReceived) {
        if metadata.destination_name.is_empty() {
            let from = metadata.source;
            self.screen.say(format_args!("{}: messages from entity {from}", metadata.id));
            return;
        }
        let bar = self.screen.bar(&metadata.destination_name, metadata.size);
        let size = metadata
            .size
            .map_or_else(|| "unknown size".to_owned(), |size| show::bytes(size as f64));
        self.screen.say(format_args!(
            "{}: receiving {} ({size}) from entity {}",
            metadata.id,
            metadata.destination_name.escape_debug(),
            metadata.source
        ));
        let under_way = UnderWay { bar, began: now, before: 0, resumed: false };
        self.under_way.entry(metadata.id).or_insert(under_way);
    }

    fn finished(&mut self, now: Time, entity: &Entity, finished: &TransactionFinished) {
        let under_way = self.under_way.remove(&finished.id);
        let measures = Measures {
            pdus: None,
            elapsed: under_way.as_ref().map(|under_way| now.since(under_way.began)),
            moved: under_way.as_ref().map_or(0, |it| it.moved(entity, finished)),
        };
        let resumed = under_way.as_ref().is_some_and(|under_way| under_way.resumed);
        if let Some(under_way) = under_way {
            under_way.bar.finish_and_clear();
        }
        let file = self.root.join(&finished.destination_name);
        let outcome = Outcome::new(&self.options.protocol, finished, file, resumed, measures);
        if !outcome.completed {
            self.screen.say(format_args!(
                "{}: {} failed: {} (file: {})",
                finished.id,
                finished.destination_name.escape_debug(),
                finished.condition,
                finished.file_status
            ));
        } else if !finished.destination_name.is_empty() {
            // Messages alone were told of when they came.
            self.screen.say(format_args!(
                "{}: received {}: {}",
                finished.id,
                finished.destination_name.escape_debug(),
                outcome.summary()
            ));
        }
        if self.options.json {
            self.failure = outcome.print().err();
        }
        if self.first.is_none() && resumed {
            // What an earlier process had almost done ends before its sender is heard of, and is
            // told to it when it asks.
            self.told_again = entity.transactions().all(|report| report.id != finished.id);
        }
        self.first.get_or_insert(outcome.completed);
        let grace = CLOSING + 4 * self.options.light_time();
        self.closing_until = self.closing_until.min(now + grace);
    }

    fn progress(&self, now: Time, entity: &Entity) {
        for report in entity.transactions() {
            let Some(under_way) = self.under_way.get(&report.id) else { continue };
            under_way.bar.set_position(report.progress);
            let elapsed = now.since(under_way.began).as_secs_f64();
            let moved = report.progress.saturating_sub(under_way.before);
            under_way.bar.set_message(show::rate(moved as f64 * 8.0 / elapsed.max(1e-3)));
        }
    }
}
