//! Visiting the values of a table with their kinds.

use proto::settings::{Field, Kind, Optional, Peers, Setting, Settings, Visited, Visitor};
use toml::{Table, Value};

use super::read::{DEFAULT, REMOTES};

/// Calls `each` with the values of a table that has the keys of `settings`.
pub(super) fn walk(
    table: &mut Table,
    settings: &mut dyn Settings,
    each: &mut dyn FnMut(&Kind, &mut Value),
) {
    // It does not stop.
    let _ = settings.visit(&mut Walker { table, each });
}

struct Walker<'a> {
    table: &'a mut Table,
    each: &'a mut dyn FnMut(&Kind, &mut Value),
}

impl Walker<'_> {
    fn below(&mut self, key: &str, settings: &mut dyn Settings) -> Visited {
        if let Some(Value::Table(table)) = self.table.get_mut(key) {
            walk(table, settings, self.each);
        }
        Ok(())
    }
}

impl Visitor for Walker<'_> {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        if let Some(value) = self.table.get_mut(field.key) {
            (self.each)(&setting.kind(), value);
        }
        Ok(())
    }

    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited {
        self.below(field.key, table)
    }

    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        self.below(field.key, table.on())
    }

    fn absent(&mut self, field: &Field, table: &mut dyn Settings, _: &str) -> Visited {
        self.below(field.key, table)
    }

    fn peers(&mut self, peers: &mut dyn Peers) -> Visited {
        self.below(DEFAULT, peers.default())?;
        if let Some(Value::Table(remotes)) = self.table.get_mut(REMOTES) {
            for remote in remotes.iter_mut().filter_map(|(_, remote)| remote.as_table_mut()) {
                walk(remote, peers.default(), self.each);
            }
        }
        Ok(())
    }
}
