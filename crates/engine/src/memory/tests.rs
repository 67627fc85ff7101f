use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{FileJob, Work};

fn name(path: &str) -> FileName {
    FileName::file(path).unwrap()
}

fn filestore(store: &mut MemoryStore, request: FilestoreRequest) -> Answer {
    store.execute(StoreEffect::Filestore { ticket: Ticket(1), request }).unwrap().1
}

fn open(store: &mut MemoryStore, path: &str, mode: OpenMode) -> FileId {
    let effect = StoreEffect::Open { ticket: Ticket(1), name: name(path), mode };
    match store.execute(effect).unwrap().1.unwrap() {
        Completion::Opened { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn writes_leave_zeros_in_gaps_and_reads_stop_at_the_end() {
    let mut store = MemoryStore::new();
    let file = open(&mut store, "a", OpenMode::Write);
    let bytes = Bytes::from_static(b"xyz");
    let write = StoreEffect::Write { ticket: Ticket(2), file, offset: 2, bytes };
    assert_eq!(store.execute(write), Some((Ticket(2), Ok(Completion::Done))));
    let read = StoreEffect::Read { ticket: Ticket(3), file, offset: 1, len: 100 };
    let answer = Ok(Completion::Read(Bytes::from_static(b"\0xyz")));
    assert_eq!(store.execute(read), Some((Ticket(3), answer)));
    assert_eq!(store.used(), 5);
}

/// Doubles the bytes of a file.
#[derive(Debug)]
struct Double;

impl FileJob for Double {
    fn run(&self, file: &mut dyn FileBytes) -> Result<Bytes, EffectError> {
        let mut bytes = [0; 8];
        let read = file.read_at(0, &mut bytes)?;
        file.write_at(read as u64, &bytes[..read])?;
        Ok(Bytes::copy_from_slice(&bytes[..read]))
    }

    fn cost(&self) -> u64 {
        16
    }
}

#[test]
fn computations_read_and_write_open_files() {
    let mut store = MemoryStore::new();
    store.insert(name("a"), &b"xyz"[..]);
    let file = open(&mut store, "a", OpenMode::Write);
    let work = Work::new(Double);
    let effect = StoreEffect::Work { ticket: Ticket(4), file, work };
    let answer = Ok(Completion::Read(Bytes::from_static(b"xyz")));
    assert_eq!(store.execute(effect.clone()), Some((Ticket(4), answer)));
    assert_eq!(store.get(&name("a")), Some(&b"xyzxyz"[..]));
    store.close_all();
    assert!(matches!(store.execute(effect), Some((_, Err(EffectError::Failed(_))))));
}

#[test]
fn a_full_store_fails_and_keeps_its_content() {
    let mut store = MemoryStore::new();
    store.set_capacity(Some(4));
    let file = open(&mut store, "a", OpenMode::Write);
    let mut write = |offset, bytes: &'static [u8]| {
        let bytes = Bytes::from_static(bytes);
        let effect = StoreEffect::Write { ticket: Ticket(2), file, offset, bytes };
        store.execute(effect).unwrap().1
    };
    assert_eq!(write(0, b"1234"), Ok(Completion::Done));
    assert_eq!(write(4, b"5"), Err(EffectError::NoSpace));
    assert_eq!(write(0, b"abcd"), Ok(Completion::Done));
    assert_eq!(store.get(&name("a")), Some(&b"abcd"[..]));
}

#[test]
fn filestore_requests_follow_the_cfdp_book() {
    use FilestoreRequest as R;
    let mut store = MemoryStore::new();
    let mut go = |request| filestore(&mut store, request);
    assert_eq!(go(R::CreateFile(name("d/f"))), Err(EffectError::NotFound));
    assert_eq!(go(R::CreateDirectory(name("d"))), Ok(Completion::Done));
    assert_eq!(go(R::CreateFile(name("d/f"))), Ok(Completion::Done));
    assert_eq!(go(R::CreateFile(name("d/f"))), Err(EffectError::Exists));
    assert_eq!(go(R::RemoveDirectory(name("d"))), Err(EffectError::NotEmpty));
    assert_eq!(go(R::RenameFile { from: name("d/f"), to: name("g") }), Ok(Completion::Done));
    assert_eq!(go(R::DeleteFile(name("d"))), Err(EffectError::WrongKind));
    assert_eq!(go(R::DenyFile(name("nothing"))), Ok(Completion::Done));
    assert_eq!(go(R::DenyDirectory(name("d"))), Ok(Completion::Done));
    let listing = go(R::List(FileName::root()));
    let entry = DirEntry { name: "g".into(), kind: EntryKind::File(0), modified: None };
    assert_eq!(listing, Ok(Completion::Listing(vec![entry])));
}

#[test]
fn a_gap_that_would_take_the_memory_is_refused() {
    let mut store = MemoryStore::new();
    let file = open(&mut store, "a", OpenMode::Write);
    for offset in [MemoryStore::FILE_MAX, u64::MAX - 1, u64::MAX] {
        let bytes = Bytes::from_static(b"x");
        let write = StoreEffect::Write { ticket: Ticket(2), file, offset, bytes };
        assert_eq!(store.execute(write).unwrap().1, Err(EffectError::NoSpace));
    }
    assert_eq!(store.used(), 0);
}

#[test]
fn the_file_limit_can_be_raised_but_not_beyond_memory() {
    let mut store = MemoryStore::new();
    store.raise_file_max(1);
    assert_eq!(store.file_max(), MemoryStore::FILE_MAX);
    store.raise_file_max(1 << 60);
    assert_eq!(store.check_room(1 << 60, 1), Ok(()));
    assert_eq!(store.check_room((1 << 60) + 1, 1), Err(EffectError::NoSpace));
    let file = open(&mut store, "a", OpenMode::Write);
    let bytes = Bytes::from_static(b"x");
    let write = StoreEffect::Write { ticket: Ticket(2), file, offset: (1 << 60) - 1, bytes };
    assert_eq!(store.execute(write).unwrap().1, Err(EffectError::NoSpace));
    assert_eq!(store.used(), 0);
}

#[test]
fn the_root_is_a_directory_and_stays_one() {
    use FilestoreRequest as R;
    let mut store = MemoryStore::new();
    store.insert(name("a"), &b"x"[..]);
    let root = FileName::root;
    let effect = StoreEffect::Open { ticket: Ticket(1), name: root(), mode: OpenMode::Write };
    assert_eq!(store.execute(effect).unwrap().1, Err(EffectError::WrongKind));
    for request in [
        R::CreateFile(root()),
        R::CreateDirectory(root()),
        R::RenameFile { from: name("a"), to: root() },
        R::Install { from: name("a"), to: root() },
        R::RemoveDirectory(root()),
        R::DeleteFile(root()),
    ] {
        assert!(filestore(&mut store, request.clone()).is_err(), "{request:?}");
    }
    assert_eq!(store.names(Area::Files).collect::<Vec<_>>(), [&name("a")]);
}

#[test]
fn a_file_open_for_reading_is_not_written() {
    let mut store = MemoryStore::new();
    store.insert(name("a"), &b"x"[..]);
    let file = open(&mut store, "a", OpenMode::Read);
    let bytes = Bytes::from_static(b"y");
    let write = StoreEffect::Write { ticket: Ticket(2), file, offset: 0, bytes };
    assert!(store.execute(write).unwrap().1.is_err());
    assert_eq!(store.get(&name("a")), Some(&b"x"[..]));
}

/// One change of a file given by its name; each write opens the file separately.
#[derive(Clone, Debug)]
enum Op {
    Write { name: &'static str, mode: OpenMode, offset: u64, len: usize },
    Store(FilestoreRequest),
}

const NAMES: [&str; 7] = ["a", "b", "d", "d/a", "d/e", "d/e/a", "dx"];

fn request() -> impl Strategy<Value = FilestoreRequest> {
    use FilestoreRequest as R;
    let one = prop::sample::select(&NAMES[..]).prop_map(name);
    (0..11u8, one.clone(), one).prop_map(|(kind, from, to)| match kind {
        0 => R::CreateFile(from),
        1 => R::DeleteFile(from),
        2 => R::RenameFile { from, to },
        3 => R::AppendFile { to, from },
        4 => R::ReplaceFile { to, from },
        5 | 6 => R::CreateDirectory(from),
        7 => R::RemoveDirectory(from),
        8 => R::DenyFile(from),
        9 => R::DenyDirectory(from),
        _ => R::Install { from, to },
    })
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop::sample::select(vec![OpenMode::Write, OpenMode::Truncate]);
    let write = (prop::sample::select(&NAMES[..]), mode, 0..30u64, 0..20usize)
        .prop_map(|(name, mode, offset, len)| Op::Write { name, mode, offset, len });
    prop_oneof![write, request().prop_map(Op::Store)]
}

/// Map from name to content, `None` for a directory. Decides each change by looking at all
/// entries.
#[derive(Default)]
struct Model(BTreeMap<String, Option<Vec<u8>>>);

const CAPACITY: usize = 100;

impl Model {
    fn is_file(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Some(_)))
    }

    fn has_place(&self, name: &str) -> bool {
        name.rsplit_once('/').is_none_or(|(parent, _)| self.0.get(parent) == Some(&None))
    }

    fn used(&self) -> usize {
        self.0.values().flatten().map(Vec::len).sum()
    }

    /// Sets a file's content if the total size still fits, or if the file does not grow.
    fn set(&mut self, name: &str, content: Vec<u8>) -> bool {
        let old = self.0.get(name).cloned().flatten().unwrap_or_default().len();
        let fits = content.len() <= old || self.used() - old + content.len() <= CAPACITY;
        if fits {
            self.0.insert(name.to_owned(), Some(content));
        }
        fits
    }

    fn write(&mut self, name: &str, mode: OpenMode, offset: u64, bytes: &[u8]) -> bool {
        let takes = self.is_file(name) || (!self.0.contains_key(name) && self.has_place(name));
        if !takes {
            return false;
        }
        let old = self.0.entry(name.to_owned()).or_insert(None).take().unwrap_or_default();
        let mut content = if mode == OpenMode::Truncate { Vec::new() } else { old };
        self.0.insert(name.to_owned(), Some(content.clone()));
        for (at, byte) in (offset as usize..).zip(bytes) {
            content.resize(content.len().max(at + 1), 0);
            content[at] = *byte;
        }
        self.set(name, content)
    }

    fn store(&mut self, request: &FilestoreRequest) -> bool {
        use FilestoreRequest as R;
        let free = |model: &Self, name: &str| !model.0.contains_key(name) && model.has_place(name);
        match request {
            R::CreateFile(name) if free(self, name.path()) => self.set(name.path(), Vec::new()),
            R::CreateDirectory(name) if free(self, name.path()) => {
                self.0.insert(name.path().to_owned(), None).is_none()
            }
            R::DeleteFile(name) if self.is_file(name.path()) => {
                self.0.remove(name.path()).is_some()
            }
            R::DenyFile(name) if self.is_file(name.path()) => self.0.remove(name.path()).is_some(),
            R::DenyFile(name) => !self.0.contains_key(name.path()),
            R::RenameFile { from, to } if self.is_file(from.path()) && free(self, to.path()) => {
                let content = self.0.remove(from.path()).unwrap();
                self.0.insert(to.path().to_owned(), content).is_none()
            }
            R::Install { from, to } if self.is_file(from.path()) && self.has_place(to.path()) => {
                if self.0.get(to.path()) == Some(&None) {
                    return false;
                }
                let content = self.0.remove(from.path()).unwrap();
                self.0.insert(to.path().to_owned(), content);
                true
            }
            R::AppendFile { to, from } | R::ReplaceFile { to, from }
                if self.is_file(from.path()) && self.is_file(to.path()) =>
            {
                let get = |name: &FileName| self.0[name.path()].clone().unwrap();
                let mut content =
                    if matches!(request, R::AppendFile { .. }) { get(to) } else { Vec::new() };
                content.extend(get(from));
                self.set(to.path(), content)
            }
            R::RemoveDirectory(name) | R::DenyDirectory(name) => match self.0.get(name.path()) {
                Some(None) => {
                    let inside = format!("{}/", name.path());
                    let empty = !self.0.keys().any(|other| other.starts_with(&inside));
                    empty && self.0.remove(name.path()).is_some()
                }
                Some(Some(_)) => false,
                None => matches!(request, R::DenyDirectory(_)),
            },
            _ => false,
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_plain_map(ops in prop::collection::vec(op(), 0..60)) {
        let (mut store, mut model) = (MemoryStore::new(), Model::default());
        store.set_capacity(Some(CAPACITY as u64));
        for op in ops {
            let (done, expected) = match &op {
                Op::Store(request) => {
                    let done = filestore(&mut store, request.clone()).is_ok();
                    (done, model.store(request))
                }
                Op::Write { name: path, mode, offset, len } => {
                    let effect =
                        StoreEffect::Open { ticket: Ticket(1), name: name(path), mode: *mode };
                    let done = match store.execute(effect).unwrap().1 {
                        Ok(Completion::Opened { file, .. }) => {
                            let bytes = Bytes::from(vec![7; *len]);
                            let offset = *offset;
                            let write = StoreEffect::Write { ticket: Ticket(2), file, offset, bytes };
                            let done = store.execute(write).unwrap().1.is_ok();
                            store.execute(StoreEffect::Close { file });
                            done
                        }
                        _ => false,
                    };
                    (done, model.write(path, *mode, *offset, &vec![7; *len]))
                }
            };
            prop_assert_eq!(done, expected, "{:?}", op);
            let names: Vec<_> = store.names(Area::Files).map(|name| name.path()).collect();
            prop_assert_eq!(names, model.0.keys().map(String::as_str).collect::<Vec<_>>());
            for (path, content) in &model.0 {
                prop_assert_eq!(store.get(&name(path)), content.as_deref());
            }
            prop_assert_eq!(store.used(), model.used() as u64);
        }
    }
}

#[test]
fn records_are_loaded_by_prefix() {
    let mut store = MemoryStore::new();
    let mut index = |request| {
        store.execute(StoreEffect::Index { ticket: Ticket(1), request }).unwrap().1.unwrap()
    };
    for key in ["b/2", "a/1", "b/1", "b"] {
        let value = Bytes::copy_from_slice(key.as_bytes());
        index(IndexRequest::Put { key: key.to_owned(), value });
    }
    index(IndexRequest::Remove { key: "b/2".to_owned() });
    for (prefix, keys) in [("b/", &["b/1"][..]), ("b", &["b", "b/1"]), ("", &["a/1", "b", "b/1"])] {
        let loaded = index(IndexRequest::Load { prefix: prefix.to_owned() });
        let record = |key: &&str| ((*key).to_owned(), Bytes::copy_from_slice(key.as_bytes()));
        assert_eq!(loaded, Completion::Records(keys.iter().map(record).collect()), "{prefix}");
    }
}
