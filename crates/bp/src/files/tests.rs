use engine::{FileName, Rng, Time};

use super::{Config, Files, SendError};
use crate::agent::{self, Agent};
use crate::codec::bp7::{BundleId, CreationTimestamp, Eid};
use crate::node::{Node, Paths};

#[test]
fn undeliverable_files_are_reported() {
    let config = agent::Config { node: Eid::ipn(1, 0), ..agent::Config::default() };
    let agent = Agent::new(config, Rng::new(1, "agent"));
    let mut config = Config { endpoint: Eid::ipn(1, 10), ..Config::default() };
    config.limits.files = 1;
    let mut files =
        Files::new(Node::new(agent, Vec::new(), Paths::default()), config, Rng::new(1, "files"));
    let source = FileName::file("source").expect("a plain name");
    let mut send = |name: &str| files.send(Time::ZERO, source.clone(), name, &Eid::ipn(2, 10));
    assert_eq!(send(&"n".repeat(1025)), Err(SendError::Name));
    let id = send("copy").unwrap();
    assert_eq!(send("another"), Err(SendError::Full));
    // Bundles that were sent and reported exist only here.
    let creation = CreationTimestamp { time_ms: 1, sequence: 0 };
    let bundle = BundleId { source: Eid::ipn(1, 10), creation, offset: None };
    files.bundles.insert(bundle, id);
    files.end(id, Ok(()));
    assert_eq!((files.bundles.len(), files.under_way()), (0, 0), "nothing is kept of a file");
}
