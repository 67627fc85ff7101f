//! Messages of a sender besides its objects: application commands (RFC 5740 §4.2.3.7), questions
//! for receivers (§4.2.3.6, §5.5.3), and the end of the session (§4.2.3.2).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use engine::{PathId, Time};
use session::Base;

use super::core::{Alarm, Core};
use super::indication::{Indication, RequestError};
use super::transmission::Output;
use crate::message::{Ack, Body, Command, Extension, Extensions, NodeId, NodeList};

/// Type of a private header extension: the number of a command, by which repetitions are
/// recognised. Other implementations skip it.
pub(crate) const EXT_COMMAND: u8 = 194;

/// Bytes of NORM_CMD(ACK_REQ) before its list.
const ACK_REQ_HEADER: usize = 16;

/// Commands, questions and the end of a session that a sender transmits.
#[derive(Debug)]
pub(crate) struct Commands {
    path: PathId,
    count: u64,
    commands: VecDeque<PendingCommand>,
    /// Questions are sent one after the other, with one message every two round trips.
    questions: VecDeque<Question>,
    last_question: u8,
    end: Option<End>,
}

/// Command that is being repeated.
#[derive(Debug)]
struct PendingCommand {
    number: u64,
    bytes: Bytes,
    /// Remaining repetitions.
    left: u32,
    next: Time,
}

/// Question for receivers.
#[derive(Debug)]
struct Question {
    kind: u8,
    id: u8,
    /// Receivers that have not answered, and the number of requests sent to each.
    waiting: BTreeMap<NodeId, u32>,
    /// Number of receivers given up without an answer.
    silent: u32,
    next: Time,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// Remaining repetitions and the time of the next one.
    Telling {
        left: u32,
        next: Time,
    },
    Sent,
}

impl Commands {
    pub(crate) fn new(path: PathId) -> Self {
        Self {
            path,
            count: 0,
            commands: VecDeque::new(),
            questions: VecDeque::new(),
            last_question: 0,
            end: None,
        }
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
            && self.questions.is_empty()
            && !matches!(self.end, Some(End::Telling { .. }))
    }

    /// Whether the session ends, or has ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Whether all repetitions of the end were sent.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.end, Some(End::Sent))
    }

    /// Queues a command for all receivers, sent `times` times. Returns its number.
    pub(crate) fn queue(
        &mut self,
        core: &Core,
        now: Time,
        bytes: Bytes,
        times: u32,
    ) -> Result<u64, RequestError> {
        if self.commands.len() >= core.config.limits.commands {
            return Err(RequestError::TooManyCommands);
        }
        self.count += 1;
        let left = times.max(1);
        self.commands.push_back(PendingCommand { number: self.count, bytes, left, next: now });
        Ok(self.count)
    }

    /// Stops repeating a command.
    pub(crate) fn stop_command(&mut self, number: u64) -> bool {
        let before = self.commands.len();
        self.commands.retain(|command| command.number != number);
        self.commands.len() < before
    }

    /// Queues a question for receivers. Returns its number.
    pub(crate) fn question(
        &mut self,
        core: &Core,
        now: Time,
        kind: u8,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Result<u8, RequestError> {
        if self.questions.len() >= core.config.limits.commands {
            return Err(RequestError::TooManyCommands);
        }
        let waiting: BTreeMap<_, _> = nodes.map(|node| (node, 0)).collect();
        if waiting.is_empty() {
            return Err(RequestError::NobodyToAsk);
        }
        self.last_question = self.last_question.wrapping_add(1);
        let id = self.last_question;
        self.questions.push_back(Question { kind, id, waiting, silent: 0, next: now });
        Ok(id)
    }

    /// Ends the session. Pending commands and questions are dropped.
    pub(crate) fn end(&mut self, core: &Core, now: Time) {
        self.commands.clear();
        self.questions.clear();
        let left = core.config.sender.robust_factor.max(1);
        self.end = Some(End::Telling { left, next: now });
    }

    /// Records a receiver's answer to a question.
    pub(crate) fn on_answer(&mut self, core: &mut Core, node: NodeId, ack: &Ack<'_>) {
        let Some(question) = self.questions.front_mut() else { return };
        let is_its = (ack.kind, ack.id) == (question.kind, question.id);
        if !is_its || question.waiting.remove(&node).is_none() {
            return;
        }
        core.user.indicate(Indication::Answered {
            peer: self.path,
            node: node.0,
            kind: ack.kind,
            id: ack.id,
            bytes: Bytes::copy_from_slice(ack.payload),
        });
        self.close_question(core);
    }

    /// Ends the first question once no receiver is waited for.
    fn close_question(&mut self, core: &mut Core) {
        let is_over = |question: &Question| question.waiting.is_empty();
        if !self.questions.front().is_some_and(is_over) {
            return;
        }
        let Some(question) = self.questions.pop_front() else { return };
        let Question { kind, id, silent, .. } = question;
        core.user.indicate(Indication::QuestionOver { peer: self.path, kind, id, silent });
    }

    /// Gives up receivers that were polled the maximum number of times.
    pub(crate) fn expire(&mut self, core: &mut Core, now: Time) {
        let most = core.config.sender.robust_factor.max(1);
        let Some(question) = self.questions.front_mut().filter(|question| question.next <= now)
        else {
            return;
        };
        let before = question.waiting.len();
        question.waiting.retain(|_, polls| *polls < most);
        question.silent += u32::try_from(before - question.waiting.len()).unwrap_or(u32::MAX);
        self.close_question(core);
    }

    /// Sends due messages. Returns `false` if something must wait for the next batch.
    pub(crate) fn emit(&mut self, out: &mut Output<'_, '_>, base: &mut Base<Alarm>) -> bool {
        let went = self.emit_commands(out) && self.emit_question(out) && self.emit_end(out);
        if went && let Some(next) = self.next() {
            let now = out.departure();
            base.alarm(&mut out.core.shared, Alarm::Command, now, next.since(now));
        }
        went
    }

    fn next(&self) -> Option<Time> {
        let commands = self.commands.iter().map(|command| command.next);
        let question = self.questions.front().map(|question| question.next);
        let end = self.end.and_then(|end| match end {
            End::Telling { next, .. } => Some(next),
            End::Sent => None,
        });
        commands.chain(question).chain(end).min()
    }

    fn emit_commands(&mut self, out: &mut Output<'_, '_>) -> bool {
        let mut over = Vec::new();
        let mut went = true;
        for command in &mut self.commands {
            if command.next > out.departure() {
                continue;
            }
            let [high, low] = (command.number as u16).to_be_bytes();
            let number = [Extension { kind: EXT_COMMAND, value: &[0, high, low] }];
            let body = Body::Command(Command::Application {
                sender: out.transmission.header(),
                others: Extensions::new(&number),
                payload: &command.bytes,
            });
            went = out.push(body);
            if !went {
                break;
            }
            command.left -= 1;
            command.next = out.departure() + out.transmission.twice();
            if command.left == 0 {
                over.push(command.number);
            }
        }
        self.commands.retain(|command| command.left > 0);
        for number in over {
            out.core.user.indicate(Indication::CommandSent { peer: self.path, number });
        }
        went
    }

    /// Sends the question to receivers without a reply: as many as one message can name, the least
    /// often polled first.
    fn emit_question(&mut self, out: &mut Output<'_, '_>) -> bool {
        let Some(question) = self.questions.front_mut() else { return true };
        if question.next > out.departure() {
            return true;
        }
        let room = (out.burst.mtu().saturating_sub(ACK_REQ_HEADER) / 4).max(1);
        let mut nodes: Vec<_> =
            question.waiting.iter().map(|(node, polls)| (*polls, *node)).collect();
        nodes.sort_unstable();
        let nodes: Vec<_> = nodes.into_iter().take(room).map(|(_, node)| node).collect();
        let body = Body::Command(Command::AckReq {
            sender: out.transmission.header(),
            kind: question.kind,
            id: question.id,
            others: Extensions::NONE,
            ackers: NodeList::new(&nodes),
        });
        if !out.push(body) {
            return false;
        }
        for node in nodes {
            question.waiting.entry(node).and_modify(|polls| *polls += 1);
        }
        question.next = out.departure() + out.transmission.twice();
        true
    }

    fn emit_end(&mut self, out: &mut Output<'_, '_>) -> bool {
        let Some(End::Telling { left, next }) = self.end else { return true };
        if next > out.departure() {
            return true;
        }
        let sender = out.transmission.header();
        let body = Body::Command(Command::Eot { sender, others: Extensions::NONE });
        if !out.push(body) {
            return false;
        }
        let next = out.departure() + out.transmission.twice();
        self.end = Some(match left {
            0 | 1 => End::Sent,
            left => End::Telling { left: left - 1, next },
        });
        if self.has_ended() {
            out.core.user.indicate(Indication::SessionEnded { peer: self.path });
        }
        true
    }
}
