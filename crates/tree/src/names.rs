//! Names of packs and of files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use engine::FileName;

/// Ending of every pack's name.
const ENDING: &str = ".slowlight.tar";
/// Longest part of a name that file systems accept.
pub(crate) const PART_MAX: usize = 255;

/// Name of a pack: `LABEL.SET.NUMBER.slowlight.tar`, with the set in 16 hexadecimal digits.
///
/// Characters of the label that a receiver may refuse become `_`, and a long label is cut.
#[must_use]
pub fn pack_name(label: &str, set: u64, number: u32) -> String {
    let rest = format!(".{set:016x}.{number}{ENDING}");
    let is_refused = |c: char| c.is_control() || matches!(c, '/' | '\\');
    let mut name = String::new();
    for c in label.chars() {
        let c = if is_refused(c) { '_' } else { c };
        if name.len() + c.len_utf8() + rest.len() > PART_MAX {
            break;
        }
        name.push(c);
    }
    if name.is_empty() {
        name.push('_');
    }
    name + &rest
}

/// Whether a file has the name of a pack, in any folder.
#[must_use]
pub fn is_pack(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let Some(rest) = last.strip_suffix(ENDING) else { return false };
    let Some((rest, number)) = rest.rsplit_once('.') else { return false };
    let Some((label, set)) = rest.rsplit_once('.') else { return false };
    let is_number = number.parse::<u32>().is_ok_and(|value| value.to_string() == number);
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    let is_set = set.len() == 16 && set.bytes().all(is_digit);
    is_number && is_set && !label.is_empty()
}

/// Name with a number, cut between characters if it would be too long.
pub(crate) fn numbered(name: &[u8], number: u64) -> Vec<u8> {
    let ending = format!(".~{number}~");
    let mut name = name.to_vec();
    let is_continuation = |byte: Option<&u8>| byte.is_some_and(|byte| byte & 0xc0 == 0x80);
    while name.len() + ending.len() > PART_MAX {
        while is_continuation(name.last()) {
            name.pop();
        }
        name.pop();
    }
    name.extend_from_slice(ending.as_bytes());
    name
}

/// Whether a name has a number as [`numbered`] adds it.
pub(crate) fn is_numbered(name: &[u8]) -> bool {
    let Some(name) = name.strip_suffix(b"~") else { return false };
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let before = name.get(..name.len() - digits).unwrap_or_default();
    digits > 0 && before.ends_with(b".~")
}

/// Whether the name is in the folder of working files at the top of a receiver's folder. Some file
/// systems are case-insensitive.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    first.eq_ignore_ascii_case(FileName::SPOOL_DIRECTORY.as_bytes())
}

/// A name as a path.
pub(crate) fn as_path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_label_set_and_number() {
        let name = pack_name("photos", 0x1234, 7);
        assert_eq!(name, "photos.0000000000001234.7.slowlight.tar");
        assert!(is_pack(&name));
        assert!(is_pack(&format!("from-rover/{name}")));
    }

    #[test]
    fn other_names_are_no_packs() {
        for name in [
            "",
            "photos.tar",
            ".slowlight.tar",
            "photos.slowlight.tar",
            "photos.1.slowlight.tar",
            ".0000000000001234.7.slowlight.tar",
            "photos.0000000000001234.07.slowlight.tar",
            "photos.0000000000001234.+7.slowlight.tar",
            "photos.000000000000123G.7.slowlight.tar",
            "photos.00000000000012AB.7.slowlight.tar",
            "photos.0000000000001234.4294967296.slowlight.tar",
            "photos.0000000000001234.7.slowlight.tar.gz",
            "photos.0000000000001234.7.slowlight.tar/x",
        ] {
            assert!(!is_pack(name), "{name}");
        }
    }

    #[test]
    fn numbers_are_recognised() {
        assert!(is_numbered(&numbered(b"a/b", 1)) && is_numbered(&numbered(b"", 120)));
        for name in ["", "~", "a~", "a.~~", "a.~x~", "a~1~", "a.~1", "a.1~"] {
            assert!(!is_numbered(name.as_bytes()), "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_label_gives_a_name_that_stores_accept(
            label in any::<String>(),
            repeat in 0_usize..40,
            set in any::<u64>(),
            number in any::<u32>(),
        ) {
            let name = pack_name(&label.repeat(repeat), set, number);
            prop_assert!(name.len() <= PART_MAX);
            prop_assert!(is_pack(&name));
            let accepted = FileName::file(&name);
            prop_assert_eq!(accepted.map(|name| name.path().len()), Ok(name.len()));
        }
    }
}
