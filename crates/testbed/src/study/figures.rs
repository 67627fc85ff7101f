//! Figures of a study, checked before anything is run. The package in Python draws them.

use std::path::Path;

use toml::Value as Toml;
use transport::text::{SpecError, did_you_mean};

use super::{Axis, PUBLISHED, Sheet, Source, Study, built_in, table};

/// Keys of a figure.
const KEYS: [&str; 20] = [
    "kind", "figure", "title", "caption", "edition", "sheet", "x", "y", "series", "panels",
    "where", "x_scale", "y_scale", "scenario", "set", "seed", "at", "span", "bin_s", "file",
];

/// Kinds of figures that are drawn from a sheet's table.
const OF_TABLES: [&str; 5] = ["lines", "box", "bars", "cdf", "best"];

/// Kinds that are drawn from the packets of a single run.
const OF_PACKETS: [&str; 2] = ["sequence", "rate"];

/// Scales of an axis.
const SCALES: [&str; 3] = ["auto", "log", "linear"];

/// Columns that the package in Python adds to tables.
const DERIVED: [&str; 2] = ["client_bps", "discounted_bps"];

/// Checks the figures of a study: kinds, keys, scales, and names of sheets, columns and labels.
pub(super) fn check(study: &Study, source: &Source) -> Result<(), SpecError> {
    for (index, figure) in study.figures.iter().enumerate() {
        Figure { study, keys: figure }
            .check(source)
            .map_err(|error| error.below(&format!("figures.{index}")))?;
    }
    Ok(())
}

/// Refuses a name that is not among these.
fn known(key: &str, what: &str, name: &str, names: &[&str]) -> Result<(), SpecError> {
    if names.contains(&name) {
        return Ok(());
    }
    let near = did_you_mean(name, names.iter().copied());
    let all = names.join(", ");
    Err(SpecError::invalid(format!("{key}: no {what} {name:?}{near} (there are {all})")))
}

/// One figure.
struct Figure<'a> {
    study: &'a Study,
    keys: &'a toml::Table,
}

impl<'a> Figure<'a> {
    fn check(&self, source: &Source) -> Result<(), SpecError> {
        for key in self.keys.keys() {
            known(key, "key", key, &KEYS)?;
        }
        let kind = self.text("kind")?;
        let kinds = [&OF_TABLES[..], &OF_PACKETS].concat();
        if kind.is_empty() {
            let message = format!("kind: it is missing (there are {})", kinds.join(", "));
            return Err(SpecError::invalid(message));
        }
        known("kind", "kind", kind, &kinds)?;
        for key in ["x_scale", "y_scale"] {
            match self.text(key)? {
                "" => {}
                scale => known(key, "scale", scale, &SCALES)?,
            }
        }
        for key in ["figure", "title", "caption", "at", "file"] {
            self.text(key)?;
        }
        match self.text("scenario")? {
            "" => {}
            file if file.ends_with(".toml") => return source.read(Path::new(file)).map(|_| ()),
            name => {
                let found = built_in::scenario(name).map(|_| ());
                return found.map_err(|e| SpecError::invalid(format!("scenario: {e}")));
            }
        }
        let sheet = self.sheet()?;
        if OF_PACKETS.contains(&kind) {
            self.check_run(sheet)
        } else {
            self.check_table(sheet, kind)
        }
    }

    /// Sheet of the figure: the first of the edition unless named.
    fn sheet(&self) -> Result<&'a Sheet, SpecError> {
        let name = Some(self.text("edition")?).filter(|name| !name.is_empty()).unwrap_or(PUBLISHED);
        let editions: Vec<_> = self.study.editions.keys().map(String::as_str).collect();
        known("edition", "edition", name, &editions)?;
        let sheets = &self.study.editions[name].sheets;
        let name = self.text("sheet")?;
        if name.is_empty() {
            let first = sheets.first();
            return first.ok_or_else(|| SpecError::invalid("edition: it has no sheet"));
        }
        let names: Vec<_> = sheets.iter().map(|sheet| sheet.name.as_str()).collect();
        known("sheet", "sheet", name, &names)?;
        let found = sheets.iter().find(|sheet| sheet.name == name);
        found.ok_or_else(|| SpecError::invalid("sheet: there is none"))
    }

    /// Checks the series that a figure draws of the packets of one cell.
    fn check_run(&self, sheet: &Sheet) -> Result<(), SpecError> {
        for (name, labels) in self.labels()? {
            let names: Vec<_> = sheet.axes.iter().map(|axis| axis.name.as_str()).collect();
            known("where", "axis", name, &names)?;
            let [label] = labels.as_slice() else {
                return Err(SpecError::invalid(format!("where.{name}: a run has one value of it")));
            };
            check_label(sheet.axis(name)?, label)?;
        }
        Ok(())
    }

    /// Checks the series that a figure draws of a sheet's table.
    fn check_table(&self, sheet: &Sheet, kind: &str) -> Result<(), SpecError> {
        let numbers = sheet.axes.iter().filter_map(|axis| {
            axis.numbers().map(|numbers| format!("{}{}", axis.name, numbers.unit.suffix()))
        });
        let axes = sheet.axes.iter().map(|axis| axis.name.clone());
        let of_axes: Vec<String> = axes.chain(numbers).collect();
        let mut columns: Vec<&str> = of_axes.iter().map(String::as_str).collect();
        columns.extend(table::columns().map(|name| -> &str { name }));
        columns.extend(DERIVED);
        for key in ["x", "series", "panels"] {
            match self.text(key)? {
                "" => {}
                name => known(key, "column", name, &columns)?,
            }
        }
        let y = self.texts("y")?;
        y.iter().try_for_each(|name| known("y", "column", name, &columns))?;
        for (name, labels) in self.labels()? {
            known("where", "column", name, &columns)?;
            if let Ok(axis) = sheet.axis(name) {
                labels.iter().try_for_each(|label| check_label(axis, label))?;
            }
        }
        let is_empty = |key: &str| self.text(key).is_ok_and(str::is_empty);
        if kind == "best" && (y.len() != 2 || is_empty("x") || is_empty("series")) {
            let example = "x = \"per\", y = [\"delay\", \"goodput_bps\"], series = \"protocol\"";
            let message = format!("kind: \"best\" needs x, y and series, as in {example}");
            return Err(SpecError::invalid(message));
        }
        if y.is_empty() {
            let message = format!("y: kind {kind:?} needs it, a column such as \"goodput_bps\"");
            return Err(SpecError::invalid(message));
        }
        if kind != "cdf" && is_empty("x") {
            return Err(SpecError::invalid(format!("x: kind {kind:?} needs it, an axis")));
        }
        Ok(())
    }

    /// Text of a key; empty if there is none.
    fn text(&self, key: &str) -> Result<&'a str, SpecError> {
        match self.keys.get(key) {
            None => Ok(""),
            Some(Toml::String(text)) => Ok(text),
            Some(_) => Err(SpecError::invalid(format!("{key}: write a text in quotes"))),
        }
    }

    /// Texts of a key, which may be one text.
    fn texts(&self, key: &str) -> Result<Vec<&'a str>, SpecError> {
        self.keys.get(key).map_or(Ok(Vec::new()), |value| texts(key, value))
    }

    /// Labels of each axis in `where`.
    fn labels(&self) -> Result<Vec<(&'a str, Vec<&'a str>)>, SpecError> {
        let Some(value) = self.keys.get("where") else { return Ok(Vec::new()) };
        let axes = value
            .as_table()
            .ok_or_else(|| SpecError::invalid("where: write a table, as in { per = \"0\" }"))?;
        let labels = axes
            .iter()
            .map(|(name, value)| Ok((name.as_str(), texts(&format!("where.{name}"), value)?)));
        labels.collect()
    }
}

fn texts<'a>(key: &str, value: &'a Toml) -> Result<Vec<&'a str>, SpecError> {
    let invalid = || SpecError::invalid(format!("{key}: write a text, or a list of texts"));
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let texts: Option<Vec<_>> = values.iter().map(Toml::as_str).collect();
    texts.filter(|texts| !texts.is_empty()).ok_or_else(invalid)
}

/// Refuses a label that an axis does not have.
fn check_label(axis: &Axis, label: &str) -> Result<(), SpecError> {
    axis.value(label).map(|_| ()).map_err(|error| error.below("where"))
}

#[cfg(test)]
mod tests {
    use super::super::BUILT_IN;
    use super::*;

    const STUDY: &str = r#"
        about = "x"
        [[editions.own.sheets]]
        name = "s"
        world = "w.toml"
        [[editions.own.sheets.axes]]
        name = "per"
        keys = ["links.*.per"]
        values = ["0", "1e-2"]
        [[figures]]
        kind = "lines"
        edition = "own"
        x = "per"
        y = "goodput_bps"
        where = { per = "0" }
    "#;

    fn refused(from: &str, to: &str) -> String {
        let study = Study::parse(&STUDY.replace(from, to), "s.toml").unwrap();
        check(&study, &Source::BuiltIn).unwrap_err().to_string()
    }

    #[test]
    fn figures_of_every_study_are_right() {
        for (name, _) in BUILT_IN {
            let (study, source) = Study::find(name).unwrap();
            check(&study, &source).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        check(&Study::parse(STUDY, "s.toml").unwrap(), &Source::BuiltIn).unwrap();
    }

    #[test]
    fn unknown_names_are_reported_with_the_nearest() {
        for (from, to, says) in [
            ("\"lines\"", "\"line\"", "figures.0.kind: no kind \"line\"; did you mean \"lines\"?"),
            ("x = \"per\"", "x = \"pre\"", "figures.0.x: no column \"pre\"; did you mean \"per\"?"),
            ("y = ", "z = ", "figures.0.z: no key \"z\""),
            ("goodput_bps", "goodput_bsp", "figures.0.y: no column \"goodput_bsp\""),
            ("edition = \"own\"", "edition = \"won\"", "figures.0.edition: no edition \"won\""),
            ("        edition = \"own\"\n", "", "no edition \"published\" (there are own)"),
            ("{ per = \"0\" }", "{ per = \"3\" }", "figures.0.where.per: no value \"3\""),
            ("        y = \"goodput_bps\"\n", "", "figures.0.y: kind \"lines\" needs it"),
            ("kind = \"lines\"", "kind = 3", "figures.0.kind: write a text in quotes"),
            ("        kind = \"lines\"\n", "", "figures.0.kind: it is missing"),
        ] {
            let text = refused(from, to);
            assert!(text.contains(says), "{says}: {text}");
        }
    }

    #[test]
    fn python_package_accepts_the_same_keys_and_kinds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/slowlight/figures");
        let spec = std::fs::read_to_string(folder.join("spec.py")).unwrap();
        let (_, spec) = spec.split_once("class Spec:").unwrap();
        let (fields, _) = spec.split_once("@property").unwrap();
        let fields = fields.lines().filter_map(|line| line.trim().split_once(": "));
        let fields: Vec<_> =
            fields.map(|(name, _)| name).filter(|name| !name.contains(['#', ' '])).collect();
        assert_eq!(fields, KEYS);
        let kinds = std::fs::read_to_string(folder.join("__init__.py")).unwrap();
        for kind in OF_TABLES.into_iter().chain(OF_PACKETS) {
            assert!(kinds.contains(&format!("\"{kind}\"")), "{kind}");
        }
    }
}
