//! Prints the throughput of a bare pair of UDP sockets over loopback on this machine.
//!
//! `cargo run --release -p slowlight-bench --bin raw -- [BYTES] [DATAGRAM]`

#![expect(clippy::print_stdout, reason = "printing is its purpose")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes = arguments.next().map_or(Ok(1_000_000_000), |text| text.parse())?;
    let datagram = arguments.next().map_or(Ok(1472), |text| text.parse())?;
    let report = rt::raw::measure(bytes, datagram)?;
    println!(
        "{{\"datagram\":{},\"bytes_sent\":{},\"bytes_received\":{},\"elapsed_s\":{:.6},\
         \"goodput_bps\":{:.0},\"loss\":{:.6}}}",
        report.datagram,
        report.bytes_sent,
        report.bytes_received,
        report.elapsed.as_secs_f64(),
        report.goodput_bps(),
        report.loss()
    );
    Ok(())
}
