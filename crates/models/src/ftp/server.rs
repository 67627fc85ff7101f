//! Server side of a control connection.

mod scps;
mod transfer;

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use engine::{
    Completion, DirEntry, EffectError, FileId, FileName, FilestoreRequest, OpenMode, PathId,
    StoreEffect, Time,
};

use self::transfer::Transfer;
use super::config::{Accounts, ServerConfig};
use super::core::{Control, Core, DataId, Edit, Flow, MISSING, ServerJob as Job, Use};
use super::listing;
use crate::flow::{Inflow, Outflow};
use crate::message::{Command, HostPort, LineError, Representation};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) control: Control,
    user: Option<String>,
    logged_in: bool,
    /// Working directory, without a leading or trailing slash.
    directory: String,
    representation: Representation,
    restart: u64,
    rename_from: Option<FileName>,
    /// Address where the client listens, if sent.
    target: Option<SocketAddr>,
    data: Option<DataId>,
    /// Whether this server listens because of EPSV.
    extended: bool,
    transfer: Option<Transfer>,
    /// Whether a command waits for the store or the driver.
    busy: bool,
    waiting: VecDeque<String>,
    paused: bool,
    leaves: bool,
    /// SCPS-FP state, if supported.
    scps: Option<scps::State>,
}

/// Whether a command can be served during a transfer (RFC 959 §4.1.3).
fn is_urgent(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Abor | Command::Intr | Command::Stat(_) | Command::Noop | Command::Quit
    )
}

impl Session {
    pub(super) fn new(
        path: PathId,
        ends: Option<(SocketAddr, SocketAddr)>,
        config: &ServerConfig,
    ) -> Self {
        let mut control = Control::new(path);
        control.ends = ends;
        control.set_blocked(false);
        let mut session = Self {
            control,
            user: None,
            logged_in: false,
            directory: String::new(),
            representation: Representation::Ascii,
            restart: 0,
            rename_from: None,
            target: None,
            data: None,
            extended: false,
            transfer: None,
            busy: false,
            waiting: VecDeque::new(),
            paused: false,
            leaves: false,
            scps: config.scps.then(scps::State::default),
        };
        session.reply(220, "slowlight");
        session
    }

    fn reply(&mut self, code: u16, text: &str) {
        match &self.scps {
            Some(scps) if scps.leaves_out(code, text) => self.control.queue_line(&code.to_string()),
            Some(_) | None => self.control.queue_line(&format!("{code} {text}")),
        }
    }

    pub(super) fn received(
        &mut self,
        now: Time,
        bytes: &[u8],
        config: &ServerConfig,
        core: &mut Core,
    ) {
        for line in self.control.read(bytes) {
            match line {
                Ok(line) => self.waiting.push_back(line),
                Err(LineError::TooLong) => self.reply(500, "The line is too long."),
                Err(LineError::NotText) => self.reply(500, "The line is not UTF-8."),
            }
        }
        self.work(now, config, core);
    }

    /// Serves the commands that need not wait.
    pub(super) fn work(&mut self, now: Time, config: &ServerConfig, core: &mut Core) {
        while !self.busy && !self.control.is_closing() {
            let Some(line) = self.waiting.front() else { break };
            let command = Command::decode(line);
            if self.transfer.is_some() && !command.as_ref().is_ok_and(is_urgent) {
                break;
            }
            let Some(line) = self.waiting.pop_front() else { break };
            match Command::decode(&line) {
                Ok(command) => self.command(&command, config, core),
                Err(error) => self.reply(501, &format!("{error}.")),
            }
        }
        let is_full = self.waiting.len() >= core.limits.commands;
        if is_full != self.paused {
            self.paused = is_full;
            core.pause(self.control.path, is_full);
        }
        self.watch(now, config, core);
    }

    /// Restarts the silence timer, after a command or data of the transfer; it is longer during a
    /// transfer.
    pub(super) fn watch(&mut self, now: Time, config: &ServerConfig, core: &mut Core) {
        let path = self.control.path;
        let idle = self.scps.as_ref().and_then(scps::State::idle).unwrap_or(config.idle);
        if self.transfer.is_some() || self.busy {
            core.expect(path, now, config.data_timeout.max(idle), "silence of a transfer");
        } else {
            core.expect(path, now, idle, "silence of a client");
        }
    }

    pub(super) fn has_transfer(&self) -> bool {
        self.transfer.is_some()
    }

    /// Whether PASV or EPSV waits for the driver.
    pub(super) fn is_listening(&self) -> bool {
        self.busy && self.transfer.is_none() && self.data.is_some()
    }

    /// Whether a command is queued that can be served.
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty() && !self.busy && !self.control.is_closing()
    }

    pub(super) fn silent(&mut self, core: &mut Core) {
        self.reply(421, "Nothing came for too long.");
        self.leave(core);
    }

    /// Ends the session after everything was sent.
    pub(super) fn leave(&mut self, core: &mut Core) {
        self.abort_transfer(core);
        self.control.close();
    }

    fn command(&mut self, command: &Command<'_>, config: &ServerConfig, core: &mut Core) {
        match command {
            Command::User(name) => return self.user(name),
            Command::Pass(password) => return self.password(password, config),
            Command::Quit => {
                if self.transfer.is_some() {
                    // The transfer finishes first (RFC 959 §4.1.1).
                    self.leaves = true;
                } else {
                    self.reply(221, "Goodbye.");
                    self.leave(core);
                }
                return;
            }
            Command::Noop => return self.reply(200, "Here."),
            Command::Syst => return self.reply(215, "UNIX Type: L8"),
            Command::Feat => return self.features(),
            Command::Help(_) => return self.reply(214, "See RFC 959."),
            Command::Opts(what) if what.eq_ignore_ascii_case("utf8 on") => {
                return self.reply(200, "Names are UTF-8.");
            }
            Command::Unknown(verb, _) => {
                return self.reply(500, &format!("{verb} is not understood."));
            }
            _ if !self.logged_in => return self.reply(530, "Log in with USER and PASS."),
            _ => {}
        }
        let is_done = self.parameter(command, config, core) || self.scps_command(command, core);
        if !is_done {
            self.file_command(command, core);
        }
    }

    fn user(&mut self, name: &str) {
        self.logged_in = false;
        self.user = Some(name.to_owned());
        self.reply(331, "The password, please.");
    }

    fn password(&mut self, password: &str, config: &ServerConfig) {
        let Some(user) = &self.user else { return self.reply(503, "USER comes first.") };
        self.logged_in = match &config.accounts {
            Accounts::Anybody => true,
            Accounts::Named(accounts) => accounts.get(user).is_some_and(|word| word == password),
        };
        if self.logged_in {
            self.reply(230, "Logged in.");
        } else {
            self.user = None;
            self.reply(530, "Not logged in.");
        }
    }

    fn features(&mut self) {
        self.control.queue_line("211-Features:");
        for feature in ["EPRT", "EPSV", "MDTM", "REST STREAM", "SIZE", "UTF8"] {
            self.control.queue_line(&format!(" {feature}"));
        }
        self.reply(211, "End");
    }

    /// Serves commands that set transfer parameters; `false` for all others.
    fn parameter(&mut self, command: &Command<'_>, config: &ServerConfig, core: &mut Core) -> bool {
        match command {
            Command::Type(representation) => {
                self.representation = *representation;
                self.reply(200, "The type is set.");
            }
            Command::Mode('S') | Command::Stru('F') => self.reply(200, "It is so."),
            Command::Mode(_) => self.reply(504, "Stream mode (S) is the only one."),
            Command::Stru(_) => self.reply(504, "File structure (F) is the only one."),
            Command::Port(address) | Command::Eprt(address) => {
                self.port(*address, config, core);
            }
            Command::Pasv | Command::Epsv(_) => {
                self.forget_way(core);
                self.extended = matches!(command, Command::Epsv(_));
                self.data = Some(core.listen(self.control.path, self.is_best_effort()));
                self.busy = true;
            }
            Command::Rest(offset) => {
                self.restart = *offset;
                self.reply(350, "RETR or STOR goes on from there.");
            }
            Command::Allo(_) | Command::Acct(_) => self.reply(202, "That is not needed here."),
            Command::Rein => {
                self.abort_transfer(core);
                self.forget_way(core);
                (self.logged_in, self.user) = (false, None);
                self.directory.clear();
                self.representation = Representation::Ascii;
                self.reply(220, "Ready for a new user.");
            }
            Command::Abor => {
                if self.transfer.is_some() {
                    self.abort_transfer(core);
                    self.reply(426, "The transfer is broken off.");
                }
                self.forget_way(core);
                self.reply(226, "Aborted.");
            }
            Command::Stat("") => {
                let state =
                    if self.transfer.is_some() { "A transfer is under way." } else { "Idle." };
                self.reply(211, state);
            }
            _ => return false,
        }
        true
    }

    fn port(&mut self, address: SocketAddr, config: &ServerConfig, core: &mut Core) {
        let peer = self.control.ends.map(|(_, peer)| peer.ip());
        if !config.third_party && peer.is_some_and(|peer| peer != address.ip()) {
            return self.reply(504, "The address is not yours.");
        }
        if address.port() < 1024 {
            return self.reply(504, "Ports below 1024 are others'.");
        }
        self.forget_way(core);
        self.target = Some(address);
        self.reply(200, "The address is known.");
    }

    /// Forgets the agreed data connection.
    fn forget_way(&mut self, core: &mut Core) {
        self.target = None;
        if let Some(data) = self.data.take() {
            core.drop_data(data);
        }
    }

    /// Processes the driver's listening address, or its failure.
    pub(super) fn listening(&mut self, answer: Result<SocketAddr, EffectError>, core: &mut Core) {
        self.busy = false;
        match answer {
            Ok(address) if self.extended => {
                let text = format!("Entering Extended Passive Mode (|||{}|)", address.port());
                self.reply(229, &text);
            }
            Ok(SocketAddr::V4(address)) => {
                let text = format!("Entering Passive Mode ({})", HostPort(address));
                self.reply(227, &text);
            }
            Ok(SocketAddr::V6(_)) => {
                self.forget_way(core);
                self.reply(425, "Such addresses need EPSV.");
            }
            Err(error) => {
                self.forget_way(core);
                self.reply(425, &format!("Cannot listen: {error}."));
            }
        }
    }

    fn file_command(&mut self, command: &Command<'_>, core: &mut Core) {
        match *command {
            Command::Retr(name) => {
                if self.require_data_connection() {
                    let job = Job::Retrieve(name.to_owned());
                    self.open(name, OpenMode::Read, job, core);
                }
            }
            Command::Stor(name) => {
                if self.require_data_connection() {
                    let offset = self.restart;
                    let mode = if offset > 0 { OpenMode::Write } else { OpenMode::Truncate };
                    let job = Job::Store { name: name.to_owned(), offset: Some(offset) };
                    self.open(name, mode, job, core);
                }
            }
            Command::Appe(name) => {
                if self.require_data_connection() {
                    let job = Job::Store { name: name.to_owned(), offset: None };
                    self.open(name, OpenMode::Write, job, core);
                }
            }
            Command::Size(_) if self.representation == Representation::Ascii => {
                self.reply(550, "The length as text is not known: TYPE I.");
            }
            Command::Size(name) => self.open(name, OpenMode::Read, Job::Size, core),
            Command::Mdtm(name) => self.open(name, OpenMode::Read, Job::Modified, core),
            Command::Cwd(name) => self.change(name, core),
            Command::Cdup => self.change("..", core),
            Command::Pwd => {
                let text = format!("\"/{}\"", self.directory.replace('"', "\"\""));
                self.reply(257, &text);
            }
            Command::List(name) => self.list(name, true, core),
            Command::Nlst(name) => self.list(name, false, core),
            Command::Dele(name) => {
                self.change_by_name(name, FilestoreRequest::DeleteFile, 250, "Deleted.", core);
            }
            Command::Rmd(name) => {
                let request = FilestoreRequest::RemoveDirectory;
                self.change_by_name(name, request, 250, "Removed.", core);
            }
            Command::Mkd(name) => {
                let request = FilestoreRequest::CreateDirectory;
                self.change_by_name(name, request, 257, "Made.", core);
            }
            Command::Rnfr(name) => match self.resolve(name) {
                Some(name) => {
                    self.rename_from = Some(name);
                    self.reply(350, "RNTO says how it shall be called.");
                }
                None => self.reply(553, "That is no name."),
            },
            Command::Rnto(name) => {
                let Some(from) = self.rename_from.take() else {
                    return self.reply(503, "RNFR comes first.");
                };
                let request = |to| FilestoreRequest::RenameFile { from, to };
                self.change_by_name(name, request, 250, "Renamed.", core);
            }
            _ => self.reply(502, "That is not done here."),
        }
    }

    /// Returns whether there is, or will be, a data connection; replies with an error if not.
    fn require_data_connection(&mut self) -> bool {
        let has = self.data.is_some() || self.target.is_some();
        if !has {
            self.reply(425, "PASV or PORT comes first.");
        }
        has
    }

    /// Resolves a client's name within the root.
    fn resolve(&self, name: &str) -> Option<FileName> {
        FileName::file(&self.absolute(name)).ok()
    }

    /// Resolved name as text, which is empty for the root.
    fn absolute(&self, name: &str) -> String {
        let start = if name.starts_with('/') { "" } else { self.directory.as_str() };
        let mut parts: Vec<&str> = Vec::new();
        for part in start.split('/').chain(name.split('/')) {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        parts.join("/")
    }

    fn open(&mut self, name: &str, mode: OpenMode, job: Job, core: &mut Core) {
        let Some(name) = self.resolve(name) else { return self.reply(553, "That is no name.") };
        let ticket = core.next_ticket();
        let what_for = Use::Server(self.control.path, job);
        core.submit(StoreEffect::Open { ticket, name, mode }, what_for);
        self.busy = true;
    }

    fn change_by_name(
        &mut self,
        name: &str,
        request: impl FnOnce(FileName) -> FilestoreRequest,
        code: u16,
        text: &'static str,
        core: &mut Core,
    ) {
        let Some(name) = self.resolve(name) else { return self.reply(553, "That is no name.") };
        core.filestore(request(name), Use::Server(self.control.path, Job::Done(code, text)));
        self.busy = true;
    }

    fn change(&mut self, name: &str, core: &mut Core) {
        let to = self.absolute(name);
        let directory = directory(&to);
        let Some(directory) = directory else { return self.reply(553, "That is no name.") };
        let job = Job::Change(to);
        core.filestore(FilestoreRequest::List(directory), Use::Server(self.control.path, job));
        self.busy = true;
    }

    fn list(&mut self, name: &str, details: bool, core: &mut Core) {
        if !self.require_data_connection() {
            return;
        }
        // Clients add options of ls.
        let name = name.split_whitespace().find(|part| !part.starts_with('-')).unwrap_or_default();
        let Some(directory) = directory(&self.absolute(name)) else {
            return self.reply(553, "That is no name.");
        };
        let job = Job::List { details, only: None, directory: directory.clone() };
        core.filestore(FilestoreRequest::List(directory), Use::Server(self.control.path, job));
        self.busy = true;
    }

    /// Processes the result of a store effect.
    pub(super) fn done(
        &mut self,
        job: Job,
        answer: Result<Completion, EffectError>,
        core: &mut Core,
    ) {
        self.busy = false;
        match (job, answer) {
            // A file is listed as in its directory.
            (
                Job::List { details, only: None, directory },
                Err(EffectError::WrongKind | EffectError::NotFound),
            ) if !directory.path().is_empty() => {
                let parent = directory.parent().unwrap_or_else(FileName::root);
                let only = directory.path().rsplit('/').next().map(str::to_owned);
                let job = Job::List { details, only, directory: parent.clone() };
                let what_for = Use::Server(self.control.path, job);
                core.filestore(FilestoreRequest::List(parent), what_for);
                self.busy = true;
            }
            (Job::Forget, _) => {}
            (Job::Edit(edit), answer) => self.edited(edit, answer, core),
            (_, Err(error)) => {
                let code = if error == EffectError::NoSpace { 452 } else { 550 };
                self.reply(code, &format!("{error}."));
            }
            (Job::Done(code, text), Ok(_)) => self.reply(code, text),
            (Job::Change(to), Ok(_)) => {
                self.directory = to;
                self.reply(250, "Here.");
            }
            (Job::List { details, only, .. }, Ok(Completion::Listing(entries))) => {
                self.send_listing(&entries, details, only.as_deref(), core);
            }
            (job, Ok(Completion::Opened { file, len, modified })) => {
                self.opened(job, file, len, modified, core);
            }
            (Job::List { .. }, Ok(_)) => self.reply(451, "The store says nothing of use."),
            (_, Ok(_)) => self.reply(451, "The store says nothing of use."),
        }
    }

    fn opened(&mut self, job: Job, file: FileId, len: u64, modified: Option<u64>, core: &mut Core) {
        let representation = self.representation;
        match job {
            Job::Size => {
                core.effects.push_back(StoreEffect::Close { file }.into());
                self.reply(213, &len.to_string());
            }
            Job::Modified => {
                core.effects.push_back(StoreEffect::Close { file }.into());
                match modified.and_then(listing::time_value) {
                    Some(time) => self.reply(213, &time),
                    None => self.reply(550, "Nobody knows."),
                }
            }
            Job::Retrieve(name) => {
                let offset = std::mem::take(&mut self.restart);
                let flow = Outflow::file(file, offset, representation).with_crc(self.wants_crc());
                let transfer = Transfer { name, file: None, code: 226, incoming: false };
                self.begin(transfer, Flow::Out(flow), core);
            }
            Job::Store { name, offset } => {
                self.restart = 0;
                let flow = Inflow::new(file, offset.unwrap_or(len), representation);
                let flow = flow.with_crc(self.wants_crc());
                let file = self.resolve(&name);
                let transfer = Transfer { name, file, code: 226, incoming: true };
                self.begin(transfer, Flow::In(flow), core);
            }
            Job::Change(_) | Job::List { .. } | Job::Done(..) | Job::Edit(_) | Job::Forget => {
                core.effects.push_back(StoreEffect::Close { file }.into());
            }
        }
    }

    fn send_listing(
        &mut self,
        entries: &[DirEntry],
        details: bool,
        only: Option<&str>,
        core: &mut Core,
    ) {
        let text = listing::lines(entries, details, only);
        if text.is_empty() && only.is_some() {
            return self.reply(550, "There is no such file or directory.");
        }
        let flow = Flow::Out(Outflow::text(Bytes::from(text)));
        let transfer = Transfer { name: String::new(), file: None, code: 226, incoming: false };
        self.begin(transfer, flow, core);
    }
}

/// Directory of a text; the root's is empty.
fn directory(text: &str) -> Option<FileName> {
    if text.is_empty() { Some(FileName::root()) } else { FileName::file(text).ok() }
}
