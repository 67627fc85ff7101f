//! Requested transfers, as the interface lists them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use axum::http::StatusCode;
use engine::Time;
use lab::metrics::TransferMetrics;
use service::http::Refusal;
use transport::quantity::Size;

use super::{Entry, List};
use crate::model::{self, TransferState};

/// Maximum concurrent transfers.
const RUNNING_MAX: usize = 8;
/// Maximum bytes of their files, which are held in memory at both ends.
const BYTES_MAX: Size = Size(1 << 30);

/// A requested transfer.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) carrier: String,
    pub(crate) bytes: u64,
    pub(crate) began: Time,
    pub(crate) ended: Option<Time>,
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) result: Option<TransferMetrics>,
    /// Reason why there is no result, or why it is a failure.
    pub(crate) why: Option<String>,
    /// Reasons why the world's measurements were not valid when it ended.
    pub(crate) doubts: Vec<String>,
}

/// Requested transfers.
pub(crate) type Transfers = List<Record>;

impl Record {
    pub(crate) fn state(&self) -> TransferState {
        match &self.result {
            _ if self.ended.is_none() => TransferState::Running,
            Some(result) if result.completed => TransferState::Completed,
            Some(_) | None if self.stopped.load(Ordering::Relaxed) => TransferState::Stopped,
            Some(_) | None => TransferState::Failed,
        }
    }
}

impl Entry for Record {
    const KIND: &str = "transfer";
    type Shown = model::Transfer;

    fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn shown(&self, id: u64) -> model::Transfer {
        model::Transfer {
            id,
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.carrier.clone(),
            bytes: self.bytes,
            state: self.state(),
            why: self.why.clone(),
            began: self.began.as_secs_f64(),
            ended: self.ended.map(Time::as_secs_f64),
            trusted: self.ended.map(|_| self.doubts.is_empty()),
            doubts: self.doubts.clone(),
            result: self.result.clone(),
        }
    }
}

impl Transfers {
    /// Checks that there is room for a transfer of this size.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Refusal> {
        if self.running().count() >= RUNNING_MAX {
            let error = format!("{RUNNING_MAX} transfers are under way; stop one, or wait for one");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, error));
        }
        let under_way: u64 = self.running().map(|record| record.bytes).sum();
        if under_way.saturating_add(bytes) > BYTES_MAX.bytes() {
            let error = format!(
                "files of {} under way and {} more are too much for the memory ({BYTES_MAX} at a \
                 time); run a program with /commands, or wait",
                Size(under_way),
                Size(bytes)
            );
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, error));
        }
        Ok(())
    }

    /// Stops a transfer.
    pub(crate) fn stop(&self, id: u64) -> Result<(), Refusal> {
        let record = self.get(id)?;
        if !record.is_over() {
            record.stopped.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: u64, ended: Option<Time>) -> Record {
        let (from, to, carrier) = ("a".to_owned(), "b".to_owned(), "cfdp".to_owned());
        let (stopped, thread) = (Arc::new(AtomicBool::new(false)), None);
        let (began, result, why, doubts) = (Time::ZERO, None, None, Vec::new());
        Record { from, to, carrier, bytes, began, ended, stopped, thread, result, why, doubts }
    }

    #[test]
    fn running_and_finished_transfers_are_bounded() {
        let mut transfers = Transfers::default();
        transfers.add(record(BYTES_MAX.bytes() - 10, None));
        assert!(transfers.check(10).is_ok());
        let refusal = transfers.check(11).unwrap_err();
        assert_eq!(refusal.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refusal.error.contains("1 GiB"), "{}", refusal.error);
        assert!(refusal.error.contains("at a time"), "{}", refusal.error);
        for _ in 2..300 {
            transfers.add(record(1, Some(Time::ZERO)));
        }
        assert_eq!(transfers.shown(1).unwrap().state, TransferState::Running);
        assert!(transfers.shown(2).is_err());
        for _ in 1..RUNNING_MAX {
            transfers.add(record(0, None));
        }
        assert!(transfers.check(0).unwrap_err().error.contains("8 transfers"));
        transfers.stop(1).unwrap();
        assert!(transfers.stop(2).is_err());
        let one = transfers.get_mut(1).unwrap();
        one.ended = Some(Time::ZERO);
        assert_eq!(one.state(), TransferState::Stopped);
        assert_eq!(transfers.get(299).unwrap().state(), TransferState::Failed);
    }
}
