//! Erasure code of the link layer, over whole frames.

use std::time::Duration;

use engine::Time;

use crate::ConfigError;
use crate::flight::Departure;

/// Maximum frames of a matrix, parity included: the symbols of a code over GF(2^16).
const FRAMES_MAX: u32 = 1 << 16;

/// A systematic erasure code over whole frames. Each matrix of `k` data frames is followed by
/// `n − k` parity frames, as long as its longest data frame. Data frames are not delayed. A frame
/// lost by errors, or cut by an outage, arrives with the parity frame that completes the matrix:
/// as many parity frames have then arrived as data frames were lost (any k of n frames suffice, as
/// for an ideal code). If too few arrive, the lost frames stay lost.
///
/// A matrix with fewer data frames has a proportional number of parity frames, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// Data frames of a matrix.
    pub k: u32,
    /// Data and parity frames of a matrix.
    pub n: u32,
    /// Time after the end of a data frame at which the matrix closes if no other follows.
    pub close: Duration,
}

impl Erasure {
    /// Returns the number of parity frames of a matrix of `data` frames.
    #[must_use]
    pub fn parity(&self, data: u32) -> u32 {
        let parity = u64::from(data) * u64::from(self.n - self.k);
        u32::try_from(parity.div_ceil(u64::from(self.k))).unwrap_or(u32::MAX)
    }

    /// Returns the part of a rate that is left for data frames.
    #[must_use]
    pub fn share(&self, rate_bps: u64) -> u64 {
        let share = u128::from(rate_bps) * u128::from(self.k) / u128::from(self.n);
        u64::try_from(share).unwrap_or(u64::MAX).max(1)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let Self { k, n, close } = *self;
        if 0 < k && k < n && n <= FRAMES_MAX {
            if close.is_zero() { Err(ConfigError::NeverOpen) } else { Ok(()) }
        } else {
            Err(ConfigError::Matrix { k, n })
        }
    }
}

/// Bytes of a frame on the line, and of the packet in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    pub(crate) framed: usize,
    pub(crate) packet: usize,
}

/// The near end's code between two frames. `Copy`, so that lookahead works on a copy.
///
/// A matrix has data frames, or parity frames to send: parity goes before waiting packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoder {
    /// Data frames of the open matrix.
    data: u32,
    /// Longest data frame of the matrix.
    longest: Lengths,
    /// End of the last data frame.
    last: Time,
    /// Parity frames of the closed matrix that have not been sent.
    parity: u32,
    /// Time at which the matrix was closed.
    closed: Time,
}

impl Encoder {
    /// Adds a data frame whose service ends at `end`. Closes the matrix if it is full.
    pub(crate) fn add(&mut self, code: &Erasure, frame: Lengths, end: Time) {
        if self.data == 0 {
            self.longest = Lengths::default();
        }
        self.longest.framed = self.longest.framed.max(frame.framed);
        self.longest.packet = self.longest.packet.max(frame.packet);
        self.data += 1;
        self.last = end;
        if self.data >= code.k {
            self.close(code, end);
        }
    }

    /// Returns the time at which the open matrix closes without another data frame.
    pub(crate) fn deadline(&self, code: Option<&Erasure>) -> Option<Time> {
        code.filter(|_| self.data > 0).map(|code| self.last + code.close)
    }

    /// Closes the open matrix: its parity frames are due.
    pub(crate) fn close(&mut self, code: &Erasure, at: Time) {
        self.parity += code.parity(self.data);
        self.closed = at;
        self.data = 0;
    }

    /// Returns the lengths of the next parity frame, and the time since which it is due.
    pub(crate) fn due(&self) -> Option<(Time, Lengths)> {
        (self.parity > 0).then_some((self.closed, self.longest))
    }

    /// Removes a parity frame that was sent. Returns whether it was the matrix's last one.
    pub(crate) fn sent(&mut self) -> bool {
        self.parity = self.parity.saturating_sub(1);
        self.parity == 0
    }
}

/// The far end's part of a matrix: its lost data frames, with their numbers in flight.
#[derive(Debug)]
pub(crate) struct Matrix<T> {
    lost: Vec<(u64, Departure<T>)>,
    /// Parity frames that arrived.
    arrived: usize,
}

impl<T> Default for Matrix<T> {
    fn default() -> Self {
        Self { lost: Vec::new(), arrived: 0 }
    }
}

impl<T> Matrix<T> {
    /// Keeps a lost data frame.
    pub(crate) fn lose(&mut self, number: u64, departure: Departure<T>) {
        self.lost.push((number, departure));
    }

    /// Notes a parity frame, `arrived` or lost; `last` if no other follows. Returns whether the
    /// lost data frames are recovered; `None` while that is not known.
    pub(crate) fn parity(&mut self, arrived: bool, last: bool) -> Option<bool> {
        self.arrived += usize::from(arrived);
        let whole = self.arrived >= self.lost.len();
        if last {
            self.arrived = 0;
        }
        (!self.lost.is_empty() && (whole || last)).then_some(whole)
    }

    /// Removes the lost data frames, in the order of transmission.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u64, Departure<T>)> {
        self.lost.drain(..)
    }

    /// Returns the number of the first lost data frame.
    pub(crate) fn first(&self) -> Option<u64> {
        self.lost.first().map(|(number, _)| *number)
    }

    pub(crate) fn len(&self) -> usize {
        self.lost.len()
    }

    pub(crate) fn memory(&self) -> usize {
        self.lost.capacity().max(16) * size_of::<(u64, Departure<T>)>()
    }

    /// Releases memory of a matrix that lost many frames.
    pub(crate) fn shrink(&mut self) {
        if self.lost.is_empty() {
            self.lost.shrink_to(16);
        }
    }
}
