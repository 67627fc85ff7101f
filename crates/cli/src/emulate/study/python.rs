//! Calls of the Python package: figures, pages and the papers' claims.

use std::env;
use std::ffi::OsString;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use testbed::study::{Filter, Study};

use crate::exit::Exit;

/// Options of `study report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Study: a name of `slowlight study list`
    #[arg(value_parser = crate::known::study(), hide_possible_values = true)]
    name: String,

    /// Folders of results [default: the study's in `results`]
    #[arg(long, value_name = "DIR")]
    results: Vec<PathBuf>,

    /// Folder for the report [default: report/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Options of `study claims`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClaimsArgs {
    /// Papers or claims to check, e.g. S0 or S4-05 [default: all]
    only: Vec<String>,

    /// Folder with the results of studies
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,

    /// Print verdicts as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let mut rest = vec![OsString::from("report"), args.name.clone().into()];
    for folder in &args.results {
        rest.extend(["--results".into(), folder.clone().into()]);
    }
    if let Some(out) = &args.out {
        rest.extend(["--out".into(), out.clone().into()]);
    }
    // Results of a study that is not here suffice, but need the package.
    let unknown = || Study::find(&args.name).err();
    call(REPORTS, &rest).map_err(|error| unknown().map_or(error, Into::into))
}

pub(crate) fn claims(args: &ClaimsArgs) -> anyhow::Result<ExitCode> {
    let mut rest = vec![OsString::from("claims")];
    rest.extend(args.only.iter().map(OsString::from));
    rest.extend(["--results".into(), args.results.clone().into()]);
    rest.extend(args.json.then(|| "--json".into()));
    call(REPORTS, &rest)
}

/// Runs a study on a Dask cluster, or on one of this machine's processes if `address` is `local`.
pub(super) fn run_on(
    address: &str,
    args: &super::RunArgs,
    folder: &Path,
) -> anyhow::Result<ExitCode> {
    let mut rest = vec![args.name.clone().into(), "--dask".into(), address.into()];
    rest.extend(["--out".into(), folder.into()]);
    if let Some(edition) = &args.edition {
        rest.extend(["--edition".into(), edition.into()]);
    }
    for sheet in &args.sheet {
        rest.extend(["--sheet".into(), sheet.into()]);
    }
    for Filter { axis, labels } in &args.filter {
        rest.extend(["--filter".into(), format!("{axis}={}", labels.join(",")).into()]);
    }
    if let Some(runs) = args.runs {
        rest.extend(["--runs".into(), runs.to_string().into()]);
    }
    if let Some(jobs) = args.jobs {
        rest.extend(["--jobs".into(), jobs.to_string().into()]);
    }
    call(CLUSTERS, &rest)
}

/// Python interpreter: `$SLOWLIGHT_PYTHON`, that of the environment where pip installed the
/// program, that of an active environment, that of `make python`, or the system's.
fn interpreter() -> PathBuf {
    let own = || environment(&env::current_exe().ok()?);
    let active = || env::var_os("VIRTUAL_ENV").map(|e| PathBuf::from(e).join("bin/python"));
    let made = || Some(PathBuf::from(".venv/bin/python")).filter(|python| python.exists());
    let given = env::var_os("SLOWLIGHT_PYTHON").map(PathBuf::from);
    given.or_else(own).or_else(active).or_else(made).unwrap_or_else(|| "python3".into())
}

/// Python interpreter of the virtual environment that contains a program.
fn environment(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let is_environment = folder.parent()?.join("pyvenv.cfg").is_file();
    is_environment.then(|| folder.join("python"))
}

/// A module of the Python package that is run.
#[derive(Clone, Copy)]
struct Module {
    name: &'static str,
    /// Modules that it imports, some of them only when it is used.
    needs: &'static str,
    /// Remedy if one of them is missing.
    remedy: &'static str,
}

/// Reports and claims are pure Python.
const REPORTS: Module = Module {
    name: "slowlight",
    needs: "slowlight.report",
    remedy: "in a clone, name an interpreter with polars and matplotlib in SLOWLIGHT_PYTHON, or \
             install the package with `make python`",
};

const CLUSTERS: Module = Module {
    name: "slowlight.cluster",
    needs: "slowlight._native, slowlight.cluster",
    remedy: "install the package with `make python`, or name an interpreter that has it in \
             SLOWLIGHT_PYTHON",
};

/// Runs a module with the interpreter's package, or else with that of a clone in the current
/// folder.
fn call(module: Module, rest: &[OsString]) -> anyhow::Result<ExitCode> {
    let python = interpreter();
    let context = || format!("cannot start {}", python.display());
    let mut refused = String::new();
    for package in [None, Some("python")] {
        let check = format!("import {}", module.needs);
        let check = command(&python, package)?.args(["-c", &check]).output();
        let check = check.with_context(context)?;
        if !check.status.success() {
            let error = String::from_utf8_lossy(&check.stderr);
            refused = error.trim_end().lines().last().unwrap_or_default().to_owned();
            continue;
        }
        let status = command(&python, package)?.args(["-m", module.name]).args(rest).status();
        let code = status.with_context(context)?.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(Exit::Failed.into(), ExitCode::from));
    }
    bail!("{} lacks what this needs ({refused}): {}", python.display(), module.remedy)
}

/// An interpreter that looks for packages in this folder, too.
fn command(python: &Path, package: Option<&str>) -> anyhow::Result<Command> {
    let mut command = Command::new(python);
    if let Some(package) = package {
        let others = env::var_os("PYTHONPATH");
        let others = others.iter().flat_map(env::split_paths);
        let folders = iter::once(PathBuf::from(package)).chain(others);
        command.env("PYTHONPATH", env::join_paths(folders)?);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_virtual_environment_uses_its_interpreter() {
        let folder = tempfile::tempdir().expect("a folder for this test");
        let program = folder.path().join("bin/slowlight");
        assert_eq!(environment(&program), None);
        std::fs::write(folder.path().join("pyvenv.cfg"), "").expect("a file in that folder");
        assert_eq!(environment(&program), Some(folder.path().join("bin/python")));
    }
}
