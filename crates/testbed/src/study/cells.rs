//! Cells of a sheet and their scenarios.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lab::scenario::Scenario;
use transport::text::{self, SpecError};

use super::axes::{set_all, toml_of};
use super::{Given, Sheet, Source, Value};

/// One value of each axis of a sheet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Index in the full grid of the axes.
    pub index: u64,
    /// Indices of its values, in the order of the axes.
    pub values: Vec<usize>,
}

/// Scenario of a sheet, with the changes that apply to all cells.
#[derive(Clone, Debug)]
pub struct World<'a> {
    sheet: &'a Sheet,
    base: toml::Table,
    origin: String,
    folder: PathBuf,
}

impl Sheet {
    /// Returns its cells without the skipped ones; the first axis changes slowest.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        (0..self.span()).map(|index| self.cell(index)).filter(|cell| !self.leaves_out(cell))
    }

    fn cell(&self, index: u64) -> Cell {
        let mut rest = index;
        let mut values: Vec<_> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let count = axis.values.len() as u64;
                let place = rest % count;
                rest /= count;
                usize::try_from(place).unwrap_or(usize::MAX)
            })
            .collect();
        values.reverse();
        Cell { index, values }
    }

    fn leaves_out(&self, cell: &Cell) -> bool {
        self.skip.iter().any(|skip| {
            let labels = self.labels(cell);
            let has = |(axis, label): (&str, String)| {
                skip.get(axis).is_none_or(|labels| labels.contains(&label))
            };
            labels.into_iter().all(has)
        })
    }

    /// Values of a cell, with their axes.
    fn values<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = (&'a super::Axis, &'a Value)> {
        self.axes.iter().zip(&cell.values).map(|(axis, value)| (axis, &axis.values[*value]))
    }

    /// Returns the cell with these labels, and the first value of other axes. It may be a skipped
    /// one.
    ///
    /// # Errors
    ///
    /// Names the existing axes or values.
    pub fn cell_of(&self, labels: &BTreeMap<String, String>) -> Result<Cell, SpecError> {
        if let Some(odd) = labels.keys().find(|name| self.axes.iter().all(|a| a.name != **name)) {
            let names = || self.axes.iter().map(|axis| axis.name.as_str());
            let near = text::did_you_mean(odd, names());
            let known = names().collect::<Vec<_>>().join(", ");
            return Err(SpecError::invalid(format!("no axis {odd:?}{near} (axes: {known})")));
        }
        let place = |axis: &super::Axis| labels.get(&axis.name).map_or(Ok(0), |l| axis.value(l));
        let values = self.axes.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let index = self
            .axes
            .iter()
            .zip(&values)
            .fold(0, |index, (axis, value)| index * axis.values.len() as u64 + *value as u64);
        Ok(Cell { index, values })
    }

    /// Returns the names of its axes with a cell's labels.
    #[must_use]
    pub fn labels<'a>(&'a self, cell: &'a Cell) -> Vec<(&'a str, String)> {
        self.values(cell).map(|(axis, value)| (axis.name.as_str(), value.label())).collect()
    }

    /// Reads its scenario.
    ///
    /// # Errors
    ///
    /// The scenario does not exist, or a change of the sheet does not apply.
    pub fn world(&self, source: &Source) -> Result<World<'_>, SpecError> {
        let text = source.read(&self.world)?;
        let origin = self.world.display().to_string();
        let mut base: toml::Table = text::parse(&text, &origin)?;
        set_all(&mut base, &self.set)
            .map_err(|error| error.below(&format!("sheets.{}.set", self.name)))?;
        Ok(World { sheet: self, base, origin, folder: source.folder_of(&self.world) })
    }
}

impl World<'_> {
    /// Table of the scenario with the cell's changes.
    fn table(&self, cell: &Cell) -> Result<toml::Table, SpecError> {
        let mut world = self.base.clone();
        for (axis, value) in self.sheet.values(cell) {
            let below = |error: SpecError| error.below(&format!("axes.{}", axis.name));
            value.apply(axis, &mut world).map_err(below)?;
        }
        Ok(world)
    }

    /// Returns the scenario of a cell without defaults.
    ///
    /// # Errors
    ///
    /// A key of an axis does not exist.
    pub fn given(&self, cell: &Cell) -> Result<Given, SpecError> {
        Ok(Given { text: toml_of(&self.table(cell)?)?, folder: self.folder.clone() })
    }

    /// Returns the scenario of a cell with all defaults.
    ///
    /// # Errors
    ///
    /// The scenario's fault, and the cell.
    pub fn scenario(&self, cell: &Cell, seed: u64) -> Result<Scenario, SpecError> {
        let named = || {
            let labels = self.sheet.labels(cell);
            let labels: Vec<_> =
                labels.iter().map(|(axis, label)| format!("{axis} = {label}")).collect();
            format!(
                "sheet {:?}: {} after setting {}",
                self.sheet.name,
                self.origin,
                labels.join(", ")
            )
        };
        let invalid = |error: SpecError| error.within(Path::new(&named()));
        let mut scenario =
            Scenario::parse(&toml_of(&self.table(cell)?)?, &named())?.placed(&self.folder);
        scenario.seed = seed;
        scenario.resolved().map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use testing::snapshot::changed;

    use super::super::Study;

    const STUDY: &str = r#"
        about = "x"
        [[editions.e.sheets]]
        name = "s"
        world = "w.toml"
        skip = [{ b = ["2", "3"], a = "y" }]
        [[editions.e.sheets.axes]]
        name = "a"
        keys = ["seed"]
        values = ["x", "y"]
        [[editions.e.sheets.axes]]
        name = "b"
        keys = ["seed"]
        values = [1, 2, 3]
    "#;

    #[test]
    fn the_first_axis_changes_slowest_and_skipped_cells_are_omitted() {
        let study = Study::parse(STUDY, "s.toml").unwrap();
        let (name, edition) = study.edition(None).unwrap();
        let sheet = &edition.sheets[0];
        assert_eq!((name, sheet.span()), ("e", 6));
        let cells: Vec<_> = sheet
            .cells()
            .map(|cell| {
                let labels = sheet.labels(&cell);
                (cell.index, labels.into_iter().map(|(_, label)| label).collect::<String>())
            })
            .collect();
        let expected = [(0, "x1"), (1, "x2"), (2, "x3"), (3, "y1")];
        assert_eq!(cells, expected.map(|(index, labels)| (index, labels.to_owned())));
    }

    #[test]
    fn mistakes_are_reported() {
        let error = |text: &str| Study::parse(text, "s.toml").unwrap_err().to_string();
        testing::snapshot!("refusals/study.txt", |change| error(&changed(STUDY, change)));
        let keyless = STUDY.replace("keys = [\"seed\"]\n        values = [1", "values = [1");
        assert!(error(&keyless).contains("name it with `keys`"));
    }
}
