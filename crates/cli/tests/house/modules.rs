//! Modules of a crate that import each other cannot be read, tested or moved one at a time, so no
//! cycle of imports is allowed between the modules of one parent, except for known ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::dependency_directions::root;

/// Cycles that are still there, by crate and parent module. The state that all transactions of
/// CFDP share has that of user operations, which start transactions; settings of NORM are checked
/// by building the code that they describe. A module may leave this list, and none may join it.
const KNOWN: [(&str, &str, &[&str]); 2] = [
    ("cfdp", "", &["core", "restore", "sender", "user_operations"]),
    ("norm", "", &["coding", "config", "core", "incoming"]),
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

/// Names that `code` imports below one of these prefixes.
fn below<'a>(code: &'a str, prefixes: &[String]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for prefix in prefixes {
        for (at, _) in code.match_indices(prefix.as_str()) {
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

/// A module: its path below the root of its crate, and its code.
struct Module {
    path: Vec<String>,
    code: String,
}

/// Modules of a crate, without its root and its tests.
fn modules(source: &Path) -> Vec<Module> {
    let mut found = Vec::new();
    for file in rust_files(source) {
        let inside = file.strip_prefix(source).unwrap().with_extension("");
        let mut path: Vec<_> =
            inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if path.last().is_some_and(|part| part == "mod") {
            path.pop();
        }
        let is_root = path.first().is_none_or(|first| first == "lib" || first == "main");
        if !is_root && !path.iter().any(|part| part == "tests") {
            found.push(Module { path, code: code(&fs::read_to_string(&file).unwrap()) });
        }
    }
    found
}

/// Imports of the modules below a parent from each other.
fn imports(modules: &[Module], parent: &[String]) -> Imports {
    let children = || {
        modules
            .iter()
            .filter_map(|module| Some((module, module.path.strip_prefix(parent)?)))
            .filter(|(_, rest)| !rest.is_empty())
    };
    let siblings: BTreeSet<_> = children().map(|(_, rest)| rest[0].clone()).collect();
    let mut imports = Imports::new();
    for (module, rest) in children() {
        let absolute: String = ["crate"]
            .into_iter()
            .chain(parent.iter().map(String::as_str))
            .map(|part| format!("{part}::"))
            .collect();
        let used = below(&module.code, &[absolute, "super::".repeat(rest.len())]);
        let used = used.into_iter().map(str::to_owned);
        let used = used.filter(|name| *name != rest[0] && siblings.contains(name));
        imports.entry(rest[0].clone()).or_default().extend(used);
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
    let known = KNOWN.map(|(name, parent, modules)| {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        (name.to_owned(), parent.to_owned(), modules)
    });
    let mut rest = BTreeSet::from(known);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let modules = modules(&folder.join("src"));
        let parents: BTreeSet<_> = modules
            .iter()
            .flat_map(|module| (0..module.path.len()).map(|len| &module.path[..len]))
            .collect();
        for parent in parents {
            let imports = imports(&modules, parent);
            for cycle in cycles(&imports) {
                let parent = parent.join("::");
                if rest.remove(&(name.clone(), parent.clone(), cycle.clone())) {
                    continue;
                }
                for module in &cycle {
                    let others: Vec<_> = imports[module].intersection(&cycle).collect();
                    wrong.push(format!("{name} {parent}: {module} imports {others:?}"));
                }
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
    let prefixes = ["crate::".to_owned(), "super::super::".to_owned()];
    assert_eq!(below(&code(text), &prefixes), ["one", "two", "Three", "four"]);
    let edges = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b"]), ("d", vec![])];
    let imports = edges
        .map(|(module, used)| (module.to_owned(), used.into_iter().map(str::to_owned).collect()));
    let cycle = BTreeSet::from(["b".to_owned(), "c".to_owned()]);
    assert_eq!(cycles(&imports.into()), BTreeSet::from([cycle]));
}
