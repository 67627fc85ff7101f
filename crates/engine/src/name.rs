//! File names that cannot leave the place they are meant for.

use std::fmt;

use thiserror::Error;

/// Which of a store's two places a file lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// What users and peers see: the entity's root.
    Files,
    /// The engine's own working files; no peer can name them.
    Spool,
}

/// A relative file name without any way up: what a store opens below one of its areas.
///
/// A store must still refuse symbolic links that lead out; that needs the file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    area: Area,
    path: String,
}

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing is left of the name.
    #[error("the name is empty")]
    Empty,
    /// It starts at the root of the file system.
    #[error("the name is absolute; give one relative to the root")]
    Absolute,
    /// It has a part `..`.
    #[error("the name has a part \"..\"")]
    Parent,
    /// It holds a NUL, another control character or a backslash.
    #[error("the name holds a control character or a backslash")]
    Character,
    /// It is longer than 4,096 bytes, or a part is longer than 255.
    #[error("the name is too long")]
    TooLong,
    /// It lies in the place where the store keeps its working files.
    #[error("the name is reserved for working files")]
    Reserved,
}

impl FileName {
    /// The directory below the root where stores on a real file system keep [`Area::Spool`].
    pub const SPOOL_DIRECTORY: &str = ".slowlight";

    /// A name below the entity's root, as a user or a peer gave it. Empty parts and `.` vanish.
    ///
    /// # Errors
    /// Any name that could mean something outside the root; see [`NameError`].
    pub fn file(path: &str) -> Result<Self, NameError> {
        let path = normalised(path)?;
        if path.split('/').next() == Some(Self::SPOOL_DIRECTORY) {
            return Err(NameError::Reserved);
        }
        Ok(Self { area: Area::Files, path })
    }

    /// A working file's name.
    ///
    /// # Errors
    /// The same as [`FileName::file`], but for [`NameError::Reserved`].
    pub fn spool(path: &str) -> Result<Self, NameError> {
        Ok(Self { area: Area::Spool, path: normalised(path)? })
    }

    /// The root directory itself, to list it.
    #[must_use]
    pub fn root() -> Self {
        Self { area: Area::Files, path: String::new() }
    }

    /// The place it lives in.
    #[must_use]
    pub fn area(&self) -> Area {
        self.area
    }

    /// The name below that place, parts joined by `/`; empty for the root itself.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
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
        ] {
            assert_eq!(FileName::file(name), Err(error), "{name:?}");
        }
        assert_eq!(FileName::file(&"x".repeat(256)), Err(NameError::TooLong));
        assert_eq!(FileName::file("./a//b/./..c").unwrap().path(), "a/b/..c");
        assert_eq!(FileName::spool("rx-1").unwrap().to_string(), ".slowlight/rx-1");
    }
}
