//! What all sessions of a peer share.

use std::time::Duration;

use engine::{FileName, FilestoreRequest, IndexRequest, PathId, Rng, Time};
use wire::saratoga::Packet;

use super::codec::Coded;
use super::config::{Config, Remote};
use super::indication::{Indication, Limit, Stats};
use super::partials::{self, Partial, Partials};
use super::received;
use crate::done::Done;
use crate::path::{Burst, Handle};
use crate::session::{self, Base, User};
use crate::timer;

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The answer to a REQUEST is overdue.
    Request,
    /// The STATUS that was asked for is overdue.
    Poll,
    /// The receiver does not say how far it is, and new data waits for that.
    Window,
    /// The next packet may leave.
    Pace,
    /// No answer tells of losses.
    Silence,
    /// Time for a STATUS that nobody asked for.
    Voluntary,
    /// Nothing came for too long.
    Inactivity,
    /// Save the progress.
    Save,
    /// Time for a BEACON.
    Beacon,
}

impl session::Alarm for Alarm {
    fn why(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Poll => "poll",
            Self::Window => "window",
            Self::Pace => "pace",
            Self::Silence => "silence",
            Self::Voluntary => "voluntary status",
            Self::Inactivity => "inactivity",
            Self::Save => "save",
            Self::Beacon => "beacon",
        }
    }

    fn awaits_peer(self) -> bool {
        match self {
            Self::Request
            | Self::Poll
            | Self::Window
            | Self::Silence
            | Self::Voluntary
            | Self::Inactivity => true,
            Self::Pace | Self::Save | Self::Beacon => false,
        }
    }
}

/// What an effect was for that only Saratoga has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Take up the records of an earlier run.
    Load,
    /// A file is deleted.
    Delete,
    /// A directory is listed.
    List,
    /// The record of this number was kept.
    Record { number: u32 },
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// What all sessions of a peer share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    pub(crate) partials: Partials,
    /// Sessions whose files were received.
    pub(crate) received: Done<received::Key>,
    /// Bytes of listings that are being sent.
    pub(crate) listings: u64,
    /// Whether it takes bundles, and nothing else.
    pub(crate) takes_bundles: bool,
    /// Time of the input or the timeout that is handled.
    pub(crate) now: Time,
}

impl Core {
    pub(crate) fn new(config: Config, rng: Rng) -> Self {
        Self {
            shared: Shared::new(config.limits.buffers),
            user: User::new(),
            stats: Stats::default(),
            rng,
            partials: Partials::default(),
            received: Done::new(),
            listings: 0,
            takes_bundles: false,
            now: Time::ZERO,
            config,
        }
    }

    /// Data that came is dropped for lack of room.
    pub(crate) fn no_room(&mut self) {
        self.stats.data_dropped += 1;
        if self.shared.became_full() {
            self.user.indicate(Indication::LimitReached(Limit::WriteBuffer));
        }
    }

    /// Whether a refusal may be sent on a path now: each gets ten a second at most. Those left out
    /// are counted, and sent when the peer tries again later.
    pub(crate) fn admits_refusal(&mut self, path: PathId) -> bool {
        let admits = self.shared.replies.refusals.admit(self.now, path);
        if !admits {
            self.stats.refusals_left_out += 1;
            self.user.limit_reached(Limit::Refusals);
        }
        admits
    }

    /// Keeps what came of a file for a later session.
    pub(crate) fn keep_partial(&mut self, number: u32, partial: Partial) {
        let max = self.config.limits.partials;
        if let Some(oldest) = self.partials.keep(number, partial, max) {
            self.user.limit_reached(Limit::Partials);
            self.forget_record(oldest);
            let name = FileName::spool(&partials::key(oldest));
            let name = name.expect("letters, digits and dashes are a name");
            self.shared.filestore(Handle::NOBODY, Job::Forget, FilestoreRequest::DenyFile(name));
        }
    }

    /// Removes a record, unless what it is about is kept for a later session.
    pub(crate) fn forget_record(&mut self, number: u32) {
        if !self.partials.has(number) {
            let request = IndexRequest::Remove { key: partials::key(number) };
            self.shared.index(Handle::NOBODY, Job::Forget, request);
        }
    }

    /// Writes one packet into the batch; `false` if it must wait for the next one. A packet that is
    /// larger than the path takes cannot be sent at all, and is left out.
    pub(crate) fn push(&mut self, burst: &mut Burst<'_>, packet: &Packet<'_>) -> bool {
        let Some(coded) = Coded::new(self.config.version, packet) else { return true };
        let len = coded.encoded_len();
        if len > burst.mtu() {
            self.stats.oversize += 1;
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if coded.encode(place).is_err() {
            debug_assert!(false, "a packet of our own cannot be encoded");
            place.fill(0xff);
        }
        self.stats.sent.count(packet);
        true
    }

    /// Time within which the peer should have answered.
    pub(crate) fn answer_time(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        base.seat.round_trip(&self.shared.paths).timeout(remote.initial_rtt)
    }

    /// Limit of a peer's silence.
    pub(crate) fn inactivity(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        let reply = self.answer_time(base, remote);
        remote.inactivity.duration(timer::inactivity(reply), 0).max(4 * reply)
    }

    /// When a session ends for silence since the last sign of life.
    pub(crate) fn given_up_at(&self, base: &Base<Alarm>, remote: &Remote) -> Time {
        base.last_received + self.inactivity(base, remote)
    }
}
