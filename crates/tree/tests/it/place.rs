//! A scratch folder with a source, a root and a staging directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use slowlight_tree::{
    Existing, Modified, Pack, Plan, ScanOptions, UnpackError, Unpacked, Unpacker, plan, scan,
};
use tempfile::TempDir;

pub(crate) struct Place {
    folder: TempDir,
}

/// All that a pack carries of a file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    kind: &'static str,
    mode: u32,
    modified: (i64, i64),
    content: Vec<u8>,
}

impl Place {
    /// In memory if the machine has such a folder: on a disk each archive takes two syncs.
    pub(crate) fn new() -> Self {
        Self::within(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    pub(crate) fn on_disk() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    fn within(folder: TempDir) -> Self {
        for name in ["source", "root", "staging"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.folder.path().join("staging")
    }

    pub(crate) fn outside(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn unpacker(&self, existing: Existing) -> Unpacker {
        let open = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
        Unpacker { root: open(self.root()), staging: open(self.staging()), existing, umask: 0o022 }
    }

    pub(crate) fn unpack(&self, archive: &[u8]) -> Result<Unpacked, UnpackError> {
        self.unpacker(Existing::Rename).unpack(&self.archive(archive))
    }

    /// Stores an archive, as a receiver does before it unpacks.
    pub(crate) fn archive(&self, bytes: &[u8]) -> File {
        let path = self.folder.path().join("archive.tar");
        File::create(&path).unwrap().write_all(bytes).unwrap();
        File::open(path).unwrap()
    }

    /// Packs everything below the source, without a common folder.
    pub(crate) fn plans(&self, bytes_max: u64) -> Vec<Plan> {
        let found = scan(&[self.source().join(".")], &ScanOptions::default()).unwrap();
        assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        plan(found.entries, bytes_max)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

/// Bytes of a whole pack.
pub(crate) fn bytes(plan: Plan) -> Vec<u8> {
    let pack = Pack::new(plan);
    let mut bytes = vec![0xa5; usize::try_from(pack.len()).unwrap()];
    assert_eq!(pack.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn set_modified(path: &Path, Modified { secs, nanos }: Modified) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Everything below a folder, by name.
pub(crate) fn nodes(folder: &Path) -> BTreeMap<Vec<u8>, Node> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (kind, content) = if metadata.is_dir() {
                folders.push(path.clone());
                ("folder", Vec::new())
            } else if metadata.is_symlink() {
                ("link", fs::read_link(&path).unwrap().into_os_string().as_bytes().to_vec())
            } else {
                ("file", fs::read(&path).unwrap())
            };
            let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec();
            let mode = metadata.mode() & 0o7777;
            let modified = (metadata.mtime(), metadata.mtime_nsec());
            found.insert(name, Node { kind, mode, modified, content });
        }
    }
    found
}

/// Names below a folder, for messages.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    nodes(folder).keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

pub(crate) fn path(folder: &Path, name: &[u8]) -> PathBuf {
    folder.join(OsStr::from_bytes(name))
}
