//! Conditions of a table in words: links, runs, seeds.

use lab::link_spec::{Erasure, LinkSpec, WhileDown};
use lab::preset::Preset;
use transport::quantity::{Size, Window};

use super::table::FIXED;

/// Most links of a world that are described one by one.
const LINKS_MAX: usize = 8;

/// Lines for the hops of a link, there and back. Spaces within a value are [`FIXED`].
pub(crate) fn of_link(link: &Preset) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, hop) in link.hops.iter().enumerate() {
        let hop_name =
            if link.hops.len() > 1 { format!("hop {}, ", at + 1) } else { String::new() };
        let (there, back) = (of_direction(hop), of_direction(&hop.way_back()));
        if there == back {
            lines.push(format!("  {hop_name}both ways: {there}"));
        } else {
            lines.push(format!("  {hop_name}there: {there}"));
            lines.push(format!("  {hop_name}back: {back}"));
        }
    }
    lines
}

/// Line on outages that the hosts of a simulated link know. Those beyond another host are unknown.
pub(crate) fn known_outages(link: &Preset) -> Option<String> {
    let [hop] = link.hops.as_slice() else { return None };
    let known = "  both hosts know the outages, as by --outage, --outage-every or --contacts of send \
                 and recv";
    hop.has_outages().then(|| known.to_owned())
}

/// Line on bundles that are shorter than by default.
pub(crate) fn of_parts(part: Option<Size>) -> Option<String> {
    part.map(|part| {
        format!("  bundles of {part}, so that many fit into a contact (bp send --part)")
    })
}

/// Lines for the links of a world, each direction by itself.
pub(crate) fn of_links(links: &[LinkSpec]) -> Vec<String> {
    let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "?".to_owned());
    let all = links
        .iter()
        .map(|link| format!("  {} -> {}: {}", end(&link.from), end(&link.to), of_direction(link)));
    let mut lines: Vec<_> = all.take(LINKS_MAX).collect();
    if links.len() > LINKS_MAX {
        lines.push(format!("  {} more links", links.len() - LINKS_MAX));
    }
    lines
}

/// One direction of a hop.
fn of_direction(spec: &LinkSpec) -> String {
    let spec = spec.clone().resolved();
    // A rate of 0 is without limit.
    let limit = spec.rate.filter(|rate| rate.bps() > 0);
    let rate = match (&spec.rate_steps, limit) {
        (Some(_), _) => "a rate that changes".to_owned(),
        (None, Some(rate)) => rate.to_string(),
        (None, None) => "any rate".to_owned(),
    };
    let delay = match &spec.delay_points {
        Some(_) => "a delay that changes".to_owned(),
        None => spec.delay.unwrap_or_default().to_string(),
    };
    let mut parts = vec![rate, delay];
    parts.extend(spec.errors.summary());
    let code = spec.erasure.and_then(Erasure::code);
    parts.extend(code.map(|code| format!("erasure code {}", Erasure::On(code))));
    let list = |windows: &Vec<Window>| {
        windows.iter().map(Window::to_string).collect::<Vec<_>>().join(", ")
    };
    parts.extend(spec.outages.as_ref().map(|windows| format!("down {}", list(windows))));
    parts.extend(spec.outage_every.map(|outages| {
        let first = Some(outages.first).filter(|first| !first.duration().is_zero());
        let from = first.map_or(String::new(), |first| format!(" from {first} on"));
        format!("down {} every {}{from}", outages.down, outages.period)
    }));
    parts.extend(spec.contacts.as_ref().map(|windows| format!("up {} only", list(windows))));
    let drops = spec.while_down == Some(WhileDown::Drop) && spec.is_gated();
    parts.extend(drops.then(|| "packets dropped while down".to_owned()));
    parts.extend(spec.bucket.map(|bucket| format!("bucket {bucket}")));
    parts.extend(
        spec.reorder.map(|late| format!("{} of packets {} later", late.probability, late.by)),
    );
    parts.extend(spec.queue.map(|queue| format!("queue {queue}")));
    // Ethernet, the default, is no obvious choice for a link in space.
    parts.push(format!("framing {}", spec.framing.unwrap_or_default()));
    if spec.header_compression == Some(true) {
        parts.push("headers compressed".to_owned());
    }
    parts.extend(spec.mtu.map(|mtu| format!("MTU {mtu}")));
    parts.extend(spec.datagram.map(|datagram| format!("datagram {datagram}")));
    parts.iter().map(|part| part.replace(' ', FIXED)).collect::<Vec<_>>().join(", ")
}
