//! State of a path in an engine: rate and pacing, round-trip time, and queues of sessions with
//! data to send.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::{PathEvent, PathId, PathInfo, PathKind, Time, Transmit, TxBuf};

/// State of a path's clock, which determines the timers of its sessions that run; fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// Local timers only: the path is down.
    Stopped,
    /// Timers that do not wait for the peer: the return is down.
    Sending,
    /// All timers.
    Running,
}

/// Identifier of a transfer in its engine; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    /// Number of the slot.
    pub index: u32,
    /// Number of the transfer in that slot.
    pub generation: u32,
}

impl Handle {
    /// No transfer: handle of the engine's own effects and timers.
    pub const NOBODY: Self = Self { index: u32::MAX, generation: 0 };
}

/// Whether a transfer used up its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more to send of this class now.
    Over,
    /// More to send; the batch is full.
    More,
}

/// Sending priority: lower classes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Acknowledgments, reports, and other control data.
    Control,
    /// Descriptions of files.
    Metadata,
    /// Retransmissions.
    Repair,
    /// New data, and what follows it.
    Bulk,
}

impl Class {
    /// All classes, in the order of their priority.
    pub const ALL: [Self; 4] = [Self::Control, Self::Metadata, Self::Repair, Self::Bulk];

    /// The bit of this class in a set.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Bytes of a short reply.
const REPLY_LEN: usize = 32;

/// Minimum time of a short reply on a return link that counts as thin. On faster links, hosts and
/// queues delay a reply by a similar time.
pub(crate) const THIN_LEAST: Duration = Duration::from_millis(100);

/// A path.
#[derive(Debug)]
pub struct Path {
    info: PathInfo,
    up: bool,
    /// Whether data of the peer can arrive, as far as known.
    return_up: bool,
    blocked: bool,
    /// Time at which the last datagram has left at the path's rate.
    free_at: Time,
    ready: [VecDeque<Handle>; 4],
    /// Round trip of the path.
    pub rtt: RoundTrip,
    /// Maximum driver delay that the pacer makes up for.
    catch_up: Duration,
    /// Minimum time between two datagrams.
    interval: Duration,
}

/// Configured pacing of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacing {
    /// Rate in place of the path's own, in bit/s.
    pub rate_bps: Option<u64>,
    /// Minimum time between two datagrams.
    pub interval: Duration,
    /// Length of the datagram whose transmission time is the minimum interval between any two.
    pub pace_as: Option<usize>,
    /// Maximum driver delay that the pacer makes up for.
    pub catch_up: Duration,
}

impl Path {
    /// A path that is down. Its pacer makes up for at most `catch_up` of a driver's delay.
    pub fn new(catch_up: Duration) -> Self {
        Self {
            catch_up,
            info: PathInfo::datagram(0),
            up: false,
            return_up: true,
            blocked: false,
            free_at: Time::ZERO,
            ready: Default::default(),
            rtt: RoundTrip::default(),
            interval: Duration::ZERO,
        }
    }

    /// Handles an event, and applies the pacing.
    pub fn event(&mut self, event: PathEvent, pacing: Pacing) {
        match event {
            PathEvent::Up(info) => {
                self.rtt.light = info.owlt.map(|owlt| owlt * 2);
                self.info = info;
                let back = self.return_time(REPLY_LEN).unwrap_or_default();
                self.rtt.back = if back >= THIN_LEAST { back } else { Duration::ZERO };
                match pacing.rate_bps {
                    Some(0) => self.info.rate_bps = None,
                    Some(rate) => self.info.rate_bps = Some(rate),
                    None => {}
                }
                self.up = true;
                self.blocked = false;
            }
            PathEvent::Down => self.up = false,
            PathEvent::ReturnDown => self.return_up = false,
            PathEvent::ReturnUp => self.return_up = true,
            PathEvent::Blocked => self.blocked = true,
            PathEvent::Writable => self.blocked = false,
            PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_) => {}
        }
        let least = pacing.pace_as.map_or(Duration::ZERO, |len| self.time_of(len));
        self.interval = pacing.interval.max(least);
    }

    /// Transmission time of a datagram of `len` bytes, and the round-trip time, if both are known.
    pub fn times(&self, len: usize) -> Option<(Duration, Duration)> {
        let round_trip = self.rtt.light.or(self.rtt.smoothed)?;
        self.info.rate_bps.filter(|rate| *rate > 0)?;
        Some((self.info.transmission_time(len), round_trip))
    }

    /// Transmission time of a datagram of `len` bytes; zero without a rate.
    pub fn time_of(&self, len: usize) -> Duration {
        self.info.transmission_time(len)
    }

    /// Whether it has a sending rate.
    pub fn is_paced(&self) -> bool {
        self.info.rate_bps.is_some()
    }

    /// Sending rate in bit/s, if there is one.
    pub fn rate_bps(&self) -> Option<u64> {
        self.info.rate_bps
    }

    /// Transmission time of `len` bytes on the return link, if its rate is known.
    pub fn return_time(&self, len: usize) -> Option<Duration> {
        let rate_bps = self.info.return_bps.filter(|rate| *rate > 0);
        let back = PathInfo { rate_bps, ..self.info.clone() };
        rate_bps.map(|_| back.transmission_time(len))
    }

    /// Transmission time of a short reply on a thin return link; zero on another, `None` if the
    /// return rate is unknown.
    pub fn thin_return(&self) -> Option<Duration> {
        self.info.return_bps.map(|_| self.rtt.back)
    }

    /// Address of the peer, if known.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.info.ends.map(|(_, peer)| peer)
    }

    /// Whether a layer below delivers messages, and knows whether the peer replies.
    pub fn is_above_a_layer(&self) -> bool {
        matches!(self.info.kind, PathKind::Message { .. })
    }

    /// Host address of the peer, if known.
    pub fn host(&self) -> Option<IpAddr> {
        self.peer().map(|peer| peer.ip())
    }

    /// Twice the one-way light time, if known.
    pub fn light(&self) -> Option<Duration> {
        self.rtt.light
    }

    /// Whether the path is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// State of the clock: which timers of its sessions run.
    pub fn clock(&self) -> Clock {
        match (self.up, self.return_up) {
            (false, _) => Clock::Stopped,
            (true, false) => Clock::Sending,
            (true, true) => Clock::Running,
        }
    }

    /// Whether the last datagram has left at the path's rate.
    pub fn is_idle(&self, now: Time) -> bool {
        self.free_at <= now
    }

    /// Whether the path is up and has room.
    pub fn can_send(&self) -> bool {
        self.up && !self.blocked
    }

    /// Longest PDU on the path, in bytes.
    pub fn mtu(&self) -> usize {
        match self.info.kind {
            PathKind::Datagram { mtu } => mtu,
            PathKind::Message { max } => max,
            // PDUs carry their length, but streams are not split into PDUs here.
            PathKind::Stream => 0,
        }
    }

    /// Whether any transaction has data to send.
    pub fn has_work(&self) -> bool {
        self.ready.iter().any(|queue| !queue.is_empty())
    }

    /// Whether another transaction than `handle` is queued for a class.
    pub fn is_wanted_by_others(&self, class: Class, handle: Handle) -> bool {
        self.ready[class as usize].iter().any(|other| *other != handle)
    }

    /// Queues a transaction for a class; it must not be queued.
    pub fn enqueue(&mut self, class: Class, handle: Handle) {
        self.ready[class as usize].push_back(handle);
    }

    /// Removes a transaction from all queues.
    pub fn forget(&mut self, handle: Handle) {
        for queue in &mut self.ready {
            queue.retain(|other| *other != handle);
        }
    }

    /// Takes the next transfer out of the queue of a class.
    pub fn dequeue(&mut self, class: Class) -> Option<Handle> {
        self.ready[class as usize].pop_front()
    }

    /// Returns a transaction to the front of its queue.
    pub(crate) fn requeue_front(&mut self, class: Class, handle: Handle) {
        self.ready[class as usize].push_front(handle);
    }

    /// Starts a batch into `tx`.
    pub fn burst<'a>(&self, now: Time, tx: &'a mut TxBuf) -> Burst<'a> {
        let info = self.info.clone();
        let earliest = now - self.catch_up;
        let paced = info.rate_bps.is_some() || !self.interval.is_zero();
        let start = if paced { earliest.max(self.free_at) } else { now };
        let (mtu, interval) = (self.mtu(), self.interval);
        let path = PathId::default();
        Burst { path, mtu, tx, info, interval, now, start, at: start, timed: (0, Duration::ZERO) }
    }

    /// Ends a batch; returns how to send it.
    pub fn finish(&mut self, id: PathId, burst: &Burst<'_>) -> Option<Transmit> {
        self.free_at = burst.at;
        burst.tx.transmit(id, burst.start.max(burst.now))
    }
}

/// A batch being filled.
#[derive(Debug)]
pub struct Burst<'a> {
    /// Path of the batch.
    pub path: PathId,
    tx: &'a mut TxBuf,
    info: PathInfo,
    interval: Duration,
    mtu: usize,
    now: Time,
    /// Departure of the batch at the path's rate: before `now`, if the driver is late.
    start: Time,
    at: Time,
    /// Length of the last datagram, and its transmission time.
    timed: (usize, Duration),
}

impl Burst<'_> {
    /// Departure of the next datagram.
    pub fn departure(&self) -> Time {
        self.at.max(self.now)
    }

    /// Time at which the batch is made.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Time until the path is free for the next datagram.
    pub fn backlog(&self) -> Duration {
        self.at.since(self.now)
    }

    /// Bytes in the batch.
    pub fn len(&self) -> usize {
        self.tx.bytes().len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.tx.is_empty()
    }

    /// Longest PDU on the path, in bytes.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether a datagram of `len` bytes fits in the batch.
    pub fn has_room(&self, len: usize) -> bool {
        self.tx.fits(len)
    }

    /// Adds a datagram of `len` bytes and returns its place, if it fits in the batch.
    pub fn push(&mut self, len: usize) -> Option<&mut [u8]> {
        if !self.tx.fits(len) {
            return None;
        }
        if self.timed.0 != len {
            self.timed = (len, self.info.transmission_time(len).max(self.interval));
        }
        self.at += self.timed.1;
        self.tx.push(len)
    }
}

/// Round-trip time of a path, estimated as in RFC 6298.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// Twice the one-way light time, if known.
    light: Option<Duration>,
    /// Transmission time of a reply on a thin return link.
    back: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
}

impl RoundTrip {
    /// Minimum allowance for the two hosts, in addition to the measurements.
    const MARGIN: Duration = Duration::from_millis(5);

    /// Updates the estimate with the time from a request to its reply.
    ///
    /// Without a known light time the first sample sets the variation to half of it (RFC 6298
    /// §2.2). With one, only the time beyond it can vary: 2,640 s measured over 2,640 s of light
    /// leave a timeout of 2,650 s. Half of the measured time would make it 7,920 s.
    pub fn sample(&mut self, took: Duration) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(took);
            self.variation = self.light.map_or(took, |light| took.abs_diff(light)) / 2;
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(took)) / 4;
        self.smoothed = Some((smoothed * 7 + took) / 8);
    }

    /// Timeout of a reply; `initial` if nothing is known.
    pub fn timeout(&self, initial: Duration) -> Duration {
        // 25 ms one way: 50 + 3.125 + 5 = 58 ms.
        let light = self.light.map(|light| light + self.back + self.margin());
        let measured =
            self.smoothed.map(|smoothed| smoothed + (self.variation * 4).max(Self::MARGIN));
        match (light, measured) {
            (Some(light), Some(measured)) => light.max(measured),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => initial,
        }
    }

    /// Smoothed response time.
    pub fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Minimum time of a reply.
    pub fn least(&self) -> Duration {
        self.light.or(self.smoothed.map(|smoothed| smoothed / 2)).unwrap_or_default()
    }

    /// Allowance for the hosts and for jitter.
    pub fn margin(&self) -> Duration {
        let round_trip = self.light.or(self.smoothed).unwrap_or_default();
        Self::MARGIN + (round_trip / 16).min(Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_light_time_bounds_the_timeout_from_below() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_secs(1));
        rtt.light = Some(Duration::from_millis(50));
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_micros(58_125));
        // 200 + 4 * (200 - 50) / 2 = 500 ms.
        rtt.sample(Duration::from_millis(200));
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_millis(500));
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(50));
        }
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_micros(58_125));
    }

    #[test]
    fn one_sample_of_the_light_time_keeps_the_timeout() {
        let light = Duration::from_secs(2640);
        let mut rtt = RoundTrip { light: Some(light), ..RoundTrip::default() };
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_millis(2_650_005));
        rtt.sample(light);
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_millis(2_650_005));
        rtt.sample(light + Duration::from_secs(2));
        assert!(rtt.timeout(Duration::from_secs(1)) < Duration::from_secs(2700));
    }

    #[test]
    fn the_first_sample_without_a_light_time_triples() {
        let mut rtt = RoundTrip::default();
        rtt.sample(Duration::from_millis(200));
        assert_eq!(rtt.timeout(Duration::from_secs(1)), Duration::from_millis(600));
    }

    #[test]
    fn datagrams_of_a_batch_leave_one_after_the_other() {
        let mut path = Path::new(Duration::ZERO);
        let info = PathInfo { rate_bps: Some(8_000_000), ..PathInfo::datagram(1000) };
        path.event(PathEvent::Up(info), Pacing::default());
        let mut tx = TxBuf::new(8);
        let mut burst = path.burst(Time::from_nanos(500), &mut tx);
        burst.push(1000).expect("room");
        burst.push(1000).expect("room");
        assert_eq!(burst.departure(), Time::from_nanos(2_000_500));
        let transmit = path.finish(PathId(1), &burst).expect("something to send");
        assert_eq!(transmit.not_before, Time::from_nanos(500));
        tx.clear();
        let burst = path.burst(Time::from_nanos(600), &mut tx);
        assert_eq!(burst.departure(), Time::from_nanos(2_000_500));
    }

    #[test]
    fn a_late_driver_catches_up_as_far_as_allowed() {
        let mut path = Path::new(Duration::from_millis(3));
        let info = PathInfo { rate_bps: Some(8_000_000), ..PathInfo::datagram(1000) };
        path.event(PathEvent::Up(info), Pacing::default());
        // A datagram every millisecond; the driver polls for due ones every `wait`.
        let mut sent_by = |mut now: Time, wait: Duration, end: Time| {
            let mut sent = 0;
            while now < end {
                let mut tx = TxBuf::new(1);
                let mut burst = path.burst(now, &mut tx);
                burst.push(1000).expect("room");
                assert!(burst.departure() >= now);
                let at = path.finish(PathId(1), &burst).expect("something to send").not_before;
                sent += u64::from(at < end);
                now = if at > now { at.max(now + wait) } else { now };
            }
            sent
        };
        let millis = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let sent = sent_by(millis(100), Duration::from_micros(2500), millis(1100));
        // At the beginning it is late by the allowed backlog.
        assert!((1000..=1004).contains(&sent), "{sent}");
        let sent = sent_by(millis(2000), Duration::from_millis(10), millis(3000));
        assert!((395..=510).contains(&sent), "four of ten that were due, and one ahead: {sent}");
    }
}
