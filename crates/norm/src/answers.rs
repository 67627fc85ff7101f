//! Application commands and questions at a receiver, and its replies (RFC 5740 §4.2.3.6, §4.2.3.7,
//! §5.5.3).

use std::collections::VecDeque;

use bytes::Bytes;

use super::commands::EXT_COMMAND;
use crate::message::{Extensions, find_extension};

/// Maximum number of remembered questions of one sender.
const QUESTIONS_MAX: usize = 16;

/// Maximum number of remembered commands without a number, for recognising duplicates made by the
/// network.
const COPIES_MAX: usize = 16;

/// Commands and questions received from a sender's application.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Newest numbered command, and a bitmap of the 64 before it that were received.
    newest: Option<(u16, u64)>,
    /// Sequence numbers of commands that have no number.
    copies: VecDeque<u16>,
    questions: VecDeque<Question>,
    /// Whether a reply must be sent now.
    pub(crate) is_due: bool,
}

#[derive(Debug)]
struct Question {
    kind: u8,
    id: u8,
    answer: Option<Bytes>,
    /// Whether the sender waits for this reply.
    due: bool,
}

/// State of a question received from a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionState {
    /// Not yet reported to the application.
    New,
    /// Reply already received from the application.
    Answered,
    /// Reported to the application, without its reply yet.
    Waiting,
}

impl Answers {
    /// Records a command. Returns `false` if it is recognised as a repetition.
    pub(crate) fn note_command(&mut self, sequence: u16, others: &Extensions<'_>) -> bool {
        let number = find_extension(others, EXT_COMMAND).and_then(|value| value.last_chunk());
        let Some(number) = number.map(|number| u16::from_be_bytes(*number)) else {
            // Other implementations do not number commands: each repetition has a new sequence
            // number.
            let is_new = !self.copies.contains(&sequence);
            if is_new {
                self.copies.truncate(COPIES_MAX - 1);
                self.copies.push_front(sequence);
            }
            return is_new;
        };
        let Some((newest, mask)) = self.newest else {
            self.newest = Some((number, 0));
            return true;
        };
        let ahead = number.wrapping_sub(newest);
        if (1..0x8000).contains(&ahead) {
            let mask = mask << 1 | 1;
            self.newest = Some((number, mask.checked_shl(u32::from(ahead) - 1).unwrap_or(0)));
            return true;
        }
        let behind = newest.wrapping_sub(number);
        let bit = 1_u64.checked_shl(u32::from(behind).wrapping_sub(1)).unwrap_or(0);
        let is_new = behind > 0 && mask & bit == 0;
        self.newest = Some((newest, mask | bit));
        is_new
    }

    /// Records a question.
    pub(crate) fn question(&mut self, kind: u8, id: u8) -> QuestionState {
        let mut questions = self.questions.iter_mut();
        if let Some(question) =
            questions.find(|question| (question.kind, question.id) == (kind, id))
        {
            question.due = true;
            return match question.answer {
                Some(_) => QuestionState::Answered,
                None => QuestionState::Waiting,
            };
        }
        self.questions.truncate(QUESTIONS_MAX - 1);
        self.questions.push_front(Question { kind, id, answer: None, due: true });
        QuestionState::New
    }

    /// Stores the application's answer. Returns `false` if there is no such question.
    pub(crate) fn answer(&mut self, kind: u8, id: u8, bytes: Bytes) -> bool {
        let mut questions = self.questions.iter_mut();
        let question = questions.find(|question| (question.kind, question.id) == (kind, id));
        let Some(question) = question else { return false };
        (question.answer, question.due) = (Some(bytes), true);
        true
    }

    /// Next answer that the sender waits for.
    pub(crate) fn due(&self) -> Option<(u8, u8, Bytes)> {
        self.questions.iter().find_map(|question| {
            let answer = question.answer.clone().filter(|_| question.due)?;
            Some((question.kind, question.id, answer))
        })
    }

    /// Records that this answer was sent.
    pub(crate) fn went(&mut self, kind: u8, id: u8) {
        for question in &mut self.questions {
            question.due &= (question.kind, question.id) != (kind, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::Extension;

    use super::*;

    fn note_command(answers: &mut Answers, number: u16) -> bool {
        let [high, low] = number.to_be_bytes();
        let numbered = [Extension { kind: EXT_COMMAND, value: &[0, high, low] }];
        answers.note_command(0, &Extensions::new(&numbered))
    }

    #[test]
    fn numbered_commands_are_indicated_once() {
        let mut answers = Answers::default();
        let received = [65_534, 65_534, 1, 65_535, 65_535, 0, 0, 1, 66, 3, 3, 2];
        let new = received.map(|number| note_command(&mut answers, number));
        let expected =
            [true, false, true, true, false, true, false, false, true, true, false, true];
        assert_eq!(new, expected);
        // A command 65 or more behind is too old to be recognised, and counts as new.
        assert!(note_command(&mut answers, 1) && note_command(&mut answers, 1));
        assert!(note_command(&mut answers, 200) && !note_command(&mut answers, 200));
    }

    #[test]
    fn a_copy_has_the_number_of_its_message() {
        let mut answers = Answers::default();
        let mut is_new = |sequence| answers.note_command(sequence, &Extensions::NONE);
        assert!(is_new(5) && !is_new(5) && is_new(6) && !is_new(5));
        assert!((100..120).all(is_new), "the memory is bounded");
    }

    #[test]
    fn replies_are_repeated_on_request() {
        let mut answers = Answers::default();
        assert!(!answers.answer(16, 1, Bytes::new()));
        assert_eq!(answers.question(16, 1), QuestionState::New);
        assert_eq!((answers.question(16, 1), answers.due()), (QuestionState::Waiting, None));
        let bytes = Bytes::from_static(b"here");
        assert!(answers.answer(16, 1, bytes.clone()));
        assert_eq!(answers.due(), Some((16, 1, bytes.clone())));
        answers.went(16, 1);
        assert_eq!(answers.due(), None);
        assert_eq!(answers.question(16, 1), QuestionState::Answered);
        assert_eq!(answers.due(), Some((16, 1, bytes)));
    }
}
