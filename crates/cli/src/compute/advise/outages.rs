//! Options of both ends for the outages of a link.

use std::time::Duration;

use lab::advise::Question;
use lab::link_spec::{LinkSpec, Periodic};
use transport::quantity::{Span, Window};

/// File with the contacts of the link.
const CONTACTS_FILE: &str = "contacts.txt";
/// Outages that an end survives without knowing them.
const SURVIVED: Duration = Duration::from_secs(3600);

/// Times at which the one hop with outages is down, if both directions are alike.
enum Gates<'a> {
    /// Outages.
    Outages(&'a [Window]),
    /// Periodic outages.
    Periodic(Periodic),
    /// Contacts.
    Contacts(&'a [Window]),
    /// Several hops, or directions that differ: no options of both ends describe them.
    Several,
}

impl<'a> Gates<'a> {
    fn new(question: &'a Question) -> Option<Self> {
        let mut hops = question.link.hops.iter().filter(|hop| hop.has_outages());
        let hop = hops.next()?;
        let back = hop.way_back();
        let is_alike = hop.outages == back.outages
            && hop.outage_every == back.outage_every
            && hop.contacts == back.contacts;
        if hops.next().is_some() || !is_alike {
            return Some(Self::Several);
        }
        let LinkSpec { outages, outage_every, contacts, .. } = hop;
        let periodic = outage_every.map(Self::Periodic);
        let contacts = contacts.as_deref().map(Self::Contacts);
        periodic.or(contacts).or(outages.as_deref().map(Self::Outages))
    }

    /// Longest outage whose end is known.
    fn longest(&self) -> Duration {
        let end = |window: &Window| window.at.duration() + window.lasts.duration();
        match self {
            Self::Outages(windows) => windows.iter().map(|window| window.lasts.duration()).max(),
            Self::Periodic(outages) => Some(outages.down.duration()),
            Self::Contacts(windows) => {
                let ends = [Duration::ZERO].into_iter().chain(windows.iter().map(end));
                let gap = |(end, next): (Duration, &Window)| next.at.duration().saturating_sub(end);
                ends.zip(*windows).map(gap).max()
            }
            Self::Several => None,
        }
        .unwrap_or_default()
    }
}

/// Options with the outages; where they are long also with the silence that an end accepts, for
/// passes that are later than planned.
pub(super) fn options(question: &Question) -> String {
    let Some(gates) = Gates::new(question) else { return String::new() };
    let mut options = match &gates {
        Gates::Outages(windows) => {
            windows.iter().map(|window| format!(" --outage \"{window}\"")).collect()
        }
        Gates::Periodic(outages) => format!(" --outage-every \"{outages}\""),
        Gates::Contacts(_) => format!(" --contacts {CONTACTS_FILE}"),
        Gates::Several => String::new(),
    };
    let longest = gates.longest();
    if longest >= SURVIVED {
        options += &format!(" --inactivity \"{}\"", Span(2 * longest));
    }
    options
}

/// Lines on the times of these options.
pub(super) fn notes(question: &Question) -> Vec<String> {
    let Some(gates) = Gates::new(question) else { return Vec::new() };
    let count =
        "  times count from the start of each command; --epoch DATE on both sides fixes them";
    match gates {
        Gates::Outages(_) | Gates::Periodic(_) => vec![count.to_owned()],
        Gates::Contacts(windows) => {
            let line = |window: &Window| {
                let end = Span(window.at.duration() + window.lasts.duration());
                format!("  {CONTACTS_FILE}: {}, {end}", window.at)
            };
            windows.iter().map(line).chain([count.to_owned()]).collect()
        }
        Gates::Several => {
            let message = "  write the contacts of the path to a file for --contacts of both sides";
            vec![message.to_owned()]
        }
    }
}
