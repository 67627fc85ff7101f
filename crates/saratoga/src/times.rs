//! Times of directory entries: seconds since the year 2000 (draft-wood-tsvwg-saratoga-22 §5).

/// Beginning of 2000 in seconds since 1970, with the 22 leap seconds that the draft counts.
const EPOCH: u64 = 946_684_800 + 22;

/// Converts seconds since 1970; 0 for times it cannot express.
pub(crate) fn to_wire(modified: Option<u64>) -> u32 {
    let since = modified.and_then(|modified| modified.checked_sub(EPOCH));
    since.and_then(|since| u32::try_from(since).ok()).unwrap_or(0)
}

/// Converts to seconds since 1970; 0 means unknown.
pub(crate) fn from_wire(seconds: u32) -> Option<u64> {
    (seconds != 0).then(|| u64::from(seconds) + EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_start_in_the_year_2000() {
        assert_eq!(to_wire(Some(946_684_823)), 1);
        assert_eq!(from_wire(1), Some(946_684_823));
        for unknown in [None, Some(0), Some(EPOCH), Some(u64::MAX)] {
            assert_eq!(to_wire(unknown), 0, "{unknown:?}");
        }
        assert_eq!(from_wire(0), None);
    }
}
