//! The engine's records, one small file each, replaced atomically.

use std::io::{self, Write as _};

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions};

use super::system::sync_directory;

/// First bytes of every record file; the last one is the format version.
const MAGIC: [u8; 4] = *b"SLR\x01";

/// Temporary name of a record while it is written.
const WORKING: &str = "new.tmp";

/// The records in one directory.
#[derive(Debug)]
pub(super) struct Index(Dir);

impl Index {
    pub(super) fn new(directory: Dir) -> Self {
        Self(directory)
    }

    /// Returns the directory, which holds only records.
    pub(super) fn directory(&self) -> &Dir {
        &self.0
    }

    /// Stores a record. Survives a crash once this returns, and replaces the old value atomically.
    pub(super) fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let name = file_name(key)?;
        let options = &mut OpenOptions::new();
        let mut file =
            self.0.open_with(WORKING, options.write(true).create(true).truncate(true))?;
        let mut content = Vec::with_capacity(8 + value.len());
        content.extend_from_slice(&MAGIC);
        content.extend_from_slice(&checksum(key, value).to_be_bytes());
        content.extend_from_slice(value);
        file.write_all(&content)?;
        file.sync_all()?;
        self.0.rename(WORKING, &self.0, name)?;
        sync_directory(&self.0)
    }

    /// Removes a record, if it exists.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        match self.0.remove_file(file_name(key)?) {
            Ok(()) => sync_directory(&self.0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Loads the records whose keys have this prefix, in order of their keys. Skips a damaged one
    /// with a warning.
    pub(super) fn load(&self, prefix: &str) -> io::Result<Vec<(String, Bytes)>> {
        let mut records = Vec::new();
        for entry in self.0.entries()? {
            let name = entry?.file_name();
            if name == WORKING {
                continue;
            }
            let key = name.to_str().and_then(key_of);
            if key.as_ref().is_some_and(|key| !key.starts_with(prefix)) {
                continue;
            }
            match key.map(|key| self.read(key)) {
                Some(Ok(Some(record))) => records.push(record),
                Some(Ok(None)) | None => {
                    tracing::warn!(?name, "a damaged record of a transfer is ignored");
                }
                Some(Err(error)) => {
                    tracing::warn!(?name, %error, "an unreadable record of a transfer is ignored");
                }
            }
        }
        records.sort_unstable();
        Ok(records)
    }

    fn read(&self, key: String) -> io::Result<Option<(String, Bytes)>> {
        let content = Bytes::from(self.0.read(file_name(&key)?)?);
        let Some((head, value)) = content.split_first_chunk::<8>() else { return Ok(None) };
        let (magic, sum) = head.split_at(4);
        let whole = magic == MAGIC && sum == checksum(&key, value).to_be_bytes();
        Ok(whole.then(|| (key, content.slice(8..))))
    }
}

/// CRC-32C over key and value, so that a record under another name counts as damaged, too.
fn checksum(key: &str, value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), value)
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Encodes a key as a file name: all but letters, digits, `-` and `_` become `%` and two hex
/// digits.
fn file_name(key: &str) -> io::Result<String> {
    let mut name = String::from("r-");
    for byte in key.bytes() {
        if plain(byte) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    if name.len() > 255 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the record's key is too long"));
    }
    Ok(name)
}

/// Decodes the key in a file name; `None` if the name encodes no key.
fn key_of(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("r-")?.as_bytes();
    let mut key = Vec::with_capacity(rest.len());
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
            key.push(u8::from_str_radix(hex, 16).ok()?);
            rest = &tail[2..];
        } else {
            key.push(byte);
            rest = tail;
        }
    }
    let key = String::from_utf8(key).ok()?;
    (file_name(&key).ok()? == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    fn index() -> (tempfile::TempDir, Index) {
        let place = tempfile::tempdir().unwrap();
        let directory = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        (place, Index::new(directory))
    }

    #[test]
    fn keys_survive_as_file_names() {
        for key in ["", "a", "rx/1-2", "..", "%", "ü·", "a b\n", "r-"] {
            let name = file_name(key).unwrap();
            assert!(name.bytes().all(|b| plain(b) || b == b'%'), "{name}");
            assert_eq!(key_of(&name).as_deref(), Some(key));
        }
        assert!(file_name(&"/".repeat(90)).is_err());
        assert_eq!(key_of("r-%4"), None);
        assert_eq!(key_of("r-%41"), None, "a letter is not written that way");
        assert_eq!(key_of("other"), None);
    }

    #[test]
    fn records_are_replaced_and_forgotten() {
        let (_place, index) = index();
        index.put("b", b"two").unwrap();
        index.put("a", b"").unwrap();
        index.put("b", b"three").unwrap();
        let record = |key: &str, value: &'static [u8]| (key.to_owned(), Bytes::from_static(value));
        assert_eq!(index.load("").unwrap(), [record("a", b""), record("b", b"three")]);
        index.remove("a").unwrap();
        index.remove("a").unwrap();
        assert_eq!(index.load("").unwrap(), [record("b", b"three")]);
    }

    #[test]
    fn a_torn_or_damaged_record_is_left_out() {
        let (place, index) = index();
        index.put("good", b"value").unwrap();
        index.put("damaged", b"value").unwrap();
        let path = place.path().join("r-damaged");
        let mut content = std::fs::read(&path).unwrap();
        *content.last_mut().unwrap() ^= 1;
        std::fs::write(&path, content).unwrap();
        // A crash before the rename leaves the temporary file; the old record is valid.
        std::fs::write(place.path().join(WORKING), b"SLR").unwrap();
        std::fs::write(place.path().join("r-short"), b"SL").unwrap();
        std::fs::copy(place.path().join("r-good"), place.path().join("r-other")).unwrap();
        let keys: Vec<_> = index.load("").unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["good"]);
    }
}
