//! Commands that compute: simulation, comparison, advice. They need no sockets and no privileges.

mod advise;
mod compare;
pub(crate) mod conditions;
mod decode;
pub(crate) mod link_options;
mod links;
mod route;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod table;

use std::error::Error;
use std::process::ExitCode;

use clap::Subcommand;
use lab::run::RunError;

use crate::Usage;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Rank protocols by simulated transfers over a link
    Compare(Box<compare::Args>),
    /// Recommend a transport for a link and a file
    Advise(Box<advise::Args>),
    /// Simulate a scenario
    Sim(simulate::Args),
    /// List the built-in links, or print one
    Links(links::Args),
    /// Decode PDUs of captures (pcapng, pcap) or of hexadecimal digits, one per line
    Decode(decode::Args),
    /// Find routes through a contact plan
    Route(Box<route::Args>),
}

/// A seed of the command line.
pub(crate) fn seed(text: &str) -> Result<u64, Usage> {
    text.parse().map_err(|_| Usage(format!("a seed is a whole number from 0 to {}", u64::MAX)))
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Compare(args) => compare::run(args),
        Command::Advise(args) => advise::run(args),
        Command::Sim(args) => simulate::run(args),
        Command::Links(args) => links::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Route(args) => route::run(args),
    }
}

/// Whether an error of the laboratory is wrong usage.
pub(crate) fn is_usage(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(RunError::Spec(_)))
}

#[cfg(all(test, feature = "sockets"))]
mod tests {
    use std::net::SocketAddr;

    use lab::link_spec::LinkSpec;
    use transport::quantity::Size;

    use crate::sockets::transfer::fitting;

    #[test]
    fn default_datagrams_are_those_of_the_simulator() {
        let [v4, v6]: [SocketAddr; 2] =
            ["192.0.2.1:7542", "[2001:db8::1]:7542"].map(|text| text.parse().unwrap());
        for mtu in [576, 1280, 1500] {
            let link = LinkSpec { mtu: Some(Size(mtu)), ..LinkSpec::default() };
            assert_eq!(fitting(v4, mtu as usize) as u64, link.payload_max());
        }
        assert_eq!((fitting(v4, 1500), fitting(v6, 1500), fitting(v6, 1280)), (1472, 1452, 1232));
        // A jumbo frame leaves this machine, but not every path carries it.
        assert_eq!((fitting(v4, 9000), fitting(v4, 68)), (1472, 64));
    }
}
