//! Contacts and outages that an end of a transfer knows beforehand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::{Engine, Time};
use link::{Back, Outages, PathOutages};
use proto::routing::contacts::ContactPlan;
use transport::contact_plan::{self, Base, Format};
use transport::quantity::{Periodic, Span, Window};

use crate::EPOCH;

/// Heading of the options.
const CONTACTS: &str = "Contacts and outages";

/// Times below are not dates, which are later than 2001.
const DATES: Time = Time::from_secs(1_000_000_000);

/// Contacts and outages of the path to the peer.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ContactOptions {
    /// Contacts with the peer: a contact plan of `slowlight route`, or a list (.txt, .csv) with
    /// lines "BEGIN, END"
    ///
    /// Times are dates (2026-11-22T08:00:00Z), or count from --epoch ("10 s").
    #[arg(long, value_name = "FILE", help_heading = CONTACTS, conflicts_with_all = ["outage", "outage_every"])]
    contacts: Option<PathBuf>,

    /// Node of this end in the contact plan [default: its entity number]
    #[arg(long, value_name = "NODE", requires = "contacts", help_heading = CONTACTS)]
    own_node: Option<u64>,

    /// Node of the peer in the contact plan [default: its entity number, or the only other node]
    #[arg(long, value_name = "NODE", requires = "contacts", help_heading = CONTACTS)]
    remote_node: Option<u64>,

    /// Outage of both directions: begin and length, e.g. "10 s+30 s"; repeatable
    #[arg(long, value_name = "WINDOW", help_heading = CONTACTS)]
    outage: Vec<Window>,

    /// Periodic outages of both directions, e.g. "95 min+87 min+8 min"
    ///
    /// Period, length, and begin of the first [default of the third: 0 s].
    #[arg(
        long,
        value_name = "DURATION+DURATION[+DURATION]",
        help_heading = CONTACTS,
        conflicts_with = "outage"
    )]
    outage_every: Option<Periodic>,

    /// Date from which outages and relative times of contacts count [default: $SLOWLIGHT_EPOCH, or
    /// the start of the command]
    #[arg(long, value_name = "DATE", value_parser = date, help_heading = CONTACTS)]
    epoch: Option<SystemTime>,

    /// Give up after this time without a reply; outages that are known do not count [default: the
    /// MIB's, or 1 h and eight reply times]
    #[arg(long, value_name = "DURATION", help_heading = CONTACTS)]
    pub(crate) inactivity: Option<Span>,
}

/// A date of the command line.
fn date(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|error| format!("{error}; write the moment like \"2026-11-22T08:00:00Z\""))
}

/// Contacts in both directions, and light times where the file has them.
#[derive(Debug, Default)]
struct Listed {
    /// From this end; `None` if the file says nothing about the direction.
    there: Option<Vec<link::Window>>,
    /// From the peer, as they leave there.
    back: Option<Vec<link::Window>>,
    /// Contacts from the peer as they arrive here, if the file has light times.
    arriving: Option<Vec<link::Window>>,
    notes: Vec<String>,
}

impl ContactOptions {
    /// The first of the options that were given, for errors.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.contacts.is_some(), "--contacts"),
            (!self.outage.is_empty(), "--outage"),
            (self.outage_every.is_some(), "--outage-every"),
            (self.epoch.is_some(), "--epoch"),
            (self.inactivity.is_some(), "--inactivity"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }

    /// Makes a driver follow the contacts with the peer. `own` and `remote` are the numbers of both
    /// ends by default; `light` is the one-way light time, if the contact plan has none.
    pub(crate) fn follow<E: Engine>(
        &self,
        driver: &mut rt::Driver<E>,
        (own, remote): (u64, Option<u64>),
        light: Duration,
    ) -> Result<()> {
        let epoch = match (self.epoch, std::env::var(EPOCH)) {
            (Some(epoch), _) => Some(epoch),
            (None, Ok(text)) => Some(date(&text).map_err(|error| anyhow!("{EPOCH}: {error}"))?),
            (None, Err(_)) => None,
        };
        let numbers = (self.own_node.unwrap_or(own), self.remote_node.or(remote));
        let schedule = match &self.contacts {
            Some(path) => self.planned(path, numbers, (epoch, light))?,
            None => self.repeated((epoch, light))?,
        };
        if let Some(schedule) = schedule {
            driver.follow(schedule);
        }
        Ok(())
    }

    /// Schedule of --outage and --outage-every.
    fn repeated(
        &self,
        (epoch, light): (Option<SystemTime>, Duration),
    ) -> Result<Option<rt::Schedule>> {
        let (zero, begin) = match epoch {
            Some(epoch) => (rt::Zero::Unix, Time::ZERO + since_1970(epoch)),
            None => (rt::Zero::Start, Time::ZERO),
        };
        let outages = match self.outage_every {
            Some(Periodic { period, down, first }) => Outages::Periodic {
                period: period.duration(),
                down: down.duration(),
                offset: begin + first.duration(),
            },
            None if self.outage.is_empty() => return Ok(None),
            None => {
                let window = |window: &Window| {
                    let start = begin + window.at.duration();
                    link::Window { start, end: start + window.lasts.duration() }
                };
                let mut windows: Vec<_> = self.outage.iter().map(window).collect();
                windows.sort_by_key(|window| window.start);
                Outages::List(windows)
            }
        };
        outages.validate()?;
        let back = Some(Back { outages: outages.clone(), delay: light });
        Ok(Some(rt::Schedule::new(PathOutages { first: vec![outages], back }, zero)))
    }

    /// Schedule of a file of contacts.
    fn planned(
        &self,
        path: &Path,
        numbers: (u64, Option<u64>),
        (epoch, light): (Option<SystemTime>, Duration),
    ) -> Result<Option<rt::Schedule>> {
        let origin = path.display().to_string();
        let text = transport::text::read_text(path)?;
        let now = SystemTime::now();
        let relative = read(&text, &origin, Base::at(UNIX_EPOCH), numbers)?;
        let is_relative = epoch.is_none() && relative.ends().all(|end| end < DATES);
        let (listed, zero) = match is_relative {
            true => (relative, rt::Zero::Start),
            false => {
                let base = Base { zero: UNIX_EPOCH, epoch: epoch.unwrap_or(now) };
                (read(&text, &origin, base, numbers)?, rt::Zero::Unix)
            }
        };
        for note in &listed.notes {
            tracing::warn!("{origin}: {note}");
        }
        let is_left = |end: Time| is_relative || end > Time::ZERO + since_1970(now);
        ensure!(
            listed.ends().any(is_left),
            "{origin}: all contacts are over; give a plan with later ones"
        );
        let contacts = |windows| {
            let outages = Outages::Contacts(windows);
            let checked = outages.validate().map_err(|error| anyhow!("{origin}: {error}"));
            checked.map(|()| outages)
        };
        let first = listed.there.map(contacts).transpose()?.into_iter().collect();
        let back = match (listed.arriving, listed.back) {
            (Some(windows), _) => Some(Back { outages: contacts(windows)?, delay: Duration::ZERO }),
            (None, Some(windows)) => Some(Back { outages: contacts(windows)?, delay: light }),
            (None, None) => None,
        };
        Ok(Some(rt::Schedule::new(PathOutages { first, back }, zero)))
    }
}

impl Listed {
    /// Ends of all contacts.
    fn ends(&self) -> impl Iterator<Item = Time> + '_ {
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
            notes,
        }
    }
}

/// Reads contacts of a file.
fn read(text: &str, origin: &str, base: Base, numbers: (u64, Option<u64>)) -> Result<Listed> {
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
    let (own, remote) = ends(&document.plan, origin, numbers)?;
    let mut listed = Listed::between(&document.plan, own, remote);
    listed.notes.extend(document.notes);
    Ok(listed)
}

/// Numbers of both ends in a plan.
fn ends(plan: &ContactPlan, origin: &str, (own, remote): (u64, Option<u64>)) -> Result<(u64, u64)> {
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

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Line about the end of a contact; `None` if one is open.
pub(crate) fn described(now: Time, contact: rt::Contact) -> Option<String> {
    let rt::Contact::Closed(next) = contact else { return None };
    let Some(next) = next else { return Some("no contact: none is left in the plan".to_owned()) };
    let wait = next.since(now);
    let date = humantime::format_rfc3339_seconds(SystemTime::now() + wait);
    let wait = match wait.as_secs() {
        0 | 1 => Duration::from_millis(wait.as_millis() as u64),
        _ => Duration::from_secs(wait.as_secs_f64().round() as u64),
    };
    let wait = Span(wait);
    Some(format!("no contact; the next one begins in {wait}, at {date}"))
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
        read(text, origin, Base::at(UNIX_EPOCH), numbers)
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
