//! Replies: a code of three digits and text (RFC 959 §4.2).

use std::fmt;

use wire::{DecodeError, DecodeErrorKind};

/// One line of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyLine<'a> {
    /// Only line, or the last of several.
    Last {
        /// Code of the reply.
        code: u16,
        /// Text for people, except in a few replies.
        text: &'a str,
    },
    /// First of several lines.
    First {
        /// Code of the reply.
        code: u16,
        /// Text for people.
        text: &'a str,
    },
    /// Line without a code, between a first and a last one.
    Between(&'a str),
}

impl<'a> ReplyLine<'a> {
    /// Decodes a line without its end.
    ///
    /// # Errors
    /// When the three digits at its start are not a code from 100 to 599.
    pub fn decode(line: &'a str) -> Result<Self, DecodeError> {
        let Some((digits, rest)) = line.split_at_checked(3) else { return Ok(Self::Between(line)) };
        let Ok(code) = digits.parse::<u16>() else { return Ok(Self::Between(line)) };
        let (code, text) = match rest.split_at_checked(1) {
            // SCPS-FP omits the text on request (SUPP).
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
    /// Writes the line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last { code, text: "" } => write!(f, "{code:03}"),
            Self::Last { code, text } => write!(f, "{code:03} {text}"),
            Self::First { code, text } => write!(f, "{code:03}-{text}"),
            Self::Between(text) => f.write_str(text),
        }
    }
}

/// Complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Code.
    pub code: u16,
    /// Texts of its lines, joined by line feeds.
    pub text: String,
}

impl Reply {
    /// Returns the first digit: preliminary (1), completed (2), needs another command (3), failed
    /// for now (4) or permanently (5).
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
