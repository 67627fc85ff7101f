//! The CFDP entity, driven by a script of bytes.

use bytes::Bytes;
use cfdp::pdu::TransmissionMode;
use cfdp::{Config, Entity, PutRequest};
use engine::{EffectError, Rng, Time};
use wire::checksum::crc32c;

use crate::nodes::{DESTINATION, MTU, Protocol, World, source};
use crate::script::Script;

/// Runs a script for two entities that transfer files to each other.
///
/// # Panics
/// If an entity breaks the contract or delivers a wrong file.
pub fn cfdp_entity(data: &[u8]) {
    let mut world = World::new(Cfdp);
    let mut script = Script(data);
    while let Some(op) = script.byte() {
        let who = usize::from(op & 1);
        match op >> 1 {
            0..=39 => world.deliver(who),
            40..=47 => world.lose(who),
            48..=55 => world.repeat(who),
            56..=63 => world.damage(who, |datagram| change(datagram, &mut script)),
            64..=71 => world.invent(who, &mut script),
            72..=87 => world.timeout(who),
            88..=93 => world.wait(script.or_zero()),
            94..=103 => {
                let request = put(who, &mut script);
                world.make_request(who, |entity, now| drop(entity.put(now, request)));
            }
            104..=109 => {
                let nth = usize::from(script.or_zero());
                world.make_request(who, |entity, now| control(entity, now, op >> 1, nth));
            }
            110..=115 => world.path(who, op >> 1, MTU),
            116..=119 => world.restart(who),
            _ => world.fail_next(who, EffectError::NoSpace),
        }
    }
    world.finish();
}

/// Loads records of an earlier run, as from a damaged disk, with a correct checksum.
///
/// # Panics
/// If the entity breaks the contract.
pub fn cfdp_journal(data: &[u8]) {
    const KEYS: [&str; 4] = ["cfdp-sequence", "cfdp-rx-2-1", "cfdp-tx-1-1", "cfdp-rx-1-7"];
    let mut script = Script(data);
    let mut world = World::new(Cfdp);
    while let Some(key) = script.byte() {
        let len = usize::from(script.or_zero());
        let mut value = vec![1];
        value.extend(script.bytes(len));
        let check = crc32c(&value);
        value.extend(check.to_be_bytes());
        world.plant(0, KEYS[usize::from(key) % KEYS.len()].to_owned(), value);
    }
    world.restart(0);
    world.finish();
}

struct Cfdp;

impl Protocol for Cfdp {
    type Node = Entity;

    fn node(&self, side: usize, restarts: u64) -> Entity {
        let mut config = Config {
            entity: side as u64 + 1,
            first_sequence: Some(1),
            // The remains of an unfinished file may differ from the sender's file.
            keep_incomplete: false,
            ..Config::default()
        };
        config.limits.transactions = 8;
        config.limits.finished = 8;
        config.limits.gaps = 16;
        config.limits.buffers.write_buffer = 4096;
        config.limits.buffers.write_piece = 512;
        config.limits.buffers.read_ahead = 2048;
        config.limits.buffers.read_piece = 512;
        config.limits.file_size = 1 << 16;
        config.limits.buffers.replies = 8;
        Entity::new(config, Rng::new(restarts, "entity"))
    }
}

/// Changes a byte.
fn change(datagram: &mut [u8], script: &mut Script<'_>) {
    let at = usize::from(script.or_zero()) % datagram.len().max(1);
    if let Some(place) = datagram.get_mut(at) {
        *place ^= script.byte().unwrap_or(1);
    }
}

fn put(who: usize, script: &mut Script<'_>) -> PutRequest {
    let options = script.or_zero();
    let mode = if options & 1 == 0 {
        TransmissionMode::Acknowledged
    } else {
        TransmissionMode::Unacknowledged
    };
    PutRequest {
        destination: 2 - who as u64,
        source: Some(source()),
        destination_name: DESTINATION.to_owned(),
        mode: Some(mode),
        closure: Some(options & 2 != 0),
        unbounded: options & 4 != 0,
        resume: options & 8 != 0,
        messages: (0..options >> 6).map(|_| Bytes::copy_from_slice(script.bytes(20))).collect(),
        ..PutRequest::default()
    }
}

fn control(entity: &mut Entity, now: Time, kind: u8, nth: usize) {
    let Some(id) = entity.transactions().nth(nth % 8).map(|report| report.id) else { return };
    let _ = match kind % 4 {
        0 => entity.cancel(now, id),
        1 => entity.suspend(now, id),
        2 => entity.resume(now, id),
        _ => entity.report(now, id),
    };
}
