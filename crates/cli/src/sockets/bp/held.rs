//! `slowlight bp purge`, and the list of `query`: bundles that the node holds.

use std::cmp::Reverse;
use std::process::ExitCode;

use anyhow::Result;
use service::api::NodeClient;
use service::api::model::Bundle;
use service::http::ClientError;

use super::{Place, print};
use crate::exit::Exit;

/// Bundles per request.
const PAGE: usize = 10_000;

/// Selection of bundles.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Only bundles to this node or endpoint
    #[arg(long, value_name = "EID")]
    destination: Option<String>,

    /// Only bundles from this node or endpoint
    #[arg(long, value_name = "EID")]
    source: Option<String>,

    /// Only bundles in this state: storing, delivering, sending, queued or waiting
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
}

impl Filter {
    /// Whether it selects all bundles.
    pub(super) fn is_empty(&self) -> bool {
        self.query().is_empty()
    }

    fn query(&self) -> Vec<(&str, &str)> {
        let all =
            [("destination", &self.destination), ("source", &self.source), ("state", &self.state)];
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?))).collect()
    }
}

/// Order of a list of bundles.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum Order {
    /// First arrived first
    Arrival,
    /// Highest priority first
    Priority,
    /// First to expire first
    Expiry,
    /// Largest first
    Size,
}

impl Order {
    /// Sorts bundles, which are in order of arrival.
    pub(super) fn sort(self, bundles: &mut [Bundle]) {
        match self {
            Self::Arrival => {}
            Self::Priority => bundles.sort_by_key(|bundle| rank(&bundle.priority)),
            Self::Expiry => bundles.sort_by(|a, b| a.left.total_cmp(&b.left)),
            Self::Size => bundles.sort_by_key(|bundle| Reverse(bundle.bytes)),
        }
    }
}

/// Place of a priority, the highest first.
fn rank(priority: &str) -> usize {
    let order = ["expedited", "normal", "bulk"];
    order.iter().position(|name| *name == priority).unwrap_or(order.len())
}

/// Lists all selected bundles.
pub(super) fn list(client: &mut NodeClient, filter: &Filter) -> Result<Vec<Bundle>, ClientError> {
    let mut bundles: Vec<Bundle> = Vec::new();
    loop {
        let after = bundles.last().map_or(0, |last| last.number).to_string();
        let query = [filter.query(), vec![("after", after.as_str())]].concat();
        let page: Vec<Bundle> = client.get("/bundles", &query)?;
        let is_last = page.len() < PAGE;
        bundles.extend(page);
        if is_last {
            return Ok(bundles);
        }
    }
}

/// One line about a bundle.
pub(super) fn line(bundle: &Bundle) -> String {
    let next = match bundle.next_hops.as_slice() {
        [] => String::new(),
        nodes => format!(" for {}", nodes.join(", ")),
    };
    let contact = match bundle.next_contact {
        Some(wait) if wait > 0.0 => format!(", next contact in {}", whole(wait)),
        Some(_) | None => String::new(),
    };
    let sent = match bundle.sent {
        0 => String::new(),
        sent => format!(", {:.0} % sent", 100.0 * sent as f64 / bundle.bytes.max(1) as f64),
    };
    let custody = if bundle.custody { ", in custody" } else { "" };
    let priority = match bundle.priority.as_str() {
        "normal" => String::new(),
        other => format!(", {other}"),
    };
    format!(
        "{} to {}: {} B{priority}, {}{next}{sent}{contact}{custody}, here for {}, expires in {}",
        bundle.id,
        bundle.destination,
        bundle.bytes,
        bundle.state,
        whole(bundle.here),
        whole(bundle.left)
    )
}

/// A time in whole seconds, or in larger units.
pub(super) fn whole(seconds: f64) -> String {
    crate::show::duration(seconds.round()).replace(".00 s", " s")
}

#[derive(Debug, clap::Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    filter: Filter,

    /// Delete all bundles
    #[arg(long, conflicts_with_all = ["destination", "source", "state"])]
    all: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn purge(args: &PurgeArgs) -> Result<ExitCode> {
    let mut query = args.filter.query();
    if args.all {
        query.push(("destination", "*"));
    }
    if query.is_empty() {
        let hint = "no bundles are named; give --destination, --source, --state, or --all to delete all bundles";
        return Err(crate::Usage(hint.to_owned()).into());
    }
    let deleted = args.place.connect()?.purge(&query)?.deleted;
    print(&format!("{deleted} bundles deleted"))?;
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(number: u64, priority: &str, left: f64) -> Bundle {
        Bundle {
            number,
            id: format!("ipn:1.0 {number}.0"),
            source: "ipn:1.0".to_owned(),
            destination: "ipn:3.1".to_owned(),
            next_hops: vec!["ipn:2.0".to_owned()],
            bytes: 1000 * number,
            here: 3.2,
            left,
            state: "queued".to_owned(),
            priority: priority.to_owned(),
            custody: number == 1,
            sent: if number == 1 { 250 } else { 0 },
            next_contact: Some(300.0),
        }
    }

    #[test]
    fn a_line_has_what_a_router_does_with_the_bundle() {
        assert_eq!(
            line(&bundle(1, "expedited", 86_375.0)),
            "ipn:1.0 1.0 to ipn:3.1: 1000 B, expedited, queued for ipn:2.0, 25 % sent, next \
             contact in 5 min, in custody, here for 3 s, expires in 1 d"
        );
        let short = line(&Bundle { next_contact: Some(0.0), ..bundle(2, "bulk", 86_340.0) });
        assert!(short.ends_with("for ipn:2.0, here for 3 s, expires in 23 h 59 min"), "{short}");
    }

    #[test]
    fn lists_are_sorted() {
        let all = [bundle(1, "bulk", 30.0), bundle(2, "expedited", 20.0), bundle(3, "bulk", 10.0)];
        for (order, expected) in [
            (Order::Arrival, [1, 2, 3]),
            (Order::Priority, [2, 1, 3]),
            (Order::Expiry, [3, 2, 1]),
            (Order::Size, [3, 2, 1]),
        ] {
            let mut sorted = all.clone();
            order.sort(&mut sorted);
            assert_eq!(sorted.map(|bundle| bundle.number), expected, "{order:?}");
        }
    }
}
