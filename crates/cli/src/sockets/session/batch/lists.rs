//! Lists of what the receiver has, requested before a batch is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use engine::FileName;
use tree::{Entry, Kind, List, Scan, folders_above};

use super::requests::{Action, request};
use super::{Counts, SendBatch};
use crate::sockets::screen::Screen;
use crate::sockets::session::job::Job;

/// Lists of a receiver's files, one for each name at the top of a batch.
#[derive(Debug)]
pub(super) struct Lists(pub(super) BTreeMap<String, List>);

impl Lists {
    /// Requests them from the receiver. Returns nothing if the process is to stop.
    pub(super) fn request(
        job: &Job<SendBatch>,
        entries: &[Entry],
        screen: &Screen,
        stop: &AtomicBool,
    ) -> Result<Option<Self>> {
        let parts = parts(job);
        let tops: BTreeSet<&str> = entries.iter().filter_map(|it| top(parts, it)).collect();
        let can_request = |name: &&str| FileName::file(&tree::list_name(name)).is_ok();
        let names: Vec<String> = tops.into_iter().filter(can_request).map(str::to_owned).collect();
        let folder = tempfile::tempdir().context("cannot make a directory for lists")?;
        screen.print(format_args!("requesting the list of {}", job.ends.to));
        let action = Action::List { folder: folder.path() };
        let replies = request(job, action, &names, screen, stop)?;
        if let Some(why) = replies.failure {
            bail!(why);
        }
        if !replies.is_complete {
            return Ok(None);
        }
        let lists = read(&names, folder.path())
            .with_context(|| format!("{} sent what is no list", job.ends.to))?;
        Ok(Some(Self(lists)))
    }

    /// Leaves out what the receiver has with the same content, permissions and time. Returns what
    /// that is, or nothing if the process is to stop.
    pub(super) fn leave_out(
        &self,
        job: &Job<SendBatch>,
        scan: &mut Scan,
        stop: &AtomicBool,
    ) -> Option<Counts> {
        let parts = parts(job);
        // One that cannot be read any more is named when it is sent.
        let is_there = |entry: &Entry| self.has(parts, entry, stop).unwrap_or(false);
        let is_stopped = || stop.load(Ordering::Relaxed);
        let found = scan.entries.iter().map(|entry| !is_stopped() && is_there(entry));
        let found: Vec<bool> = found.collect();
        if is_stopped() {
            return None;
        }
        let entries = std::mem::take(&mut scan.entries);
        // What is added to a folder changes the folder's time, which its entry sets again.
        let changed: BTreeSet<Vec<u8>> = entries
            .iter()
            .zip(&found)
            .filter(|(_, is_there)| !**is_there)
            .flat_map(|(entry, _)| folders_above(&entry.name).map(<[u8]>::to_vec))
            .collect();
        let mut there = Scan::default();
        for (entry, is_there) in entries.into_iter().zip(found) {
            let is_there = is_there && !changed.contains(&entry.name);
            if is_there { &mut there.entries } else { &mut scan.entries }.push(entry);
        }
        Some(Counts::new(&there))
    }

    /// First file or link of these that the receiver does not have with the same content,
    /// permissions and time.
    pub(super) fn first_other<'a>(
        &self,
        job: &Job<SendBatch>,
        mut entries: impl Iterator<Item = &'a Entry>,
        stop: &AtomicBool,
    ) -> Option<&'a Entry> {
        let parts = parts(job);
        entries.find(|entry| {
            entry.kind != Kind::Directory && self.has(parts, entry, stop) == Some(false)
        })
    }

    /// Whether the receiver has an entry, as far as this end can read it; `None` if no list is
    /// about its name.
    fn has(&self, parts: usize, entry: &Entry, stop: &AtomicBool) -> Option<bool> {
        let name = top(parts, entry)?;
        Some(self.0.get(name)?.has(entry, name, stop).unwrap_or(false))
    }

    /// Forgets what other lists do not have, or have with another content, time or permissions.
    pub(super) fn retain_same(&mut self, others: &Self) {
        self.0.retain(|name, list| {
            others.0.get(name).is_some_and(|other| {
                list.retain_same(other);
                true
            })
        });
    }
}

/// Reads the lists of these names from a folder.
fn read(names: &[String], folder: &Path) -> Result<BTreeMap<String, List>> {
    let list = |(number, name): (usize, &String)| {
        let file = File::open(folder.join(number.to_string()))?;
        Ok((name.clone(), List::read(BufReader::new(file))?))
    };
    names.iter().enumerate().map(list).collect()
}

/// Number of parts of the names at the receiver that have a list of their own: that of the only
/// path, or the names below the folder that gets several.
fn parts(job: &Job<SendBatch>) -> usize {
    let below = job.wish.below.as_deref().and_then(|below| FileName::file(below).ok());
    let below = below.map_or(0, |below| below.path().split('/').count());
    match job.wish.paths.as_slice() {
        [_] => below.max(1),
        _ => below + 1,
    }
}

/// First parts of an entry's name; `None` if they are not UTF-8.
fn top(parts: usize, entry: &Entry) -> Option<&str> {
    let top = folders_above(&entry.name).nth(parts - 1).unwrap_or(&entry.name);
    str::from_utf8(top).ok()
}
