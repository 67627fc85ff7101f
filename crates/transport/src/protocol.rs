//! Protocols by the names of the command line.

mod rows;

use std::fmt;
use std::str::FromStr;

use proto::ltp::Red;
use proto::programs::Tool;
use proto::saratoga::Put;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::adapter::{self, Adapter, Capability, Spool};
use crate::mib::Class;
use crate::text::{self, SpecError};

/// A protocol with its profile, like `cfdp/gsfc-2007`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol {
    /// The protocol.
    pub kind: Kind,
    /// Settings with a name of their own; `None` for slowlight's defaults.
    pub profile: Option<String>,
}

/// A protocol without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// CFDP class 2.
    Cfdp,
    /// CFDP class 1.
    Cfdp1,
    /// LTP, all of the block red.
    Ltp,
    /// LTP, all of the block green.
    LtpGreen,
    /// LTP, the first kilobyte red and the rest green.
    Ltp1kRed,
    /// LTP-T, all of the block red: over other engines, which pass it on.
    LtpT,
    /// Saratoga, put by its sender.
    Saratoga,
    /// Saratoga, fetched by its receiver.
    SaratogaGet,
    /// Saratoga, put by its sender without anything coming back.
    SaratogaBlind,
    /// NORM, repaired when receivers ask.
    Norm,
    /// NORM with parity that is sent unasked.
    NormFec,
    /// FTP over TCP, put by its sender.
    Ftp,
    /// FTP over TCP, fetched by its receiver.
    FtpGet,
    /// SCPS-FP over TCP, put by its sender.
    ScpsFp,
    /// SCPS-FP over TCP, fetched by its receiver.
    ScpsFpGet,
    /// SCPS-FP over TCP: records of a file, read by its receiver.
    ScpsFpRead,
    /// SCPS-FP over TCP: a file of the receiver, changed by its sender.
    ScpsFpUpdate,
    /// SCPS-FP over TCP: a file of the receiver, copied there as its sender says.
    ScpsFpCopy,
    /// scp of OpenSSH, modelled.
    Scp,
    /// sftp of OpenSSH, modelled.
    Sftp,
    /// rsync over OpenSSH, modelled.
    Rsync,
    /// rsync to its own daemon, modelled.
    RsyncDaemon,
    /// Keys that are typed and come back, over TCP.
    Telnet,
    /// Bundles over TCPCL, version 4.
    BpTcpcl,
    /// Bundles over TCPCL, version 3.
    BpTcpcl3,
    /// Bundles over MTCP.
    BpMtcp,
    /// Bundles over STCP.
    BpStcp,
    /// Bundles over UDP.
    BpUdp,
    /// Bundles over LTP.
    BpLtp,
    /// Bundles over Saratoga.
    BpSaratoga,
    /// Bundles over NORM.
    BpNorm,
    /// CFDP over LTP.
    CfdpLtp,
    /// CFDP in bundles over TCPCL, version 4.
    CfdpBpTcpcl,
    /// CFDP in bundles over TCPCL, version 3.
    CfdpBpTcpcl3,
    /// CFDP in bundles over MTCP.
    CfdpBpMtcp,
    /// CFDP in bundles over STCP.
    CfdpBpStcp,
    /// CFDP in bundles over UDP.
    CfdpBpUdp,
    /// CFDP in bundles over LTP.
    CfdpBpLtp,
    /// CFDP in bundles over Saratoga.
    CfdpBpSaratoga,
    /// CFDP in bundles over NORM.
    CfdpBpNorm,
}

/// Protocols that one engine speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// The CCSDS File Delivery Protocol.
    Cfdp,
    /// The Licklider Transmission Protocol.
    Ltp,
    /// CFDP over LTP.
    CfdpLtp,
    /// Saratoga.
    Saratoga,
    /// NACK-Oriented Reliable Multicast.
    Norm,
    /// The File Transfer Protocol and programs that carry files, over TCP.
    OverTcp,
    /// The Bundle Protocol.
    Bundles,
}

/// Content of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// All of a file.
    File,
    /// Records of it.
    Records,
    /// Changes that make another file of it.
    Changes,
    /// The word that it be copied where it is.
    Copy,
}

impl Kind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The engine that speaks it.
    #[must_use]
    pub fn family(self) -> Family {
        self.row().family
    }

    /// Operations on its settings, and its configuration.
    #[must_use]
    pub fn adapter(self) -> &'static dyn Adapter {
        adapter::of(self.family())
    }

    /// Whether its transport is a CFDP entity, over datagrams or blocks.
    #[must_use]
    pub fn is_entity(self) -> bool {
        matches!(self.family(), Family::Cfdp | Family::CfdpLtp)
    }

    /// Whether it sends to multicast groups, streams, and messages to applications.
    #[must_use]
    pub fn has_groups(self) -> bool {
        self.family() == Family::Norm
    }

    /// Whether peers fetch, list and delete files, announce themselves by beacons, and may use
    /// UDP-Lite.
    #[must_use]
    pub fn has_directories(self) -> bool {
        self.family() == Family::Saratoga
    }

    /// Whether engines have numbers by which peers are known.
    #[must_use]
    pub fn has_peer_numbers(self) -> bool {
        matches!(self.family(), Family::Cfdp | Family::CfdpLtp | Family::Ltp)
    }

    /// Whether blocks pass over other engines, by routes.
    #[must_use]
    pub fn has_relays(self) -> bool {
        self == Self::LtpT
    }

    /// Whether the MIB, and not the name, sets the transmission class.
    #[must_use]
    pub fn leaves_class_to_mib(self) -> bool {
        matches!(self, Self::Cfdp | Self::CfdpLtp)
    }

    /// Whether it runs over sockets, rather than in the simulator only.
    #[must_use]
    pub fn has_sockets(self) -> bool {
        !matches!(self.family(), Family::OverTcp | Family::Bundles)
    }

    /// Prefixes of working files of receptions that cannot resume after a restart, each with the
    /// prefix of the records that keep some of them.
    #[must_use]
    pub fn spool_prefixes(self) -> &'static [(&'static str, &'static str)] {
        match self.family() {
            Family::Cfdp => &[("rx-", "cfdp-")],
            // Of LTP-T, records say what is kept for other engines.
            Family::Ltp => &[("ltp-", ""), ("ltpt-", "")],
            Family::CfdpLtp => &[("rx-", "cfdp-"), ("ltp-", "")],
            Family::Saratoga => &[("sar-", "")],
            Family::Norm => &[("norm-", "")],
            Family::OverTcp | Family::Bundles => &[],
        }
    }

    /// The protocol that its packets are of: that of the layer below bundles, or of the LTP below
    /// CFDP; [`Family::Bundles`] where bundles are over TCP or in datagrams.
    #[must_use]
    pub fn on_the_wire(self) -> Family {
        self.row().wire
    }

    /// The protocol whose bundles carry its PDUs, if it is CFDP in bundles.
    #[must_use]
    pub fn carried(self) -> Option<Self> {
        self.row().below
    }

    /// Its transmission class, in CFDP's words.
    #[must_use]
    pub fn class(self) -> Class {
        // What is below repeats what is lost.
        let is_carried = self.family() == Family::CfdpLtp || self.carried().is_some();
        if self.is_reliable() && !is_carried { Class::Acknowledged } else { Class::Unacknowledged }
    }

    /// Red part of a block, in LTP's words.
    #[must_use]
    pub fn red(self) -> Red {
        self.row().red
    }

    /// Whether TCP carries it.
    #[must_use]
    pub fn runs_over_tcp(self) -> bool {
        self.row().is_over_tcp
    }

    /// Whether it repeats what is lost.
    #[must_use]
    pub fn is_reliable(self) -> bool {
        matches!(self.red(), Red::All)
    }

    /// Kind of put, in Saratoga's words.
    #[must_use]
    pub fn put(self) -> Put {
        if self.is_reliable() { Put::Push } else { Put::Blind }
    }

    /// Whether what is sent once to a group is for all its members. Other protocols send a file to
    /// each receiver by itself.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.row().is_multicast
    }

    /// Whether hosts on the way have it handed on, rather than its packets routed.
    #[must_use]
    pub fn hands_on(self) -> bool {
        self.row().hands_on
    }

    /// The program that it is a model of, or that types.
    #[must_use]
    pub fn program(self) -> Option<Tool> {
        self.row().program
    }

    /// Whether it is SCPS-FP, whichever of its commands.
    #[must_use]
    pub fn is_scps_fp(self) -> bool {
        matches!(
            self,
            Self::ScpsFp
                | Self::ScpsFpGet
                | Self::ScpsFpRead
                | Self::ScpsFpUpdate
                | Self::ScpsFpCopy
        )
    }

    /// Content that it transfers.
    #[must_use]
    pub fn carries(self) -> Carried {
        self.row().carries
    }

    /// Working files in a store.
    #[must_use]
    pub fn spools(self) -> &'static [Spool] {
        adapter::of(self.family()).spools()
    }

    /// Whether a transfer that was interrupted is resumed by the same request.
    #[must_use]
    pub fn resumes(self) -> bool {
        adapter::of(self.family()).resumes(self)
    }

    /// Whether it has a capability.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        adapter::of(self.family()).has(self, capability)
    }

    /// Whether the receiver asks for the file.
    #[must_use]
    pub fn is_fetched(self) -> bool {
        self.row().is_fetched
    }
}

impl Protocol {
    /// A protocol with slowlight's defaults.
    #[must_use]
    pub fn plain(kind: Kind) -> Self {
        Self { kind, profile: None }
    }
}

impl FromStr for Protocol {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, profile) = match text.split_once('/') {
            Some((name, profile)) => (name, Some(profile.to_owned())),
            None => (text, None),
        };
        let Some(kind) = Kind::ALL.iter().copied().find(|kind| kind.name() == name) else {
            let near = text::did_you_mean(name, Kind::ALL.iter().map(|kind| kind.name()));
            let known = Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            return Err(SpecError::invalid(format!(
                "there is no protocol {name:?}{near} (protocols: {known})"
            )));
        };
        let protocol = Self { kind, profile };
        adapter::check_profile(&protocol)?;
        Ok(protocol)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.profile {
            Some(profile) => write!(f, "/{profile}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_agree_with_each_other() {
        for kind in Kind::ALL.iter().copied() {
            let same = Kind::ALL.iter().filter(|other| other.name() == kind.name());
            assert_eq!(same.count(), 1, "{}", kind.name());
            let Some(below) = kind.carried() else { continue };
            assert_eq!(kind.name(), format!("cfdp-{}", below.name()));
            assert_eq!((kind.red(), kind.on_the_wire()), (below.red(), below.on_the_wire()));
            assert_eq!(kind.class(), Class::Unacknowledged);
        }
        let in_bundles = Kind::ALL.iter().filter(|kind| kind.carried().is_some()).count();
        let bundles = Kind::ALL.iter().filter(|kind| kind.family() == Family::Bundles).count();
        assert_eq!(bundles, 2 * in_bundles);
    }

    #[test]
    fn names_and_profiles() {
        let parsed = |text: &str| text.parse::<Protocol>();
        for text in ["cfdp", "cfdp-1", "cfdp/gsfc-2007", "ltp", "ltp-green/ltplib-2011"] {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert!(parsed("cfpd").unwrap_err().to_string().contains("did you mean \"cfdp\"?"));
        assert!(parsed("cfdp/gsfc-1807").unwrap_err().to_string().contains("gsfc-2007"));
    }
}
