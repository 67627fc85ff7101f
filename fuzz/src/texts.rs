//! Texts from users and peers: refused or parsed, never a panic.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use engine::FileName;
use transport::contact_plan::{self, Base, Format};
use transport::quantity::{Probability, Rate, Size, Span};

/// Parses a file name from a peer.
///
/// # Panics
/// If an accepted name could lead out of its root.
pub fn file_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(name) = FileName::file(text) else { return };
    assert!(!name.path().starts_with('/') && !name.path().is_empty());
    for part in name.path().split('/') {
        assert!(!matches!(part, "" | "." | "..") && !part.contains('\0'), "{name}");
    }
    assert!(!name.path().starts_with(".slowlight/") && name.path() != ".slowlight");
    assert_eq!(FileName::file(name.path()).as_ref(), Ok(&name));
}

/// Formats of contact plans.
const FORMATS: [Format; 5] =
    [Format::Toml, Format::Ion, Format::Hdtn, Format::TvgUtil, Format::Asabr];

/// Parses a contact plan, in every format, and writes it in every format.
pub fn contact_plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let base = Base::from_epoch(std::time::UNIX_EPOCH);
    for format in FORMATS {
        let Ok(read) = contact_plan::read(format, text, "fuzz", base) else { continue };
        for format in FORMATS {
            drop(contact_plan::write(format, &read.plan));
        }
    }
    drop(contact_plan::read_changes(text, "fuzz", base));
}

/// Parses a quantity with its unit.
///
/// # Panics
/// If a quantity does not survive printing.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    survives::<Rate>(text);
    survives::<Span>(text);
    survives::<Size>(text);
    survives::<Probability>(text);
}

fn survives<Q: FromStr<Err: Debug> + Display + PartialEq + Debug>(text: &str) {
    let Ok(quantity) = text.parse::<Q>() else { return };
    let printed = quantity.to_string();
    let again: Q = printed.parse().expect("printed values parse");
    assert_eq!(again, quantity, "{text:?} printed as {printed:?}");
}
