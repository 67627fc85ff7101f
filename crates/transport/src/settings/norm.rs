//! The settings of a NORM node (see [`norm::Config`]).

use proto::norm;
use serde::{Deserialize, Serialize};

use super::form::{Asking, Boundary, Code, End, Estimate, Form, Join, Switch, Sync, table};
use super::{at_least, not_at_once, not_often, some};
use crate::mib::Timer;
use crate::quantity::{Rate, Size, Span};
use crate::text::SpecError;

table! {
    /// What a user says about a NORM node; what is left out stays as it is.
    NormSettings: norm::Config {
        /// Its number, `NormNodeId`; 0 chooses one at random.
        node: u32,
        /// How much of a rate may be made up for when the driver comes late.
        catch_up: Span,
    }
    also {
        /// Rate to pace at; `"0"` does not pace.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<Rate>,
        /// How it sends.
        #[serde(skip_serializing_if = "Option::is_none")]
        sender: Option<Sender>,
        /// How it receives.
        #[serde(skip_serializing_if = "Option::is_none")]
        receiver: Option<Receiver>,
        /// Bounds on what the node holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
    }
}

table! {
    /// How a node sends (see [`norm::SenderConfig`]).
    Sender: norm::SenderConfig {
        /// Octets of a segment, or `off`: what the path takes.
        segment_size: Switch<u16>,
        /// The code: `rs8`, `rs16`, `rs8-129` or `none`.
        fec: Code,
        /// Most source segments of a block.
        block_len: u16,
        /// Parity segments of a block.
        parity: u16,
        /// Parity segments that are sent unasked.
        auto_parity: u16,
        /// Blocks after which NORM_INFO goes out again, where parity is sent unasked.
        info_every: u32,
        /// Whether each NORM_DATA says how its object is coded.
        fti_in_data: bool,
        /// `K` of the back-off, or `off`: 0 towards one receiver, and more the larger the group.
        backoff: Switch<u8>,
        /// The size of the group that receivers are told, or `auto`: what is estimated.
        group_size: Estimate,
        /// Whether requests of a group are collected before they are answered.
        collect: bool,
        /// Whether the last blocks go out with as much parity as those before lacked.
        tail_parity: bool,
        /// How often what may be lost is repeated.
        robust_factor: u32,
        /// Whether the rate follows what receivers report.
        congestion_control: bool,
        /// The greatest round trip until one was measured.
        grtt_initial: Span,
        /// Whether the light time of the path takes its place, where it is known.
        grtt_of_path: bool,
        /// Most that it may be.
        grtt_max: Span,
        /// Least time between two probes of the round trip.
        probe_interval_min: Span,
        /// Most time between two of them.
        probe_interval_max: Span,
        /// How it ends: `flush` or `acknowledged`.
        end: End,
        /// Receivers to wait for, at the least.
        receivers: u32,
        /// Silence after which a receiver is given up at the end, or `auto`: an hour and eight
        /// round trips.
        patience: Timer,
    }
}

table! {
    /// How a node receives (see [`norm::ReceiverConfig`]).
    Receiver: norm::ReceiverConfig {
        /// Whether it receives at all.
        enabled: bool,
        /// Whether it never sends anything.
        silent: bool,
        /// Whether NACKs go to the sender alone.
        unicast_nack: bool,
        /// Round trips of silence, halved, after which a sender is asked for what is missing.
        robust_factor: u32,
        /// Silence after which objects are given up, or `auto`: an hour and eight round trips.
        inactivity: Timer,
        /// What it begins with when it comes late: `current`, `object` or `all`.
        sync: Sync,
        /// What it asks for: `normal`, `info` or `none`.
        nacking: Asking,
        /// When it asks: at the end of a `block` or of an `object`.
        repair_boundary: Boundary,
        /// Whether objects that are no files are stored as files, named by their numbers.
        store_data: bool,
        /// Where a stream is begun to be received, `beginning` or `heard`, or `off`: streams are not
        /// received.
        streams: Switch<Join>,
        /// Silence after which a stream is given up of which nothing is missing.
        stream_silence: Span,
    }
}

table! {
    /// Bounds on what a node holds (see [`norm::Limits`]).
    Limits: norm::Limits {
        /// Senders received from.
        senders: usize,
        /// Objects under way, of each sender.
        objects: usize,
        /// Receivers that a sender remembers.
        receivers: usize,
        /// An object.
        object: Size,
        /// A stream that is kept, sent or received.
        stream: Size,
        /// Blocks that came in part.
        assembly: Size,
        /// Received data that waits to be written.
        write_buffer: Size => buffers,
        /// Data read ahead of what is sent, for each object.
        read_ahead: Size => buffers,
        /// The same for all objects together.
        read_ahead_total: Size => buffers,
        /// Data asked for in one read.
        read_piece: Size => buffers,
        /// Blocks of an object that are remembered as repaired.
        repairs: usize,
        /// Commands of the application that are repeated at one time.
        commands: usize,
    }
}

impl NormSettings {
    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut norm::Config) -> Result<(), SpecError> {
        self.apply_fields(config);
        if let Some(rate) = &self.rate {
            config.rate_all_bps = rate.value();
        }
        if let Some(sender) = &self.sender {
            sender.apply(&mut config.sender)?;
        }
        if let Some(receiver) = &self.receiver {
            not_at_once("receiver.inactivity", receiver.inactivity)?;
            not_often("receiver.stream_silence", receiver.stream_silence)?;
            receiver.apply_fields(&mut config.receiver);
        }
        if let Some(limits) = &self.limits {
            limits.apply(&mut config.limits)?;
        }
        config.check().map_err(SpecError::invalid)
    }

    /// Everything that `config` says.
    #[must_use]
    pub fn of(config: &norm::Config) -> Self {
        Self {
            rate: Form::of(&config.rate_all_bps),
            sender: Some(Sender::of_fields(&config.sender)),
            receiver: Some(Receiver::of_fields(&config.receiver)),
            limits: Some(Limits::of_fields(&config.limits)),
            ..Self::of_fields(config)
        }
    }
}

impl Sender {
    fn apply(&self, config: &mut norm::SenderConfig) -> Result<(), SpecError> {
        not_often("sender.grtt_initial", self.grtt_initial)?;
        not_often("sender.grtt_max", self.grtt_max)?;
        not_often("sender.probe_interval_min", self.probe_interval_min)?;
        not_often("sender.probe_interval_max", self.probe_interval_max)?;
        not_at_once("sender.patience", self.patience)?;
        if self.segment_size.and_then(Switch::on) == Some(0) {
            return Err(SpecError::invalid("sender.segment_size is 0; it must be at least 1"));
        }
        if self.robust_factor == Some(0) {
            return Err(SpecError::invalid("sender.robust_factor is 0; it must be at least 1"));
        }
        if let Some(backoff) = self.backoff.and_then(Switch::on).filter(|backoff| *backoff > 15) {
            return Err(SpecError::invalid(format!(
                "sender.backoff is {backoff}; it must be at most 15"
            )));
        }
        self.apply_fields(config);
        Ok(())
    }
}

impl Limits {
    fn apply(&self, limits: &mut norm::Limits) -> Result<(), SpecError> {
        at_least("limits.read_piece", self.read_piece, 65_536)?;
        at_least("limits.read_ahead", self.read_ahead, 65_536)?;
        at_least("limits.write_buffer", self.write_buffer, super::BUFFER_MIN)?;
        at_least("limits.assembly", self.assembly, 1 << 20)?;
        some("limits.senders", self.senders)?;
        some("limits.objects", self.objects)?;
        some("limits.receivers", self.receivers)?;
        self.apply_fields(limits);
        Ok(())
    }
}
