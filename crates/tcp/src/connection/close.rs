//! Closing: by the user, the peer, a reset, or silence (RFC 9293 §3.6, §3.10.4, §3.10.5).

use engine::Time;

use super::{Connection, Timers};
use crate::indication::{CloseReason, State};

impl Connection {
    /// Sends short segments at once, or applies [`Options::nagle`](crate::Options::nagle).
    pub(crate) fn set_no_delay(&mut self, on: bool) {
        self.options.nagle = !on;
    }

    /// Closes the sending half.
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

    /// Closes both halves for the user. Returns `true` if unread data exists or arrives before the
    /// peer's FIN: the peer then gets a reset (RFC 9293 §3.6.1).
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

    /// Processes the acknowledgment of the FIN.
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

    /// Processes the peer's FIN once all its data has arrived.
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

    /// Enters TIME-WAIT. The stack remembers the numbers for a while in less memory; the last
    /// acknowledgment is still to be sent.
    fn enter_time_wait(&mut self) {
        self.quiet();
        self.state = State::TimeWait;
    }

    /// Whether the connection is in TIME-WAIT.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == State::TimeWait
    }

    /// Ends a connection that the stack remembers in TIME-WAIT.
    pub(crate) fn waits_elsewhere(&mut self) {
        self.state = State::Closed;
        self.acks.stop();
        self.events.closed = Some(CloseReason::Graceful);
    }

    /// Ends the connection.
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

    /// Stops sending and all timers.
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
