//! File of a session.

use engine::{
    Completion, EffectError, FileName, FilestoreRequest, OpenMode, PathId, StoreEffect, Ticket,
};

use super::core::{Core, Job};
use crate::flow::{Inflow, Job as FlowJob, Outflow, ReadAhead};
use crate::message::Representation;

#[derive(Debug, Default)]
enum State {
    /// No effect is pending.
    #[default]
    None,
    Opening {
        outgoing: bool,
    },
    Out(Outflow),
    In(Inflow),
}

/// Single file of a session, sent or received.
#[derive(Debug)]
pub(super) struct Files {
    path: PathId,
    state: State,
    /// Length when it was opened.
    pub(super) len: u64,
    /// Working file name before it is renamed.
    spool: Option<FileName>,
    installed: bool,
    failed: Option<EffectError>,
}

impl Files {
    pub(super) fn new(path: PathId) -> Self {
        Self { path, state: State::None, len: 0, spool: None, installed: false, failed: None }
    }

    pub(super) fn open_to_read(&mut self, name: FileName, core: &mut Core) {
        self.state = State::Opening { outgoing: true };
        let ticket = core.next_ticket();
        core.submit(StoreEffect::Open { ticket, name, mode: OpenMode::Read }, self.path, Job::Open);
    }

    /// Opens a file to be written from its beginning; `by_spool` if it is renamed later.
    pub(super) fn open_to_write(&mut self, name: &FileName, by_spool: bool, core: &mut Core) {
        self.state = State::Opening { outgoing: false };
        let ticket = core.next_ticket();
        let name = if by_spool {
            let spool = FileName::spool(&format!("program-{}", ticket.0))
                .expect("letters and digits are a name");
            self.spool = Some(spool.clone());
            spool
        } else {
            name.clone()
        };
        let mode = OpenMode::Truncate;
        core.submit(StoreEffect::Open { ticket, name, mode }, self.path, Job::Open);
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Out(_) | State::In(_))
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self.state, State::None)
    }

    pub(super) fn take_failure(&mut self) -> Option<EffectError> {
        self.failed.take()
    }

    pub(super) fn done(
        &mut self,
        job: Job,
        answer: Result<Completion, EffectError>,
        core: &mut Core,
    ) {
        let completion = match answer {
            Ok(completion) => completion,
            Err(_) if job == Job::Forget => return,
            Err(error) => return self.failed = Some(error),
        };
        match (job, completion, &mut self.state) {
            (Job::Open, Completion::Opened { file, len, .. }, State::Opening { outgoing }) => {
                self.len = len;
                self.state = if *outgoing {
                    State::Out(Outflow::file(file, 0, Representation::Image))
                } else {
                    State::In(Inflow::new(file, 0, Representation::Image))
                };
                self.read_ahead(core);
            }
            (Job::Open, Completion::Opened { file, .. }, _) => {
                core.effects.push_back(StoreEffect::Close { file }.into());
            }
            (Job::Flow(FlowJob::Read), Completion::Read(bytes), State::Out(out)) => {
                out.read_done(bytes);
                self.read_ahead(core);
            }
            (Job::Flow(FlowJob::Write { len }), _, State::In(inflow)) => {
                inflow.written(len);
                self.sync(core);
            }
            (Job::Flow(FlowJob::Sync), _, State::In(inflow)) => inflow.synced = true,
            (Job::Install, _, _) => self.installed = true,
            // Result for a file that was abandoned.
            (Job::Open | Job::Flow(_) | Job::Forget, _, _) => {}
        }
    }

    fn read_ahead(&mut self, core: &mut Core) {
        let ticket = core.next_ticket();
        let bounds = core.read_bounds();
        let State::Out(out) = &mut self.state else { return };
        if let Some(read) = out.read(ticket, bounds) {
            core.submit(read, self.path, Job::Flow(FlowJob::Read));
        }
    }

    /// Bytes available now, and whether the file ends after them.
    pub(super) fn ready(&self) -> (usize, bool) {
        match &self.state {
            State::Out(out) => (out.held(), out.is_read()),
            State::None | State::Opening { .. } | State::In(_) => (0, false),
        }
    }

    /// Takes up to `len` available bytes.
    pub(super) fn take(&mut self, len: usize, core: &mut Core) -> Vec<u8> {
        let mut taken = Vec::with_capacity(len);
        if let State::Out(out) = &mut self.state {
            while taken.len() < len && out.is_ready() {
                taken.extend_from_slice(&out.take(len - taken.len()));
            }
        }
        self.read_ahead(core);
        taken
    }

    /// Bytes being written.
    pub(super) fn writing(&self) -> usize {
        match &self.state {
            State::In(inflow) => inflow.writing,
            State::None | State::Opening { .. } | State::Out(_) => 0,
        }
    }

    pub(super) fn received(&self) -> u64 {
        match &self.state {
            State::In(inflow) => inflow.received,
            State::None | State::Opening { .. } | State::Out(_) => 0,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], core: &mut Core) {
        let State::In(inflow) = &mut self.state else { return };
        let ticket = core.next_ticket();
        if let Some((write, job)) = inflow.write(ticket, bytes) {
            core.submit(write, self.path, Job::Flow(job));
        }
    }

    /// Syncs the file after everything was written.
    pub(super) fn end(&mut self, core: &mut Core) {
        let ticket = core.next_ticket();
        let State::In(inflow) = &mut self.state else { return };
        if let Some((write, job)) = inflow.end(ticket) {
            core.submit(write, self.path, Job::Flow(job));
        }
        self.sync(core);
    }

    fn sync(&mut self, core: &mut Core) {
        let ticket = core.next_ticket();
        let State::In(inflow) = &mut self.state else { return };
        if let Some((sync, job)) = inflow.sync(ticket) {
            core.submit(sync, self.path, Job::Flow(job));
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        matches!(&self.state, State::In(inflow) if inflow.synced)
    }

    /// Renames the received file.
    pub(super) fn install(&mut self, to: &FileName, core: &mut Core) {
        let Some(from) = self.spool.take() else { return };
        self.close(core);
        core.filestore(FilestoreRequest::Install { from, to: to.clone() }, self.path, Job::Install);
    }

    pub(super) fn is_installed(&self) -> bool {
        self.installed
    }

    fn close(&mut self, core: &mut Core) {
        let close = match std::mem::take(&mut self.state) {
            State::None | State::Opening { .. } => None,
            State::Out(out) => out.close(),
            State::In(inflow) => Some(inflow.close()),
        };
        core.effects.extend(close.map(Into::into));
    }

    /// Releases everything, including a working file.
    pub(super) fn leave(&mut self, core: &mut Core) {
        self.close(core);
        if let Some(spool) = self.spool.take() {
            core.filestore(FilestoreRequest::DenyFile(spool), self.path, Job::Forget);
        }
    }
}

impl Core {
    fn read_bounds(&self) -> ReadAhead {
        ReadAhead { piece: self.limits.piece, most: self.limits.read_ahead }
    }

    pub(super) fn submit(&mut self, effect: StoreEffect, path: PathId, job: Job) {
        if let Some(ticket) = effect.ticket() {
            self.uses.insert(ticket, (path, job));
        }
        self.effects.push_back(effect.into());
    }

    fn filestore(&mut self, request: FilestoreRequest, path: PathId, job: Job) {
        let ticket: Ticket = self.next_ticket();
        self.submit(StoreEffect::Filestore { ticket, request }, path, job);
    }
}
