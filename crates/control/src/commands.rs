//! Programs started by the interface on hosts.

mod family;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use rustix::process::Pid;
use service::http::Refusal;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::process::Child;

use crate::folder;
use crate::list::command::Record;
use crate::model::{CommandRequest, What};
use crate::state::{State, locked};

/// Maximum concurrent programs.
const RUNNING_MAX: usize = 64;
/// Time to wait for output after a program's end, because its children may hold the pipe.
const LINGER: Duration = Duration::from_millis(200);

/// Starts a program and returns its number.
pub(crate) fn start(state: &Arc<State>, request: CommandRequest) -> Result<u64, Refusal> {
    let host = state.host(&request.host)?;
    let Some(program) = request.argv.first() else {
        return Err(Refusal::wrong("argv: names no program"));
    };
    if !family::exists(program) {
        return Err(Refusal::wrong(format!("{program}: no such program")));
    }
    if locked(&state.commands).running().count() >= RUNNING_MAX {
        let error = format!("{RUNNING_MAX} commands run already; end one, or wait for one");
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, error));
    }
    let refused = |error: io::Error| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("starting {program}: {error}"))
    };
    let (mut command, status) = family::in_own_namespace(&request.argv).map_err(refused)?;
    let status = pipe::Receiver::from_owned_fd(OwnedFd::from(status)).map_err(refused)?;
    emu::unmarked(host.command(command.env_remove(folder::VARIABLE)));
    let child =
        tokio::process::Command::from(command).spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let remedy = "programs of the interface need `unshare` of util-linux";
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("unshare: {error}; {remedy}"))
            }
            _ => refused(error),
        })?;
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let began = state.now();
    let host = request.host.clone();
    let (output, exit_code, ended) = (VecDeque::new(), None, None);
    let record = Record { request, pid, exit_code, output, dropped: 0, began, ended };
    let id = locked(&state.commands).add(record);
    state.log_event(began, What::CommandStarted { id, host: host.clone() });
    tokio::spawn(follow(Arc::clone(state), id, host, child, status));
    Ok(id)
}

/// Reads a program's output, and waits for its end and its children's.
async fn follow(
    state: Arc<State>,
    id: u64,
    host: String,
    mut child: Child,
    status: pipe::Receiver,
) {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let output = async { tokio::join!(read(&state, id, out), read(&state, id, err)) };
    let code = code(status);
    tokio::pin!(output, code);
    let mut read_all = false;
    let exit_code = loop {
        tokio::select! {
            code = &mut code => break code,
            _ = &mut output, if !read_all => read_all = true,
        }
    };
    let exit_code = match exit_code {
        Some(code) => code,
        None => child.wait().await.map_or(1, emu::exit_code),
    };
    if !read_all {
        // Output of a process that holds the pipe longer is dropped.
        let _ = tokio::time::timeout(LINGER, output).await;
    }
    let now = state.now();
    if let Some(record) = locked(&state.commands).get_mut(id) {
        (record.exit_code, record.ended) = (Some(exit_code), Some(now));
    }
    state.log_event(now, What::CommandEnded { id, host, exit_code });
    // From then on its PID may belong to another process.
    let _ = child.wait().await;
    if let Some(record) = locked(&state.commands).get_mut(id) {
        record.pid = None;
    }
}

/// Returns the reported exit code; `None` if the first process was killed.
async fn code(mut status: pipe::Receiver) -> Option<i32> {
    let mut line = Vec::new();
    let mut byte = [0];
    while let Ok(1) = status.read(&mut byte).await {
        if byte == *b"\n" {
            break;
        }
        line.extend(byte);
    }
    str::from_utf8(&line).ok().and_then(|line| line.parse().ok())
}

async fn read(state: &State, id: u64, from: Option<impl AsyncRead + Unpin>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        if let Some(record) = locked(&state.commands).get_mut(id) {
            record.wrote(&buffer[..len]);
        }
    }
}
