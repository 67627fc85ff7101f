//! What all sessions of a node share.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{Completion, EffectError, FileName, FilestoreRequest, Rng, Time};
use wire::norm::{Body, Message, NodeId, SendTime};

use super::config::Config;
use super::indication::{Indication, Limit, Stats};
use crate::fec::{Code, Decoder, Field};
use crate::path::{Burst, Handle};
use crate::session::{self, User};

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A sender asks how long the round trip is.
    Probe,
    /// A sender that heeds congestion may send on.
    Pace,
    /// A sender says again where its end is.
    Flush,
    /// A sender has collected requests for repairs.
    Aggregate,
    /// A sender may refuse again what it no longer has.
    Squelch,
    /// A sender lets blocks of a stream go.
    Room,
    /// A sender asks again whether a stream arrived.
    Watermark,
    /// A receiver asks for repairs.
    Nack,
    /// A receiver answers a probe.
    Feedback,
    /// A receiver acknowledges.
    Acknowledge,
    /// Nothing came from the sender for too long.
    Inactivity,
    /// A sender says or asks something again on behalf of its application.
    Command,
    /// A receiver answers what the sender's application asked.
    Answer,
}

impl session::Alarm for Alarm {
    fn why(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Pace => "pace",
            Self::Flush => "flush",
            Self::Aggregate => "aggregation of NACKs",
            Self::Squelch => "squelch",
            Self::Room => "room in a stream",
            Self::Watermark => "watermark",
            Self::Nack => "NACK",
            Self::Feedback => "feedback",
            Self::Acknowledge => "acknowledgement",
            Self::Inactivity => "inactivity",
            Self::Command => "command",
            Self::Answer => "answer",
        }
    }

    fn awaits_peer(self) -> bool {
        match self {
            Self::Probe
            | Self::Flush
            | Self::Watermark
            | Self::Nack
            | Self::Inactivity
            | Self::Command => true,
            Self::Pace
            | Self::Aggregate
            | Self::Squelch
            | Self::Room
            | Self::Feedback
            | Self::Acknowledge
            | Self::Answer => false,
        }
    }
}

/// What an effect was for that only NORM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A block is read to compute parity of it.
    Block { block: u32 },
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// What a decoder needs room for: no more than the blocks of an object have, whatever its sender says
/// of those that others might have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Segments of a block.
    pub(crate) source: usize,
    /// Parity segments that are of use.
    pub(crate) parity: usize,
    /// Bytes of a segment as it is coded.
    pub(crate) segment: usize,
}

impl Room {
    fn is_in(&self, decoder: &Decoder) -> bool {
        let (source, parity) = decoder.room();
        source >= self.source && parity >= self.parity && decoder.symbol_len() >= self.segment
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        (self.source + self.parity) * self.segment
    }
}

/// What all sessions of a node share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) node: NodeId,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    /// Bytes of blocks that came in part.
    pub(crate) assembling: usize,
    /// Bytes of objects that are no files, whether they came or not.
    pub(crate) reserved: usize,
    /// Recovers lost segments, one block after the other.
    decoder: Option<Decoder>,
    /// Places of objects that are over.
    pub(crate) free: Vec<Handle>,
    /// Working files that nobody needs and that are just being opened: they are deleted after that.
    pub(crate) doomed: BTreeMap<Handle, FileName>,
}

impl Core {
    pub(crate) fn new(config: Config, mut rng: Rng) -> Self {
        let node = match config.node {
            // The highest and the lowest number stand for any node and for none.
            0 => NodeId(u32::try_from(1 + rng.below(u64::from(u32::MAX) - 2)).unwrap_or(1)),
            node => NodeId(node),
        };
        Self {
            shared: Shared::new(config.limits.buffers),
            node,
            user: User::new(),
            stats: Stats::default(),
            rng,
            assembling: 0,
            reserved: 0,
            decoder: None,
            free: Vec::new(),
            doomed: BTreeMap::new(),
            config,
        }
    }

    /// An effect was carried out whose object is over.
    pub(crate) fn orphaned(
        &mut self,
        handle: Handle,
        job: &Job,
        answer: &Result<Completion, EffectError>,
    ) {
        self.shared.orphaned(job, answer);
        if *job == Job::Open
            && let Some(name) = self.doomed.remove(&handle)
        {
            let request = FilestoreRequest::DenyFile(name);
            self.shared.filestore(handle, Job::Forget, request);
        }
    }

    /// A decoder for a code, by its field and its source and parity segments, with as much room as
    /// blocks need. It is large, so there is only one, and its code is the only one too.
    pub(crate) fn decoder(
        &mut self,
        (field, source, parity): (Field, usize, usize),
        room: Room,
    ) -> Option<&mut Decoder> {
        let kept = self.decoder.take().filter(|decoder| {
            let code = decoder.code();
            (code.field(), code.source(), code.parity()) == (field, source, parity)
        });
        let decoder = match kept {
            Some(decoder) if room.is_in(&decoder) => decoder,
            former => {
                // Not both at once.
                let code = former.map(|former| former.code().clone());
                let code = match code {
                    Some(code) => code,
                    None => Code::for_recovery(field, source, parity).ok()?,
                };
                Decoder::with_room(code, room.segment, (room.source, room.parity)).ok()?
            }
        };
        Some(self.decoder.insert(decoder))
    }

    /// Bytes that the decoder holds.
    pub(crate) fn decoder_memory(&self) -> usize {
        self.decoder.as_ref().map_or(0, |decoder| {
            let (source, parity) = decoder.room();
            // The code has a number of eight bytes for each segment.
            (source + parity) * decoder.symbol_len()
                + (decoder.code().source() + decoder.code().parity()) * 8
        })
    }

    /// Writes one message into the batch; `false` if it must wait for the next one. A message that
    /// is larger than the path takes cannot be sent at all, and is left out.
    pub(crate) fn push(&mut self, burst: &mut Burst<'_>, sequence: u16, body: Body<'_>) -> bool {
        let message = Message { sequence, source: self.node, body };
        let len = message.encoded_len();
        if len > burst.mtu() {
            self.stats.oversize += 1;
            return true;
        }
        let Some(place) = burst.push(len) else { return false };
        if message.encode(place).is_err() {
            debug_assert!(false, "a message of our own cannot be encoded");
            place.fill(0xff);
        }
        self.stats.sent.count(&message.body);
        true
    }
}

/// The moment as messages tell it: any clock will do, because only its own reader understands it.
pub(crate) fn send_time(at: Time) -> SendTime {
    // A zero would say that nothing is known.
    SendTime::from_micros(at.as_nanos() / 1000 + 1_000_000)
}

/// How long something was under way whose sending time comes back.
pub(crate) fn since_sent(now: Time, sent: SendTime) -> Option<Duration> {
    // The message carries 32 bits of seconds.
    let wrap = (1_u64 << 32) * 1_000_000;
    let now = send_time(now).micros() % wrap;
    Some(Duration::from_micros(now.checked_sub(sent.micros())?))
}
