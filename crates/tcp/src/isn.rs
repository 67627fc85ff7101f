//! Unpredictable numbers: initial sequence numbers (RFC 6528), timestamp offsets, and SYN cookies
//! (RFC 4987 §3.6).

use std::net::IpAddr;

use engine::{Rng, Time};
use sha2::{Digest as _, Sha256};

use super::connection::Offer;
use super::packet::Tuple;

/// Segment sizes that a cookie can encode.
const SIZES: [u16; 8] = [536, 1220, 1300, 1360, 1440, 1452, 1460, 8948];

/// Seconds per cookie time unit, and validity in units.
const UNIT_SECONDS: u64 = 64;
const UNITS: u64 = 2;

/// Bits of a timestamp that hold the data for which a cookie has no room.
const OPTION_BITS: u32 = 0x3f;
/// Shift value for no window scaling.
const NO_SCALE: u32 = 15;

/// Secret key of a stack.
#[derive(Debug)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut key = [0; 32];
        rng.fill(&mut key);
        Self(key)
    }

    fn hash(&self, tuple: Tuple, purpose: u8, more: [u64; 2]) -> u64 {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update([purpose]);
        for end in [tuple.local, tuple.remote] {
            match end.ip() {
                IpAddr::V4(address) => hash.update(address.octets()),
                IpAddr::V6(address) => hash.update(address.octets()),
            }
            hash.update(end.port().to_be_bytes());
        }
        more.into_iter().for_each(|word| hash.update(word.to_be_bytes()));
        let digest = hash.finalize();
        digest.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Initial sequence number: a clock of 4 µs plus a number specific to the connection.
    pub(crate) fn initial(&self, now: Time, tuple: Tuple) -> u32 {
        let clock = (now.as_nanos() / 4000) as u32;
        clock.wrapping_add(self.hash(tuple, 1, [0; 2]) as u32)
    }

    /// Offset of a connection's timestamp clock.
    pub(crate) fn stamp_offset(&self, tuple: Tuple) -> u32 {
        self.hash(tuple, 2, [0; 2]) as u32
    }

    fn mark(&self, tuple: Tuple, sequence: u32, unit: u64, size: u32) -> u32 {
        let more = [u64::from(sequence) << 8 | u64::from(size), unit];
        self.hash(tuple, 3, more) as u32 & 0xff_ffff
    }

    /// SYN cookie: initial sequence number for a SYN with `sequence` and segments of `mss`.
    pub(crate) fn cookie(&self, now: Time, tuple: Tuple, sequence: u32, mss: u16) -> u32 {
        let unit = now.as_nanos() / 1_000_000_000 / UNIT_SECONDS;
        let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0) as u32;
        let mark = self.mark(tuple, sequence, unit, size);
        (unit as u32 & 0x1f) << 27 | size << 24 | mark
    }

    /// Segment size in a returned cookie, if it is valid and recent.
    pub(crate) fn open(&self, now: Time, tuple: Tuple, sequence: u32, cookie: u32) -> Option<u16> {
        let unit = now.as_nanos() / 1_000_000_000 / UNIT_SECONDS;
        let size = cookie >> 24 & 7;
        let made = (0..=UNITS.min(unit)).map(|age| unit - age);
        let made = made.into_iter().find(|made| *made as u32 & 0x1f == cookie >> 27)?;
        let right = self.mark(tuple, sequence, made, size) == cookie & 0xff_ffff;
        right.then(|| SIZES[size as usize])
    }
}

/// Timestamp of a cookie: the clock's, with its lower bits replaced by the negotiated options, and
/// not ahead of the clock.
pub(crate) fn stamp_with(stamp: u32, offer: &Offer) -> u32 {
    let scale = offer.scale.map_or(NO_SCALE, u32::from);
    let bits = scale | u32::from(offer.sack) << 4 | u32::from(offer.ecn) << 5;
    let value = stamp & !OPTION_BITS | bits;
    if value.wrapping_sub(stamp).cast_signed() > 0 {
        value.wrapping_sub(OPTION_BITS + 1)
    } else {
        value
    }
}

/// Negotiated options in an echoed timestamp.
pub(crate) fn offer_in(echo: u32, mss: u16, stamp: u32) -> Offer {
    let scale = echo & 0xf;
    Offer {
        mss: Some(mss),
        scale: (scale != NO_SCALE).then_some(scale as u8),
        stamp: Some(stamp),
        sack: echo & 0x10 != 0,
        ecn: echo & 0x20 != 0,
        scps: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        let local = ([10, 0, 0, 1], 80).into();
        Tuple { local, remote: ([10, 0, 0, 2], port).into() }
    }

    fn secret(seed: u64) -> Secret {
        Secret::new(&mut Rng::new(seed, "secret"))
    }

    #[test]
    fn numbers_rise_with_the_clock_and_differ_between_connections() {
        let (secret, other) = (secret(1), secret(2));
        let (zero, second) = (Time::ZERO, Time::from_secs(1));
        let rise = secret.initial(second, tuple(5)).wrapping_sub(secret.initial(zero, tuple(5)));
        assert_eq!(rise, 250_000);
        assert_ne!(secret.initial(zero, tuple(5)), secret.initial(zero, tuple(6)));
        assert_ne!(secret.initial(zero, tuple(5)), other.initial(zero, tuple(5)));
    }

    #[test]
    fn cookies_are_valid_for_their_connection_and_time() {
        let secret = secret(1);
        let now = Time::from_secs(1000);
        let cookie = secret.cookie(now, tuple(5), 77, 1459);
        assert_eq!(secret.open(now, tuple(5), 77, cookie), Some(1452));
        let later = |seconds| {
            secret.open(now + std::time::Duration::from_secs(seconds), tuple(5), 77, cookie)
        };
        assert_eq!((later(120), later(200), later(64 * 32)), (Some(1452), None, None));
        assert_eq!(secret.open(now, tuple(6), 77, cookie), None);
        assert_eq!(secret.open(now, tuple(5), 78, cookie), None);
        assert_eq!(secret.open(now, tuple(5), 77, cookie ^ 1 << 24), None);
        assert_eq!(secret.cookie(now, tuple(5), 77, 100) >> 24 & 7, 0);
    }

    #[test]
    fn time_stamps_carry_the_options_and_do_not_run_ahead() {
        for stamp in [0, 63, 64, 1_000_000_007, u32::MAX] {
            for (scale, sack, ecn) in [(None, false, true), (Some(7), true, false)] {
                let offer = Offer { mss: Some(9), scale, stamp: Some(3), sack, ecn, scps: None };
                let value = stamp_with(stamp, &offer);
                assert!(stamp.wrapping_sub(value) <= 64, "{stamp} {value}");
                assert_eq!(offer_in(value, 9, 3), offer);
            }
        }
    }
}
