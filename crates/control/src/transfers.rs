//! Transfers that the interface runs between hosts, by slowlight's engines or by tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use lab::scenario::{SIZE, Scenario};
use service::http::Refusal;
use testbed::emulation::single::{self, Wish};
use transport::quantity::Span;

use crate::list::transfer::Record;
use crate::model::{TransferRequest, What};
use crate::state::{State, locked};

/// Default time limit of a transfer.
const LIMIT: Duration = Duration::from_secs(600);
/// Time limit for the end of a stopped transfer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Starts a transfer and returns its number.
pub(crate) fn start(state: &Arc<State>, request: TransferRequest) -> Result<u64, Refusal> {
    state.host(&request.from)?;
    state.host(&request.to)?;
    let (wish, limit) = wish(request)?;
    let bytes = bytes(&wish)?;
    let mut transfers = locked(&state.transfers);
    transfers.check(bytes)?;
    // Only a transfer that starts uses up a number.
    let id = transfers.next();
    let (from, to) = (wish.from.clone(), wish.to.clone());
    let scenario = single::scenario(&state.scenario(), wish, id)
        .map_err(|error| Refusal::wrong(error.to_string()))?;
    let carrier = scenario.transfers.first().map(lab::scenario::Transfer::carrier);
    let carrier = carrier.unwrap_or_default();
    let (stopped, began) = (Arc::new(AtomicBool::new(false)), state.now());
    let started = What::TransferStarted { id, from: from.clone(), to: to.clone() };
    let shared = (Arc::clone(state), Arc::clone(&stopped));
    let work = move || carry(&shared.0, id, scenario, limit, bytes, &shared.1);
    let thread = thread::Builder::new().name(format!("transfer {id}")).spawn(work);
    let no_thread =
        |error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("no thread: {error}"));
    let thread = Some(thread.map_err(no_thread)?);
    let (ended, result, why, doubts) = (None, None, None, Vec::new());
    let record =
        Record { from, to, carrier, bytes, began, ended, stopped, thread, result, why, doubts };
    transfers.add(record);
    state.log_event(began, started);
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

/// Size of a requested transfer in bytes.
fn bytes(wish: &Wish) -> Result<u64, Refusal> {
    let Some(path) = &wish.file else { return Ok(wish.size.unwrap_or(SIZE).bytes()) };
    let started = |why: &str| Refusal::wrong(format!("file: {}: {why}", path.display()));
    let found = fs::metadata(path).map_err(|error| started(&error.to_string()))?;
    if found.is_file() { Ok(found.len()) } else { Err(started("not a file")) }
}

/// Runs a transfer.
fn carry(
    state: &State,
    id: u64,
    scenario: Scenario,
    limit: Duration,
    bytes: u64,
    stopped: &AtomicBool,
) {
    let ran = single::run(&state.world, &state.ports, scenario, limit, bytes, stopped);
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
    let started = record.state();
    let (from, to) = (record.from.clone(), record.to.clone());
    drop(transfers);
    state.log_event(now, What::TransferEnded { id, from, to, state: started });
}

/// Stops all running transfers, and waits for their end, because they hold the world.
pub(crate) fn end(state: &State) {
    let mut threads = Vec::new();
    for record in locked(&state.transfers).values_mut() {
        if record.ended.is_none() {
            record.stopped.store(true, Ordering::Relaxed);
        }
        threads.extend(record.thread.take());
    }
    let started = Instant::now();
    for thread in threads {
        while !thread.is_finished() && started.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            // Its failure is reported elsewhere.
            let _ = thread.join();
        }
    }
}
