//! Replies: a code of three digits and text (RFC 959 §4.2).

use std::fmt;

use crate::{DecodeError, DecodeErrorKind};

/// One line of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyLine<'a> {
    /// The only line, or the last of several.
    Last {
        /// What it means.
        code: u16,
        /// For people, but for a few replies.
        text: &'a str,
    },
    /// The first of several.
    First {
        /// What the reply means.
        code: u16,
        /// For people.
        text: &'a str,
    },
    /// A line without a code, which stands between a first and a last one.
    Between(&'a str),
}

impl<'a> ReplyLine<'a> {
    /// Reads a line without its end.
    ///
    /// # Errors
    /// When three digits at its beginning are no code, which is 100 to 599.
    pub fn decode(line: &'a str) -> Result<Self, DecodeError> {
        let Some((digits, rest)) = line.split_at_checked(3) else { return Ok(Self::Between(line)) };
        let Ok(code) = digits.parse::<u16>() else { return Ok(Self::Between(line)) };
        let (code, text) = match rest.split_at_checked(1) {
            // SCPS-FP leaves the text out when it is asked to (SUPP).
            None => (code, ""),
            Some((" ", text)) => (code, text),
            Some(("-", text)) if (100..600).contains(&code) => {
                return Ok(Self::First { code, text });
            }
            Some(_) => return Ok(Self::Between(line)),
        };
        if !(100..600).contains(&code) {
            let kind = DecodeErrorKind::Invalid("a reply's code is 100 to 599");
            return Err(DecodeError { offset: 0, kind });
        }
        Ok(Self::Last { code, text })
    }
}

impl fmt::Display for ReplyLine<'_> {
    /// The line as it is sent, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last { code, text: "" } => write!(f, "{code:03}"),
            Self::Last { code, text } => write!(f, "{code:03} {text}"),
            Self::First { code, text } => write!(f, "{code:03}-{text}"),
            Self::Between(text) => f.write_str(text),
        }
    }
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it means.
    pub code: u16,
    /// Its lines' texts, joined by line feeds.
    pub text: String,
}

impl Reply {
    /// What the first digit says: the command was begun (1), done (2), waits for another one (3), or
    /// failed for now (4) or for good (5).
    #[must_use]
    pub fn class(&self) -> u16 {
        self.code / 100
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.as_str();
        ReplyLine::Last { code: self.code, text }.fmt(f)
    }
}
