//! Reason why a receiver cannot store a file, the same for all protocols.

use engine::{EffectError, NameError};
use wire::named_codes;

named_codes! {
    /// Reason why a receiver cannot store a file. NORM and LTP send the number, CFDP the text;
    /// Saratoga has status codes for most.
    StoreRefusal(u8, "reason {}") {
        /// Any other error of the store.
        Failed = 0, "its store failed";
        /// The store is full.
        NoSpace = 1, "no space left";
        /// The system, or the receiver's settings, forbid it.
        NotAllowed = 2, "not allowed";
        /// The folder of the name does not exist.
        NoFolder = 3, "no such folder";
        /// The name leads out of the root, or has characters that are not allowed.
        NameRefused = 4, "the name is refused";
        /// The name, or a part of it, is longer than the store allows.
        NameTooLong = 5, "the name is too long";
        /// A file, or a folder, has this name.
        Exists = 6, "the name is taken";
    }
}

impl StoreRefusal {
    const ALL: [Self; 7] = [
        Self::Failed,
        Self::NoSpace,
        Self::NotAllowed,
        Self::NoFolder,
        Self::NameRefused,
        Self::NameTooLong,
        Self::Exists,
    ];

    /// Reason with this text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.to_string() == text)
    }
}

impl From<&EffectError> for StoreRefusal {
    fn from(error: &EffectError) -> Self {
        match error {
            EffectError::NoSpace => Self::NoSpace,
            EffectError::NotAllowed => Self::NotAllowed,
            EffectError::NotFound => Self::NoFolder,
            EffectError::NameTooLong => Self::NameTooLong,
            // A folder has the name of the file, or a file that of a folder.
            EffectError::Exists | EffectError::WrongKind | EffectError::NotEmpty => Self::Exists,
            EffectError::Changed | EffectError::Failed(_) => Self::Failed,
        }
    }
}

impl From<&NameError> for StoreRefusal {
    fn from(error: &NameError) -> Self {
        match error {
            NameError::TooLong => Self::NameTooLong,
            NameError::Empty
            | NameError::Absolute
            | NameError::Parent
            | NameError::Character
            | NameError::Reserved => Self::NameRefused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_numbers_and_texts() {
        for (code, reason) in StoreRefusal::ALL.into_iter().enumerate() {
            assert_eq!(StoreRefusal::from_code(code as u8), reason);
            assert_eq!(StoreRefusal::from_text(&reason.to_string()), Some(reason));
        }
        assert_eq!(StoreRefusal::from_code(77), StoreRefusal::Other(77));
        assert_eq!(StoreRefusal::from_text("a text of another implementation"), None);
    }
}
