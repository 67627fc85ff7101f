//! Error messages about long input: they quote little of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use crate::bounded::output;

/// Runs a command that must fail, and returns its message.
fn fault(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    let output = output(command.args(args).env_remove("RUST_LOG"));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{message}");
    message
}

#[test]
fn errors_quote_little_of_a_long_line() {
    let folder = tempfile::tempdir().unwrap();
    let long = "A".repeat(1_000_000);
    let fault_in = |name: &str, text: &str, before: &[&str], after: &[&str]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text.replace('@', &long)).unwrap();
        let path: &Path = &path;
        let message = fault(&[before, &[path.to_str().unwrap()], after].concat());
        let begin: String = message.chars().take(300).collect();
        assert!(message.len() <= 2048, "{name}, {} bytes: {begin}", message.len());
        assert!(message.contains("AAAA") && message.contains('…'), "{name}: {message}");
    };
    for text in ["rate = '@'", "@ = 1", "rate = @", "rate = ['@']", "delay = '1 @'", "[[@]]"] {
        fault_in("link.toml", text, &["compare", "--link"], &["--size", "1 kB"]);
    }
    for (name, text) in [
        ("plan.ionrc", "a contact +0 +10 1 2 @"),
        ("plan.ionrc", "a contact @ +10 1 2 1"),
        ("plan.ionrc", "@"),
        ("hdtn.json", "{\"contacts\": [{\"contact\": \"@\"}]}"),
        ("plan.cp", "@"),
        ("plan.cp", "node @"),
        ("plan.tvg", "{\"vertices\": {}, \"edges\": [], \"contact_type\": \"@\"}"),
        (
            "plan.tvg",
            "{\"vertices\": {}, \"edges\": [{\"contacts\": [[\"@\", \"b\", 0, 1, [[0, 1, []]]]]}]}",
        ),
        ("plan.toml", "[[contact]]\nfrom = '@'"),
    ] {
        fault_in(name, text, &["route"], &["--from", "1", "--to", "2"]);
    }
    for text in ["seed = '@'", "seed = 1\n@ = 2", "seed = 1\n[nodes.a]\nprotocol = '@'"] {
        fault_in("scenario.toml", text, &["sim"], &[]);
    }
    for text in ["seed = '@'", "@ = 2"] {
        fault_in("study.toml", text, &["study", "run"], &[]);
    }
    for text in ["id = '@'", "@ = 1", "id = 'ipn:1.0'\n[[layer]]\nkind = '@'"] {
        fault_in("node.toml", text, &["node", "--check"], &[]);
    }
    fault_in("digits", "AA @z", &["decode"], &[]);
}

#[test]
fn errors_quote_little_of_a_long_value() {
    let long = "A".repeat(100_000);
    let link = ["compare", "--size", "1 kB", "--link"];
    for args in [
        &[&link[..], &[&long]].concat()[..],
        &["compare", "--link", "leo", "--size", &long],
        &[&link[..], &["leo", "--rate", &long]].concat(),
        &[&link[..], &["leo", "--outage", &long]].concat(),
        &["compare", "--protocols", &long],
        &["send", &long, "127.0.0.1:1"],
        &["route", &long],
        &[&long],
        &["decode", "--protocol", &long, "00"],
    ] {
        let message = fault(args);
        assert!(message.len() <= 2048, "{} {}, {}", args[0].len(), args.len(), message.len());
    }
}

/// A file of any length that is neither a capture nor digits is refused after its beginning.
#[test]
fn a_long_file_without_pdus_is_refused_after_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros");
    // Without blocks on the disk. All of it does not fit the memory.
    std::fs::File::create(&path).unwrap().set_len(1 << 36).unwrap();
    let message = fault(&["decode", path.to_str().unwrap()]);
    assert!(message.contains("is neither a capture nor hexadecimal"), "{message}");
    assert!(message.len() <= 2048, "{}", message.len());
}
