//! Settings of an entity and of what carries its PDUs.

use session::settings::form::{Number, visit_if};
use session::settings::{Field, Settings, Visited, Visitor, Wrong};
use session::visit;

use super::{Carrier, CfdpConfig};

impl Settings for CfdpConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Carrier::Ltp { ut, below } = &mut self.carrier else {
            return self.entity.visit(visitor);
        };
        let mut ut = Ut { config: ut, service: None };
        visit! { visitor;
            /// PDUs below the entity.
            "ut": ut as Table,
            /// The entity.
            "cfdp": self.entity as Table,
        }
        below.visit(visitor)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        match self.carrier {
            Carrier::Datagrams => self.entity.check(),
            // Each table checks itself.
            Carrier::Ltp { .. } => Ok(()),
        }
    }
}

/// PDUs below an entity and, if bundles carry them, the service of each node that receives them.
pub(crate) struct Ut<'a> {
    pub(crate) config: &'a mut ut::Config,
    pub(crate) service: Option<&'a mut u64>,
}

impl Settings for Ut<'_> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        self.config.visit(visitor)?;
        let doc = &[" Service of each node that receives PDUs, if bundles carry them."];
        let field = Field { key: "service", doc, bound: None };
        let why = " is of bundles; CFDP is LTP's client service 3";
        visit_if::<Number, _>(&field, self.service.as_deref_mut(), why, visitor)
    }
}
