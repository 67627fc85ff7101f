//! Quantised numbers: round-trip times, group sizes, rates and loss.
//!
//! Nothing here calls the C library, so every machine computes the same bytes.

use std::time::Duration;

/// Minimum representable round-trip time (RFC 5401 §3.7.4, RTT_MIN).
pub const RTT_MIN: Duration = Duration::from_micros(1);
/// Maximum representable round-trip time (RTT_MAX).
pub const RTT_MAX: Duration = Duration::from_secs(1000);

/// e to the power of -1/13.
const STEP: f64 = 0.925_961_078_642_316;

/// Values up to this one are whole microseconds.
const LINEAR_MAX: usize = 31;

/// Values of the 256 codes, in nanoseconds.
const RTT_NANOS: [u64; 256] = {
    let mut table = [0; 256];
    let mut q = 0;
    while q <= LINEAR_MAX {
        table[q] = (q as u64 + 1) * 1000;
        q += 1;
    }
    // 1000 / exp((255 - q) / 13) seconds, from above.
    let mut nanos = 1e12;
    let mut q = 255;
    while q > LINEAR_MAX {
        table[q] = (nanos + 0.5) as u64;
        nanos *= STEP;
        q -= 1;
    }
    table
};

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Quantises a round-trip time to one byte (RFC 5401 §3.7.4). Below 33 µs: microseconds less 1,
/// rounded down. Above: rounded up to the next step of 8 %; at most [`RTT_MAX`]. Inverts [`rtt`]
/// exactly.
#[must_use]
pub fn quantise_rtt(rtt: Duration) -> u8 {
    let rtt = rtt.clamp(RTT_MIN, RTT_MAX);
    let nanos = rtt.as_nanos() as u64;
    let q = if nanos < 33_000 {
        (nanos / 1000 - 1) as usize
    } else {
        RTT_NANOS.partition_point(|value| *value < nanos)
    };
    u8::try_from(q).unwrap_or(u8::MAX)
}

/// Returns the round-trip time of a byte (RFC 5401 §3.7.4).
#[must_use]
pub const fn rtt(quantised: u8) -> Duration {
    Duration::from_nanos(RTT_NANOS[quantised as usize])
}

/// Quantises a group size to four bits (RFC 5740 §4.2.1). Rounds up, since overestimates cost less
/// than underestimates; at least 10, at most 500 million.
#[must_use]
pub fn quantise_group_size(size: u32) -> u8 {
    let ascending = (0..8).flat_map(|exponent| [exponent, 0x08 | exponent]);
    ascending.into_iter().find(|code| group_size(*code) >= size).unwrap_or(0x0f)
}

/// Returns the group size of four bits: 1 or 5 by the highest bit, times a power of ten.
#[must_use]
pub const fn group_size(quantised: u8) -> u32 {
    let mantissa = if quantised & 0x08 == 0 { 1 } else { 5 };
    mantissa * 10_u32.pow((quantised & 0x07) as u32 + 1)
}

/// Quantises a rate in bytes per second to 16 bits (RFC 5740 §4.2.3.4): 12 bits of mantissa, 4 of
/// a decimal exponent. 32,000 B/s is 0x51f4. Rates not above 0 become 0, and rates below 1 lose
/// digits.
///
/// The formula of the RFC overflows the 12 bits for a mantissa above 9.9988; here it saturates.
#[must_use]
pub fn quantise_rate(bytes_per_second: f64) -> u16 {
    // Also covers NaN.
    if bytes_per_second.is_nan() || bytes_per_second <= 0.0 {
        return 0;
    }
    let above = POWERS_OF_TEN.iter().position(|power| *power > bytes_per_second);
    let exponent = above.unwrap_or(POWERS_OF_TEN.len()).saturating_sub(1);
    let mantissa = bytes_per_second / POWERS_OF_TEN[exponent] * (4096.0 / 10.0) + 0.5;
    // A cast from floating point saturates.
    let mantissa = (mantissa as u16).min(0x0fff);
    mantissa << 4 | exponent as u16
}

/// Returns the rate of 16 bits, in bytes per second.
#[must_use]
pub fn rate(quantised: u16) -> f64 {
    let mantissa = f64::from(quantised >> 4) * (10.0 / 4096.0);
    mantissa * POWERS_OF_TEN[usize::from(quantised & 0x0f)]
}

/// Quantises a loss fraction, 0 to 1, to 16 bits (RFC 5740 §4.2.3.5), rounded down.
#[must_use]
pub fn quantise_loss(fraction: f64) -> u16 {
    // A cast from floating point saturates and converts NaN to 0.
    (fraction * 65_535.0) as u16
}

/// Returns the loss fraction of 16 bits.
#[must_use]
pub fn loss(quantised: u16) -> f64 {
    f64::from(quantised) / 65_535.0
}
