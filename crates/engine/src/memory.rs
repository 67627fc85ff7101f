//! A store in memory that carries out storage effects at once.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Area, Completion, DirEntry, EffectError, EntryKind, FileBytes, FileId, FileName,
    FilestoreRequest, IndexRequest, OpenMode, StoreEffect, Ticket,
};

/// Files, directories and records in memory.
///
/// Without a capacity a file is limited to [`MemoryStore::FILE_MAX`] unless raised. Gaps take
/// memory here, so a write at an offset from a damaged datagram must be refused.
///
/// Simulated hosts and the conformance suite keep their files here. Reading a file stored by
/// [`MemoryStore::insert`] copies nothing.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    nodes: BTreeMap<FileName, Node>,
    open: BTreeMap<FileId, Open>,
    records: BTreeMap<String, Bytes>,
    opened: u64,
    capacity: Option<u64>,
    file_max: u64,
    used: u64,
}

#[derive(Clone, Debug)]
struct Open {
    name: FileName,
    mode: OpenMode,
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

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            open: BTreeMap::new(),
            records: BTreeMap::new(),
            opened: 0,
            capacity: None,
            file_max: Self::FILE_MAX,
            used: 0,
        }
    }
}

/// An open file.
struct OpenFile<'a> {
    store: &'a mut MemoryStore,
    file: FileId,
}

impl FileBytes for OpenFile<'_> {
    fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize, EffectError> {
        let name = self.store.name(self.file)?;
        let bytes = self.store.file(name)?;
        let rest = bytes.get(offset.min(bytes.len() as u64) as usize..).unwrap_or_default();
        let len = rest.len().min(to.len());
        to[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EffectError> {
        self.store.write(self.file, offset, bytes).map(drop)
    }
}

impl MemoryStore {
    /// Default maximum file length of a store without a capacity, in bytes: 1 GiB.
    pub const FILE_MAX: u64 = 1 << 30;

    /// Creates an empty store without a capacity.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the total size of all files, in bytes.
    pub fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    /// Returns the maximum file length of a store without a capacity, in bytes.
    #[must_use]
    pub fn file_max(&self) -> u64 {
        self.file_max
    }

    /// Raises the maximum file length of a store without a capacity to at least this many bytes.
    pub fn raise_file_max(&mut self, bytes: u64) {
        self.file_max = self.file_max.max(bytes);
    }

    /// Stores a file, replacing any file of that name.
    pub fn insert(&mut self, name: FileName, content: impl Into<Bytes>) {
        self.place(name, Node::Shared(content.into()));
    }

    /// Returns a file's content, if it exists.
    #[must_use]
    pub fn get(&self, name: &FileName) -> Option<&[u8]> {
        self.nodes.get(name).and_then(Node::bytes)
    }

    /// Returns the names of all files and directories of an area.
    pub fn names(&self, area: Area) -> impl Iterator<Item = &FileName> {
        self.nodes.keys().filter(move |name| name.area() == area)
    }

    /// Returns the total size of all files, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the engine's records.
    pub fn records(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.records.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Closes all open files, as the end of a process does.
    pub fn close_all(&mut self) {
        self.open.clear();
    }

    /// Returns the name under which an open file was opened.
    #[must_use]
    pub fn name_of(&self, file: FileId) -> Option<&FileName> {
        self.open.get(&file).map(|open| &open.name)
    }

    /// Carries out a storage effect. `None` for an effect without completion.
    pub fn execute(&mut self, effect: StoreEffect) -> Option<(Ticket, Answer)> {
        let ticket = effect.ticket();
        let answer = match effect {
            StoreEffect::Open { name, mode, .. } => self.open(name, mode),
            StoreEffect::Read { file, offset, len, .. } => self.read(file, offset, len),
            StoreEffect::Write { file, offset, bytes, .. } => self.write(file, offset, &bytes),
            StoreEffect::Sync { file, .. } => self.name(file).map(|_| Completion::Done),
            StoreEffect::Work { file, work, .. } => {
                work.run(&mut OpenFile { store: self, file }).map(Completion::Read)
            }
            StoreEffect::Close { file } => {
                self.open.remove(&file);
                return None;
            }
            StoreEffect::Filestore { request, .. } => self.filestore(request),
            StoreEffect::Index { request, .. } => Ok(self.index(request)),
        };
        ticket.map(|ticket| (ticket, answer))
    }

    fn open(&mut self, name: FileName, mode: OpenMode) -> Answer {
        if name.path().is_empty() {
            return Err(EffectError::WrongKind);
        }
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
        self.open.insert(file, Open { name, mode });
        Ok(Completion::Opened { file, len, modified: None })
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
        let open = self.open.get(&file).ok_or_else(not_open)?;
        if open.mode == OpenMode::Read {
            return Err(EffectError::Failed("the file is open for reading only".into()));
        }
        let node = self.nodes.get(&open.name).ok_or(EffectError::NotFound)?;
        if bytes.is_empty() {
            return Ok(Completion::Done);
        }
        let end = offset.checked_add(bytes.len() as u64).ok_or(EffectError::NoSpace)?;
        let growth = end.saturating_sub(node.len());
        self.check_room(end, growth)?;
        let node = self.nodes.get_mut(&open.name).ok_or(EffectError::NotFound)?;
        if let Node::Shared(shared) = node {
            *node = Node::Owned(shared.to_vec());
        }
        let Node::Owned(content) = node else { return Err(EffectError::WrongKind) };
        let (start, end) = (offset as usize, end as usize);
        // The machine may have less memory than the store has capacity.
        let more = end.saturating_sub(content.len());
        content.try_reserve(more).map_err(|_| EffectError::NoSpace)?;
        self.used += growth;
        if start == content.len() {
            content.extend_from_slice(bytes);
        } else {
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
        }
        Ok(Completion::Done)
    }

    /// Checks whether a file may grow by `growth` bytes to a length of `len` bytes.
    fn check_room(&self, len: u64, growth: u64) -> Result<(), EffectError> {
        let fits = match self.capacity {
            Some(capacity) => self.used.saturating_add(growth) <= capacity,
            None => len <= self.file_max,
        };
        if growth == 0 || fits { Ok(()) } else { Err(EffectError::NoSpace) }
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
                let content = [self.file(&to)?, self.file(&from)?].concat();
                self.replace(to, content)?;
            }
            FilestoreRequest::ReplaceFile { to, from } => {
                self.file(&to)?;
                let content = self.file(&from)?.to_vec();
                self.replace(to, content)?;
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
                if to.path().is_empty() || matches!(self.nodes.get(&to), Some(Node::Directory)) {
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
            IndexRequest::Load { prefix } => {
                let records = self.records.iter().filter(|(key, _)| key.starts_with(&prefix));
                Completion::Records(
                    records.map(|(key, value)| (key.clone(), value.clone())).collect(),
                )
            }
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
                modified: None,
            })
        });
        Ok(Completion::Listing(entries.collect()))
    }

    fn name(&self, file: FileId) -> Result<&FileName, EffectError> {
        self.open.get(&file).map(|open| &open.name).ok_or_else(not_open)
    }

    fn file(&self, name: &FileName) -> Result<&[u8], EffectError> {
        let node = self.nodes.get(name).ok_or(EffectError::NotFound)?;
        node.bytes().ok_or(EffectError::WrongKind)
    }

    fn free(&self, name: &FileName) -> Result<(), EffectError> {
        if name.path().is_empty() || self.nodes.contains_key(name) {
            return Err(EffectError::Exists);
        }
        self.parent_exists(name)
    }

    fn parent_exists(&self, name: &FileName) -> Result<(), EffectError> {
        let Some(parent) = name.parent() else { return Ok(()) };
        match self.nodes.get(&parent) {
            Some(Node::Directory) => Ok(()),
            Some(Node::Shared(_) | Node::Owned(_)) => Err(EffectError::WrongKind),
            None => Err(EffectError::NotFound),
        }
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

    fn replace(&mut self, name: FileName, content: Vec<u8>) -> Result<(), EffectError> {
        let len = content.len() as u64;
        let growth = len.saturating_sub(self.nodes.get(&name).map_or(0, Node::len));
        self.check_room(len, growth)?;
        self.place(name, Node::Owned(content));
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

fn not_open() -> EffectError {
    EffectError::Failed("the file is not open".into())
}

#[cfg(test)]
mod tests;
