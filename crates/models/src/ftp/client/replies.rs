//! Replies of one or several lines (RFC 959 §4.2).

use crate::message::{Reply, ReplyLine};

/// Maximum bytes kept of the text of a multi-line reply.
const TEXT_MAX: usize = 16 << 10;

/// Reader of replies, line by line.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Incomplete multi-line reply.
    open: Option<Reply>,
}

impl Replies {
    /// Processes a line. Returns the reply that it completes.
    ///
    /// # Errors
    /// The line belongs to no reply.
    pub(super) fn line(&mut self, line: &str) -> Result<Option<Reply>, String> {
        let decoded = ReplyLine::decode(line).map_err(|error| error.to_string())?;
        match (decoded, self.open.take()) {
            (ReplyLine::Last { code, text }, Some(mut reply)) if reply.code == code => {
                append(&mut reply, text);
                Ok(Some(reply))
            }
            (ReplyLine::Last { code, text }, None) => {
                Ok(Some(Reply { code, text: text.to_owned() }))
            }
            (ReplyLine::First { code, text }, None) => {
                self.open = Some(Reply { code, text: text.to_owned() });
                Ok(None)
            }
            (
                ReplyLine::Between(text)
                | ReplyLine::First { text, .. }
                | ReplyLine::Last { text, .. },
                Some(mut reply),
            ) => {
                append(&mut reply, text);
                self.open = Some(reply);
                Ok(None)
            }
            (ReplyLine::Between(_), None) => Err(format!("invalid reply {line:?}")),
        }
    }
}

fn append(reply: &mut Reply, text: &str) {
    if reply.text.len() + text.len() < TEXT_MAX {
        reply.text.push('\n');
        reply.text.push_str(text);
    }
}
