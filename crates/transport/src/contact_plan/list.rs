//! A list of the contacts of one path: a line each.

use engine::Time;

use super::malformed;
use super::times::Base;
use crate::text::SpecError;

/// Reads the contacts of one path: lines like `2026-11-22T08:00:00Z, 2026-11-22T08:08:00Z` or
/// `10 s, 490 s`, with the begin and the end of each. Empty lines and those after `#` are skipped.
///
/// # Errors
///
/// Line and remedy, if a line is no contact.
pub fn read_list(text: &str, origin: &str, base: Base) -> Result<Vec<[Time; 2]>, SpecError> {
    let mut list = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| malformed(origin, format!("line {number}: {why}"));
        let (begin, end) = line.split_once(',').ok_or_else(|| {
            let example = "2026-11-22T08:00:00Z, 2026-11-22T08:08:00Z";
            wrong(format!("write the begin and the end of a contact, like \"{example}\""))
        })?;
        let moment = |text: &str| base.parse(text.trim()).map_err(wrong);
        list.push([moment(begin)?, moment(end)?]);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_line_is_a_contact() {
        let base = Base { zero: UNIX_EPOCH, epoch: UNIX_EPOCH + Duration::from_secs(1000) };
        let text = "# passes\n\n10 s, 1 min\n1970-01-01T01:00:00Z,  1970-01-01T01:08:00Z\n";
        let list = read_list(text, "passes.txt", base).unwrap();
        assert_eq!(list, [[1010, 1060], [3600, 4080]].map(|it| it.map(Time::from_secs)));
        for (wrong, place) in
            [("10 s", "line 1"), ("\n10 s, x", "line 2"), ("1 s,2 s,3 s", "2 s,3")]
        {
            let error = read_list(wrong, "passes.txt", base).unwrap_err().to_string();
            assert!(error.contains("passes.txt") && error.contains(place), "{error}");
        }
    }
}
