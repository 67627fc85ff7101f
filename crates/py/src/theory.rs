//! Formulas of `lab::theory`, as functions of numbers in SI units.

use lab::theory::{self, Transfer};
use pyo3::prelude::*;

/// Seconds to delivery of `packets` packets of `busy_s` seconds each, with every loss known at
/// once: D + K·Tp / (1 − p).
#[pyfunction]
pub(crate) fn ideal_s(packets: f64, busy_s: f64, delay_s: f64, p: f64) -> f64 {
    Transfer { packets, busy: busy_s, delay: delay_s, p }.bound()
}

/// Seconds to delivery with reports after the last packet of each round.
#[pyfunction]
pub(crate) fn deferred_nak_s(packets: f64, busy_s: f64, delay_s: f64, p: f64) -> f64 {
    Transfer { packets, busy: busy_s, delay: delay_s, p }.deferred_nak()
}

/// Seconds to delivery with a report as soon as a gap is detected.
#[pyfunction]
pub(crate) fn immediate_nak_s(packets: f64, busy_s: f64, delay_s: f64, p: f64) -> f64 {
    Transfer { packets, busy: busy_s, delay: delay_s, p }.immediate_nak()
}

/// Seconds to delivery with an ideal erasure code and no return link, complete with `probability`.
#[pyfunction]
pub(crate) fn coded_s(packets: f64, busy_s: f64, delay_s: f64, p: f64, probability: f64) -> f64 {
    Transfer { packets, busy: busy_s, delay: delay_s, p }.coded(probability)
}

/// Rounds until `packets` packets have arrived, when each round repeats the missing ones.
#[pyfunction]
pub(crate) fn expected_rounds(packets: f64, p: f64) -> f64 {
    theory::expected_rounds(packets, p)
}

/// Payload in bits that is most efficient under bit errors.
#[pyfunction]
pub(crate) fn best_payload_bits(overhead_bits: f64, ber: f64) -> f64 {
    theory::best_payload_bits(overhead_bits, ber)
}

/// Transmissions per packet until each of `receivers` receivers has it.
#[pyfunction]
pub(crate) fn multicast_transmissions(receivers: f64, p: f64) -> f64 {
    theory::multicast_transmissions(receivers, p)
}

/// Losses of the worst of `receivers` receivers in a block of `packets` packets.
#[pyfunction]
pub(crate) fn multicast_worst_losses(receivers: f64, packets: u32, p: f64) -> f64 {
    theory::multicast_worst_losses(receivers, packets, p)
}

/// Bits per second of a window-limited TCP connection.
#[pyfunction]
pub(crate) fn window_bps(window_bytes: f64, rtt_s: f64) -> f64 {
    theory::tcp_window_limited(window_bytes, rtt_s)
}

/// Bits per second of TCP Reno under random loss.
#[pyfunction]
pub(crate) fn reno_bps(mss_bytes: f64, rtt_s: f64, p: f64) -> f64 {
    theory::tcp_reno(mss_bytes, rtt_s, p)
}
