//! Requests about what a receiver has below the names of a batch: for its lists, and to delete.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use engine::{FileName, PathId, Time};
use transport::protocol::{Kind, Protocol};
use transport::{Event, SendRequest, TransferId, Transport};

use super::SendBatch;
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
/// Refused deletions, before the first that is carried out, after which no more are requested.
const REFUSALS_MAX: u64 = 16;
/// Bytes of all lists. They are held in memory.
const LISTS_MAX: u64 = 512 << 20;

/// Action that is requested for each name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action<'a> {
    /// Send its list, into this folder.
    List { folder: &'a Path },
    /// Delete the file or link.
    Delete,
}

impl Action<'_> {
    fn wish(self) -> Wish {
        match self {
            Self::List { folder } => {
                let (root, none) = (folder.to_owned(), String::new);
                Wish::Get { remote: none(), root, name: none(), takes: false }
            }
            Self::Delete => Wish::Delete(String::new()),
        }
    }

    /// Options of `recv` that permit it.
    const fn permissions(self) -> &'static str {
        match self {
            Self::List { .. } => " --serve",
            Self::Delete => " --serve --allow-delete",
        }
    }
}

/// Result of requests.
#[derive(Debug)]
pub(super) struct Replies {
    /// Number of names whose request was carried out.
    pub(super) done: u64,
    /// Number of those whose request was refused.
    pub(super) refused: u64,
    /// Whether all were replied to: not if the process is to stop.
    pub(super) is_complete: bool,
    /// Reason for which the others were not.
    pub(super) failure: Option<String>,
}

/// Sends a request about each of these names. Refused deletions are printed.
///
/// # Errors
/// There can be no requests.
pub(super) fn request(
    batch: &Job<SendBatch>,
    action: Action<'_>,
    names: &[String],
    screen: &Screen,
    stop: &AtomicBool,
) -> Result<Replies> {
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
    let wish = action.wish();
    let mut job = Job { options, ends, wish, timeout: batch.timeout, node: None };
    let Opened { mut runner, .. } = client::open(&mut job)?;
    let mut requests = Requests {
        action,
        watch: Watch::new(job.ends.to, &job.options, None, action.permissions(), true),
        kind: job.options.protocol.kind,
        remote: job.ends.remote_entity,
        deadline: job.timeout.map(|timeout| runner.now() + timeout.duration()),
        linger: Linger { time: LINGER.max(6 * job.options.light_time()), until_idle: true },
        screen,
        names,
        waiting: (0..names.len()).collect(),
        active: BTreeMap::new(),
        bytes: 0,
        done: 0,
        refused: 0,
        failure: None,
        over: None,
    };
    runner.run(stop, &mut |now, transport, event| requests.on(now, transport, event))?;
    let Requests { done, refused, failure, over, .. } = requests;
    Ok(Replies { done, refused, is_complete: over.is_some(), failure })
}

/// Requests to a receiver.
struct Requests<'a> {
    action: Action<'a>,
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
    done: u64,
    refused: u64,
    /// Reason for which there will be no more replies.
    failure: Option<String>,
    /// When all had been replied to.
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
            self.fail("--timeout came before the receiver's replies");
        }
        let stays = self.over.is_none_or(|since| self.linger.lasts(since, now, transport));
        if stays && self.failure.is_none() { rt::Control::Continue } else { rt::Control::Stop }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Ended(ended) => {
                self.bytes += ended.size;
                if let Some(number) = self.active.remove(&ended.id) {
                    self.ended(number, &ended.result);
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

    fn ended(&mut self, number: usize, result: &Result<(), String>) {
        let name = self.names[number].escape_debug();
        match (self.action, result) {
            (Action::List { .. }, Ok(())) => self.done += 1,
            (Action::List { .. }, Err(why)) => self.fail(format!(
                "the receiver gives no list of {name}: {why}. It has to run with --serve"
            )),
            (Action::Delete, Ok(())) => {
                self.done += 1;
                self.screen.print(format_args!("deleted at the receiver: {name}"));
            }
            (Action::Delete, Err(why)) => {
                self.refused += 1;
                self.screen.print(format_args!("not deleted at the receiver: {name}: {why}"));
                if self.done == 0 && self.refused == REFUSALS_MAX.min(self.names.len() as u64) {
                    self.fail("it refuses; it has to run with --allow-delete");
                }
            }
        }
    }

    /// Notes the first reason why a request is not carried out. Once all are, none matters.
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
            let id = match self.action {
                Action::List { .. } => {
                    let (file, name) =
                        (FileName::file(&number.to_string())?, tree::list_name(name));
                    let request = SendRequest::new(file, &name, self.remote, self.kind);
                    directories.fetch(now, &request)?
                }
                Action::Delete => match directories.delete(now, PathId(0), name) {
                    Ok(id) => id,
                    Err(error) => {
                        self.ended(number, &Err(error.to_string()));
                        continue;
                    }
                },
            };
            self.active.insert(id, number);
        }
        if self.active.is_empty() {
            self.over = Some(now);
        }
        Ok(())
    }
}
