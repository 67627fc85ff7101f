//! Nodes that announced themselves: they are strangers to which this node connects.

use std::time::Duration;

use super::admission::{FAR, HEADER, Host, NEAR, guarded, init};
use super::*;
use crate::admission::Strangers;
use crate::layer::{Configured, Remote};

const FOUND: LinkId = LinkId(70);

/// A node that has found node 3 and connects to it.
fn host(strangers: Strangers, sessions: usize) -> Host {
    let mut config = guarded(strangers);
    config.limits.sessions = sessions;
    let admission = config.admission.clone();
    let mut host = Host::new(config);
    let remote = Remote { node: Eid::ipn(3, 0), server_name: String::new(), engine: 0 };
    let (links, discovered) = ([(FOUND, remote)].into(), [FOUND].into());
    host.layer.configure(host.now, Configured { links, discovered, admission });
    host.layer.command(host.now, Command::Open { link: FOUND });
    host.drain();
    host
}

#[test]
fn an_announced_name_does_not_count() {
    let mut host = host(Strangers::Receive, 100);
    assert!(host.connect(FOUND.0, FAR));
    host.receive(FOUND.0, &[HEADER, &init("ipn:3.0")].concat());
    // It gets bundles, but the layer vouches for no name.
    assert_eq!(host.ups(), [(FOUND, None, 64)]);
    assert_eq!(host.faults(), [""; 0]);
}

#[test]
fn the_session_must_have_the_announced_name() {
    for named in ["ipn:2.0", "ipn:4.0", ""] {
        let mut host = host(Strangers::Receive, 100);
        assert!(host.connect(FOUND.0, FAR));
        host.receive(FOUND.0, &[HEADER, &init(named)].concat());
        assert_eq!(host.ups(), [], "{named}");
        assert_eq!(host.faults(), ["another node than announced there"], "{named}");
    }
}

#[test]
fn rights_are_those_of_strangers() {
    let mut both = host(Strangers::Both, 100);
    assert!(both.connect(FOUND.0, FAR));
    both.receive(FOUND.0, &[HEADER, &init("ipn:3.0")].concat());
    assert_eq!(both.ups(), [(FOUND, Some(Eid::ipn(3, 0)), 64)]);
    let mut none = host(Strangers::Refuse, 100);
    assert!(none.connect(FOUND.0, FAR));
    none.receive(FOUND.0, &[HEADER, &init("ipn:3.0")].concat());
    assert_eq!(none.ups(), []);
    assert_eq!(none.faults(), ["a stranger, which is refused here"]);
}

#[test]
fn places_of_neighbours_stay_free() {
    let mut host = host(Strangers::Receive, 2);
    host.session(10, FAR, "ipn:8.0");
    assert!(!host.connect(FOUND.0, FAR), "the last place is kept");
    let opened = host.opened;
    host.pass(Duration::from_secs(5));
    assert_eq!(host.opened, opened + 1, "it is retried");
    host.session(11, NEAR, "ipn:2.0");
}
