//! Client side of a control connection: one command at a time, each with its reply.

mod data;
mod replies;
mod request;
mod verify;

use std::collections::VecDeque;
use std::net::SocketAddr;

use engine::{
    Completion, EffectError, FileId, FileName, FilestoreRequest, OpenMode, PathId, StoreEffect,
    Time,
};

use self::replies::Replies;
pub(super) use self::request::{Request, Source, What};
use self::request::{failed, spool_of};
use self::verify::Sum;
use super::config::{ClientConfig, DataConnection, ScpsClient};
use super::core::{ClientJob as Job, Control, Core, DataEvent, DataId, Flow, MISSING, Use};
use super::indication::{Failure, Indication, RequestId};
use super::relay::{Half, Relayed};
use crate::flow::{Inflow, Outflow};
use crate::message::{Command, LineError, Reply, Representation};

/// Event that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// Time of another attempt.
    Restart,
    Connection,
    /// Reply before the first request.
    Login(Login),
    /// Local file being opened.
    Open,
    /// Reply to PASV, EPSV or PORT.
    Address,
    /// Listening address from the driver.
    Listening,
    /// Other server of a transfer between two.
    Peer,
    /// Size of the server's file, and the reply to the restart offset.
    Size,
    Offset,
    /// Reply to a single command.
    Reply,
    /// Server's CRC of the sent file.
    Checksum,
    /// First reply to RETR or STOR.
    Begin,
    /// Second reply, and the end of the data connection.
    End,
    Quit,
}

/// Step before the first request, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Login {
    Greeting,
    User,
    Password,
    Type,
    /// Reply to ARST, SUPP or BETS.
    Restartable,
    Brief,
    BestEffort,
}

/// Current request.
#[derive(Debug)]
struct Current {
    request: Request,
    data: Option<DataId>,
    file: Option<(FileId, u64)>,
    /// Offset at which this attempt starts.
    offset: u64,
    flow: Option<Flow>,
    spool: Option<FileName>,
    /// Bytes transferred, once the data connection is done.
    bytes: Option<u64>,
    /// Bytes that did not arrive.
    missing: u64,
    /// Whether the last reply arrived.
    confirmed: bool,
    installing: bool,
    sum: Option<Sum>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) control: Control,
    pub(super) queue: VecDeque<Request>,
    awaited: Awaited,
    current: Option<Current>,
    replies: Replies,
    /// Side that opens data connections.
    data: DataConnection,
    scps: Option<ScpsClient>,
    /// Whether sent files are compared with the server's.
    verify: bool,
    /// Whether the server supports restarts.
    restartable: bool,
    /// Whether data connections are best-effort at the server, and so also here.
    best_effort: bool,
}

impl Session {
    pub(super) fn new(path: PathId, queue: VecDeque<Request>, config: &ClientConfig) -> Self {
        Self {
            control: Control::new(path),
            queue,
            awaited: Awaited::Connection,
            current: None,
            replies: Replies::default(),
            data: config.data,
            // Files are not verified in text mode, whose line ends differ.
            verify: config.scps.as_ref().is_some_and(|scps| scps.verify)
                && config.representation == Representation::Image,
            scps: config.scps.clone(),
            restartable: false,
            best_effort: false,
        }
    }

    /// Marks the session as waiting before another attempt. Returns the time to wait, if there is a
    /// reason to.
    pub(super) fn wait(&mut self) -> Option<std::time::Duration> {
        let has_failed = self.queue.front().is_some_and(|request| request.attempts > 0);
        let wait = self.scps.as_ref().filter(|_| has_failed)?.restart_wait;
        self.awaited = Awaited::Restart;
        Some(wait)
    }

    /// Whether the wait before another attempt has ended.
    pub(super) fn tries_again(&mut self) -> bool {
        let waits = self.awaited == Awaited::Restart;
        if waits {
            self.awaited = Awaited::Connection;
        }
        waits
    }

    /// Whether a request that broke off for this reason is retried.
    fn goes_on(&self, request: &Request, attempts: u32, why: &Failure) -> bool {
        let Some(scps) = &self.scps else { return false };
        if matches!(request.what, What::Relay { .. }) {
            return false;
        }
        let is_passing = match why {
            Failure::Control | Failure::Data(_) | Failure::Silence => true,
            Failure::Reply(reply) => matches!(reply.code, 421 | 425 | 426),
            Failure::Nonsense(_)
            | Failure::Store(_)
            | Failure::Checksum { .. }
            | Failure::Cancelled => false,
        };
        is_passing && scps.auto_restart && attempts < scps.restarts
    }

    /// Number of unfinished requests.
    pub(super) fn under_way(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }

    pub(super) fn up(&mut self, ends: Option<(SocketAddr, SocketAddr)>) {
        self.control.ends = ends;
        self.control.set_blocked(false);
        if self.awaited == Awaited::Connection {
            self.awaited = Awaited::Login(Login::Greeting);
        }
    }

    pub(super) fn received(
        &mut self,
        now: Time,
        bytes: &[u8],
        config: &ClientConfig,
        core: &mut Core,
    ) {
        core.expect(self.control.path, now, config.timeout, "no reply");
        for line in self.control.read(bytes) {
            if self.control.is_closing() {
                return;
            }
            match line {
                Ok(line) => self.line(&line, config, core),
                Err(error @ (LineError::TooLong | LineError::NotText)) => {
                    self.give_up(&Failure::Nonsense(error.to_string()), core);
                }
            }
        }
    }

    fn line(&mut self, line: &str, config: &ClientConfig, core: &mut Core) {
        match self.replies.line(line) {
            Ok(Some(reply)) => self.reply(reply, config, core),
            Ok(None) => {}
            Err(why) => self.give_up(&Failure::Nonsense(why), core),
        }
    }

    fn reply(&mut self, reply: Reply, config: &ClientConfig, core: &mut Core) {
        // 421 may arrive at any time: the server closes (RFC 959 §5.4).
        if reply.code == 421 {
            return self.give_up(&Failure::Reply(reply), core);
        }
        if let Awaited::Login(step) = self.awaited {
            return self.login_reply(step, reply, config, core);
        }
        match (self.awaited, reply.class()) {
            (Awaited::Size, class) => self.size_known((class == 2).then_some(&reply), config, core),
            (Awaited::Offset, 3) => self.transfer(),
            (Awaited::Reply, 2) => {
                if let Some(current) = &self.current {
                    let request = current.request.id;
                    core.indicate(Indication::Answered { request, reply });
                }
                self.finished(core);
            }
            (Awaited::Checksum, 2) => self.compare(reply, core),
            (Awaited::Address, 2) => self.address(reply, config, core),
            // An early data connection is confirmed by 125 (RFC 959 §5.4).
            (Awaited::Begin, 1) => self.begin(core),
            // A server may finish before its first reply was received.
            (Awaited::Begin | Awaited::End, 2) => {
                if self.awaited == Awaited::Begin {
                    self.begin(core);
                }
                if let Some(current) = &mut self.current {
                    current.confirmed = true;
                    current.missing += missing_by(&reply.text);
                }
                self.finish_if_done(core);
            }
            (Awaited::Quit, _) => self.control.close(),
            (
                Awaited::Address
                | Awaited::Begin
                | Awaited::End
                | Awaited::Offset
                | Awaited::Checksum
                | Awaited::Reply,
                _,
            ) => {
                self.fail(Failure::Reply(reply), core);
                self.next(core);
            }
            (
                Awaited::Restart
                | Awaited::Connection
                | Awaited::Login(_)
                | Awaited::Open
                | Awaited::Listening
                | Awaited::Peer,
                _,
            ) => self.give_up(&Failure::Nonsense(reply.to_string()), core),
        }
    }

    /// Processes a reply before the first request.
    fn login_reply(&mut self, step: Login, reply: Reply, config: &ClientConfig, core: &mut Core) {
        match (step, reply.class()) {
            // 120: service ready later.
            (Login::Greeting, 1) => {}
            (Login::Greeting, 2) => self.log_in(&Command::User(&config.user), Login::User),
            (Login::User, 3) => self.log_in(&Command::Pass(&config.password), Login::Password),
            (Login::User | Login::Password, 2) => {
                core.indicate(Indication::LoggedIn { path: self.control.path });
                self.log_in(&Command::Type(config.representation), Login::Type);
            }
            (Login::Type, 2) | (Login::Brief, _) => self.prepare(step, core),
            (Login::Restartable, class) => {
                self.restartable = class == 2;
                self.prepare(step, core);
            }
            (Login::BestEffort, class) => {
                self.best_effort = class == 2;
                self.prepare(step, core);
            }
            _ => self.give_up(&Failure::Reply(reply), core),
        }
    }

    fn log_in(&mut self, command: &Command<'_>, step: Login) {
        self.ask(command, Awaited::Login(step));
    }

    fn ask(&mut self, command: &Command<'_>, awaited: Awaited) {
        self.control.queue_line(&command.to_string());
        self.awaited = awaited;
    }

    /// Sends the next command after this step that applies to all transfers, or starts the first
    /// request.
    fn prepare(&mut self, step: Login, core: &mut Core) {
        let wants = |setting: fn(&ScpsClient) -> bool| self.scps.as_ref().is_some_and(setting);
        let commands = [
            (Login::Restartable, Command::Arst, wants(|scps| scps.auto_restart)),
            (Login::Brief, Command::Supp, wants(|scps| scps.suppress)),
            (Login::BestEffort, Command::Bets, wants(|scps| scps.best_effort)),
        ];
        let mut left = commands.iter().filter(|(next, _, is_wanted)| *next > step && *is_wanted);
        match left.next() {
            Some((next, command, _)) => self.log_in(command, *next),
            None => self.next(core),
        }
    }

    /// Starts the next request, or quits.
    fn next(&mut self, core: &mut Core) {
        if self.current.is_some() || self.control.is_closing() {
            return;
        }
        let Some(request) = self.queue.pop_front() else {
            return self.ask(&Command::Quit, Awaited::Quit);
        };
        let ticket = core.next_ticket();
        let (name, mode, spool) = match &request.what {
            What::Put { source: Source::File(source), .. } => {
                (Some(source.clone()), OpenMode::Read, None)
            }
            What::Put { source: Source::Text(_), .. } | What::Command(_) | What::Relay { .. } => {
                (None, OpenMode::Read, None)
            }
            What::Get { records, .. } => {
                let spool = spool_of(request.id);
                // Data before a break is still there; records are read from the start.
                let again = request.attempts > 0 && self.restartable && !records;
                let mode = if again { OpenMode::Write } else { OpenMode::Truncate };
                (Some(spool.clone()), mode, Some(spool))
            }
        };
        self.current = Some(Current {
            request,
            data: None,
            file: None,
            offset: 0,
            flow: None,
            spool,
            bytes: None,
            missing: 0,
            confirmed: false,
            installing: false,
            sum: None,
        });
        self.awaited = Awaited::Open;
        let what_for = Use::Client(self.control.path, Job::Open);
        match name {
            Some(name) => core.submit(StoreEffect::Open { ticket, name, mode }, what_for),
            None => self.begin_without_file(core),
        }
    }

    pub(super) fn done(
        &mut self,
        job: Job,
        answer: Result<Completion, EffectError>,
        config: &ClientConfig,
        core: &mut Core,
    ) {
        let completion = match answer {
            Ok(completion) => completion,
            Err(_) if job == Job::Forget => return,
            Err(error) => {
                self.fail(Failure::Store(error), core);
                return self.next(core);
            }
        };
        match (job, completion) {
            (Job::Open, Completion::Opened { file, len, .. }) => {
                self.opened(file, len, config, core);
            }
            (Job::Install, _) => self.finished(core),
            (Job::OpenToSum, Completion::Opened { file, .. }) => match &mut self.current {
                Some(current) => {
                    current.sum = Some(Sum::new(file));
                    self.read_to_sum(core);
                }
                None => core.effects.push_back(StoreEffect::Close { file }.into()),
            },
            (Job::Sum, Completion::Read(bytes)) => self.summed(&bytes, core),
            (Job::Open | Job::OpenToSum | Job::Sum | Job::Forget, _) => {}
        }
    }

    /// Starts a request without a local file.
    fn begin_without_file(&mut self, core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        match &current.request.what {
            What::Put { source: Source::Text(text), .. } => {
                current.flow = Some(Flow::Out(Outflow::text(text.clone())));
                self.request_address(core);
            }
            What::Command(line) => {
                self.control.queue_line(line);
                self.awaited = Awaited::Reply;
            }
            What::Relay { half: Half::Takes, .. } => self.ask(&Command::Pasv, Awaited::Address),
            What::Relay { half: Half::Gives, .. } => {
                core.relayed.push_back((current.request.id, Relayed::Waits));
                self.awaited = Awaited::Peer;
            }
            What::Put { source: Source::File(_), .. } | What::Get { .. } => {}
        }
    }

    /// Drops a half of a transfer between two servers that failed at the other. The state of this
    /// connection is unknown unless nothing was requested of it.
    pub(super) fn drop_relay(&mut self, id: RequestId, core: &mut Core) {
        self.queue.retain(|request| request.id != id);
        if self.current.take_if(|current| current.request.id == id).is_none() {
            return;
        }
        if self.awaited == Awaited::Peer {
            self.next(core);
        } else {
            self.control.close();
        }
    }

    fn opened(&mut self, file: FileId, len: u64, config: &ClientConfig, core: &mut Core) {
        let restartable = self.restartable;
        let Some(current) = &mut self.current else {
            return core.effects.push_back(StoreEffect::Close { file }.into());
        };
        current.file = Some((file, len));
        let again = current.request.attempts > 0 && restartable;
        match &current.request.what {
            What::Put { name, .. } if again => {
                let size = Command::Size(name).to_string();
                self.control.queue_line(&size);
                self.awaited = Awaited::Size;
            }
            What::Get { records: false, .. } if again => self.begin_at(len, config, core),
            What::Put { .. } | What::Get { .. } | What::Command(_) | What::Relay { .. } => {
                self.begin_at(0, config, core);
            }
        }
    }

    /// Processes the size of the server's part of an interrupted file.
    fn size_known(&mut self, reply: Option<&Reply>, config: &ClientConfig, core: &mut Core) {
        let has = reply.and_then(|reply| reply.text.trim().parse::<u64>().ok()).unwrap_or(0);
        let len = self.current.as_ref().and_then(|current| current.file).map_or(0, |(_, len)| len);
        // A file larger than the local file is another file.
        self.begin_at(if has <= len { has } else { 0 }, config, core);
    }

    fn begin_at(&mut self, offset: u64, config: &ClientConfig, core: &mut Core) {
        let representation = config.representation;
        let Some(current) = &mut self.current else { return };
        let Some((file, _)) = current.file.take() else { return };
        current.offset = offset;
        current.flow = Some(match current.request.what {
            What::Put { .. } | What::Command(_) | What::Relay { .. } => {
                Flow::Out(Outflow::file(file, offset, representation))
            }
            What::Get { .. } => Flow::In(Inflow::new(file, offset, representation)),
        });
        self.request_address(core);
    }

    fn request(&self) -> Option<&Request> {
        self.current.as_ref().map(|current| &current.request)
    }

    /// Starts the transfer once the data connection is agreed.
    fn transfer(&mut self) {
        let Some(current) = &self.current else { return };
        let command = match &current.request.what {
            What::Put { name, .. } => Command::Stor(name).to_string(),
            What::Get { name, records: false, .. } => Command::Retr(name).to_string(),
            What::Get { name, records: true, .. } => Command::Read(name).to_string(),
            What::Relay { name, half: Half::Gives } => Command::Retr(name).to_string(),
            What::Relay { name, half: Half::Takes } => Command::Stor(name).to_string(),
            What::Command(line) => line.clone(),
        };
        self.control.queue_line(&command);
        self.awaited = Awaited::Begin;
    }

    /// Starts the data flow once the server has accepted the command.
    fn begin(&mut self, core: &mut Core) {
        self.awaited = Awaited::End;
        let Some(current) = &mut self.current else { return };
        if let What::Relay { half, .. } = current.request.what {
            // The data of such a transfer does not cross this client's connections.
            current.bytes = Some(0);
            if half == Half::Gives {
                core.relayed.push_back((current.request.id, Relayed::Begins));
            }
            return;
        }
        if current.request.attempts == 0 {
            core.indicate(Indication::Begun { request: current.request.id });
        }
        if let (Some(data), Some(flow)) = (current.data, current.flow.take()) {
            core.begin(data, flow);
        }
    }

    pub(super) fn data_event(&mut self, event: DataEvent, core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        match event {
            DataEvent::Up => {}
            DataEvent::Missing { offset, bytes } => {
                let name = current.request.what.name().to_owned();
                core.indicate(Indication::Missing { path: self.control.path, name, offset, bytes });
            }
            DataEvent::Complete { bytes, missing, .. } => {
                current.bytes = Some(bytes);
                current.missing += missing;
                self.finish_if_done(core);
            }
            // The server's reply has more details, if one arrives.
            DataEvent::NotMade(error) => self.break_off(Failure::Data(error.to_string()), core),
            DataEvent::Broken => self.break_off(Failure::Data("it broke".to_owned()), core),
            DataEvent::Store(error) => self.break_off(Failure::Store(error), core),
        }
    }

    /// Fails the current request while the server may still process it: its replies cannot be
    /// assigned any more, so the connection ends. Queued requests get a new one.
    fn break_off(&mut self, why: Failure, core: &mut Core) {
        self.fail(why, core);
        self.control.close();
    }

    fn finish_if_done(&mut self, core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        if !current.confirmed || current.bytes.is_none() || current.installing {
            return;
        }
        let (Some(spool), What::Get { target, .. }) = (&current.spool, &current.request.what)
        else {
            return self.sent(core);
        };
        current.installing = true;
        let request = FilestoreRequest::Install { from: spool.clone(), to: target.clone() };
        core.filestore(request, Use::Client(self.control.path, Job::Install));
    }

    fn finished(&mut self, core: &mut Core) {
        let Some(current) = self.current.take() else { return };
        if let Some(data) = current.data {
            core.drop_data(data);
        }
        core.effects.extend(current.sum.map(|sum| StoreEffect::Close { file: sum.file() }.into()));
        let bytes = current.offset + current.bytes.unwrap_or_default();
        let (request, missing) = (current.request.id, current.missing);
        match current.request.what {
            What::Relay { half, .. } => {
                core.relayed.push_back((request, Relayed::Done(half, missing)));
            }
            What::Put { .. } | What::Get { .. } | What::Command(_) => {
                core.indicate(Indication::Finished { request, bytes, missing });
            }
        }
        self.next(core);
    }

    /// Fails the current request.
    fn fail(&mut self, why: Failure, core: &mut Core) {
        let Some(current) = self.current.take() else { return };
        if let Some(data) = current.data {
            core.drop_data(data);
        }
        let close = match current.flow {
            Some(Flow::Out(out)) => out.close(),
            Some(Flow::In(inflow)) => Some(inflow.close()),
            Some(Flow::None) | None => None,
        };
        let summed = current.sum.map(|sum| sum.file());
        let unused = current.file.map(|(file, _)| file).into_iter().chain(summed);
        let unused = unused.map(|file| StoreEffect::Close { file });
        core.effects.extend(close.into_iter().chain(unused).map(Into::into));
        if self.goes_on(&current.request, current.request.attempts, &why) {
            let attempts = current.request.attempts + 1;
            return self.queue.push_front(Request { attempts, ..current.request });
        }
        if let Some(spool) = current.spool {
            let forget = Use::Client(self.control.path, Job::Forget);
            core.filestore(FilestoreRequest::DenyFile(spool), forget);
        }
        self.fail_what_needs(current.request.id, &why, core);
        failed(&current.request, why, core);
    }

    /// Fails the requests that depend on a failed one.
    fn fail_what_needs(&mut self, id: RequestId, why: &Failure, core: &mut Core) {
        let (useless, queue): (VecDeque<_>, _) =
            self.queue.drain(..).partition(|request| request.needs == Some(id));
        self.queue = queue;
        for Request { id: request, .. } in useless {
            core.indicate(Indication::Failed { request, why: why.clone() });
        }
    }

    /// Fails all requests, and ends the connection.
    pub(super) fn give_up(&mut self, why: &Failure, core: &mut Core) {
        let was_at_it = self.current.is_some();
        self.fail(why.clone(), core);
        let mut queue = std::mem::take(&mut self.queue);
        if !was_at_it && let Some(first) = queue.front_mut() {
            first.attempts += 1;
        }
        for request in queue {
            if self.goes_on(&request, request.attempts.saturating_sub(1), why) {
                self.queue.push_back(request);
            } else {
                if let What::Get { .. } = request.what
                    && request.attempts > 0
                {
                    let forget = Use::Client(self.control.path, Job::Forget);
                    core.filestore(FilestoreRequest::DenyFile(spool_of(request.id)), forget);
                }
                failed(&request, why.clone(), core);
            }
        }
        self.control.close();
    }

    /// Cancels a request; `false` if its number is unknown.
    pub(super) fn cancel(&mut self, id: RequestId, core: &mut Core) -> bool {
        if self.current.as_ref().is_some_and(|current| current.request.id == id) {
            self.break_off(Failure::Cancelled, core);
            return true;
        }
        let Some(at) = self.queue.iter().position(|request| request.id == id) else { return false };
        let Some(request) = self.queue.remove(at) else { return false };
        self.fail_what_needs(id, &Failure::Cancelled, core);
        failed(&request, Failure::Cancelled, core);
        true
    }
}

/// Number of missing bytes in a server's last reply.
fn missing_by(text: &str) -> u64 {
    number_behind(text, MISSING).unwrap_or(0)
}

/// Number after a word in a reply's text.
fn number_behind(text: &str, word: &str) -> Option<u64> {
    let (_, after) = text.split_once(word)?;
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
