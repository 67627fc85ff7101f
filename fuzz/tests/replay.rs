//! Every target over its corpus, without a fuzzer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use slowlight_fuzz::TARGETS;

fn fuzz() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn corpora_replay() {
    for (name, target) in TARGETS {
        let corpus = fuzz().join("corpus").join(name);
        let mut files: Vec<_> =
            fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} is empty", corpus.display());
        for file in files {
            // Shown only if the target panics: this is the input that did it.
            println!("{}", file.display());
            target(&fs::read(&file).unwrap());
        }
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
