//! Socket of a node for applications.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport::text::SpecError;

use crate::http::Access;

/// Groups of this machine (group(5)).
const GROUPS: &str = "/etc/group";

/// A Unix socket: its path, or a table with the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Socket {
    /// Path.
    pub path: PathBuf,
    /// Permissions in octal digits.
    #[serde(default = "mode")]
    pub mode: String,
    /// Group, by name or number; default: that of the process.
    pub group: Option<String>,
}

fn mode() -> String {
    "0600".to_owned()
}

impl Default for Socket {
    fn default() -> Self {
        Self { path: PathBuf::from("/run/slowlight/node.sock"), mode: mode(), group: None }
    }
}

impl Serialize for Socket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Socket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathOrTable)
    }
}

struct PathOrTable;

impl<'de> de::Visitor<'de> for PathOrTable {
    type Value = Socket;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path, or a table with `path`")
    }

    fn visit_str<E: de::Error>(self, path: &str) -> Result<Socket, E> {
        Ok(Socket { path: PathBuf::from(path), ..Socket::default() })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Socket, A::Error> {
        Socket::deserialize(MapAccessDeserializer::new(map))
    }
}

impl Socket {
    /// Checks the permissions.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        self.bits().map(|_| ())
    }

    fn bits(&self) -> Result<u32, SpecError> {
        let bits = u32::from_str_radix(&self.mode, 8).ok().filter(|bits| *bits <= 0o777);
        bits.ok_or_else(|| {
            let mode = &self.mode;
            SpecError::invalid(format!(
                "socket.mode: invalid mode {mode:?}: expected one like \"0660\""
            ))
        })
    }

    /// Returns the permissions, and the number of the group.
    ///
    /// # Errors
    ///
    /// This machine has no such group.
    pub fn access(&self) -> Result<Access, SpecError> {
        let mode = self.bits()?;
        let Some(group) = &self.group else { return Ok(Access { mode, group: None }) };
        let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
        let number = group.parse().ok().or_else(|| number_of(&groups, group));
        let number = number.ok_or_else(|| {
            SpecError::invalid(format!(
                "socket.group: this machine has no group {group:?}; `groupadd --system {group}` adds it"
            ))
        })?;
        Ok(Access { mode, group: Some(number) })
    }
}

/// Number of a group in the format of group(5).
fn number_of(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name() {
        let groups = "root:x:0:\nslowlight:x:998:alice,bob\n";
        assert_eq!(number_of(groups, "slowlight"), Some(998));
        assert_eq!(number_of(groups, "slow"), None);
        let socket = Socket { group: Some("7".to_owned()), ..Socket::default() };
        assert_eq!(socket.access().unwrap(), Access { mode: 0o600, group: Some(7) });
        for mode in ["660x", "1777", ""] {
            let socket = Socket { mode: mode.to_owned(), ..Socket::default() };
            assert!(socket.check().is_err(), "{mode}");
        }
    }
}
