//! Feature of each command, and the error for a command that is not built.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::Usage;

/// A feature of this package, and its commands.
struct Feature {
    name: &'static str,
    is_built: bool,
    commands: &'static [&'static str],
}

/// Features with commands; the commands of one are the variants of `Command` in its folder.
const FEATURES: [Feature; 3] = [
    Feature {
        name: "compute",
        is_built: cfg!(feature = "compute"),
        commands: &["compare", "advise", "sim", "links", "decode", "route"],
    },
    Feature {
        name: "emulate",
        is_built: cfg!(feature = "emulate"),
        commands: &["study", "link", "emu"],
    },
    Feature {
        name: "sockets",
        is_built: cfg!(feature = "sockets"),
        commands: &[
            "recv",
            "send",
            "get",
            "ls",
            "rm",
            "peers",
            "unfinished",
            "status",
            "cfdp",
            "tcp",
            "pep",
            "node",
            "bp",
        ],
    },
];

/// The error for a command of a feature that is not built; `None` for other errors.
pub(crate) fn refusal(error: &clap::Error) -> Option<Usage> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // Commands below another one are not of these: `emu send` is a mistake in any build.
    if !is_first(name, std::env::args().skip(1)) {
        return None;
    }
    missing(name, &FEATURES).map(Usage)
}

/// Whether a command is the first one of a command line, or of `help`.
fn is_first(name: &str, words: impl Iterator<Item = String>) -> bool {
    let mut commands = words.filter(|word| !word.starts_with('-') && word != "help");
    commands.next().is_some_and(|first| first == name)
}

fn missing(command: &str, features: &[Feature]) -> Option<String> {
    let feature = features.iter().find(|feature| feature.commands.contains(&command))?;
    (!feature.is_built).then(|| {
        format!(
            "this slowlight is built without `{command}`, a command of the feature `{}`; \
             `make build` builds the whole program, target/release/slowlight",
            feature.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_are_not_built_are_named_with_the_remedy() {
        let lean =
            FEATURES.map(|feature| Feature { is_built: feature.name == "compute", ..feature });
        assert_eq!(missing("compare", &lean), None);
        assert_eq!(missing("compere", &lean), None);
        for command in ["send", "emu", "study"] {
            let message = missing(command, &lean).unwrap();
            assert!(message.contains(&format!("`{command}`")), "{message}");
            assert!(message.contains("make build"), "{message}");
        }
    }

    #[test]
    fn what_is_built_is_taken_and_what_is_not_is_refused() {
        use clap::Parser as _;

        for command in FEATURES.iter().flat_map(|feature| feature.commands) {
            let built = FEATURES.iter().any(|f| f.is_built && f.commands.contains(command));
            let error = crate::Cli::try_parse_from(["slowlight", command, "--help"]).err();
            let kind = error.map(|error| error.kind());
            assert_eq!(kind != Some(ErrorKind::InvalidSubcommand), built, "{command}");
        }
    }

    #[test]
    fn commands_below_others_are_not_missing() {
        let is_first = |line: &str| is_first("send", line.split(' ').map(str::to_owned));
        assert!(is_first("send image.raw host:7542") && is_first("help send"));
        assert!(!is_first("emu send") && !is_first("help emu send"));
    }

    #[test]
    fn every_command_belongs_to_a_feature() {
        use clap::CommandFactory as _;

        let command = crate::Cli::command();
        let mut found: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        found.retain(|name| !["completions", "man"].contains(name));
        let built = FEATURES.iter().filter(|feature| feature.is_built);
        let listed: Vec<_> = built.flat_map(|feature| feature.commands).copied().collect();
        assert_eq!(found, listed);
    }
}
