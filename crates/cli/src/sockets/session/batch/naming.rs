//! Names of the entries of a batch, here and at the receiver.

use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result};
use engine::FileName;

use super::SendBatch;

/// Rule by which names here become names at the receiver.
#[derive(Debug)]
pub(super) enum Naming {
    /// They are the same.
    Same,
    /// The first part, which is that of the only path, is replaced by a name.
    First { here: Vec<u8>, there: Vec<u8> },
    /// All are below this folder.
    Below(Vec<u8>),
}

impl Naming {
    /// # Errors
    /// The name at the receiver is invalid.
    pub(super) fn new(batch: &SendBatch) -> Result<Self> {
        let Some(below) = &batch.below else { return Ok(Self::Same) };
        let name = FileName::file(below).with_context(|| format!("--remote {below:?}"))?;
        let there = name.path().as_bytes().to_vec();
        Ok(match batch.paths.as_slice() {
            [path] if !tree::is_content(path) => {
                let here = path.file_name().map(|name| name.as_bytes().to_vec());
                Self::First { here: here.unwrap_or_default(), there }
            }
            _ => Self::Below(there),
        })
    }

    /// Replaces a name here by that at the receiver.
    pub(super) fn rename(&self, name: &mut Vec<u8>) {
        let renamed = match self {
            Self::Same => return,
            Self::First { there, .. } => {
                let rest = name.iter().position(|byte| *byte == b'/').and_then(|at| name.get(at..));
                [there.as_slice(), rest.unwrap_or_default()].concat()
            }
            Self::Below(there) => [there.as_slice(), b"/", name].concat(),
        };
        *name = renamed;
    }

    /// Name here of one at the receiver, if it has one.
    pub(super) fn here(&self, name: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Same => Some(name.to_vec()),
            Self::First { here, there } => {
                let rest = name.strip_prefix(there.as_slice())?;
                (rest.is_empty() || rest.starts_with(b"/"))
                    .then(|| [here.as_slice(), rest].concat())
            }
            Self::Below(there) => {
                Some(name.strip_prefix(there.as_slice())?.strip_prefix(b"/")?.to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        let first = Naming::First { here: b"photos".to_vec(), there: b"backup/of".to_vec() };
        let below = Naming::Below(b"backup/of".to_vec());
        for (naming, here, there) in [
            (&Naming::Same, "photos/a", "photos/a"),
            (&first, "photos", "backup/of"),
            (&first, "photos/raw/a", "backup/of/raw/a"),
            (&below, "photos/a", "backup/of/photos/a"),
        ] {
            let mut name = here.as_bytes().to_vec();
            naming.rename(&mut name);
            assert_eq!(name, there.as_bytes(), "{naming:?}");
            assert_eq!(naming.here(&name).as_deref(), Some(here.as_bytes()), "{naming:?}");
        }
        for other in ["backup", "backup/off", "backup/of2/a", "photos/a"] {
            assert_eq!(first.here(other.as_bytes()), None, "{other}");
            assert_eq!(below.here(other.as_bytes()), None, "{other}");
        }
        assert_eq!(below.here(b"backup/of"), None);
    }
}
