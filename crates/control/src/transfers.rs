//! Transfers that the interface carries out between hosts, by slowlight's engines or by tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use engine::Time;
use lab::metrics::TransferMetrics;
use lab::scenario::{SIZE, Scenario};
use service::http::Refusal;
use testbed::emulation::beside::{self, Wish};
use transport::quantity::{Size, Span};

use crate::list::{Entry, List};
use crate::model::{self, TransferRequest, TransferState, What};
use crate::state::{State, locked};

/// Transfers that may be under way at a time.
const RUNNING_MAX: usize = 8;
/// Octets of their files, which are held in memory, at each of their ends.
const BYTES_MAX: Size = Size(1 << 30);
/// How long a transfer may take, unless said otherwise.
const LIMIT: Duration = Duration::from_secs(600);
/// How long a transfer that is stopped may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// One that was asked for.
#[derive(Debug)]
pub(crate) struct Record {
    from: String,
    to: String,
    carrier: String,
    bytes: u64,
    began: Time,
    ended: Option<Time>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    result: Option<TransferMetrics>,
    /// Why there is no result, or why it is no good one.
    why: Option<String>,
    /// Why the world was not to be trusted when it ended.
    doubts: Vec<String>,
}

/// Those that were asked for.
pub(crate) type Transfers = List<Record>;

impl Record {
    fn state(&self) -> TransferState {
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
    /// Whether there is room for one more, of so many octets.
    fn check(&self, bytes: u64) -> Result<(), Refusal> {
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

    /// Has a transfer end.
    pub(crate) fn stop(&self, id: u64) -> Result<(), Refusal> {
        let record = self.get(id)?;
        if !record.is_over() {
            record.stopped.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Begins a transfer; its number, by which it is asked for.
pub(crate) fn start(state: &Arc<State>, request: TransferRequest) -> Result<u64, Refusal> {
    state.host(&request.from)?;
    state.host(&request.to)?;
    let (wish, limit) = wish(request)?;
    let bytes = bytes(&wish)?;
    let mut transfers = locked(&state.transfers);
    transfers.check(bytes)?;
    // A number is used up by what begins alone.
    let id = transfers.next();
    let (from, to) = (wish.from.clone(), wish.to.clone());
    let scenario = beside::scenario(&state.scenario(), wish, id)
        .map_err(|error| Refusal::wrong(error.to_string()))?;
    let carrier = scenario.transfers.first().map(lab::scenario::Transfer::carrier);
    let carrier = carrier.unwrap_or_default();
    let (stopped, began) = (Arc::new(AtomicBool::new(false)), state.now());
    let told = What::TransferStarted { id, from: from.clone(), to: to.clone() };
    let carried = (Arc::clone(state), Arc::clone(&stopped));
    let work = move || carry(&carried.0, id, scenario, (limit, bytes), &carried.1);
    let thread = thread::Builder::new().name(format!("transfer {id}")).spawn(work);
    let no_thread =
        |error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("no thread: {error}"));
    let thread = Some(thread.map_err(no_thread)?);
    let (ended, result, why, doubts) = (None, None, None, Vec::new());
    let record =
        Record { from, to, carrier, bytes, began, ended, stopped, thread, result, why, doubts };
    transfers.add(record);
    state.tell(began, told);
    Ok(id)
}

fn wish(request: TransferRequest) -> Result<(Wish, Duration), Refusal> {
    let TransferRequest { from, to, protocol, tool, file, size, timeout } = request;
    let wrong =
        |key: &str, error: &dyn std::fmt::Display| Refusal::wrong(format!("{key}: {error}"));
    let protocol = protocol.map(|text| text.parse().map_err(|error| wrong("protocol", &error)));
    let size = size.map(|text| text.parse().map_err(|error| wrong("size", &error)));
    let timeout = timeout.map(|text| text.parse().map_err(|error| wrong("timeout", &error)));
    let limit = timeout.transpose()?.map_or(LIMIT, Span::duration);
    if protocol.is_some() && tool.is_some() {
        return Err(Refusal::wrong("give `protocol` or `tool`, not both"));
    }
    for (key, path) in [("file", &file), ("tool", &tool)] {
        let is_path = |path: &&String| key == "file" || lab::adapter::is_path(path);
        if let Some(path) = path.as_ref().filter(is_path)
            && !Path::new(path).is_absolute()
        {
            return Err(wrong(key, &format!("{path:?} does not begin at the root")));
        }
    }
    let file = file.map(PathBuf::from);
    Ok((
        Wish { from, to, protocol: protocol.transpose()?, tool, file, size: size.transpose()? },
        limit,
    ))
}

/// The octets of what shall be carried.
fn bytes(wish: &Wish) -> Result<u64, Refusal> {
    let Some(path) = &wish.file else { return Ok(wish.size.unwrap_or(SIZE).bytes()) };
    let told = |why: &str| Refusal::wrong(format!("file: {}: {why}", path.display()));
    let found = fs::metadata(path).map_err(|error| told(&error.to_string()))?;
    if found.is_file() { Ok(found.len()) } else { Err(told("is no file")) }
}

/// Carries a transfer out.
fn carry(
    state: &State,
    id: u64,
    scenario: Scenario,
    limits: (Duration, u64),
    stopped: &AtomicBool,
) {
    let ran = beside::run((&state.world, &state.ports), scenario, limits, stopped);
    let (result, why) = match ran {
        Ok((result, ended)) => {
            let why = result.failure.clone().filter(|_| !result.completed);
            let why = why.map(|why| if ended == "idle" { why } else { format!("{ended}: {why}") });
            (Some(result), why)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    let doubts = match state.report() {
        Ok(report) => state.doubts(&report).into_iter().map(|(_, doubt)| doubt).collect(),
        Err(gone) => vec![gone.error],
    };
    let now = state.now();
    let mut transfers = locked(&state.transfers);
    let Some(record) = transfers.get_mut(id) else { return };
    (record.result, record.why, record.ended) = (result, why, Some(now));
    record.doubts = doubts;
    let told = record.state();
    let (from, to) = (record.from.clone(), record.to.clone());
    drop(transfers);
    state.tell(now, What::TransferEnded { id, from, to, state: told });
}

/// Stops all that are under way, and waits for them: until they have ended, they hold the world.
pub(crate) fn end(state: &State) {
    let mut threads = Vec::new();
    for record in locked(&state.transfers).values_mut() {
        if record.ended.is_none() {
            record.stopped.store(true, Ordering::Relaxed);
        }
        threads.extend(record.thread.take());
    }
    let begun = Instant::now();
    for thread in threads {
        while !thread.is_finished() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            // Whether it failed is told elsewhere.
            let _ = thread.join();
        }
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
    fn how_many_run_and_are_remembered_is_bounded() {
        let mut transfers = Transfers::default();
        transfers.add(record(BYTES_MAX.bytes() - 10, None));
        assert!(transfers.check(10).is_ok());
        let told = transfers.check(11).unwrap_err();
        assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(told.error.contains("1 GiB"), "{}", told.error);
        assert!(told.error.contains("at a time"), "{}", told.error);
        for _ in 2..300 {
            transfers.add(record(1, Some(Time::ZERO)));
        }
        assert_eq!(transfers.one(1).unwrap().state, TransferState::Running);
        assert!(transfers.one(2).is_err());
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
