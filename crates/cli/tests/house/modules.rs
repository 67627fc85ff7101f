//! Modules of a crate that import each other cannot be read, tested or moved one at a time, so no
//! cycle of imports is allowed between the top-level modules of any crate, except for known ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::dependency_directions::root;

/// Cycles that are still there: sessions, settings and indications of these engines know each
/// other. A module may leave this list, and none may join it.
const KNOWN: [(&str, &[&str]); 3] = [
    (
        "cfdp",
        &[
            "config",
            "core",
            "finished",
            "indication",
            "request",
            "restore",
            "sender",
            "user_operations",
        ],
    ),
    ("ltp", &["config", "core", "indication", "marks", "sealed", "sender", "supply", "transport"]),
    ("norm", &["coding", "config", "core", "incoming"]),
];

/// Modules that each module of a crate imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Source files below a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Source text up to its inline tests, without comments.
pub(crate) fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut kept = Vec::new();
    let mut is_test = false;
    for line in lines {
        let trimmed = line.trim_start();
        if is_test && trimmed.starts_with("mod ") && trimmed.ends_with('{') && line == trimmed {
            break;
        }
        is_test = trimmed == "#[cfg(test)]" || is_test && trimmed.starts_with("#[");
        kept.push(line);
    }
    kept.join("\n")
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// First names of the paths that begin here: one, or a group in braces.
fn names(text: &str) -> Vec<&str> {
    if !text.starts_with('{') {
        return vec![word(text)];
    }
    let (mut depth, mut is_first, mut found) = (0, false, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if c.is_whitespace() => continue,
            _ if is_first => found.push(word(&text[at..])),
            _ => {}
        }
        is_first = depth == 1 && (c == ',' || c == '{');
        if depth == 0 {
            break;
        }
    }
    found
}

/// Names that `code`, in a module at this depth, imports from the root of its crate.
fn from_root(code: &str, depth: usize) -> Vec<&str> {
    let above = "super::".repeat(depth);
    let mut found = Vec::new();
    for prefix in ["crate::", &above] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            let is_inner = before.is_some_and(|c| c == ':' || c == '_' || c.is_alphanumeric());
            let rest = &code[at + prefix.len()..];
            if !is_inner && !rest.starts_with("super::") {
                found.extend(names(rest));
            }
        }
    }
    found
}

fn imports(source: &Path) -> Imports {
    let mut texts = Vec::new();
    let mut modules = BTreeSet::new();
    for path in rust_files(source) {
        let inside = path.strip_prefix(source).unwrap().with_extension("");
        let mut parts: Vec<_> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        if parts.last() == Some(&"mod") {
            parts.pop();
        }
        if ["lib", "main"].contains(&parts[0]) || parts.contains(&"tests") {
            continue;
        }
        modules.insert(parts[0].to_owned());
        texts.push((parts[0].to_owned(), parts.len(), code(&fs::read_to_string(&path).unwrap())));
    }
    let mut imports = Imports::new();
    for (module, depth, text) in &texts {
        let used = from_root(text, *depth).into_iter().map(str::to_owned);
        let used = used.filter(|name| name != module && modules.contains(name));
        imports.entry(module.clone()).or_default().extend(used);
    }
    imports
}

/// Modules that import each other, as one set per cycle.
fn cycles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut rest: Vec<_> = imports[from].iter().collect();
        while let Some(module) = rest.pop() {
            if reached.insert(module) {
                rest.extend(&imports[module]);
            }
        }
        reached
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (module, reached(module))).collect();
    let cycle = |module: &String| {
        let both = reached[module].iter().filter(|other| reached[**other].contains(module));
        both.map(|other| (*other).clone()).collect::<BTreeSet<_>>()
    };
    imports.keys().map(cycle).filter(|cycle| !cycle.is_empty()).collect()
}

#[test]
fn no_modules_import_each_other() {
    let known = KNOWN.map(|(name, modules)| {
        (name.to_owned(), modules.iter().map(|module| (*module).to_owned()).collect())
    });
    let mut rest = BTreeSet::from(known);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let imports = imports(&folder.join("src"));
        for cycle in cycles(&imports) {
            if rest.remove(&(name.clone(), cycle.clone())) {
                continue;
            }
            for module in &cycle {
                let others: Vec<_> = imports[module].intersection(&cycle).collect();
                wrong.push(format!("{name}: {module} imports {others:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "cycles of imports:\n{}", wrong.join("\n"));
    assert!(rest.is_empty(), "these cycles are gone: {rest:?}");
}

#[test]
fn imports_are_found_with_and_without_groups() {
    let text = "use crate::{one::{a, b}, two, Three};\nfn f() { super::super::four::g() }\n\
                // crate::five\n#[cfg(test)]\nmod tests {\n    use crate::six::h;\n}\n";
    assert_eq!(from_root(&code(text), 2), ["one", "two", "Three", "four"]);
    let edges = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b"]), ("d", vec![])];
    let imports = edges
        .map(|(module, used)| (module.to_owned(), used.into_iter().map(str::to_owned).collect()));
    let cycle = BTreeSet::from(["b".to_owned(), "c".to_owned()]);
    assert_eq!(cycles(&imports.into()), BTreeSet::from([cycle]));
}
