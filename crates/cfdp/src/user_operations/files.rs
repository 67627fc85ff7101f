//! Responses that are files: directory listings and status reports (CCSDS 727.0-B-5 §6.3, §6.4).

use std::fmt::Write as _;

use bytes::Bytes;
use engine::{
    Completion, DirEntry, EffectError, EntryKind, FileId, FileName, OpenMode, StoreEffect, Time,
};
use session::path::Handle;
use session::storage::Storage as _;

use super::{Asker, Purpose, Refusal, message};
use crate::Entity;
use crate::core::{Job, Task};
use crate::pdu::{Lv, TransactionId, UserOperation};
use crate::request::PutRequest;

/// File that is written to be sent.
#[derive(Debug)]
pub(super) struct FileJob {
    asker: Asker,
    step: Step,
    /// Name of the file at the requester.
    file: String,
    /// Messages that accompany it.
    messages: Vec<Bytes>,
    /// Messages sent instead if it cannot be written.
    refusal: Vec<Bytes>,
}

#[derive(Debug)]
enum Step {
    Listing { directory: String },
    Opening { content: Bytes },
    Writing { file: FileId },
}

/// Working file of the response to `id` that waits to be sent.
pub(super) fn spool_name(id: TransactionId) -> FileName {
    let name = format!("answer-{}-{}", id.source, id.sequence);
    FileName::spool(&name).expect("digits and dashes are a name")
}

impl Entity {
    pub(super) fn listing_requested(
        &mut self,
        now: Time,
        asker: Asker,
        directory: Lv<'_>,
        file: Lv<'_>,
    ) {
        let messages = |success| {
            let response = UserOperation::DirectoryListingResponse { success, directory, file };
            message::response(&response, asker.original)
        };
        let permitted = self.core.config.remote(asker.entity).permissions.directory_listing;
        let name = match directory.to_str() {
            Some("" | "." | "./") => Some(FileName::root()),
            Some(name) => FileName::file(name).ok(),
            None => None,
        };
        let refusal = match (&name, file.to_str()) {
            _ if !permitted => Some(Refusal::NotPermitted),
            (None, _) | (_, None | Some("")) => Some(Refusal::Name),
            (Some(_), Some(_)) => None,
        };
        if let Some(reason) = refusal {
            self.core.refuse(asker, reason);
            self.answer(now, asker, messages(false));
            return;
        }
        let name = name.expect("a request without a usable name was just refused");
        let job = FileJob {
            asker,
            step: Step::Listing { directory: name.path().to_owned() },
            file: file.to_str_lossy().into_owned(),
            messages: messages(true),
            refusal: messages(false),
        };
        let number = self.add_job(job);
        let request = engine::FilestoreRequest::List(name);
        self.core.shared.filestore(Handle::NOBODY, Job::Own(Task::Operation(number)), request);
    }

    /// Writes a response into a file and sends it.
    pub(super) fn answer_with_file(
        &mut self,
        asker: Asker,
        content: String,
        file: String,
        messages: Vec<Bytes>,
        refusal: Vec<Bytes>,
    ) {
        let step = Step::Opening { content: content.into() };
        let number = self.add_job(FileJob { asker, step, file, messages, refusal });
        self.open_spool(number, asker);
    }

    fn add_job(&mut self, job: FileJob) -> u64 {
        let operations = &mut self.core.operations;
        operations.job += 1;
        operations.jobs.insert(operations.job, job);
        operations.job
    }

    fn open_spool(&mut self, number: u64, asker: Asker) {
        let ticket = self.core.shared.ticket(Handle::NOBODY, Job::Own(Task::Operation(number)));
        let name = spool_name(asker.original);
        self.core
            .shared
            .effects
            .push_back(StoreEffect::Open { ticket, name, mode: OpenMode::Truncate }.into());
    }

    /// Processes the result of an effect of a file job.
    pub(crate) fn job_done(
        &mut self,
        now: Time,
        number: u64,
        answer: Result<Completion, EffectError>,
    ) {
        let Some(mut job) = self.core.operations.jobs.remove(&number) else { return };
        let asker = job.asker;
        match (job.step, answer) {
            (Step::Listing { directory }, Ok(Completion::Listing(entries))) => {
                let content = listing(&directory, &entries);
                if content.len() > self.core.config.user_operations.listing_bytes {
                    self.job_failed(now, asker, job.refusal);
                    return;
                }
                job.step = Step::Opening { content: content.into() };
                self.core.operations.jobs.insert(number, job);
                self.open_spool(number, asker);
            }
            (Step::Opening { content }, Ok(Completion::Opened { file, .. })) => {
                job.step = Step::Writing { file };
                self.core.operations.jobs.insert(number, job);
                let ticket =
                    self.core.shared.ticket(Handle::NOBODY, Job::Own(Task::Operation(number)));
                let write = StoreEffect::Write { ticket, file, offset: 0, bytes: content };
                self.core.shared.effects.push_back(write.into());
            }
            (Step::Writing { file }, Ok(_)) => {
                self.core.shared.close(file);
                let request = PutRequest {
                    destination: asker.entity,
                    source: Some(spool_name(asker.original)),
                    // The name of a working file has no meaning elsewhere.
                    source_name: Some(job.file.clone()),
                    destination_name: job.file,
                    mode: Some(asker.mode),
                    messages: job.messages,
                    ..PutRequest::default()
                };
                let spool = Some(spool_name(asker.original));
                let purpose = Purpose::Answer { asker, spool };
                if self.submit(now, request, purpose).is_err() {
                    self.core.delete(spool_name(asker.original));
                    self.job_failed(now, asker, job.refusal);
                }
            }
            (Step::Writing { file }, Err(_)) => {
                self.core.shared.close(file);
                self.core.delete(spool_name(asker.original));
                self.job_failed(now, asker, job.refusal);
            }
            (Step::Listing { .. } | Step::Opening { .. }, _) => {
                self.job_failed(now, asker, job.refusal);
            }
        }
    }

    fn job_failed(&mut self, now: Time, asker: Asker, refusal: Vec<Bytes>) {
        self.core.refuse(asker, Refusal::Impossible);
        self.answer(now, asker, refusal);
    }
}

/// One name per line, relative to the root; directories end with a slash.
fn listing(directory: &str, entries: &[DirEntry]) -> String {
    let mut out = String::new();
    for entry in entries {
        if directory.is_empty() && entry.name.eq_ignore_ascii_case(FileName::SPOOL_DIRECTORY) {
            continue;
        }
        let before = if directory.is_empty() { "" } else { "/" };
        let after = match entry.kind {
            EntryKind::File(_) => "",
            EntryKind::Directory => "/",
        };
        writeln!(out, "{directory}{before}{}{after}", entry.name)
            .expect("writing to a string does not fail");
    }
    out
}
