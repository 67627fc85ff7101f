//! The fuzz targets as plain functions: each takes any bytes and panics if a promise is broken.
//!
//! The fuzzer calls them through the programs in `fuzz_targets/`; `tests/replay.rs` calls them
//! with every input of `corpora/`, on any toolchain.

mod agent;
mod bundles;
mod entity;
mod formats;
mod frame;
mod ftp;
mod ltp;
mod ltpt;
mod nodes;
mod norm;
mod ppp;
mod saratoga;
mod script;
mod specs;
mod tcp;
mod texts;
mod tree;

pub use agent::bp_agent;
pub use bundles::{
    bp6_bundle, bp7_bundle, bpsec_block, file_part, file_record, ipnd_beacon, mtcp, tcpcl, udpcl,
};
pub use entity::{cfdp_entity, cfdp_journal};
pub use formats::{
    capture, cfdp_pdu, cfdp_user_operation, icmp_too_big, ip_udp, ltp_segment, norm_message,
    saratoga_v0, saratoga_v1,
};
pub use frame::frame;
pub use ftp::ftp;
pub use ltp::ltp_node;
pub use ltpt::ltpt_relay;
pub use norm::{norm_coded, norm_journal, norm_node};
pub use ppp::{ppp_frames, vj};
pub use saratoga::saratoga_node;
pub use specs::{link_preset, mib, scenario};
pub use tcp::{scps_header, tcp_segment, tcp_stack};
pub use texts::{contact_plan, file_name, quantity};
pub use tree::unpack;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by the name of their program and corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("bp6_bundle", bp6_bundle),
    ("bp7_bundle", bp7_bundle),
    ("bp_agent", bp_agent),
    ("bpsec_block", bpsec_block),
    ("capture", capture),
    ("cfdp_entity", cfdp_entity),
    ("cfdp_journal", cfdp_journal),
    ("cfdp_pdu", cfdp_pdu),
    ("cfdp_user_operation", cfdp_user_operation),
    ("contact_plan", contact_plan),
    ("file_name", file_name),
    ("file_part", file_part),
    ("file_record", file_record),
    ("frame", frame),
    ("ftp", ftp),
    ("icmp_too_big", icmp_too_big),
    ("ip_udp", ip_udp),
    ("ipnd_beacon", ipnd_beacon),
    ("link_preset", link_preset),
    ("ltp_node", ltp_node),
    ("ltp_segment", ltp_segment),
    ("ltpt_relay", ltpt_relay),
    ("mib", mib),
    ("mtcp", mtcp),
    ("norm_coded", norm_coded),
    ("norm_journal", norm_journal),
    ("norm_message", norm_message),
    ("norm_node", norm_node),
    ("ppp_frames", ppp_frames),
    ("quantity", quantity),
    ("saratoga_node", saratoga_node),
    ("saratoga_v0", saratoga_v0),
    ("saratoga_v1", saratoga_v1),
    ("scenario", scenario),
    ("scps_header", scps_header),
    ("tcp_segment", tcp_segment),
    ("tcp_stack", tcp_stack),
    ("tcpcl", tcpcl),
    ("udpcl", udpcl),
    ("unpack", unpack),
    ("vj", vj),
];
