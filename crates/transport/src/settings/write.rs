//! Writing settings as a table.

use session::settings::form::OFF;
use session::settings::{Field, Optional, Peers, Setting, Settings, Visited, Visitor};
use toml::{Table, Value};

use super::read::{DEFAULT, REMOTES};
use super::value;

/// All settings but keys.
pub(super) fn write(settings: &mut dyn Settings) -> Table {
    let mut writer = Writer(Table::new());
    // The visitor does not stop early.
    let _ = settings.visit(&mut writer);
    writer.0
}

struct Writer(Table);

impl Writer {
    fn insert(&mut self, key: &str, value: impl Into<Value>) -> Visited {
        self.0.insert(key.to_owned(), value.into());
        Ok(())
    }
}

impl Visitor for Writer {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        let value = setting.get().as_ref().and_then(value::write);
        value.map_or(Ok(()), |value| self.insert(field.key, value))
    }

    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited {
        self.insert(field.key, write(table))
    }

    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        if table.is_on() {
            self.insert(field.key, write(table.on()))
        } else {
            self.insert(field.key, OFF)
        }
    }

    fn absent(&mut self, _: &Field, _: &mut dyn Settings, _: &str) -> Visited {
        Ok(())
    }

    fn peers(&mut self, peers: &mut dyn Peers) -> Visited {
        self.insert(DEFAULT, write(peers.default()))?;
        let mut remotes = Table::new();
        peers.each(&mut |name, remote| {
            if let Some(name) = name {
                remotes.insert(name, write(remote).into());
            }
            Ok(())
        })?;
        if remotes.is_empty() { Ok(()) } else { self.insert(REMOTES, remotes) }
    }
}
