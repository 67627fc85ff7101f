//! Bytes sent to an engine that never replies: at most three times those that arrived, without the
//! headers of IP and UDP on both sides.

use engine::Time;

use super::world::World;
use crate::segment::{
    Body, CancelReason, Checkpoint, Claims, Data, DataKind, End, Report, Segment, SessionId,
};
use crate::{Config, FILE_SERVICE, Format};

const SESSION: SessionId = SessionId { originator: 1, number: 4711 };

/// Bytes that arrive and bytes sent in an hour by an engine whose peer never replies.
fn check(what: &str, config: &Config, bodies: &[Body<'_>]) {
    let mut world = World::with(config);
    world.lose(|_, _, _| true);
    let mut arrived = 0;
    for body in bodies {
        let segment = Segment::new(SESSION, *body).to_vec().expect("a segment");
        arrived += segment.len();
        world.hear(1, &segment);
    }
    world.run_until(Time::from_secs(3600));
    let sent: usize = world.log.iter().map(|sent| sent.bytes.len()).sum();
    println!("{what}: {arrived} B in, {sent} B out");
    assert!(sent <= 3 * arrived, "{what}: {arrived} B in, {sent} B out");
}

fn data(kind: DataKind, service: u64, offset: u64, data: &[u8]) -> Body<'_> {
    let checkpoint = kind.is_checkpoint().then_some(Checkpoint { serial: 1 + offset, report: 0 });
    Body::Data(Data { kind, service, offset, checkpoint, data })
}

fn configs() -> [(&'static str, Config); 2] {
    let raw = Config { format: Format::Raw { name: "copy".to_owned() }, ..Config::default() };
    [("described", Config::default()), ("raw", raw)]
}

#[test]
fn no_segment_is_amplified() {
    for (format, config) in configs() {
        for kind in [
            DataKind::Red,
            DataKind::Checkpoint,
            DataKind::EndOfRedPart,
            DataKind::EndOfRedBlock,
            DataKind::Green,
            DataKind::EndOfGreenBlock,
        ] {
            for (service, offset) in [(FILE_SERVICE, 0), (FILE_SERVICE, 5000), (99, 0)] {
                let what = format!("{kind:?} {format}, service {service}, offset {offset}");
                check(&what, &config, &[data(kind, service, offset, b"x")]);
            }
        }
        let report =
            Report { serial: 1, checkpoint: 1, upper: 9, lower: 0, claims: Claims::new(&[]) };
        for body in [
            Body::ReportAck { serial: 1 },
            Body::Cancel { by: End::Sender, reason: CancelReason::User },
            Body::CancelAck { by: End::Receiver },
            Body::Report(report),
        ] {
            check(&format!("{body:?}"), &config, &[body]);
        }
    }
}

#[test]
fn no_block_is_amplified() {
    for (format, config) in configs() {
        let end = data(DataKind::EndOfRedBlock, FILE_SERVICE, 1, b"y");
        let block = [data(DataKind::Red, FILE_SERVICE, 0, b"x"), end];
        check(&format!("{format} block of 2 B"), &config, &block);
        // Then it is over, and the checkpoint is repeated.
        let again = [&block[..], &[end; 20]].concat();
        check(&format!("{format} block, checkpoint repeated"), &config, &again);
        let gaps = (0..300).map(|n| data(DataKind::Red, FILE_SERVICE, 5 * n, b"x"));
        let end = data(DataKind::EndOfRedBlock, FILE_SERVICE, 5000, b"x");
        let gaps: Vec<_> = gaps.chain([end]).collect();
        check(&format!("{format}, 300 gaps"), &config, &gaps);
        let miscolored = [
            data(DataKind::Green, FILE_SERVICE, 0, b"x"),
            data(DataKind::Red, FILE_SERVICE, 5000, b"x"),
        ];
        check(&format!("{format}, miscolored"), &config, &miscolored);
    }
}
