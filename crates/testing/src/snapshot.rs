//! Snapshots: files in which the output of a case follows its input.
//!
//! ```text
//! # A comment.
//! $ an input
//! > of two lines
//! its output
//!
//! $ the next input
//! ```
//!
//! With `SNAPSHOTS=overwrite` in the environment a test writes the outputs.

use std::path::Path;
use std::{fs, thread};

use snapbox::data::DataFormat;
use snapbox::{Data, assert_data_eq};

/// Compares the outputs of all cases of a file, without spaces at the ends of lines.
pub fn check(path: impl AsRef<Path>, mut output: impl FnMut(&str) -> String) {
    let path = path.as_ref();
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# ") {
            found += &format!("{line}\n");
        }
        let Some(first) = line.strip_prefix("$ ") else { continue };
        found += &format!("{line}\n");
        let mut input = first.to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with('>')) {
            found += &format!("{more}\n");
            let more = more.strip_prefix('>').expect("it was found there");
            input += &format!("\n{}", more.strip_prefix(' ').unwrap_or(more));
        }
        let case = Case(&input);
        for line in output(case.0).lines() {
            let is_input = ["$ ", "# ", ">"].iter().any(|mark| line.starts_with(mark));
            assert!(!is_input, "{}: an output looks like an input: {line}", path.display());
            found += &format!("{}\n", line.trim_end());
        }
        found.push('\n');
    }
    assert!(!found.is_empty(), "{} has no cases", path.display());
    let found = format!("{}\n", found.trim_end());
    assert_data_eq!(found, Data::read_from(path, Some(DataFormat::Text)).raw());
}

/// A case, which is printed if its output panics.
struct Case<'a>(&'a str);

impl Drop for Case<'_> {
    #[expect(clippy::print_stderr, reason = "the panic does not name the case")]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("in the case {}", self.0);
        }
    }
}

/// Compares the outputs of all cases of a file in the crate's folder `testdata`.
#[macro_export]
macro_rules! snapshot {
    ($file:literal, $output:expr) => {
        $crate::snapshot::check(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/", $file), $output)
    };
}

/// A text in which the other lines of a change replace its first line.
pub fn changed(text: &str, change: &str) -> String {
    let (from, to) = change.split_once('\n').unwrap_or((change, ""));
    assert!(text.contains(from), "there is no {from}");
    text.replacen(from, to, 1)
}
