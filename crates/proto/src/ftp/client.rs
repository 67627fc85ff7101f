//! The client's side of a control connection: one command at a time, each by its reply.

use std::collections::VecDeque;
use std::net::SocketAddr;

use engine::{
    Completion, EffectError, FileName, FilestoreRequest, OpenMode, PathId, StoreEffect, Time,
};
use wire::ftp::{self, Command, LineError, Reply, ReplyLine};

use super::config::{ClientConfig, DataConnection};
use super::core::{Control, Core, Use};
use super::data::{DataEvent, DataId, Flow};
use super::flow::{Inflow, Outflow};
use super::indication::{Failure, Indication, RequestId};

/// What an effect was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Open the file to send, or the working file for one that comes.
    Open,
    /// Give a file that came its name.
    Install,
    /// Nobody waits for the answer.
    Forget,
}

/// What a user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Put { source: FileName, name: String },
    Get { name: String, target: FileName },
}

/// What the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connection,
    Greeting,
    User,
    Password,
    Type,
    /// Its own file is being opened.
    Open,
    /// The reply to PASV, EPSV or PORT.
    Way,
    /// The driver's word where it listens.
    Listening,
    /// The first reply to RETR or STOR.
    Begin,
    /// The second one, and the end of the data connection.
    End,
    Quit,
}

/// The request that is being carried out.
#[derive(Debug)]
struct Current {
    request: Request,
    data: Option<DataId>,
    flow: Option<Flow>,
    spool: Option<FileName>,
    /// Octets that crossed, once the data connection has done its part.
    octets: Option<u64>,
    /// The last reply came.
    confirmed: bool,
    installing: bool,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) control: Control,
    pub(super) queue: VecDeque<Request>,
    stage: Stage,
    current: Option<Current>,
    /// The first line of a reply of several: its code, and the text so far.
    reply: Option<Reply>,
}

/// Octets of a reply of several lines that are kept for people.
const REPLY_MAX: usize = 16 << 10;

impl Session {
    pub(super) fn new(path: PathId, queue: VecDeque<Request>) -> Self {
        Self {
            control: Control::new(path),
            queue,
            stage: Stage::Connection,
            current: None,
            reply: None,
        }
    }

    /// Requests that are not over.
    pub(super) fn under_way(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }

    pub(super) fn up(&mut self, ends: Option<(SocketAddr, SocketAddr)>) {
        self.control.ends = ends;
        self.control.set_blocked(false);
        if self.stage == Stage::Connection {
            self.stage = Stage::Greeting;
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
        let decoded = match ReplyLine::decode(line) {
            Ok(decoded) => decoded,
            Err(error) => return self.give_up(&Failure::Nonsense(error.to_string()), core),
        };
        let append = |reply: &mut Reply, text: &str| {
            if reply.text.len() + text.len() < REPLY_MAX {
                reply.text.push('\n');
                reply.text.push_str(text);
            }
        };
        match (decoded, self.reply.take()) {
            (ReplyLine::Last { code, text }, Some(mut reply)) if reply.code == code => {
                append(&mut reply, text);
                self.reply(reply, config, core);
            }
            (ReplyLine::Last { code, text }, None) => {
                self.reply(Reply { code, text: text.to_owned() }, config, core);
            }
            (ReplyLine::First { code, text }, None) => {
                self.reply = Some(Reply { code, text: text.to_owned() });
            }
            (
                ReplyLine::Between(text)
                | ReplyLine::First { text, .. }
                | ReplyLine::Last { text, .. },
                Some(mut reply),
            ) => {
                append(&mut reply, text);
                self.reply = Some(reply);
            }
            (ReplyLine::Between(_), None) => {
                self.give_up(&Failure::Nonsense(format!("{line:?} is no reply")), core);
            }
        }
    }

    fn reply(&mut self, reply: Reply, config: &ClientConfig, core: &mut Core) {
        // 421 may come at any time: the server goes away (RFC 959 §5.4).
        if reply.code == 421 {
            return self.give_up(&Failure::Reply(reply), core);
        }
        match (self.stage, reply.class()) {
            // 120: later.
            (Stage::Greeting, 1) => {}
            (Stage::Greeting, 2) => self.ask(&Command::User(&config.user), Stage::User),
            (Stage::User, 3) => self.ask(&Command::Pass(&config.password), Stage::Password),
            (Stage::User | Stage::Password, 2) => {
                core.indicate(Indication::LoggedIn { path: self.control.path });
                self.ask(&Command::Type(config.representation), Stage::Type);
            }
            (Stage::Type, 2) => self.next(core),
            (Stage::Way, 2) => self.way(reply, config, core),
            // Early data connections are told with 125 (RFC 959 §5.4).
            (Stage::Begin, 1) => self.begin(core),
            // A server may be done before it was heard to begin.
            (Stage::Begin | Stage::End, 2) => {
                if self.stage == Stage::Begin {
                    self.begin(core);
                }
                if let Some(current) = &mut self.current {
                    current.confirmed = true;
                }
                self.finish_if_done(core);
            }
            (Stage::Quit, _) => self.control.close(),
            (Stage::Way | Stage::Begin | Stage::End, _) => {
                self.fail(Failure::Reply(reply), core);
                self.next(core);
            }
            (Stage::Greeting | Stage::User | Stage::Password | Stage::Type, _) => {
                self.give_up(&Failure::Reply(reply), core);
            }
            (Stage::Connection | Stage::Open | Stage::Listening, _) => {
                self.give_up(&Failure::Nonsense(reply.to_string()), core);
            }
        }
    }

    fn ask(&mut self, command: &Command<'_>, stage: Stage) {
        self.control.say(&command.to_string());
        self.stage = stage;
    }

    /// Begins the next request, or takes leave.
    fn next(&mut self, core: &mut Core) {
        if self.current.is_some() || self.control.is_closing() {
            return;
        }
        let Some(request) = self.queue.pop_front() else {
            return self.ask(&Command::Quit, Stage::Quit);
        };
        let ticket = core.next_ticket();
        let (name, mode, spool) = match &request.what {
            What::Put { source, .. } => (source.clone(), OpenMode::Read, None),
            What::Get { .. } => {
                let spool = FileName::spool(&format!("ftp-{}", request.id.0))
                    .expect("letters and digits are a name");
                (spool.clone(), OpenMode::Truncate, Some(spool))
            }
        };
        self.current = Some(Current {
            request,
            data: None,
            flow: None,
            spool,
            octets: None,
            confirmed: false,
            installing: false,
        });
        self.stage = Stage::Open;
        let what_for = Use::Client(self.control.path, Job::Open);
        core.submit(StoreEffect::Open { ticket, name, mode }, what_for);
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
            (Job::Open, Completion::Opened { file, .. }) => self.opened(file, config, core),
            (Job::Install, _) => self.finished(core),
            (Job::Open | Job::Forget, _) => {}
        }
    }

    fn opened(&mut self, file: engine::FileId, config: &ClientConfig, core: &mut Core) {
        let representation = config.representation;
        let Some(current) = &mut self.current else { return };
        current.flow = Some(match current.request.what {
            What::Put { .. } => Flow::Out(Outflow::file(file, 0, representation)),
            What::Get { .. } => Flow::In(Inflow::new(file, 0, representation)),
        });
        match config.data {
            DataConnection::Pasv => self.ask(&Command::Pasv, Stage::Way),
            DataConnection::Epsv => self.ask(&Command::Epsv(""), Stage::Way),
            DataConnection::Port => {
                current.data = Some(core.listen(self.control.path));
                self.stage = Stage::Listening;
            }
        }
    }

    /// The driver listens for the server's data connection.
    pub(super) fn listening(&mut self, address: SocketAddr) {
        if self.stage == Stage::Listening {
            self.ask(&Command::Port(address), Stage::Way);
        }
    }

    /// The server is ready for the data connection, or ready to make it.
    fn way(&mut self, reply: Reply, config: &ClientConfig, core: &mut Core) {
        let address = match config.data {
            DataConnection::Port => None,
            DataConnection::Pasv => match ftp::passive_reply(&reply.text) {
                Some(address) => Some(SocketAddr::V4(address)),
                None => return self.lost_way(reply, core),
            },
            DataConnection::Epsv => {
                let peer = self.control.ends.map(|(_, peer)| peer.ip());
                match (peer, ftp::passive_port(&reply.text)) {
                    (Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
                    (Some(_) | None, _) => return self.lost_way(reply, core),
                }
            }
        };
        let path = self.control.path;
        let Some(current) = &mut self.current else { return };
        if let Some(address) = address {
            current.data = Some(core.connect(path, address));
        }
        let command = match &current.request.what {
            What::Put { name, .. } => Command::Stor(name).to_string(),
            What::Get { name, .. } => Command::Retr(name).to_string(),
        };
        self.control.say(&command);
        self.stage = Stage::Begin;
    }

    fn lost_way(&mut self, reply: Reply, core: &mut Core) {
        self.fail(Failure::Nonsense(reply.text), core);
        self.next(core);
    }

    /// The server took the command: the file may cross.
    fn begin(&mut self, core: &mut Core) {
        self.stage = Stage::End;
        let Some(current) = &mut self.current else { return };
        core.indicate(Indication::Begun { request: current.request.id });
        if let (Some(data), Some(flow)) = (current.data, current.flow.take()) {
            core.begin(data, flow);
        }
    }

    pub(super) fn data_event(&mut self, event: DataEvent, core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        match event {
            DataEvent::Up => {}
            DataEvent::Complete(octets) => {
                current.octets = Some(octets);
                self.finish_if_done(core);
            }
            // The server's reply says more than that, if there comes one.
            DataEvent::NotMade(error) => self.break_off(Failure::Data(error.to_string()), core),
            DataEvent::Broken => self.break_off(Failure::Data("it broke".to_owned()), core),
            DataEvent::Store(error) => self.break_off(Failure::Store(error), core),
        }
    }

    /// A request fails while the server may still be at it: nothing tells where its replies belong,
    /// so the connection ends with it. Those that wait get a new one.
    fn break_off(&mut self, why: Failure, core: &mut Core) {
        self.fail(why, core);
        self.control.close();
    }

    fn finish_if_done(&mut self, core: &mut Core) {
        let Some(current) = &mut self.current else { return };
        if !current.confirmed || current.octets.is_none() || current.installing {
            return;
        }
        let (Some(spool), What::Get { target, .. }) = (&current.spool, &current.request.what)
        else {
            return self.finished(core);
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
        let octets = current.octets.unwrap_or_default();
        core.indicate(Indication::Finished { request: current.request.id, octets });
        self.next(core);
    }

    /// Ends the request that is being carried out.
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
        if let Some(close) = close {
            core.effects.push_back(close.into());
        }
        if let Some(spool) = current.spool {
            let forget = Use::Client(self.control.path, Job::Forget);
            core.filestore(FilestoreRequest::DenyFile(spool), forget);
        }
        core.indicate(Indication::Failed { request: current.request.id, why });
    }

    /// Ends all requests, and the connection.
    pub(super) fn give_up(&mut self, why: &Failure, core: &mut Core) {
        self.fail(why.clone(), core);
        for request in std::mem::take(&mut self.queue) {
            core.indicate(Indication::Failed { request: request.id, why: why.clone() });
        }
        self.control.close();
    }

    /// Takes a request back; `false` if there is none of this number.
    pub(super) fn cancel(&mut self, id: RequestId, core: &mut Core) -> bool {
        if self.current.as_ref().is_some_and(|current| current.request.id == id) {
            self.break_off(Failure::Cancelled, core);
            return true;
        }
        let before = self.queue.len();
        self.queue.retain(|request| request.id != id);
        if self.queue.len() == before {
            return false;
        }
        core.indicate(Indication::Failed { request: id, why: Failure::Cancelled });
        true
    }
}
