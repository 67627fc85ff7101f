//! Cuts what arrives on a control connection into lines.

use thiserror::Error;

/// Bytes of a line, its end not counted. RFC 959 sets no bound; names have at most 4,096.
pub const LINE_MAX: usize = 8_192;

const IAC: u8 = 255;
/// WILL, WON'T, DO and DON'T (RFC 854) are followed by an option; other commands stand alone.
const NEGOTIATIONS: std::ops::RangeInclusive<u8> = 251..=254;
const CR: u8 = b'\r';
const LF: u8 = b'\n';

/// Why a line is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// It has more than [`LINE_MAX`] bytes; they are gone.
    #[error("a line is longer than {LINE_MAX} bytes")]
    TooLong,
    /// It is not UTF-8 (RFC 2640 §2.1).
    #[error("a line is not UTF-8")]
    NotText,
}

/// Where the reading stands within Telnet's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Data,
    Command,
    Option,
}

/// The lines that begin in what arrived so far. Holds at most one line.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    telnet: Telnet,
    too_long: bool,
}

impl Lines {
    /// Takes bytes up to the end of a line: how many were taken, and the line without its end.
    ///
    /// A line that ends with LF alone is taken, too. All bytes are taken when there is no line.
    ///
    /// # Errors
    /// Inside the line, when it is too long or no text; what follows it can still be read.
    pub fn next(&mut self, bytes: &[u8]) -> (usize, Option<Result<String, LineError>>) {
        for (index, byte) in bytes.iter().enumerate() {
            match (self.telnet, *byte) {
                (Telnet::Data, IAC) => self.telnet = Telnet::Command,
                (Telnet::Data, LF) => return (index + 1, Some(self.finish())),
                (Telnet::Data, byte) => self.push(byte),
                (Telnet::Command, IAC) => {
                    // Twice, it stands for itself (RFC 854).
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
        // One more for the CR, which may be the end's.
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
