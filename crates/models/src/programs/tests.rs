//! Peers that violate the protocols, and statistics of delays.

use std::time::Duration;

use engine::{
    Effect, Engine, FileName, Input, PathEffect, PathEvent, PathId, PathInfo, Receive, Rng, Time,
};
use proptest::prelude::*;

use super::*;

const PATH: PathId = PathId(1);
const TOOLS: [Tool; 5] = [Tool::Scp, Tool::Sftp, Tool::Rsync, Tool::RsyncDaemon, Tool::Telnet];

fn node(tool: Tool) -> Node {
    let config = Config { costs: Costs::none(), ..Config::new(tool, Version::default()) };
    Node::new(config, Rng::new(1, "program"))
}

/// Output of a node until nothing is left, with time passing as needed.
fn drain(node: &mut Node, now: &mut Time) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut tx = TxBuf::new(1);
    for _ in 0..10_000 {
        while node.poll_effect().is_some() {}
        while node.poll_indication().is_some() {}
        tx.clear();
        if node.poll_transmit(*now, &mut tx).is_some() {
            sent.extend_from_slice(tx.bytes());
            continue;
        }
        match node.poll_timeout().filter(|next| next.at < *now + Duration::from_secs(1)) {
            Some(next) => {
                *now = next.at.max(*now);
                node.handle_timeout(*now);
            }
            None => return sent,
        }
    }
    panic!("it does not come to rest");
}

#[test]
fn time_quantiles_follow_the_order() {
    let ms = Duration::from_millis;
    assert_eq!(Latency::from_times(Vec::new()), None);
    let one = Latency::from_times(vec![ms(7)]).unwrap();
    assert_eq!(
        (one.min, one.median, one.p95, one.p99, one.max),
        (ms(7), ms(7), ms(7), ms(7), ms(7))
    );
    let many = Latency::from_times((1..=200).rev().map(ms).collect()).unwrap();
    assert_eq!(many.count, 200);
    let progress = (many.min, many.median, many.p95, many.p99, many.max);
    assert_eq!(progress, (ms(1), ms(100), ms(190), ms(198), ms(200)));
}

#[test]
fn clients_send_their_version_first_and_wait() {
    let mut now = Time::from_secs(1);
    let mut node = node(Tool::Sftp);
    node.put(PATH, FileName::file("a").unwrap(), "b").unwrap();
    let up = PathEvent::Up(PathInfo::stream());
    node.handle_input(now, Input::Path(PATH, up));
    let sent = drain(&mut node, &mut now);
    assert_eq!(sent.len(), 41);
    assert!(sent.starts_with(b"SSH-2.0-") && sent.ends_with(b"\r\n"));
    node.handle_input(now, Input::Receive(Receive::datagram(PATH, b"SSH-2.0-else\r\n")));
    // As in the capture of a KEXINIT.
    assert_eq!(drain(&mut node, &mut now).len(), 1560);
    assert_eq!(node.under_way(), 1);
    node.handle_input(now, Input::Path(PATH, PathEvent::ReadClosed));
    let mut failed = false;
    while let Some(progress) = node.poll_indication() {
        failed |= matches!(progress, Indication::Failed { why: Failure::Login, .. });
    }
    assert!(failed);
    assert_eq!(node.under_way(), 0);
    assert!(node.poll_timeout().is_none());
}

#[test]
fn names_that_no_program_accepts_are_refused() {
    let mut node = node(Tool::Scp);
    let file = FileName::file("a").unwrap();
    for name in ["", "a\nb", &"x".repeat(5000)] {
        assert_eq!(node.put(PATH, file.clone(), name), Err(RequestError::Name), "{name}");
    }
    node.config.limits.requests = 2;
    node.core.limits.requests = 2;
    for _ in 0..3 {
        node.put(PATH, file.clone(), "b").unwrap();
    }
    assert_eq!(node.put(PATH, file, "b"), Err(RequestError::Full));
}

proptest! {
    #[test]
    fn random_input_does_not_break_a_node(
        tool in 0..TOOLS.len(),
        is_client in any::<bool>(),
        begins in any::<bool>(),
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        small in any::<bool>(),
    ) {
        let mut now = Time::from_secs(1);
        let mut node = node(TOOLS[tool]);
        if is_client {
            node.put(PATH, FileName::file("a").unwrap(), "b").unwrap();
        }
        node.handle_input(now, Input::Path(PATH, PathEvent::Up(PathInfo::stream())));
        drain(&mut node, &mut now);
        let version = begins.then(|| b"SSH-2.0-x\r\n".to_vec());
        for mut piece in version.into_iter().chain(pieces) {
            if small {
                // Small numbers are often plausible lengths.
                piece.iter_mut().step_by(2).for_each(|byte| *byte %= 4);
            }
            node.handle_input(now, Input::Receive(Receive::datagram(PATH, &piece)));
            drain(&mut node, &mut now);
        }
        node.handle_input(now, Input::Path(PATH, PathEvent::Down));
        drain(&mut node, &mut now);
        prop_assert_eq!(node.under_way(), 0);
        prop_assert!(node.poll_timeout().is_none());
    }
}

#[test]
fn unknown_peers_beyond_the_limit_are_refused() {
    let mut node = node(Tool::Telnet);
    node.core.limits.sessions = 1;
    for path in [1, 2] {
        let up = PathEvent::Up(PathInfo::stream());
        node.handle_input(Time::ZERO, Input::Path(PathId(path), up));
    }
    let closed = std::iter::from_fn(|| node.poll_effect())
        .any(|effect| effect == Effect::Path(PathEffect::Close { path: PathId(2) }));
    assert!(closed);
    assert_eq!(node.poll_indication(), Some(Indication::Refused { path: PathId(2) }));
}
