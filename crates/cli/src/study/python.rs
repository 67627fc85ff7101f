//! What the Python package does: figures, pages and the papers' claims.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

/// Options of `study report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// A study's name
    name: String,

    /// Folders of results; those in `results` of this study if left out
    #[arg(long, value_name = "FOLDER")]
    results: Vec<PathBuf>,

    /// Where the report goes; results/NAME-report if left out
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Options of `study claims`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClaimsArgs {
    /// Only these papers or claims, like S0 or S4-05
    only: Vec<String>,

    /// The folder that has the results of studies
    #[arg(long, value_name = "FOLDER", default_value = "results")]
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
    call(&rest)
}

pub(crate) fn claims(args: &ClaimsArgs) -> anyhow::Result<ExitCode> {
    let mut rest = vec![OsString::from("claims")];
    rest.extend(args.only.iter().map(OsString::from));
    rest.extend(["--results".into(), args.results.clone().into()]);
    rest.extend(args.json.then(|| "--json".into()));
    call(&rest)
}

/// The interpreter: `$SLOWLIGHT_PYTHON`, that of an active environment, or the system's.
fn interpreter() -> PathBuf {
    let active = || env::var_os("VIRTUAL_ENV").map(|e| PathBuf::from(e).join("bin/python"));
    let told = env::var_os("SLOWLIGHT_PYTHON").map(PathBuf::from);
    told.or_else(active).unwrap_or_else(|| "python3".into())
}

fn call(rest: &[OsString]) -> anyhow::Result<ExitCode> {
    let python = interpreter();
    let run = |args: &[&OsStr]| Command::new(&python).args(args).status();
    let check = Command::new(&python).args(["-c", "import slowlight.report"]).output();
    let check = check.with_context(|| format!("cannot start {}", python.display()))?;
    if !check.status.success() {
        bail!(
            "{} has no package slowlight with what reports need: install it with `make python` and \
             name its interpreter in SLOWLIGHT_PYTHON\n{}",
            python.display(),
            String::from_utf8_lossy(&check.stderr).trim_end()
        );
    }
    let args: Vec<&OsStr> = ["-m", "slowlight"].map(OsStr::new).into_iter().collect();
    let args: Vec<&OsStr> = args.into_iter().chain(rest.iter().map(OsString::as_os_str)).collect();
    let status = run(&args).with_context(|| format!("cannot start {}", python.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
