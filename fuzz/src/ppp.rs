//! Bytes of a serial line: PPP's frames, and compressed headers in them.

use wire::ppp::control::{IpcpOption, LcpOption, Packet};
use wire::ppp::{Deframer, Fcs, Framing, LCP};
use wire::vj::{Compressor, Decompressor, Kind, Slots};

/// Decodes bytes of a line, behind one that selects the negotiated framing.
///
/// # Panics
/// If a received frame does not survive encoding.
pub fn ppp_frames(data: &[u8]) {
    let Some((&agreed, mut line)) = data.split_first() else { return };
    let framing = Framing {
        accm: if agreed & 1 == 0 { u32::MAX } else { 1 << 0x11 | 1 << 0x13 },
        fcs: if agreed & 2 == 0 { Fcs::Bits16 } else { Fcs::Bits32 },
        compresses_address: agreed & 4 != 0,
        compresses_protocol: agreed & 8 != 0,
    };
    let mut deframer = Deframer::new(framing, 300);
    let mut again = Deframer::new(framing, 300);
    while let Some(frame) = deframer.next(&mut line) {
        let Ok(frame) = frame else { continue };
        assert!(frame.information.len() <= data.len() && !frame.to_string().is_empty());
        control(frame.information);
        let mut sent = Vec::new();
        framing.encode(frame.protocol, frame.information, &mut sent);
        assert_eq!(sent.len(), 1 + framing.encoded_len(frame.protocol, frame.information));
        let mut sent = &sent[..];
        // LCP has its own check sequence and may be longer than a frame without one.
        if frame.protocol != LCP && frame.information.len() <= 300 {
            assert_eq!(again.next(&mut sent), Some(Ok(frame)));
        }
    }
}

/// Decodes a packet of LCP or IPCP.
fn control(bytes: &[u8]) {
    let Ok(packet) = Packet::decode(bytes) else { return };
    let mut out = vec![0xa5; bytes.len()];
    let len = packet.encode(&mut out).expect("it was decoded");
    assert_eq!(Packet::decode(&out[..len]), Ok(packet));
    for option in packet.options().flatten() {
        let bytes = [&[option.kind, option.value.len() as u8 + 2], option.value].concat();
        let mut out = Vec::new();
        if let Ok(option) = LcpOption::decode(option) {
            option.encode(&mut out);
            assert_eq!(out, bytes);
        }
        out.clear();
        if let Ok(option) = IpcpOption::decode(option) {
            option.encode(&mut out);
            assert_eq!(out, bytes);
        }
    }
}

/// Decompresses consecutive frames, each behind its kind and its length. A compressor and another
/// decompressor must carry the restored packets unchanged.
///
/// # Panics
/// If they do not.
pub fn vj(data: &[u8]) {
    let slots = Slots { max: 3, may_omit: true };
    let mut first = Decompressor::new(slots);
    let mut compressor = Compressor::new(slots);
    let mut second = Decompressor::new(slots);
    let mut rest = data;
    while let [kind, len, after @ ..] = rest {
        let (frame, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        let kind = match kind % 4 {
            0 => Kind::Ip,
            1 => Kind::Uncompressed,
            2 => Kind::Compressed,
            _ => {
                first.toss();
                continue;
            }
        };
        let mut packet = Vec::new();
        if first.decompress(kind, frame, &mut packet).is_err() {
            assert!(packet.is_empty());
            continue;
        }
        let mut sent = packet.clone();
        let (kind, bytes) = compressor.compress(&mut sent);
        assert!(bytes.len() <= packet.len());
        let mut restored = Vec::new();
        assert_eq!(second.decompress(kind, bytes, &mut restored), Ok(()));
        assert_eq!(restored, packet);
    }
}
