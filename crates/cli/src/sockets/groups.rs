//! Options of protocols with groups: NORM.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use transport::Configuration;
use transport::contract::Feature;
use transport::protocol::{Kind, Protocol};
use transport::quantity::Span;

use crate::sockets::peers::GroupOptions;
use crate::sockets::scope;
use crate::sockets::transfer::resolve_peer;

/// Options of a sender.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::NORM)]
pub(crate) struct SendOptions {
    /// Multicast group to send to, e.g. 224.1.2.3 or 224.1.2.3:6003
    #[arg(long, value_name = "ADDR")]
    group: Option<String>,

    /// Network interface of the group, e.g. eth0 [default: by the routing table]
    #[arg(long, value_name = "NAME", requires = "group")]
    interface: Option<String>,

    /// Multicast TTL (hop limit) [default: 1]
    #[arg(long, value_name = "N", requires = "group")]
    ttl: Option<u32>,

    /// Send the file as a stream; it may be a pipe, or - for standard input
    ///
    /// Bytes are sent as soon as they are read; `slowlight recv --stream` delivers them as they
    /// arrive.
    #[arg(long)]
    pub(crate) stream: bool,

    /// Overwrite unacknowledged data of a stream instead of waiting for receivers
    #[arg(long, requires = "stream")]
    pub(crate) push: bool,

    /// Send without acknowledgements, with parity for delivery with this probability, e.g. 0.999
    ///
    /// For a path without return link, by norm/coded. The loss is that of the MIB (sender.loss), or
    /// 1 %.
    #[arg(long, value_name = "P", value_parser = probability, conflicts_with = "stream")]
    confidence: Option<f64>,

    /// Send the file again and again for this time, without acknowledgements, e.g. "10 min"
    ///
    /// For receivers without return link that may start late, by norm/coded. Each round is enough
    /// with the probability of --confidence, or 0.99.
    #[arg(long, value_name = "DURATION", value_parser = rounds, conflicts_with = "stream")]
    carousel: Option<Span>,

    /// Command for the receivers' applications, sent before the file; repeatable
    ///
    /// libnorm may deliver it more than once.
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    pub(crate) command: Vec<String>,
}

impl SendOptions {
    /// Whether a group is given in place of an address.
    pub(crate) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The group to send to: that of the option, or the address if it is a group's.
    pub(crate) fn group(&self, kind: Kind, address: Option<&str>) -> Result<Option<rt::Group>> {
        let Self { group, interface, ttl, .. } = self;
        let options = GroupOptions::new(group.clone(), interface.clone(), *ttl);
        if group.is_some() {
            return options.of_norm().map(Some);
        }
        let joins = kind.has(Feature::Groups);
        let Some(to) = address.filter(|_| joins) else { return Ok(None) };
        let to = resolve_peer(to)?;
        to.ip().is_multicast().then(|| options.reached(to)).transpose()
    }

    /// Applies the options for receivers without return link.
    pub(crate) fn send_one_way(
        &self,
        configuration: &mut dyn Configuration,
        protocol: &Protocol,
    ) -> Result<()> {
        let (confidence, carousel) = (self.confidence, self.carousel.map(Span::duration));
        let code = configuration.file_code();
        for (option, is_given) in
            [("--confidence", confidence.is_some()), ("--carousel", carousel.is_some())]
        {
            let is_taken = !is_given || code.is_some();
            ensure!(is_taken, "{option} is for --protocol norm/coded, not {protocol}");
        }
        if let Some(code) = code {
            code.send_one_way(confidence, carousel);
        }
        Ok(())
    }
}

/// Probability of an option.
fn probability(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("invalid probability {text:?}: expected a value like 0.999 or \"99.9 %\"");
    let share = ::session::settings::form::Share::parse(text).map_err(|_| wrong())?;
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(wrong()) }
}

/// Time of the rounds of a carousel.
fn rounds(text: &str) -> Result<Span, String> {
    let time: Span = text.parse().map_err(|error| format!("{error}"))?;
    if time.duration() < Duration::from_millis(1) {
        return Err("nothing is sent in no time; give at least 1 ms".to_owned());
    }
    Ok(time)
}

/// Options of a receiver.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::NORM)]
pub(crate) struct ReceiveOptions {
    /// Receive a stream instead of files into this file, or - for standard output
    ///
    /// Exits at the end of the stream, with status 1 if part of it is missing.
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) stream: Option<PathBuf>,
}
