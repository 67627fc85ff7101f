//! Contacts and outages that an end of a transfer knows beforehand.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use engine::{Engine, Time};
use link::{Back, Outages, PathOutages};
use transport::quantity::{Periodic, Span, Window};

use crate::contacts::{CONTACTS, Contacts, since_1970};

/// Contacts and outages of the path to the peer.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ContactOptions {
    #[command(flatten)]
    path: Contacts,

    /// Give up after this time without a reply; outages that are known do not count [default: the
    /// MIB's, or 1 h and eight reply times]
    #[arg(long, value_name = "DURATION", help_heading = CONTACTS)]
    pub(crate) inactivity: Option<Span>,
}

impl ContactOptions {
    /// The first of the options that were given, for errors.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.path.file.is_some(), "--contacts"),
            (!self.path.outage.is_empty(), "--outage"),
            (self.path.outage_every.is_some(), "--outage-every"),
            (self.path.epoch.is_some(), "--epoch"),
            (self.inactivity.is_some(), "--inactivity"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }

    /// Makes a driver follow the contacts with the peer. `own` and `remote` are the numbers of both
    /// ends by default; `light` is the one-way light time, if the contact plan has none.
    pub(crate) fn follow<E: Engine>(
        &self,
        driver: &mut rt::Driver<E>,
        own: u64,
        remote: Option<u64>,
        light: Duration,
    ) -> Result<()> {
        let schedule = match &self.path.file {
            Some(path) => self.planned(path, own, remote, light)?,
            None => self.repeated(self.path.epoch()?, light)?,
        };
        if let Some(schedule) = schedule {
            driver.follow(schedule);
        }
        Ok(())
    }

    /// Schedule of --outage and --outage-every.
    fn repeated(&self, epoch: Option<SystemTime>, light: Duration) -> Result<Option<rt::Schedule>> {
        let (zero, begin) = match epoch {
            Some(epoch) => (rt::Zero::Unix, Time::ZERO + since_1970(epoch)),
            None => (rt::Zero::Start, Time::ZERO),
        };
        let outages = match self.path.outage_every {
            Some(Periodic { period, down, first }) => Outages::Periodic {
                period: period.duration(),
                down: down.duration(),
                offset: begin + first.duration(),
            },
            None if self.path.outage.is_empty() => return Ok(None),
            None => {
                let window = |window: &Window| {
                    let start = begin + window.at.duration();
                    link::Window { start, end: start + window.lasts.duration() }
                };
                Outages::List(self.path.outages()?.iter().map(window).collect())
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
        own: u64,
        remote: Option<u64>,
        light: Duration,
    ) -> Result<Option<rt::Schedule>> {
        let origin = path.display();
        let Some(listed) = self.path.read(own, remote, SystemTime::now())? else {
            return Ok(None);
        };
        let zero = if listed.is_relative { rt::Zero::Start } else { rt::Zero::Unix };
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
