//! Bundles over the contacts of a link: their length, and why they did not arrive.

use bp::files::PART;
use transport::contract::{BundleMetrics, Feature};
use transport::quantity::Size;

use crate::link_spec::LinkSpec;
use crate::preset::Preset;
use crate::scenario::{Scenario, Transfer};
use crate::topology::Topology;

/// Bundles that cross at the same time: the default `window` of the layers.
const WINDOW: u64 = 64;
/// Least length to choose: shorter bundles are mostly headers.
const LEAST: u64 = 10_000;
/// Most bundles of a transfer.
const BUNDLES_MAX: u64 = 1024;

/// Returns the length of bundles of which those that cross together take half of a contact. `None`
/// if the file fits into one.
#[must_use]
pub fn part(link: &Preset, file: u64) -> Option<Size> {
    let contact = link.hops.iter().filter_map(capacity).min().filter(|contact| file > *contact)?;
    let part = contact / 2 / WINDOW;
    // One digit suffices.
    let step = 10_u64.pow(part.max(1).ilog10());
    let least = LEAST.max(file.div_ceil(BUNDLES_MAX));
    Some(Size((part / step * step).clamp(least, PART.max(least))))
}

/// Returns the reason why a file of `file` bytes did not arrive in bundles, if it is known.
/// `metrics` are those of all hosts.
pub(crate) fn reason(
    scenario: &Scenario,
    topology: &Topology<'_>,
    transfer: &Transfer,
    file: u64,
    metrics: &[Option<BundleMetrics>],
) -> Option<String> {
    let protocol =
        transfer.protocol.as_ref().filter(|protocol| protocol.kind.has(Feature::Nodes))?;
    let names = transfer.ways().next()?;
    let nodes = names.into_iter().map(|name| topology.node(name)).collect::<Option<Vec<_>>>()?;
    let route = topology.route_by(&nodes)?;
    let contact = route.iter().filter_map(|link| capacity(&scenario.links[*link])).min();
    let bundle = bundle_size(scenario, transfer).min(file);
    let remedy = "set a smaller `bundle_size` (`--part` of bp send)";
    if let Some(contact) = contact.map(Size).filter(|contact| bundle > contact.bytes()) {
        // After an outage that a layer does not wait for, it starts again.
        let bundle = Size(bundle);
        return Some(format!(
            "a bundle of {bundle} does not fit into a contact of {contact}: {remedy}"
        ));
    }
    let metrics = || nodes.iter().filter_map(|node| metrics[*node]);
    let hops = metrics().zip(metrics().skip(1));
    let lost: u64 = hops.map(|(from, to)| from.forwarded.saturating_sub(to.received)).sum();
    if lost > 0 {
        return Some(format!(
            "{lost} bundles were sent and did not arrive, which {protocol} does not notice: take a \
             layer with acknowledgments"
        ));
    }
    let expired: u64 = metrics().map(|node| node.expired).sum();
    if expired > 0 {
        return Some(format!(
            "{expired} bundles expired before they arrived: raise `inactivity`, which is their \
             lifetime (`--lifetime` of bp send)"
        ));
    }
    let contact = contact
        .map(Size)
        .filter(|contact| file.min(bundle.saturating_mul(WINDOW)) > contact.bytes())?;
    let bundle = Size(bundle);
    Some(format!(
        "bundles of {bundle} that cross together do not fit into a contact of {contact}: {remedy}, or \
         `window` of the layer"
    ))
}

/// Length of the bundles of a transfer.
fn bundle_size(scenario: &Scenario, transfer: &Transfer) -> u64 {
    let settings = scenario.nodes.get(&transfer.from).and_then(|node| node.mib.as_ref());
    let given = settings.and_then(|settings| settings.get(&["bundle_size"]));
    match given.and_then(|value| value.as_str()) {
        None => PART,
        // `off`: one bundle, however long.
        Some(text) => text.parse::<Size>().map_or(u64::MAX, Size::bytes),
    }
}

/// Bytes that cross a link in its longest contact; `None` if that has no end.
fn capacity(link: &LinkSpec) -> Option<u64> {
    let longest = match (&link.contacts, link.outage_every) {
        (Some(contacts), _) => {
            contacts.iter().map(|contact| contact.lasts.duration()).max().unwrap_or_default()
        }
        (None, Some(outages)) => {
            let between = outages.period.duration().saturating_sub(outages.down.duration());
            outages.first.duration().max(between)
        }
        // After the last outage the link is up from then on.
        (None, None) => return None,
    };
    let bps = link.rate.filter(|rate| rate.bps() > 0)?.bps();
    let bytes = longest.as_secs_f64() * bps as f64 / 8.0;
    Some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_that_cross_together_fit_into_a_contact() {
        let keys = "rate = \"2 Mbit/s\"\n\
                    outage_every = { period = \"95 min\", down = \"87 min\", first = \"4 min\" }";
        let link = Preset::single(transport::text::parse(keys, "link").expect("a link"));
        assert_eq!(part(&link, 300_000_000), Some(Size(900_000)));
        assert_eq!(part(&link, 100_000_000), None, "one contact suffices");
        assert_eq!(part(&Preset::single(LinkSpec::default()), 300_000_000), None);
    }

    #[test]
    fn the_longest_contact_bounds_a_bundle() {
        let read = |keys: &str| {
            let text = format!("rate = \"2 Mbit/s\"\n{keys}");
            let link: LinkSpec = transport::text::parse(&text, "link").expect("a link");
            capacity(&link)
        };
        let leo = "outage_every = { period = \"95 min\", down = \"87 min\", first = \"4 min\" }";
        assert_eq!(read(leo), Some(120_000_000));
        let contacts =
            "contacts = [{ at = \"0 s\", for = \"4 s\" }, { at = \"9 s\", for = \"8 s\" }]";
        assert_eq!(read(contacts), Some(2_000_000));
        assert_eq!(read("outages = [{ at = \"10 s\", for = \"30 s\" }]"), None);
    }
}
