//! Archives from peers: nothing leaves the root, whatever they contain.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ::tree::{Existing, Unpacker};
use cap_std::ambient_authority;
use cap_std::fs::Dir;

/// Unpacks an archive twice, under a policy that its first byte selects. Checksums of headers are
/// set before, because no random input has a right one.
///
/// # Panics
/// If anything is written outside the root or to its working files, or if the second time
/// installs anything.
pub fn unpack(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let mut archive = data.to_vec();
    set_checksums(&mut archive);
    let memory = Path::new("/dev/shm");
    let within = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let place = tempfile::tempdir_in(within).expect("a scratch folder can be created");
    let path = |name: &str| place.path().join(name);
    let folder = |name: &str| {
        fs::create_dir(path(name)).expect("the scratch folder can be written");
        Dir::open_ambient_dir(path(name), ambient_authority()).expect("the folder was created")
    };
    let unpacker = Unpacker {
        root: folder("root"),
        staging: folder("staging"),
        existing: Existing::ALL[usize::from(*first) % Existing::ALL.len()],
        umask: 0o022,
    };
    // What links could lead to: a folder that the user has, and the working files.
    fs::create_dir_all(path("root/.slowlight")).expect("the root can be written");
    std::os::unix::fs::symlink("../outside", path("root/out")).expect("the root can be written");
    fs::create_dir(path("outside")).expect("the scratch folder can be written");
    let file = File::options().read(true).write(true).create_new(true).open(path("archive"));
    let file = file.expect("the scratch folder can be written");
    file.write_all_at(&archive, 0).expect("the archive can be stored");

    let first = unpacker.unpack(&file);
    for (name, entries) in [(".", 4), ("outside", 0), ("staging", 0), ("root/.slowlight", 0)] {
        let found = fs::read_dir(path(name)).expect("the folder is still there").count();
        assert_eq!(found, entries, "{name}");
    }
    let Ok(first) = first else { return };
    let second = unpacker.unpack(&file).expect("what was unpacked once is unpacked again");
    assert!(second.files + second.links == 0, "{first:?} {second:?}");
    assert!(second.renamed.is_empty(), "{first:?} {second:?}");
}

/// Sets the checksum of each block that begins with a header's name.
fn set_checksums(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512) {
        // The magic of both formats. Other blocks are content, or headers of old formats.
        if block.get(257..262) != Some(b"ustar") {
            continue;
        }
        let sum = |block: &[u8]| block.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        block[148..156].fill(b' ');
        let text = format!("{:06o}\0 ", sum(block));
        block[148..156].copy_from_slice(text.as_bytes());
    }
}
