//! SCPS-FP commands of a server (CCSDS 717.0-B-1).

use std::time::Duration;

use bytes::BytesMut;
use engine::{Completion, EffectError, FileId, FileName, FilestoreRequest, OpenMode, StoreEffect};

use super::{Edit, Job, MISSING, Session, Transfer};
use crate::flow::Outflow;
use crate::ftp::core::{Core, Flow, Use};
use crate::ftp::indication::Indication;
use crate::message::{Command, Crc, ReadControl, UpdateControl};

/// SCPS-FP state of a session.
#[derive(Debug, Default)]
pub(in crate::ftp) struct State {
    /// ARST: incomplete files are kept.
    auto_restart: bool,
    /// SUPP: replies are only codes.
    brief: bool,
    /// BETS: data connections may continue without missing data.
    best_effort: bool,
    /// SITE crcon.
    crc: bool,
    /// IDLE.
    idle: Option<Duration>,
    /// Current operation on files.
    task: Option<Task>,
}

impl State {
    /// Whether a reply consists only of its code, unless its text was requested.
    pub(in crate::ftp) fn leaves_out(&self, code: u16, text: &str) -> bool {
        let is_requested = matches!(code, 213 | 227 | 229 | 256 | 257)
            || text.contains("CRC:")
            || text.contains(MISSING);
        self.brief && !is_requested
    }

    pub(in crate::ftp) fn idle(&self) -> Option<Duration> {
        self.idle
    }
}

/// File that is read completely, and the operation that follows.
#[derive(Debug)]
struct Task {
    what: What,
    file: Option<FileId>,
    offset: u64,
    /// Data read, or to be written.
    content: BytesMut,
    crc: Crc,
}

#[derive(Debug)]
enum What {
    /// SITE crc.
    Crc,
    /// COPY to this name.
    Copy(String),
    /// READ: the control file, and then the file.
    ReadControl,
    Read(ReadControl),
    /// UPDT: the control file, the original, and then the new file.
    UpdateControl,
    Update(UpdateControl),
    /// File of this name to be written, and the reply after that.
    Write(String, &'static str),
}

impl Session {
    /// Whether checksums of transfers are computed.
    pub(super) fn wants_crc(&self) -> bool {
        self.scps.as_ref().is_some_and(|scps| scps.crc)
    }

    /// Whether its data connections are best-effort.
    pub(super) fn is_best_effort(&self) -> bool {
        self.scps.as_ref().is_some_and(|scps| scps.best_effort)
    }

    /// Serves SCPS-FP commands; `false` for all others, and if not supported.
    pub(super) fn scps_command(&mut self, command: &Command<'_>, core: &mut Core) -> bool {
        let Some(scps) = &mut self.scps else { return false };
        match *command {
            Command::Arst | Command::Nars => {
                scps.auto_restart = *command == Command::Arst;
                self.reply(200, "It is so.");
            }
            Command::Supp | Command::Nsup => {
                scps.brief = *command == Command::Supp;
                self.reply(211, "It is so.");
            }
            Command::Idle(0) => self.reply(501, "No time at all is not enough."),
            Command::Idle(seconds) => {
                scps.idle = Some(Duration::from_secs(seconds.into()));
                self.reply(200, "It is so.");
            }
            Command::Intr => self.interrupt(core),
            Command::Bets | Command::Nbes => {
                scps.best_effort = *command == Command::Bets;
                self.reply(250, "It is so.");
            }
            Command::Copy(from, to) => self.load(from, What::Copy(to.to_owned()), core),
            Command::Read(name) => {
                if self.require_data_connection() {
                    self.load(name, What::ReadControl, core);
                }
            }
            Command::Updt(name) => self.load(name, What::UpdateControl, core),
            Command::Site(what) => self.site(what, core),
            _ => return false,
        }
        true
    }

    fn site(&mut self, what: &str, core: &mut Core) {
        let (verb, argument) = what.split_once(' ').unwrap_or((what, ""));
        let Some(scps) = &mut self.scps else { return };
        match verb.to_ascii_lowercase().as_str() {
            "crcon" | "crcoff" => {
                scps.crc = verb.eq_ignore_ascii_case("crcon");
                self.reply(216, "It is so.");
            }
            "crc" if !argument.is_empty() => self.load(argument, What::Crc, core),
            _ => self.reply(504, "SITE knows crc, crcon and crcoff."),
        }
    }

    /// Interrupts a transfer so that it can resume later, with any restart setting.
    fn interrupt(&mut self, core: &mut Core) {
        let crossed = self.data.and_then(|id| core.crossed(id));
        if self.transfer.is_some() {
            let kept =
                self.scps.as_mut().map(|scps| std::mem::replace(&mut scps.auto_restart, true));
            self.abort_transfer(core);
            if let (Some(scps), Some(kept)) = (&mut self.scps, kept) {
                scps.auto_restart = kept;
            }
            let bytes = crossed.unwrap_or_default();
            self.reply(256, &format!("Interrupted behind {bytes} bytes."));
        }
        self.forget_way(core);
        self.reply(226, "It is interrupted.");
    }

    /// Deletes an incomplete file, unless it is to be kept.
    pub(super) fn forget_partial(&mut self, file: FileName, core: &mut Core) {
        if self.scps.as_ref().is_some_and(|scps| !scps.auto_restart) {
            let what_for = Use::Server(self.control.path, Job::Forget);
            core.filestore(FilestoreRequest::DenyFile(file), what_for);
        }
    }

    /// Reads a file for an operation.
    fn load(&mut self, name: &str, what: What, core: &mut Core) {
        let Some(scps) = &mut self.scps else { return };
        let (content, crc) = (BytesMut::new(), Crc::default());
        scps.task = Some(Task { what, file: None, offset: 0, content, crc });
        self.open(name, OpenMode::Read, Job::Edit(Edit::OpenToRead), core);
        if !self.busy {
            // The name is invalid.
            self.drop_task();
        }
    }

    fn drop_task(&mut self) -> Option<Task> {
        self.scps.as_mut()?.task.take()
    }

    /// Processes the result of a store effect of an edited file.
    pub(super) fn edited(
        &mut self,
        edit: Edit,
        answer: Result<Completion, EffectError>,
        core: &mut Core,
    ) {
        let Some(mut task) = self.drop_task() else { return };
        let completion = match answer {
            Ok(completion) => completion,
            Err(error) => return self.edit_failed(&task, &error, core),
        };
        match (edit, completion) {
            (Edit::OpenToRead, Completion::Opened { file, len, .. }) => {
                task.file = Some(file);
                let is_long = !matches!(task.what, What::Crc) && len > core.limits.edit as u64;
                if is_long {
                    core.effects.push_back(StoreEffect::Close { file }.into());
                    return self.reply(551, "The file is too long for that.");
                }
                self.read_on(task, core);
            }
            (Edit::Read, Completion::Read(bytes)) => {
                task.offset += bytes.len() as u64;
                match task.what {
                    What::Crc => task.crc.update(&bytes),
                    _ => task.content.extend_from_slice(&bytes),
                }
                let grew = task.content.len() > core.limits.edit;
                if bytes.len() == core.limits.piece && !grew {
                    return self.read_on(task, core);
                }
                let file = task.file.take();
                core.effects.extend(file.map(|file| StoreEffect::Close { file }.into()));
                self.loaded(task, core);
            }
            (Edit::OpenToWrite, Completion::Opened { file, .. }) => {
                task.file = Some(file);
                let ticket = core.next_ticket();
                let bytes = std::mem::take(&mut task.content).freeze();
                let write = StoreEffect::Write { ticket, file, offset: 0, bytes };
                self.go_on(task, write, Edit::Write, core);
            }
            (Edit::Write, _) => {
                let Some(file) = task.file else { return };
                let ticket = core.next_ticket();
                self.go_on(task, StoreEffect::Sync { ticket, file }, Edit::Sync, core);
            }
            (Edit::Sync, _) => {
                let file = task.file.take();
                core.effects.extend(file.map(|file| StoreEffect::Close { file }.into()));
                if let What::Write(name, text) = task.what {
                    core.indicate(Indication::Changed { path: self.control.path, name });
                    self.reply(250, text);
                }
            }
            (Edit::OpenToRead | Edit::Read | Edit::OpenToWrite, _) => {
                self.reply(451, "The store says nothing of use.");
            }
        }
    }

    fn edit_failed(&mut self, task: &Task, error: &EffectError, core: &mut Core) {
        if let Some(file) = task.file {
            core.effects.push_back(StoreEffect::Close { file }.into());
        }
        let is_control = matches!(task.what, What::ReadControl | What::UpdateControl);
        let code = match error {
            EffectError::NoSpace => 452,
            EffectError::NotFound if is_control => 501,
            _ => 550,
        };
        self.reply(code, &format!("{error}."));
    }

    fn read_on(&mut self, task: Task, core: &mut Core) {
        let Some(file) = task.file else { return };
        let (ticket, offset, len) = (core.next_ticket(), task.offset, core.limits.piece);
        self.go_on(task, StoreEffect::Read { ticket, file, offset, len }, Edit::Read, core);
    }

    fn go_on(&mut self, task: Task, effect: StoreEffect, edit: Edit, core: &mut Core) {
        if let Some(scps) = &mut self.scps {
            scps.task = Some(task);
        }
        self.busy = true;
        core.submit(effect, Use::Server(self.control.path, Job::Edit(edit)));
    }

    /// Processes a completely read file.
    fn loaded(&mut self, task: Task, core: &mut Core) {
        let Task { what, content, crc, .. } = task;
        match what {
            What::Crc => self.reply(250, &format!("CRC:{}", crc.value())),
            What::Copy(to) => self.write_file(&to, content, "Copied.", core),
            What::ReadControl => match ReadControl::decode(&content) {
                Ok(control) => self.load(&control.path.clone(), What::Read(control), core),
                Err(error) => self.reply(501, &format!("The control file: {error}.")),
            },
            What::Read(control) => {
                let (records, has_all) = control.read(&content);
                if !has_all && !control.forced {
                    return self.reply(556, "Bytes are missing.");
                }
                let code = if has_all { 226 } else { 258 };
                let flow = Outflow::text(records.into()).with_crc(self.wants_crc());
                let transfer = Transfer { name: control.path, file: None, code, incoming: false };
                self.begin(transfer, Flow::Out(flow), core);
            }
            What::UpdateControl => match UpdateControl::decode(&content) {
                Ok(control) => self.load(&control.original.clone(), What::Update(control), core),
                Err(error) => self.reply(501, &format!("The control file: {error}.")),
            },
            What::Update(control) => match control.apply(&content) {
                Ok(new) => self.write_file(&control.new, BytesMut::from(&new[..]), "UPDT OK", core),
                Err(error) => self.reply(551, &format!("The original does not fit: {error}.")),
            },
            What::Write(..) => {}
        }
    }

    fn write_file(&mut self, name: &str, content: BytesMut, text: &'static str, core: &mut Core) {
        let Some(scps) = &mut self.scps else { return };
        let crc = Crc::default();
        let what = What::Write(name.to_owned(), text);
        scps.task = Some(Task { what, file: None, offset: 0, content, crc });
        self.open(name, OpenMode::Truncate, Job::Edit(Edit::OpenToWrite), core);
        if !self.busy {
            self.drop_task();
        }
    }
}
