//! Options of both ends for the outages of a link.

use std::time::Duration;

use lab::advise::Question;
use lab::link_spec::{LinkSpec, Periodic};
use transport::quantity::{Span, Window};

use crate::compute::link_options::Ends;

/// File with the contacts of the link.
const CONTACTS_FILE: &str = "contacts.txt";
/// Outages that an end survives without knowing them.
const SURVIVED: Duration = Duration::from_secs(3600);

/// A question, and the options for a file of contacts, if one was given.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) question: &'a Question,
    pub(super) contacts: Option<Ends>,
}

/// End of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Sender,
    Receiver,
}

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

    /// Options of both ends.
    fn options(&self) -> String {
        match self {
            Self::Outages(windows) => {
                windows.iter().map(|window| format!(" --outage \"{window}\"")).collect()
            }
            Self::Periodic(outages) => format!(" --outage-every \"{outages}\""),
            Self::Contacts(_) => format!(" --contacts {CONTACTS_FILE}"),
            Self::Several => String::new(),
        }
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
pub(super) fn options(request: &Request<'_>, end: End) -> String {
    let Some(gates) = Gates::new(request.question) else { return String::new() };
    let (mut options, longest) = match (&request.contacts, end) {
        (Some(file), End::Sender) => (file.sender.clone(), longest_gap(request.question)),
        (Some(file), End::Receiver) => (file.receiver.clone(), longest_gap(request.question)),
        (None, _) => (gates.options(), gates.longest()),
    };
    if longest >= SURVIVED {
        options += &format!(" --inactivity \"{}\"", Span(2 * longest));
    }
    options
}

/// Longest time without a contact of a direction.
fn longest_gap(question: &Question) -> Duration {
    let hops = question.link.hops.iter();
    let directions = hops.flat_map(|hop| [hop.contacts.clone(), hop.way_back().contacts]);
    let gaps = directions.flatten().map(|windows| Gates::Contacts(&windows).longest());
    gaps.max().unwrap_or_default()
}

/// Lines on the times of these options.
pub(super) fn notes(request: &Request<'_>) -> Vec<String> {
    let Some(gates) = Gates::new(request.question) else { return Vec::new() };
    let count =
        "  times count from the start of each command; --epoch DATE on both sides fixes them";
    if let Some(file) = &request.contacts {
        return file.is_relative.then(|| count.to_owned()).into_iter().collect();
    }
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
