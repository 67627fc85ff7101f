//! Lists of what the receiver has, requested before a batch is sent, and the deletion of what only
//! the receiver has, after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use engine::{FileName, PathId, Time};
use transport::protocol::Kind;
use transport::{Event, SendRequest, TransferId, Transport};
use tree::{Entry, List, Patterns, Scan, folders_above};

use super::{Counts, SendBatch};
use crate::sockets::screen::Screen;
use crate::sockets::session::client::{self, Opened};
use crate::sockets::session::job::{Ends, Job, Wish};
use crate::sockets::session::watch::{NO_CONTACT, Watch};
use crate::sockets::session::{LINGER, Linger};
use crate::sockets::transfer::Options;
use crate::stop::stop_flag;

/// Protocol of the requests, whatever the batch is sent by.
const PROTOCOL: &str = "saratoga";
/// Number of requests under way at a time.
const REQUESTS_MAX: usize = 32;

/// What the lists of a receiver say.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// What it has with the same content, permissions and time.
    pub(super) there: Counts,
    /// Names of files and links that only it has.
    pub(super) others: Vec<String>,
}

/// Leaves out what the receiver has with the same content, permissions and time. Returns nothing
/// if the process is to stop.
pub(super) fn compare(
    job: &Job<SendBatch>,
    scan: &mut Scan,
    screen: &Screen,
) -> Result<Option<Compared>> {
    let tops: BTreeSet<String> = scan.entries.iter().filter_map(|it| top(job, it)).collect();
    let names: Vec<String> = tops.into_iter().collect();
    let folder = tempfile::tempdir().context("cannot make a directory for lists")?;
    screen.print(format_args!("requesting the list of {}", job.ends.to));
    if !request(job, Action::List, &names, folder.path(), screen)? {
        return Ok(None);
    }
    let lists = read(&names, folder.path())
        .with_context(|| format!("{} sent what is no list", job.ends.to))?;
    let others = others(job, scan, &lists, screen)?;
    let is_there = |entry: &Entry| -> Result<bool> {
        let Some(name) = top(job, entry) else { return Ok(false) };
        let Some(list) = lists.get(&name) else { return Ok(false) };
        let found = list.has(entry, &name);
        found.with_context(|| format!("cannot read {}", entry.source.display()))
    };
    let found = scan.entries.iter().map(is_there).collect::<Result<Vec<_>>>()?;
    let entries = std::mem::take(&mut scan.entries);
    // What is added to a folder changes the folder's time, which its entry sets again.
    let changed: BTreeSet<Vec<u8>> = entries
        .iter()
        .zip(&found)
        .filter(|(_, is_there)| !**is_there)
        .flat_map(|(entry, _)| folders_above(&entry.name).map(<[u8]>::to_vec))
        .collect();
    let mut there = Scan::default();
    for (entry, is_there) in entries.into_iter().zip(found) {
        let is_there = is_there && !changed.contains(&entry.name);
        if is_there { &mut there.entries } else { &mut scan.entries }.push(entry);
    }
    Ok(Some(Compared { there: Counts::new(&there), others }))
}

/// Names that the lists have and the scan has not, without those that are excluded.
fn others(
    job: &Job<SendBatch>,
    scan: &Scan,
    lists: &BTreeMap<String, List>,
    screen: &Screen,
) -> Result<Vec<String>> {
    if !job.wish.deletes {
        return Ok(Vec::new());
    }
    if !scan.skipped.is_empty() {
        screen.print("nothing will be deleted, because files were left out");
        return Ok(Vec::new());
    }
    let exclude = Patterns::new(&job.wish.batch.exclude)?;
    let ours = scan.entries.iter().map(|entry| entry.name.as_slice()).collect();
    let others = lists.iter().flat_map(|(listed, list)| list.others(listed, &ours));
    let mut names = Vec::new();
    for name in others.filter(|name| !exclude.covers(name)) {
        match String::from_utf8(name) {
            Ok(name) => names.push(name),
            Err(error) => screen.print(format_args!(
                "not to be deleted by its name: {}",
                String::from_utf8_lossy(error.as_bytes()).escape_debug()
            )),
        }
    }
    Ok(names)
}

/// Deletes files and links at the receiver. Returns whether all were deleted.
pub(super) fn delete(job: &Job<SendBatch>, names: &[String], screen: &Screen) -> Result<bool> {
    let folder = tempfile::tempdir().context("cannot make a working directory")?;
    request(job, Action::Delete, names, folder.path(), screen)
}

/// Reads the lists of these names from a folder.
fn read(names: &[String], folder: &Path) -> Result<BTreeMap<String, List>> {
    let list = |(number, name): (usize, &String)| {
        let file = File::open(folder.join(number.to_string()))?;
        Ok((name.clone(), List::read(BufReader::new(file))?))
    };
    names.iter().enumerate().map(list).collect()
}

/// Name at the receiver that has a list of its own: that of the only path, or the first part below
/// the folder that gets several. A name that is not UTF-8 has none.
fn top(job: &Job<SendBatch>, entry: &Entry) -> Option<String> {
    let below = job.wish.below.as_deref().map_or(0, |below| below.split('/').count());
    let parts = match job.wish.paths.as_slice() {
        [_] => below.max(1),
        _ => below + 1,
    };
    let mut slashes = entry.name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let end = slashes.nth(parts - 1).map_or(entry.name.len(), |(at, _)| at);
    str::from_utf8(&entry.name[..end]).ok().map(str::to_owned)
}

/// Sends a request about each of these names. Returns whether all were replied to: not if the
/// process is to stop.
fn request(
    batch: &Job<SendBatch>,
    action: Action,
    names: &[String],
    folder: &Path,
    screen: &Screen,
) -> Result<bool> {
    let options = Options {
        protocol: PROTOCOL.parse()?,
        profile: None,
        mib: None,
        udp_lite: false,
        ..batch.options.clone()
    };
    let ends = Ends { entity: None, ..batch.ends };
    let root = folder.to_owned();
    let wish = Wish::Get { remote: String::new(), root, name: String::new(), takes: false };
    let mut job = Job { options, ends, wish, timeout: batch.timeout, node: None };
    let Opened { mut runner, .. } = client::open(&mut job)?;
    let mut requests = Requests {
        action,
        watch: Watch::new(job.ends.to, &job.options, None, " --serve", true),
        kind: job.options.protocol.kind,
        remote: job.ends.remote_entity,
        deadline: job.timeout.map(|timeout| runner.now() + timeout.duration()),
        linger: Linger { time: LINGER.max(6 * job.options.light_time()), until_idle: true },
        screen,
        names,
        waiting: (0..names.len()).collect(),
        active: BTreeMap::new(),
        failure: None,
        over: None,
    };
    let stop = stop_flag()?;
    runner.run(&stop, &mut |now, transport, event| requests.on(now, transport, event))?;
    let Requests { failure, over, .. } = requests;
    if let Some(why) = failure {
        bail!(why);
    }
    Ok(over.is_some())
}

/// What is requested about each name.
#[derive(Clone, Copy, Debug)]
enum Action {
    List,
    Delete,
}

impl Action {
    /// Message about a request that is refused.
    fn refused(self, name: &str, why: &str) -> String {
        match self {
            Self::List => format!(
                "the receiver gives no list of {name}: {why}; it needs `recv --serve`. Without \
                 --checksum everything is sent"
            ),
            Self::Delete => {
                format!(
                    "the receiver does not delete {name}: {why}; it needs `recv --allow-delete`"
                )
            }
        }
    }
}

/// Requests to a receiver.
struct Requests<'a> {
    action: Action,
    watch: Watch,
    kind: Kind,
    remote: u64,
    deadline: Option<Time>,
    linger: Linger,
    screen: &'a Screen,
    names: &'a [String],
    /// Numbers of the names that were not requested yet.
    waiting: VecDeque<usize>,
    active: BTreeMap<TransferId, usize>,
    /// Why one of them was not carried out.
    failure: Option<String>,
    /// When all had been carried out.
    over: Option<Time>,
}

impl Requests<'_> {
    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick => {
                self.watch.observe(now, transport, true, self.screen);
                if self.over.is_none() {
                    self.watch.check(now, self.screen);
                }
            }
            rt::Event::Refused(address) => self.watch.on_refused(address, self.screen),
            rt::Event::Contact(contact) => {
                if self.watch.on_contact(now, contact, self.screen) {
                    self.failure = Some(NO_CONTACT.to_owned());
                }
            }
            rt::Event::Indication(event) => self.event(transport.reported(event)),
            rt::Event::NewPeer { .. } => {}
        }
        if self.over.is_none() && transport.is_ready() {
            self.failure = self.advance(now, transport).err().map(|error| format!("{error:#}"));
        }
        if self.over.is_none() && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.failure = Some("timeout".to_owned());
        }
        let stays = self.over.is_none_or(|since| self.linger.lasts(since, now, transport));
        if stays && self.failure.is_none() { rt::Control::Continue } else { rt::Control::Stop }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Ended(ended) => {
                if let (Some(number), Err(why)) = (self.active.remove(&ended.id), &ended.result) {
                    self.failure = Some(self.action.refused(&self.names[number], why));
                }
            }
            Event::Abandoned { why, .. } => self.failure = Some(why),
            Event::Notice(text) => self.screen.print(text),
            Event::Lost(text) => tracing::warn!("{text}"),
            Event::Warning(text) => tracing::warn!("{text}"),
            Event::Log(text) => tracing::debug!("{text}"),
            // Other requests and receivers get these.
            Event::Message { .. }
            | Event::Repeated { .. }
            | Event::NoRoom { .. }
            | Event::Continued(_)
            | Event::Begins(_)
            | Event::Latency(..)
            | Event::Entity(_)
            | Event::Stream(_)
            | Event::Restored(_)
            | Event::Receiving(_)
            | Event::Listing(_)
            | Event::Relay(_)
            | Event::Left
            | Event::Update => {}
        }
    }

    fn advance(&mut self, now: Time, transport: &mut dyn Transport) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            bail!(failure);
        }
        while self.active.len() < REQUESTS_MAX
            && let Some(number) = self.waiting.pop_front()
        {
            let directories = transport.directories().context("it has no directories")?;
            let name = &self.names[number];
            let id = match self.action {
                Action::List => {
                    let file = FileName::file(&number.to_string())?;
                    let name = tree::list_name(name);
                    let request = SendRequest::new(file, &name, self.remote, self.kind);
                    directories.fetch(now, &request)?
                }
                Action::Delete => directories.delete(now, PathId(0), name)?,
            };
            self.active.insert(id, number);
        }
        if self.active.is_empty() {
            self.over = Some(now);
        }
        Ok(())
    }
}
