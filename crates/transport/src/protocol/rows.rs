//! The table of protocols: one row each.

use proto::ltp::Red;
use proto::programs::Tool;

use super::{Carried, Family, Kind};

/// Facts of one protocol.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) family: Family,
    /// Protocol of its packets.
    pub(super) wire: Family,
    /// Part of a file that is repeated until it arrives.
    pub(super) red: Red,
    pub(super) carries: Carried,
    /// Bundles that carry its PDUs.
    pub(super) below: Option<Kind>,
    pub(super) is_over_tcp: bool,
    pub(super) is_multicast: bool,
    /// Hosts on the way have it handed on, rather than its packets routed.
    pub(super) hands_on: bool,
    /// The receiver asks for the file.
    pub(super) is_fetched: bool,
    /// Program that it is a model of, or that types.
    pub(super) program: Option<Tool>,
}

/// A protocol in datagrams of its own, from host to host, that repeats all that is lost.
const fn of(family: Family, kind: Kind, name: &'static str) -> Row {
    Row {
        kind,
        name,
        family,
        wire: family,
        red: Red::All,
        carries: Carried::File,
        below: None,
        is_over_tcp: false,
        is_multicast: false,
        hands_on: false,
        is_fetched: false,
        program: None,
    }
}

const fn over_tcp(kind: Kind, name: &'static str) -> Row {
    Row { is_over_tcp: true, ..of(Family::OverTcp, kind, name) }
}

const fn program(kind: Kind, name: &'static str, tool: Tool) -> Row {
    Row { program: Some(tool), ..over_tcp(kind, name) }
}

const fn bundles(kind: Kind, name: &'static str) -> Row {
    Row { hands_on: true, ..of(Family::Bundles, kind, name) }
}

const fn bundles_over_tcp(kind: Kind, name: &'static str) -> Row {
    Row { is_over_tcp: true, ..bundles(kind, name) }
}

/// CFDP in the bundles of another row.
const fn cfdp_in(below: &Row, kind: Kind, name: &'static str) -> Row {
    Row { kind, name, below: Some(below.kind), ..*below }
}

const BP_TCPCL: Row = bundles_over_tcp(Kind::BpTcpcl, "bp-tcpcl");
const BP_TCPCL3: Row = bundles_over_tcp(Kind::BpTcpcl3, "bp-tcpcl3");
const BP_MTCP: Row = bundles_over_tcp(Kind::BpMtcp, "bp-mtcp");
const BP_STCP: Row = bundles_over_tcp(Kind::BpStcp, "bp-stcp");
const BP_UDP: Row = Row { red: Red::None, ..bundles(Kind::BpUdp, "bp-udp") };
const BP_LTP: Row = Row { wire: Family::Ltp, ..bundles(Kind::BpLtp, "bp-ltp") };
const BP_SARATOGA: Row = Row { wire: Family::Saratoga, ..bundles(Kind::BpSaratoga, "bp-saratoga") };
const BP_NORM: Row = Row { wire: Family::Norm, ..bundles(Kind::BpNorm, "bp-norm") };

/// Every protocol, in the order of [`Kind`].
pub(super) const ROWS: &[Row] = &[
    Row { hands_on: true, ..of(Family::Cfdp, Kind::Cfdp, "cfdp") },
    Row { hands_on: true, red: Red::None, ..of(Family::Cfdp, Kind::Cfdp1, "cfdp-1") },
    of(Family::Ltp, Kind::Ltp, "ltp"),
    Row { red: Red::None, ..of(Family::Ltp, Kind::LtpGreen, "ltp-green") },
    Row { red: Red::Prefix(1000), ..of(Family::Ltp, Kind::Ltp1kRed, "ltp-1k-red") },
    Row { hands_on: true, ..of(Family::Ltp, Kind::LtpT, "ltp-t") },
    of(Family::Saratoga, Kind::Saratoga, "saratoga"),
    Row { is_fetched: true, ..of(Family::Saratoga, Kind::SaratogaGet, "saratoga-get") },
    Row {
        red: Red::None,
        is_multicast: true,
        ..of(Family::Saratoga, Kind::SaratogaBlind, "saratoga-blind")
    },
    Row { is_multicast: true, ..of(Family::Norm, Kind::Norm, "norm") },
    Row { is_multicast: true, ..of(Family::Norm, Kind::NormFec, "norm-fec") },
    over_tcp(Kind::Ftp, "ftp"),
    Row { is_fetched: true, ..over_tcp(Kind::FtpGet, "ftp-get") },
    over_tcp(Kind::ScpsFp, "scps-fp"),
    Row { is_fetched: true, ..over_tcp(Kind::ScpsFpGet, "scps-fp-get") },
    Row {
        is_fetched: true,
        carries: Carried::Records,
        ..over_tcp(Kind::ScpsFpRead, "scps-fp-read")
    },
    Row { carries: Carried::Changes, ..over_tcp(Kind::ScpsFpUpdate, "scps-fp-update") },
    Row { carries: Carried::Copy, ..over_tcp(Kind::ScpsFpCopy, "scps-fp-copy") },
    program(Kind::Scp, "scp", Tool::Scp),
    program(Kind::Sftp, "sftp", Tool::Sftp),
    program(Kind::Rsync, "rsync", Tool::Rsync),
    program(Kind::RsyncDaemon, "rsync-daemon", Tool::RsyncDaemon),
    program(Kind::Telnet, "telnet", Tool::Telnet),
    BP_TCPCL,
    BP_TCPCL3,
    BP_MTCP,
    BP_STCP,
    BP_UDP,
    BP_LTP,
    BP_SARATOGA,
    BP_NORM,
    Row { wire: Family::Ltp, ..of(Family::CfdpLtp, Kind::CfdpLtp, "cfdp-ltp") },
    cfdp_in(&BP_TCPCL, Kind::CfdpBpTcpcl, "cfdp-bp-tcpcl"),
    cfdp_in(&BP_TCPCL3, Kind::CfdpBpTcpcl3, "cfdp-bp-tcpcl3"),
    cfdp_in(&BP_MTCP, Kind::CfdpBpMtcp, "cfdp-bp-mtcp"),
    cfdp_in(&BP_STCP, Kind::CfdpBpStcp, "cfdp-bp-stcp"),
    cfdp_in(&BP_UDP, Kind::CfdpBpUdp, "cfdp-bp-udp"),
    cfdp_in(&BP_LTP, Kind::CfdpBpLtp, "cfdp-bp-ltp"),
    cfdp_in(&BP_SARATOGA, Kind::CfdpBpSaratoga, "cfdp-bp-saratoga"),
    cfdp_in(&BP_NORM, Kind::CfdpBpNorm, "cfdp-bp-norm"),
];

const ALL: [Kind; ROWS.len()] = {
    let mut all = [Kind::Cfdp; ROWS.len()];
    let mut place = 0;
    while place < ROWS.len() {
        all[place] = ROWS[place].kind;
        // [`Kind::row`] finds a row by its place.
        assert!(ROWS[place].kind as usize == place, "the rows have the order of the kinds");
        place += 1;
    }
    all
};

impl Kind {
    /// Every protocol there is.
    pub const ALL: &[Self] = &ALL;

    pub(super) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}
