//! Sequence numbers: 32 bits on the wire, 64 bits here.
//!
//! A connection counts its bytes from its initial sequence number plus 2^32, so that a number
//! never wraps and never falls below zero, and its lower half is what goes on the wire.

/// Start of a connection with initial sequence number `initial`.
pub(crate) fn begin(initial: u32) -> u64 {
    1 << 32 | u64::from(initial)
}

/// Number on the wire.
pub(crate) fn wire(at: u64) -> u32 {
    at as u32
}

/// Number with the wire form `wire` that is nearest to `near`: within 2^31 of it.
pub(crate) fn expand(near: u64, wire: u32) -> u64 {
    let distance = wire.wrapping_sub(near as u32).cast_signed();
    near.wrapping_add_signed(i64::from(distance))
}

/// Whether a timestamp is older than another (RFC 7323 §5.2).
pub(crate) fn is_older(value: u32, than: u32) -> bool {
    value.wrapping_sub(than).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_wrap_on_the_wire_only() {
        let start = begin(u32::MAX - 1);
        assert_eq!(wire(start + 5), 3);
        assert_eq!(expand(start, 3), start + 5);
        assert_eq!(expand(start + 5, u32::MAX), start + 1);
        assert_eq!(expand(begin(0), u32::MAX), begin(0) - 1);
        assert!(is_older(u32::MAX, 2) && !is_older(2, u32::MAX) && !is_older(7, 7));
    }

    proptest! {
        #[test]
        fn near_sequence_numbers_round_trip(initial: u32, at in 0..1_u64 << 40, by in -(1_i64 << 31)..1 << 31) {
            let near = begin(initial) + at;
            let other = near.wrapping_add_signed(by);
            prop_assert_eq!(expand(near, wire(other)), other);
        }
    }
}
