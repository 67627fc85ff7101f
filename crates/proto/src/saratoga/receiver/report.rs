//! STATUS packets: when one leaves, and which holes it lists (§4.5).

use std::time::Duration;

use engine::Time;
use wire::saratoga::{Hole, Holes, Packet, Status, StatusCode, Timestamp, Width};

use super::{PACKETS_MAX, Phase, Receiver};
use crate::path::{Burst, Path};
use crate::saratoga::config::Version;
use crate::saratoga::core::{Alarm, Core};

/// STATUS packets at most that a sender gets without having requested one, after a silence each.
const UNREQUESTED_MAX: u32 = 3;

/// Shorter backlogs of a path do not delay a STATUS.
const BACKLOG_LEAST: Duration = Duration::from_millis(5);

/// What the sender of a session wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// It did not request a STATUS so far; this many were sent nevertheless.
    Unknown { sent: u32 },
    /// It requests STATUS packets, or was itself requested to send.
    Status,
    /// It sent the end without a request for a STATUS, as over links without a return (§4.4).
    Nothing,
}

/// The rate at which DATA arrives, measured over runs of packets without a pause.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Beginning of the run and its last packet.
    run: Option<(Time, Time)>,
    octets: u64,
    packets: u32,
    octets_per_s: f64,
}

impl Arrivals {
    /// Packets of a run, and its least time: shorter ones measure the driver's batches.
    const PACKETS: u32 = 16;
    const LEAST: Duration = Duration::from_millis(5);

    /// A packet with `len` octets of the file arrived.
    pub(super) fn add(&mut self, now: Time, len: usize) {
        let Some((since, last)) = self.run else {
            self.run = Some((now, now));
            return;
        };
        // A pause of 16 packets ends the run: the sender waited.
        let pause = now.since(last).as_secs_f64() * self.octets_per_s > (16 * len) as f64;
        if self.octets_per_s > 0.0 && pause {
            *self = Self { run: Some((now, now)), octets: 0, packets: 0, ..*self };
            return;
        }
        self.octets += len as u64;
        self.packets += 1;
        self.run = Some((since, now));
        let took = now.since(since);
        if self.packets < Self::PACKETS || took < Self::LEAST {
            return;
        }
        let rate = self.octets as f64 / took.as_secs_f64();
        let slower = self.octets_per_s * 0.75 + rate * 0.25;
        *self =
            Self { run: Some((now, now)), octets: 0, packets: 0, octets_per_s: rate.max(slower) };
    }
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
            self.volunteer(core);
            // A sender that was started again knows only what it is asked for.
            let can_go_on = self.known.as_ref().is_none_or(|known| known.can_go_on);
            let is_gone = is_silent && self.misses > 0 && can_go_on;
            self.request_due = is_gone && self.wish.is_some();
            self.misses += u32::from(is_silent);
            wait = every.map_or(quiet, |every| every.min(quiet));
        }
        self.base.alarm(&mut core.kernel, Alarm::Voluntary, now, wait);
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
            self.base.alarm(&mut core.kernel, Alarm::Pace, burst.now(), wait);
        }
        true
    }

    /// The path is free.
    pub(super) fn path_free(&mut self, core: &mut Core) {
        self.has_waited = true;
        self.want_all(core);
    }

    /// Octets between two holes up to which one hole that covers both is cheaper (§4.5 allows
    /// that): to receive them again takes less time than to send another hole.
    ///
    /// A hole of 8 octets takes 32 ms at 2 kbit/s, in which 40 kB arrive at 10 Mbit/s.
    fn joined_up_to(&self, path: Option<&Path>, width: Width) -> u64 {
        let Some(rate_bps) = path.and_then(Path::rate_bps).filter(|rate| *rate > 0) else {
            return 0;
        };
        let hole_s = (2 * width.octets() * 8) as f64 / rate_bps as f64;
        // Saturates; of no use below a packet's overhead.
        (hole_s * self.arrivals.octets_per_s) as u64
    }

    /// Makes the STATUS packets that say what is missing: more than one if the holes do not fit.
    pub(super) fn make_status(
        &mut self,
        core: &Core,
        timestamp: Option<Timestamp>,
        in_response_to: u64,
        is_voluntary: bool,
    ) {
        let path = core.kernel.paths.get(&self.id.peer);
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
        let holes = joined(self.ranges.gaps(0, end), self.joined_up_to(path, width));
        let progress = holes.first().map_or(end.min(self.highest), |hole| hole.start);
        // Where there are no holes, both edges of what is worked on are the same.
        let in_response_to = in_response_to.max(progress);
        let mut parts: Vec<&[Hole]> = holes.chunks(each).take(PACKETS_MAX).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let is_partial = parts.len() > 1;
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

/// Holes from gaps, those joined that are at most `up_to` octets apart.
fn joined(gaps: impl Iterator<Item = (u64, u64)>, up_to: u64) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    for (start, end) in gaps {
        match holes.last_mut() {
            Some(hole) if start - hole.last - 1 < up_to => hole.last = end - 1,
            Some(_) | None => holes.push(Hole { start, last: end - 1 }),
        }
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_joined_where_data_between_them_is_cheaper_than_a_hole() {
        let gaps = || [(10, 20), (30, 40), (140, 150)].into_iter();
        let ends = |up_to| -> Vec<_> {
            joined(gaps(), up_to).iter().map(|hole| (hole.start, hole.last)).collect()
        };
        assert_eq!(ends(0), [(10, 19), (30, 39), (140, 149)]);
        assert_eq!(ends(10), [(10, 19), (30, 39), (140, 149)]);
        assert_eq!(ends(11), [(10, 39), (140, 149)]);
        assert_eq!(ends(u64::MAX), [(10, 149)]);
    }

    #[test]
    fn the_rate_of_arrivals_leaves_pauses_out() {
        let mut arrivals = Arrivals::default();
        let mut at = Time::ZERO;
        for i in 0..200 {
            // 1000 octets a millisecond, with a pause of a second in the middle.
            at += Duration::from_millis(if i == 100 { 1000 } else { 1 });
            arrivals.add(at, 1000);
        }
        assert!((0.99e6..1.01e6).contains(&arrivals.octets_per_s), "{arrivals:?}");
    }
}
