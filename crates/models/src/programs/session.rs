//! Connection with the program at its end.

use engine::{
    Completion, Effect, EffectError, FileName, PathEffect, PathId, Rng, StreamEffect, Time,
};

use super::app::{Io, Progress};
use super::config::{Config, Tool, Version};
use super::conn::Conn;
use super::core::{Core, Job, Wait};
use super::files::Files;
use super::indication::{Failure, Indication, RequestId};
use super::rsync::Rsync;
use super::ssh::Command;
use super::{scp, sftp, telnet};

/// Request of a user: a file to be sent, or typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) source: FileName,
    pub(super) name: String,
}

/// Program of a session.
#[derive(Debug)]
enum App {
    /// Server without a command yet.
    None,
    SftpClient(sftp::Client),
    SftpServer(sftp::Server),
    ScpSource(scp::Source),
    ScpSink(scp::Sink),
    Rsync(Box<Rsync>),
    Typist(Box<telnet::Typist>),
    Screen(telnet::Screen),
}

#[derive(Debug)]
pub(super) struct Session {
    path: PathId,
    /// Request of a client.
    pub(super) request: Option<Request>,
    conn: Conn,
    app: App,
    files: Files,
    progress: Progress,
    started: bool,
    /// Whether the stream is up and accepts data.
    writable: bool,
    paused: bool,
    /// Whether it has finished.
    over: bool,
}

impl Session {
    pub(super) fn client(path: PathId, request: Request, config: &Config, core: &mut Core) -> Self {
        let name = request.name.as_str();
        let exec = |command: String| Conn::client(config, Command::Exec(command));
        let sftp = || Conn::client(config, Command::Subsystem("sftp".to_owned()));
        let (conn, app) = match (config.tool, config.version) {
            (Tool::Scp, Version::OpenSsh92Legacy | Version::OpenSsh42) => {
                (exec(format!("scp -t {name}")), App::ScpSource(scp::Source::new(name)))
            }
            (Tool::Scp | Tool::Sftp, version) => {
                (sftp(), App::SftpClient(sftp::Client::new(config.tool, version, name)))
            }
            (Tool::Rsync, _) => {
                let command = format!("rsync --server -We.LsfxCIvu . {name}");
                (exec(command), App::Rsync(Box::new(Rsync::sender(name, false))))
            }
            (Tool::RsyncDaemon, _) => {
                (Conn::plain(), App::Rsync(Box::new(Rsync::sender(name, true))))
            }
            (Tool::Telnet, _) => (Conn::plain(), App::Typist(Box::new(telnet::Typist::new(name)))),
        };
        let mut files = Files::new(path);
        files.open_to_read(request.source.clone(), core);
        Self { request: Some(request), ..Self::new(path, conn, app, files) }
    }

    pub(super) fn server(path: PathId, config: &Config) -> Self {
        let (conn, app) = match config.tool {
            Tool::Scp | Tool::Sftp | Tool::Rsync => (Conn::server(config), App::None),
            Tool::RsyncDaemon => (Conn::plain(), App::Rsync(Box::new(Rsync::receiver(true)))),
            Tool::Telnet => (Conn::plain(), App::Screen(telnet::Screen::default())),
        };
        Self::new(path, conn, app, Files::new(path))
    }

    fn new(path: PathId, conn: Conn, app: App, files: Files) -> Self {
        Self {
            path,
            request: None,
            conn,
            app,
            files,
            progress: Progress::default(),
            started: false,
            writable: false,
            paused: false,
            over: false,
        }
    }

    /// Starts when the stream is up.
    pub(super) fn up(&mut self, now: Time, config: &Config, core: &mut Core) {
        self.writable = true;
        if self.request.is_none() && !self.conn.is_logged_in() {
            core.timers.set((self.path, Wait::Grace), now + config.grace, "LoginGraceTime");
        }
        self.received(now, config, core);
    }

    /// Notes traffic, which ends any silence.
    pub(super) fn received(&mut self, now: Time, config: &Config, core: &mut Core) {
        core.timers.set((self.path, Wait::Silence), now + config.timeout, "silence");
    }

    pub(super) fn set_writable(&mut self, writable: bool) {
        self.writable = writable;
    }

    pub(super) fn receive(&mut self, now: Time, bytes: &[u8], core: &mut Core) {
        if let Err(what) = self.conn.receive(now, bytes) {
            self.fail(Failure::Nonsense(what), core);
        }
    }

    pub(super) fn read_closed(&mut self) {
        self.conn.read_closed();
    }

    pub(super) fn done(
        &mut self,
        job: Job,
        answer: Result<Completion, EffectError>,
        core: &mut Core,
    ) {
        self.files.done(job, answer, core);
        if let Some(error) = self.files.take_failure() {
            self.fail(Failure::Store(error), core);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a transfer is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.request.is_some()
            || self.progress.receiving.is_some() && self.progress.received.is_none()
    }

    /// Advances as far as possible.
    pub(super) fn turn(&mut self, now: Time, config: &Config, core: &mut Core, rng: &mut Rng) {
        let mut more = self.writable;
        while more && !self.over {
            self.conn.flush(now, core.limits.write_ahead);
            more = match self.pump(now, config, core, rng) {
                Ok(worked) => worked,
                Err(why) => return self.fail(why, core),
            };
            self.report_progress(core);
            self.conn.flush(now, core.limits.write_ahead);
        }
        if self.over {
            return;
        }
        if self.conn.is_logged_in() {
            core.timers.cancel((self.path, Wait::Grace));
        }
        self.pause_if_full(core);
        self.end_if_done(core);
    }

    fn pump(
        &mut self,
        now: Time,
        config: &Config,
        core: &mut Core,
        rng: &mut Rng,
    ) -> Result<bool, Failure> {
        if !self.conn.is_up() || self.request.is_some() && !self.files.is_open() {
            return Ok(false);
        }
        self.choose(config)?;
        let Self { conn, files, progress, path, .. } = self;
        let mut io = Io { now, path: *path, conn, files, core, config, rng, progress };
        match &mut self.app {
            App::None => Ok(false),
            App::SftpClient(app) => app.pump(&mut io),
            App::SftpServer(app) => app.pump(&mut io),
            App::ScpSource(app) => app.pump(&mut io),
            App::ScpSink(app) => app.pump(&mut io),
            App::Rsync(app) => app.pump(&mut io),
            App::Typist(app) => app.pump(&mut io),
            App::Screen(app) => app.pump(&mut io),
        }
    }

    /// Starts the client's command.
    fn choose(&mut self, config: &Config) -> Result<(), Failure> {
        let (App::None, Conn::Ssh(ssh)) = (&self.app, &self.conn) else { return Ok(()) };
        self.app = match &ssh.command {
            Some(Command::Subsystem(name)) if name == "sftp" => {
                App::SftpServer(sftp::Server::new(config.version))
            }
            Some(Command::Exec(command)) if command.starts_with("scp -t ") => {
                App::ScpSink(scp::Sink::default())
            }
            Some(Command::Exec(command)) if command.starts_with("rsync --server ") => {
                App::Rsync(Box::new(Rsync::receiver(false)))
            }
            Some(_) | None => return Err(Failure::Nonsense("an unknown command")),
        };
        Ok(())
    }

    /// Reports progress to the user, and updates the stream.
    fn report_progress(&mut self, core: &mut Core) {
        if let Some(request) = &self.request
            && self.progress.started
            && !std::mem::replace(&mut self.started, true)
        {
            core.indicate(Indication::Begun { request: request.id });
        }
        if self.request.is_none()
            && !self.started
            && let Some((name, bytes)) = &self.progress.received
        {
            self.started = true;
            let (path, name, bytes) = (self.path, name.clone(), *bytes);
            core.indicate(Indication::Received { path, name, bytes });
        }
    }

    /// Pauses a peer that is faster than the store. Within a channel, the channel's window does
    /// that.
    fn pause_if_full(&mut self, core: &mut Core) {
        let full = self.conn.data().len() > core.limits.message;
        if full != self.paused {
            self.paused = full;
            let path = self.path;
            core.effects.push_back(if full {
                Effect::Path(PathEffect::PauseRead { path })
            } else {
                Effect::Path(PathEffect::ResumeRead { path })
            });
        }
    }

    fn end_if_done(&mut self, core: &mut Core) {
        let is_plain = matches!(self.conn, Conn::Plain(_));
        let has_exited = self.conn.has_exited();
        if let Some(bytes) = self.progress.done
            && (is_plain || has_exited)
            && let Some(Request { id: request, .. }) = self.request.take()
        {
            if let Some(latency) = self.progress.latency {
                core.indicate(Indication::Echoed { request, latency });
            }
            core.indicate(Indication::Finished { request, bytes });
            self.files.leave(core);
        }
        if self.conn.take_shutdown() {
            core.effects.push_back(StreamEffect::ShutdownWrite { path: self.path }.into());
        }
        if self.conn.take_no_delay() {
            core.effects.push_back(StreamEffect::NoDelay { path: self.path }.into());
        }
        if has_exited && self.request.is_some() {
            // The peer left in the middle.
            self.gone(core);
        } else if self.conn.is_over() {
            self.leave(core);
        } else if has_exited
            && is_plain
            && self.progress.received.is_none()
            && self.files.writing() == 0
        {
            self.leave_unless_syncing(core);
        }
    }

    /// Ends a server whose peer left before the file was complete.
    fn leave_unless_syncing(&mut self, core: &mut Core) {
        let syncs = matches!(self.app, App::Screen(_)) && self.progress.receiving.is_some();
        if !syncs {
            self.fail(Failure::Connection, core);
        }
    }

    /// Processes the end of the connection.
    pub(super) fn gone(&mut self, core: &mut Core) {
        let why = if self.conn.is_logged_in() { Failure::Connection } else { Failure::Login };
        self.fail(why, core);
    }

    /// Refuses a connection without a login in time.
    pub(super) fn refuse(&mut self, core: &mut Core) {
        core.indicate(Indication::Refused { path: self.path });
        self.leave(core);
    }

    pub(super) fn fail(&mut self, why: Failure, core: &mut Core) {
        if self.over {
            return;
        }
        if let Some(Request { id: request, .. }) = self.request.take() {
            core.indicate(Indication::Failed { request, why });
        } else if let Some(name) = self.progress.receiving.take()
            && self.progress.received.is_none()
        {
            core.indicate(Indication::Aborted { path: self.path, name });
        }
        self.leave(core);
    }

    fn leave(&mut self, core: &mut Core) {
        self.over = true;
        self.files.leave(core);
        core.effects.push_back(PathEffect::Close { path: self.path }.into());
    }

    /// Data to be sent now.
    pub(super) fn take(&mut self, now: Time, len: usize) -> Option<bytes::Bytes> {
        if !self.writable || self.over {
            return None;
        }
        self.conn.out().take(now, len)
    }

    /// Time of the program's next write.
    pub(super) fn next_write(&mut self) -> Option<Time> {
        if self.writable && !self.over { self.conn.out().next_at() } else { None }
    }
}
