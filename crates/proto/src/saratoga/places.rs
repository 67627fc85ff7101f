//! Places for sessions: a flood of sessions that never go on keeps nobody out.

use engine::{PathId, Time};

use super::core::Core;
use super::indication::{Limit, Role, SessionId};
use super::{Node, Session};

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
    /// Whether there is a place for one more session that a peer begins. An eighth of all is kept
    /// for sessions of this node, and no path gets more than its share. If there is none, a
    /// half-open session makes room.
    pub(super) fn has_place(&mut self, now: Time, from: PathId) -> bool {
        let (most, share) =
            (self.core.config.limits.sessions, self.core.config.limits.sessions_per_path);
        if self.by_id.len() < most / 2 {
            return true;
        }
        let theirs = || self.slots.iter().filter(|session| session.is_theirs());
        let of_path = theirs().filter(|session| session.id().peer == from).count();
        let within_share = of_path < share;
        if within_share && self.by_id.len() < most && theirs().count() < most - most / 8 {
            return true;
        }
        self.core.user.limit_reached(Limit::Sessions);
        let idle = theirs()
            .filter(|session| within_share || session.id().peer == from)
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
        session.base().disarm_all(&mut self.core.kernel);
        if let Some(path) = self.core.kernel.paths.get_mut(&id.peer) {
            path.forget(handle);
        }
        match &mut session {
            Session::Sender(sender) => {
                self.core.kernel.senders -= 1;
                sender.release(&mut self.core);
            }
            Session::Receiver(receiver) => receiver.vanish(&mut self.core),
            Session::Errand(_) => {}
        }
    }
}
