//! Places for sessions: a flood of sessions that never go on keeps nobody out.

use engine::{PathId, Time};

use super::core::Core;
use super::indication::{Limit, Role, SessionId};
use super::{Node, Session};
use crate::session::{Admission, Place};

impl Session {
    /// Whether the peer began it.
    fn is_theirs(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_theirs(),
            Self::Receiver(receiver) => receiver.is_theirs(),
            Self::Errand(errand) => errand.id.role == Role::Sender,
        }
    }

    /// Order in which half-open sessions make room, the smallest first; `None` for all others.
    fn half_open(&self, core: &Core, now: Time) -> Option<(bool, Time)> {
        match self {
            Self::Sender(sender) => sender.half_open(core, now),
            Self::Receiver(receiver) => receiver.half_open(core, now),
            Self::Errand(_) => None,
        }
    }
}

impl Node {
    /// Whether there is a place for one more session that a peer begins. If none is free, a
    /// half-open session makes room.
    pub(super) fn has_place(&mut self, now: Time, from: PathId) -> bool {
        let limits = &self.core.config.limits;
        let admission = Admission::of(limits.sessions).with_path_share(limits.sessions_per_path);
        let theirs = || self.slots.iter().filter(|session| session.is_theirs());
        let paths = theirs().map(|session| Some(session.id().peer));
        let place = admission.place(self.by_id.len(), paths, from);
        if place == Place::Free {
            return true;
        }
        self.core.user.limit_reached(Limit::Sessions);
        let idle = theirs()
            .filter(|session| place == Place::OfAny || session.id().peer == from)
            .filter_map(|session| Some((session.half_open(&self.core, now)?, session.id())));
        let Some((_, id)) = idle.min() else { return false };
        self.evict(id);
        true
    }

    /// Removes a half-open session without a word: a later packet of it begins it again.
    fn evict(&mut self, id: SessionId) {
        let Some(handle) = self.by_id.remove(&id) else { return };
        let Some(mut session) = self.slots.take(handle) else { return };
        self.core.stats.evicted += 1;
        session.base().disarm_all(&mut self.core.shared);
        if let Some(path) = self.core.shared.paths.get_mut(&id.peer) {
            path.forget(handle);
        }
        match &mut session {
            Session::Sender(sender) => {
                self.core.shared.senders -= 1;
                sender.release(&mut self.core);
            }
            Session::Receiver(receiver) => receiver.vanish(&mut self.core),
            Session::Errand(_) => {}
        }
    }
}
