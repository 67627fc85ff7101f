//! Application of a table of settings.

use session::settings::form::OFF;
use session::settings::{Field, Optional, Peers, Setting, Settings, Stop, Visited, Visitor, Wrong};
use toml::{Table, Value};

use super::read::{DEFAULT, REMOTES, below};
use super::value;

/// Applies a table from [`read`](super::read::read) to `settings`; `path` is the table's own path.
///
/// # Errors
///
/// Path of the refused key, with the reason.
pub(super) fn apply(table: &Table, settings: &mut dyn Settings, path: &str) -> Result<(), String> {
    let mut applier = Applier { table, path, error: None };
    let visited = settings.visit(&mut applier);
    match (visited, applier.error) {
        (Err(Stop), Some(error)) => return Err(error),
        (Err(Stop), None) | (Ok(()), _) => {}
    }
    settings.check().map_err(|wrong| below(path, &filled(&wrong, path)))
}

/// The message about several settings of the table at `path`.
fn filled(wrong: &Wrong, path: &str) -> String {
    let table = if path.is_empty() { String::new() } else { format!("{path}.") };
    let mut text = wrong.text.replace("{table}", &table);
    for value in wrong.values.iter().filter_map(value::write) {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text = text.replacen("{}", &shown, 1);
    }
    text
}

struct Applier<'a> {
    table: &'a Table,
    path: &'a str,
    error: Option<String>,
}

impl Applier<'_> {
    fn finish(&mut self, applied: Result<(), String>) -> Visited {
        applied.map_err(|error| {
            self.error = Some(error);
            Stop
        })
    }

    fn table_at(&mut self, key: &str, settings: &mut dyn Settings) -> Visited {
        let Some(given) = self.table.get(key) else { return Ok(()) };
        let path = below(self.path, key);
        let applied = match given {
            Value::Table(table) => apply(table, settings, &path),
            _ => Err(format!("{path} is a table")),
        };
        self.finish(applied)
    }
}

impl Visitor for Applier<'_> {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        let Some(given) = self.table.get(field.key) else { return Ok(()) };
        let path = below(self.path, field.key);
        let kind = setting.kind();
        let applied = value::read(&kind, given)
            .map_err(|error| if error.starts_with('.') { error } else { format!(": {error}") })
            .and_then(|value| {
                field.bound.map_or(Ok(()), |bound| value::check(bound, &value))?;
                setting.set(value)
            });
        self.finish(applied.map_err(|rest| format!("{path}{rest}")))
    }

    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited {
        self.table_at(field.key, table)
    }

    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        match self.table.get(field.key) {
            None => Ok(()),
            Some(Value::String(word)) if word == OFF => {
                table.off();
                Ok(())
            }
            Some(_) => self.table_at(field.key, table.on()),
        }
    }

    fn absent(&mut self, field: &Field, _: &mut dyn Settings, why: &str) -> Visited {
        let path = below(self.path, field.key);
        let given = self.table.contains_key(field.key);
        self.finish(if given { Err(format!("{path}{why}")) } else { Ok(()) })
    }

    fn peers(&mut self, peers: &mut dyn Peers) -> Visited {
        self.table_at(DEFAULT, peers.default())?;
        if self.table.contains_key(DEFAULT) {
            peers.each(&mut |_, remote| self.table_at(DEFAULT, remote))?;
        }
        let Some(Value::Table(remotes)) = self.table.get(REMOTES) else { return Ok(()) };
        let path = below(self.path, REMOTES);
        for name in remotes.keys() {
            let mut of_one = Applier { table: remotes, path: &path, error: None };
            let visited = match peers.entry(name) {
                Ok(remote) => of_one.table_at(name, remote),
                Err(why) => of_one.finish(Err(format!("{path}.{name}: {why}"))),
            };
            if let Err(stop) = visited {
                self.error = of_one.error;
                return Err(stop);
            }
        }
        Ok(())
    }
}
