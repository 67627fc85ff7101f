//! Rules of the repository that no lint checks: allowed dependencies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates of one protocol each, and the crates of the workspace that they may use, for tests as
/// well. Bundles, CFDP over other protocols and gateways combine several.
const PROTOCOLS: [&str; 5] = ["cfdp", "ltp", "norm", "saratoga", "tcp"];
const SHARED: [&str; 4] = ["engine", "wire", "session", "testing"];
/// Crates without clock, socket, file, thread or hidden randomness; and therefore without features
/// other than [`PURE_FEATURES`].
const PURE: [&str; 15] = [
    "engine", "wire", "session", "routing", "cfdp", "ltp", "norm", "saratoga", "tcp", "bp", "ut",
    "pep", "stack", "models", "link",
];
/// Crates where `unsafe` is allowed: those that call the kernel, and the allocator of tests.
const MAY_BE_UNSAFE: [&str; 3] = ["rt", "emu", "testing"];
/// Concatenated, so that this file does not contain the word itself.
const UNSAFE: &str = concat!("un", "safe");
/// Additional test binaries of a crate, each with its reason in its first lines.
const MORE_TEST_BINARIES: [(&str, &[&str]); 2] =
    [("cli", &["house", "machine", "parity"]), ("lab", &["random_scenarios"])];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The workspace's packages, by the name of their folder.
fn packages() -> BTreeMap<String, Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let folder = manifest.parent().unwrap().file_name().unwrap();
            (folder.to_str().unwrap().to_owned(), package.clone())
        })
        .collect()
}

fn ours<'a>(package: &'a Value, folders: &'a BTreeMap<String, Value>) -> BTreeSet<&'a str> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .filter_map(|dependency| dependency["path"].as_str())
        .map(|path| Path::new(path).file_name().unwrap().to_str().unwrap())
        .filter(|folder| folders.contains_key(*folder))
        .collect()
}

/// Cargo refuses cycles; that someone can use one protocol without the others is a rule.
#[test]
fn protocols_do_not_use_each_other() {
    let packages = packages();
    let shared: BTreeSet<_> = SHARED.into_iter().collect();
    for folder in PROTOCOLS {
        let used = ours(&packages[folder], &packages);
        let mut allowed = shared.clone();
        // LTP-T has routes.
        allowed.extend((folder == "ltp").then_some("routing"));
        assert!(used.is_subset(&allowed), "{folder} may not use {:?}", &used - &allowed);
    }
}

/// Features of pure crates. `raptorq`: patents may concern who builds and sells this code, so that
/// only a build that names the feature has it.
const PURE_FEATURES: [(&str, &str); 1] = [("norm", "raptorq")];

#[test]
fn pure_crates_have_only_the_listed_features() {
    let packages = packages();
    let mut found = Vec::new();
    for folder in PURE {
        let features = packages[folder]["features"].as_object().unwrap();
        found.extend(features.keys().map(|name| (folder, name.as_str())));
    }
    assert_eq!(found, PURE_FEATURES);
}

/// Each binary links all dependencies of its crate, which costs time and disk in every build.
#[test]
fn integration_tests_of_a_crate_are_one_binary() {
    let more: BTreeMap<_, _> = MORE_TEST_BINARIES.into_iter().collect();
    for (folder, package) in packages() {
        let targets = package["targets"].as_array().unwrap().iter();
        let tests = targets.filter(|target| target["kind"][0] == "test");
        let names: Vec<_> = tests.map(|target| target["name"].as_str().unwrap()).collect();
        let more = more.get(folder.as_str()).copied().unwrap_or_default();
        let rest: Vec<_> = names.iter().filter(|name| !more.contains(name)).collect();
        assert!(
            rest.len() <= 1,
            "{folder} has the test binaries {rest:?}: make them modules of one"
        );
    }
}

/// Every source file of the workspace with the given ending, without generated files.
pub(super) fn sources(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = ["crates", "fuzz", "interop", "bench", "examples"]
        .iter()
        .map(|name| root().join(name))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && !["target", "out"].contains(&&*name) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no *.{ending} found");
    found
}

#[test]
fn unsafe_code_is_limited_to_kernel_crates() {
    let crates = root().join("crates");
    for path in sources("rs") {
        let inside = path.strip_prefix(&crates).ok();
        let folder = inside.and_then(|rest| rest.iter().next()?.to_str());
        if folder.is_some_and(|folder| MAY_BE_UNSAFE.contains(&folder)) {
            continue;
        }
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            assert!(words.all(|word| word != UNSAFE), "{}:{}", path.display(), index + 1);
        }
    }
}

#[test]
fn every_fuzz_target_has_a_corpus() {
    let fuzz = root().join("fuzz");
    let mut targets = 0;
    for entry in fs::read_dir(fuzz.join("fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let corpus = fuzz.join("corpora").join(path.with_extension("tar").file_name().unwrap());
        assert!(corpus.is_file(), "there is no {}", corpus.display());
        targets += 1;
    }
    assert!(targets > 0, "no fuzz targets");
}
