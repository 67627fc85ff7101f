//! Groups of nodes, and transfers to several nodes.
//!
//! In `links` and `nodes`, a group's name denotes each of its members; as the receiver of a
//! transfer, all of them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transport::text::SpecError;

/// A group of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// Members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Number of members named `fleet-1` and on after the group, in place of `members`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Multicast address; default: 239.0.0.1 and on, in order of the names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// UDP port of the group; default: 2500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// Maximum members of a group: the paths between them grow with the square of their number.
pub const MEMBERS_MAX: u32 = 1_000;

/// Default UDP port of groups.
pub(crate) const PORT: u16 = 2500;

impl Group {
    /// Returns the names of `count` members of a group, of equal length, so that they sort in
    /// order.
    ///
    /// # Errors
    ///
    /// The number is 0 or too large.
    pub fn made_up(name: &str, count: u32) -> Result<Self, SpecError> {
        if !(1..=MEMBERS_MAX).contains(&count) {
            return Err(SpecError::invalid(format!(
                "{name}: {count} members; a group has 1 to {MEMBERS_MAX}"
            )));
        }
        let width = count.to_string().len();
        let members = (1..=count).map(|number| format!("{name}-{number:0width$}")).collect();
        Ok(Self { members, ..Self::default() })
    }

    pub(crate) fn resolved(self, name: &str) -> Result<Self, SpecError> {
        let key = format!("groups.{name}");
        if self.members.is_empty() {
            let Some(count) = self.count else {
                return Err(SpecError::invalid(format!(
                    "{key}: name its `members`, or their `count`"
                )));
            };
            let members = Self::made_up(name, count)?.members;
            return Self { members, count: None, ..self }.resolved(name);
        }
        if self.count.is_some() {
            return Err(SpecError::invalid(format!("{key}: give `members` or `count`, not both")));
        }
        if self.members.len() > MEMBERS_MAX as usize {
            return Err(SpecError::invalid(format!(
                "{key}: {} members; a group has 1 to {MEMBERS_MAX}",
                self.members.len()
            )));
        }
        if let Some(twice) = twice(&self.members) {
            return Err(SpecError::invalid(format!("{key}.members: {twice} is named twice")));
        }
        if let Some(address) = self.address.filter(|address| !address.is_multicast()) {
            return Err(SpecError::invalid(format!(
                "{key}.address: invalid multicast address {address}: expected 224.0.0.0 to 239.255.255.255"
            )));
        }
        Ok(self)
    }
}

pub(crate) fn twice(names: &[String]) -> Option<&String> {
    let mut unique = BTreeSet::new();
    names.iter().find(|name| !unique.insert(*name))
}

/// Receivers of a transfer: a node, a group, or several of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receivers(pub Vec<String>);

impl Receivers {
    /// Returns their names; in a resolved scenario, of nodes only.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl From<&str> for Receivers {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl From<Vec<String>> for Receivers {
    fn from(names: Vec<String>) -> Self {
        Self(names)
    }
}

impl fmt::Display for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl Serialize for Receivers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => serializer.serialize_str(one),
            several => serializer.collect_seq(several),
        }
    }
}

impl<'de> Deserialize<'de> for Receivers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Receivers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a node or group, or a list of such names")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Receivers, E> {
                Ok(name.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Receivers, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(Receivers(names))
            }
        }

        deserializer.deserialize_any(Names)
    }
}
