//! A protocol is one row and one adapter. No code matches on a protocol, or compares its name,
//! elsewhere: a property of the row provides the information. The example `toy` of `lab` is a
//! protocol outside the tree, with codec, engine, adapter and dissector.

use std::collections::BTreeSet;
use std::fs;

use transport::protocol::layers::{LAYERS, SHORT};

use crate::dependency_directions::root;
use crate::modules::{code, rust_files};

/// Places that distinguish protocols by name: engines and codecs, rows, adapters and dissectors.
const HOMES: [&str; 17] = [
    "crates/bp/",
    "crates/cfdp/",
    "crates/ltp/",
    "crates/models/",
    "crates/norm/",
    "crates/pep/",
    "crates/routing/",
    "crates/saratoga/",
    "crates/session/",
    "crates/stack/",
    "crates/tcp/",
    "crates/ut/",
    "crates/wire/",
    "crates/transport/src/protocol.rs",
    "crates/transport/src/protocol/",
    "crates/transport/src/adapter/",
    "crates/transport/src/dissect/",
];

/// Files that name other programs, which some protocols model, and the commands of the binary.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("crates/lab/src/adapter.rs", "names of files in adapters/"),
    ("crates/cli/src/emulate/compare.rs", "names of files in adapters/"),
    ("crates/cli/src/sockets/mod.rs", "commands"),
];

/// Layers whose names are ordinary words as well: a file, the kernel's TCP.
const WORDS: [&str; 3] = ["file", "tcp", "bp"];

/// Functions that compare with their argument.
const COMPARISONS: [&str; 9] = [
    "starts_with(",
    "ends_with(",
    "strip_prefix(",
    "strip_suffix(",
    "contains(",
    "contains(&",
    "eq(",
    "named(",
    "[",
];

fn names() -> BTreeSet<&'static str> {
    let short = SHORT.iter().map(|(name, _)| *name);
    let layers = LAYERS.iter().flat_map(|layer| [layer.name].into_iter().chain(layer.node_layer));
    short.chain(layers).filter(|name| !WORDS.contains(name)).collect()
}

/// Name of an enum's variant for a protocol: `LtpT` for `ltp-t`.
fn variant(name: &str) -> String {
    let parts = name.split('-').map(|part| {
        let (first, rest) = part.split_at(1);
        first.to_uppercase() + rest
    });
    parts.collect()
}

/// Whether a pattern or operand ends before `text`.
fn ends_comparison(text: &str) -> bool {
    let text = text.trim_end();
    let is_or = text.ends_with('|') && !text.ends_with("||");
    is_or || text.ends_with("==") || text.ends_with("!=")
}

/// Whether `text` follows a pattern or an operand.
fn follows_comparison(text: &str) -> bool {
    let text = text.trim_start();
    let is_or = text.starts_with('|') && !text.starts_with("||");
    is_or || ["=>", "==", "!=", "if "].iter().any(|sign| text.starts_with(sign))
}

/// Arms and comparisons of the literal of this name.
fn literals<'a>(code: &'a str, name: &str) -> Vec<&'a str> {
    let literal = format!("\"{name}\"");
    let is_compared = |at: usize| {
        let (before, after) = (code[..at].trim_end(), &code[at + literal.len()..]);
        ends_comparison(before)
            || follows_comparison(after)
            || COMPARISONS.iter().any(|function| before.ends_with(function))
    };
    let found = code.match_indices(&literal).map(|(at, _)| at).filter(|at| is_compared(*at));
    found.map(|at| line(code, at)).collect()
}

/// Arms and comparisons of the variant of this name, for any enum.
fn variants<'a>(code: &'a str, name: &str) -> Vec<&'a str> {
    let path = format!("::{name}");
    let is_compared = |at: usize| {
        let after = &code[at + path.len()..];
        if after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            return false;
        }
        let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let before = code[..at].trim_end_matches(is_inner);
        let statement = &before[before.rfind([';', '{', '}']).map_or(0, |end| end + 1)..];
        let after = after_fields(after);
        let binds = after.trim_start().starts_with('=') && statement.trim_end().ends_with("let");
        ends_comparison(before)
            || follows_comparison(after)
            || binds
            || statement.contains("matches!(")
    };
    let found = code.match_indices(&path).map(|(at, _)| at).filter(|at| is_compared(*at));
    found.map(|at| line(code, at)).collect()
}

/// Text behind the fields of a variant.
fn after_fields(text: &str) -> &str {
    let mut depth = 0;
    let trimmed = text.trim_start();
    if !trimmed.starts_with(['(', '{']) {
        return text;
    }
    for (at, c) in trimmed.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &trimmed[at + 1..];
        }
    }
    ""
}

fn line(code: &str, at: usize) -> &str {
    let begin = code[..at].rfind('\n').map_or(0, |end| end + 1);
    code[begin..].lines().next().unwrap_or_default().trim()
}

fn arms(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for name in names() {
        found.extend(literals(code, name));
        found.extend(variants(code, &variant(name)));
    }
    found
}

#[test]
fn no_code_matches_on_a_protocol() {
    let root = root();
    let mut found = Vec::new();
    for path in rust_files(&root.join("crates")) {
        let shown = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let is_test = ["/tests/", "/tests.rs", "/benches/", "/examples/"];
        let is_exempt = is_test.iter().any(|part| shown.contains(part))
            || HOMES.iter().any(|home| shown.starts_with(home))
            || OTHER_NAMES.iter().any(|(file, _)| *file == shown);
        if !is_exempt {
            let code = code(&fs::read_to_string(&path).unwrap());
            found.extend(arms(&code).into_iter().map(|line| format!("{shown}: {line}")));
        }
    }
    let count = found.len();
    assert!(found.is_empty(), "{count} matches on a protocol:\n{}", found.join("\n"));
}

#[test]
fn figures_name_existing_protocols() {
    let style = fs::read_to_string(root().join("python/slowlight/style.py")).unwrap();
    let keys = |table: &str| {
        let begin = style.find(&format!("\n{table} = {{\n")).unwrap();
        let lines = style[begin..].lines().skip(2).take_while(|line| *line != "}");
        lines.filter_map(|line| line.split('"').nth(1)).collect::<Vec<_>>()
    };
    let variants = keys("_VARIANTS");
    let unknown: Vec<_> =
        variants.iter().filter(|name| !SHORT.iter().any(|(short, _)| short == *name)).collect();
    assert!(!variants.is_empty() && unknown.is_empty(), "no protocols: {unknown:?}");
    // The kernel's TCP, and `fp` of a paper, are contenders, but not protocols of slowlight.
    let is_known = |prefix: &&&str| SHORT.iter().any(|(short, _)| short.starts_with(**prefix));
    let prefixes = keys("_PREFIXES");
    let others: Vec<_> = prefixes.iter().filter(|prefix| !is_known(prefix)).collect();
    assert_eq!(others, [&"tcp", &"fp"]);
}

#[test]
fn matches_on_a_protocol_are_found() {
    for text in [
        "match name { \"ltp\" => 1, _ => 0 }",
        "match name { \"x\" | \"ltp\" => 1, _ => 0 }",
        "if kind.name() == \"cfdp-bp-ltp\" {}",
        "name.starts_with(\"cfdp\")",
        "for kind in [\"saratoga\"].into_iter() {}",
        "match self { Self::Saratoga(a, (b, _)) => 1 }",
        "match self { Self::Norm { .. } | Self::Other => 1 }",
        "let Kind::Ltpcl(layer) = kind else { return };",
        "matches!(kind, Kind::LtpT)",
        "if kind == Kind::ScpsFp {}",
    ] {
        assert_eq!(arms(text).len(), 1, "{text}");
    }
    for text in [
        "#[arg(default_value = \"cfdp\")]",
        "Rng::new(1, \"ltp\")",
        "config.below(\"saratoga\")",
        "let layer = Layer::Norm(config);",
        "match path { \"file\" => 1 }",
        "use crate::ltp::Ltp;",
    ] {
        assert_eq!(arms(text), Vec::<&str>::new(), "{text}");
    }
}
