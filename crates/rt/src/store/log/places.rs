//! Places of records in the segments.

use std::collections::{BTreeMap, HashMap};

/// Place of the last entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Length of the whole entry.
    pub(super) len: u32,
}

/// Digits of a number at the end of a key.
const DIGITS: usize = 16;

/// Places of all records. Most keys are a prefix and a number of 16 hexadecimal digits: of these
/// only the number is kept, with one map for each prefix.
#[derive(Debug, Default)]
pub(super) struct Places {
    numbered: BTreeMap<String, HashMap<u64, Place>>,
    others: BTreeMap<String, Place>,
}

/// Splits a key into a prefix and a number, if it is written as [`Places`] would write it.
fn numbered(key: &str) -> Option<(&str, u64)> {
    let (prefix, digits) = key.split_at_checked(key.len().checked_sub(DIGITS)?)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !digits.bytes().all(is_digit) {
        return None;
    }
    Some((prefix, u64::from_str_radix(digits, 16).ok()?))
}

impl Places {
    pub(super) fn get(&self, key: &str) -> Option<Place> {
        match numbered(key) {
            Some((prefix, number)) => self.numbered.get(prefix)?.get(&number).copied(),
            None => self.others.get(key).copied(),
        }
    }

    /// Sets a place, and returns the former one.
    pub(super) fn insert(&mut self, key: &str, place: Place) -> Option<Place> {
        let Some((prefix, number)) = numbered(key) else {
            return self.others.insert(key.to_owned(), place);
        };
        if let Some(places) = self.numbered.get_mut(prefix) {
            return places.insert(number, place);
        }
        self.numbered.insert(prefix.to_owned(), HashMap::from([(number, place)]));
        None
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Place> {
        let Some((prefix, number)) = numbered(key) else { return self.others.remove(key) };
        let places = self.numbered.get_mut(prefix)?;
        let place = places.remove(&number);
        if places.is_empty() {
            self.numbered.remove(prefix);
        } else if places.capacity() > 1024 && places.len() < places.capacity() / 8 {
            places.shrink_to(2 * places.len());
        }
        place
    }

    /// All keys and places, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (String, Place)> + '_ {
        let numbered = self.numbered.iter().flat_map(|(prefix, places)| {
            places.iter().map(move |(number, place)| (format!("{prefix}{number:016x}"), *place))
        });
        numbered.chain(self.others.iter().map(|(key, place)| (key.clone(), *place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_and_without_numbers_are_kept_apart() {
        let keys = [
            "bp-00000000000000ff",
            "bp-00000000000000fF",
            "bp-0000000000000ff",
            "00000000000000ff",
            "bp-clocks",
            "",
            "ü00000000000000ff",
            "ü0000000000000ff",
        ];
        let mut places = Places::default();
        let place = |segment| Place { segment, offset: 1, len: 2 };
        for (number, key) in (0..).zip(keys) {
            assert_eq!(places.insert(key, place(number)), None, "{key}");
        }
        let mut all: Vec<_> = places.iter().collect();
        all.sort_unstable_by_key(|(_, place)| place.segment);
        assert_eq!(all.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), keys);
        for (number, key) in (0..).zip(keys) {
            assert_eq!(places.get(key), Some(place(number)), "{key}");
            assert_eq!(places.insert(key, place(100)), Some(place(number)));
            assert_eq!(places.remove(key), Some(place(100)));
            assert_eq!((places.remove(key), places.get(key)), (None, None), "{key}");
        }
        assert_eq!(places.iter().count(), 0);
    }
}
