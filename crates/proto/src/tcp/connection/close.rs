//! Closing: by the user, by the peer, by a reset, by silence (RFC 9293 §3.6, §3.10.4, §3.10.5).

use engine::Time;

use super::{Connection, Timers};
use crate::tcp::indication::{CloseReason, State};

impl Connection {
    /// Short segments go at once, or wait as [`Options::nagle`](crate::tcp::Options::nagle) says.
    pub(crate) fn set_no_delay(&mut self, on: bool) {
        self.options.nagle = !on;
    }

    /// The user writes no more.
    pub(crate) fn shut_down(&mut self) {
        if self.send.is_finished() {
            return;
        }
        self.send.finish();
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            // The FIN follows when the SYN is acknowledged.
            other => other,
        };
    }

    /// The user writes no more and reads no more. `true` if there was something to read, or comes
    /// before the peer closed: the peer is to be told by a reset (RFC 9293 §3.6.1).
    pub(crate) fn detach(&mut self, now: Time) -> bool {
        self.shut_down();
        self.inbound.detach();
        let unread = self.receive.readable() > 0;
        self.receive.clear();
        if self.state == State::FinWait2 {
            self.timers.linger_at = Some(now + self.rules.fin_wait);
        }
        unread && self.state != State::Closed
    }

    /// The peer has acknowledged the FIN.
    pub(super) fn fin_acknowledged(&mut self, now: Time) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.inbound.is_detached() {
                    self.timers.linger_at = Some(now + self.rules.fin_wait);
                }
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => self.end(CloseReason::Graceful),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait2
            | State::CloseWait
            | State::TimeWait
            | State::Closed => {}
        }
    }

    /// All that the peer wrote is there, and its FIN.
    pub(super) fn peer_finished(&mut self) {
        self.inbound.finish();
        self.acks.hasten();
        self.events.peer_closed = !self.inbound.is_detached();
        match self.state {
            State::SynReceived | State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(),
            State::SynSent
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {}
        }
    }

    /// Both have closed and know it. The stack remembers the numbers for a while, in a smaller
    /// place; the last acknowledgment is still to be sent.
    fn enter_time_wait(&mut self) {
        self.quiet();
        self.state = State::TimeWait;
    }

    /// In TIME-WAIT, when the last acknowledgment has left.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::TimeWait
    }

    /// The connection's numbers are remembered elsewhere.
    pub(crate) fn waits_elsewhere(&mut self) {
        self.state = State::Closed;
        self.acks.stop();
        self.events.closed = Some(CloseReason::Graceful);
    }

    /// It is over.
    pub(crate) fn end(&mut self, reason: CloseReason) {
        if self.state == State::Closed {
            return;
        }
        self.quiet();
        self.state = State::Closed;
        self.acks.stop();
        if reason != CloseReason::Graceful {
            self.receive.clear();
        }
        self.events.closed = Some(reason);
    }

    /// Nothing is sent any more, and no timer runs.
    fn quiet(&mut self) {
        self.send.clear();
        self.timers = Timers::default();
        self.space.suspended = None;
        self.space.marks.clear();
        self.handshake.syn_sent();
        self.losses.stop();
        self.liveness.probe_sent();
        self.events.writable = false;
    }
}
