//! Log of events that an operator must know, at a bounded rate.

use std::time::Duration;

use bp::agent::Statistics;
use bp::codec::bp7::{BundleId, Eid, Reason};
use engine::Time;

/// Lines of a kind within [`PERIOD`]; further ones are counted.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Neighbour,
    Discovery,
    Deleted,
    Discarded,
    Malformed,
    Refused,
    Trouble,
}

const KINDS: usize = 7;

/// Lines of a kind in the current period.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    since: Option<Time>,
    count: u32,
    /// Events without a line.
    left_out: u64,
}

impl Lines {
    /// Whether one more line is written now, and the events before it that were left out.
    fn passes(&mut self, now: Time) -> Option<u64> {
        if self.since.is_none_or(|since| now.since(since) >= PERIOD) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Log of a node.
#[derive(Debug, Default)]
pub(super) struct Log {
    is_quiet: bool,
    lines: [Lines; KINDS],
    /// Counters at the last look.
    malformed: u64,
    refused: u64,
}

impl Log {
    pub(super) fn set_quiet(&mut self) {
        self.is_quiet = true;
    }

    /// Appends the number of events that were left out; `None` if this one is, too.
    fn line(&mut self, now: Time, kind: Kind, what: &str) -> Option<String> {
        let left_out = self.lines[kind as usize].passes(now)?;
        Some(match left_out {
            0 => what.to_owned(),
            some => format!("{what}; {some} events of this kind before it are not shown"),
        })
    }

    /// Logs an event of normal operation.
    pub(super) fn notice(&mut self, now: Time, kind: Kind, what: &str) {
        if !self.is_quiet
            && let Some(line) = self.line(now, kind, what)
        {
            tracing::info!(target: "node", "{line}");
        }
    }

    /// Logs a fault.
    pub(super) fn fault(&mut self, now: Time, kind: Kind, what: &str) {
        if let Some(line) = self.line(now, kind, what) {
            tracing::warn!(target: "node", "{line}");
        }
    }

    /// Logs that a neighbour is up, or down for a reason.
    pub(super) fn neighbour(&mut self, now: Time, node: Option<&Eid>, why: Option<&str>) {
        let node = node.map_or_else(|| "an unnamed neighbour".to_owned(), Eid::to_string);
        let what = match why {
            None => format!("{node} is up"),
            Some(why) => format!("{node} is down: {why}"),
        };
        self.notice(now, Kind::Neighbour, &what);
    }

    /// Logs a deletion; expiry and users' requests are normal.
    pub(super) fn deleted(&mut self, now: Time, id: &BundleId, reason: Reason) {
        let what = format!("{id} was deleted: {reason}");
        if matches!(reason, Reason::TransmissionCanceled) {
            tracing::debug!("{what}");
        } else {
            self.notice(now, Kind::Deleted, &what);
        }
    }

    /// Logs counters that have risen.
    pub(super) fn counted(&mut self, now: Time, statistics: &Statistics) {
        let new = statistics.malformed.saturating_sub(self.malformed);
        self.malformed = statistics.malformed;
        if new > 0 {
            let all = self.malformed;
            let what = format!("{new} new malformed inputs of peers, {all} since the start");
            self.fault(now, Kind::Malformed, &what);
        }
        let new = statistics.refused.saturating_sub(self.refused);
        self.refused = statistics.refused;
        if new > 0 {
            let all = self.refused;
            let what = format!("{new} bundles of peers were refused, {all} since the start");
            self.fault(now, Kind::Refused, &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_beyond_the_rate_are_counted() {
        let mut log = Log::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let lines = (0..1000).filter_map(|_| log.line(at(1), Kind::Deleted, "x")).count();
        assert_eq!(lines, 10);
        assert_eq!(log.line(at(1), Kind::Neighbour, "y").as_deref(), Some("y"));
        let line = log.line(at(61), Kind::Deleted, "z").unwrap();
        assert_eq!(line, "z; 990 events of this kind before it are not shown");
        assert_eq!(log.line(at(61), Kind::Deleted, "z").as_deref(), Some("z"));
    }
}
