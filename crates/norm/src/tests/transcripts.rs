//! Transcripts, message by message, when certain messages are lost.

use crate::message::{Ack, Body, Command, Flags, Message, RequestFlags};

use super::world::{World, content};
use crate::{Config, Scheme};

/// Two blocks of four segments, with two parity segments each.
const SIZE: usize = 8 * 992;

fn small(parity: u16, auto_parity: u16) -> Config {
    let mut config = Config::default();
    config.sender.block_len = 4;
    config.sender.parity = parity;
    config.sender.auto_parity = auto_parity;
    config.sender.info_every = 0;
    config.sender.tail_parity = false;
    config
}

/// Short text of a message; `None` for probes of the round trip and replies to them.
fn brief(datagram: &[u8]) -> Option<String> {
    let message = Message::decode(datagram).expect("nodes send messages");
    Some(match message.body {
        Body::Info(_) => "INFO".to_owned(),
        Body::Data(data) => {
            let repair = if data.flags.contains(Flags::REPAIR) { " again" } else { "" };
            format!("{}/{}{repair}", data.id.block, data.id.symbol)
        }
        Body::Command(Command::Flush { id, .. }) => format!("FLUSH {}/{}", id.block, id.symbol),
        Body::Command(Command::Squelch { .. }) => "SQUELCH".to_owned(),
        Body::Command(Command::Cc { .. }) => return None,
        Body::Command(other) => format!("{other:?}"),
        Body::Nack(nack) => {
            let mut words = vec!["NACK".to_owned()];
            for request in nack.requests.iter() {
                for (first, last) in request.ranges() {
                    let (from, to) = (first.id, last.id);
                    words.push(match request.flags {
                        RequestFlags::INFO => "info".to_owned(),
                        RequestFlags::BLOCK => format!("{}-{}", from.block, to.block),
                        RequestFlags::SEGMENT if from == to => {
                            format!("{}/{}", from.block, from.symbol)
                        }
                        RequestFlags::SEGMENT => {
                            format!("{}/{}-{}", from.block, from.symbol, to.symbol)
                        }
                        _ => "all".to_owned(),
                    });
                }
            }
            words.join(" ")
        }
        Body::Ack(ack) if ack.kind == Ack::FLUSH => "ACK".to_owned(),
        Body::Ack(_) => return None,
        Body::Report(_) => "REPORT".to_owned(),
    })
}

/// Transcript when `lost` messages are lost, given by their text and their number among equal
/// ones.
fn lines(config: &Config, lost: &'static [(&'static str, usize)]) -> Vec<String> {
    let mut world = World::with(config);
    let mut found = Vec::new();
    world.lose(move |_, _, datagram| {
        let Some(words) = brief(datagram) else { return false };
        let before = found.iter().filter(|other| **other == words).count();
        found.push(words.clone());
        lost.iter().any(|(lost, number)| *lost == words && *number == before)
    });
    let file = content(SIZE);
    world.send(&file);
    world.run();
    world.assert_delivered(&file);
    let lines = world.log.iter().filter_map(|sent| Some(sent.line(&brief(&sent.bytes)?)));
    lines.collect()
}

/// Asserts the transcript from the first flush on; everything before is the first transmission.
#[track_caller]
fn assert_lines(config: &Config, lost: &'static [(&'static str, usize)], expected: &[&str]) {
    let lines = lines(config, lost);
    let data = lines.iter().take_while(|line| !line.contains("FLUSH")).count();
    let blocks = if config.sender.parity > 0 { 2 } else { 3 };
    let segments = if config.sender.parity > 0 { 8 } else { 9 };
    assert_eq!(data, 1 + segments + blocks * usize::from(config.sender.auto_parity), "{lines:#?}");
    assert_eq!(lines[data..], *expected, "{lines:#?}");
}

#[test]
fn transfers_without_losses() {
    // The second flush names the receiver, which is known by then.
    let lines = ["> FLUSH 1/3", "< ACK", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[], &lines);
    assert_lines(&small(2, 1), &[], &lines);
}

#[test]
fn lost_norm_info_is_repaired() {
    let lines = ["> FLUSH 1/3", "< NACK info", "> FLUSH 1/3", "> INFO", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("INFO", 0)], &lines);
}

#[test]
fn lost_segments_are_repaired() {
    let lines = ["> FLUSH 1/3", "< NACK 0/4", "> FLUSH 1/3", "> 0/4 again", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("0/1", 0)], &lines);
    let lines = [
        "> FLUSH 1/3",
        "< NACK 0/4",
        "< NACK 1/4 1/5",
        "> FLUSH 1/3",
        "> 0/4 again",
        "> FLUSH 1/3",
        "> 1/4 again",
        "> 1/5 again",
        "> FLUSH 1/3",
        "< ACK",
    ];
    assert_lines(&small(2, 0), &[("0/1", 0), ("1/0", 0), ("1/2", 0)], &lines);
}

#[test]
fn lost_ends_are_repaired() {
    let lines = ["> FLUSH 1/3", "< NACK 1/4", "> FLUSH 1/3", "> 1/4 again", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("1/3", 0)], &lines);
    let lines = [">x FLUSH 1/3", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("FLUSH 1/3", 0)], &lines);
    let lines =
        [">x FLUSH 1/3", "> FLUSH 1/3", "< NACK 1/4", "> 1/4 again", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("1/3", 0), ("FLUSH 1/3", 0)], &lines);
}

#[test]
fn lost_requests_are_repeated() {
    let lines = [
        "> FLUSH 1/3",
        "<x NACK 0/4",
        "> FLUSH 1/3",
        "< NACK 0/4",
        "> 0/4 again",
        "> FLUSH 1/3",
        "< ACK",
    ];
    assert_lines(&small(2, 0), &[("0/1", 0), ("NACK 0/4", 0)], &lines);
}

#[test]
fn lost_repairs_are_repeated() {
    // A segment is not sent twice while there is unsent parity.
    let lines = [
        "> FLUSH 1/3",
        "< NACK 0/4",
        "> FLUSH 1/3",
        ">x 0/4 again",
        "> FLUSH 1/3",
        "< NACK 0/4",
        "> 0/5 again",
        "> FLUSH 1/3",
        "< ACK",
    ];
    assert_lines(&small(2, 0), &[("0/1", 0), ("0/4 again", 0)], &lines);
    // After two requests without effect, the next ones follow sooner.
    let lines = [
        "> FLUSH 1/3",
        "< NACK 0/4",
        "> FLUSH 1/3",
        ">x 0/4 again",
        "> FLUSH 1/3",
        "< NACK 0/4",
        ">x 0/5 again",
        "> FLUSH 1/3",
        "< NACK 0/4",
        "> 0/4 again",
        "> FLUSH 1/3",
        "< NACK 0/4",
        "< ACK",
    ];
    assert_lines(&small(2, 0), &[("0/1", 0), ("0/4 again", 0), ("0/5 again", 0)], &lines);
}

#[test]
fn lost_acknowledgements_are_repeated() {
    let lines = ["> FLUSH 1/3", "<x ACK", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 0), &[("ACK", 0)], &lines);
}

#[test]
fn lost_blocks_are_repaired() {
    let lines = [
        "> FLUSH 1/3",
        "< NACK 0-0",
        "> FLUSH 1/3",
        "> 0/0 again",
        "> 0/1 again",
        "> 0/2 again",
        "> 0/3 again",
        "> FLUSH 1/3",
        "< ACK",
    ];
    let lost: &[_] = &[("0/0", 0), ("0/1", 0), ("0/2", 0), ("0/3", 0)];
    let transcript = self::lines(&small(2, 0), lost);
    // The flush under way requests an acknowledgement again.
    assert_eq!(transcript[9..18], lines, "{transcript:#?}");
}

#[test]
fn losses_beyond_parity_are_requested() {
    let lines = [
        "> FLUSH 1/3",
        "< NACK 0/2 0/4 0/5",
        "> FLUSH 1/3",
        "> 0/4 again",
        "> 0/5 again",
        "> 0/2 again",
        "> FLUSH 1/3",
        "< ACK",
    ];
    assert_lines(&small(2, 0), &[("0/0", 0), ("0/1", 0), ("0/2", 0)], &lines);
}

#[test]
fn proactive_parity_covers_losses() {
    let lines = ["> FLUSH 1/3", "< ACK", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 1), &[("0/0", 0), ("1/1", 0)], &lines);
    // Any parity will do: unsent segments are sent.
    let lines = ["> FLUSH 1/3", "< NACK 0/4", "> FLUSH 1/3", "> 0/5 again", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 1), &[("0/0", 0), ("0/4", 0)], &lines);
    let lines = ["> FLUSH 1/3", "< NACK 0/5", "> FLUSH 1/3", "> 0/5 again", "> FLUSH 1/3", "< ACK"];
    assert_lines(&small(2, 1), &[("0/0", 0), ("0/1", 0)], &lines);
}

#[test]
fn segments_are_requested_without_a_code() {
    let mut config = small(0, 0);
    config.sender.fec = Scheme::NoCode;
    let lines = [
        "> FLUSH 2/2",
        "< NACK 0/0 0/2",
        "> FLUSH 2/2",
        "> 0/0 again",
        "> 0/2 again",
        "> FLUSH 2/2",
        "< ACK",
    ];
    assert_lines(&config, &[("0/0", 0), ("0/2", 0)], &lines);
}
