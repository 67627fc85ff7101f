//! Trees that are packed, read in any order and unpacked, are as they were.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rustix::process::geteuid;
use slowlight_tree::{Existing, Modified, Pack, Plan};

use crate::place::{self, Place, nodes, set_mode, set_modified};

#[derive(Clone, Debug)]
enum Content {
    File(Vec<u8>),
    /// Length and where there are bytes.
    Sparse(u32, Vec<(u32, u8)>),
    Folder(Tree),
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Item {
    content: Content,
    mode: u32,
    modified: Modified,
}

type Tree = BTreeMap<Vec<u8>, Item>;

fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        6 => b'a'..=b'f',
        1 => Just(b' '),
        1 => Just(b'\n'),
        1 => Just(b'.'),
        1 => 1..=255_u8,
    ];
    let long = (100..=255_usize).prop_map(|len| vec![b'n'; len]);
    prop_oneof![8 => vec(byte, 1..12), 1 => long, 1 => Just("ünïcode".into())]
        .prop_filter("a name of a file", |name| {
            !name.contains(&b'/') && name != b"." && name != b".."
        })
}

fn modified() -> impl Strategy<Value = Modified> {
    // What all common file systems store.
    let secs =
        prop_oneof![0..2_000_000_000_i64, -1_000_000..0_i64, 3_000_000_000..9_000_000_000_i64];
    let nanos = prop_oneof![Just(0), 0..1_000_000_000_u32];
    (secs, nanos).prop_map(|(secs, nanos)| Modified { secs, nanos })
}

fn item(content: impl Strategy<Value = Content>) -> impl Strategy<Value = Item> {
    // All that the umask of the test leaves.
    (content, 0..=0o777_u32, modified()).prop_map(|(content, mode, modified)| Item {
        content,
        mode: mode & !0o022,
        modified,
    })
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        4 => vec(any::<u8>(), 0..3000).prop_map(Content::File),
        1 => (200_000..2_000_000_u32, vec((any::<u32>(), 1..=255_u8), 0..8))
            .prop_map(|(len, places)| Content::Sparse(len, places)),
        1 => name().prop_map(Content::Link),
        1 => (100..300_usize).prop_map(|len| Content::Link(vec![b'l'; len])),
    ];
    let items = item(leaf).prop_recursive(4, 40, 8, |inner| {
        item(btree_map(name(), inner, 0..8).prop_map(Content::Folder))
    });
    btree_map(name(), items, 0..8)
}

/// Writes a tree; content before the folder's own permissions and time.
fn create(tree: &Tree, folder: &std::path::Path) {
    for (name, item) in tree {
        let path = place::path(folder, name);
        match &item.content {
            Content::File(bytes) => fs::write(&path, bytes).unwrap(),
            Content::Sparse(len, places) => {
                let file = fs::File::create(&path).unwrap();
                file.set_len((*len).into()).unwrap();
                for (offset, byte) in places {
                    file.write_all_at(&[*byte], (offset % len).into()).unwrap();
                }
            }
            Content::Folder(inner) => {
                fs::create_dir(&path).unwrap();
                create(inner, &path);
            }
            Content::Link(target) => {
                symlink(place::path("".as_ref(), target), &path).unwrap();
            }
        }
        if !matches!(item.content, Content::Link(_)) {
            // The owner reads the source.
            let readable = if geteuid().is_root() { item.mode } else { item.mode | 0o500 };
            set_mode(&path, readable);
        }
        set_modified(&path, item.modified);
    }
}

/// Makes folders removable again.
fn open(folder: &std::path::Path) {
    for (name, node) in nodes(folder) {
        if format!("{node:?}").contains("folder") {
            set_mode(&place::path(folder, &name), 0o700);
        }
    }
}

/// Reads a pack in pieces of these lengths, the last piece first.
fn read_in_pieces(plan: Plan, lengths: &[usize]) -> Vec<u8> {
    let pack = Pack::new(plan);
    let mut bytes = vec![0xa5; usize::try_from(pack.len()).unwrap()];
    let mut starts = vec![0];
    for length in lengths.iter().cycle() {
        let next = starts[starts.len() - 1] + length;
        if next >= bytes.len() {
            break;
        }
        starts.push(next);
    }
    let mut end = bytes.len();
    for start in starts.into_iter().rev() {
        let piece = &mut bytes[start..end];
        assert_eq!(pack.read_at(start as u64, piece).unwrap(), piece.len());
        end = start;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_unpacked_tree_equals_its_source(
        tree in tree(),
        bytes_max in prop_oneof![Just(0_u64), 2000..200_000_u64, Just(u64::MAX)],
        lengths in vec(prop_oneof![1..600_usize, 1000..100_000_usize], 1..6),
        backwards in any::<bool>(),
    ) {
        let place = Place::new();
        create(&tree, &place.source());
        let mut plans = place.plans(bytes_max);
        // Every pack is complete by itself, so that the order does not matter.
        if backwards {
            plans.reverse();
        }
        let unpacker = place.unpacker(Existing::Fail);
        for plan in plans {
            let stored = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Plan>(&stored).unwrap(), &plan);
            let archive = read_in_pieces(plan.clone(), &lengths);
            prop_assert_eq!(&archive, &place::bytes(plan));
            let unpacked = unpacker.unpack(&place.archive(&archive)).unwrap();
            prop_assert_eq!(unpacked.refused, []);
        }
        let (before, after) = (nodes(&place.source()), nodes(&place.root()));
        open(&place.source());
        open(&place.root());
        prop_assert_eq!(before, after);
    }
}

#[test]
fn packs_are_within_their_limit_and_have_their_folders() {
    let place = Place::new();
    for number in 0..300 {
        place.write(&format!("a/b/{number}"), &[1; 1000]);
    }
    place.write("a/large", &[2; 100_000]);
    let plans = place.plans(20_000);
    assert!(plans.len() > 25, "{}", plans.len());
    let mut files = 0;
    for plan in &plans {
        let is_large = plan.entries.iter().any(|entry| entry.name == b"a/large");
        assert_eq!(plan.len() > 20_000, is_large);
        assert_eq!(plan.entries[0].name, b"a");
        if plan.entries.len() > 2 {
            assert_eq!(plan.entries[1].name, b"a/b");
        }
        files += plan.entries.iter().filter(|entry| entry.name.len() > 3).count();
        assert_eq!(plan.len(), Pack::new(plan.clone()).len());
    }
    assert_eq!(files, 301);
    assert_eq!(place.plans(20_000), plans, "the same tree gives the same packs");
}

#[test]
fn holes_stay_holes() {
    let place = Place::on_disk();
    let path = place.write("disk.img", b"");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    // More ranges than a header has room for, and than one block that continues it.
    for number in 0..40_u64 {
        file.write_all_at(&[1; 5000], number << 24).unwrap();
    }
    drop(file);
    let plans = place.plans(u64::MAX);
    let archive = place::bytes(plans.into_iter().next().unwrap());
    assert!(archive.len() < 1_000_000, "{}", archive.len());
    let unpacked = place.unpack(&archive).unwrap();
    assert_eq!((unpacked.files, unpacked.refused), (1, vec![]));
    let metadata = fs::metadata(place.root().join("disk.img")).unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(metadata.blocks() * 512 < 1_000_000, "{}", metadata.blocks());
    let read = |path: &std::path::Path, number: u64| {
        let mut bytes = vec![0; 10_000];
        fs::File::open(path).unwrap().read_exact_at(&mut bytes, number << 24).unwrap();
        bytes
    };
    for number in 0..40 {
        assert!(read(&path, number) == read(&place.root().join("disk.img"), number), "{number}");
    }
    // The second time it is compared, without reading a gigabyte of zeros.
    assert_eq!(place.unpack(&archive).unwrap().unchanged, 1);
}

#[test]
fn umask_and_special_bits() {
    let place = Place::new();
    set_mode(&place.write("program", b"x"), 0o6777);
    fs::create_dir(place.source().join("shared")).unwrap();
    set_mode(&place.source().join("shared"), 0o3777);
    for plan in place.plans(u64::MAX) {
        place.unpack(&place::bytes(plan)).unwrap();
    }
    for name in ["program", "shared"] {
        let mode = fs::metadata(place.root().join(name)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o755, "{name}");
    }
}
