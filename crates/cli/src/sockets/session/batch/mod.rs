//! Several files and folders, sent to one peer in one session.
//!
//! They travel in packs: files whose content is a tar archive, which a receiver unpacks. A pack is
//! not stored here; it is read from the files that it holds.

mod deletion;
mod journal;
mod lists;
mod naming;
mod outbox;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cfdp::{Config, PutRequest};
use engine::{FileName, PathId, Time};
use serde::Serialize;
use service::monitor::{Monitor, Note, Status, Tally, Transfer};
use transport::protocol::Kind;
use transport::quantity::{Rate, Span};
use transport::{Ended, Event, SendRequest, TransferId, Transport};
use tree::{Entry, Pack, Scan, ScanOptions};

use self::deletion::{Deletion, Names};
pub(crate) use self::journal::Journal;
use self::lists::Lists;
use self::naming::Naming;
use self::outbox::Outbox;
pub(crate) use self::outbox::WatchOptions;
use super::client::{self, Opened};
use super::errand::Errand;
use super::job::{Ends, Job};
use super::place::{Place, State, described, hash};
use super::put::CfdpOptions;
use super::watch::{NO_CONTACT, Watch, expects_replies, is_acknowledged};
use super::{Linger, Runner, choice, leave, losses};
use crate::exit::Exit;
use crate::show;
use crate::sockets::outcome::print_json;
use crate::sockets::screen::{Bar, Reach, Screen, Shown};
use crate::sockets::transfer::{self, Options};
use crate::sockets::{groups, scope};
use crate::state;
use crate::stop::stop_flag;

/// Number of packs under way at a time.
const TRANSFERS_MAX: usize = 32;

/// Bytes of packs under way, where the rate of the path is unknown.
const WINDOW: u64 = 16 << 20;

/// Bounds of the bytes of a pack. A small one is a small loss if it has to be sent again; the
/// overhead of a transfer is a small part of a large one.
const PACK_MIN: u64 = 256 << 10;
const PACK_MAX: u64 = 64 << 20;
/// Bytes of a pack where the rate of the path is unknown; the most where its delay is.
pub(crate) const PACK: u64 = 4 << 20;

/// Time after which a watched folder's pack whose receiver did not reply is sent again.
const SILENT_PAUSE: Duration = Duration::from_secs(30);

/// Message about a deletion that could follow a loss.
const UNCONFIRMED: &str = "--delete deletes once the receiver has confirmed all else; send to one \
                           address, by a protocol and options with confirmation";

/// Packs that fail one after the other before the batch is given up.
const FAILURES_MAX: u32 = 3;

/// Options of folders.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = scope::FOLDERS)]
pub(crate) struct BatchOptions {
    /// Leave out files and folders that match, e.g. "*.tmp" or "photos/raw/**"; repeatable
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    /// List what would be sent, and send nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Keep mode and time of a single file, too, which is then sent like a folder
    #[arg(long)]
    pub(crate) preserve: bool,
}

impl BatchOptions {
    /// Whether a single file is sent like a folder, too.
    pub(crate) fn is_wanted(&self) -> bool {
        self.preserve || self.dry_run || !self.exclude.is_empty()
    }
}

/// Request to send several files and folders.
#[derive(Debug)]
pub(crate) struct SendBatch {
    pub(crate) paths: Vec<PathBuf>,
    /// Folder at the receiver that gets them; the name of the only path there.
    pub(crate) below: Option<String>,
    /// Folder for the state, in place of the user's.
    pub(crate) state: Option<PathBuf>,
    pub(crate) cfdp: CfdpOptions,
    pub(crate) groups: groups::SendOptions,
    pub(crate) batch: BatchOptions,
    pub(crate) watch: WatchOptions,
    /// Whether what the receiver has is left out.
    pub(crate) compares: bool,
    /// Whether what only the receiver has is deleted.
    pub(crate) deletes: bool,
    pub(crate) packs: Arc<rt::Packs>,
    /// The request to a CFDP entity, without names, if there is one.
    pub(crate) put: Option<PutRequest>,
}

impl SendBatch {
    /// Opens the folder to watch, if one is to be watched.
    fn open_outbox(&self) -> Result<Option<Outbox>> {
        if !self.watch.watch {
            return Ok(None);
        }
        let path = outbox::check(&self.paths)?;
        let below = self.below.as_deref().map(FileName::file).transpose();
        let below = below.with_context(|| format!("--remote {:?}", self.below))?;
        Outbox::open(path, &self.watch, &self.batch.exclude, below.as_ref()).map(Some)
    }

    /// Lists the files and folders to send, with their names at the receiver.
    fn scan(&self) -> Result<Scan> {
        let mut scan =
            tree::scan(&self.paths, &ScanOptions { exclude: self.batch.exclude.clone() })?;
        let naming = Naming::new(self)?;
        for entry in &mut scan.entries {
            naming.rename(&mut entry.name);
        }
        Ok(scan)
    }
}

/// Name of a batch, of which those of its packs are made.
pub(crate) fn label(paths: &[PathBuf]) -> String {
    let first = paths.first().and_then(|path| path.canonicalize().ok());
    let name = first.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    name.unwrap_or("files").to_owned()
}

impl Errand for SendBatch {
    fn keeps(&self) -> bool {
        false
    }

    fn moves(&self) -> bool {
        false
    }

    fn groups(&self) -> Option<&groups::SendOptions> {
        Some(&self.groups)
    }

    fn plan_put(&mut self, kind: Kind, remote: u64, config: &mut Config) -> Result<()> {
        // Some have ended and wait for the removal of their record, or belong to an earlier run.
        config.limits.transactions = 4 * TRANSFERS_MAX;
        self.put = Some(self.cfdp.request(kind, remote, config));
        Ok(())
    }

    fn put(&self) -> Option<&PutRequest> {
        self.put.as_ref()
    }

    fn open_store(
        &self,
        options: &Options,
        ends: &Ends,
        to: &str,
        _resumes: bool,
        waker: &rt::Waker,
    ) -> Result<(rt::FileStore, Place)> {
        let protocol = options.full_protocol()?;
        let exclude = &self.batch.exclude;
        let put = self.put.as_ref().map(described);
        let (entity, via) = (ends.remote_entity, ends.via);
        let verb = if self.watch.watch { "watch" } else { "batch" };
        let request = format!(
            "{verb} by {protocol} to {entity} via {via:?} ({put:?}) as {:?} without {exclude:?}",
            self.below
        );
        let base = self.state.as_deref();
        State::of_paths(base, &self.paths, to, &request)?.open_packs(&self.packs, waker)
    }
}

/// Sizes that depend on the path.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Bytes of a pack.
    pack: u64,
    /// Bytes of packs under way.
    window: u64,
}

impl Sizes {
    /// A pack has the bytes of a round trip, or of a second if that is not known. One that waits is
    /// enough to keep the link busy; with more, more is lost if the process is killed.
    fn new(options: &Options) -> Self {
        let round_trip = 2 * options.light_time();
        match options.rate.map(Rate::bps).filter(|rate| *rate > 0) {
            Some(rate) => {
                let (time, most) = match round_trip {
                    // On a slow link, an urgent file would wait long for a pack of the usual size.
                    Duration::ZERO => (Duration::from_secs(1), PACK),
                    round_trip => (round_trip, PACK_MAX),
                };
                let bytes = (rate as f64 / 8.0 * time.as_secs_f64()) as u64;
                let pack = bytes.clamp(PACK_MIN, most);
                // Looks at the window may be this far apart.
                Self { pack, window: pack.max(rate / 8 / 20) }
            }
            None => Self { pack: PACK, window: WINDOW },
        }
    }
}

/// Runs a batch until it is delivered or given up.
pub(crate) fn run(mut job: Job<SendBatch>) -> Result<ExitCode> {
    let outbox = job.wish.open_outbox().map_err(transfer::usage)?;
    let scan = match &outbox {
        Some(outbox) => outbox.scan(),
        None => job.wish.scan(),
    };
    let mut scan = scan.map_err(transfer::usage)?;
    let screen = Screen::new(job.options.json);
    if outbox.is_none() {
        print_skipped(&scan, &screen);
    }
    let stop = stop_flag()?;
    if job.wish.deletes && !is_confirmed(&job) {
        return Err(crate::Usage(UNCONFIRMED.to_owned()).into());
    }
    let mut compared = None;
    if job.wish.compares && job.ends.group.is_some() {
        screen.print("groups list nothing: everything is sent");
    } else if job.wish.compares {
        let Some(found) = compare(&job, &mut scan, &screen, &stop)? else {
            screen.print("stopped");
            return Ok(Exit::Failed.into());
        };
        screen.print(format_args!("there already: {}", found.there));
        compared = Some(found);
    }
    let (there, deletion) = compared.map_or((None, None), |it| (Some(it.there), it.deletion));
    if job.wish.batch.dry_run {
        let others = deletion.map(|deletion| deletion.others(&job.wish)).transpose()?;
        let others = others.unwrap_or_default();
        others.print_odd(&screen);
        return list(&scan, &others.names);
    }
    let Opened { mut runner, place, is_one_way, keeps_records, .. } =
        client::open(&mut job).map_err(transfer::usage)?;
    if outbox.is_some() && (is_one_way || !is_confirmed(&job)) {
        let text = "--watch moves a file once its receiver has confirmed it; take a protocol and \
                    options with confirmation";
        return Err(crate::Usage(text.to_owned()).into());
    }
    if job.wish.deletes && (is_one_way || !is_confirmed(&job)) {
        return Err(crate::Usage(UNCONFIRMED.to_owned()).into());
    }
    let mut sizes = Sizes::new(&job.options);
    if outbox.is_some() {
        // An urgent file shares the link with what is being sent.
        sizes.window = sizes.window.min(sizes.pack);
    }
    let set = rt::entropy()?.next_u64();
    let counts = Counts::new(&scan);
    let folder = place.folder().context("a batch keeps its state")?;
    let journal = match &outbox {
        // The queue has the rest.
        Some(_) => Journal::resume(folder, scan.entries, sizes.pack, set)?.0,
        None => {
            if there.is_some() {
                // The receiver has said what it has.
                Journal::forget_delivered(folder)?;
            }
            Journal::open(folder, scan.entries, sizes.pack, set)?
        }
    };
    let mut client = Client::new(job, &runner, screen, journal, counts, sizes);
    client.there = there.unwrap_or_default();
    if let Some(outbox) = outbox {
        client.monitor = Some(client.monitor(&outbox)?);
        client.outbox = Some(outbox);
    }
    client.watch.is_one_way = is_one_way;
    client.keeps_records = keeps_records;
    client.begin()?;
    loop {
        runner.run(&stop, &mut |now, transport, event| client.on(now, transport, event))?;
        if !client.sends_missing(&stop) {
            break;
        }
    }
    if let Runner::Socket(driver) = &mut runner {
        leave(driver, &client.to_cancel(), client.job.options.light_time())?;
    }
    drop(runner);
    if client.is_delivered() {
        place.forget();
    }
    if let Some((loss, segments)) = client.loss {
        losses::remember(&client.job.ends.to.to_string(), loss, segments);
    }
    if client.is_proven() {
        choice::remember(client.job.ends.to, &client.job.options.full_protocol()?);
    }
    if let Some(deletion) = deletion.filter(|_| client.is_delivered()) {
        client.delete(deletion, &stop);
    }
    client.end()
}

/// Comparison of a batch with a receiver's lists.
struct Compared {
    /// Numbers of the entries that both have with the same content, permissions and time.
    there: Counts,
    /// Deletion after the batch, if it is requested.
    deletion: Option<Deletion>,
}

/// Leaves out what the receiver has. Returns nothing if the process is to stop.
fn compare(
    job: &Job<SendBatch>,
    scan: &mut Scan,
    screen: &Screen,
    stop: &AtomicBool,
) -> Result<Option<Compared>> {
    let names = job.wish.deletes.then(|| Names::new(&job.wish, scan));
    let names = names.transpose().context("--delete")?;
    let lists = match Lists::request(job, &scan.entries, screen, stop) {
        Err(error) => bail!("{error:#}. Without --checksum everything is sent"),
        Ok(None) => return Ok(None),
        Ok(Some(lists)) => lists,
    };
    let Some(names) = names else {
        let there = lists.leave_out(job, scan, stop);
        return Ok(there.map(|there| Compared { there, deletion: None }));
    };
    let deletion = Deletion::new(lists, names)?;
    let there = deletion.lists.leave_out(job, scan, stop);
    Ok(there.map(|there| Compared { there, deletion: Some(deletion) }))
}

/// Whether the receiver confirms what it has got.
fn is_confirmed(job: &Job<SendBatch>) -> bool {
    let is_one = job.ends.group.is_none() && job.ends.via.is_none();
    is_one
        && match &job.wish.put {
            Some(put) => is_acknowledged(put) || put.closure == Some(true),
            None => job.options.protocol.kind.is_reliable(),
        }
}

/// Prints what cannot be sent.
pub(crate) fn print_skipped(scan: &Scan, screen: &Screen) {
    for skipped in &scan.skipped {
        screen.print(skipped);
    }
}

/// Lists what would be sent and deleted.
fn list(scan: &Scan, to_delete: &[String]) -> Result<ExitCode> {
    use std::io::Write as _;

    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut write = || -> std::io::Result<()> {
        for entry in &scan.entries {
            let name = String::from_utf8_lossy(&entry.name).escape_debug().to_string();
            match &entry.kind {
                tree::Kind::File { len, .. } => writeln!(out, "{len:>14} {name}")?,
                tree::Kind::Directory => writeln!(out, "{:>14} {name}/", "")?,
                tree::Kind::Link { target } => {
                    let target = String::from_utf8_lossy(target);
                    writeln!(out, "{:>14} {name} -> {}", "", target.escape_debug())?;
                }
            }
        }
        for name in to_delete {
            writeln!(out, "{:>14} {}", "delete", name.escape_debug())?;
        }
        writeln!(out, "{}", Counts::new(scan))?;
        out.flush()
    };
    match write() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(Exit::Done.into()),
    }
}

/// Numbers of what a batch has.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    files: u64,
    folders: u64,
    links: u64,
    /// Bytes of the files.
    bytes: u64,
    /// Files and folders that cannot be sent.
    skipped: u64,
    /// Files and folders that cannot be read; they count above as well.
    unreadable: u64,
}

impl Counts {
    fn new(scan: &Scan) -> Self {
        let is_unreadable =
            |it: &&tree::Skipped| matches!(it.reason, tree::SkipReason::Unreadable(_));
        let mut counts = Self {
            skipped: scan.skipped.len() as u64,
            unreadable: scan.skipped.iter().filter(is_unreadable).count() as u64,
            ..Self::default()
        };
        for entry in &scan.entries {
            match &entry.kind {
                tree::Kind::File { len, .. } => {
                    counts.files += 1;
                    counts.bytes += len;
                }
                tree::Kind::Directory => counts.folders += 1,
                tree::Kind::Link { .. } => counts.links += 1,
            }
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = |count: u64, noun: &str| match count {
            1 => format!("1 {noun}"),
            _ => format!("{count} {noun}s"),
        };
        let others = [(self.folders, "folder"), (self.links, "link")];
        let others = others.iter().filter(|(count, _)| *count > 0);
        write!(f, "{}", counted(self.files, "file"))?;
        others
            .into_iter()
            .try_for_each(|(count, noun)| write!(f, ", {}", counted(*count, noun)))?;
        write!(f, ", {}", show::bytes(self.bytes as f64))
    }
}

/// A pack under way.
#[derive(Debug)]
struct UnderWay {
    number: u32,
    /// Bytes of the archive.
    bytes: u64,
    /// Bytes that were sent.
    sent: u64,
    /// Bytes that the receiver confirmed before the end.
    confirmed: u64,
    /// Class of its files; lower ones are more urgent.
    class: usize,
    /// Whether an earlier process began it.
    is_adopted: bool,
    /// Whether the receiver may have had all of it before this process began.
    is_resumed: bool,
    /// Whether an earlier attempt sent a part, and the receiver has not reported which.
    is_open: bool,
}

/// Phase of a batch.
enum Phase {
    /// The records of an earlier process are being read.
    Loading,
    Active,
    /// Everything was sent, or failed; requests of the peer are replied to meanwhile.
    Over(Linger, Time),
    /// It was given up, for this reason.
    Stopped(String),
    /// The request is invalid.
    Refused(String),
}

/// A batch that is being sent.
struct Client {
    job: Job<SendBatch>,
    label: String,
    screen: Screen,
    bar: Bar,
    watch: Watch,
    journal: Journal,
    sizes: Sizes,
    counts: Counts,
    /// Whether the same command goes on with transfers under way, of which this end has records.
    keeps_records: bool,
    /// Files and folders that were left out, because the receiver has them.
    there: Counts,
    /// Number of files and links that were deleted at the receiver.
    deleted: u64,
    /// Why not all was deleted there.
    undeleted: Option<String>,
    phase: Phase,
    timeout: Option<Time>,
    /// Numbers of the packs to send, in order.
    waiting: VecDeque<u32>,
    active: BTreeMap<TransferId, UnderWay>,
    /// What was delivered of packs that an earlier process began, if the receiver can list it.
    resumed: Vec<Entry>,
    /// Bytes of all packs of this run.
    total: u64,
    /// Bytes of the packs that were delivered.
    delivered: u64,
    /// Whether the receiver confirmed every pack that was delivered.
    is_confirmed: bool,
    /// Number of packs that failed, and of those since the last delivery.
    failed: u32,
    failed_in_row: u32,
    /// Number of times that the files of a pack had changed when it was sent.
    changes: BTreeMap<u32, u32>,
    /// The folder that is watched, if one is.
    outbox: Option<Outbox>,
    /// Packs of it whose receiver did not reply, until when they wait.
    paused: BTreeMap<u32, Time>,
    /// Reports about it.
    monitor: Option<Monitor>,
    /// Deliveries from it, and failures.
    tally: Tally,
    /// Time of the end, or until when it is under way.
    ended: Time,
    loss: Option<(f64, f64)>,
}

impl Client {
    fn new(
        job: Job<SendBatch>,
        runner: &Runner,
        screen: Screen,
        journal: Journal,
        counts: Counts,
        sizes: Sizes,
    ) -> Self {
        let (now, is_quick) = (runner.now(), matches!(runner, Runner::Socket(_)));
        let mut waiting = journal.waiting().to_vec();
        // What is there in part is not left behind.
        waiting.sort_by_key(|number| !journal.is_started(*number));
        let plans = waiting.iter().filter_map(|number| journal.plan(*number));
        let total = plans.map(tree::Plan::len).sum();
        let label = label(&job.wish.paths);
        let bar = Bar::new(screen.bar(&label, Some(total)), now);
        Self {
            watch: Watch::new(job.ends.to, &job.options, job.wish.put.as_ref(), "", is_quick),
            timeout: job.timeout.map(|timeout| now + timeout.duration()),
            job,
            label,
            screen,
            bar,
            journal,
            sizes,
            counts,
            keeps_records: false,
            there: Counts::default(),
            deleted: 0,
            undeleted: None,
            phase: Phase::Loading,
            waiting: waiting.into(),
            active: BTreeMap::new(),
            resumed: Vec::new(),
            total,
            delivered: 0,
            is_confirmed: true,
            failed: 0,
            failed_in_row: 0,
            changes: BTreeMap::new(),
            outbox: None,
            paused: BTreeMap::new(),
            monitor: None,
            tally: Tally::default(),
            ended: now,
            loss: None,
        }
    }

    /// Announces the batch, of which earlier runs delivered a part.
    fn begin(&mut self) -> Result<()> {
        if self.outbox.is_some() {
            return self.begin_watch();
        }
        // Transfers of an earlier process read theirs as soon as their records are read.
        for number in &self.waiting {
            self.add_pack(*number)?;
        }
        let earlier = self.journal.earlier;
        let rest = match earlier.files {
            0 => String::new(),
            files => format!(
                "; {files} files ({}) were delivered before",
                show::bytes(earlier.bytes as f64)
            ),
        };
        self.screen.print(format_args!("sending {}{rest}", self.counts));
        Ok(())
    }

    /// Goes on with what an earlier run was sending from the folder.
    fn begin_watch(&mut self) -> Result<()> {
        let Some(mut outbox) = self.outbox.take() else { return Ok(()) };
        for number in self.journal.delivered() {
            if let Some(plan) = self.journal.plan(number) {
                let moved = outbox.deliver(plan);
                self.print_error(moved);
            }
        }
        self.forget_moved(&outbox);
        for number in &self.waiting {
            self.add_pack(*number)?;
            if let Some(plan) = self.journal.plan(*number) {
                outbox.adopt(plan);
            }
        }
        let name = outbox.path().display();
        self.screen.print(format_args!("watching {name}; what is delivered moves to {name}/sent"));
        self.outbox = Some(outbox);
        Ok(())
    }

    fn print_error(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.fail(format!("{error:#}"));
        }
    }

    /// Removes packs from the journal whose files have all been moved.
    fn forget_moved(&mut self, outbox: &Outbox) {
        for number in self.journal.delivered() {
            if self.journal.plan(number).is_some_and(|plan| !outbox.has_unmoved(plan)) {
                self.journal.remove(number);
            }
        }
    }

    /// Prints and notes a failure.
    fn fail(&mut self, text: String) {
        self.screen.print(&text);
        self.tally.fail(text);
    }

    /// Begins to report about a watched folder.
    fn monitor(&self, outbox: &Outbox) -> Result<Monitor> {
        let Job { options, ends, wish, .. } = &self.job;
        let protocol = options.full_protocol()?.to_string();
        let address = ends.peer_address().map(|address| address.to_string()).unwrap_or_default();
        let status = Status::begin("sender", &protocol, outbox.path(), &address);
        let reports = state::reports(wish.state.as_deref());
        Monitor::begin(status, reports.as_deref(), wish.watch.socket.as_deref())
            .map_err(|error| transfer::usage(error.into()))
    }

    /// Reports about the watched folder.
    fn report(&mut self, now: Time) {
        let (Some(monitor), Some(outbox)) = (&mut self.monitor, &self.outbox) else { return };
        if !monitor.is_due() {
            return;
        }
        let moved = self.delivered + self.active.values().map(|pack| pack.sent).sum::<u64>();
        let transfers = self.active.iter().map(|(id, pack)| Transfer {
            id: id.to_string(),
            name: self.journal.plan(pack.number).map(contents).unwrap_or_default(),
            bytes: pack.sent,
            confirmed: Some(pack.confirmed),
            size: Some(pack.bytes),
        });
        monitor.report(moved, |status| {
            status.is_answered = Some(self.watch.is_answering());
            status.pause = self.watch.pause(now);
            status.waiting = outbox.waiting();
            status.transfers = transfers.collect();
            status.tally = Tally { delivered_bytes: self.delivered, ..self.tally.clone() };
        });
    }

    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        if self.is_under_way() {
            self.ended = now;
        }
        match event {
            rt::Event::Tick => self.tick(now, transport),
            rt::Event::Refused(address) => self.watch.on_refused(address, &self.screen),
            rt::Event::NewPeer { .. } => {}
            rt::Event::Contact(contact) => {
                let is_last = self.watch.on_contact(now, contact, &self.screen);
                if is_last && self.is_under_way() {
                    self.phase = Phase::Stopped(NO_CONTACT.to_owned());
                }
            }
            rt::Event::Indication(event) => {
                let event = transport.reported(event);
                self.event(now, event);
            }
        }
        if matches!(self.phase, Phase::Loading) && transport.is_ready() {
            self.phase = Phase::Active;
            self.bar.began = now;
            self.adopt(now, transport);
        }
        if matches!(self.phase, Phase::Active) {
            self.fill(now, transport);
        }
        if self.timeout.is_some_and(|timeout| now >= timeout) && self.is_under_way() {
            self.phase = Phase::Stopped("timeout".to_owned());
        }
        let stays = match &self.phase {
            Phase::Loading | Phase::Active => true,
            Phase::Over(linger, since) => linger.lasts(*since, now, transport),
            Phase::Stopped(_) | Phase::Refused(_) => false,
        };
        if stays { rt::Control::Continue } else { rt::Control::Stop }
    }

    /// Takes over the transfers of an earlier process, which are under way already.
    fn adopt(&mut self, now: Time, transport: &mut dyn Transport) {
        for report in transport.transfers() {
            match self.waiting_pack(&report.name) {
                Some(number) => {
                    self.waiting.retain(|waiting| *waiting != number);
                    self.watch_pack(report.id, number, true);
                }
                // Its files have changed, and are in other packs.
                None => transport.cancel(now, &report.id),
            }
        }
    }

    /// Number of the pack of this name, if it waits.
    fn waiting_pack(&self, name: &str) -> Option<u32> {
        self.waiting.iter().copied().find(|number| self.pack_name(*number) == name)
    }

    fn pack_name(&self, number: u32) -> String {
        tree::pack_name(&self.label, self.journal.batch_number(), number)
    }

    /// Notes that a pack is under way.
    fn watch_pack(&mut self, id: TransferId, number: u32, is_adopted: bool) {
        let plan = self.journal.plan(number);
        let bytes = plan.map_or(0, tree::Plan::len);
        let classes = plan.zip(self.outbox.as_ref());
        let class = classes.map_or(0, |(plan, outbox)| outbox.class_of(plan));
        tracing::debug!(%id, number, bytes, "pack under way");
        let is_open = self.resumes(number);
        let pack = UnderWay {
            number,
            bytes,
            sent: 0,
            confirmed: 0,
            class,
            is_adopted,
            is_resumed: is_adopted || is_open,
            is_open,
        };
        self.active.insert(id, pack);
    }

    fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Loading | Phase::Active)
    }

    fn tick(&mut self, now: Time, transport: &mut dyn Transport) {
        let (protocol, is_group) = (&self.job.options.protocol, self.job.ends.group.is_some());
        let expects = expects_replies(transport, protocol, self.job.wish.put.as_ref(), is_group);
        self.watch.observe(now, transport, expects, &self.screen);
        let loss = transport.groups().and_then(|groups| groups.loss());
        self.loss = loss.or(self.loss);
        for report in transport.transfers() {
            if let Some(pack) = self.active.get_mut(&report.id) {
                pack.sent = report.bytes.min(pack.bytes);
                pack.confirmed = report.confirmed.unwrap_or_default().min(pack.bytes);
                pack.is_open &= pack.sent == 0;
            }
        }
        if let Some(mut outbox) = self.outbox.take() {
            self.poll(now, &mut outbox);
            self.outbox = Some(outbox);
        }
        if let Some(outbox) = &self.outbox {
            let under_way = self.active.values().map(|pack| pack.bytes).sum::<u64>();
            self.total = self.delivered + under_way + outbox.bytes();
            self.bar.set_size(self.total);
        }
        self.report(now);
        if matches!(self.phase, Phase::Active) {
            self.watch.check(now, &self.screen);
            self.show(now);
        }
    }

    fn show(&mut self, now: Time) {
        let (sent, confirmed) = self
            .active
            .values()
            .fold((0, 0), |(sent, confirmed), pack| (sent + pack.sent, confirmed + pack.confirmed));
        let (sent, confirmed) = (self.delivered + sent, self.delivered + confirmed);
        let reach = if self.watch.is_answered { Reach::Known } else { Reach::NoReply };
        let confirmed = Some(confirmed).filter(|confirmed| self.is_confirmed && *confirmed > 0);
        let shown = Shown { moved: sent, confirmed, here: sent, wait: None, reach };
        self.bar.show(now, &shown);
    }

    /// Handles the latest look at the watched folder, and the ends of pauses.
    fn poll(&mut self, now: Time, outbox: &mut Outbox) {
        match outbox.poll() {
            Ok(Some(messages)) => {
                for message in messages {
                    self.screen.print(&message);
                    self.tally.last_error = Some(Note::new(message));
                }
                self.forget_moved(outbox);
            }
            Ok(None) => {}
            Err(error) => self.phase = Phase::Stopped(format!("{error:#}")),
        }
        let due: Vec<u32> =
            self.paused.iter().filter(|(_, at)| **at <= now).map(|(number, _)| *number).collect();
        for number in due {
            self.paused.remove(&number);
            self.waiting.push_back(number);
        }
    }

    /// Begins packs as long as the window has room.
    fn fill(&mut self, now: Time, transport: &mut dyn Transport) {
        loop {
            if !self.active.is_empty() && self.is_full(now) && !self.is_room_for_open() {
                return;
            }
            if let Err(error) = self.take(now) {
                self.phase = Phase::Stopped(format!("{error:#}"));
                return;
            }
            let Some(number) = self.waiting.pop_front() else { break };
            if let Err(error) = self.send(now, transport, number) {
                if !self.active.is_empty() {
                    // There is room for it when another has ended.
                    tracing::debug!(number, "a pack waits: {error:#}");
                    self.waiting.push_front(number);
                    return;
                }
                if self.outbox.is_some() {
                    self.postpone(now, number, &format!("{error:#}"));
                    return;
                }
                self.phase = Phase::Refused(format!("{error:#}"));
                return;
            }
        }
        if self.active.is_empty() && self.outbox.is_none() {
            let put = self.job.wish.put.as_ref();
            let light = self.job.options.light_time();
            let given = self.job.wish.cfdp.linger;
            let linger = client::linger(transport, put, given, light, self.watch.is_quick);
            self.phase = Phase::Over(linger, now);
        }
    }

    /// Whether the next pack is one of which the receiver may have a part: its sender first
    /// requests a STATUS, and leaves the link to others until then.
    fn is_room_for_open(&self) -> bool {
        let is_open = self.waiting.front().is_some_and(|number| self.resumes(*number));
        is_open && self.outbox.is_none() && self.active.len() < TRANSFERS_MAX
    }

    /// Whether the receiver of a pack is to report which part of it is there.
    fn resumes(&self, number: u32) -> bool {
        self.has_sessions() && self.journal.is_started(number)
    }

    /// Whether the protocol resumes a pack in a session with the same number.
    fn has_sessions(&self) -> bool {
        let kind = self.job.options.protocol.kind;
        self.job.wish.put.is_none() && kind.adapter().resumes(kind)
    }

    /// Session number of a pack in all attempts to send it. At the same address a receiver that has
    /// ended a session does not begin it again.
    fn session(&self, number: u32) -> Option<u32> {
        let hash = hash(format!("{} {number}", self.journal.batch_number()).as_bytes());
        let is_other = self.has_sessions() && self.job.ends.listen.port() == 0;
        is_other.then_some((hash >> 32) as u32 ^ hash as u32)
    }

    /// Whether the next pack has to wait for those under way.
    fn is_full(&mut self, now: Time) -> bool {
        let (mut is_probing, mut class) = (false, 0);
        if let Some(outbox) = &mut self.outbox {
            is_probing = outbox.is_probing;
            // What is less urgent is no reason to wait.
            class = outbox.due(now).unwrap_or(class);
        }
        let ahead = || self.active.values().filter(|pack| pack.class <= class && !pack.is_open);
        let under_way: u64 = ahead().map(|pack| pack.bytes - pack.sent).sum();
        let is_full = self.active.len() >= TRANSFERS_MAX || under_way >= self.sizes.window;
        is_full || is_probing && ahead().next().is_some()
    }

    /// Makes a pack of files of the watched folder, if none waits.
    fn take(&mut self, now: Time) -> Result<()> {
        let Some(outbox) = &mut self.outbox else { return Ok(()) };
        // In an outage it is open what will be the most urgent after it.
        if !self.waiting.is_empty() || self.watch.pause(now).is_some() {
            return Ok(());
        }
        let entries = outbox.take(now, self.sizes.pack);
        if entries.is_empty() {
            return Ok(());
        }
        for number in self.journal.add(entries)? {
            self.add_pack(number)?;
            self.waiting.push_back(number);
        }
        Ok(())
    }

    /// Begins a pack.
    fn send(&mut self, now: Time, transport: &mut dyn Transport, number: u32) -> Result<()> {
        let name = self.pack_name(number);
        let source = FileName::file(&name)?;
        let Job { options, ends, wish, .. } = &self.job;
        let id = match &wish.put {
            Some(put) => {
                let entity = transport.cfdp_mut().context("it has no entity")?;
                let put = PutRequest {
                    source: Some(source),
                    source_name: Some(name.clone()),
                    destination_name: name,
                    ..put.clone()
                };
                entity.put(now, put)?.into()
            }
            None => {
                let kind = options.protocol.kind;
                let request = SendRequest::new(source, &name, ends.remote_entity, kind);
                let group = ends.group.map(|_| PathId(0));
                let (session, resumes) = (self.session(number), self.resumes(number));
                transport.send(now, &SendRequest { group, session, resumes, ..request })?
            }
        };
        self.watch_pack(id, number, false);
        if self.has_sessions() {
            self.journal.start(number)?;
        }
        Ok(())
    }

    /// Ends the use of a pack. Engines that have it open can still read it.
    fn remove_pack(&self, number: u32) {
        if let Ok(name) = FileName::file(&self.pack_name(number)) {
            self.job.wish.packs.remove(&name);
        }
    }

    /// Makes a pack readable.
    fn add_pack(&self, number: u32) -> Result<()> {
        if let Some(plan) = self.journal.plan(number) {
            let source = FileName::file(&self.pack_name(number))?;
            self.job.wish.packs.add(source, Pack::new(plan.clone()));
        }
        Ok(())
    }

    fn event(&mut self, now: Time, event: Event) {
        match event {
            Event::Ended(ended) if self.is_under_way() => {
                // One of an earlier process may end before it is taken over.
                if !self.active.contains_key(&ended.id)
                    && let Some(number) = self.waiting_pack(&ended.name)
                {
                    self.waiting.retain(|waiting| *waiting != number);
                    self.watch_pack(ended.id.clone(), number, true);
                }
                if let Some(pack) = self.active.remove(&ended.id)
                    && let Err(error) = self.ended(now, &pack, &ended)
                {
                    self.phase = Phase::Stopped(format!("{error:#}"));
                }
            }
            Event::Abandoned { id, why } => match self.active.remove(&id) {
                Some(pack) if self.outbox.is_some() => self.postpone(now, pack.number, &why),
                Some(_) => self.phase = Phase::Stopped(why),
                None => {}
            },
            Event::Notice(text) => self.screen.print(text),
            Event::Lost(text) => tracing::warn!("{text}"),
            Event::Warning(text) => tracing::warn!("{text}"),
            Event::Log(text) => tracing::debug!("{text}"),
            // Only receivers, and senders of other requests, get these.
            Event::Ended(_)
            | Event::Restored(_)
            | Event::Receiving(_)
            | Event::Listing(_)
            | Event::Relay(_)
            | Event::Message { .. }
            | Event::Repeated { .. }
            | Event::NoRoom { .. }
            | Event::Continued(_)
            | Event::Begins(_)
            | Event::Latency(..)
            | Event::Entity(_)
            | Event::Stream(_)
            | Event::Left
            | Event::Update => {}
        }
    }

    /// Handles the end of a pack.
    fn ended(&mut self, now: Time, pack: &UnderWay, ended: &Ended) -> Result<()> {
        if self.outbox.is_some() {
            match &ended.result {
                Ok(()) if ended.is_confirmed => return self.put_away(pack),
                Ok(()) => self.postpone(now, pack.number, "the receiver did not confirm it"),
                Err(why) => self.postpone(now, pack.number, why),
            }
            return Ok(());
        }
        self.remove_pack(pack.number);
        let Err(why) = &ended.result else {
            let plan = self.journal.plan(pack.number);
            if let Some(plan) = plan.filter(|_| self.job.wish.compares && pack.is_resumed) {
                self.resumed.extend_from_slice(&plan.entries);
            }
            self.delivered += pack.bytes;
            self.is_confirmed &= ended.is_confirmed && self.job.ends.via.is_none();
            self.failed_in_row = 0;
            return self.journal.deliver(pack.number);
        };
        if self.replan(pack)? {
            return Ok(());
        }
        if pack.is_adopted {
            // The receiver gave up the earlier process.
            self.add_pack(pack.number)?;
            self.waiting.push_front(pack.number);
            return Ok(());
        }
        self.failed += 1;
        self.failed_in_row += 1;
        let names = self.journal.plan(pack.number).map(contents).unwrap_or_default();
        self.screen.print(format_args!("{}: {names} failed: {why}", ended.id));
        ensure!(self.failed_in_row < FAILURES_MAX, "{FAILURES_MAX} packs in a row failed: {why}");
        Ok(())
    }

    /// Sends what the receiver lacks of packs that an earlier process began. It may have had all of
    /// such a pack, and its files may have been removed before they were listed. Returns whether
    /// anything is sent.
    fn sends_missing(&mut self, stop: &AtomicBool) -> bool {
        let resumed = std::mem::take(&mut self.resumed);
        if resumed.is_empty() || !self.is_delivered() {
            return false;
        }
        self.bar.clear();
        match self.add_missing(resumed, stop) {
            Ok(is_any) => is_any,
            Err(error) => {
                self.phase = Phase::Stopped(format!("{error:#}"));
                false
            }
        }
    }

    fn add_missing(&mut self, resumed: Vec<Entry>, stop: &AtomicBool) -> Result<bool> {
        let mut scan = Scan { entries: resumed, ..Scan::default() };
        let lists = Lists::request(&self.job, &scan.entries, &self.screen, stop)?;
        let is_listed = lists.and_then(|lists| lists.leave_out(&self.job, &mut scan, stop));
        if is_listed.is_none() {
            self.phase = Phase::Active;
            return Ok(false);
        }
        if scan.entries.iter().all(|entry| entry.kind == tree::Kind::Directory) {
            return Ok(false);
        }
        // What is added to a folder changes the folder's time, which its entry sets again.
        let mut entries = self.journal.folders_above(&scan.entries);
        entries.extend(scan.entries.into_iter().filter(|it| it.kind != tree::Kind::Directory));
        for number in self.journal.add(entries)? {
            self.total += self.journal.plan(number).map_or(0, tree::Plan::len);
            self.add_pack(number)?;
            self.waiting.push_back(number);
        }
        self.bar.set_size(self.total);
        self.phase = Phase::Active;
        Ok(true)
    }

    /// Moves the files of a delivered pack out of the way.
    fn put_away(&mut self, pack: &UnderWay) -> Result<()> {
        self.delivered += pack.bytes;
        self.remove_pack(pack.number);
        self.journal.deliver(pack.number)?;
        let Some(mut outbox) = self.outbox.take() else { return Ok(()) };
        if let Some(plan) = self.journal.plan(pack.number) {
            self.tally.delivered_files += outbox::files(plan).count() as u64;
            self.screen.print(format_args!("delivered {}", contents(plan)));
            let moved = outbox.deliver(plan);
            self.print_error(moved);
            self.forget_moved(&outbox);
        }
        self.outbox = Some(outbox);
        Ok(())
    }

    /// Sends a pack again later. A receiver that does not reply may have a part of it; if it
    /// replied, one of the files may be the cause, and all return to the queue.
    fn postpone(&mut self, now: Time, number: u32, why: &str) {
        let Some(plan) = self.journal.plan(number) else { return };
        let is_same = plan.entries.iter().all(|entry| refreshed(entry).as_ref() == Some(entry));
        let names = contents(plan);
        let is_kept = is_same && !self.watch.is_answering();
        if !is_kept {
            self.remove_pack(number);
        }
        let Some(outbox) = &mut self.outbox else { return };
        let pause = if is_kept {
            outbox.is_probing = true;
            self.paused.insert(number, now + SILENT_PAUSE);
            SILENT_PAUSE
        } else {
            self.journal.remove(number).map_or(SILENT_PAUSE, |plan| outbox.fail(now, &plan))
        };
        self.fail(format!("{names} failed: {why}; again in {}", Span(pause)));
    }

    /// Plans a pack again if its files changed; returns whether it did.
    fn replan(&mut self, pack: &UnderWay) -> Result<bool> {
        let Some(plan) = self.journal.plan(pack.number) else { return Ok(false) };
        let changes = self.changes.remove(&pack.number).unwrap_or_default();
        let now: Vec<Option<Entry>> = plan.entries.iter().map(refreshed).collect();
        let mut pairs = plan.entries.iter().zip(&now);
        let Some((changed, _)) = pairs.find(|(before, now)| now.as_ref() != Some(before)) else {
            return Ok(false);
        };
        if changes >= CHANGES_MAX {
            return Ok(false);
        }
        let path = changed.source.display();
        self.screen.print(format_args!("{path} changed while it was sent; sending it again"));
        for (before, _) in plan.entries.iter().zip(&now).filter(|(_, now)| now.is_none()) {
            let path = before.source.display();
            self.screen.print(format_args!("left out {path}: it can no longer be read"));
            self.counts.skipped += 1;
            self.counts.unreadable += 1;
        }
        // A file that changes again must not hold up the others.
        let (mut same, mut changed) = (Vec::new(), Vec::new());
        for (before, now) in plan.entries.iter().zip(&now) {
            match now {
                Some(now) if now.kind == tree::Kind::Directory => {
                    same.push(now.clone());
                    changed.push(now.clone());
                }
                Some(now) if now == before => same.push(now.clone()),
                Some(now) => changed.push(now.clone()),
                None => {}
            }
        }
        self.total -= pack.bytes;
        let mut numbers = self.journal.replace(pack.number, same)?;
        for number in self.journal.add(changed)? {
            self.changes.insert(number, changes + 1);
            numbers.push(number);
        }
        for number in numbers {
            self.total += self.journal.plan(number).map_or(0, tree::Plan::len);
            self.add_pack(number)?;
            self.waiting.push_back(number);
        }
        self.bar.set_size(self.total);
        Ok(true)
    }

    /// Whether the receiver confirmed the whole batch.
    fn is_proven(&self) -> bool {
        let is_alone = self.watch.is_quick && self.job.ends.group.is_none();
        self.is_delivered() && is_alone && self.is_confirmed && self.delivered > 0
    }

    /// Whether every pack was sent, and none failed.
    const fn is_delivered(&self) -> bool {
        matches!(self.phase, Phase::Over(..)) && self.failed == 0
    }

    /// Transfers to cancel at the peer if this process ends now; none if the same command resumes
    /// them.
    fn to_cancel(&self) -> Vec<TransferId> {
        if self.keeps_records { Vec::new() } else { self.active.keys().cloned().collect() }
    }

    /// Exit code of a sender that watches a folder: a signal ends it as planned.
    fn end_watch(&self, outbox: &Outbox, why: Option<String>) -> Result<ExitCode> {
        let is_stopped = !matches!(self.phase, Phase::Stopped(_));
        let left = match outbox.left() {
            (0, _) => "no file is left".to_owned(),
            (1, bytes) => format!("1 file is left, {}", show::bytes(bytes as f64)),
            (files, bytes) => format!("{files} files are left, {}", show::bytes(bytes as f64)),
        };
        self.screen.print(format_args!("{}; {left}", why.unwrap_or_default()));
        Ok(Exit::if_succeeded(is_stopped).into())
    }

    /// Deletes what only the receiver has.
    fn delete(&mut self, deletion: Deletion, stop: &AtomicBool) {
        self.bar.clear();
        let result = if self.is_confirmed {
            deletion.carry_out(&self.job, &self.screen, stop, &mut self.deleted)
        } else {
            Err(anyhow!("nothing was deleted at the receiver, which did not confirm all else"))
        };
        self.undeleted = result.err().map(|error| format!("{error:#}"));
    }

    /// Exit code; reports the result.
    fn end(self) -> Result<ExitCode> {
        self.bar.clear();
        let why = match &self.phase {
            Phase::Refused(why) => return Err(crate::Usage(why.clone()).into()),
            Phase::Over(..) if self.failed == 0 => None,
            Phase::Over(..) if self.failed == 1 => Some("a pack failed".to_owned()),
            Phase::Over(..) => Some(format!("{} packs failed", self.failed)),
            Phase::Stopped(why) => Some(why.clone()),
            Phase::Loading | Phase::Active => Some("stopped".to_owned()),
        };
        let elapsed = self.ended.since(self.bar.began);
        if let Some(outbox) = &self.outbox {
            return self.end_watch(outbox, why);
        }
        match &why {
            None => {
                let rate = self.delivered as f64 * 8.0 / elapsed.as_secs_f64().max(1e-3);
                // An earlier run sent a part of its packs.
                let how = if self.journal.is_resumed { "resumed".into() } else { show::rate(rate) };
                let unconfirmed = if self.is_confirmed { "" } else { ", delivery not confirmed" };
                self.screen.print(format_args!(
                    "sent{unconfirmed}: {} in {}, {how}",
                    self.counts,
                    show::seconds(elapsed.as_secs_f64()),
                ));
            }
            Some(why) => {
                let (delivered, total) = (self.delivered as f64, self.total as f64);
                self.screen.print(format_args!(
                    "not finished: {why}; {} of {} were delivered; the same command sends the rest",
                    show::bytes(delivered),
                    show::bytes(total)
                ));
            }
        }
        if let Some(why) = &self.undeleted {
            self.screen.print(why);
        }
        let is_completed = why.is_none() && self.undeleted.is_none();
        let condition = why.clone().or(self.undeleted).unwrap_or_else(|| "no error".to_owned());
        if self.job.options.json {
            print_json(&Summary {
                time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
                protocol: self.job.options.protocol.to_string(),
                role: "sender",
                peer: self.job.ends.peer_address().map(|address| address.to_string()),
                counts: self.counts,
                there_files: self.there.files,
                there_bytes: self.there.bytes,
                deleted_files: self.deleted,
                delivered_before_files: self.journal.earlier.files,
                delivered_before_bytes: self.journal.earlier.bytes,
                archive_bytes: self.delivered,
                completed: is_completed,
                confirmed: why.is_none() && self.is_confirmed,
                condition,
                elapsed_s: elapsed.as_secs_f64(),
            })?;
        }
        Ok(Exit::if_succeeded(is_completed && self.counts.unreadable == 0).into())
    }
}

/// Names of the files in a pack, for people.
fn contents(plan: &tree::Plan) -> String {
    let mut files = outbox::files(plan);
    let Some(first) = files.next() else { return "a folder".to_owned() };
    let name = String::from_utf8_lossy(&first.name).escape_debug().to_string();
    match files.count() {
        0 => name,
        1 => format!("{name} and another file"),
        more => format!("{name} and {more} other files"),
    }
}

/// An entry as it is now; `None` if it is gone or cannot be read. Folders are not looked at.
fn refreshed(entry: &Entry) -> Option<Entry> {
    match entry.kind {
        tree::Kind::Directory => Some(entry.clone()),
        tree::Kind::Link { .. } => entry.refreshed(),
        // A path of the command line may be a link to it.
        tree::Kind::File { .. } => {
            let paths = [entry.source.clone()];
            let found = tree::scan(&paths, &ScanOptions::default()).ok()?.entries.pop()?;
            let is_file = matches!(found.kind, tree::Kind::File { .. });
            is_file.then(|| Entry { name: entry.name.clone(), ..found })
        }
    }
}

/// Number of times that changed files are sent again.
const CHANGES_MAX: u32 = 3;

/// Result of a batch, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Summary {
    /// Date of its end, in UTC.
    time: String,
    protocol: String,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(flatten)]
    counts: Counts,
    /// Files, and their bytes, that the receiver listed as there (`--checksum`).
    there_files: u64,
    there_bytes: u64,
    /// Files and links that were deleted there (`--delete`).
    deleted_files: u64,
    /// Files, and their bytes, that earlier runs delivered.
    delivered_before_files: u64,
    delivered_before_bytes: u64,
    /// Bytes of the archives that were delivered.
    archive_bytes: u64,
    /// Whether everything was delivered.
    completed: bool,
    /// Whether the receiver confirmed it.
    confirmed: bool,
    /// Reason of its end.
    condition: String,
    elapsed_s: f64,
}
