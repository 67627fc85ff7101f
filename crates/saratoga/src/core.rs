//! State shared by all sessions of a peer.

use std::time::Duration;

use ::session::done::Done;
use ::session::path::{Burst, Handle};
use ::session::timer;
use ::session::{self, Base, User};
use engine::{FileName, FilestoreRequest, IndexRequest, PathId, Rng, Time};

use super::codec::Coded;
use super::config::{Config, Remote};
use super::indication::{Indication, Limit, Stats};
use super::partials::{self, Partial, Partials};
use crate::packet::Packet;

/// Number of a session whose file was received, and the CRC-32C of its METADATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceivedKey {
    pub(crate) number: u32,
    pub(crate) identity: u32,
}

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Timeout of the reply to a REQUEST.
    Request,
    /// Timeout of the requested STATUS.
    Poll,
    /// New data waits for the receiver's position.
    Window,
    /// Time to send the next packet.
    Pace,
    /// No reply reports on losses.
    Silence,
    /// Time for an unrequested STATUS.
    Voluntary,
    /// Silence of the peer.
    Inactivity,
    /// Time to save the progress.
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

/// Purpose of an effect that only Saratoga has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads the records of an earlier run.
    Load,
    /// Deletes a file.
    Delete,
    /// Lists a directory.
    List,
    /// Stores the record of this number.
    Record { number: u32 },
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// State shared by all sessions of a peer.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    pub(crate) partials: Partials,
    /// Sessions whose files were received.
    pub(crate) received: Done<ReceivedKey>,
    /// Bytes of listings being sent.
    pub(crate) listings: u64,
    /// Whether the peer accepts only bundles.
    pub(crate) takes_bundles: bool,
    /// Time of the input or timer being handled.
    pub(crate) now: Time,
    /// Bytes of the datagram being handled.
    pub(crate) arrived: usize,
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
            arrived: 0,
            config,
        }
    }

    /// Counts data dropped for lack of room.
    pub(crate) fn no_room(&mut self) {
        self.stats.data_dropped += 1;
        if self.shared.became_full() {
            self.user.indicate(Indication::LimitReached(Limit::WriteBuffer));
        }
    }

    /// Whether a refusal may be sent on a path now, at most ten per second. Suppressed ones are
    /// counted, and sent when the peer retries later.
    pub(crate) fn admits_refusal(&mut self, path: PathId) -> bool {
        let admits = self.shared.replies.refusals.admit(self.now, path);
        if !admits {
            self.stats.refusals_left_out += 1;
            self.user.limit_reached(Limit::Refusals);
        }
        admits
    }

    /// Keeps an incomplete file for a later session.
    pub(crate) fn keep_partial(&mut self, number: u32, partial: Partial) {
        self.partials.keep(self.now, number, partial);
        self.drop_partials();
    }

    /// Deletes incomplete files beyond the limits.
    pub(crate) fn drop_partials(&mut self) {
        while let Some(oldest) = self.partials.drop_surplus(self.now, &self.config.limits) {
            self.user.limit_reached(Limit::Partials);
            self.forget_record(oldest);
            let name = FileName::spool(&partials::key(oldest));
            let name = name.expect("letters, digits and dashes are a name");
            self.shared.filestore(Handle::NOBODY, Job::Forget, FilestoreRequest::DenyFile(name));
        }
    }

    /// Removes a record, unless the record's file is kept for a later session.
    pub(crate) fn forget_record(&mut self, number: u32) {
        if !self.partials.has(number) {
            let request = IndexRequest::Remove { key: partials::key(number) };
            self.shared.index(Handle::NOBODY, Job::Forget, request);
        }
    }

    /// Writes a packet into the batch; `false` if it must wait for the next one. A packet larger
    /// than the path's MTU is dropped.
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

    /// Time within which the peer should have replied.
    pub(crate) fn answer_time(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        base.seat.round_trip(&self.shared.paths).timeout(remote.initial_rtt)
    }

    /// Maximum silence of a peer.
    pub(crate) fn inactivity(&self, base: &Base<Alarm>, remote: &Remote) -> Duration {
        let reply = self.answer_time(base, remote);
        remote.inactivity.duration(timer::inactivity(reply), 0).max(4 * reply)
    }

    /// Time at which a session ends if the peer stays silent.
    pub(crate) fn given_up_at(&self, base: &Base<Alarm>, remote: &Remote) -> Time {
        base.last_received + self.inactivity(base, remote)
    }
}
