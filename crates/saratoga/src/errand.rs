//! Session without a file transfer: deletion of a file (draft-wood-tsvwg-saratoga-22 §6.1.4).

use engine::{Completion, EffectError, FileName, FilestoreRequest, Time};
use session::Base;
use session::path::{Burst, Class, Turn};

use super::config::Remote;
use super::core::{Alarm, Core, Job, Task};
use super::indication::{Failure, Finished, Indication, Report, Role, SessionId};
use crate::packet::{Packet, Request, RequestKind, StatusCode, Width};

/// Request to delete a file, at either side.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) base: Base<Alarm>,
    pub(crate) id: SessionId,
    remote: Remote,
    name: String,
    request_due: bool,
    misses: u32,
    /// Result at the side that deletes.
    pub(crate) outcome: Option<StatusCode>,
    is_done: bool,
}

impl Errand {
    /// Requests the deletion of a file at the peer.
    pub(crate) fn ask(
        base: Base<Alarm>,
        id: SessionId,
        name: String,
        core: &mut Core,
        now: Time,
    ) -> Self {
        let mut errand = Self::new(base, id, name, core);
        errand.request_due = true;
        errand.base.want(&mut core.shared, Class::Control);
        let wait = core.given_up_at(&errand.base, &errand.remote).since(now);
        errand.base.alarm(&mut core.shared, Alarm::Inactivity, now, wait);
        errand
    }

    /// Deletes a file at the peer's request.
    pub(crate) fn carry_out(
        base: Base<Alarm>,
        id: SessionId,
        name: FileName,
        core: &mut Core,
    ) -> Self {
        let path = name.path().to_owned();
        core.shared.filestore(
            base.seat.handle,
            Job::Own(Task::Delete),
            FilestoreRequest::DeleteFile(name),
        );
        Self::new(base, id, path, core)
    }

    fn new(base: Base<Alarm>, id: SessionId, name: String, core: &Core) -> Self {
        let remote = core.config.remote(id.peer).clone();
        let (request_due, misses, outcome, is_done) = (false, 0, None, false);
        Self { base, id, remote, name, request_due, misses, outcome, is_done }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(crate) fn report(&self) -> Report {
        Report { id: self.id, progress: 0, confirmed: None, size: None, name: self.name.clone() }
    }

    pub(crate) fn emit(&mut self, core: &mut Core, burst: &mut Burst<'_>) -> Turn {
        if !self.request_due {
            return Turn::Over;
        }
        let request = Packet::Request(Request {
            kind: RequestKind::Delete,
            descriptor: Width::W16,
            bundles: false,
            streams: false,
            udp_lite: false,
            session: self.id.number,
            path: self.name.as_bytes(),
            authentication: &[],
        });
        if !core.push(burst, &request) {
            return Turn::More;
        }
        self.request_due = false;
        let auto = core.answer_time(&self.base, &self.remote);
        let wait = self.remote.request_timer.probe(auto, self.misses);
        self.base.alarm(&mut core.shared, Alarm::Request, burst.departure(), wait);
        Turn::Over
    }

    /// Processes the peer's result.
    pub(crate) fn on_status(&mut self, core: &mut Core, code: StatusCode) {
        self.finish(core, false, code);
    }

    pub(crate) fn done(&mut self, core: &mut Core, answer: &Result<Completion, EffectError>) {
        let code = match answer {
            // A missing file counts as deleted: the reply to the first request may be lost.
            Ok(_) | Err(EffectError::NotFound) => StatusCode::Ok,
            Err(EffectError::NotAllowed | EffectError::WrongKind) => StatusCode::AccessDenied,
            Err(
                EffectError::Exists
                | EffectError::NotEmpty
                | EffectError::NoSpace
                | EffectError::NameTooLong
                | EffectError::Changed
                | EffectError::Failed(_),
            ) => StatusCode::NotDeleted,
        };
        self.outcome = Some(code);
        self.finish(core, true, code);
    }

    pub(crate) fn alarm(&mut self, core: &mut Core, alarm: Alarm) {
        match alarm {
            Alarm::Request => {
                self.misses += 1;
                self.request_due = true;
                self.base.want(&mut core.shared, Class::Control);
            }
            Alarm::Inactivity => self.finish(core, true, StatusCode::RequestTimeout),
            Alarm::Poll
            | Alarm::Window
            | Alarm::Pace
            | Alarm::Silence
            | Alarm::Voluntary
            | Alarm::Save
            | Alarm::Beacon => {}
        }
    }

    /// Resumes when a direction of the path comes up.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= self.id.role == Role::Receiver;
        self.base.want(&mut core.shared, Class::Control);
    }

    /// Ends the session early; the request may still be carried out.
    pub(crate) fn give_up(&mut self, core: &mut Core) {
        self.finish(core, true, StatusCode::NotInterested);
    }

    fn finish(&mut self, core: &mut Core, is_ours: bool, code: StatusCode) {
        if self.is_done {
            return;
        }
        let failure = (code != StatusCode::Ok).then_some(Failure { is_ours, code, cause: None });
        core.user.indicate(Indication::Finished(Finished {
            id: self.id,
            result: failure.map_or(Ok(()), Err),
            is_confirmed: failure.is_none(),
            name: self.name.clone(),
            size: 0,
            resumed: 0,
        }));
        self.base.disarm_all(&mut core.shared);
        self.is_done = true;
    }
}
