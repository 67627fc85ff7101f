//! State shared by all sessions of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fec::{Code, Decoder, Field, LongWork};
use ::session::path::{Burst, Handle};
use ::session::{self, User};
use bytes::Bytes;
use engine::{Completion, EffectError, FileName, FilestoreRequest, Rng, Time};

use super::config::Config;
use super::incoming::partials::{Partials, Record};
use super::indication::{Indication, Limit, Stats};
use crate::message::{Body, Message, NodeId, SendTime};

/// A session's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Sender: probe the round trip.
    Probe,
    /// Sender under congestion control: send on.
    Pace,
    /// Sender: repeat the flush.
    Flush,
    /// Sender: serve the collected repair requests.
    Aggregate,
    /// Sender: squelch allowed again.
    Squelch,
    /// Sender: release old blocks of a stream.
    Room,
    /// Sender: repeat the watermark of a stream.
    Watermark,
    /// Receiver: request repairs.
    Nack,
    /// Receiver: reply to a probe.
    Feedback,
    /// Receiver: acknowledge.
    Acknowledge,
    /// Receiver: the sender was silent for too long.
    Inactivity,
    /// Receiver: record the progress of files.
    Save,
    /// Sender: repeat a command or question of the application.
    Command,
    /// Receiver: send an answer of the application.
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
            Self::Save => "journal",
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
            | Self::Save
            | Self::Answer => false,
        }
    }

    fn is_local(self) -> bool {
        self == Self::Save
    }
}

/// Purpose of an effect that only NORM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Reads a block to compute its parity.
    Block { block: u32 },
    /// Computes parity of a long block.
    Encode { block: u32 },
    /// Recovers a received block.
    Recover { block: u32 },
    /// Syncs a received file before its progress is recorded.
    Save,
    /// Reads the records of an earlier process.
    Load,
    /// Writes or removes a record.
    Record(Record),
}

pub(crate) type Job = session::Job<Task>;

pub(crate) type Shared = session::Shared<Alarm, Task>;

/// Memory that a decoder needs. It is limited by the blocks of the object, regardless of what its
/// sender announces for other objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Segments of a block.
    pub(crate) source: usize,
    /// Number of parity segments in the decoder.
    pub(crate) parity: usize,
    /// Number of usable parity segments.
    pub(crate) usable: u16,
    /// Bytes of a coded segment.
    pub(crate) segment: usize,
}

impl Room {
    fn is_in(&self, decoder: &Decoder) -> bool {
        let (source, parity) = decoder.room();
        source >= self.source && parity >= self.parity && decoder.symbol_len() >= self.segment
    }

    /// Bytes in total.
    pub(crate) fn bytes(&self) -> usize {
        (self.source + self.parity) * self.segment
    }
}

/// State shared by all sessions of a node.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) node: NodeId,
    pub(crate) shared: Shared,
    pub(crate) user: User<Indication, Limit>,
    pub(crate) stats: Stats,
    pub(crate) rng: Rng,
    /// Bytes of incomplete blocks.
    pub(crate) assembling: usize,
    /// Bytes of files that wait to be written together.
    pub(crate) collected: usize,
    /// Bytes reserved for objects that are not files, received or not.
    pub(crate) reserved: usize,
    /// Recovers lost segments, one block after the other.
    decoder: Option<Decoder>,
    /// Working memory of the code of long blocks.
    pub(crate) long: LongWork,
    /// Records of objects.
    pub(crate) partials: Partials,
    /// Whether a coded file was resumed, and its sender is to be sent what is missing.
    pub(crate) has_resumed: bool,
    /// Name of a file that was stored, until restored objects of this name were dropped.
    pub(crate) superseded: Option<Bytes>,
    /// Slots of finished objects.
    pub(crate) free: Vec<Handle>,
    /// Unneeded working files that are being opened; they are deleted once open.
    pub(crate) doomed: BTreeMap<Handle, FileName>,
    /// Time of the input or timer being handled.
    pub(crate) now: Time,
}

impl Core {
    pub(crate) fn new(config: Config, mut rng: Rng) -> Self {
        let node = match config.node {
            // The highest and the lowest number mean any node and none.
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
            collected: 0,
            reserved: 0,
            decoder: None,
            long: LongWork::default(),
            partials: Partials::default(),
            has_resumed: false,
            superseded: None,
            free: Vec::new(),
            doomed: BTreeMap::new(),
            now: Time::ZERO,
            config,
        }
    }

    /// Memory left for incomplete blocks.
    pub(crate) fn assembly_room(&self) -> usize {
        self.config.limits.assembly.saturating_sub(self.assembling + self.reserved)
    }

    /// Returns whether received data may be written; otherwise it counts as dropped.
    pub(crate) fn admit_write(&mut self) -> bool {
        let is_full = self.shared.room.unwritten > self.config.limits.buffers.write_buffer;
        if is_full {
            self.stats.data_dropped += 1;
            self.user.limit_reached(Limit::WriteBuffer);
        }
        !is_full
    }

    /// Handles the result of an effect whose object no longer exists.
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

    /// Decoder for a code, given by its field and its source and parity segments, with as much
    /// memory as the blocks need. As it is large, there is only one, for one code at a time.
    pub(crate) fn decoder(
        &mut self,
        field: Field,
        source: usize,
        parity: usize,
        room: Room,
    ) -> Option<&mut Decoder> {
        let kept = self.decoder.take().filter(|decoder| {
            let code = decoder.code();
            (code.field(), code.source(), code.parity()) == (field, source, parity)
        });
        let decoder = match kept {
            Some(decoder) if room.is_in(&decoder) => decoder,
            former => {
                // Frees the former decoder before building the new one.
                let code = former.map(|former| former.code().clone());
                let code = match code {
                    Some(code) => code,
                    None => Code::for_recovery(field, source, parity).ok()?,
                };
                Decoder::with_room(code, room.segment, room.source, room.parity).ok()?
            }
        };
        Some(self.decoder.insert(decoder))
    }

    /// Writes a message into the batch; `false` if it must wait for the next one. A message larger
    /// than the path's MTU is dropped.
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

/// Sending time as messages carry it. Any clock will do: only its sender reads it back.
pub(crate) fn send_time(at: Time) -> SendTime {
    // Zero would mean that the time is unknown.
    SendTime::from_micros(at.as_nanos() / 1000 + 1_000_000)
}

/// Time since an echoed sending time.
pub(crate) fn since_sent(now: Time, sent: SendTime) -> Option<Duration> {
    // Messages carry 32 bits of seconds.
    let wrap = (1_u64 << 32) * 1_000_000;
    let now = send_time(now).micros() % wrap;
    Some(Duration::from_micros(now.checked_sub(sent.micros())?))
}
