//! Packs whose files change.

use std::fs;
use std::os::unix::fs::FileExt as _;

use slowlight_tree::{Modified, Pack, ReadError};

use crate::place::{Place, set_modified};

const TIME: Modified = Modified { secs: 1_000_000_000, nanos: 1 };

/// Reads the whole pack in pieces, and returns the error.
fn read(pack: &Pack) -> Result<(), ReadError> {
    let mut piece = [0; 1000];
    let mut offset = 0;
    while offset < pack.len() {
        offset += pack.read_at(offset, &mut piece)? as u64;
    }
    assert_eq!(pack.read_at(offset, &mut piece).unwrap(), 0, "there is nothing after the end");
    assert_eq!(pack.read_at(u64::MAX, &mut piece).unwrap(), 0);
    Ok(())
}

fn pack(place: &Place) -> Pack {
    let mut plans = place.plans(u64::MAX);
    assert_eq!(plans.len(), 1);
    Pack::new(plans.remove(0))
}

#[test]
fn a_changed_file_is_detected() {
    for change in ["longer", "shorter", "rewritten", "removed", "replaced", "a folder"] {
        let place = Place::new();
        let path = place.write("x", &[1; 5000]);
        set_modified(&path, TIME);
        let pack = pack(&place);
        read(&pack).unwrap();
        // Another pack, which has not opened it yet, detects it as well.
        let fresh = Pack::new(pack.plan().clone());
        let file = fs::File::options().write(true).open(&path).unwrap();
        match change {
            "longer" => file.write_all_at(b"x", 5000).unwrap(),
            "shorter" => file.set_len(4000).unwrap(),
            "rewritten" => file.write_all_at(b"x", 0).unwrap(),
            "removed" => fs::remove_file(&path).unwrap(),
            "replaced" => {
                fs::write(path.with_extension("new"), [2; 5000]).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            }
            _ => {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }
        }
        let error = read(&fresh).unwrap_err();
        assert!(matches!(&error, ReadError::Changed(found) if *found == path), "{change}: {error}");
        if ["longer", "shorter", "rewritten"].contains(&change) {
            let error = read(&pack).unwrap_err();
            assert!(matches!(error, ReadError::Changed(_)), "{change}: {error}");
        } else {
            // The open file still has the content of the plan.
            read(&pack).unwrap();
        }
    }
}

#[test]
fn few_files_are_open_at_a_time() {
    let place = Place::new();
    for number in 0..50 {
        place.write(&format!("{number}"), &[1; 100]);
    }
    let pack = pack(&place);
    read(&pack).unwrap();
    let source = place.source();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let open = open.filter(|path| path.starts_with(&source)).count();
    assert!((1..=4).contains(&open), "{open}");
}

#[test]
fn several_threads_read_one_pack() {
    let place = Place::new();
    for number in 0..20_u8 {
        place.write(&format!("{number}"), &vec![number; 3000 + usize::from(number)]);
    }
    let pack = pack(&place);
    let mut whole = vec![0; usize::try_from(pack.len()).unwrap()];
    pack.read_at(0, &mut whole).unwrap();
    std::thread::scope(|scope| {
        for len in [100, 700, 1400, 5000] {
            let (pack, whole) = (&pack, &whole);
            scope.spawn(move || {
                for (number, expected) in whole.chunks(len).enumerate() {
                    let mut piece = vec![0; len];
                    let read = pack.read_at((number * len) as u64, &mut piece).unwrap();
                    assert!(piece[..read] == *expected, "piece {number} of {len} bytes");
                }
            });
        }
    });
}
