use clap::Parser as _;
use tcp::{Buffer, InitialWindow, LossRecovery, Options, Profile};
use transport::settings::tcp::TcpBuffers;

use super::options::{Room, TcpOptions};

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    tcp: TcpOptions,
}

fn options(line: &str) -> Options {
    let words = ["tcp"].into_iter().chain(line.split('|').filter(|word| !word.is_empty()));
    Line::try_parse_from(words).unwrap().tcp.options().unwrap()
}

#[test]
fn without_options_it_is_the_profile_of_today_with_unlimited_buffers() {
    // On real paths packets that are too long may vanish.
    let mut modern = Options { mtu_probing: true, ..Profile::Modern.options() };
    TcpBuffers::Linux.apply(&mut modern);
    assert_eq!(options("--tcp-buffers|linux"), modern);
    TcpBuffers::Unlimited.apply(&mut modern);
    assert_eq!(options(""), modern);
}

#[test]
fn every_option_changes_something() {
    let lines = [
        "--congestion|reno",
        "--mtu-probing|off",
        "--tcp-buffers|linux",
        "--recovery|sack",
        "--window-scale|off",
        "--timestamps|off",
        "--sack|off",
        "--duplicate-sack|off",
        "--rack|off",
        "--tail-loss-probe|off",
        "--limited-transmit|off",
        "--undo|off",
        "--ecn|on",
        "--nagle|off",
        "--minshall|off",
        "--pacing|on",
        "--ack-every|1",
        "--ack-delay|200 ms",
        "--quick-acks|0",
        "--mss|536",
        "--initial-window|rfc3390",
        "--after-pause|keep",
        "--send-buffer|64KiB",
        "--receive-buffer|auto:1MiB",
        "--rto-min|1 s",
        "--rto-max|60 s",
        "--rto-initial|3 s",
        "--syn-retries|2",
        "--retries|5",
        "--keep-alive|10 s",
        "--hop-limit|9",
        "--dscp|46",
        "--ack-every|0",
        "--scps",
        "--scps|--snack|bits",
        "--scps|--snack|off",
        "--scps|--snack-delay|20 ms",
        "--scps|--assume|corruption",
        "--scps|--route-rate|2 Mbit/s",
        "--scps|--scps-protocol|scps",
        "--scps|--compress-headers",
    ];
    let plain = options("");
    let mut known = vec![plain];
    for line in lines {
        let options = options(line);
        assert!(!known.contains(&options), "{line}");
        known.push(options);
    }
    assert_eq!(options("--recovery|rate-halving").recovery, LossRecovery::RateHalving);
    assert_eq!(options("--initial-window|4").initial_window, InitialWindow::Segments(4));
    assert_eq!(options("--send-buffer|64KiB").send_buffer, Buffer::Fixed(65_536));
}

#[test]
fn the_least_time_out_is_not_above_the_most() {
    let line = Line::try_parse_from(["tcp", "--rto-max", "100 ms"]).unwrap();
    let message = line.tcp.options().unwrap_err().to_string();
    assert!(message.contains("--rto-min 200 ms is above --rto-max 100 ms"), "{message}");
    assert_eq!(options("--rto-max|100 ms|--rto-min|100 ms").timeouts.max.as_millis(), 100);
}

#[test]
fn buffers_are_sizes_or_grow() {
    assert_eq!("auto".parse(), Ok(Room::Auto(None)));
    assert_eq!("auto:1MiB".parse(), Ok(Room::Auto(Some(1 << 20))));
    assert_eq!("5kB".parse(), Ok(Room::Fixed(5000)));
    for wrong in ["0B", "auto:", "auto:x", "x", "fixed:1MiB"] {
        assert!(wrong.parse::<Room>().is_err(), "{wrong}");
    }
}
