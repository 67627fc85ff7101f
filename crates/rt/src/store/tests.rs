use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{FileBytes, FileJob, FilestoreRequest, IndexRequest, MemoryStore, OpenMode, Work};
use proptest::prelude::*;
use tree::{Existing, Pack, Unpacked};

use super::*;

type Answer = Result<Completion, EffectError>;

fn open_store(config: StoreConfig) -> FileStore {
    FileStore::open(config, &Waker::new().unwrap()).unwrap()
}

/// Executes one effect and waits for its result.
fn execute(store: &mut FileStore, effect: StoreEffect) -> Option<(Ticket, Answer)> {
    let answered = effect.ticket().is_some();
    store.submit(effect);
    let start = Instant::now();
    while answered && start.elapsed() < Duration::from_secs(10) {
        match store.poll() {
            Some(done) => return Some(done),
            None => std::thread::yield_now(),
        }
    }
    assert!(!answered, "no answer");
    None
}

fn filestore(store: &mut FileStore, request: FilestoreRequest) -> Answer {
    execute(store, StoreEffect::Filestore { ticket: Ticket(1), request }).unwrap().1
}

fn open(store: &mut FileStore, path: &str, mode: OpenMode) -> Answer {
    let name = FileName::file(path).unwrap();
    execute(store, StoreEffect::Open { ticket: Ticket(1), name, mode }).unwrap().1
}

/// Reads bytes, and writes them in reverse order to the start.
#[derive(Debug)]
struct Reverse {
    offset: u64,
    len: usize,
}

impl FileJob for Reverse {
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        let mut bytes = vec![0; self.len];
        let read = file.read_at(self.offset, &mut bytes)?;
        bytes.truncate(read);
        bytes.reverse();
        if !bytes.is_empty() {
            file.write_at(0, &bytes)?;
        }
        Ok(bytes.into())
    }

    fn cost(&self) -> u64 {
        self.len as u64
    }
}

#[derive(Clone, Debug)]
enum Op {
    Open(FileName, u8),
    Read(usize, u64, usize),
    Write(usize, u64, Vec<u8>),
    Sync(usize),
    Work(usize, u64, usize),
    Filestore(FilestoreRequest),
    Index(IndexRequest),
}

fn name() -> impl Strategy<Value = FileName> {
    let path = prop::sample::select(vec!["a", "b", "d", "d/a", "d/e", "d/e/a"]);
    (path, any::<bool>()).prop_map(|(path, spool)| {
        if spool { FileName::spool(path) } else { FileName::file(path) }.unwrap()
    })
}

fn filestore_request() -> impl Strategy<Value = FilestoreRequest> {
    use FilestoreRequest as R;
    prop_oneof![
        name().prop_map(R::CreateFile),
        name().prop_map(R::DeleteFile),
        (name(), name()).prop_map(|(from, to)| R::RenameFile { from, to }),
        (name(), name()).prop_map(|(from, to)| R::AppendFile { from, to }),
        (name(), name()).prop_map(|(from, to)| R::ReplaceFile { from, to }),
        name().prop_map(R::CreateDirectory),
        name().prop_map(R::CreateDirectory),
        name().prop_map(R::RemoveDirectory),
        name().prop_map(R::DenyFile),
        name().prop_map(R::DenyDirectory),
        (name(), name()).prop_map(|(from, to)| R::Install { from, to }),
        name().prop_map(R::List),
        Just(R::List(FileName::root())),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let content = || prop::collection::vec(any::<u8>(), 0..40);
    let key = || prop::sample::select(vec!["k", "rx/1", "rx/2"]).prop_map(str::to_owned);
    prop_oneof![
        3 => (name(), 0..3u8).prop_map(|(name, mode)| Op::Open(name, mode)),
        2 => (0..4usize, 0..100u64, 0..100usize).prop_map(|(f, at, len)| Op::Read(f, at, len)),
        3 => (0..4usize, 0..60u64, content()).prop_map(|(f, at, b)| Op::Write(f, at, b)),
        1 => (0..4usize).prop_map(Op::Sync),
        2 => (0..4usize, 0..40u64, 0..40usize)
            .prop_map(|(which, offset, len)| Op::Work(which, offset, len)),
        6 => filestore_request().prop_map(Op::Filestore),
        1 => (key(), content())
            .prop_map(|(key, value)| Op::Index(IndexRequest::Put { key, value: value.into() })),
        1 => key().prop_map(|key| Op::Index(IndexRequest::Remove { key })),
        1 => Just(Op::Index(IndexRequest::Load { prefix: String::new() })),
    ]
}

/// The two stores side by side, with the numbers each gave to the open files.
struct Pair {
    disk: FileStore,
    memory: MemoryStore,
    open: Vec<(FileId, FileId)>,
}

impl Pair {
    fn both(&mut self, disk: StoreEffect, memory: StoreEffect) -> (Answer, Answer) {
        let memory = self.memory.execute(memory).unwrap();
        let disk = execute(&mut self.disk, disk).unwrap();
        assert_eq!(disk.0, memory.0);
        let mut answer = disk.1;
        if let Ok(Completion::Listing(entries)) = &mut answer {
            // Memory has no clock.
            entries.iter_mut().for_each(|entry| entry.modified = None);
        }
        (answer, memory.1)
    }

    fn on_file(&mut self, which: usize, effect: impl Fn(FileId) -> StoreEffect) {
        if let Some(&(disk, memory)) = self.open.get(which) {
            let (disk, memory) = self.both(effect(disk), effect(memory));
            assert_eq!(disk, memory);
        }
    }

    fn close_all(&mut self) {
        for (disk, memory) in std::mem::take(&mut self.open) {
            self.disk.submit(StoreEffect::Close { file: disk });
            self.memory.execute(StoreEffect::Close { file: memory });
        }
    }

    fn step(&mut self, op: Op) {
        let ticket = Ticket(9);
        match op {
            Op::Open(name, mode) => {
                let mode = [OpenMode::Read, OpenMode::Write, OpenMode::Truncate][mode as usize];
                // Writing through a handle that was opened for reading is the engine's mistake.
                let mode = if mode == OpenMode::Read { OpenMode::Write } else { mode };
                let effect = StoreEffect::Open { ticket, name, mode };
                match self.both(effect.clone(), effect) {
                    (
                        Ok(Completion::Opened { file: disk, len, .. }),
                        Ok(Completion::Opened { file: memory, len: other, .. }),
                    ) => {
                        assert_eq!(len, other);
                        self.open.push((disk, memory));
                    }
                    (disk, memory) => assert_eq!(disk, memory),
                }
            }
            Op::Read(which, offset, len) => {
                self.on_file(which, |file| StoreEffect::Read { ticket, file, offset, len });
            }
            Op::Write(which, offset, content) => {
                let bytes = Bytes::from(content);
                // An empty write beyond the end differs between file systems.
                if !bytes.is_empty() {
                    let write =
                        |file| StoreEffect::Write { ticket, file, offset, bytes: bytes.clone() };
                    self.on_file(which, write);
                }
            }
            Op::Work(which, offset, len) => {
                let work = Work::new(Reverse { offset, len });
                self.on_file(which, |file| StoreEffect::Work { ticket, file, work: work.clone() });
            }
            Op::Sync(which) => self.on_file(which, |file| StoreEffect::Sync { ticket, file }),
            Op::Filestore(request) => {
                // A file system keeps an open file after its name is removed.
                self.close_all();
                let effect = StoreEffect::Filestore { ticket, request };
                let (disk, memory) = self.both(effect.clone(), effect);
                assert_eq!(disk, memory);
            }
            Op::Index(request) => {
                let effect = StoreEffect::Index { ticket, request };
                let (disk, memory) = self.both(effect.clone(), effect);
                assert_eq!(disk, memory);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_disk_behaves_like_memory(
        ops in prop::collection::vec(op(), 1..60),
        index in prop::sample::select(vec![RecordsIn::Files, RecordsIn::Log]),
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut pair = Pair {
            disk: open_store(StoreConfig { index, ..StoreConfig::new(place.path()) }),
            memory: MemoryStore::new(),
            open: Vec::new(),
        };
        for op in ops {
            pair.step(op);
        }
    }
}

#[test]
fn symlinks_out_of_the_root_are_refused_by_every_operation() {
    use FilestoreRequest as R;
    let outside = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    std::fs::write(place.path().join("own"), b"own").unwrap();
    symlink(outside.path(), place.path().join("dir")).unwrap();
    symlink(outside.path().join("secret"), place.path().join("file")).unwrap();
    symlink(outside.path().join("new"), place.path().join("dangling")).unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    let n = |path: &str| FileName::file(path).unwrap();
    for path in ["dir/secret", "file", "dir/new", "dangling"] {
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Truncate] {
            let answer = open(&mut store, path, mode);
            assert_eq!(answer, Err(EffectError::NotAllowed), "{path} {mode:?}");
        }
    }
    let refused = [
        R::CreateFile(n("dir/new")),
        R::DeleteFile(n("dir/secret")),
        R::RenameFile { from: n("dir/secret"), to: n("mine") },
        R::RenameFile { from: n("own"), to: n("dir/new") },
        R::AppendFile { to: n("own"), from: n("file") },
        R::AppendFile { to: n("file"), from: n("own") },
        R::ReplaceFile { to: n("own"), from: n("dir/secret") },
        R::ReplaceFile { to: n("dir/secret"), from: n("own") },
        R::CreateDirectory(n("dir/new")),
        R::RemoveDirectory(n("dir/new")),
        R::DenyFile(n("dir/secret")),
        R::Install { from: n("own"), to: n("dir/new") },
        R::List(n("dir/x")),
    ];
    for request in refused {
        let answer = filestore(&mut store, request.clone());
        assert_eq!(answer, Err(EffectError::NotAllowed), "{request:?}");
    }
    let rename = R::RenameFile { from: n("own"), to: n("file") };
    assert_eq!(filestore(&mut store, rename), Err(EffectError::Exists));
    // Replaces the link itself, not its target.
    let replace = R::ReplaceFile { to: n("dangling"), from: n("own") };
    assert_eq!(filestore(&mut store, replace), Ok(Completion::Done));
    let install = R::Install { from: n("own"), to: n("file") };
    assert_eq!(filestore(&mut store, install), Ok(Completion::Done));
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    // A peer does not see the links.
    let listing = filestore(&mut store, R::List(FileName::root())).unwrap();
    let Completion::Listing(entries) = listing else { panic!("{listing:?}") };
    let names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["dangling", "file"]);
}

#[test]
fn links_that_stay_inside_are_followed() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("real")).unwrap();
    symlink("real", place.path().join("link")).unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    assert!(open(&mut store, "link/new", OpenMode::Write).is_ok());
    assert!(place.path().join("real/new").is_file());
}

#[test]
fn senders_may_read_only_their_file() {
    let place = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    for name in ["sent", "private"] {
        std::fs::write(place.path().join(name), name).unwrap();
    }
    let mut store = open_store(StoreConfig {
        access: Access::ReadOne(FileName::file("sent").unwrap()),
        state: state.path().join("deep/state"),
        ..StoreConfig::new(place.path())
    });
    assert!(open(&mut store, "sent", OpenMode::Read).is_ok());
    for (path, mode) in
        [("sent", OpenMode::Write), ("private", OpenMode::Read), ("new", OpenMode::Truncate)]
    {
        assert_eq!(open(&mut store, path, mode), Err(EffectError::NotAllowed), "{path}");
    }
    let delete = FilestoreRequest::DeleteFile(FileName::file("sent").unwrap());
    assert_eq!(filestore(&mut store, delete), Err(EffectError::NotAllowed));
    assert!(!place.path().join(FileName::SPOOL_DIRECTORY).exists());
}

#[test]
fn pipes_do_not_block_a_thread() {
    let place = tempfile::tempdir().unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let path = place.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    assert_eq!(open(&mut store, "pipe", OpenMode::Read), Err(EffectError::WrongKind));
}

#[test]
fn stores_are_locked_to_one_process() {
    let place = tempfile::tempdir().unwrap();
    let first = open_store(StoreConfig::new(place.path()));
    let waker = Waker::new().unwrap();
    let error = FileStore::open(StoreConfig::new(place.path()), &waker).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    drop(first);
    open_store(StoreConfig::new(place.path()));
}

#[test]
fn missing_roots_are_reported_with_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("missing");
    let error = FileStore::open(StoreConfig::new(&root), &Waker::new().unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(root.to_str().unwrap()) && text.contains("create it"), "{text}");
}

#[test]
fn the_store_counts_pending_effects() {
    let place = tempfile::tempdir().unwrap();
    let config = StoreConfig { bytes_max: 1000, effects_max: 3, ..StoreConfig::new(place.path()) };
    let mut store = open_store(config);
    let opened = open(&mut store, "a", OpenMode::Write);
    let Ok(Completion::Opened { file, .. }) = opened else { panic!("{opened:?}") };
    let write = |len| StoreEffect::Write {
        ticket: Ticket(1),
        file,
        offset: 0,
        bytes: Bytes::from(vec![0; len]),
    };
    store.submit(write(999));
    assert!(!store.is_full());
    store.submit(write(1));
    assert!(store.is_full() && store.pending() == 2);
    while store.pending() > 0 {
        store.poll();
    }
    (0..3).for_each(|_| store.submit(write(0)));
    assert!(store.is_full());
}

#[test]
fn records_survive_the_store() {
    let place = tempfile::tempdir().unwrap();
    let put = IndexRequest::Put { key: "k".into(), value: Bytes::from_static(b"v") };
    let mut store = open_store(StoreConfig::new(place.path()));
    execute(&mut store, StoreEffect::Index { ticket: Ticket(1), request: put }).unwrap().1.unwrap();
    drop(store);
    let mut store = open_store(StoreConfig::new(place.path()));
    assert_eq!(load(&mut store, ""), [("k".to_owned(), Bytes::from_static(b"v"))]);
    // Fails if replacing is not allowed.
    store.submit(StoreEffect::Filestore {
        ticket: Ticket(3),
        request: FilestoreRequest::CreateDirectory(FileName::spool("d").unwrap()),
    });
    while store.pending() > 0 {
        store.poll();
    }
    store.reset().unwrap();
    assert_eq!(load(&mut store, ""), []);
    let spool = place.path().join(FileName::SPOOL_DIRECTORY).join("spool");
    assert_eq!(std::fs::read_dir(spool).unwrap().count(), 0);
}

#[test]
fn files_have_the_time_of_their_last_change() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("old"), b"old").unwrap();
    let old = std::fs::File::options().write(true).open(place.path().join("old")).unwrap();
    let then = std::time::UNIX_EPOCH + Duration::from_secs(1_300_000_000);
    old.set_modified(then).unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    let name = FileName::file("old").unwrap();
    let open = StoreEffect::Open { ticket: Ticket(1), name, mode: OpenMode::Read };
    let answer = execute(&mut store, open).unwrap().1;
    let Ok(Completion::Opened { modified, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(modified, Some(1_300_000_000));
    let request = FilestoreRequest::List(FileName::root());
    let answer =
        execute(&mut store, StoreEffect::Filestore { ticket: Ticket(2), request }).unwrap().1;
    let Ok(Completion::Listing(entries)) = answer else { panic!("{answer:?}") };
    assert_eq!(entries[0].modified, Some(1_300_000_000));
}

fn put(key: String, value: &'static [u8]) -> IndexRequest {
    IndexRequest::Put { key, value: Bytes::from_static(value) }
}

fn load(store: &mut FileStore, prefix: &str) -> Vec<(String, Bytes)> {
    let request = IndexRequest::Load { prefix: prefix.to_owned() };
    match execute(store, StoreEffect::Index { ticket: Ticket(1), request }).unwrap().1 {
        Ok(Completion::Records(records)) => records,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn records_are_loaded_by_prefix() {
    for index in [RecordsIn::Files, RecordsIn::Log] {
        let place = tempfile::tempdir().unwrap();
        let config = || StoreConfig { index, ..StoreConfig::new(place.path()) };
        let mut store = open_store(config());
        // Keys with and without a number, which a log keeps apart.
        let keys = ["ltp-0000000000000001", "ltps-7", "sar-0000000000000001"];
        for key in keys {
            let effect =
                StoreEffect::Index { ticket: Ticket(1), request: put(key.to_owned(), b"v") };
            execute(&mut store, effect).unwrap().1.unwrap();
        }
        drop(store);
        let mut store = open_store(config());
        let mut loaded = |prefix| -> Vec<String> {
            load(&mut store, prefix).into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(loaded(""), keys, "{index:?}");
        assert_eq!(loaded("ltp"), keys[..2], "{index:?}");
        assert_eq!(loaded("sar-"), keys[2..], "{index:?}");
        assert_eq!(loaded("norm-"), [""; 0], "{index:?}");
    }
}

#[test]
fn working_files_without_records_are_swept() {
    let place = tempfile::tempdir().unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    let spool = place.path().join(FileName::SPOOL_DIRECTORY).join("spool");
    for name in ["rx-1", "rx-2", "rx-3", "other-4"] {
        std::fs::write(spool.join(name), name).unwrap();
    }
    // Of the second there is a record, of the third only one of another kind.
    for key in ["cfdp-rx-2", "rx-3"] {
        let effect = StoreEffect::Index { ticket: Ticket(1), request: put(key.to_owned(), b"v") };
        execute(&mut store, effect).unwrap().1.unwrap();
    }
    assert_eq!(store.sweep("rx-", "cfdp-").unwrap(), 2);
    let mut left: Vec<_> =
        std::fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort_unstable();
    assert_eq!(left, ["other-4", "rx-2"]);
    assert_eq!(load(&mut store, "").len(), 2);
}

#[test]
fn many_records_complete_in_order() {
    let place = tempfile::tempdir().unwrap();
    let index = RecordsIn::Log;
    let config = || StoreConfig { index, ..StoreConfig::new(place.path()) };
    let mut store = open_store(config());
    for number in 0..5000 {
        let request = put(format!("k{number:04}"), b"value");
        store.submit(StoreEffect::Index { ticket: Ticket(number), request });
        if number % 100 == 0 {
            // A request that changes no record keeps its place in the order.
            let request = FilestoreRequest::DenyFile(FileName::spool("none").unwrap());
            store.submit(StoreEffect::Filestore { ticket: Ticket(10_000 + number), request });
        }
    }
    let mut answered = Vec::new();
    let limit = Instant::now() + Duration::from_secs(30);
    while answered.len() < 5050 {
        assert!(Instant::now() < limit, "{} are answered", answered.len());
        match store.poll() {
            Some((ticket, answer)) => {
                assert_eq!(answer, Ok(Completion::Done));
                answered.push(ticket.0);
            }
            None => std::thread::yield_now(),
        }
    }
    let expected =
        (0..5000).flat_map(|n| std::iter::once(n).chain((n % 100 == 0).then_some(10_000 + n)));
    assert!(answered.into_iter().eq(expected));
    drop(store);
    assert_eq!(load(&mut open_store(config()), "").len(), 5000);
}

#[test]
fn records_that_were_files_move_into_the_log() {
    let place = tempfile::tempdir().unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    for key in ["a", "b"] {
        let request = put(key.to_owned(), b"value");
        execute(&mut store, StoreEffect::Index { ticket: Ticket(1), request }).unwrap().1.unwrap();
    }
    drop(store);
    let index = RecordsIn::Log;
    let mut store = open_store(StoreConfig { index, ..StoreConfig::new(place.path()) });
    let records = ["a", "b"].map(|key| (key.to_owned(), Bytes::from_static(b"value")));
    assert_eq!(load(&mut store, ""), records);
    let left = std::fs::read_dir(place.path().join(".slowlight/index")).unwrap();
    assert_eq!(left.count(), 0);
}

/// Reads 10 bytes of an open file.
fn read_some(store: &mut FileStore, file: FileId, offset: u64) -> Answer {
    let read = StoreEffect::Read { ticket: Ticket(2), file, offset, len: 10 };
    execute(store, read).unwrap().1
}

/// Change of a file, and its name.
type Change<'a> = (&'a str, &'a dyn Fn(&Path));

/// A source of 100 bytes that was last changed an hour ago.
fn source() -> (tempfile::TempDir, FileStore, PathBuf, FileId) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("source");
    std::fs::write(&path, [1; 100]).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    // The clock of file times has ticks of up to 10 ms.
    std::thread::sleep(Duration::from_millis(20));
    let answer = open(&mut store, "source", OpenMode::Read);
    let Ok(Completion::Opened { file, .. }) = answer else { panic!("{answer:?}") };
    assert!(matches!(read_some(&mut store, file, 0), Ok(Completion::Read(_))));
    (place, store, path, file)
}

#[test]
fn reads_of_a_source_that_changed_fail() {
    use std::os::unix::fs::FileExt as _;

    let write = |path: &Path| std::fs::File::options().write(true).open(path).unwrap();
    let changes: [Change; 4] = [
        ("rewritten", &|path| std::fs::write(path, [2; 100]).unwrap()),
        ("a byte", &|path| write(path).write_all_at(&[3], 50).unwrap()),
        ("truncated", &|path| write(path).set_len(60).unwrap()),
        ("longer", &|path| write(path).set_len(200).unwrap()),
    ];
    for (what, change) in changes {
        let (_place, mut store, path, file) = source();
        change(&path);
        assert_eq!(read_some(&mut store, file, 10), Err(EffectError::Changed), "{what}");
        let work = Work::new(Reverse { offset: 0, len: 0 });
        let work = StoreEffect::Work { ticket: Ticket(3), file, work };
        assert_eq!(execute(&mut store, work).unwrap().1, Err(EffectError::Changed), "{what}");
    }
}

#[test]
fn sources_that_are_moved_replaced_or_removed_are_read_on() {
    let changes: [Change; 4] = [
        ("moved", &|path| std::fs::rename(path, path.with_file_name("moved")).unwrap()),
        ("protected", &|path| {
            let read_only = std::fs::Permissions::from_mode(0o400);
            std::fs::set_permissions(path, read_only).unwrap();
        }),
        ("removed", &|path| std::fs::remove_file(path).unwrap()),
        ("replaced", &|path| {
            let other = path.with_file_name("other");
            std::fs::write(&other, [2; 100]).unwrap();
            std::fs::rename(other, path).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (_place, mut store, path, file) = source();
        change(&path);
        let answer = read_some(&mut store, file, 10);
        assert_eq!(answer, Ok(Completion::Read(Bytes::from_static(&[1; 10]))), "{what}");
    }
}

/// Engines write to and read from their working files at the same time.
#[test]
fn working_files_may_change() {
    let place = tempfile::tempdir().unwrap();
    let mut store = open_store(StoreConfig::new(place.path()));
    let name = FileName::spool("working").unwrap();
    let mut opened = |mode| {
        let open = StoreEffect::Open { ticket: Ticket(1), name: name.clone(), mode };
        match execute(&mut store, open).unwrap().1 {
            Ok(Completion::Opened { file, .. }) => file,
            answer => panic!("{answer:?}"),
        }
    };
    let writer = opened(OpenMode::Truncate);
    let reader = opened(OpenMode::Read);
    let bytes = Bytes::from_static(&[1; 20]);
    let write = StoreEffect::Write { ticket: Ticket(2), file: writer, offset: 0, bytes };
    assert_eq!(execute(&mut store, write).unwrap().1, Ok(Completion::Done));
    let answer = read_some(&mut store, reader, 10);
    assert_eq!(answer, Ok(Completion::Read(Bytes::from_static(&[1; 10]))));
}

/// Store that treats files that exist by a policy, and the reports about packs.
fn receiving(root: &Path, existing: Existing) -> (FileStore, Receiver<Unpacked>) {
    let (reports, unpacked) = unbounded();
    let unpack = Some(Unpack { existing, keeps_packs: false, reports });
    (open_store(StoreConfig { unpack, ..StoreConfig::new(root) }), unpacked)
}

/// Installs a working file with this content.
fn install_content(store: &mut FileStore, root: &Path, content: &[u8], to: &str) -> Answer {
    std::fs::write(root.join(".slowlight/spool/new"), content).unwrap();
    let from = FileName::spool("new").unwrap();
    let request = FilestoreRequest::Install { from, to: FileName::file(to).unwrap() };
    execute(store, StoreEffect::Filestore { ticket: Ticket(1), request }).unwrap().1
}

#[test]
fn received_files_that_exist_are_treated_by_the_policy() {
    let done = Ok(Completion::Done);
    for (existing, answer, content, aside) in [
        (Existing::Rename, done.clone(), "new", Some("old")),
        (Existing::Replace, done.clone(), "new", None),
        (Existing::Newer, done.clone(), "new", None),
        (Existing::Skip, done.clone(), "old", None),
        (Existing::Fail, Err(EffectError::Exists), "old", None),
    ] {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let (mut store, _reports) = receiving(root, existing);
        let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
        // Folders are made.
        assert_eq!(install_content(&mut store, root, b"old", "a/b/file"), done);
        assert_eq!(install_content(&mut store, root, b"old", "a/b/file"), done, "the same");
        assert_eq!(install_content(&mut store, root, b"new", "a/b/file"), answer, "{existing}");
        assert_eq!(read("a/b/file").as_deref(), Some(content), "{existing}");
        assert_eq!(read("a/b/file.~1~").as_deref(), aside, "{existing}");
        assert_eq!(std::fs::read_dir(root.join("a/b")).unwrap().count(), 1 + aside.iter().count());
    }
}

#[test]
fn a_pack_is_read_from_its_files_and_unpacked() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(here.path().join("f")).unwrap();
    std::fs::write(here.path().join("f/file"), [7; 5000]).unwrap();
    let scan = tree::scan(&[here.path().join("f")], &tree::ScanOptions::default()).unwrap();
    let plan = tree::plan(scan.entries, 1 << 20).remove(0);
    let (packs, name) = (Arc::new(Packs::default()), tree::pack_name("f", 1, 1));
    let len = plan.len();
    packs.add(FileName::file(&name).unwrap(), Pack::new(plan));
    let state = here.path().join("state");
    let access = Access::ReadPacks(Arc::clone(&packs));
    let mut store = open_store(StoreConfig { access, state, ..StoreConfig::new(here.path()) });
    // Only packs are read.
    assert_eq!(open(&mut store, "f/file", OpenMode::Read), Err(EffectError::NotFound));
    assert_eq!(open(&mut store, &name, OpenMode::Write), Err(EffectError::NotAllowed));
    let opened = open(&mut store, &name, OpenMode::Read);
    let Ok(Completion::Opened { file, len: found, .. }) = opened else { panic!("{opened:?}") };
    assert_eq!(found, len);
    let read = StoreEffect::Read { ticket: Ticket(2), file, offset: 0, len: len as usize + 10 };
    let Ok(Completion::Read(archive)) = execute(&mut store, read).unwrap().1 else { panic!() };
    assert_eq!(archive.len() as u64, len);
    let write =
        StoreEffect::Write { ticket: Ticket(3), file, offset: 0, bytes: Bytes::from_static(b"x") };
    assert_eq!(execute(&mut store, write).unwrap().1, Err(EffectError::NotAllowed));

    let (mut receiver, reports) = receiving(there.path(), Existing::Rename);
    let answer = install_content(&mut receiver, there.path(), &archive, &name);
    assert_eq!(answer, Ok(Completion::Done));
    assert_eq!(reports.try_recv().unwrap().files, 1);
    assert_eq!(std::fs::read(there.path().join("f/file")).unwrap(), [7; 5000]);
    assert!(!there.path().join(".slowlight/spool/new").exists());
    // Names that must be new are given in another way.
    std::fs::remove_dir_all(there.path().join("f")).unwrap();
    std::fs::write(there.path().join(".slowlight/spool/new"), &archive).unwrap();
    let (from, to) = (FileName::spool("new").unwrap(), FileName::file(&name).unwrap());
    let request = FilestoreRequest::RenameFile { from, to };
    assert_eq!(filestore(&mut receiver, request), Ok(Completion::Done));
    assert_eq!(std::fs::read(there.path().join("f/file")).unwrap(), [7; 5000]);
    // A peer that renames a file unpacks nothing.
    std::fs::write(there.path().join("plain"), &archive).unwrap();
    let (from, to) = (FileName::file("plain").unwrap(), FileName::file(&name).unwrap());
    let request = FilestoreRequest::RenameFile { from, to };
    assert_eq!(filestore(&mut receiver, request), Ok(Completion::Done));
    assert!(there.path().join(&name).exists());
    // What is no archive is refused, and stays for the engine.
    let answer = install_content(&mut receiver, there.path(), &[9; 2000], &name);
    assert!(matches!(answer, Err(EffectError::Failed(_))), "{answer:?}");
    assert!(there.path().join(".slowlight/spool/new").exists());
    // A file that changed makes its pack unreadable.
    std::fs::write(here.path().join("f/file"), [8; 6000]).unwrap();
    let read = StoreEffect::Read { ticket: Ticket(4), file, offset: 0, len: len as usize };
    assert_eq!(execute(&mut store, read).unwrap().1, Err(EffectError::Changed));
}

#[test]
fn lists_of_what_is_there_are_read_like_files() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    std::fs::create_dir(root.join("f")).unwrap();
    std::fs::write(root.join("f/file"), [7; 5000]).unwrap();
    // A received file cannot pretend to be one.
    std::fs::write(root.join(tree::list_name("f")), "a forged list").unwrap();
    let (mut store, _reports) = receiving(root, Existing::Rename);
    let read = |store: &mut FileStore, name: &str| {
        let opened = open(store, &tree::list_name(name), OpenMode::Read);
        let Ok(Completion::Opened { file, len, .. }) = opened else { panic!("{opened:?}") };
        let read = StoreEffect::Read { ticket: Ticket(2), file, offset: 0, len: len as usize };
        let Ok(Completion::Read(list)) = execute(store, read).unwrap().1 else { panic!() };
        execute(store, StoreEffect::Close { file });
        String::from_utf8(list.to_vec()).unwrap()
    };
    assert_eq!(read(&mut store, "f").lines().count(), 3);
    assert!(read(&mut store, "f").contains("\"file\""));
    assert_eq!(read(&mut store, "missing").lines().count(), 1);
    assert!(!root.join(".slowlight/spool/list.tmp").exists());

    // A store that does not unpack has no lists.
    drop(store);
    let mut plain = open_store(StoreConfig::new(root));
    let opened = open(&mut plain, &tree::list_name("missing"), OpenMode::Read);
    assert_eq!(opened, Err(EffectError::NotFound));
}
