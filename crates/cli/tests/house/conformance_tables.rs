//! Conformance tables in `docs` name existing tests.
//!
//! A word in the last column names a file, in full or by a prefix that the page explains as "`t/`
//! is `crates/…/`". Words after it are functions in that file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The pages, and the minimum number of names in their tables.
const PAGES: [(&str, usize); 7] = [
    ("docs/conformance/bundles.md", 250),
    ("docs/cfdp.md", 50),
    ("docs/ltp.md", 60),
    ("docs/conformance/saratoga.md", 80),
    ("docs/conformance/norm.md", 60),
    ("docs/scps-tp.md", 55),
    ("docs/conformance/tcp.md", 120),
];

/// The words between backticks.
fn words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Prefixes that the page declares for its files.
fn prefixes(page: &str) -> BTreeMap<&str, &str> {
    let parts: Vec<_> = page.split('`').collect();
    let explained = parts.windows(3).filter(|part| part[1] == " is " || part[1] == " is\n");
    explained.filter(|part| part[2].starts_with("crates/")).map(|part| (part[0], part[2])).collect()
}

/// Path of the file for a word.
fn path(prefixes: &BTreeMap<&str, &str>, word: &str) -> Option<String> {
    if let Some(whole) = prefixes.get(word) {
        return Some((*whole).to_owned());
    }
    let (folder, rest) = word.split_at(word.find('/')? + 1);
    let folder = prefixes.get(folder).copied().unwrap_or(folder);
    Some(format!("{folder}{rest}"))
}

#[test]
fn every_test_in_the_conformance_tables_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, least) in PAGES {
        let page = fs::read_to_string(root.join(name)).unwrap();
        let conformance = page.find("onformance\n").unwrap();
        let page = &page[conformance..];
        let prefixes = prefixes(page);
        let rows = page.lines().filter(|line| line.starts_with('|') && !line.starts_with("|--"));
        let mut names = 0;
        for row in rows {
            let tested = row.trim_end_matches('|').rsplit(" | ").next().unwrap();
            let mut source = None;
            for word in words(tested) {
                if let Some(path) = path(&prefixes, word) {
                    let text = fs::read_to_string(root.join(&path));
                    let text = text.unwrap_or_else(|error| panic!("{name}: {path}: {error}"));
                    source = Some((path, text));
                    continue;
                }
                let Some((path, text)) = &source else { panic!("{name}: no file for {word}") };
                let found = text.contains(&format!("fn {word}("));
                assert!(found, "{name}: there is no {word} in {path}");
                names += 1;
            }
        }
        assert!(names >= least, "{name}: only {names} names were found");
    }
}
