//! Times as directory entries have them: seconds since the year 2000 (draft-wood-tsvwg-saratoga-22 §5).

/// The beginning of 2000 in seconds since 1970, and the 22 leap seconds that the draft counts.
const EPOCH: u64 = 946_684_800 + 22;

/// Seconds since 1970 as an entry has them; 0 for what it cannot say.
pub(crate) fn to_wire(modified: Option<u64>) -> u32 {
    let since = modified.and_then(|modified| modified.checked_sub(EPOCH));
    since.and_then(|since| u32::try_from(since).ok()).unwrap_or(0)
}

/// The same the other way round; a peer that does not know says 0.
pub(crate) fn from_wire(seconds: u32) -> Option<u64> {
    (seconds != 0).then(|| u64::from(seconds) + EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_begin_with_the_year_2000() {
        assert_eq!(to_wire(Some(946_684_823)), 1);
        assert_eq!(from_wire(1), Some(946_684_823));
        for unknown in [None, Some(0), Some(EPOCH), Some(u64::MAX)] {
            assert_eq!(to_wire(unknown), 0, "{unknown:?}");
        }
        assert_eq!(from_wire(0), None);
    }
}
