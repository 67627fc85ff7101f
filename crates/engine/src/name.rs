//! File names that cannot leave their root.

use std::fmt;

use thiserror::Error;

/// Place in a store where a file lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// Files visible to users and peers: the entity's root.
    Files,
    /// The engine's own working files; no peer can name them.
    Spool,
}

/// A relative file name without `..`, opened by a store below one of its areas.
///
/// A store must still refuse symbolic links that lead out; that needs the file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    area: Area,
    path: String,
}

/// Reason why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// No part is left after normalisation.
    #[error("the name is empty")]
    Empty,
    /// Starts at the root of the file system.
    #[error("the name is absolute; give one relative to the root")]
    Absolute,
    /// Contains a part `..`.
    #[error("the name has a part \"..\"")]
    Parent,
    /// Contains a NUL, another control character or a backslash.
    #[error("the name holds a control character or a backslash")]
    Character,
    /// Longer than 4,096 bytes, or a part longer than 255.
    #[error("the name is too long")]
    TooLong,
    /// Lies in the directory where the store keeps its working files.
    #[error("the name is reserved for working files")]
    Reserved,
}

impl FileName {
    /// Directory below the root where stores on a real file system keep [`Area::Spool`].
    pub const SPOOL_DIRECTORY: &str = ".slowlight";

    /// Creates a name below the entity's root from a user's or peer's path. Drops empty parts and
    /// `.`.
    ///
    /// # Errors
    /// Any name that could mean something outside the root; see [`NameError`].
    pub fn file(path: &str) -> Result<Self, NameError> {
        let path = normalised(path)?;
        // Some file systems are case-insensitive.
        let first = path.split('/').next().unwrap_or_default();
        if first.eq_ignore_ascii_case(Self::SPOOL_DIRECTORY) {
            return Err(NameError::Reserved);
        }
        Ok(Self { area: Area::Files, path })
    }

    /// Creates a working file's name.
    ///
    /// # Errors
    /// As for [`FileName::file`], except [`NameError::Reserved`].
    pub fn spool(path: &str) -> Result<Self, NameError> {
        Ok(Self { area: Area::Spool, path: normalised(path)? })
    }

    /// Returns the root directory itself, to list it.
    #[must_use]
    pub fn root() -> Self {
        Self { area: Area::Files, path: String::new() }
    }

    /// Area it lives in.
    #[must_use]
    pub fn area(&self) -> Area {
        self.area
    }

    /// Name below that area, parts joined by `/`; empty for the root itself.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Directory it lies in; `None` for a name at the top of its area.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.path.rsplit_once('/')?;
        Some(Self { area: self.area, path: parent.to_owned() })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.area {
            Area::Files => f.write_str(&self.path),
            Area::Spool => write!(f, "{}/{}", Self::SPOOL_DIRECTORY, self.path),
        }
    }
}

fn normalised(path: &str) -> Result<String, NameError> {
    if path.starts_with('/') {
        return Err(NameError::Absolute);
    }
    if path.len() > 4096 {
        return Err(NameError::TooLong);
    }
    if path.chars().any(|c| c.is_control() || c == '\\') {
        return Err(NameError::Character);
    }
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(NameError::Parent);
    }
    if parts.iter().any(|part| part.len() > 255) {
        return Err(NameError::TooLong);
    }
    if parts.is_empty() {
        return Err(NameError::Empty);
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_cannot_escape() {
        for (name, error) in [
            ("", NameError::Empty),
            ("./.", NameError::Empty),
            ("/etc/passwd", NameError::Absolute),
            ("..", NameError::Parent),
            ("a/../../b", NameError::Parent),
            ("a\0b", NameError::Character),
            ("a\\..\\b", NameError::Character),
            (".slowlight/x", NameError::Reserved),
            ("./.slowlight", NameError::Reserved),
            (".SlowLight/x", NameError::Reserved),
        ] {
            assert_eq!(FileName::file(name), Err(error), "{name:?}");
        }
        assert_eq!(FileName::file(&"x".repeat(256)), Err(NameError::TooLong));
        assert_eq!(FileName::file("./a//b/./..c").unwrap().path(), "a/b/..c");
        assert_eq!(FileName::spool("rx-1").unwrap().to_string(), ".slowlight/rx-1");
    }

    /// Strings made of characters and parts that make names dangerous.
    fn nasty() -> impl Strategy<Value = String> {
        let parts =
            ["..", ".", "/", "//", "\\", "\0", "a", "b c", ".slowlight", "...", "ü", "~", ""];
        let part = prop_oneof![
            4 => prop::sample::select(parts.to_vec()).prop_map(str::to_owned),
            1 => any::<String>(),
        ];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_name_is_refused_or_stays_below_the_root(name in nasty()) {
            if let Ok(name) = FileName::spool(&name) {
                prop_assert!(Path::new(name.path())
                    .components()
                    .all(|part| matches!(part, Component::Normal(_))));
                // The file system parses the name into the same parts.
                prop_assert_eq!(Path::new(name.path()).components().count(),
                    name.path().split('/').count());
            }
            if let Ok(name) = FileName::file(&name) {
                prop_assert!(!Path::new(name.path()).starts_with(FileName::SPOOL_DIRECTORY));
                prop_assert_eq!(FileName::file(name.path()), Ok(name.clone()));
                let parent = name.parent().map_or_else(String::new, |parent| parent.path().into());
                prop_assert!(name.path().starts_with(&parent));
                prop_assert!(parent.len() < name.path().len());
            }
        }
    }
}
