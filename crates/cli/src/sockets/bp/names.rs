//! Names of received files: short, the same for a bundle that is delivered again, and never those
//! of other files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use super::kept;

/// Bytes per read.
const PIECE: usize = 64 << 10;

/// Name for the payload of a bundle: creation time, sequence number and a hash of its identifier;
/// the hash alone if the identifier has another form.
pub(super) fn of_bundle(id: &str) -> String {
    let hash = &hex(Sha256::digest(id))[..16];
    let stamp = id.rsplit(' ').next().and_then(|stamp| stamp.split_once('.'));
    let is_number = |text: &str| text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit());
    match stamp {
        Some((time, sequence)) if is_number(time) && is_number(sequence) => {
            format!("bundle-{time}-{sequence}-{hash}")
        }
        Some(_) | None => format!("bundle-{hash}"),
    }
}

/// Name for a file that no other name fits: a hash of what identifies it.
pub(super) fn of_hash(what: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in what {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    bundle_of(hash)
}

/// Name for a payload whose name another file has: a hash of the identifier and the content.
fn of_content(id: &str, path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update((id.len() as u64).to_be_bytes());
    hash.update(id);
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(bundle_of(hash)),
            Ok(read) => hash.update(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn bundle_of(hash: Sha256) -> String {
    format!("bundle-{}", &hex(hash.finalize())[..32])
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gives the complete file `new` the name of a bundle in `folder`. A file with the same content is
/// the result of an earlier delivery; a different file of that name stays.
pub(super) fn publish(new: &Path, folder: &Path, id: &str) -> io::Result<PathBuf> {
    let place = folder.join(of_bundle(id));
    if rename(new, &place)? || is_same(new, &place)? {
        return Ok(place);
    }
    let place = folder.join(of_content(id, new)?);
    if rename(new, &place)? || is_same(new, &place)? {
        return Ok(place);
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}", place.display())))
}

/// Renames a file; returns `false`, and keeps it, if the name exists.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<bool> {
    match TempPath::try_from_path(from)?.persist_noclobber(to) {
        Ok(()) => kept::sync_folder_of(to).map(|()| true),
        Err(failed) => {
            // The file must outlive this process.
            failed.path.keep()?;
            if failed.error.kind() == io::ErrorKind::AlreadyExists {
                return Ok(false);
            }
            Err(failed.error)
        }
    }
}

/// Whether two files have the same content; the first is removed then.
fn is_same(new: &Path, place: &Path) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(place)?;
    if !found.is_file() || found.len() != std::fs::metadata(new)?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (File::open(new)?, File::open(place)?);
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    let mut rest = found.len();
    while rest > 0 {
        let len = usize::try_from(rest).unwrap_or(PIECE).min(PIECE);
        one.read_exact(&mut left[..len])?;
        other.read_exact(&mut right[..len])?;
        if left[..len] != right[..len] {
            return Ok(false);
        }
        rest -= len as u64;
    }
    std::fs::remove_file(new)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ_where_ids_do() {
        let long = format!("dtn://{}/9 849045256264.7", "n".repeat(300));
        let name = of_bundle(&long);
        assert!(name.starts_with("bundle-849045256264-7-") && name.len() <= 200, "{name}");
        let pair = ["dtn://a/b 849045256264.0", "dtn://a-b 849045256264.0"];
        assert_ne!(of_bundle(pair[0]), of_bundle(pair[1]));
        assert_eq!(of_bundle(pair[0]), of_bundle(pair[0]));
        for odd in ["", "ipn:1.1", "x ../a.b", "x 1.1 from 7", "x 123456789012345678901.0"] {
            let name = of_bundle(odd);
            assert!(name.len() == 23 && !name.contains('/'), "{odd:?}: {name}");
        }
        assert_ne!(of_hash(&[b"ab", b"c"]), of_hash(&[b"a", b"bc"]));
    }

    #[test]
    fn no_file_is_replaced_and_a_repeated_delivery_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join(".new");
        let publish = |content: &[u8]| {
            std::fs::write(&new, content).unwrap();
            publish(&new, folder.path(), "ipn:1.1 5.0").unwrap()
        };
        let first = publish(b"one");
        assert_eq!(publish(b"one"), first);
        let second = publish(b"two");
        assert_eq!(publish(b"two"), second);
        assert_ne!(first, second);
        assert_eq!(std::fs::read(&first).unwrap(), b"one");
        assert_eq!(std::fs::read(&second).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
