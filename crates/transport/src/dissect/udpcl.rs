//! Bundles in datagrams of UDPCL.

use bp::codec::udpcl::Datagram;

use super::{Described, Dissector, UNKNOWN, single};

/// Reader of bundles in datagrams.
pub const DISSECTOR: Dissector = Dissector {
    title: "bundles in UDP",
    line: None,
    split: single,
    plausible: |_| Ok(()),
    begins: |_| false,
    describe,
};

fn describe(datagram: &[u8]) -> Described {
    match Datagram::decode(datagram) {
        Ok(Datagram::Keepalive) => ("keep-alive".to_owned(), None),
        Ok(Datagram::Bundle(_)) => ("bundle".to_owned(), None),
        Ok(Datagram::Fragment(fragment)) => {
            (format!("part of bundle {}", fragment.bundle), Some(fragment.offset.into()))
        }
        Err(error) => (format!("{UNKNOWN}a bundle: {error}"), None),
    }
}
