//! Places of a listener's clients. If all are taken, the client for which the server has waited
//! longest gives way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Places of the clients of a listener.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    /// Time for which a client may keep the server waiting when others need its place.
    grace: Duration,
    table: Mutex<Table>,
    /// A client has left.
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Time since when the client has made no progress; `None` while the server works for it.
    waits: Option<Instant>,
    gives_way: Arc<Notify>,
}

/// A taken place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    client: Client,
    gives_way: Arc<Notify>,
}

/// The client in a place.
#[derive(Clone, Debug)]
pub(super) struct Client {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new(most: usize, grace: Duration) -> Arc<Self> {
        Arc::new(Self { most, grace, table: Mutex::default(), left: Notify::new() })
    }

    /// Takes a place, which may be another client's. Returns `None` if there is none before
    /// `limit`.
    pub(super) async fn take(self: &Arc<Self>, limit: Option<Instant>) -> Option<Place> {
        loop {
            let due = match self.try_take() {
                Ok(place) => return Some(place),
                Err(due) => due,
            };
            if limit.is_some_and(|limit| limit <= Instant::now()) {
                return None;
            }
            let until = due.into_iter().chain(limit).min();
            let wait = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.left.notified() => {}
                () = wait => {}
            }
        }
    }

    /// Takes a place, or returns the time at which a client gives way.
    fn try_take(self: &Arc<Self>) -> Result<Place, Option<Instant>> {
        let mut table = self.table();
        if table.taken.len() >= self.most {
            let waiting = table.taken.iter().filter_map(|(at, entry)| Some((entry.waits?, *at)));
            let (since, number) = waiting.min().ok_or(None)?;
            let due = since + self.grace;
            if Instant::now() < due {
                return Err(Some(due));
            }
            if let Some(entry) = table.taken.remove(&number) {
                entry.gives_way.notify_one();
            }
        }
        let number = table.next;
        table.next += 1;
        let gives_way = Arc::new(Notify::new());
        let entry = Entry { waits: Some(Instant::now()), gives_way: Arc::clone(&gives_way) };
        table.taken.insert(number, entry);
        Ok(Place { client: Client { places: Arc::clone(self), number }, gives_way })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits until the client has to give way.
    pub(super) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Client { places, number } = &self.client;
        places.table().taken.remove(number);
        places.left.notify_one();
    }
}

impl Client {
    /// The server waits for the client, which has made no progress since this time.
    pub(super) fn waits(&self, since: Instant) {
        self.set(Some(since));
    }

    /// Notes that the server works for the client.
    pub(super) fn begin_serving(&self) {
        self.set(None);
    }

    fn set(&self, waits: Option<Instant>) {
        if let Some(entry) = self.places.table().taken.get_mut(&self.number) {
            entry.waits = waits;
        }
    }
}
