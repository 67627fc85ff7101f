//! Axes of a sheet: keys of the scenario, and their values.

use serde::{Deserialize, Serialize};
use toml::Value as Toml;
use transport::quantity::{Probability, Rate, Size, Span};
use transport::text::{self, SpecError};

use super::is_name;

/// A parameter that varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Name, also of its column.
    pub name: String,
    /// Keys of the scenario that get its values; none if each value names its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Values, in the order of tables and figures.
    pub values: Vec<Value>,
}

/// One value of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A name, and the keys that differ with it.
    Named(Named),
    /// Value of the axis's keys.
    Plain(Toml),
}

/// A named value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Name in tables and figures.
    pub label: String,
    /// Value of the axis's keys, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Toml>,
    /// Further keys and their values.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    /// Keys to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

impl Value {
    /// Returns its label.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Named(named) => named.label.clone(),
            Self::Plain(Toml::String(text)) => text.clone(),
            Self::Plain(value) => value.to_string(),
        }
    }

    /// Writes it into a scenario.
    pub(super) fn apply(&self, axis: &Axis, world: &mut toml::Table) -> Result<(), SpecError> {
        let (value, named) = match self {
            Self::Named(named) => (named.value.as_ref(), Some(named)),
            Self::Plain(value) => (Some(value), None),
        };
        if let Some(value) = value {
            axis.keys.iter().try_for_each(|key| set(world, key, value))?;
        }
        let Some(named) = named else { return Ok(()) };
        named.unset.iter().try_for_each(|key| unset(world, key))?;
        set_all(world, &named.set)
    }
}

/// Unit of an axis's labels as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bits per second.
    BitsPerSecond,
    /// Bytes.
    Bytes,
    /// Dimensionless.
    Number,
}

impl Unit {
    /// Returns the suffix of the numeric column's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Seconds => "_s",
            Self::BitsPerSecond => "_bps",
            Self::Bytes => "_bytes",
            Self::Number => "_value",
        }
    }

    fn read(self, label: &str) -> Option<f64> {
        match self {
            Self::Seconds => label.parse().ok().map(|span: Span| span.duration().as_secs_f64()),
            Self::BitsPerSecond => label.parse().ok().map(|rate: Rate| rate.bps() as f64),
            Self::Bytes => label.parse().ok().map(|size: Size| size.bytes() as f64),
            Self::Number => label
                .parse()
                .ok()
                .map(|share: Probability| share.value())
                .or_else(|| label.parse().ok().filter(|number: &f64| number.is_finite())),
        }
    }
}

/// The labels of an axis as numbers of one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The unit.
    pub unit: Unit,
    /// The numbers, in the order of the labels.
    pub values: Vec<f64>,
}

impl Axis {
    /// Returns its labels as numbers, if all are quantities of one unit.
    #[must_use]
    pub fn numbers(&self) -> Option<Number> {
        let units = [Unit::Number, Unit::Seconds, Unit::BitsPerSecond, Unit::Bytes];
        units.into_iter().find_map(|unit| {
            let read = |value: &Value| unit.read(&value.label());
            let values = self.values.iter().map(read).collect::<Option<Vec<_>>>()?;
            Some(Number { unit, values })
        })
    }

    /// Returns the index of the value with this label.
    ///
    /// # Errors
    ///
    /// Names the existing labels.
    pub fn value(&self, label: &str) -> Result<usize, SpecError> {
        let labels: Vec<_> = self.values.iter().map(Value::label).collect();
        labels.iter().position(|known| known == label).ok_or_else(|| {
            let near = text::did_you_mean(label, labels.iter().map(String::as_str));
            let known = labels.join(", ");
            SpecError::invalid(format!("{}: no value {label:?}{near} (values: {known})", self.name))
        })
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let Self { name, keys, values } = self;
        let invalid = |message: String| Err(SpecError::invalid(format!("axes.{name}: {message}")));
        if !is_name(name) {
            return invalid("a name has letters, digits, `-` and `_`".to_owned());
        }
        if values.is_empty() {
            return invalid("an axis needs at least one value".to_owned());
        }
        let mut labels: Vec<_> = values.iter().map(Value::label).collect();
        labels.sort();
        if let Some(twice) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
            return invalid(format!("two values are called {:?}", twice[0]));
        }
        let is_bare = |value: &&Value| match value {
            Value::Plain(_) => true,
            Value::Named(named) => named.value.is_some(),
        };
        match values.iter().find(is_bare) {
            Some(bare) if keys.is_empty() => invalid(format!(
                "{:?} has no key; name it with `keys`, or write {{ label, set }}",
                bare.label()
            )),
            _ => Ok(()),
        }
    }
}

/// Returns a scenario's text with keys set, after others were removed if they exist.
///
/// # Errors
///
/// The text is not TOML, or a key does not exist.
pub fn changed(
    scenario: &str,
    origin: &str,
    set: &toml::Table,
    unset: &[String],
) -> Result<String, SpecError> {
    let mut world: toml::Table = text::parse(scenario, origin)?;
    unset.iter().try_for_each(|key| self::unset(&mut world, key))?;
    set_all(&mut world, set)?;
    toml_of(&world)
}

/// A scenario's tables as TOML.
pub(super) fn toml_of(world: &toml::Table) -> Result<String, SpecError> {
    toml::to_string(world).map_err(|error| SpecError::invalid(error.to_string()))
}

/// Sets keys of a scenario.
pub(super) fn set_all<'a>(
    world: &mut toml::Table,
    changes: impl IntoIterator<Item = (&'a String, &'a Toml)>,
) -> Result<(), SpecError> {
    changes.into_iter().try_for_each(|(key, value)| set(world, key, value))
}

/// Sets the value of a key like `links.0.delay`, `links.*.per` or `links.lander>orbiter.queue`.
fn set(world: &mut toml::Table, key: &str, value: &Toml) -> Result<(), SpecError> {
    change(world, key, &|table, last| {
        table.insert(last.to_owned(), value.clone());
    })
}

/// Removes such a key, if it exists.
fn unset(world: &mut toml::Table, key: &str) -> Result<(), SpecError> {
    change(world, key, &|table, last| {
        table.remove(last);
    })
}

/// Changes the tables at all but the last part of a key.
fn change(
    world: &mut toml::Table,
    key: &str,
    change: &dyn Fn(&mut toml::Table, &str),
) -> Result<(), SpecError> {
    let invalid = |message: String| SpecError::invalid(format!("{key}: {message}"));
    let Some((before, last)) = key.rsplit_once('.') else {
        change(world, key);
        return Ok(());
    };
    let mut parts = before.split('.');
    let first = parts.next().unwrap_or_default();
    let start = world.entry(first).or_insert_with(|| Toml::Table(toml::Table::new()));
    let mut places = vec![start];
    for part in parts {
        let mut inner = Vec::new();
        for place in places {
            inner.extend(step(place, part).map_err(invalid)?);
        }
        places = inner;
    }
    for place in places {
        let Toml::Table(table) = place else {
            return Err(invalid(format!("there is nothing called {last} there")));
        };
        change(table, last);
    }
    Ok(())
}

/// Tables at a part of a key: one, or several.
fn step<'a>(place: &'a mut Toml, part: &str) -> Result<Vec<&'a mut Toml>, String> {
    match place {
        Toml::Table(table) => {
            Ok(vec![table.entry(part).or_insert_with(|| Toml::Table(toml::Table::new()))])
        }
        Toml::Array(elements) => {
            let count = elements.len();
            let chosen: Vec<_> = elements
                .iter_mut()
                .enumerate()
                .filter(|(index, element)| leads_to(part, *index, element))
                .map(|(_, element)| element)
                .collect();
            if chosen.is_empty() {
                Err(format!(
                    "there is no {part}; take `*`, a number below {count}, or `from>to` of a link"
                ))
            } else {
                Ok(chosen)
            }
        }
        _ => Err(format!("there is nothing below {part}")),
    }
}

fn leads_to(part: &str, index: usize, element: &Toml) -> bool {
    let text = |key: &str| element.get(key).and_then(Toml::as_str);
    part == "*"
        || part.parse() == Ok(index)
        || part
            .split_once('>')
            .is_some_and(|(from, to)| text("from") == Some(from) && text("to") == Some(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &str = r#"
        seed = 1
        [[links]]
        from = "a"
        to = "b"
        [[links]]
        from = "b"
        to = "a"
        [[transfers]]
        from = "a"
        to = "b"
    "#;

    fn after(key: &str, value: &str) -> Result<toml::Table, SpecError> {
        let mut world: toml::Table = toml::from_str(WORLD).unwrap();
        set(&mut world, key, &Toml::String(value.to_owned()))?;
        Ok(world)
    }

    #[test]
    fn keys_match_one_place_or_several() {
        let delays = |world: &toml::Table| -> Vec<Option<String>> {
            let links = world["links"].as_array().unwrap();
            links.iter().map(|l| l.get("delay").and_then(Toml::as_str).map(str::to_owned)).collect()
        };
        let one = Some("1 s".to_owned());
        assert_eq!(delays(&after("links.*.delay", "1 s").unwrap()), [one.clone(), one.clone()]);
        assert_eq!(delays(&after("links.1.delay", "1 s").unwrap()), [None, one.clone()]);
        assert_eq!(delays(&after("links.a>b.delay", "1 s").unwrap()), [one, None]);
        let world = after("nodes.a.mib.tcp.congestion", "bbr").unwrap();
        let found = world["nodes"]["a"]["mib"]["tcp"]["congestion"].as_str();
        assert_eq!(found, Some("bbr"));
        assert_eq!(after("seed", "x").unwrap()["seed"].as_str(), Some("x"));
    }

    #[test]
    fn keys_can_be_unset() {
        let mut world: toml::Table = toml::from_str(WORLD).unwrap();
        unset(&mut world, "links.*.to").unwrap();
        unset(&mut world, "transfers.0.via").unwrap();
        let links = world["links"].as_array().unwrap();
        assert!(links.iter().all(|link| link.get("to").is_none() && link.get("from").is_some()));
        unset(&mut world, "links").unwrap();
        assert!(!world.contains_key("links"));
    }

    #[test]
    fn keys_without_a_match_are_named() {
        let refused = |key| after(key, "1 s").unwrap_err().to_string();
        assert!(refused("links.7.delay").contains("a number below 2"));
        assert!(refused("links.a>c.delay").contains("links.a>c.delay: there is no a>c"));
        assert!(refused("seed.x.y").contains("nothing below x"));
        assert!(refused("seed.x").contains("nothing called x"));
        assert!(refused("links.0").contains("nothing called 0"));
    }

    #[test]
    fn labels_are_numbers_of_one_unit() {
        let axis = |labels: &[&str]| Axis {
            name: "x".to_owned(),
            keys: vec!["seed".to_owned()],
            values: labels.iter().map(|l| Value::Plain(Toml::String((*l).to_owned()))).collect(),
        };
        let read = |labels: &[&str]| axis(labels).numbers().map(|n| (n.unit, n.values));
        assert_eq!(read(&["25 ms", "1.25 s"]), Some((Unit::Seconds, vec![0.025, 1.25])));
        assert_eq!(read(&["0", "1e-3"]), Some((Unit::Number, vec![0.0, 1e-3])));
        assert_eq!(read(&["10 kB", "1 MB"]), Some((Unit::Bytes, vec![1e4, 1e6])));
        assert_eq!(read(&["1 Mbit/s"]), Some((Unit::BitsPerSecond, vec![1e6])));
        assert_eq!(read(&["1 s", "fast"]), None);
        assert_eq!(read(&["1", "20"]), Some((Unit::Number, vec![1.0, 20.0])));
    }
}
