//! Toy, a protocol outside slowlight: pieces of a file, each acknowledged before the next one is
//! sent. It registers its layer, and a scenario sends a file by it over a lossy link.
//!
//! `cargo run --package slowlight-lab --example toy`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

mod adapter;
mod node;
mod packet;

use std::error::Error;

use slowlight_lab::run::{self, Recorders};
use slowlight_lab::scenario::Scenario;

const SCENARIO: &str = r#"
seed = 1

[[links]]
from = "moon"
to = "earth"
rate = "1 Mbit/s"
delay = "1.3 s"
per = "0.3"

[[links]]
from = "earth"
to = "moon"
rate = "1 Mbit/s"
delay = "1.3 s"
per = "0.3"

[[transfers]]
from = "moon"
to = "earth"
size = "10 kB"
protocol = "toy"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    transport::protocol::register(&[adapter::LAYER])?;
    let scenario = Scenario::parse(SCENARIO, "toy")?.resolved()?;
    let contents = run::contents(&scenario)?;
    let trace = Some(Box::new(std::io::stdout()) as _);
    let world = run::run(&scenario, &contents, Recorders { trace, ..Recorders::default() })?;
    let transfer = &world.transfers[0];
    assert!(transfer.verified, "the file arrives undamaged: {transfer:?}");
    println!("{} bytes arrived undamaged", contents[0].len());
    Ok(())
}
