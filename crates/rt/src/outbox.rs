//! Batch that a driver pulled from its engine and has not sent yet.

use engine::{Engine, PathId, Time, Transmit, TxBuf};

use crate::lateness::Observed;

/// One batch, pulled from an engine and not completely sent. Nothing more is pulled meanwhile.
#[derive(Debug)]
pub(crate) struct Outbox {
    tx: TxBuf,
    held: Option<Held>,
}

/// A waiting batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) transmit: Transmit,
    /// Number of bytes of the batch that were sent.
    pub(crate) sent: usize,
    /// Earliest time to send: the batch is not due, or the device's queue was full.
    pub(crate) until: Time,
    /// Whether the socket was full.
    pub(crate) is_blocked: bool,
}

impl Outbox {
    /// Returns an empty outbox whose batches are as long as `tx` allows.
    pub(crate) fn new(tx: TxBuf) -> Self {
        Self { tx, held: None }
    }

    /// Takes the batch to send at `now`: the waiting one, or the engine's next.
    pub(crate) fn due<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Time,
        observed: &mut Observed,
    ) -> Option<Held> {
        if let Some(held) = &self.held {
            if held.until > now {
                return None;
            }
            observed.done(now, held.until);
            return self.held.take();
        }
        self.tx.clear();
        let transmit = engine.poll_transmit(now, &mut self.tx)?;
        let held = Held { transmit, sent: 0, until: transmit.not_before, is_blocked: false };
        if held.until > now {
            self.held = Some(held);
            return None;
        }
        Some(held)
    }

    /// Keeps the rest of a batch.
    pub(crate) fn keep(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// Returns the waiting batch.
    pub(crate) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Takes the waiting batch, whether or not it is due.
    pub(crate) fn take_held(&mut self) -> Option<Held> {
        self.held.take()
    }

    /// Allows a batch that the socket refused to be sent again.
    pub(crate) fn unblock(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_blocked = false;
        }
    }

    /// Whether a batch for this path waits.
    pub(crate) fn holds(&self, path: PathId) -> bool {
        self.held.is_some_and(|held| held.transmit.path == path)
    }

    /// Takes the waiting batch, if it is for this path.
    pub(crate) fn take(&mut self, path: PathId) -> Option<Held> {
        self.held.take_if(|held| held.transmit.path == path)
    }

    /// Returns the buffer with the batch pulled last.
    pub(crate) fn tx(&self) -> &TxBuf {
        &self.tx
    }

    /// Returns the bytes of the batch pulled last.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.tx.bytes()
    }
}
