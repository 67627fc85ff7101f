//! Transmissions of an engine, and the buffer into which the engine writes them.

use crate::{Ecn, PathId, Time};

/// One datagram, or one batch of equal datagrams, ready in a [`TxBuf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub path: PathId,
    /// Bytes in the buffer.
    pub len: usize,
    /// Length of each datagram but the last, which may be shorter. Meaningless for a stream.
    pub segment: usize,
    /// ECN mark to send with it.
    pub ecn: Ecn,
    /// Earliest time to send (pacing); a driver holds the batch and pulls no more until then.
    pub not_before: Time,
}

/// The driver's send buffer.
///
/// It takes what generic segmentation offload can send in one call: datagrams of one size, of
/// which only the last may be shorter. [`TxBuf::push`] refuses anything else, so an engine can
/// offer its next datagram and send the batch when that does not fit.
#[derive(Debug)]
pub struct TxBuf {
    bytes: Vec<u8>,
    len: usize,
    segment: usize,
    segments: usize,
    /// A shorter datagram was pushed, so the batch is complete.
    closed: bool,
    segments_max: usize,
    bytes_max: usize,
}

/// Longest payload of a UDP datagram over IPv4, in bytes: 65,535 − 20 − 8.
pub const DATAGRAM_MAX: usize = 65_507;

impl TxBuf {
    /// Creates a buffer for batches of at most `segments_max` datagrams.
    #[must_use]
    pub fn new(segments_max: usize) -> Self {
        Self::with_limits(segments_max, DATAGRAM_MAX)
    }

    /// Creates a buffer for batches of at most `segments_max` datagrams and `bytes_max` bytes in
    /// total.
    ///
    /// A layer that offers a message path uses such a buffer to pull from the engine above it. The
    /// buffer has one segment of the path's `max`, which may be longer than any UDP datagram.
    #[must_use]
    pub fn with_limits(segments_max: usize, bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            len: 0,
            segment: 0,
            segments: 0,
            closed: false,
            segments_max: segments_max.max(1),
            bytes_max,
        }
    }

    /// Empties the buffer; keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
        self.segment = 0;
        self.segments = 0;
        self.closed = false;
    }

    /// Whether a datagram of `len` bytes can join the batch.
    #[must_use]
    pub fn fits(&self, len: usize) -> bool {
        if self.segments == 0 {
            return len <= self.bytes_max;
        }
        !self.closed
            && self.segments < self.segments_max
            && (1..=self.segment).contains(&len)
            && self.len + len <= self.bytes_max
    }

    /// Returns the longest datagram that can start a batch, or the most bytes of a stream at once.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.bytes_max
    }

    /// Adds a datagram of exactly `len` bytes and returns its slice, of which the caller must write
    /// every byte. `None` when it does not fit the batch (see [`TxBuf::fits`]).
    ///
    /// The slice holds stale content.
    pub fn push(&mut self, len: usize) -> Option<&mut [u8]> {
        if !self.fits(len) {
            return None;
        }
        if self.segments == 0 {
            self.segment = len;
        }
        self.closed = len < self.segment;
        self.segments += 1;
        let start = self.len;
        self.len += len;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        Some(&mut self.bytes[start..self.len])
    }

    /// Returns the batch as one [`Transmit`] to `path`; `None` if nothing was pushed.
    #[must_use]
    pub fn transmit(&self, path: PathId, not_before: Time) -> Option<Transmit> {
        (self.segments > 0).then_some(Transmit {
            path,
            len: self.len,
            segment: self.segment,
            ecn: Ecn::NotEct,
            not_before,
        })
    }

    /// Returns the bytes pushed so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Number of datagrams pushed so far.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Returns the datagrams pushed so far, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let empty = (self.segments == 1 && self.len == 0).then_some(&self.bytes[..0]);
        empty.into_iter().chain(self.bytes().chunks(self.segment.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Receive;

    #[test]
    fn only_the_last_datagram_may_be_shorter() {
        let mut tx = TxBuf::new(64);
        tx.push(100).unwrap().fill(1);
        tx.push(100).unwrap().fill(2);
        assert!(tx.push(101).is_none());
        tx.push(40).unwrap().fill(3);
        assert!(tx.push(40).is_none(), "a shorter datagram ends the batch");
        let transmit = tx.transmit(PathId(7), Time::ZERO).unwrap();
        assert_eq!((transmit.len, transmit.segment), (240, 100));
        assert_eq!(tx.datagrams().map(<[u8]>::len).collect::<Vec<_>>(), [100, 100, 40]);
    }

    #[test]
    fn a_batch_ends_at_its_limits() {
        let mut tx = TxBuf::new(2);
        assert!(tx.push(10).is_some() && tx.push(10).is_some() && tx.push(10).is_none());
        tx.clear();
        assert!(
            tx.is_empty() && tx.push(DATAGRAM_MAX + 1).is_none() && tx.push(DATAGRAM_MAX).is_some()
        );
        assert!(tx.push(1).is_none());
        tx.clear();
        assert!(tx.push(0).is_some() && tx.push(0).is_none());
        assert_eq!(tx.datagrams().count(), 1);
    }

    proptest! {
        #[test]
        fn accepts_only_batches_that_segmentation_can_send(
            lengths in prop::collection::vec(prop_oneof![0..12usize, Just(10), Just(10)], 0..20),
            segments_max in 0..8usize,
            bytes_max in 0..60usize,
        ) {
            let mut tx = TxBuf::with_limits(segments_max, bytes_max);
            let mut taken: Vec<Vec<u8>> = Vec::new();
            for (n, len) in lengths.into_iter().enumerate() {
                let used: usize = taken.iter().map(Vec::len).sum();
                let joins = match (taken.first(), taken.last()) {
                    (Some(first), Some(last)) => {
                        len > 0
                            && len <= first.len()
                            && last.len() == first.len()
                            && taken.len() < segments_max.max(1)
                    }
                    _ => true,
                };
                let expected = joins && used + len <= bytes_max;
                prop_assert_eq!(tx.fits(len), expected);
                let place = tx.push(len);
                prop_assert_eq!(place.is_some(), expected);
                if let Some(place) = place {
                    place.fill(n as u8);
                    taken.push(vec![n as u8; len]);
                }
            }
            let pushed: Vec<_> = tx.datagrams().map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&pushed, &taken);
            prop_assert_eq!(tx.segments(), taken.len());
            if let Some(transmit) = tx.transmit(PathId(1), Time::ZERO) {
                // The receiver splits the batch as the sender assembled it.
                let receive = Receive::datagram(PathId(1), tx.bytes());
                let receive = Receive { stride: transmit.segment, ..receive };
                let parts: Vec<_> = receive.datagrams().map(<[u8]>::to_vec).collect();
                prop_assert_eq!(parts, taken);
            }
        }
    }
}
