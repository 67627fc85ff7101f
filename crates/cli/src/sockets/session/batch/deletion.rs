//! Deletion of files that only the receiver has, after a batch.
//!
//! The receiver listed them before the batch and, unchanged, after it, and they had no counterpart
//! here before and after it: files that came or went meanwhile stay.

use std::collections::BTreeSet;
use std::path::{Path, absolute};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use engine::FileName;
use tree::{Kind, Patterns, Scan};

use super::lists::Lists;
use super::naming::Naming;
use super::requests::{Action, request};
use super::{SendBatch, print_skipped};
use crate::sockets::screen::Screen;
use crate::sockets::session::job::Job;

/// Names at the receiver of what is here.
#[derive(Debug)]
pub(super) struct Names(BTreeSet<Vec<u8>>);

impl Names {
    /// # Errors
    /// Something here was left out, or a path has no file, as that of a missing disk.
    pub(super) fn new(batch: &SendBatch, scan: &Scan) -> Result<Self> {
        ensure!(
            scan.skipped.is_empty(),
            "files were left out here; --exclude them, or send without --delete"
        );
        let files = scan.entries.iter().filter(|entry| entry.kind != Kind::Directory);
        let files: BTreeSet<&Path> = files.map(|entry| entry.source.as_path()).collect();
        for path in &batch.paths {
            let from = absolute(path)?;
            let first = files.range(from.as_path()..).next();
            ensure!(
                first.is_some_and(|file| file.starts_with(&from)),
                "{} has no file here; send without --delete",
                path.display()
            );
        }
        Ok(Self(scan.entries.iter().map(|entry| entry.name.clone()).collect()))
    }
}

/// Deletion after a batch.
#[derive(Debug)]
pub(super) struct Deletion {
    /// Files of the receiver before the batch.
    pub(super) lists: Lists,
    /// Names of the entries here at that time.
    names: Names,
}

/// Files and links that only the receiver has.
#[derive(Debug, Default)]
pub(super) struct Others {
    pub(super) names: Vec<String>,
    /// Names that no request can have.
    odd: Vec<String>,
}

impl Others {
    pub(super) fn print_odd(&self, screen: &Screen) {
        for name in &self.odd {
            screen.print(format_args!("not to be deleted, as no request can name it: {name}"));
        }
    }
}

impl Deletion {
    /// # Errors
    /// A folder there has nothing in common with the one here, or two names there may be one.
    pub(super) fn new(lists: Lists, names: Names) -> Result<Self> {
        let mut tops = BTreeSet::new();
        for (top, list) in &lists.0 {
            ensure!(
                tops.insert(top.to_lowercase()),
                "--delete: the receiver may take {top} for another name that differs in case only; \
                 send them one after the other"
            );
            let mut files = list.files(top).peekable();
            let is_other = files.peek().is_some() && !files.any(|name| names.0.contains(&name));
            ensure!(
                !is_other,
                "--delete: none of the files in {top} at the receiver is here. If that is the right \
                 folder, send without --delete first"
            );
        }
        Ok(Self { lists, names })
    }

    /// Files and links that only the receiver has, without excluded ones.
    ///
    /// # Errors
    /// An option is invalid.
    pub(super) fn others(&self, batch: &SendBatch) -> Result<Others> {
        let naming = Naming::new(batch)?;
        let exclude = Patterns::new(&batch.batch.exclude)?;
        let files = self.lists.0.iter().flat_map(|(top, list)| list.files(top));
        let mut others = Others::default();
        for name in files.filter(|name| !self.names.0.contains(name)) {
            let here = naming.here(&name);
            // Names at the top that are not here are no part of the batch.
            let top = here.as_ref().and_then(|here| here.split(|byte| *byte == b'/').next());
            let is_part = top.is_some_and(|top| self.has_top(&naming, top));
            if !is_part || here.is_none_or(|here| exclude.covers(&here)) {
                continue;
            }
            match String::from_utf8(name) {
                Ok(name) if FileName::file(&name).is_ok() => others.names.push(name),
                Ok(name) => others.odd.push(name.escape_debug().to_string()),
                Err(error) => others.odd.push(error.as_bytes().escape_ascii().to_string()),
            }
        }
        Ok(others)
    }

    /// Whether the first part of a name here is one of the batch.
    fn has_top(&self, naming: &Naming, top: &[u8]) -> bool {
        let mut name = top.to_vec();
        naming.rename(&mut name);
        self.names.0.contains(&name)
    }

    /// Deletes it, and counts it in `deleted`.
    ///
    /// # Errors
    /// Not all was deleted.
    pub(super) fn carry_out(
        mut self,
        job: &Job<SendBatch>,
        screen: &Screen,
        stop: &AtomicBool,
        deleted: &mut u64,
    ) -> Result<()> {
        let others = self.others(&job.wish)?;
        if others.names.is_empty() {
            others.print_odd(screen);
            return Ok(());
        }
        let still = self.still_others(job, screen, stop);
        let others = still.context("nothing was deleted at the receiver")?;
        others.print_odd(screen);
        let replies = request(job, Action::Delete, &others.names, screen, stop)?;
        *deleted = replies.done;
        let count = format!("{} of {}", replies.done, others.names.len());
        match replies.failure {
            Some(why) => bail!("{count} files were deleted at the receiver: {why}"),
            None if !replies.is_complete => {
                bail!("stopped; {count} files were deleted at the receiver")
            }
            None if replies.refused > 0 => bail!("{count} files were deleted at the receiver"),
            None => Ok(()),
        }
    }

    /// Names that are still listed unchanged, and still have no counterpart here.
    fn still_others(
        &mut self,
        job: &Job<SendBatch>,
        screen: &Screen,
        stop: &AtomicBool,
    ) -> Result<Others> {
        let scan = job.wish.scan()?;
        print_skipped(&scan, screen);
        let mut names = Names::new(&job.wish, &scan)?;
        let Some(lists) = Lists::request(job, &scan.entries, screen, stop)? else {
            bail!("stopped");
        };
        // It may have kept another file, or a file system that ignores case may have no such name.
        let mut sent = scan.entries.iter().filter(|entry| self.names.0.contains(&entry.name));
        let other = lists.first_other(job, &mut sent, stop);
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        if let Some(entry) = other {
            bail!(
                "{} is not there as it is here; the same command sends it if it changed meanwhile",
                String::from_utf8_lossy(&entry.name).escape_debug()
            );
        }
        self.lists.retain_same(&lists);
        self.names.0.append(&mut names.0);
        self.others(&job.wish)
    }
}
