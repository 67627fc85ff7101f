//! Claims, their verdicts, and the pages that state them.

use std::path::PathBuf;

use lab::stats::Summary;
use slowlight_lab as lab;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The sign is the study's, and the size is within a third.
    Holds,
    /// It is not, for a cause that the page shows.
    Differs,
}

impl Verdict {
    pub(crate) fn holds(is_so: bool) -> Self {
        if is_so { Self::Holds } else { Self::Differs }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
        }
    }
}

/// One claim of a study.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) study: &'static str,
    pub(crate) here: String,
    pub(crate) verdict: Verdict,
}

/// A scenario of the project as it is written.
pub(crate) fn scenario_text(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../scenarios", name].iter().collect();
    std::fs::read_to_string(path).unwrap()
}

/// A claim that holds or does not.
pub(crate) fn claim(
    id: &'static str,
    what: &'static str,
    study: &'static str,
    here: String,
    is_so: bool,
) -> Claim {
    Claim { id, what, study, here, verdict: Verdict::holds(is_so) }
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) sem: f64,
}

impl Estimate {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let Summary { mean, sem, .. } = Summary::of(samples).unwrap();
        Self { mean, sem }
    }

    /// By how many percent more this is than `base`.
    pub(crate) fn more_than(self, base: Self) -> Self {
        let ratio = self.mean / base.mean;
        let error = (self.sem / self.mean).hypot(base.sem / base.mean);
        Self { mean: 100.0 * (ratio - 1.0), sem: 100.0 * ratio * error }
    }

    /// The mean of several that are independent.
    pub(crate) fn mean_of(parts: &[Self]) -> Self {
        let n = parts.len() as f64;
        let mean = parts.iter().map(|part| part.mean).sum::<f64>() / n;
        let sem = parts.iter().map(|part| part.sem.powi(2)).sum::<f64>().sqrt() / n;
        Self { mean, sem }
    }

    /// A change in percent.
    pub(crate) fn percent(self) -> String {
        format!("{:+.1} ± {:.1} %", self.mean, self.sem)
    }

    /// Whether it has the sign of what a study says, and its size to a third.
    pub(crate) fn is_near(self, said: f64) -> bool {
        (self.mean - said).abs() <= said.abs() / 3.0
    }
}

/// Runs of each cell, so many if nothing else is asked for.
pub(crate) fn runs(usual: u64) -> u64 {
    std::env::var("SLOWLIGHT_RUNS").map_or(usual, |runs| runs.parse().unwrap())
}

/// Whether the tables of the pages are to be printed.
pub(crate) fn prints() -> bool {
    std::env::var_os("SLOWLIGHT_PRINT_TABLES").is_some()
}

/// Checks that a page states these verdicts and no others, or prints what it should state.
pub(crate) fn check(page: &str, claims: &[Claim]) {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../docs/reproduction", page].iter().collect();
    let text = std::fs::read_to_string(path).unwrap();
    if prints() {
        println!("| | claim | study | here | |\n|---|---|---|---|---|");
    }
    for Claim { id, what, study, here, verdict } in claims {
        if prints() {
            println!("| {id} | {what} | {study} | {here} | {} |", verdict.word());
        }
    }
    let stated = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let id = cells.next().filter(|id| id.starts_with('S') && id.contains('-'))?;
        let verdict = cells.last()?;
        (verdict == "holds" || verdict == "differs").then_some((id, verdict))
    });
    let found = claims.iter().map(|claim| (claim.id, claim.verdict.word()));
    let (stated, found): (Vec<_>, Vec<_>) = (stated.collect(), found.collect());
    for (index, claim) in claims.iter().enumerate() {
        assert_eq!(stated.get(index), Some(&found[index]), "{page}: {claim:?}");
    }
    assert_eq!(stated.len(), found.len(), "{page} states claims that nothing checks");
}
