//! GNU tar reads packs, and its archives are unpacked.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;

use slowlight_tree::{Entry, Existing, Kind, Modified, Pack, Plan};

use crate::place::{self, Place, nodes, set_mode, set_modified};

/// Runs tar, which must have no complaint; `None` if the machine has none.
fn tar(arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new("tar").args(arguments).current_dir(folder).output();
    let Ok(output) = output else {
        testing::skipped!("there is no tar");
        return None;
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    // Times before 1970 are set, with a remark.
    let other = complaint.lines().find(|line| !line.contains("implausibly old time stamp"));
    assert!(output.status.success() && other.is_none(), "tar {arguments:?}: {complaint}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates files, folders and links with all that a tar archive has a form for.
fn create(place: &Place, nanos: u32) {
    let source = place.source();
    let mut paths = Vec::new();
    let (long, deep) = ("l".repeat(200), "d".repeat(200));
    for name in ["plain", "with space", "new\nline", "ünïcode", &long, "folder/inner/file"] {
        paths.push(place.write(name, name.repeat(100).as_bytes()));
    }
    paths.push(place::path(&source, b"not \xff text"));
    fs::write(&paths[paths.len() - 1], b"x").unwrap();
    paths.push(place.write("empty", b""));
    paths.push(place.write(&format!("{deep}/{deep}/deep"), b"deep"));
    for (name, target) in [("link", "plain"), ("folder/up", "../plain"), ("far", &long)] {
        symlink(target, source.join(name)).unwrap();
        paths.push(source.join(name));
    }
    let sparse = place.write("sparse", b"");
    let file = fs::File::options().write(true).open(&sparse).unwrap();
    file.set_len(5_000_001).unwrap();
    for number in 0..60 {
        file.write_all_at(b"data", number * 80_000).unwrap();
    }
    paths.push(sparse);
    let hole = place.write("hole", b"");
    fs::File::options().write(true).open(&hole).unwrap().set_len(1_000_000).unwrap();
    paths.push(hole);
    fs::create_dir(source.join("empty folder")).unwrap();
    set_mode(&source.join("plain"), 0o640);
    set_mode(&source.join("empty"), 0o400);
    paths.push(source.join("empty folder"));
    paths.extend(["folder/inner", "folder", &deep].map(|name| source.join(name)));
    paths.push(source.join(&deep).join(&deep));
    for (number, path) in paths.iter().enumerate() {
        let secs = 1_000_000_000 + i64::try_from(number).unwrap();
        set_modified(path, Modified { secs, nanos });
    }
    set_modified(&source.join("plain"), Modified { secs: -100, nanos });
    set_modified(&source.join(&deep), Modified { secs: 5, nanos: 0 });
    set_mode(&source.join("folder/inner"), 0o500);
}

#[test]
fn gnu_tar_unpacks_packs() {
    let place = Place::on_disk();
    create(&place, 123_456_789);
    for bytes_max in [10_000, u64::MAX] {
        let root = place.outside().join(bytes_max.to_string());
        fs::create_dir(&root).unwrap();
        for plan in place.plans(bytes_max) {
            drop(place.archive(&place::bytes(plan)));
            let arguments = ["-xpf", "../archive.tar", "--no-same-owner"];
            if tar(&arguments, &root).is_none() {
                return;
            }
        }
        assert_eq!(nodes(&root), nodes(&place.source()));
        let blocks = |name| fs::metadata(root.join(name)).unwrap().blocks();
        assert!(blocks("sparse") * 512 < 1_000_000 && blocks("hole") == 0);
    }
}

#[test]
fn archives_of_gnu_tar_are_unpacked() {
    for (format, nanos) in [("gnu", 0), ("posix", 123_456_789)] {
        let place = Place::on_disk();
        create(&place, nanos);
        let format = format!("--format={format}");
        let mut arguments = vec!["-cf", "../archive.tar", &format, "."];
        if nanos == 0 {
            arguments.insert(2, "--sparse");
        }
        if tar(&arguments, &place.source()).is_none() {
            return;
        }
        let archive = fs::File::open(place.outside().join("archive.tar")).unwrap();
        let unpacker = place.unpacker(Existing::Fail);
        let unpacked = unpacker.unpack(&archive).unwrap();
        assert_eq!(unpacked.refused, []);
        assert_eq!(nodes(&place.root()), nodes(&place.source()), "{format}");
        assert_eq!(unpacker.unpack(&archive).unwrap().unchanged, unpacked.files + unpacked.links);
    }
}

#[test]
fn archives_of_old_formats_are_unpacked() {
    for format in ["v7", "oldgnu", "ustar"] {
        let place = Place::on_disk();
        set_modified(&place.write("folder/x", b"x"), Modified { secs: 1, nanos: 0 });
        set_modified(&place.source().join("folder"), Modified { secs: 2, nanos: 0 });
        let format = format!("--format={format}");
        if tar(&["-cf", "../archive.tar", &format, "folder"], &place.source()).is_none() {
            return;
        }
        let archive = fs::File::open(place.outside().join("archive.tar")).unwrap();
        assert_eq!(place.unpacker(Existing::Fail).unpack(&archive).unwrap().refused, []);
        assert_eq!(nodes(&place.root()), nodes(&place.source()), "{format}");
    }
}

/// Nine gigabytes, none of which is stored: the numbers have no room in octal digits.
#[test]
fn sizes_above_eight_gigabytes() {
    const LEN: u64 = 9_000_000_000;
    let place = Place::on_disk();
    let path = place.write("large", b"");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(b"end", LEN - 3).unwrap();
    drop(file);
    let sparse = place.plans(u64::MAX).remove(0);
    let mut plain: Entry = sparse.entries[0].clone();
    plain.kind = Kind::File { len: LEN, extents: None };
    let plain = Plan { entries: vec![plain] };

    let archive = place::bytes(sparse);
    place.unpack(&archive).unwrap();
    let unpacked = fs::File::open(place.root().join("large")).unwrap();
    let mut end = [0; 3];
    unpacked.read_exact_at(&mut end, LEN - 3).unwrap();
    assert_eq!((unpacked.metadata().unwrap().len(), &end), (LEN, b"end"));
    drop(place.archive(&archive));
    let Some(listed) = tar(&["-tvf", "archive.tar"], place.outside()) else { return };
    assert!(listed.contains(" 9000000000 "), "{listed}");

    let pack = Pack::new(plain);
    let mut header = [0; 4096];
    pack.read_at(0, &mut header).unwrap();
    let mut tail = [1; 2048];
    assert_eq!(pack.read_at(pack.len() - 2048, &mut tail).unwrap(), 2048);
    let place = Place::on_disk();
    drop(place.archive(&header));
    let file = fs::File::options().write(true).open(place.outside().join("archive.tar")).unwrap();
    file.set_len(pack.len()).unwrap();
    file.write_all_at(&tail, pack.len() - 2048).unwrap();
    let listed = tar(&["-tvf", "archive.tar"], place.outside()).unwrap();
    assert!(listed.contains(" 9000000000 "), "{listed}");
}
