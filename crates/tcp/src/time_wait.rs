//! Closed connections remembered to recognise their old segments (RFC 9293 §3.10.7.4, RFC 1337,
//! RFC 6191).

use std::collections::{BTreeMap, VecDeque};

use engine::{PathId, Time};

use super::packet::{Flow, Tuple};
use super::seq;
use crate::segment::{Flags, Segment, TcpOption};

/// State remembered of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) flow: Flow,
    pub(crate) path: PathId,
    pub(crate) receive_next: u64,
    pub(crate) send_next: u64,
    /// Last announced window, as on the wire.
    pub(crate) window: u16,
    /// Last timestamp of the peer, and the offset of the local clock.
    pub(crate) stamps: Option<(u32, u32)>,
    last_answer: Option<Time>,
    serial: u64,
}

impl Remembered {
    pub(crate) fn new(
        flow: Flow,
        path: PathId,
        receive_next: u64,
        send_next: u64,
        window: u16,
        stamps: Option<(u32, u32)>,
    ) -> Self {
        Self { flow, path, receive_next, send_next, window, stamps, last_answer: None, serial: 0 }
    }
}

/// Action for a segment of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ignore it.
    Ignore,
    /// Acknowledge it.
    Answer,
    /// Acknowledge it, and remember the connection for as long again: the peer retransmitted its
    /// FIN.
    Renew,
    /// Accept it as a new connection, whose numbers follow these.
    Anew {
        /// Initial sequence number of the new one.
        initial: u32,
    },
}

/// Table of closed connections.
#[derive(Debug)]
pub(crate) struct TimeWait {
    entries: BTreeMap<Tuple, Remembered>,
    order: VecDeque<(u64, Tuple)>,
    serial: u64,
    max: usize,
}

/// Minimum time between two replies for one entry, so that two such hosts do not reply to each
/// other for ever.
const ANSWER_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

impl TimeWait {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), serial: 0, max }
    }

    pub(crate) fn get(&self, tuple: Tuple) -> Option<&Remembered> {
        self.entries.get(&tuple)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Remembers a connection. Returns another that was forgotten for it.
    pub(crate) fn insert(&mut self, tuple: Tuple, mut entry: Remembered) -> Option<Tuple> {
        self.serial += 1;
        entry.serial = self.serial;
        self.entries.insert(tuple, entry);
        self.order.push_back((self.serial, tuple));
        if self.entries.len() <= self.max {
            return None;
        }
        while let Some((serial, tuple)) = self.order.pop_front() {
            if self.entries.get(&tuple).is_some_and(|entry| entry.serial == serial) {
                self.entries.remove(&tuple);
                return Some(tuple);
            }
        }
        None
    }

    pub(crate) fn remove(&mut self, tuple: Tuple) -> Option<Remembered> {
        let entry = self.entries.remove(&tuple);
        while let Some((serial, tuple)) = self.order.front()
            && self.entries.get(tuple).is_none_or(|entry| entry.serial != *serial)
        {
            self.order.pop_front();
        }
        entry
    }

    /// Decides about a segment; `None` if no such connection is remembered.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        tuple: Tuple,
        segment: &Segment<'_>,
    ) -> Option<Verdict> {
        let entry = self.entries.get_mut(&tuple)?;
        let flags = segment.header.flags;
        // RFC 1337: a reset does not end it.
        if flags.contains(Flags::RST) {
            return Some(Verdict::Ignore);
        }
        let at = seq::expand(entry.receive_next, segment.header.sequence);
        if flags.contains(Flags::SYN) && !flags.contains(Flags::ACK) {
            let stamp = segment.options.map_while(Result::ok).find_map(|option| match option {
                TcpOption::Timestamps { value, .. } => Some(value),
                _ => None,
            });
            let later = entry
                .stamps
                .zip(stamp)
                .is_some_and(|((recent, _), stamp)| seq::is_older(recent, stamp));
            if later || at > entry.receive_next {
                let initial = seq::wire(entry.send_next).wrapping_add(65_537);
                return Some(Verdict::Anew { initial });
            }
        }
        let again =
            flags.contains(Flags::FIN) && at + u64::from(segment.occupies()) == entry.receive_next;
        if again {
            entry.last_answer = Some(now);
            return Some(Verdict::Renew);
        }
        let nothing_new = segment.occupies() == 0 && at == entry.receive_next;
        let soon = entry.last_answer.is_some_and(|last| now.since(last) < ANSWER_EVERY);
        if nothing_new || soon {
            return Some(Verdict::Ignore);
        }
        entry.last_answer = Some(now);
        Some(Verdict::Answer)
    }
}
