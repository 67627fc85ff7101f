//! The engine's records in one database: concurrent changes share one sync.
//!
//! An empty file next to the database reserves space. When the disk is full it is removed, so that
//! completions can be recorded, which frees space again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{EffectError, IndexRequest};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};
use rustix::fs::FallocateFlags;

use super::disk::reason;
use super::free_bytes;
use super::index::checksum;

/// Maximum bytes reserved for changes that free space: the log (4 MiB) must fit, and the pages
/// copied from it.
const RESERVE_MAX: u64 = 8 << 20;
/// Changes per sync when the disk is full: the log must stay short.
const FEW: usize = 64;
/// Interval at which free space is checked again.
const LOOK: Duration = Duration::from_secs(1);

/// The records in one directory.
#[derive(Debug)]
pub(super) struct Database {
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    connection: Connection,
    reserve: Reserve,
    /// Error of the last failed change, reported once.
    reported: Option<EffectError>,
}

/// Reserved space.
#[derive(Debug)]
struct Reserve {
    path: PathBuf,
    bytes: u64,
    /// Time at which the reserved space was given up, or at which reserving was last retried.
    missing_since: Option<Instant>,
}

type Change = Result<(), EffectError>;

fn failed(error: &rusqlite::Error) -> EffectError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => EffectError::NoSpace,
        _ => EffectError::Failed(error.to_string()),
    }
}

impl Database {
    /// Opens the database in a directory, or creates it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let connect = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(directory.join("records.db"))?;
            // Only one process uses the database, guaranteed by the lock file next to it; a change
            // is durable when it completes.
            connection.execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE;
                 PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL;
                 PRAGMA temp_store = MEMORY;
                 CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value BLOB NOT NULL);",
            )?;
            Ok(connection)
        };
        let connection = connect().map_err(io::Error::other)?;
        let bytes = (free_bytes(directory)? / 16).min(RESERVE_MAX);
        let path = directory.join("reserve");
        let mut reserve = Reserve { path, bytes, missing_since: None };
        reserve.take();
        Ok(Self { inside: Mutex::new(Inside { connection, reserve, reported: None }) })
    }

    /// Locks the state. A failed change was rolled back, so the database is consistent even after a
    /// panic.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changes: those that succeed survive a crash when this returns.
    pub(super) fn change(&self, requests: &[&IndexRequest]) -> Vec<Change> {
        self.inside().change(requests)
    }

    /// Loads all records in order of their keys. Skips a damaged one with a warning.
    pub(super) fn load(&self) -> io::Result<Vec<(String, Bytes)>> {
        let inside = self.inside();
        let read = || -> rusqlite::Result<Vec<(String, Bytes)>> {
            let mut all =
                inside.connection.prepare("SELECT key, value FROM records ORDER BY key")?;
            let mut rows = all.query([])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                let (key, value): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
                let value = Bytes::from(value);
                match value.split_first_chunk::<4>() {
                    Some((sum, rest)) if *sum == checksum(&key, rest).to_be_bytes() => {
                        records.push((key, value.slice(4..)));
                    }
                    Some(_) | None => tracing::warn!(key, "a damaged record is ignored"),
                }
            }
            Ok(records)
        };
        read().map_err(io::Error::other)
    }

    /// Removes all records.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.inside().connection.execute("DELETE FROM records", []).map_err(io::Error::other)?;
        Ok(())
    }
}

impl Inside {
    fn change(&mut self, requests: &[&IndexRequest]) -> Vec<Change> {
        self.reserve.look();
        match self.all(requests) {
            Ok(()) => {
                self.reported = None;
                requests.iter().map(|_| Ok(())).collect()
            }
            Err(error) => match failed(&error) {
                EffectError::NoSpace => self.what_makes_room(requests),
                error => {
                    // A broken disk refuses each change.
                    if self.reported.as_ref() != Some(&error) {
                        tracing::warn!("cannot write records: {error}");
                        self.reported = Some(error.clone());
                    }
                    requests.iter().map(|_| Err(error.clone())).collect()
                }
            },
        }
    }

    /// Applies all changes or none, with one sync.
    fn all(&mut self, requests: &[&IndexRequest]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached(
                "INSERT INTO records (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )?;
            let mut remove = transaction.prepare_cached("DELETE FROM records WHERE key = ?1")?;
            for request in requests {
                match request {
                    IndexRequest::Put { key, value } => {
                        let sum = checksum(key, value).to_be_bytes();
                        put.execute(params![key, [&sum[..], value].concat()])?;
                    }
                    IndexRequest::Remove { key } => _ = remove.execute([key])?,
                    IndexRequest::Load => {}
                }
            }
        }
        transaction.commit()
    }

    /// Applies changes when the disk is full. Changes that replace or remove a record use the
    /// reserve; the others fail.
    fn what_makes_room(&mut self, requests: &[&IndexRequest]) -> Vec<Change> {
        let makes: Vec<bool> = requests.iter().map(|request| self.makes_room(request)).collect();
        // The reserve is kept if no request can use it: giving it up would only leave its space to
        // the next write.
        if makes.contains(&true) {
            self.reserve.give_up();
        }
        let mut answers = Vec::with_capacity(requests.len());
        for (few, makes) in requests.chunks(FEW).zip(makes.chunks(FEW)) {
            let some: Vec<&IndexRequest> = few
                .iter()
                .zip(makes)
                .filter_map(|(request, makes)| makes.then_some(*request))
                .collect();
            let done = match some.is_empty() {
                true => Ok(()),
                false => self.in_short_log(&some),
            };
            let no_room = || Err(EffectError::NoSpace);
            answers.extend(makes.iter().map(|makes| if *makes { done.clone() } else { no_room() }));
        }
        answers
    }

    /// Applies all changes or none and truncates the log, which may have no room to grow.
    fn in_short_log(&mut self, requests: &[&IndexRequest]) -> Change {
        let mut done = self.all(requests);
        self.restart_log();
        if done.as_ref().is_err_and(|error| failed(error) == EffectError::NoSpace) {
            done = self.all(requests);
            self.restart_log();
        }
        done.map_err(|error| failed(&error))
    }

    fn restart_log(&self) {
        let again = "PRAGMA wal_checkpoint(RESTART)";
        if let Err(error) = self.connection.query_row(again, [], |_| Ok(())) {
            tracing::debug!(%error, "the log of records cannot restart");
        }
    }

    fn makes_room(&self, request: &IndexRequest) -> bool {
        match request {
            IndexRequest::Put { key, .. } => self.has(key),
            IndexRequest::Remove { .. } | IndexRequest::Load => true,
        }
    }

    fn has(&self, key: &str) -> bool {
        let found = self
            .connection
            .prepare_cached("SELECT 1 FROM records WHERE key = ?1")
            .and_then(|mut one| one.query_row([key], |_| Ok(())).optional());
        matches!(found, Ok(Some(())))
    }
}

impl Reserve {
    /// Reserves the space, if possible.
    fn take(&mut self) {
        let taken = || -> io::Result<()> {
            let file = std::fs::File::create(&self.path)?;
            if self.bytes > 0 {
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?;
            }
            Ok(())
        };
        let is_taken = taken().inspect_err(|error| {
            tracing::debug!("no room is kept free: {}", reason(error));
            // A partial reserve would be useless.
            let _ = std::fs::remove_file(&self.path);
        });
        self.missing_since = is_taken.is_err().then(Instant::now);
    }

    fn give_up(&mut self) {
        if self.missing_since.is_none() {
            // If another process removed the file, the space is free as well.
            let _ = std::fs::remove_file(&self.path);
            self.missing_since = Some(Instant::now());
        }
    }

    /// Reserves the space again when twice as much is free.
    fn look(&mut self) {
        if self.missing_since.is_none_or(|since| since.elapsed() < LOOK) {
            return;
        }
        self.missing_since = Some(Instant::now());
        let free = self.path.parent().and_then(|directory| free_bytes(directory).ok());
        if free.is_some_and(|free| free > 2 * self.bytes) {
            self.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &'static [u8]) -> IndexRequest {
        IndexRequest::Put { key: key.to_owned(), value: Bytes::from_static(value) }
    }

    fn record(key: &str, value: &'static [u8]) -> (String, Bytes) {
        (key.to_owned(), Bytes::from_static(value))
    }

    #[test]
    fn changes_of_one_turn_are_carried_out_in_their_order() {
        let place = tempfile::tempdir().unwrap();
        let remove = IndexRequest::Remove { key: "a".to_owned() };
        let requests = [put("b", b"two"), put("a", b"x"), put("b", b""), remove, put("c", b"y")];
        let database = Database::open(place.path()).unwrap();
        let answers = database.change(&requests.iter().collect::<Vec<_>>());
        assert_eq!(answers, [const { Ok(()) }; 5]);
        let expected = [record("b", b""), record("c", b"y")];
        assert_eq!(database.load().unwrap(), expected);
        drop(database);
        let database = Database::open(place.path()).unwrap();
        assert_eq!(database.load().unwrap(), expected);
        database.clear().unwrap();
        assert_eq!(database.load().unwrap(), []);
    }

    #[test]
    fn space_is_reserved_for_deletions() {
        let place = tempfile::tempdir().unwrap();
        let database = Database::open(place.path()).unwrap();
        database.change(&[&put("old", b"value")]);
        {
            let inside = database.inside();
            let pages = |name| inside.connection.pragma_query_value(None, name, |row| row.get(0));
            let now: u32 = pages("page_count").unwrap();
            inside.connection.pragma_update(None, "max_page_count", now).unwrap();
        }
        let reserve = place.path().join("reserve");
        // Some file systems reserve no space for a file.
        let has_reserve = reserve.exists();
        let new = put("new", &[7; 10_000]);
        assert_eq!(database.change(&[&new]), [Err(EffectError::NoSpace)]);
        assert_eq!(reserve.exists(), has_reserve, "nothing was made of its room");
        let answers = database.change(&[&new, &put("old", b"gone"), &new]);
        assert_eq!(answers, [Err(EffectError::NoSpace), Ok(()), Err(EffectError::NoSpace)]);
        assert!(!reserve.exists());
        assert_eq!(database.load().unwrap(), [record("old", b"gone")]);
    }

    #[test]
    fn a_damaged_record_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let database = Database::open(place.path()).unwrap();
        database.change(&[&put("good", b"value"), &put("damaged", b"value")]);
        let damage = "UPDATE records SET value = x'0011223344' WHERE key = 'damaged'";
        database.inside().connection.execute(damage, []).unwrap();
        assert_eq!(database.load().unwrap(), [record("good", b"value")]);
    }
}
