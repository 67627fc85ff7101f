//! Programs that the interface starts on hosts.

mod family;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use engine::Time;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

use crate::folder;
use crate::model::{self, CommandRequest, What};
use crate::state::{Refusal, State, locked, seconds};

/// How much of what a program wrote is kept.
const OUTPUT_MAX: usize = 64 << 10;
/// Programs that may run at a time.
const RUNNING_MAX: usize = 64;
/// Programs that are remembered.
const KEPT: usize = 256;
/// How long after a program's end its output is waited for: something it started may hold it.
const LINGER: Duration = Duration::from_millis(200);

/// One that was started.
#[derive(Debug)]
struct Record {
    request: CommandRequest,
    pid: Option<Pid>,
    exit_code: Option<i32>,
    output: VecDeque<u8>,
    dropped: u64,
    began: Time,
    ended: Option<Time>,
}

/// Those that were started, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    list: BTreeMap<u64, Record>,
    next: u64,
}

impl Record {
    fn wrote(&mut self, bytes: &[u8]) {
        self.output.extend(bytes);
        let surplus = self.output.len().saturating_sub(OUTPUT_MAX);
        self.output.drain(..surplus);
        self.dropped += surplus as u64;
    }

    fn shown(&self, id: u64) -> model::Command {
        let bytes: Vec<u8> = self.output.iter().copied().collect();
        model::Command {
            id,
            host: self.request.host.clone(),
            argv: self.request.argv.clone(),
            running: self.ended.is_none(),
            exit_code: self.exit_code,
            output: String::from_utf8_lossy(&bytes).into_owned(),
            output_before: self.dropped,
            began: seconds(self.began),
            ended: self.ended.map(seconds),
        }
    }
}

impl Commands {
    /// A number for one more.
    fn reserve(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, id: u64, record: Record) {
        self.list.insert(id, record);
        while self.list.len() > KEPT {
            let over = self.list.iter().find(|(_, record)| record.ended.is_some());
            let Some(oldest) = over.map(|(id, _)| *id) else { break };
            self.list.remove(&oldest);
        }
    }

    fn running(&self) -> usize {
        self.list.values().filter(|record| record.ended.is_none()).count()
    }

    pub(crate) fn all(&self) -> Vec<model::Command> {
        self.list.iter().map(|(id, record)| record.shown(*id)).collect()
    }

    pub(crate) fn one(&self, id: u64) -> Result<model::Command, Refusal> {
        let found = self.list.get(&id).map(|record| record.shown(id));
        found
            .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("there is no command {id}")))
    }

    /// Ends a program, those in its process group, and what they left behind elsewhere.
    pub(crate) fn end(&self, id: u64) -> Result<(), Refusal> {
        self.one(id)?;
        let pid = self.list.get(&id).filter(|record| record.ended.is_none());
        if let Some(pid) = pid.and_then(|record| record.pid) {
            // It may have ended just now.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        family::end(id);
        Ok(())
    }
}

/// Starts a program; its number, by which it is asked for.
pub(crate) fn start(state: &Arc<State>, request: CommandRequest) -> Result<u64, Refusal> {
    let host = state.host(&request.host)?;
    let [program, arguments @ ..] = request.argv.as_slice() else {
        return Err(Refusal::wrong("argv: names no program"));
    };
    if locked(&state.commands).running() >= RUNNING_MAX {
        let error = format!("{RUNNING_MAX} commands run already; end one, or wait for one");
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, error));
    }
    let mut command = std::process::Command::new(program);
    let id = locked(&state.commands).reserve();
    family::mark(command.args(arguments).process_group(0).env_remove(folder::VARIABLE), id);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    emu::unmarked(host.command(&mut command));
    let spawned = tokio::process::Command::from(command).spawn();
    let child = spawned.map_err(|error| {
        let told = match error.kind() {
            io::ErrorKind::NotFound => "no such program".to_owned(),
            _ => error.to_string(),
        };
        Refusal::wrong(format!("{program}: {told}"))
    })?;
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let began = state.now();
    let host = request.host.clone();
    let (output, exit_code, ended) = (VecDeque::new(), None, None);
    let record = Record { request, pid, exit_code, output, dropped: 0, began, ended };
    locked(&state.commands).add(id, record);
    state.tell(began, What::CommandStarted { id, host: host.clone() });
    tokio::spawn(follow(Arc::clone(state), id, host, child));
    Ok(id)
}

/// Reads what a program writes, and waits for its end.
async fn follow(state: Arc<State>, id: u64, host: String, mut child: Child) {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let output = async { tokio::join!(read(&state, id, out), read(&state, id, err)) };
    tokio::pin!(output);
    let mut read_all = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            _ = &mut output, if !read_all => read_all = true,
        }
    };
    if !read_all {
        // What holds it longer goes on unheard.
        let _ = tokio::time::timeout(LINGER, output).await;
    }
    let exit_code = status.map_or(1, emu::exit_code);
    let now = state.now();
    if let Some(record) = locked(&state.commands).list.get_mut(&id) {
        (record.exit_code, record.ended) = (Some(exit_code), Some(now));
    }
    state.tell(now, What::CommandEnded { id, host, exit_code });
}

async fn read(state: &State, id: u64, from: Option<impl AsyncRead + Unpin>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        if let Some(record) = locked(&state.commands).list.get_mut(&id) {
            record.wrote(&buffer[..len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ended: Option<Time>) -> Record {
        let request = CommandRequest { host: "near".to_owned(), argv: vec!["true".to_owned()] };
        let (output, began) = (VecDeque::new(), Time::ZERO);
        Record { request, pid: None, exit_code: None, output, dropped: 0, began, ended }
    }

    #[test]
    fn output_and_list_are_bounded() {
        let mut one = record(None);
        one.wrote(&vec![b'a'; OUTPUT_MAX]);
        one.wrote(b"bc");
        let shown = one.shown(1);
        assert_eq!((shown.output.len(), shown.output_before), (OUTPUT_MAX, 2));
        assert!(shown.output.ends_with("abc"));
        let mut commands = Commands::default();
        let running = commands.reserve();
        commands.add(running, record(None));
        for _ in 0..KEPT + 10 {
            let id = commands.reserve();
            commands.add(id, record(Some(Time::ZERO)));
        }
        assert_eq!(commands.list.len(), KEPT);
        assert!(commands.one(running).is_ok(), "what runs is not forgotten");
        assert!(commands.one(running + 1).is_err());
    }
}
