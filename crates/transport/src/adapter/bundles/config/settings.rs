//! Settings of a bundle node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bp::contacts::ContactPlan;
use session::settings::form::{Leaf, visit_part};
use session::settings::{Base, Kind, Settings, Value, Visited, Visitor, Wrong};
use session::visit;

use super::{BundlesConfig, CfdpUser, epoch};
use crate::adapter::cfdp::Ut;
use crate::adapter::saratoga::Remotes;
use crate::contact_plan::{self, Format};
use crate::text::{self, SpecError};

impl Settings for BundlesConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        self.files.visit(visitor)?;
        visit! { visitor;
            /// Whether bundles survive the end of the process: nothing is acknowledged before it is
            /// synced.
            "persistent": self.agent.persistent as Flag,
        }
        self.agent.visit(visitor)?;
        let saratoga = &mut self.saratogacl.engine;
        let mut saratoga = OverSaratoga { config: saratoga, remotes: &mut self.remotes };
        visit! { visitor;
            /// Saratoga below bundles.
            "saratoga": saratoga as Table,
        }
        visit! { visitor;
            /// Next hops of other nodes, by the nodes' numbers.
            "routes": self.routes as Neighbours,
            /// Contact plan of the routes: a file in TOML, JSON or ION's format.
            "contact_plan": self.plan as PlanFile,
            /// Choice of routes through the contact plan.
            "routing": self.routing as Table,
            /// Silence after which a link is closed, or `off`.
            "idle": self.idle as Off<Span> [Interval],
            /// TCPCL.
            "tcpcl": self.tcpcl as Table,
            /// TCP below it.
            "tcp": self.streams.options as Table,
            /// LTPCL.
            "ltpcl": self.ltpcl as Table,
            /// LTP below it.
            "ltp": self.ltpcl.ltp as Table,
            /// Layer over Saratoga.
            "saratogacl": self.saratogacl as Table,
            /// Layer over NORM.
            "normcl": self.normcl as Table,
            /// NORM below it.
            "norm": self.normcl.engine as Table,
        }
        let why = " is of protocols cfdp-bp-…, which put CFDP into bundles";
        visit_part(&mut self.cfdp, why, visitor)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.files.check()
    }
}

impl Settings for CfdpUser {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let mut ut = Ut { config: &mut self.ut, service: Some(&mut self.service) };
        visit! { visitor;
            /// PDUs below the entity.
            "ut": ut as Table,
            /// The entity.
            "cfdp": self.cfdp as Table,
        }
        Ok(())
    }
}

/// Saratoga below bundles, which only version 1 carries.
struct OverSaratoga<'a> {
    config: &'a mut saratoga::Config,
    remotes: &'a mut Remotes,
}

impl Settings for OverSaratoga<'_> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let Self { config, remotes } = self;
        saratoga::Named { config, remotes }.visit(visitor)
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.config.check()?;
        check_saratoga(self.config).map_err(|error| error.to_string().into())
    }
}

/// Checks that a Saratoga peer can carry bundles.
///
/// # Errors
///
/// The peer has version 0.
pub fn check_saratoga(config: &saratoga::Config) -> Result<(), SpecError> {
    match config.version {
        saratoga::Version::V0 => {
            let wrong = "version is 0, which knows no bundles; write version = 1";
            Err(SpecError::invalid(wrong))
        }
        saratoga::Version::V1 => Ok(()),
    }
}

/// Form of neighbours by the numbers of the nodes behind them. New entries are added to the
/// existing ones.
struct Neighbours;

impl Leaf<BTreeMap<u64, u64>> for Neighbours {
    fn kind() -> Kind {
        Base::Numbers("a node is called by its number").into()
    }

    fn get(routes: &BTreeMap<u64, u64>) -> Option<Value> {
        (!routes.is_empty()).then(|| Value::Numbers(routes.clone()))
    }

    fn set(routes: &mut BTreeMap<u64, u64>, value: Value) -> Result<(), String> {
        let Value::Numbers(numbers) = value else { return Err(" is a table".to_owned()) };
        routes.extend(numbers);
        Ok(())
    }
}

/// Form of a contact plan by its file.
struct PlanFile;

impl Leaf<Option<(PathBuf, ContactPlan)>> for PlanFile {
    fn kind() -> Kind {
        Base::File.into()
    }

    fn get(plan: &Option<(PathBuf, ContactPlan)>) -> Option<Value> {
        plan.as_ref().map(|(path, _)| Value::Text(path.to_string_lossy().into_owned()))
    }

    fn set(plan: &mut Option<(PathBuf, ContactPlan)>, value: Value) -> Result<(), String> {
        let Value::Text(path) = value else { return Err(" is a file".to_owned()) };
        let format = Format::of_name(&path).ok_or_else(|| {
            let path = wire::excerpt(&path);
            format!(" {path:?}: the name of a contact plan ends in .toml, .json or .ionrc")
        })?;
        let path = PathBuf::from(path);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let read = last.read(format, &path).map_err(|error| format!(": {error}"))?;
        *plan = Some((path, read));
        Ok(())
    }
}

/// The plan that was read last. All nodes of a world share it.
static LAST: Mutex<LastPlan> = Mutex::new(LastPlan(None));

/// A plan with its file and text, if one was read.
struct LastPlan(Option<(PathBuf, String, ContactPlan)>);

impl LastPlan {
    /// Reads a plan, unless it is this one.
    fn read(&mut self, format: Format, path: &Path) -> Result<ContactPlan, SpecError> {
        let text = text::read_text(path)?;
        let known = self.0.as_ref().filter(|(file, of, _)| file == path && *of == text);
        if let Some((_, _, plan)) = known {
            return Ok(plan.clone());
        }
        let base = contact_plan::Base::from_epoch(epoch());
        let plan = contact_plan::read(format, &text, &path.to_string_lossy(), base)?.plan;
        self.0 = Some((path.to_owned(), text, plan.clone()));
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_a_plan_until_its_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.ionrc");
        let mut last = LastPlan(None);
        let mut read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            last.read(Format::Ion, &path).unwrap()
        };
        let first = read("a contact +0 +600 1 2 16000\n");
        let same = read("a contact +0 +600 1 2 16000\n");
        assert!(std::ptr::eq(first.contacts(), same.contacts()));
        let other = read("a contact +0 +600 1 2 32000\n");
        assert_eq!(
            (first.contacts()[0].rate_bps, other.contacts()[0].rate_bps),
            (128_000, 256_000)
        );
    }
}
