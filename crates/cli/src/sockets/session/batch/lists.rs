//! Lists of what the receiver has, requested before a batch is sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use engine::{FileName, Time};
use transport::protocol::{Kind, Protocol};
use transport::{Event, SendRequest, TransferId, Transport};
use tree::{Entry, List, Scan, folders_above};

use super::{Counts, SendBatch};
use crate::sockets::screen::Screen;
use crate::sockets::session::client::{self, Opened};
use crate::sockets::session::job::{Ends, Job, Wish};
use crate::sockets::session::watch::{NO_CONTACT, Watch};
use crate::sockets::session::{LINGER, Linger};
use crate::sockets::transfer::Options;

/// Protocol of the requests, whatever the batch is sent by.
const PROTOCOL: &str = "saratoga";
/// Number of requests under way at a time.
const REQUESTS_MAX: usize = 256;
/// Bytes of all lists. They are held in memory.
const LISTS_MAX: u64 = 512 << 20;

/// Leaves out what the receiver has with the same content, permissions and time. Returns what that
/// is, or nothing if the process is to stop.
pub(super) fn leave_out(
    job: &Job<SendBatch>,
    scan: &mut Scan,
    screen: &Screen,
    stop: &AtomicBool,
) -> Result<Option<Counts>> {
    let parts = parts(job);
    let tops: BTreeSet<&str> = scan.entries.iter().filter_map(|it| top(parts, it)).collect();
    let can_request = |name: &&str| FileName::file(&tree::list_name(name)).is_ok();
    let names: Vec<String> = tops.into_iter().filter(can_request).map(str::to_owned).collect();
    let folder = tempfile::tempdir().context("cannot make a directory for lists")?;
    screen.print(format_args!("requesting the list of {}", job.ends.to));
    if !request(job, &names, folder.path(), screen, stop)? {
        return Ok(None);
    }
    let lists = read(&names, folder.path())
        .with_context(|| format!("{} sent what is no list", job.ends.to))?;
    let is_there = |entry: &Entry| {
        let list = top(parts, entry).and_then(|name| Some((lists.get(name)?, name)));
        // One that cannot be read any more is named when it is sent.
        list.is_some_and(|(list, name)| list.has(entry, name, stop).unwrap_or(false))
    };
    let is_stopped = || stop.load(Ordering::Relaxed);
    let found = scan.entries.iter().map(|entry| !is_stopped() && is_there(entry));
    let found: Vec<bool> = found.collect();
    if is_stopped() {
        return Ok(None);
    }
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
    Ok(Some(Counts::new(&there)))
}

/// Reads the lists of these names from a folder.
fn read(names: &[String], folder: &Path) -> Result<BTreeMap<String, List>> {
    let list = |(number, name): (usize, &String)| {
        let file = File::open(folder.join(number.to_string()))?;
        Ok((name.clone(), List::read(BufReader::new(file))?))
    };
    names.iter().enumerate().map(list).collect()
}

/// Number of parts of the names at the receiver that have a list of their own: that of the only
/// path, or the names below the folder that gets several.
fn parts(job: &Job<SendBatch>) -> usize {
    let below = job.wish.below.as_deref().and_then(|below| FileName::file(below).ok());
    let below = below.map_or(0, |below| below.path().split('/').count());
    match job.wish.paths.as_slice() {
        [_] => below.max(1),
        _ => below + 1,
    }
}

/// First parts of an entry's name; `None` if they are not UTF-8.
fn top(parts: usize, entry: &Entry) -> Option<&str> {
    let top = folders_above(&entry.name).nth(parts - 1).unwrap_or(&entry.name);
    str::from_utf8(top).ok()
}

/// Requests the lists of these names into a folder. Returns whether all are there: not if the
/// process is to stop.
fn request(
    batch: &Job<SendBatch>,
    names: &[String],
    folder: &Path,
    screen: &Screen,
    stop: &AtomicBool,
) -> Result<bool> {
    let protocol: Protocol = PROTOCOL.parse()?;
    let is_own = batch.options.protocol.kind == protocol.kind;
    let options = Options {
        protocol,
        profile: None,
        mib: batch.options.mib.clone().filter(|_| is_own),
        udp_lite: false,
        ..batch.options.clone()
    };
    let ends = Ends { entity: None, ..batch.ends };
    let root = folder.to_owned();
    let wish = Wish::Get { remote: String::new(), root, name: String::new(), takes: false };
    let mut job = Job { options, ends, wish, timeout: batch.timeout, node: None };
    let Opened { mut runner, .. } = client::open(&mut job)?;
    let mut requests = Requests {
        watch: Watch::new(job.ends.to, &job.options, None, " --serve", true),
        kind: job.options.protocol.kind,
        remote: job.ends.remote_entity,
        deadline: job.timeout.map(|timeout| runner.now() + timeout.duration()),
        linger: Linger { time: LINGER.max(6 * job.options.light_time()), until_idle: true },
        screen,
        names,
        waiting: (0..names.len()).collect(),
        active: BTreeMap::new(),
        bytes: 0,
        failure: None,
        over: None,
    };
    runner.run(stop, &mut |now, transport, event| requests.on(now, transport, event))?;
    let Requests { failure, over, .. } = requests;
    if let Some(why) = failure {
        bail!("{why}. Without --checksum everything is sent");
    }
    Ok(over.is_some())
}

/// Requests to a receiver.
struct Requests<'a> {
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
    /// Bytes of the lists that have arrived.
    bytes: u64,
    /// Why one of them has not arrived.
    failure: Option<String>,
    /// When all had arrived.
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
                let arriving = transport.transfers().into_iter().filter_map(|report| report.size);
                if self.bytes + arriving.sum::<u64>() > LISTS_MAX {
                    self.fail("the lists are longer than 512 MiB; send the subfolders one by one");
                }
                self.watch.observe(now, transport, true, self.screen);
                if self.over.is_none() {
                    self.watch.check(now, self.screen);
                }
            }
            rt::Event::Refused(address) => self.watch.on_refused(address, self.screen),
            rt::Event::Contact(contact) => {
                if self.watch.on_contact(now, contact, self.screen) {
                    self.fail(NO_CONTACT);
                }
            }
            rt::Event::Indication(event) => self.event(transport.reported(event)),
            rt::Event::NewPeer { .. } => {}
        }
        if self.over.is_none()
            && transport.is_ready()
            && let Err(error) = self.advance(now, transport)
        {
            self.fail(format!("{error:#}"));
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.fail("no list came before --timeout");
        }
        let stays = self.over.is_none_or(|since| self.linger.lasts(since, now, transport));
        if stays && self.failure.is_none() { rt::Control::Continue } else { rt::Control::Stop }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Ended(ended) => {
                self.bytes += ended.size;
                if let (Some(number), Err(why)) = (self.active.remove(&ended.id), &ended.result) {
                    self.fail(format!(
                        "the receiver gives no list of {}: {why}. It has to run with --serve",
                        self.names[number]
                    ));
                }
            }
            Event::Abandoned { why, .. } => self.fail(why),
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

    /// Notes the first reason why a list will not arrive. Once all are there, none matters.
    fn fail(&mut self, why: impl Into<String>) {
        if self.over.is_none() {
            self.failure.get_or_insert_with(|| why.into());
        }
    }

    fn advance(&mut self, now: Time, transport: &mut dyn Transport) -> Result<()> {
        while self.active.len() < REQUESTS_MAX
            && let Some(number) = self.waiting.pop_front()
        {
            let directories = transport.directories().context("it has no directories")?;
            let name = &self.names[number];
            let file = FileName::file(&number.to_string())?;
            let request = SendRequest::new(file, &tree::list_name(name), self.remote, self.kind);
            self.active.insert(directories.fetch(now, &request)?, number);
        }
        if self.active.is_empty() {
            self.over = Some(now);
        }
        Ok(())
    }
}
