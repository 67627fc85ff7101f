//! A store in memory that carries out storage effects at once.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Area, Completion, DirEntry, Effect, EffectError, EntryKind, FileId, FileName, FilestoreRequest,
    IndexRequest, OpenMode, Ticket,
};

/// Files, directories and records in memory.
///
/// Simulated hosts and the conformance suite keep their files here. Reading a file that was put
/// in by [`MemoryStore::insert`] copies nothing.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    nodes: BTreeMap<FileName, Node>,
    open: BTreeMap<FileId, FileName>,
    records: BTreeMap<String, Bytes>,
    opened: u64,
    capacity: Option<u64>,
    used: u64,
}

#[derive(Clone, Debug)]
enum Node {
    Directory,
    Shared(Bytes),
    Owned(Vec<u8>),
}

impl Node {
    fn len(&self) -> u64 {
        match self {
            Self::Directory => 0,
            Self::Shared(bytes) => bytes.len() as u64,
            Self::Owned(bytes) => bytes.len() as u64,
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Directory => None,
            Self::Shared(bytes) => Some(bytes),
            Self::Owned(bytes) => Some(bytes),
        }
    }
}

type Answer = Result<Completion, EffectError>;

impl MemoryStore {
    /// An empty store without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses writes that would make the files together larger than this many bytes.
    pub fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    /// Puts a file in, in place of what has its name.
    pub fn insert(&mut self, name: FileName, content: impl Into<Bytes>) {
        self.place(name, Node::Shared(content.into()));
    }

    /// A file's content, if there is such a file.
    #[must_use]
    pub fn get(&self, name: &FileName) -> Option<&[u8]> {
        self.nodes.get(name).and_then(Node::bytes)
    }

    /// The names of all files and directories of an area.
    pub fn names(&self, area: Area) -> impl Iterator<Item = &FileName> {
        self.nodes.keys().filter(move |name| name.area() == area)
    }

    /// Bytes in all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The engine's records.
    pub fn records(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.records.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Forgets which files are open, as the end of a process does.
    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// The name an open file was opened under.
    #[must_use]
    pub fn name_of(&self, file: FileId) -> Option<&FileName> {
        self.open.get(&file)
    }

    /// Carries out a storage effect. `None` for an effect that has no answer; path effects are
    /// not the store's and have none either.
    pub fn execute(&mut self, effect: Effect) -> Option<(Ticket, Answer)> {
        let ticket = effect.ticket();
        let answer = match effect {
            Effect::Open { name, mode, .. } => self.open(name, mode),
            Effect::Read { file, offset, len, .. } => self.read(file, offset, len),
            Effect::Write { file, offset, bytes, .. } => self.write(file, offset, &bytes),
            Effect::Sync { file, .. } => self.name(file).map(|_| Completion::Done),
            Effect::Close { file } => {
                self.open.remove(&file);
                return None;
            }
            Effect::Filestore { request, .. } => self.filestore(request),
            Effect::Index { request, .. } => Ok(self.index(request)),
            Effect::OpenPath { .. }
            | Effect::ClosePath { .. }
            | Effect::ShutdownWrite { .. }
            | Effect::StartTls { .. }
            | Effect::PauseRead { .. }
            | Effect::ResumeRead { .. } => return None,
        };
        ticket.map(|ticket| (ticket, answer))
    }

    fn open(&mut self, name: FileName, mode: OpenMode) -> Answer {
        let len = match (self.nodes.get(&name), mode) {
            (Some(Node::Directory), _) => return Err(EffectError::WrongKind),
            (Some(node), OpenMode::Read | OpenMode::Write) => node.len(),
            (None, OpenMode::Read) => return Err(EffectError::NotFound),
            (None, OpenMode::Write | OpenMode::Truncate) | (Some(_), OpenMode::Truncate) => {
                self.parent_exists(&name)?;
                self.place(name.clone(), Node::Owned(Vec::new()));
                0
            }
        };
        self.opened += 1;
        let file = FileId(self.opened);
        self.open.insert(file, name);
        Ok(Completion::Opened { file, len })
    }

    fn read(&mut self, file: FileId, offset: u64, len: usize) -> Answer {
        let name = self.name(file)?;
        let node = self.nodes.get(name).ok_or(EffectError::NotFound)?;
        let start = offset.min(node.len()) as usize;
        let end = (offset.saturating_add(len as u64)).min(node.len()) as usize;
        Ok(Completion::Read(match node {
            Node::Directory => return Err(EffectError::WrongKind),
            Node::Shared(bytes) => bytes.slice(start..end),
            Node::Owned(bytes) => Bytes::copy_from_slice(&bytes[start..end]),
        }))
    }

    fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Answer {
        let name = self.name(file)?.clone();
        let node = self.nodes.get_mut(&name).ok_or(EffectError::NotFound)?;
        let end = offset.checked_add(bytes.len() as u64).ok_or(EffectError::NoSpace)?;
        let growth = end.saturating_sub(node.len());
        if self.capacity.is_some_and(|capacity| self.used + growth > capacity) {
            return Err(EffectError::NoSpace);
        }
        self.used += growth;
        if let Node::Shared(shared) = node {
            *node = Node::Owned(shared.to_vec());
        }
        match node {
            Node::Directory | Node::Shared(_) => Err(EffectError::WrongKind),
            Node::Owned(content) => {
                let (start, end) = (offset as usize, end as usize);
                if start == content.len() {
                    content.extend_from_slice(bytes);
                } else {
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(bytes);
                }
                Ok(Completion::Done)
            }
        }
    }

    fn filestore(&mut self, request: FilestoreRequest) -> Answer {
        match request {
            FilestoreRequest::CreateFile(name) => {
                self.free(&name)?;
                self.place(name, Node::Owned(Vec::new()));
            }
            FilestoreRequest::DeleteFile(name) => {
                self.file(&name)?;
                self.remove(&name);
            }
            FilestoreRequest::RenameFile { from, to } => {
                self.file(&from)?;
                self.free(&to)?;
                self.move_file(&from, to);
            }
            FilestoreRequest::AppendFile { to, from } => {
                let mut content = self.file(&to)?.to_vec();
                content.extend_from_slice(self.file(&from)?);
                self.place(to, Node::Owned(content));
            }
            FilestoreRequest::ReplaceFile { to, from } => {
                self.file(&to)?;
                let content = self.file(&from)?.to_vec();
                self.place(to, Node::Owned(content));
            }
            FilestoreRequest::CreateDirectory(name) => {
                self.free(&name)?;
                self.place(name, Node::Directory);
            }
            FilestoreRequest::RemoveDirectory(name) => self.remove_directory(&name)?,
            FilestoreRequest::DenyFile(name) => match self.nodes.get(&name) {
                Some(Node::Directory) => return Err(EffectError::WrongKind),
                Some(Node::Shared(_) | Node::Owned(_)) => self.remove(&name),
                None => {}
            },
            FilestoreRequest::DenyDirectory(name) => match self.remove_directory(&name) {
                Ok(()) | Err(EffectError::NotFound) => {}
                Err(error) => return Err(error),
            },
            FilestoreRequest::Install { from, to } => {
                self.file(&from)?;
                self.parent_exists(&to)?;
                if matches!(self.nodes.get(&to), Some(Node::Directory)) {
                    return Err(EffectError::WrongKind);
                }
                self.move_file(&from, to);
            }
            FilestoreRequest::List(name) => return self.list(&name),
        }
        Ok(Completion::Done)
    }

    fn index(&mut self, request: IndexRequest) -> Completion {
        match request {
            IndexRequest::Put { key, value } => {
                self.records.insert(key, value);
                Completion::Done
            }
            IndexRequest::Remove { key } => {
                self.records.remove(&key);
                Completion::Done
            }
            IndexRequest::Load => Completion::Records(
                self.records.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            ),
        }
    }

    fn list(&self, name: &FileName) -> Answer {
        let prefix = if name.path().is_empty() {
            String::new()
        } else {
            match self.nodes.get(name) {
                Some(Node::Directory) => format!("{}/", name.path()),
                Some(Node::Shared(_) | Node::Owned(_)) => return Err(EffectError::WrongKind),
                None => return Err(EffectError::NotFound),
            }
        };
        let entries = self.nodes.iter().filter(|(other, _)| other.area() == name.area());
        let entries = entries.filter_map(|(other, node)| {
            let rest = other.path().strip_prefix(&prefix)?;
            (!rest.is_empty() && !rest.contains('/')).then(|| DirEntry {
                name: rest.to_owned(),
                kind: match node {
                    Node::Directory => EntryKind::Directory,
                    Node::Shared(_) | Node::Owned(_) => EntryKind::File(node.len()),
                },
            })
        });
        Ok(Completion::Listing(entries.collect()))
    }

    fn name(&self, file: FileId) -> Result<&FileName, EffectError> {
        self.open.get(&file).ok_or_else(|| EffectError::Failed("the file is not open".into()))
    }

    fn file(&self, name: &FileName) -> Result<&[u8], EffectError> {
        let node = self.nodes.get(name).ok_or(EffectError::NotFound)?;
        node.bytes().ok_or(EffectError::WrongKind)
    }

    fn free(&self, name: &FileName) -> Result<(), EffectError> {
        if self.nodes.contains_key(name) {
            return Err(EffectError::Exists);
        }
        self.parent_exists(name)
    }

    fn parent_exists(&self, name: &FileName) -> Result<(), EffectError> {
        let Some((parent, _)) = name.path().rsplit_once('/') else { return Ok(()) };
        let is_directory = |(other, node): (&FileName, &Node)| {
            other.area() == name.area() && other.path() == parent && matches!(node, Node::Directory)
        };
        if self.nodes.iter().any(is_directory) { Ok(()) } else { Err(EffectError::NotFound) }
    }

    fn remove_directory(&mut self, name: &FileName) -> Result<(), EffectError> {
        match self.nodes.get(name) {
            Some(Node::Directory) => {}
            Some(Node::Shared(_) | Node::Owned(_)) => return Err(EffectError::WrongKind),
            None => return Err(EffectError::NotFound),
        }
        let prefix = format!("{}/", name.path());
        let occupied = self.names(name.area()).any(|other| other.path().starts_with(&prefix));
        if occupied {
            return Err(EffectError::NotEmpty);
        }
        self.remove(name);
        Ok(())
    }

    fn place(&mut self, name: FileName, node: Node) {
        self.used += node.len();
        if let Some(old) = self.nodes.insert(name, node) {
            self.used -= old.len();
        }
    }

    fn remove(&mut self, name: &FileName) {
        if let Some(old) = self.nodes.remove(name) {
            self.used -= old.len();
        }
    }

    fn move_file(&mut self, from: &FileName, to: FileName) {
        if let Some(node) = self.nodes.remove(from) {
            self.used -= node.len();
            self.place(to, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> FileName {
        FileName::file(path).unwrap()
    }

    fn filestore(store: &mut MemoryStore, request: FilestoreRequest) -> Answer {
        store.execute(Effect::Filestore { ticket: Ticket(1), request }).unwrap().1
    }

    fn open(store: &mut MemoryStore, path: &str, mode: OpenMode) -> FileId {
        let effect = Effect::Open { ticket: Ticket(1), name: name(path), mode };
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
        let write = Effect::Write { ticket: Ticket(2), file, offset: 2, bytes };
        assert_eq!(store.execute(write), Some((Ticket(2), Ok(Completion::Done))));
        let read = Effect::Read { ticket: Ticket(3), file, offset: 1, len: 100 };
        let answer = Ok(Completion::Read(Bytes::from_static(b"\0xyz")));
        assert_eq!(store.execute(read), Some((Ticket(3), answer)));
        assert_eq!(store.used(), 5);
    }

    #[test]
    fn a_full_store_says_so_and_keeps_what_it_has() {
        let mut store = MemoryStore::new();
        store.set_capacity(Some(4));
        let file = open(&mut store, "a", OpenMode::Write);
        let mut write = |offset, bytes: &'static [u8]| {
            let bytes = Bytes::from_static(bytes);
            let effect = Effect::Write { ticket: Ticket(2), file, offset, bytes };
            store.execute(effect).unwrap().1
        };
        assert_eq!(write(0, b"1234"), Ok(Completion::Done));
        assert_eq!(write(4, b"5"), Err(EffectError::NoSpace));
        assert_eq!(write(0, b"abcd"), Ok(Completion::Done));
        assert_eq!(store.get(&name("a")), Some(&b"abcd"[..]));
    }

    #[test]
    fn filestore_requests_behave_as_the_book_says() {
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
        let entry = DirEntry { name: "g".into(), kind: EntryKind::File(0) };
        assert_eq!(listing, Ok(Completion::Listing(vec![entry])));
    }
}
