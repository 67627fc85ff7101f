//! Patterns of names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::entry::folders_above;

/// Patterns of names below a folder.
///
/// A pattern with `/` is compared with the whole name, any other with the last part. `*` stays
/// within a part, `**` does not.
#[derive(Clone, Debug)]
pub struct Patterns {
    names: GlobSet,
    last_parts: GlobSet,
}

impl Patterns {
    /// Compiles patterns.
    ///
    /// # Errors
    /// One of them cannot be parsed.
    pub fn new(patterns: &[String]) -> Result<Self, globset::Error> {
        let mut names = GlobSetBuilder::new();
        let mut last_parts = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
            let glob = GlobBuilder::new(pattern).literal_separator(true).build()?;
            if pattern.contains('/') { &mut names } else { &mut last_parts }.add(glob);
        }
        Ok(Self { names: names.build()?, last_parts: last_parts.build()? })
    }

    /// Whether a name matches one of the patterns.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        if self.names.is_empty() && self.last_parts.is_empty() {
            return false;
        }
        let name = Path::new(OsStr::from_bytes(name));
        self.names.is_match(name)
            || name.file_name().is_some_and(|last| self.last_parts.is_match(last))
    }

    /// Whether a name or a folder above it matches.
    #[must_use]
    pub fn covers(&self, name: &[u8]) -> bool {
        self.matches(name) || folders_above(name).any(|folder| self.matches(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_covers_what_is_below_it() {
        let patterns = Patterns::new(&["urgent".into(), "a/*.raw".into(), "b/".into()]).unwrap();
        for name in ["urgent", "urgent/x/y", "x/urgent/y", "a/b.raw", "b/c", "a/b.raw/c"] {
            assert!(patterns.covers(name.as_bytes()), "{name}");
        }
        for name in ["urgently", "c/a/b.raw", "a/x/b.raw", "bb/c"] {
            assert!(!patterns.covers(name.as_bytes()), "{name}");
        }
        assert!(!patterns.matches(b"urgent/x") && !Patterns::new(&[]).unwrap().covers(b"a/b"));
    }
}
