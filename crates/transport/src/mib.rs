//! Transmission classes that the management information base of a CFDP entity sets.

use cfdp::pdu::TransmissionMode;

use crate::settings::Values;

/// A transmission class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Class 1.
    Unacknowledged,
    /// Class 2.
    Acknowledged,
}

impl From<Class> for TransmissionMode {
    fn from(class: Class) -> Self {
        match class {
            Class::Unacknowledged => Self::Unacknowledged,
            Class::Acknowledged => Self::Acknowledged,
        }
    }
}

impl Class {
    /// The class towards an entity, as far as a MIB sets it.
    #[must_use]
    pub fn towards(mib: &Values, remote: Option<u64>) -> Option<Self> {
        let remote = remote.map(|remote| remote.to_string());
        let own = remote.and_then(|remote| mib.get(&["remotes", &remote, "class"]));
        match own.or_else(|| mib.get(&["default", "class"]))?.as_integer()? {
            1 => Some(Self::Unacknowledged),
            _ => Some(Self::Acknowledged),
        }
    }
}
