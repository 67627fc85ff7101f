//! Options that only some protocols take. Their heading in `--help` says which ones.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use transport::Capability;
use transport::protocol::Protocol;

use crate::Usage;

/// Headings of options, which name the protocols that take them.
pub(crate) const CFDP: &str = "CFDP";
pub(crate) const CFDP_REQUEST: &str = "CFDP, along with the file";
pub(crate) const CFDP_IN_BUNDLES: &str = "CFDP in bundles";
pub(crate) const CFDP_AND_LTP: &str = "CFDP and LTP";
pub(crate) const LTP_T: &str = "LTP-T";
pub(crate) const NORM: &str = "NORM";
pub(crate) const NORM_AND_SARATOGA: &str = "NORM and Saratoga";
pub(crate) const SARATOGA: &str = "Saratoga";

/// Protocols that take the options under a heading: those with one of these capabilities.
struct Scope {
    heading: &'static str,
    /// The protocols, in a message.
    title: &'static str,
    capabilities: &'static [Capability],
}

const fn scope(
    heading: &'static str,
    title: &'static str,
    capabilities: &'static [Capability],
) -> Scope {
    Scope { heading, title, capabilities }
}

const SCOPES: &[Scope] = &[
    scope(CFDP, CFDP, &[Capability::Transactions]),
    scope(CFDP_REQUEST, CFDP, &[Capability::Transactions]),
    scope(CFDP_IN_BUNDLES, "CFDP without a layer below", &[Capability::Node]),
    scope(CFDP_AND_LTP, CFDP_AND_LTP, &[Capability::Peers]),
    scope(LTP_T, LTP_T, &[Capability::Routes]),
    scope(NORM, NORM, &[Capability::Streams]),
    scope(NORM_AND_SARATOGA, NORM_AND_SARATOGA, &[Capability::Groups, Capability::Requests]),
    scope(SARATOGA, SARATOGA, &[Capability::Requests]),
];

/// Options that another protocol has under another name.
const ALTERNATIVES: &[(&str, Capability, &str)] =
    &[("command", Capability::Transactions, "CFDP has --message")];

/// Refuses options that the protocol of the command line does not take.
///
/// # Errors
///
/// Names the first such option, and the protocols that take it.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result<(), Usage> {
    if let Some((name, matches)) = matches.subcommand() {
        return command.find_subcommand(name).map_or(Ok(()), |below| check(below, matches));
    }
    let Ok(Some(protocol)) = matches.try_get_one::<Protocol>("protocol") else { return Ok(()) };
    for option in command.get_arguments() {
        let Some(heading) = option.get_help_heading() else { continue };
        let Some(scope) = SCOPES.iter().find(|scope| scope.heading == heading) else { continue };
        let id = option.get_id().as_str();
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let is_taken = scope.capabilities.iter().any(|it| protocol.kind.has(*it));
        if is_given && !is_taken {
            let option = option.get_long().unwrap_or(id);
            return Err(Usage(refusal(option, scope.title, protocol)));
        }
    }
    Ok(())
}

fn refusal(option: &str, title: &str, protocol: &Protocol) -> String {
    let known = |(name, capability, _): &&(&str, Capability, &str)| {
        *name == option && protocol.kind.has(*capability)
    };
    match ALTERNATIVES.iter().find(known) {
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
            ("slowlight send f a:1 --command x", "--command is for NORM; CFDP has --message"),
            ("slowlight send f a:1 --protocol ltp --class 1", "--class is for CFDP, not for ltp"),
            ("slowlight send f --protocol norm --node s", "--node is for CFDP without a layer"),
            (
                "slowlight recv --listen a:1 --root r --serve",
                "--serve is for Saratoga, not for cfdp",
            ),
            ("slowlight recv --listen a:1 --root r --ttl 2", "--ttl is for NORM and Saratoga"),
            ("slowlight get a:1 f --take", "--take is for Saratoga, not for cfdp"),
            ("slowlight cfdp ls a:1 --udp-lite", "--udp-lite is for Saratoga, not for cfdp"),
        ] {
            assert!(refused(line).is_some_and(|message| message.starts_with(why)), "{line}");
        }
        for line in [
            "slowlight send f a:1 --class 1 --message x",
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
