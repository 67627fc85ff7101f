//! Splits the input of a control connection into lines.

use thiserror::Error;

/// Maximum bytes of a line, without its end. RFC 959 sets no bound; names have at most 4,096.
pub const LINE_MAX: usize = 8_192;

const IAC: u8 = 255;
/// WILL, WON'T, DO and DON'T (RFC 854) are followed by an option; other commands have none.
const NEGOTIATIONS: std::ops::RangeInclusive<u8> = 251..=254;
const CR: u8 = b'\r';
const LF: u8 = b'\n';

/// Error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// More than [`LINE_MAX`] bytes; they are discarded.
    #[error("a line is longer than {LINE_MAX} bytes")]
    TooLong,
    /// Not UTF-8 (RFC 2640 §2.1).
    #[error("a line is not UTF-8")]
    NotText,
}

/// State within Telnet commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Data,
    Command,
    Option,
}

/// Splitter of lines. Holds at most one line.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    telnet: Telnet,
    too_long: bool,
}

impl Lines {
    /// Consumes bytes up to the end of a line. Returns how many, and the line without its end.
    ///
    /// Also accepts a line ended by LF alone. Consumes all bytes if there is no complete line.
    ///
    /// # Errors
    /// Inside the line, when it is too long or not text; later lines can still be read.
    pub fn next(&mut self, bytes: &[u8]) -> (usize, Option<Result<String, LineError>>) {
        for (index, byte) in bytes.iter().enumerate() {
            match (self.telnet, *byte) {
                (Telnet::Data, IAC) => self.telnet = Telnet::Command,
                (Telnet::Data, LF) => return (index + 1, Some(self.finish())),
                (Telnet::Data, byte) => self.push(byte),
                (Telnet::Command, IAC) => {
                    // Doubled, it is a data byte (RFC 854).
                    self.telnet = Telnet::Data;
                    self.push(IAC);
                }
                (Telnet::Command, byte) if NEGOTIATIONS.contains(&byte) => {
                    self.telnet = Telnet::Option;
                }
                (Telnet::Command | Telnet::Option, _) => self.telnet = Telnet::Data,
            }
        }
        (bytes.len(), None)
    }

    fn push(&mut self, byte: u8) {
        // One more for the CR, which may belong to the line's end.
        if self.line.len() > LINE_MAX {
            self.too_long = true;
        } else {
            self.line.push(byte);
        }
    }

    fn finish(&mut self) -> Result<String, LineError> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&CR) {
            line.pop();
        }
        if std::mem::take(&mut self.too_long) || line.len() > LINE_MAX {
            return Err(LineError::TooLong);
        }
        String::from_utf8(line).map_err(|_| LineError::NotText)
    }
}
