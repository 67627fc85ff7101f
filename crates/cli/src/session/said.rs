//! What a sender's application says to those who receive.

use std::io::Write as _;

use anyhow::Result;
use bytes::Bytes;

use crate::transfer::{Options, Screen};

/// A command of an application (NORM_CMD(APPLICATION)).
pub(super) struct Said {
    /// The number of the sender.
    pub(super) sender: u32,
    pub(super) octets: Bytes,
}

impl Said {
    /// Shows it to people, and to programs as a line of JSON: its text, or what is no text as
    /// hexadecimal digits.
    pub(super) fn tell(&self, options: &Options, screen: &Screen) -> Result<()> {
        let Self { sender, octets } = self;
        let said = String::from_utf8_lossy(octets);
        screen.say(format_args!("sender {sender:08x} says {said:?}"));
        if !options.json {
            return Ok(());
        }
        let (key, value) = match std::str::from_utf8(octets) {
            Ok(text) => ("command", text.to_owned()),
            Err(_) => ("command_hex", octets.iter().map(|octet| format!("{octet:02x}")).collect()),
        };
        let line = serde_json::json!({ "sender": sender, key: value });
        match writeln!(std::io::stdout().lock(), "{line}") {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
