//! Session under way, at either side.

use std::time::Duration;

use engine::Time;
use session::Base;

use super::core::{Alarm, Core, Peer};
use super::indication::Report;
use super::receiver::Receiver;
use super::request::SendRequest;
use super::sender::Sender;
use crate::segment::SessionId;

/// Minimum silence of a peer after which it may move to another address.
const MOVE_AFTER: Duration = Duration::from_secs(1);

/// Session under way.
#[derive(Debug)]
pub(crate) enum Session {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

impl Session {
    pub(super) fn base(&mut self) -> &mut Base<Alarm> {
        match self {
            Self::Sender(sender) => &mut sender.base,
            Self::Receiver(receiver) => &mut receiver.base,
        }
    }

    pub(super) fn base_of(&self) -> &Base<Alarm> {
        match self {
            Self::Sender(sender) => &sender.base,
            Self::Receiver(receiver) => &receiver.base,
        }
    }

    /// Peer engine.
    pub(super) fn engine(&self) -> u64 {
        match self {
            Self::Sender(sender) => sender.destination(),
            Self::Receiver(receiver) => receiver.id().originator,
        }
    }

    /// Number of a session that an earlier run began with this request.
    pub(super) fn continues(&self, request: &SendRequest) -> Option<SessionId> {
        match self {
            Self::Sender(sender) => sender.continues(request).then(|| sender.id()),
            Self::Receiver(_) => None,
        }
    }

    pub(super) fn peer(&self) -> &Peer {
        match self {
            Self::Sender(sender) => &sender.peer,
            Self::Receiver(receiver) => &receiver.peer,
        }
    }

    pub(super) fn peer_mut(&mut self) -> &mut Peer {
        match self {
            Self::Sender(sender) => &mut sender.peer,
            Self::Receiver(receiver) => &mut receiver.peer,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_done(),
            Self::Receiver(receiver) => receiver.is_done(),
        }
    }

    pub(super) fn report(&self) -> Report {
        match self {
            Self::Sender(sender) => sender.report(),
            Self::Receiver(receiver) => receiver.report(),
        }
    }

    pub(super) fn want_all(&mut self, core: &mut Core) {
        match self {
            Self::Sender(sender) => sender.want_all(core),
            Self::Receiver(receiver) => receiver.want_all(core),
        }
    }

    /// Whether the peer may move to another path. It may not while segments arrive on the current
    /// one, because anyone can write the number of a session into a segment.
    pub(super) fn may_move(&self, core: &Core, now: Time) -> bool {
        let remote = &self.peer().remote;
        let patience = core.answer_time(self.base_of(), remote).max(MOVE_AFTER);
        let base = self.base_of();
        let path = base.seat.path.and_then(|id| core.shared.paths.get(&id));
        path.is_none_or(|path| !path.is_up()) || now.since(base.last_received) >= patience
    }

    /// Resumes at once when the path or its return link comes up.
    pub(super) fn resume(&mut self, core: &mut Core, now: Time) {
        match self {
            Self::Sender(sender) => sender.resume(core),
            Self::Receiver(receiver) => receiver.resume(core, now),
        }
    }
}
