//! Frames on the line.

use proptest::prelude::*;

use super::control::{Code, HEADER_LEN, Packet};
use super::*;

/// Returns all frames of a line.
fn frames(deframer: &mut Deframer, mut line: &[u8]) -> Vec<Result<(u16, Vec<u8>), FrameError>> {
    let mut frames = Vec::new();
    while let Some(frame) = deframer.next(&mut line) {
        frames.push(frame.map(|frame| (frame.protocol, frame.information.to_vec())));
    }
    frames
}

fn received(framing: Framing, line: &[u8]) -> Vec<Result<(u16, Vec<u8>), FrameError>> {
    frames(&mut Deframer::new(framing, MRU_DEFAULT), line)
}

fn sent(framing: Framing, protocol: u16, information: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    framing.encode(protocol, information, &mut line);
    line
}

/// Returns the framing with all options.
fn tight() -> Framing {
    Framing { accm: 0, fcs: Fcs::Bits32, compresses_address: true, compresses_protocol: true }
}

#[test]
fn the_check_sequences_are_those_of_rfc_1662() {
    // Check values of both polynomials over the nine digits.
    assert_eq!(check_sequence(Fcs::Bits16, b"123456789"), ([0x6e, 0x90, 0, 0], 2));
    assert_eq!(check_sequence(Fcs::Bits32, b"123456789"), (0xcbf4_3926_u32.to_le_bytes(), 4));
}

#[test]
fn an_lcp_request_without_options() {
    let mut packet = [0xa5; HEADER_LEN];
    let request = Packet { code: Code::ConfigureRequest, id: 1, data: &[] };
    request.encode(&mut packet).unwrap();
    let expected = [
        0x7e, 0xff, 0x7d, 0x23, 0xc0, 0x21, 0x7d, 0x21, 0x7d, 0x21, 0x7d, 0x20, 0x7d, 0x24, 0xd1,
        0xb5, 0x7e,
    ];
    // Independent of the negotiation.
    for framing in [Framing::default(), tight()] {
        assert_eq!(sent(framing, LCP, &packet), expected);
        assert_eq!(framing.encoded_len(LCP, &packet), expected.len() - 1);
        assert_eq!(received(framing, &expected), [Ok((LCP, packet.to_vec()))]);
    }
    // The 32-bit check sequence over the same bytes.
    let body = [0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 4];
    assert_eq!(check_sequence(Fcs::Bits32, &body), ([0x59, 0x12, 0xdb, 0x21], 4));
}

#[test]
fn negotiated_options_shorten_frames() {
    let len = |framing| sent(framing, IPV4, &[0x45; 100]).len();
    let base = Framing { accm: 0, ..Framing::default() };
    assert_eq!(len(base), 100 + 4 + 2 + 2);
    assert_eq!(len(Framing { fcs: Fcs::Bits32, ..base }), 100 + 4 + 4 + 2);
    assert_eq!(len(Framing { compresses_address: true, ..base }), 100 + 2 + 2 + 2);
    assert_eq!(len(Framing { compresses_protocol: true, ..base }), 100 + 3 + 2 + 2);
    assert_eq!(len(tight()), 100 + 1 + 4 + 2);
    // A protocol of two bytes stays unchanged.
    let line = sent(tight(), IPCP, &[1, 1, 0, 4]);
    assert_eq!(line[1..3], [0x80, 0x21]);
}

#[test]
fn the_map_selects_the_escaped_control_characters() {
    let framing = Framing { accm: 1 << 0x11 | 1 << 0x13, ..tight() };
    let line = sent(framing, IPV4, &[0x11, 0x12, 0x13, 0x7d, 0x7e, 0x20]);
    assert_eq!(line[1..11], [0x21, 0x7d, 0x31, 0x12, 0x7d, 0x33, 0x7d, 0x5d, 0x7d, 0x5e]);
    // Bytes inserted by the line are dropped, also after an escape.
    let mut noisy = Vec::new();
    for byte in &line {
        noisy.extend([*byte, 0x11, 0x13]);
    }
    assert_eq!(received(framing, &noisy), received(framing, &line));
    assert!(received(framing, &line)[0].is_ok());
}

#[test]
fn frames_share_flags_and_pieces_do_not_matter() {
    let mut line = vec![0x55, 0x7e, 0x7e];
    for (protocol, information) in [(IPV4, &b"one"[..]), (IPV6, b"two"), (VJ_COMPRESSED, b"")] {
        Framing::default().encode(protocol, information, &mut line);
    }
    assert_eq!(line.iter().filter(|byte| **byte == FLAG).count(), 5);
    let expected =
        [Ok((IPV4, b"one".to_vec())), Ok((IPV6, b"two".to_vec())), Ok((VJ_COMPRESSED, Vec::new()))];
    assert_eq!(received(Framing::default(), &line), expected);
    let mut deframer = Deframer::new(Framing::default(), MRU_DEFAULT);
    let pieces: Vec<_> = line.iter().flat_map(|byte| frames(&mut deframer, &[*byte])).collect();
    assert_eq!(pieces, expected);
}

#[test]
fn a_frame_is_dropped_with_its_reason_and_the_next_one_is_read() {
    let good = sent(Framing::default(), IPV4, b"good");
    let with = |bad: &[u8]| {
        let line = [&[FLAG], bad, &good[..]].concat();
        let mut frames = received(Framing::default(), &line);
        assert_eq!(frames.pop(), Some(Ok((IPV4, b"good".to_vec()))));
        frames
    };
    assert_eq!(with(&[0xff, ESCAPE]), [Err(FrameError::Aborted)]);
    assert_eq!(with(&[0xff]), [Err(FrameError::Short)]);
    assert_eq!(with(&[0xff; 1_507]), [Err(FrameError::Long)]);
    let mut damaged = good.clone();
    damaged[7] ^= 1;
    assert_eq!(with(&damaged[1..damaged.len() - 1]), [Err(FrameError::Check)]);
    let mut odd = Vec::new();
    for body in [&[0xff, 0x7d, 0x23, 0x40, 0x40][..], &[0xff, 0x7d, 0x23]] {
        let (fcs, _) = check_sequence(
            Fcs::Bits16,
            if body.len() == 5 { &[0xff, 3, 0x40, 0x40] } else { &[0xff, 3] },
        );
        Framing::default().stuff(&fcs[..2], &mut odd);
        let frame = [body, &odd[..]].concat();
        let expected = if body.len() == 5 { FrameError::Protocol } else { FrameError::Short };
        assert_eq!(with(&frame), [Err(expected)]);
        odd.clear();
    }
}

fn framings() -> impl Strategy<Value = Framing> {
    let fcs = prop_oneof![Just(Fcs::Bits16), Just(Fcs::Bits32)];
    (any::<u32>(), fcs, any::<bool>(), any::<bool>()).prop_map(
        |(accm, fcs, compresses_address, compresses_protocol)| Framing {
            accm,
            fcs,
            compresses_address,
            compresses_protocol,
        },
    )
}

proptest! {
    #[test]
    fn any_information_round_trips(
        framing in framings(),
        // Upper byte even, lower byte odd, and not the address.
        protocol in (0_u16..0x7f, 0_u16..0x80).prop_map(|(high, low)| high << 9 | low << 1 | 1),
        information in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let line = sent(framing, protocol, &information);
        prop_assert_eq!(line.len() - 1, framing.encoded_len(protocol, &information));
        let inside = &line[1..line.len() - 1];
        let escapes = |byte: &u8| framing.for_protocol(protocol).escapes(*byte) && *byte != ESCAPE;
        prop_assert!(!inside.iter().any(escapes));
        prop_assert_eq!(received(framing, &line), [Ok((protocol, information))]);
    }

    #[test]
    fn one_damaged_byte_of_data_never_passes(
        framing in framings(),
        information in prop::collection::vec(any::<u8>(), 0..60),
        place: prop::sample::Index,
        flip in 1_u8..=255,
    ) {
        let mut line = sent(framing, IPV4, &information);
        let at = 1 + place.index(line.len() - 2);
        let is_data = |byte: u8| byte >= 0x20 && byte != FLAG && byte != ESCAPE;
        prop_assume!(is_data(line[at]) && is_data(line[at] ^ flip));
        line[at] ^= flip;
        // At most eight consecutive bits, which both polynomials detect.
        prop_assert_eq!(received(framing, &line), [Err(FrameError::Check)]);
    }

    #[test]
    fn arbitrary_lines_never_panic(framing in framings(), line in prop::collection::vec(any::<u8>(), 0..300)) {
        for frame in frames(&mut Deframer::new(framing, 20), &line).into_iter().flatten() {
            prop_assert!(frame.1.len() <= 24);
        }
    }
}
