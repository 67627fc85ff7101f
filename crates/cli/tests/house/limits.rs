//! Limits on the size of files, functions and structs. An item above a limit has several
//! responsibilities: split its state by ownership, not its text.

use std::fs;

use super::dependency_directions::{root, sources};

const FILE_LINES_MAX: usize = 700;
/// From `fn` to the closing brace, including comments.
const FUNCTION_LINES_MAX: usize = 70;
const STRUCT_FIELDS_MAX: usize = 25;

#[test]
fn files_functions_and_structs_are_small() {
    let root = root();
    let mut faults = Vec::new();
    let rust = sources("rs").into_iter().map(|path| (path, true));
    for (path, is_rust) in rust.chain(sources("py").into_iter().map(|path| (path, false))) {
        let shown = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        let items = if is_rust { large_items(&text) } else { Vec::new() };
        let large = large_file(&text).into_iter().chain(items);
        faults.extend(large.map(|large| format!("{shown}: {large}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// An item that exceeds its limit.
#[derive(Debug, PartialEq)]
struct Large {
    /// Name of the function or struct; `file` for the file itself.
    name: String,
    size: usize,
    max: usize,
    unit: &'static str,
}

impl std::fmt::Display for Large {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, size, max, unit } = self;
        write!(f, "{name} has {size} {unit}; at most {max}")
    }
}

fn large_file(text: &str) -> Option<Large> {
    let (name, size) = ("file".to_owned(), text.lines().count());
    (size > FILE_LINES_MAX).then_some(Large { name, size, max: FILE_LINES_MAX, unit: "lines" })
}

fn large_items(text: &str) -> Vec<Large> {
    let mut found = Vec::new();
    let mut check = |name: &str, size: usize, max: usize, unit: &'static str| {
        if size > max {
            found.push(Large { name: name.to_owned(), size, max, unit });
        }
    };
    let code = code_of(text);
    for (at, name) in items(&code, "fn ") {
        if let Some((_, end)) = body(&code, at) {
            let lines = code[at..end].matches('\n').count() + 1;
            check(name, lines, FUNCTION_LINES_MAX, "lines");
        }
    }
    for (at, name) in items(&code, "struct ") {
        if let Some((begin, end)) = body(&code, at) {
            check(name, fields(&code[begin..end]), STRUCT_FIELDS_MAX, "fields");
        }
    }
    found
}

/// Positions and names of items that start with `keyword`.
fn items<'a>(code: &'a str, keyword: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.match_indices(keyword).filter_map(|(at, _)| {
        let before = code[..at].chars().next_back();
        let rest = &code[at + keyword.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_item = before.is_none_or(|c| !c.is_alphanumeric() && c != '_') && end > 0;
        is_item.then_some((at, &rest[..end]))
    })
}

/// From the opening brace of an item to behind its closing one; `None` if it has no braces.
fn body(code: &str, at: usize) -> Option<(usize, usize)> {
    let mut depth = 0;
    let mut begin = None;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' => {
                if depth == 0 && begin.is_none() {
                    begin = Some(at + offset);
                }
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return begin.map(|begin| (begin, at + offset + 1));
                }
            }
            ';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Number of fields of a struct, by the colons after their names.
fn fields(body: &str) -> usize {
    let mut depth = 0;
    let mut count = 0;
    let mut before = ' ';
    for (at, c) in body.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            ':' if depth == 1 && before != ':' && !body[at + 1..].starts_with(':') => count += 1,
            _ => {}
        }
        before = c;
    }
    count
}

/// The text without comments and the content of literals, line for line.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = skipped(rest, code.chars().next_back());
        if skipped > 0 {
            // Only line ends matter, not the kind of a token.
            code.push_str(if c == '/' { "" } else { "0" });
            code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        } else {
            code.push(c);
        }
        rest = &rest[skipped.max(c.len_utf8() * usize::from(skipped == 0))..];
    }
    code
}

/// Length of the comment or literal at the start of `rest`, 0 if there is none.
fn skipped(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let raw = rest.trim_start_matches(['b', 'r']);
    if !in_word && raw.len() < rest.len() && rest[..rest.len() - raw.len()].ends_with('r') {
        let fence = raw.len() - raw.trim_start_matches('#').len();
        if raw[fence..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(fence));
            let inner = &raw[fence + 1..];
            let len = inner.find(&close).map_or(inner.len(), |at| at + close.len());
            return rest.len() - inner.len() + len;
        }
    }
    // A lifetime has no closing quote.
    let mut chars = rest.strip_prefix('\'').unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 0,
    }
}

/// Length of a literal in `quote`, its quotes included.
fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

#[test]
fn large_items_are_found() {
    let lines = "    call();\n".repeat(69);
    let long = format!("fn long(a: [u8; 2]) {{\n{lines}}}\n");
    let found = large_items(&long);
    assert_eq!((found.len(), found[0].name.as_str(), found[0].size), (1, "long", 71));
    let short =
        format!("fn f() {{\n{}}}\nfn g();\n", "    call(\"{\", '{', b'}', r#\"{\"#);\n".repeat(68));
    assert_eq!(large_items(&short), []);
    let wide = format!(
        "struct Wide<'a> {{\n{}}}\n",
        "    /// a: b\n    pub f: m::T<u8, (u8, &'a u8)>,\n".repeat(26)
    );
    let found = large_items(&wide);
    assert_eq!((found.len(), found[0].name.as_str(), found[0].size), (1, "Wide", 26));
    let comments = "// fn {\n".repeat(701);
    assert_eq!(large_items(&comments), []);
    assert_eq!(large_file(&comments).map(|large| large.size), Some(701));
    assert_eq!(large_file(&comments[8..]), None);
}
