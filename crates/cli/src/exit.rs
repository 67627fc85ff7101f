//! Exit codes of all commands, in one list: `--help`, manual pages and the reference print it.

use std::process::ExitCode;

/// Result of a command, as its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command did what it was given.
    Done = 0,
    /// A transfer failed, a deadline was missed, or the system refused an operation.
    Failed = 1,
    /// The command line, a scenario or a settings file is wrong.
    Usage = 2,
    /// `link` and `emu`: the program to run was not found; shells use the same code.
    NotFound = 127,
    /// SIGINT, SIGTERM or SIGHUP stopped a computation; shells report the same code for SIGINT.
    Interrupted = 130,
}

/// A line of the list of exit codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Result, or `None` for the exit code of a program that the command ran.
    exit: Option<Exit>,
    /// Meaning of the code.
    pub(crate) about: &'static str,
    /// Top-level commands that end with it; all if empty.
    pub(crate) commands: &'static [&'static str],
}

/// Commands that run a program and pass its exit code on.
const RUNNERS: &[&str] = &["link", "emu"];

/// The list of exit codes.
pub(crate) const ROWS: &[Row] = &[
    Row { exit: Some(Exit::Done), about: "done", commands: &[] },
    Row {
        exit: Some(Exit::Failed),
        about: "failed: a transfer failed, a deadline was missed, or the system refused an \
                operation; also after a second ctrl-C (SIGINT), SIGTERM or SIGHUP",
        commands: &[],
    },
    Row {
        exit: Some(Exit::Usage),
        about: "wrong usage: an option, a scenario or a settings file has to be corrected",
        commands: &[],
    },
    Row {
        exit: Some(Exit::NotFound),
        about: "`link` and `emu`: the program to run was not found",
        commands: RUNNERS,
    },
    Row {
        exit: Some(Exit::Interrupted),
        about: "`compare`, `advise`, `study run`, `emu compare` and `emu transfer`: stopped by \
                ctrl-C (SIGINT), SIGTERM or SIGHUP",
        commands: &["compare", "advise", "study", "emu"],
    },
    Row {
        exit: None,
        about: "`link`, `emu run`, `emu shell` and `emu exec`: exit code of the program; 128 plus \
                the signal's number if a signal ended it",
        commands: RUNNERS,
    },
];

impl Row {
    /// The code, or `N` for that of a program.
    pub(crate) fn code(&self) -> String {
        self.exit.map_or_else(|| "N".to_owned(), |exit| exit.code().to_string())
    }
}

impl Exit {
    /// `Done` or `Failed`.
    pub(crate) const fn if_succeeded(succeeded: bool) -> Self {
        if succeeded { Self::Done } else { Self::Failed }
    }

    /// The code.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_list_are_those_of_shells() {
        let listed: Vec<_> = ROWS.iter().map(Row::code).collect();
        assert_eq!(listed, ["0", "1", "2", "127", "130", "N"]);
    }
}
