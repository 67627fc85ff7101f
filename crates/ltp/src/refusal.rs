//! Reason why a receiver cannot store a file: extension of this implementation in the header of a
//! cancellation, whose reason codes (RFC 5326 §3.2.4) have none for it. Engines without it ignore
//! the extension (§3.1.4); its tag is from the range for private use.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | [`StoreRefusal`] |

use ::session::StoreRefusal;

use crate::segment::Extensions;

/// Tag of the extension.
const TAG: u8 = 0xe0;

/// Tag and value of the extension.
pub(crate) fn extension(reason: StoreRefusal) -> (u8, Vec<u8>) {
    (TAG, vec![reason.code()])
}

/// Finds the extension among others.
pub(crate) fn find(extensions: Extensions<'_>) -> Option<StoreRefusal> {
    let found = extensions.iter().find(|extension| extension.tag == TAG)?;
    found.value.first().map(|code| StoreRefusal::from_code(*code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Extension;

    #[test]
    fn reasons_round_trip() {
        let (tag, value) = extension(StoreRefusal::NoSpace);
        let fields = [Extension { tag: 0, value: b"?" }, Extension { tag, value: &value }];
        assert_eq!(find(Extensions::new(&fields)), Some(StoreRefusal::NoSpace));
        assert_eq!(find(Extensions::new(&fields[..1])), None);
        assert_eq!(find(Extensions::new(&[Extension { tag, value: b"" }])), None);
    }
}
