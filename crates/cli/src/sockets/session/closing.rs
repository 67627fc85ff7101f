//! End of a receiver of one file: it stays until its sender has received the last reply.

use std::time::Duration;

use engine::Time;
use transport::Transport;

/// Silence of a sender that does not confirm the last reply. Without that reply it repeats its
/// request, first after one second.
const UNCONFIRMED: Duration = Duration::from_millis(2500);

/// Time after which a receiver leaves although messages still arrive, besides four silences.
/// Senders to receivers without return link ignore replies.
const STAY_MAX: Duration = Duration::from_secs(60);

/// End of a receiver of one file.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Time of the end of the first file.
    since: Option<Time>,
    /// Time of the last message from a peer.
    received_at: Time,
    /// Number of messages up to then.
    received: u64,
}

impl Closing {
    /// Begins at the end of the first file; a repeated end counts as a message.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.received_at = now;
    }

    /// Begins again at the end of a file that others follow.
    pub(super) fn restart(&mut self, now: Time) {
        self.since = Some(now);
        self.received_at = now;
    }

    /// Returns whether the receiver may leave: no peer needs another reply, or all were silent for
    /// long enough. `least` is the minimum silence, `light` the one-way light time.
    pub(super) fn check(
        &mut self,
        now: Time,
        transport: &dyn Transport,
        least: Duration,
        light: Duration,
    ) -> bool {
        let Some(since) = self.since else { return false };
        let received = transport.counters().datagrams.map_or(0, |(_, received)| received);
        if std::mem::replace(&mut self.received, received) != received {
            self.received_at = now;
        }
        let silence = transport.silence().unwrap_or(UNCONFIRMED).max(least);
        if silence.is_zero() {
            return true;
        }
        let silence = silence + 4 * light;
        now >= (self.received_at + silence).min(since + STAY_MAX + 4 * silence)
    }
}
