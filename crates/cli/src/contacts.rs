//! Contacts between two ends and outages of their path: contact plans, lists, and options.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::Time;
use routing::contacts::ContactPlan;
use transport::contact_plan::{self, Base, Format};
use transport::quantity::{Periodic, Window};

use crate::{EPOCH, Usage};

/// Heading of the options.
pub(crate) const CONTACTS: &str = "Contacts and outages";

/// Times below are not dates, which are later than 2001.
const DATES: Time = Time::from_secs(1_000_000_000);

/// File of contacts with the two ends in it, or outages, and the zero of their times.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Contacts {
    /// Contacts with the peer: a contact plan of `slowlight route`, or a list (.txt, .csv) with
    /// lines "BEGIN, END"
    ///
    /// Times are dates (2026-11-22T08:00:00Z), or count from --epoch ("10 s").
    #[arg(
        id = "contacts",
        long = "contacts",
        value_name = "FILE",
        help_heading = CONTACTS,
        conflicts_with_all = ["outage", "outage_every"]
    )]
    pub(crate) file: Option<PathBuf>,

    /// Node of this end in the contact plan [default: its entity number]
    #[arg(long, value_name = "NODE", requires = "contacts", help_heading = CONTACTS)]
    own_node: Option<u64>,

    /// Node of the peer in the contact plan [default: its entity number, or the only other node]
    #[arg(long, value_name = "NODE", requires = "contacts", help_heading = CONTACTS)]
    remote_node: Option<u64>,

    /// Date from which outages and relative times of contacts count [default: $SLOWLIGHT_EPOCH, or
    /// the start of the command]
    #[arg(long, value_name = "DATE", value_parser = date, help_heading = CONTACTS)]
    pub(crate) epoch: Option<SystemTime>,

    /// Outage of both directions: begin and length, e.g. "10 s+30 s"; repeatable
    #[arg(long, value_name = "WINDOW", help_heading = CONTACTS, allow_hyphen_values = true)]
    pub(crate) outage: Vec<Window>,

    /// Periodic outages of both directions, e.g. "95 min+87 min+8 min"
    ///
    /// Period, length, and begin of the first [default of the third: 0 s].
    #[arg(
        long,
        value_name = "DURATION+DURATION[+DURATION]",
        help_heading = CONTACTS,
        allow_hyphen_values = true,
        conflicts_with = "outage"
    )]
    pub(crate) outage_every: Option<Periodic>,
}

/// A date of the command line.
fn date(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|error| format!("{error}; write the moment like \"2026-11-22T08:00:00Z\""))
}

/// Contacts in both directions, and light times where the file has them.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// From this end; `None` if the file says nothing about the direction.
    pub(crate) there: Option<Vec<link::Window>>,
    /// From the peer, as they leave there.
    pub(crate) back: Option<Vec<link::Window>>,
    /// Contacts from the peer as they arrive here, if the file has light times.
    #[cfg_attr(
        not(any(feature = "sockets", test)),
        expect(dead_code, reason = "simulations have the light times of their links")
    )]
    pub(crate) arriving: Option<Vec<link::Window>>,
    /// Light time at the first contact, if the file has light times.
    #[cfg_attr(not(feature = "compute"), expect(dead_code, reason = "only simulations need it"))]
    pub(crate) light: Option<Duration>,
    /// Numbers of both ends, in a contact plan.
    #[cfg_attr(not(feature = "compute"), expect(dead_code, reason = "only simulations need it"))]
    pub(crate) ends: Option<(u64, u64)>,
    /// Whether all times count from the start of the command.
    pub(crate) is_relative: bool,
    notes: Vec<String>,
}

impl Contacts {
    /// The epoch of the options, or of the emulated world.
    pub(crate) fn epoch(&self) -> Result<Option<SystemTime>> {
        match (self.epoch, std::env::var(EPOCH)) {
            (Some(epoch), _) => Ok(Some(epoch)),
            (None, Ok(text)) => Ok(Some(date(&text).map_err(|error| anyhow!("{EPOCH}: {error}"))?)),
            (None, Err(_)) => Ok(None),
        }
    }

    /// Contacts of the file, if one is given. `own` and `remote` are the numbers of both ends by
    /// default. Times count from 1970, unless all of them count from the start of the command.
    pub(crate) fn read(
        &self,
        own: u64,
        remote: Option<u64>,
        now: SystemTime,
    ) -> Result<Option<Listed>> {
        let Some(path) = &self.file else { return Ok(None) };
        let (own, remote) = (self.own_node.unwrap_or(own), self.remote_node.or(remote));
        let epoch = self.epoch()?;
        let origin = path.display().to_string();
        let text = transport::text::read_text(path)?;
        let mut listed = read(&text, &origin, Base::from_epoch(UNIX_EPOCH), own, remote)?;
        listed.is_relative = epoch.is_none() && listed.ends().all(|end| end < DATES);
        if !listed.is_relative {
            let base = Base { zero: UNIX_EPOCH, epoch: epoch.unwrap_or(now) };
            listed = read(&text, &origin, base, own, remote)?;
        }
        for note in &listed.notes {
            tracing::warn!("{origin}: {note}");
        }
        let is_left = |end: Time| listed.is_relative || end > Time::ZERO + since_1970(now);
        ensure!(
            listed.ends().any(is_left),
            "{origin}: all contacts are over; give a plan with later ones"
        );
        Ok(Some(listed))
    }

    /// The outages of --outage, in time order.
    pub(crate) fn outages(&self) -> Result<Vec<Window>> {
        let mut outages = self.outage.clone();
        outages.sort_by_key(|outage| outage.at);
        for pair in outages.windows(2) {
            let &[before, after] = pair else { continue };
            if before.at.duration() + before.lasts.duration() > after.at.duration() {
                let message = format!("--outage \"{before}\" and \"{after}\" overlap");
                return Err(Usage(message).into());
            }
        }
        Ok(outages)
    }
}

pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Listed {
    /// Ends of all contacts.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Time> + '_ {
        self.there.iter().chain(&self.back).flatten().map(|window| window.end)
    }

    /// Contacts of a plan between two nodes.
    fn between(plan: &ContactPlan, own: u64, remote: u64) -> Self {
        let contacts = |from, to| {
            let these = plan.contacts().iter().filter(move |it| (it.from, it.to) == (from, to));
            let windows = these.map(|it| link::Window { start: it.start, end: it.end });
            Some(windows.collect::<Vec<_>>()).filter(|windows| !windows.is_empty())
        };
        let (there, back) = (contacts(own, remote), contacts(remote, own));
        let arrives = |at| at + plan.owlt(remote, own, at);
        let arriving = |windows: &Vec<link::Window>| {
            let mut end = Time::ZERO;
            let window = |it: &link::Window| {
                let start = arrives(it.start).max(end);
                end = arrives(it.end).max(start);
                link::Window { start, end }
            };
            let windows: Vec<_> = windows.iter().map(window).collect();
            windows.into_iter().filter(|it| it.start < it.end).collect()
        };
        let has_light_times = plan.ranges().next().is_some();
        let first = there.iter().chain(&back).flatten().map(|window| window.start).min();
        let light = first.filter(|_| has_light_times).map(|at| plan.owlt(own, remote, at));
        let mut notes = Vec::new();
        for (given, from, to) in [(&there, own, remote), (&back, remote, own)] {
            if given.is_none() {
                notes.push(format!("no contact from {from} to {to}: its outages are unknown"));
            }
        }
        Self {
            arriving: back.as_ref().filter(|_| has_light_times).map(arriving),
            there,
            back,
            light,
            ends: Some((own, remote)),
            is_relative: false,
            notes,
        }
    }
}

/// Reads contacts of a file.
fn read(text: &str, origin: &str, base: Base, own: u64, remote: Option<u64>) -> Result<Listed> {
    if origin.ends_with(".txt") || origin.ends_with(".csv") {
        let list = contact_plan::read_list(text, origin, base)?;
        let mut windows: Vec<_> =
            list.into_iter().map(|[start, end]| link::Window { start, end }).collect();
        windows.sort_by_key(|window| window.start);
        ensure!(!windows.is_empty(), "{origin} has no contact; write one as \"BEGIN, END\"");
        let (there, back) = (Some(windows.clone()), Some(windows));
        return Ok(Listed { there, back, ..Listed::default() });
    }
    let format = Format::of_name(origin).with_context(|| {
        format!(
            "the name of {origin} does not show its format; it ends in .toml, .ionrc, .json, .tvg \
             or .cp, or in .txt for lines \"BEGIN, END\""
        )
    })?;
    let document = contact_plan::read(format, text, origin, base)?;
    let (own, remote) = nodes(&document.plan, origin, own, remote)?;
    let mut listed = Listed::between(&document.plan, own, remote);
    listed.notes.extend(document.notes);
    Ok(listed)
}

/// Numbers of both ends in a plan.
fn nodes(plan: &ContactPlan, origin: &str, own: u64, remote: Option<u64>) -> Result<(u64, u64)> {
    let peer = |(from, to)| if own == from { Some(to) } else { (own == to).then_some(from) };
    let pairs = || plan.contacts().iter().map(|it| (it.from, it.to));
    let peers: BTreeSet<u64> = pairs().filter_map(peer).collect();
    let nodes: BTreeSet<u64> = pairs().flat_map(|(from, to)| [from, to]).collect();
    let list =
        |numbers: &BTreeSet<u64>| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    ensure!(
        nodes.contains(&own),
        "{origin} has no contact of node {own}; name this end with --own-node (nodes: {})",
        list(&nodes)
    );
    let only = peers.first().copied().filter(|_| peers.len() == 1);
    let remote = remote.or(only).with_context(|| {
        format!(
            "{origin}: node {own} has several peers; choose with --remote-node: {}",
            list(&peers)
        )
    })?;
    ensure!(
        peers.contains(&remote),
        "{origin} has no contact between {own} and {remote}; name the peer with --remote-node \
         (peers of {own}: {})",
        list(&peers)
    );
    Ok((own, remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "contact = [
        { from = 1, to = 2, start = \"10 s\", end = \"20 s\", rate = \"1 Mbit/s\" },
        { from = 2, to = 1, start = \"12 s\", end = \"22 s\", rate = \"1 Mbit/s\" },
        { from = 2, to = 3, start = \"0 s\", end = \"9 s\", rate = \"1 Mbit/s\" },
        ]
        range = [{ from = 1, to = 2, start = \"0 s\", end = \"1 h\", owlt = \"3 s\" }]";

    fn window(start: u64, end: u64) -> link::Window {
        link::Window { start: Time::from_secs(start), end: Time::from_secs(end) }
    }

    fn listed(origin: &str, text: &str, numbers: (u64, Option<u64>)) -> Result<Listed> {
        read(text, origin, Base::from_epoch(UNIX_EPOCH), numbers.0, numbers.1)
    }

    #[test]
    fn plans_have_the_contacts_of_both_directions() {
        let near = listed("plan.toml", PLAN, (1, None)).unwrap();
        assert_eq!(near.there, Some(vec![window(10, 20)]));
        assert_eq!(near.back, Some(vec![window(12, 22)]));
        assert_eq!(near.arriving, Some(vec![window(15, 25)]), "3 s later");
        assert!(near.notes.is_empty());
        let far = listed("plan.toml", PLAN, (3, None)).unwrap();
        assert_eq!((far.there, far.back), (None, Some(vec![window(0, 9)])));
        assert!(far.notes[0].contains("no contact from 3 to 2"), "{:?}", far.notes);
        for (numbers, remedy) in [
            ((2, None), "choose with --remote-node: 1, 3"),
            ((7, None), "--own-node (nodes: 1, 2, 3)"),
            ((1, Some(3)), "--remote-node (peers of 1: 2)"),
        ] {
            let error = listed("plan.toml", PLAN, numbers).unwrap_err().to_string();
            assert!(error.contains("plan.toml") && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn lists_hold_in_both_directions() {
        let list = listed("passes.txt", "30 s, 40 s\n10 s, 20 s", (1, None)).unwrap();
        let windows = Some(vec![window(10, 20), window(30, 40)]);
        assert_eq!((list.there, list.back), (windows.clone(), windows));
        assert!(listed("passes.txt", "# none", (1, None)).is_err());
        let error = listed("passes", PLAN, (1, None)).unwrap_err().to_string();
        assert!(error.contains("does not show its format"), "{error}");
    }
}
