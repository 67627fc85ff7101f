//! Started programs, as the interface lists them.

use std::collections::VecDeque;

use engine::Time;
use rustix::process::{Pid, Signal};
use service::http::Refusal;

use super::{Entry, List};
use crate::model::{self, CommandRequest};

/// Maximum bytes kept of a program's output.
const OUTPUT_MAX: usize = 64 << 10;

/// A started program.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) request: CommandRequest,
    /// PID whose end takes all processes of the program with it, as long as there are any.
    pub(crate) pid: Option<Pid>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) output: VecDeque<u8>,
    pub(crate) dropped: u64,
    pub(crate) began: Time,
    pub(crate) ended: Option<Time>,
}

/// Started commands.
pub(crate) type Commands = List<Record>;

impl Record {
    pub(crate) fn wrote(&mut self, bytes: &[u8]) {
        self.output.extend(bytes);
        let surplus = self.output.len().saturating_sub(OUTPUT_MAX);
        self.output.drain(..surplus);
        self.dropped += surplus as u64;
    }
}

impl Entry for Record {
    const KIND: &str = "command";
    type Shown = model::Command;

    fn is_over(&self) -> bool {
        self.ended.is_some()
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
            began: self.began.as_secs_f64(),
            ended: self.ended.map(Time::as_secs_f64),
        }
    }
}

impl Commands {
    /// Kills a program and its children.
    pub(crate) fn end(&self, id: u64) -> Result<(), Refusal> {
        if let Some(pid) = self.get(id)?.pid {
            // Kills its process group: the first process of the namespace may not have requested
            // its parent-death signal yet. It may have ended just now.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
        Ok(())
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
    fn output_is_bounded() {
        let mut one = record(None);
        one.wrote(&vec![b'a'; OUTPUT_MAX]);
        one.wrote(b"bc");
        let shown = one.shown(1);
        assert_eq!((shown.output.len(), shown.output_before), (OUTPUT_MAX, 2));
        assert!(shown.output.ends_with("abc"));
    }
}
