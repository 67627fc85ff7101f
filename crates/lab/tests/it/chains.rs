//! Chains of nodes, and transfers along them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;

/// A chain of nodes named by letters: links of 1 Mbit/s and 100 ms.
pub(crate) fn chain(nodes: &str, link: &str, more: &str) -> String {
    let names: Vec<String> = nodes.chars().map(String::from).collect();
    let mut text = format!("seed = 3\n{more}\n");
    for pair in names.windows(2) {
        for (from, to) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            text += &format!(
                "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1 Mbit/s\"\n\
                 delay = \"100 ms\"\n{link}\n"
            );
        }
    }
    text
}

/// A transfer along these nodes.
pub(crate) fn transfer(way: &str, protocol: &str, more: &str) -> String {
    let names: Vec<String> = way.chars().map(|name| format!("\"{name}\"")).collect();
    let (first, last) = (&names[0], &names[names.len() - 1]);
    let via = names[1..names.len() - 1].join(", ");
    format!(
        "[[transfers]]\nfrom = {first}\nto = {last}\nvia = [{via}]\nprotocol = {protocol:?}\n{more}\n"
    )
}

pub(crate) fn play(text: &str) -> Run {
    let scenario = Scenario::parse(text, "world.toml").unwrap().resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    run::run(&scenario, &contents, Recorders::default()).unwrap()
}
