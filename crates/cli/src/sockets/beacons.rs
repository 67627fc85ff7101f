//! Beacons: Saratoga.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::PathId;
use transport::Configuration;
use transport::contract::Feature;
use transport::protocol::Kind;
use transport::quantity::Span;

use crate::sockets::peers::{self, GroupOptions};
use crate::sockets::scope;

/// Options of a receiver.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = scope::SARATOGA)]
pub(crate) struct BeaconOptions {
    /// Interval of multicast beacons, which announce this end to peers, e.g. "5 s"
    #[arg(long, value_name = "DURATION", value_parser = peers::listening)]
    beacon: Option<Span>,

    /// Unique identifier in beacons [default: ipn:N.0 with --entity N, or the MIB's, or the host
    /// name]
    #[arg(long, value_name = "TEXT")]
    eid: Option<String>,
}

impl BeaconOptions {
    /// Beacons to send to a group, if requested, of an end that listens on `listen`.
    pub(crate) fn beacons(
        &self,
        kind: Kind,
        group: &GroupOptions,
        listen: IpAddr,
    ) -> Result<Option<Beacons>> {
        let Self { beacon, eid } = self;
        let Some(interval) = *beacon else {
            let joins = kind.has(Feature::Groups);
            let is_given = eid.is_some() || !joins && *group != GroupOptions::default();
            ensure!(
                !is_given,
                "--eid, --group and --interface are for beacons; give --beacon, e.g. --beacon \"5 s\""
            );
            return Ok(None);
        };
        let fits = eid.as_ref().is_none_or(|eid| (1..=255).contains(&eid.len()));
        ensure!(fits, "--eid has 1 to 255 bytes");
        let (interval, group) = (interval.duration(), group.group(listen)?);
        Ok(Some(Beacons { interval, group, eid: eid.clone() }))
    }
}

/// Beacons of a Saratoga peer.
#[derive(Clone, Debug)]
pub(crate) struct Beacons {
    pub(crate) interval: Duration,
    pub(crate) group: rt::Group,
    /// Its identifier, if that was given.
    pub(crate) eid: Option<String>,
}

impl Beacons {
    /// Adds the group to the destinations of beacons. The identifier is that of the option, of the
    /// settings, or else the host name, if the receiver has its `default` number.
    pub(crate) fn settle(
        &self,
        configuration: &mut dyn Configuration,
        group: PathId,
        number: Option<u64>,
        default: u64,
    ) -> Result<()> {
        let Some(beacons) = configuration.beacons() else { return Ok(()) };
        beacons.add(group, Some(self.interval));
        if let Some(eid) = &self.eid {
            beacons.set_identifier(eid);
        } else if number.is_none() && beacons.identifier() == format!("ipn:{default}.0") {
            // All other ends without settings have that number too.
            let name = peers::machine().context("this machine has no name; give --eid")?;
            beacons.set_identifier(&name);
        }
        Ok(())
    }
}
