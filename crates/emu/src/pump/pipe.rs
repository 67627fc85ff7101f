//! One direction of a link, and its packets' fates for captures.

use std::io;
use std::sync::Arc;

use engine::{Rng, Time};
use link::{Config, ConfigError, Fate, Line, Link, Rejected};
use rt::{Clock, Timings};
use rustix::io::Errno;

use super::handle::LinkCounts;
use super::{Segment, copy_segment};
use crate::capture::Tap;
use crate::store::Store;

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(super) link: Link<Segment>,
    /// PPP state, if the link looks at packets' bytes.
    pub(super) line: Option<Line>,
    pub(super) to: usize,
    pub(super) lateness: Arc<Timings>,
    refused: u64,
    refused_intact: u64,
    /// Number of packets accepted by the link (`taken`), and of those whose fate was reported to
    /// the capture (`decided`).
    taken: u64,
    decided: u64,
    /// Bytes of its queues when last counted.
    memory: u64,
}

impl Pipe {
    /// Creates an idle link that leads to the device of this number.
    pub(crate) fn new(config: Config, rng: Rng, to: usize) -> Result<Self, ConfigError> {
        let line = Line::new(&config);
        let link = Link::new(config, rng)?;
        Ok(Self {
            link,
            line,
            to,
            lateness: Arc::new(Timings::new()),
            refused: 0,
            refused_intact: 0,
            taken: 0,
            decided: 0,
            memory: 0,
        })
    }

    /// Passes a segment to the link, with its length on the line.
    fn take(
        &mut self,
        now: Time,
        store: &Store,
        segment: Segment,
    ) -> Result<(), Rejected<Segment>> {
        let Segment { packet, index } = segment;
        let len = store.shape(packet).segment_len(index);
        // A refused packet must not enter the compressor's context.
        match self.line.as_mut().filter(|_| self.link.free_for(now, len)) {
            None => self.link.push(now, len, segment),
            Some(line) => {
                let mut whole = Vec::with_capacity(len);
                let (bytes, shape) = store.packet(packet);
                copy_segment(bytes, shape, index, &mut whole);
                let framed = line.enter(&whole);
                let pushed = self.link.push_framed(now, len, framed, segment);
                if pushed.is_err() {
                    line.withdraw();
                }
                pushed
            }
        }
    }

    /// Skips the packets whose fate was decided before the capture begins.
    pub(super) fn begin_capture(&mut self, now: Time) {
        while self.link.next_decided(now).is_some() {}
        let undecided = self.link.waiting() + self.link.undecided();
        self.decided = self.taken - undecided as u64;
    }

    /// Frees memory of queues that were longer before. Returns the remaining bytes.
    pub(super) fn shrink(&mut self) -> u64 {
        self.link.shrink();
        self.memory = self.link.memory() as u64;
        self.memory
    }

    pub(super) fn counts(&self) -> LinkCounts {
        LinkCounts {
            stats: self.link.stats().clone(),
            refused: self.refused,
            refused_intact: self.refused_intact,
            waiting: self.link.waiting(),
            line: self.line.as_ref().map(|line| *line.stats()),
        }
    }

    /// Reports to a capture the fate of packets whose transmission began by `now`.
    pub(super) fn tell_decided(&mut self, index: usize, now: Time, tap: &mut Tap) {
        while let Some(departure) = self.link.next_decided(now) {
            let says = match &departure.fate {
                Fate::Delivered => None,
                Fate::Damaged(_) => Some("damaged on the way".to_owned()),
                Fate::Lost(cause) => Some(format!("lost on the way: {}", cause.name())),
            };
            tap.decided(index, self.decided, says);
            self.decided += 1;
        }
    }

    /// Returns the bytes by which its queues have grown since the last call; they do not shrink
    /// meanwhile.
    pub(super) fn growth(&mut self) -> u64 {
        let now = self.link.memory() as u64;
        now.saturating_sub(std::mem::replace(&mut self.memory, now))
    }

    /// Counts packets that a host refused. Returns the delivery time of others.
    pub(super) fn wrote(
        &mut self,
        written: io::Result<()>,
        clock: Clock,
        count: u32,
        intact: bool,
    ) -> io::Result<Option<Time>> {
        match written {
            Ok(()) => Ok(Some(clock.now())),
            // A damaged header, an interface that is down, or a host's full backlog.
            Err(error) if is_of_the_packet(&error) => {
                self.refused += u64::from(count);
                // An interface that was taken down reports this.
                let is_down = error.raw_os_error() == Some(Errno::IO.raw_os_error());
                if intact && !is_down {
                    self.refused_intact += u64::from(count);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Passes a segment to links, and reports it to a capture at this port. Returns how many refused
/// it.
pub(super) fn enter(
    now: Time,
    store: &Store,
    segment: Segment,
    numbers: &[usize],
    pipes: &mut [Pipe],
    tap: &mut Option<(&mut Tap, usize)>,
) -> u32 {
    let Segment { packet, index } = segment;
    let (mut open, mut refused) = (Vec::new(), Vec::new());
    let mut rejected = 0;
    for &number in numbers {
        let pipe = &mut pipes[number];
        match pipe.take(now, store, segment) {
            Ok(()) => {
                if tap.is_some() {
                    open.push((number, pipe.taken));
                }
                pipe.taken += 1;
            }
            Err(refusal) => {
                rejected += 1;
                if tap.is_some() {
                    refused.push(format!("not taken by the link: {}", refusal.cause.name()));
                }
            }
        }
    }
    if let Some((tap, port)) = tap {
        let mut copy = Vec::new();
        let (bytes, shape) = store.packet(packet);
        copy_segment(bytes, shape, index, &mut copy);
        tap.sent(*port, now, copy, open, refused);
    }
    rejected
}

fn is_of_the_packet(error: &io::Error) -> bool {
    let known = [Errno::INVAL, Errno::IO, Errno::AGAIN, Errno::NOBUFS, Errno::MSGSIZE];
    known.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
