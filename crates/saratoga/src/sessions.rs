//! Sessions of a peer, and their slots: a flood of sessions without progress excludes no other.

use std::collections::BTreeMap;

use engine::{FileName, PathId, Time};
use session::path::{Class, Handle};
use session::recent::Recent;
use session::{Admission, Base, Place, Slots};

use super::core::{Alarm, Core};
use super::ending::status;
use super::errand::Errand;
use super::indication::{Limit, Report, Role, SessionId};
use super::receiver::Receiver;
use super::sender::Sender;

/// Sessions under way, and finished ones.
#[derive(Debug)]
pub(super) struct Sessions {
    slots: Slots<Session>,
    by_id: BTreeMap<SessionId, Handle>,
    /// Finished sessions, with the packet that replies to later requests.
    closed: Recent<SessionId, Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Session {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
    Errand(Box<Errand>),
}

impl Session {
    pub(super) fn base(&mut self) -> &mut Base<Alarm> {
        match self {
            Self::Sender(sender) => &mut sender.base,
            Self::Receiver(receiver) => &mut receiver.base,
            Self::Errand(errand) => &mut errand.base,
        }
    }

    pub(super) fn base_of(&self) -> &Base<Alarm> {
        match self {
            Self::Sender(sender) => &sender.base,
            Self::Receiver(receiver) => &receiver.base,
            Self::Errand(errand) => &errand.base,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_done(),
            Self::Receiver(receiver) => receiver.is_done(),
            Self::Errand(errand) => errand.is_done(),
        }
    }

    pub(super) fn id(&self) -> SessionId {
        match self {
            Self::Sender(sender) => sender.id,
            Self::Receiver(receiver) => receiver.id,
            Self::Errand(errand) => errand.id,
        }
    }

    pub(super) fn report(&self) -> Report {
        match self {
            Self::Sender(sender) => sender.report(),
            Self::Receiver(receiver) => receiver.report(),
            Self::Errand(errand) => errand.report(),
        }
    }

    pub(super) fn want_all(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.want_all(core),
            Self::Receiver(receiver) => receiver.want_all(core),
            Self::Errand(errand) => errand.base.want(&mut core.shared, Class::Control),
        }
    }

    /// Requests overdue replies at once when a direction of the path comes up.
    pub(super) fn path_up(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.path_up(core),
            Self::Receiver(receiver) => receiver.path_up(core),
            Self::Errand(errand) => errand.path_up(core),
        }
    }

    /// Processes a repetition of the session's request.
    pub(super) fn requested_again(&mut self, core: &mut Core, now: Time) {
        match self {
            Self::Receiver(receiver) => receiver.requested(core),
            Self::Sender(sender) => sender.requested_again(core, now),
            Self::Errand(_) => self.want_all(core),
        }
    }

    /// Whether the session uses a file, which then must not be deleted.
    pub(super) fn uses(&self, name: &FileName) -> bool {
        match self {
            Self::Sender(sender) => sender.uses(name),
            Self::Receiver(receiver) => receiver.uses(name),
            Self::Errand(_) => false,
        }
    }

    /// Whether the peer started it.
    fn is_theirs(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_theirs(),
            Self::Receiver(receiver) => receiver.is_theirs(),
            Self::Errand(errand) => errand.id.role == Role::Sender,
        }
    }

    /// Order in which half-open sessions are dropped, smallest first; `None` for all others.
    fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        match self {
            Self::Sender(sender) => sender.half_open(core, now),
            Self::Receiver(receiver) => receiver.half_open(core, now),
            Self::Errand(_) => None,
        }
    }

    /// Removes a half-open session silently: a later packet starts it again.
    fn evict(&mut self, core: &mut Core, handle: Handle) {
        core.stats.evicted += 1;
        self.base().disarm_all(&mut core.shared);
        if let Some(path) = core.shared.paths.get_mut(&self.id().peer) {
            path.forget(handle);
        }
        match self {
            Self::Sender(sender) => {
                core.shared.senders -= 1;
                sender.release(core);
            }
            Self::Receiver(receiver) => receiver.vanish(core),
            Self::Errand(_) => {}
        }
    }

    /// Packet that reports the result to later requests, and whether to send it now, too: a
    /// requester is informed of a failure once.
    fn last_word(&self) -> (Vec<u8>, bool) {
        match self {
            Self::Sender(sender) => (sender.last_word(), sender.is_refusal()),
            Self::Receiver(receiver) => (receiver.last_word(), false),
            Self::Errand(errand) => {
                let word = errand.outcome.map(|code| status(errand.id.number, code));
                (word.unwrap_or_default(), errand.outcome.is_some())
            }
        }
    }
}

impl Sessions {
    pub(super) const fn new() -> Self {
        Self { slots: Slots::new(), by_id: BTreeMap::new(), closed: Recent::new() }
    }

    /// Number of sessions under way.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut()
    }

    /// Session of a handle, if still under way.
    pub(super) fn get(&self, handle: Handle) -> Option<&Session> {
        self.slots.get(handle)
    }

    /// Session of a handle, mutable.
    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Session> {
        self.slots.get_mut(handle)
    }

    /// Handle of a session under way.
    pub(super) fn find(&self, id: &SessionId) -> Option<Handle> {
        self.by_id.get(id).copied()
    }

    /// Packet that replies to later requests for a finished session.
    pub(super) fn closed(&self, id: &SessionId) -> Option<&Vec<u8>> {
        self.closed.get(id)
    }

    pub(super) fn is_closed(&self, id: &SessionId) -> bool {
        self.closed.contains(id)
    }

    /// Whether a session number is in use.
    pub(super) fn is_taken(&self, id: &SessionId) -> bool {
        self.by_id.contains_key(id) || self.closed.contains(id)
    }

    /// Starts a session. Returns its handle.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        now: Time,
        id: SessionId,
        make: impl FnOnce(&mut Core, Base<Alarm>) -> Session,
    ) -> Handle {
        let handle = self.slots.reserve();
        let base = Base::new(&mut core.shared.paths, handle, Some(id.peer), now);
        let session = make(core, base);
        self.by_id.insert(id, handle);
        self.slots.fill(handle, session);
        handle
    }

    /// Forgets a finished session, except for the packet that replies to later requests. Returns
    /// that packet if it must be sent now.
    pub(super) fn settle(
        &mut self,
        core: &mut Core,
        handle: Handle,
    ) -> Option<(SessionId, Vec<u8>)> {
        self.slots.get(handle).filter(|session| session.is_done())?;
        let mut session = self.slots.take(handle)?;
        session.base().disarm_all(&mut core.shared);
        if let Session::Sender(_) = session {
            core.shared.senders -= 1;
        }
        let id = session.id();
        self.by_id.remove(&id);
        let (word, goes) = session.last_word();
        let reply = goes.then(|| (id, word.clone()));
        self.remember(core, id, word);
        core.user.limit_left(Limit::Sessions);
        reply
    }

    /// Keeps the packet that replies to later requests for a finished session.
    pub(super) fn remember(&mut self, core: &Core, id: SessionId, word: Vec<u8>) {
        self.closed.insert_within(core.config.limits.closed, id, word);
    }

    /// Forgets a session if only its data is known. Returns `false` for any other session.
    pub(super) fn forget_unknown(&mut self, core: &mut Core, id: &SessionId) -> bool {
        let Some(handle) = self.by_id.get(id).copied() else { return true };
        let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return false };
        if !receiver.is_unknown() {
            return false;
        }
        self.vanish(core, id);
        true
    }

    /// Removes a reception without a trace.
    pub(super) fn vanish(&mut self, core: &mut Core, id: &SessionId) {
        if let Some(receiver) = self.receiver(id) {
            receiver.vanish(core);
        }
        if let Some(handle) = self.by_id.remove(id) {
            self.slots.take(handle);
        }
    }

    /// Reception of this number.
    pub(super) fn receiver(&mut self, id: &SessionId) -> Option<&mut Receiver> {
        match self.slots.get_mut(*self.by_id.get(id)?) {
            Some(Session::Receiver(receiver)) => Some(receiver),
            Some(Session::Sender(_) | Session::Errand(_)) | None => None,
        }
    }

    /// Continues a reception under another number.
    pub(super) fn rename(&mut self, from: &SessionId, to: SessionId) -> Option<&mut Receiver> {
        let handle = self.by_id.remove(from)?;
        self.by_id.insert(to, handle);
        match self.slots.get_mut(handle) {
            Some(Session::Receiver(receiver)) => Some(receiver),
            Some(Session::Sender(_) | Session::Errand(_)) | None => None,
        }
    }

    /// Returns whether there is a slot for another session of a peer. If none is free, a half-open
    /// session is dropped.
    pub(super) fn make_place(&mut self, core: &mut Core, now: Time, from: PathId) -> bool {
        let limits = &core.config.limits;
        let admission =
            Admission::with_places(limits.sessions).with_path_share(limits.sessions_per_path);
        let theirs = || self.slots.iter().filter(|session| session.is_theirs());
        let paths = theirs().map(|session| Some(session.id().peer));
        let place = admission.place(self.by_id.len(), paths, from);
        if place == Place::Free {
            return true;
        }
        core.user.limit_reached(Limit::Sessions);
        let idle = theirs()
            .filter(|session| place == Place::OfAny || session.id().peer == from)
            .filter_map(|session| Some((session.half_open(core, now)?, session.id())));
        let Some((_, id)) = idle.min() else { return false };
        if let Some(handle) = self.by_id.remove(&id)
            && let Some(mut session) = self.slots.take(handle)
        {
            session.evict(core, handle);
        }
        true
    }
}
