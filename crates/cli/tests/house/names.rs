//! Verbs of speech and words of the theatre are banned: identifiers of production code are nouns
//! of the domain (reported, received, requested, plan, observations, engine, path).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::dependency_directions::root;
use crate::modules::{code, rust_files};

/// Identifiers without meaning.
const BANNED: [&str; 18] = [
    "Actor", "Asked", "Carried", "Cast", "Heard", "Said", "Seen", "Sight", "Stage", "Told",
    "Voice", "asked", "beside", "heard", "said", "station", "told", "voice",
];

/// Source text without comments and strings, up to its inline tests.
fn bare(text: &str) -> String {
    let parts = code(text);
    let parts = parts.split('"').enumerate().filter(|(number, _)| number % 2 == 0);
    parts.map(|(_, part)| part).collect::<Vec<_>>().join(" ")
}

/// Banned identifiers in a source text.
fn banned(text: &str) -> BTreeSet<&'static str> {
    let text = bare(text);
    let words: BTreeSet<_> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    BANNED.into_iter().filter(|name| words.contains(name)).collect()
}

fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "test_world.rs")
}

#[test]
fn identifiers_are_nouns_of_the_domain() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        for path in rust_files(&source).into_iter().filter(|path| !is_test(path)) {
            let place = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let found = banned(&fs::read_to_string(&path).unwrap());
            wrong.extend(
                found.into_iter().map(|name| format!("{place}: `{name}`: name what it holds")),
            );
        }
    }
    assert!(wrong.is_empty(), "identifiers without a meaning:\n{}", wrong.join("\n"));
}

#[test]
fn identifiers_are_found_only_in_code() {
    let text = "let told = \"said\"; // asked\nfn told_end() {}\n";
    assert_eq!(banned(text), BTreeSet::from(["told"]));
}
