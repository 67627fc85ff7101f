//! Runs every target over its corpus, without a fuzzer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use slowlight_fuzz::TARGETS;

fn fuzz() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn corpora_replay() {
    for (name, target) in TARGETS {
        let corpus = fuzz().join("corpora").join(format!("{name}.tar"));
        let mut archive = tar::Archive::new(File::open(&corpus).unwrap());
        let mut inputs = 0;
        for input in archive.entries().unwrap() {
            let mut input = input.unwrap();
            // Shown only if the target panics: names the failing input.
            println!("{}: {}", corpus.display(), input.path().unwrap().display());
            let mut bytes = Vec::new();
            input.read_to_end(&mut bytes).unwrap();
            target(&bytes);
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", corpus.display());
    }
}

#[test]
fn every_program_has_its_target() {
    let programs: BTreeSet<String> = fs::read_dir(fuzz().join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(programs, targets);
}
