//! Options that only some protocols take. Their heading in `--help` names these.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use transport::contract::Feature;
use transport::protocol::{Kind, Protocol};

use crate::Usage;

/// Headings of options, which name the protocols that take them.
pub(crate) const FOLDERS: &str = "Folders";
pub(crate) const WATCHED: &str = "A watched folder";
pub(crate) const CFDP: &str = "CFDP";
pub(crate) const CFDP_REQUEST: &str = "CFDP requests with the file";
pub(crate) const CFDP_IN_BUNDLES: &str = "CFDP in bundles";
pub(crate) const CFDP_AND_LTP: &str = "CFDP and LTP";
pub(crate) const LTP_T: &str = "LTP-T";
pub(crate) const NORM: &str = "NORM";
pub(crate) const NORM_AND_SARATOGA: &str = "NORM and Saratoga";
pub(crate) const SARATOGA: &str = "Saratoga";
pub(crate) const SARATOGA_BESIDE_OTHERS: &str = "Saratoga, also without --protocol";

/// Protocols that take the options under a heading.
struct Scope {
    heading: &'static str,
    /// The protocols, in a message.
    title: &'static str,
    /// One of them.
    example: &'static str,
    is_taken_by: fn(Kind) -> bool,
    /// Whether a receiver of several protocols takes them for that one.
    goes_beside_others: bool,
}

const fn scope(
    heading: &'static str,
    title: &'static str,
    example: &'static str,
    is_taken_by: fn(Kind) -> bool,
) -> Scope {
    Scope { heading, title, example, is_taken_by, goes_beside_others: false }
}

const SCOPES: &[Scope] = &[
    scope(CFDP, CFDP, "cfdp", Kind::is_entity),
    scope(CFDP_REQUEST, CFDP, "cfdp", Kind::is_entity),
    scope(CFDP_IN_BUNDLES, "CFDP without a layer below", "cfdp", Kind::has_overlay),
    scope(CFDP_AND_LTP, CFDP_AND_LTP, "ltp", Kind::has_peer_numbers),
    scope(LTP_T, LTP_T, "ltp-t", |kind| kind.has(Feature::Relays)),
    scope(NORM, NORM, "norm", |kind| kind.has(Feature::Groups)),
    scope(NORM_AND_SARATOGA, NORM_AND_SARATOGA, "norm", |kind| {
        kind.has(Feature::Groups) || kind.has(Feature::Directories)
    }),
    scope(SARATOGA, SARATOGA, "saratoga", |kind| kind.has(Feature::Directories)),
    Scope {
        goes_beside_others: true,
        ..scope(SARATOGA_BESIDE_OTHERS, SARATOGA, "saratoga", |kind| kind.has(Feature::Directories))
    },
];

/// Options that another protocol has under another name.
const ALTERNATIVES: [(&str, Predicate, &str); 1] =
    [("command", Kind::is_entity, "CFDP has --message")];

/// Condition on a protocol.
type Predicate = fn(Kind) -> bool;

/// Refuses options that the protocol of the command line does not take.
///
/// # Errors
///
/// Names the first such option, and the protocols that take it.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result<(), Usage> {
    if let Some((name, matches)) = matches.subcommand() {
        return command.find_subcommand(name).map_or(Ok(()), |below| check(below, matches));
    }
    let Ok(protocol) = matches.try_get_one::<Protocol>("protocol") else { return Ok(()) };
    // Only CFDP has a node.
    let has_node = matches.try_contains_id("node").unwrap_or_default();
    let protocol = protocol.cloned().or_else(|| has_node.then(Protocol::default));
    for option in command.get_arguments() {
        let Some(heading) = option.get_help_heading() else { continue };
        let Some(scope) = SCOPES.iter().find(|scope| scope.heading == heading) else { continue };
        let id = option.get_id().as_str();
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let name = option.get_long().unwrap_or(id);
        match &protocol {
            Some(protocol) if is_given && !(scope.is_taken_by)(protocol.kind) => {
                return Err(Usage(refusal(name, scope.title, protocol)));
            }
            None if is_given && !scope.goes_beside_others => {
                let Scope { title, example, .. } = scope;
                let remedy = format!("give the protocol, e.g. --protocol {example}");
                return Err(Usage(format!("--{name} is for {title}; {remedy}")));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn refusal(option: &str, title: &str, protocol: &Protocol) -> String {
    let mut others = ALTERNATIVES.iter().filter(|(name, ..)| *name == option);
    match others.find(|(_, has_other, _)| has_other(protocol.kind)) {
        Some((.., other)) => format!("--{option} is for {title}; {other}"),
        None => format!("--{option} is for {title}, not for {protocol}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn refused(line: &str) -> Option<String> {
        let mut command = crate::Cli::command();
        let matches = command.try_get_matches_from_mut(line.split(' ')).expect("it is well formed");
        check(&command, &matches).err().map(|error| error.to_string())
    }

    #[test]
    fn options_are_for_the_protocols_of_their_heading() {
        for (line, why) in [
            (
                "slowlight send f a:1 --protocol cfdp --command x",
                "--command is for NORM; CFDP has --message",
            ),
            ("slowlight send f a:1 --protocol ltp --class 1", "--class is for CFDP, not for ltp"),
            ("slowlight send f --protocol norm --node s", "--node is for CFDP without a layer"),
            (
                "slowlight recv --protocol cfdp --root r --serve",
                "--serve is for Saratoga, not for cfdp",
            ),
            (
                "slowlight recv --root r --beacon 2s",
                "--beacon is for Saratoga; give the protocol, e.g. --protocol saratoga",
            ),
            ("slowlight recv --root r --group 224.1.2.3", "--group is for NORM and Saratoga; give"),
            ("slowlight recv --root r --peer 3=a:1", "--peer is for CFDP and LTP; give"),
            ("slowlight send f a:1 --class 1", "--class is for CFDP; give the protocol, e.g. --"),
            ("slowlight get a:1 f --take", "--take is for Saratoga, not for cfdp"),
            ("slowlight cfdp ls a:1 --udp-lite", "--udp-lite is for Saratoga, not for cfdp"),
        ] {
            assert!(refused(line).is_some_and(|message| message.starts_with(why)), "{line}");
        }
        for line in [
            "slowlight send f a:1 --protocol cfdp --class 1 --message x",
            "slowlight send f a",
            "slowlight send f --node s",
            "slowlight recv --root r",
            "slowlight recv --root r --serve --allow-delete",
            "slowlight recv --root r --node s",
            "slowlight send f a:1 --protocol norm/cc --command x",
            "slowlight recv --listen a:1 --root r --protocol ltp --peer 3=a:1",
        ] {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[test]
    fn every_heading_of_a_protocol_is_in_use() {
        let command = crate::Cli::command();
        let headings: Vec<&str> = command
            .get_subcommands()
            .flat_map(|command| command.get_arguments())
            .filter_map(|option| option.get_help_heading())
            .collect();
        for scope in SCOPES {
            assert!(headings.contains(&scope.heading), "{}", scope.heading);
        }
    }
}
