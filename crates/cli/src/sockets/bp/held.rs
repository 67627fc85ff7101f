//! `slowlight bp purge`, and the list of `query`: bundles that the node holds.

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
    format!(
        "{} to {}: {} B, {}{next}, here for {:.0} s, expires in {:.0} s",
        bundle.id, bundle.destination, bundle.bytes, bundle.state, bundle.here, bundle.left
    )
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
        let hint = "give --destination, --source or --state, or --all for all bundles";
        return Err(crate::Usage(hint.to_owned()).into());
    }
    let deleted = args.place.connect()?.purge(&query)?.deleted;
    print(&format!("{deleted} bundles deleted"))?;
    Ok(Exit::Done.into())
}
