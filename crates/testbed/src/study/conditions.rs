//! Conditions of a sheet: the settings of its links and transfers, for its report.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use transport::text::SpecError;

use super::Job;

/// Maximum number of kept values of a setting, and of kept elements of a list. A contact plan of
/// years would otherwise be stored for each value of an axis.
const LISTED_MAX: usize = 100;

/// Maximum number of kept characters of a text, such as a trace of losses.
const TEXT_MAX: usize = 200;

/// Values of each setting, without repetitions, in the order of the cells; null for cells without
/// the setting.
type Settings = BTreeMap<String, Vec<Value>>;

/// Links and transfers of a sheet with all defaults, in the order of its scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conditions {
    links: Vec<Settings>,
    transfers: Vec<Settings>,
}

impl Conditions {
    /// Reads the scenarios of the cells of these runs.
    ///
    /// # Errors
    ///
    /// A cell is not a valid scenario.
    pub(super) fn read<'a>(runs: impl IntoIterator<Item = &'a Job<'a>>) -> Result<Self, SpecError> {
        let mut conditions = Self::default();
        // The runs of a cell differ by their seeds only.
        for (cell, job) in runs.into_iter().filter(|job| job.run == 0).enumerate() {
            let scenario = job.scenario()?;
            add(&mut conditions.links, &scenario.links, cell == 0)?;
            add(&mut conditions.transfers, &scenario.transfers, cell == 0)?;
        }
        Ok(conditions)
    }

    /// Returns them as JSON.
    ///
    /// # Errors
    ///
    /// Never for conditions that were read.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// Adds the values of a cell's links or transfers; `is_first` if it is the first cell.
fn add<T: Serialize>(
    all: &mut Vec<Settings>,
    of_cell: &[T],
    is_first: bool,
) -> Result<(), SpecError> {
    for (index, settings) in of_cell.iter().enumerate() {
        let invalid = |error: serde_json::Error| SpecError::invalid(error.to_string());
        let Value::Object(settings) = serde_json::to_value(settings).map_err(invalid)? else {
            return Err(SpecError::invalid("a link or transfer is not a table"));
        };
        if all.len() == index {
            all.push(Settings::new());
        }
        // Earlier cells do not have a new setting.
        let before = if is_first { Vec::new() } else { vec![Value::Null] };
        widen(&mut all[index], settings, &before);
    }
    Ok(())
}

/// Adds the values of a cell; a setting that no earlier cell has begins with those `before` it.
fn widen(known: &mut Settings, mut settings: Map<String, Value>, before: &[Value]) {
    for key in settings.keys() {
        known.entry(key.clone()).or_insert_with(|| before.to_vec());
    }
    for (key, values) in known {
        let value = settings.remove(key).map_or(Value::Null, shortened);
        if values.len() < LISTED_MAX && !values.contains(&value) {
            values.push(value);
        }
    }
}

/// Returns a value with its first elements or characters if it is too long.
fn shortened(value: Value) -> Value {
    match value {
        Value::String(text) => match text.char_indices().nth(TEXT_MAX) {
            Some((end, _)) => Value::String(format!("{}…", &text[..end])),
            None => Value::String(text),
        },
        Value::Array(elements) => {
            Value::Array(elements.into_iter().take(LISTED_MAX).map(shortened).collect())
        }
        Value::Object(keys) => {
            Value::Object(keys.into_iter().map(|(key, value)| (key, shortened(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::PathBuf;

    use serde_json::json;

    use super::super::{BUILT_IN, Given, Selection, Source, Study, jobs};
    use super::*;

    const STUDY: &str = r#"
        about = "x"
        [[editions.e.sheets]]
        name = "s"
        world = "w.toml"
        runs = 3
        skip = [{ delay = "2 s", line = "down" }]
        [[editions.e.sheets.axes]]
        name = "delay"
        keys = ["links.*.delay"]
        values = ["1 s", "2 s"]
        [[editions.e.sheets.axes]]
        name = "line"
        values = [
            { label = "up" },
            { label = "down", set = { "links.0.outages" = OUTAGES } },
        ]
    "#;

    const WORLD: &str = r#"
        seed = 1
        links = [{ from = "a", to = "b" }, { from = "b", to = "a" }]
        transfers = [{ from = "a", to = "b", size = "1 kB" }]
    "#;

    fn read(study: &Study, edition: &str, source: &Source) -> Conditions {
        let (_, edition) = study.edition(Some(edition)).unwrap();
        Conditions::read(&jobs(edition, source, &Selection::default()).unwrap()).unwrap()
    }

    /// Conditions of the study with this number of outages of one second.
    fn with_outages(count: u32) -> Conditions {
        let mut outages = String::new();
        for number in 0..count {
            write!(outages, "{{ at = \"{} s\", for = \"1 s\" }},", 2 * number).unwrap();
        }
        let text = STUDY.replace("OUTAGES", &format!("[{outages}]"));
        let given = Given { text: WORLD.to_owned(), folder: PathBuf::new() };
        let source = Source::Given([(PathBuf::from("w.toml"), given)].into());
        read(&Study::parse(&text, "s.toml").unwrap(), "e", &source)
    }

    #[test]
    fn settings_have_the_values_of_all_cells() {
        let conditions = serde_json::to_value(with_outages(1)).unwrap();
        let [out, back] = [0, 1].map(|index| &conditions["links"][index]);
        assert_eq!(out["from"], json!(["a"]));
        assert_eq!(out["delay"], json!(["1 s", "2 s"]));
        assert_eq!(out["outages"], json!([null, [{ "at": "0 s", "for": "1 s" }]]));
        assert_eq!(back.get("outages"), None);
        assert_eq!(conditions["transfers"][0]["size"], json!(["1 kB"]));
    }

    #[test]
    fn a_contact_plan_of_years_stays_small() {
        let text = with_outages(20_000).to_json().unwrap();
        assert!(text.contains("\"198 s\"") && !text.contains("\"200 s\""), "{text}");
        assert!(text.len() < 20_000, "{}", text.len());
        let trace = shortened(json!({ "fates": "x".repeat(1_000) }));
        assert_eq!(trace, json!({ "fates": format!("{}…", "x".repeat(TEXT_MAX)) }));
    }

    #[test]
    fn conditions_of_built_in_studies_are_small() {
        for (name, _) in BUILT_IN {
            let (study, source) = Study::find(name).unwrap();
            for edition in study.editions.keys() {
                let len = read(&study, edition, &source).to_json().unwrap().len();
                assert!((500..20_000).contains(&len), "{name}, {edition}: {len}");
            }
        }
    }
}
