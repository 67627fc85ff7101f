//! STATUS packets: when one leaves, and which holes it lists (§4.5).

use std::time::Duration;

use engine::Time;
use wire::saratoga::{Hole, Holes, Packet, Status, StatusCode, Timestamp, Width};

use super::{PACKETS_MAX, Phase, Receiver};
use crate::path::{Burst, Path};
use crate::saratoga::config::Version;
use crate::saratoga::core::{Alarm, Core};
use crate::thin_return::{self, EARLY_ITEMS};

/// STATUS packets at most that a sender gets without having requested one, after a silence each.
const UNREQUESTED_MAX: u32 = 3;

/// Shorter backlogs of a path do not delay a STATUS.
const BACKLOG_LEAST: Duration = Duration::from_millis(5);

/// Bytes of a STATUS without holes, with its timestamp and the headers below it: 32 and 42.
const STATUS_LEN: u64 = 74;

/// Bytes that cross the forward link in the time of one hole, from which on the return link is
/// thin: 8 bytes against 4 KiB are a ratio of 1 to 512.
const THIN: u64 = 4096;

/// Need of a session's sender for STATUS packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// It did not request a STATUS so far; this many were sent nevertheless.
    Unknown { sent: u32 },
    /// It requests STATUS packets, or was itself requested to send.
    Status,
    /// It sent the end without a request for a STATUS, as over links without a return (§4.4).
    Nothing,
}

impl Receiver {
    /// Whether a STATUS that nobody requested may be of use to the sender.
    fn may_volunteer(&mut self) -> bool {
        match &mut self.wants {
            Wants::Status => true,
            Wants::Nothing => false,
            Wants::Unknown { sent } => {
                *sent += 1;
                *sent <= UNREQUESTED_MAX
            }
        }
    }

    /// A direction of the path came up: the sender learns at once what is missing.
    pub(crate) fn path_up(&mut self, core: &mut Core) {
        self.request_due |= self.phase == Phase::Asking;
        let is_informed = self.phase == Phase::Receiving && self.wants == Wants::Status;
        self.voluntary_due |= is_informed && self.has_data;
        self.want_all(core);
    }

    /// Time for a STATUS that nobody requested.
    pub(super) fn voluntary(&mut self, core: &mut Core, now: Time) {
        let quiet = self.quiet(core);
        let silent_at = self.base.last_heard + quiet;
        let is_silent = silent_at <= now;
        let every = self.remote.voluntary_interval;
        let mut wait = silent_at.since(now);
        let greets = std::mem::take(&mut self.greeting_due);
        if every.is_some() || is_silent || greets {
            if every.is_none() && !self.may_volunteer() || self.wants == Wants::Nothing {
                return;
            }
            if is_silent {
                // Repairs of what was listed before are under way no more.
                self.reported = 0;
            }
            self.volunteer(core);
            // A sender that was started again knows only what it is asked for.
            let can_go_on = self.known.as_ref().is_none_or(|known| known.can_go_on);
            let is_gone = is_silent && self.misses > 0 && can_go_on;
            self.request_due = is_gone && self.wish.is_some();
            self.misses += u32::from(is_silent);
            wait = every.map_or(quiet, |every| every.min(quiet));
        }
        self.base.alarm(&mut core.shared, Alarm::Voluntary, now, wait);
    }

    /// Whether a STATUS has to wait because the one before it still occupies the path: it is made
    /// when it can leave, and describes what has arrived until then. It waits once, because others
    /// may keep the path occupied.
    pub(super) fn waits_for_path(&mut self, core: &mut Core, burst: &Burst<'_>) -> bool {
        let wait = burst.backlog();
        if self.has_waited || wait < BACKLOG_LEAST {
            self.has_waited = false;
            return false;
        }
        if !self.base.is_armed(Alarm::Pace) {
            self.base.alarm(&mut core.shared, Alarm::Pace, burst.now(), wait);
        }
        true
    }

    /// The path is free.
    pub(super) fn path_free(&mut self, core: &mut Core) {
        self.has_waited = true;
        self.want_all(core);
    }

    /// Data that the sender has not sent so far, of a file whose end is known.
    fn to_come(&self) -> u64 {
        self.end.map_or(0, |end| end.saturating_sub(self.highest))
    }

    /// Most bytes between two holes that cost less time than another hole in a STATUS.
    fn bridge(&self, path: Option<&Path>, width: Width) -> u64 {
        let back = path.and_then(Path::rate_bps);
        thin_return::bridge(2 * width.octets(), self.arrivals.bps(), back)
    }

    /// Offset from which on a STATUS lists holes.
    ///
    /// While new data arrives and the return link is thin, each lists those that opened since the
    /// one before: repairs of the others are under way. Once all was sent, a STATUS lists all.
    fn listed_from(&self, version: Version, longest: u64) -> u64 {
        match version {
            Version::V1 if longest >= THIN && self.to_come() > 0 => self.reported,
            Version::V0 | Version::V1 => 0,
        }
    }

    /// Holes of `from..end`, some of them joined over a thin return link (§4.5 allows that).
    ///
    /// To send a hole takes longer there than to receive the data up to the next one again: 8 bytes
    /// take 32 ms at 2 kbit/s, in which 40 kB arrive at 10 Mbit/s. While new data arrives, however,
    /// the return link would be idle. So a STATUS may take as long as that does, or half of it where
    /// the return link is not thin: of 0.6 s of data, 0.6 s, which are 150 bytes and some 10 holes at
    /// 2 kbit/s. Over a thin one it lists few, so that the next one follows soon.
    fn holes(&self, path: Option<&Path>, width: Width, (from, end): (u64, u64)) -> Vec<Hole> {
        let gaps: Vec<_> = self.ranges.gaps(from, end).collect();
        let (forward, back) = (self.arrivals.bps(), path.and_then(Path::rate_bps));
        let longest = self.bridge(path, width);
        let share = if longest >= THIN { self.to_come() } else { self.to_come() / 2 };
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let room = thin_return::bridge(share, back, forward).saturating_sub(STATUS_LEN);
        let count = usize::try_from(room).unwrap_or(usize::MAX) / (2 * width.octets());
        let count = if longest >= THIN { count.min(EARLY_ITEMS) } else { count };
        let bridge = thin_return::bridge_for(&gaps, longest, count);
        let joined = thin_return::join(gaps, bridge);
        joined.map(|(start, end)| Hole { start, last: end - 1 }).collect()
    }

    /// Makes the STATUS packets that list what is missing: more than one if the holes do not fit.
    pub(super) fn make_status(
        &mut self,
        core: &Core,
        timestamp: Option<Timestamp>,
        in_response_to: u64,
        is_voluntary: bool,
    ) {
        let path = core.shared.paths.get(&self.id.peer);
        let mtu = path.map_or(0, Path::mtu);
        let max = self.remote.datagram_max.map_or(mtu, |max| max.min(mtu));
        let width = self.width.max(Width::fitting(self.highest));
        let stamp_len = timestamp.map_or(0, |timestamp| timestamp.len());
        let room = max.saturating_sub(8 + stamp_len + 2 * width.octets());
        let each = (room / (2 * width.octets())).max(1);
        // Version 0 tells of all that is missing: where nothing is, all is there.
        let end = match core.config.version {
            Version::V0 => self.end.unwrap_or(self.highest),
            Version::V1 => self.highest,
        };
        // Without METADATA it is not known what an earlier session brought (§4.5, bit 13).
        let (end, in_response_to) =
            if self.known.is_some() { (end, in_response_to) } else { (0, 0) };
        let from = self.listed_from(core.config.version, self.bridge(path, width)).min(end);
        let holes = self.holes(path, width, (from, end));
        let first = holes.first().map_or(end.min(self.highest), |hole| hole.start);
        let progress = if from > 0 { self.ranges.prefix() } else { first };
        self.reported = end;
        // Where there are no holes, both edges of what is worked on are the same.
        let in_response_to = in_response_to.max(progress);
        let mut parts: Vec<&[Hole]> = holes.chunks(each).take(PACKETS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let is_partial = parts.len() > 1 || from > 0;
        for part in parts {
            let packet = Packet::Status(Status {
                descriptor: width,
                timestamp,
                lacks_metadata: self.known.is_none(),
                is_partial,
                is_voluntary,
                code: StatusCode::Ok,
                session: self.id.number,
                progress,
                in_response_to,
                holes: Holes::new(part),
            });
            self.outbox.extend(packet.to_vec());
        }
    }

    /// The last STATUS of the session, for those who ask later, too.
    pub(crate) fn last_word(&self) -> Vec<u8> {
        match self.phase {
            Phase::Telling(code) => self.last_word_as(code, None),
            Phase::Asking
            | Phase::Receiving
            | Phase::Verifying
            | Phase::Syncing
            | Phase::Reading
            | Phase::Installing
            | Phase::Done => self.last_word_as(self.outcome(), None),
        }
    }

    fn outcome(&self) -> StatusCode {
        if self.is_installed {
            StatusCode::Ok
        } else {
            self.failure.unwrap_or(StatusCode::NotInterested)
        }
    }

    pub(super) fn last_word_as(&self, code: StatusCode, timestamp: Option<Timestamp>) -> Vec<u8> {
        let size = if code == StatusCode::Ok { self.end.unwrap_or(self.highest) } else { 0 };
        let packet = Packet::Status(Status {
            descriptor: self.width.max(Width::fitting(size)),
            timestamp,
            lacks_metadata: code == StatusCode::MetadataRequired,
            is_partial: false,
            is_voluntary: true,
            code,
            session: self.id.number,
            progress: size,
            in_response_to: size,
            holes: Holes::NONE,
        });
        packet.to_vec().unwrap_or_default()
    }
}
