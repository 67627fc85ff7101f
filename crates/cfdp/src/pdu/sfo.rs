//! Layout of the store-and-forward overlay's request and report (CCSDS 727.0-B-5 §6.7).
//!
//! **Profile with medium confidence.** Fields and their order follow the book. The positions of
//! single bits in the two flag bytes below have not been checked against another implementation.
//! All of them are defined in this file alone.
//!
//! Request: flags · prior waypoints count (8) · request label LV · source entity LV · destination
//! entity LV · source file name LV · destination file name LV. Flags: trace control (bits 7-6) ·
//! transmission mode (5) · segmentation control (4) · closure request (3) · reserved (2-0).
//!
//! Report: request label LV · source entity LV · destination entity LV · reporting entity LV ·
//! prior waypoints count (8) · report code (8) · outcome. Outcome: condition code (bits 7-4) ·
//! direction (3) · delivery code (2) · file status (1-0).

use wire::cursor::{Reader, Writer};
use wire::{DecodeError, EncodeError};

use super::codes::{ConditionCode, DeliveryCode, Direction, FileStatus, TransmissionMode};
use super::directive::{outcome_byte, outcome_from_byte};
use super::tlv::{IdField, Lv};

const TRACE_SHIFT: u32 = 6;
const UNACKNOWLEDGED: u8 = 0x20;
const SEGMENTATION_CONTROL: u8 = 0x10;
const CLOSURE_REQUESTED: u8 = 0x08;
const TOWARD_SENDER: u8 = 0x08;

/// Recipients of the waypoints' reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceControl {
    /// None.
    #[default]
    None = 0,
    /// Original source.
    Source = 1,
    /// Final destination.
    Destination = 2,
    /// Both.
    Both = 3,
}

impl TraceControl {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Source,
            2 => Self::Destination,
            _ => Self::Both,
        }
    }

    const fn bits(self) -> u8 {
        self as u8
    }
}

/// Type 40: requests an entity to forward a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfoRequest<'a> {
    /// Recipients of reports.
    pub trace: TraceControl,
    /// Transmission mode of the hops.
    pub mode: TransmissionMode,
    /// Whether the hops preserve record boundaries.
    pub segmentation_control: bool,
    /// Whether the hops request closure.
    pub closure_requested: bool,
    /// Waypoints passed so far.
    pub prior_waypoints: u8,
    /// Source's name of the request.
    pub label: Lv<'a>,
    /// Original source.
    pub source: IdField,
    /// Final destination.
    pub destination: IdField,
    /// Name at the original source.
    pub source_name: Lv<'a>,
    /// Name at the final destination.
    pub destination_name: Lv<'a>,
}

impl<'a> SfoRequest<'a> {
    pub(super) const fn encoded_len(&self) -> usize {
        2 + self.label.encoded_len()
            + self.source.lv_len()
            + self.destination.lv_len()
            + self.source_name.encoded_len()
            + self.destination_name.encoded_len()
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let flags = reader.u8()?;
        let mode = match flags & UNACKNOWLEDGED {
            0 => TransmissionMode::Acknowledged,
            _ => TransmissionMode::Unacknowledged,
        };
        Ok(Self {
            trace: TraceControl::from_bits(flags >> TRACE_SHIFT),
            mode,
            segmentation_control: flags & SEGMENTATION_CONTROL != 0,
            closure_requested: flags & CLOSURE_REQUESTED != 0,
            prior_waypoints: reader.u8()?,
            label: Lv::read(reader)?,
            source: IdField::read_lv(reader)?,
            destination: IdField::read_lv(reader)?,
            source_name: Lv::read(reader)?,
            destination_name: Lv::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut flags = self.trace.bits() << TRACE_SHIFT;
        if self.mode == TransmissionMode::Unacknowledged {
            flags |= UNACKNOWLEDGED;
        }
        if self.segmentation_control {
            flags |= SEGMENTATION_CONTROL;
        }
        if self.closure_requested {
            flags |= CLOSURE_REQUESTED;
        }
        writer.put(&[flags, self.prior_waypoints])?;
        self.label.write(writer, "SFO request label")?;
        self.source.write_lv(writer, "SFO source entity id")?;
        self.destination.write_lv(writer, "SFO destination entity id")?;
        self.source_name.write(writer, "source file name")?;
        self.destination_name.write(writer, "destination file name")
    }
}

/// Type 45: reports how far a file was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SfoReport<'a> {
    /// Source's name of the request.
    pub label: Lv<'a>,
    /// Original source.
    pub source: IdField,
    /// Final destination.
    pub destination: IdField,
    /// Entity that reports.
    pub reporter: IdField,
    /// Waypoints before the reporter.
    pub prior_waypoints: u8,
    /// Report code.
    pub report_code: u8,
    /// Condition code of the reporter's hop.
    pub condition: ConditionCode,
    /// Whether the reporter received or sent on that hop.
    pub direction: Direction,
    /// Completeness of the delivery.
    pub delivery: DeliveryCode,
    /// Status of the file.
    pub file_status: FileStatus,
}

impl<'a> SfoReport<'a> {
    pub(super) const fn encoded_len(&self) -> usize {
        self.label.encoded_len()
            + self.source.lv_len()
            + self.destination.lv_len()
            + self.reporter.lv_len()
            + 3
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let label = Lv::read(reader)?;
        let source = IdField::read_lv(reader)?;
        let destination = IdField::read_lv(reader)?;
        let reporter = IdField::read_lv(reader)?;
        let prior_waypoints = reader.u8()?;
        let report_code = reader.u8()?;
        let byte = reader.u8()?;
        let (condition, delivery, file_status) = outcome_from_byte(byte);
        let direction = match byte & TOWARD_SENDER {
            0 => Direction::TowardReceiver,
            _ => Direction::TowardSender,
        };
        Ok(Self {
            label,
            source,
            destination,
            reporter,
            prior_waypoints,
            report_code,
            condition,
            direction,
            delivery,
            file_status,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.label.write(writer, "SFO request label")?;
        self.source.write_lv(writer, "SFO source entity id")?;
        self.destination.write_lv(writer, "SFO destination entity id")?;
        self.reporter.write_lv(writer, "SFO reporting entity id")?;
        let mut outcome = outcome_byte(self.condition, self.delivery, self.file_status)?;
        if self.direction == Direction::TowardSender {
            outcome |= TOWARD_SENDER;
        }
        writer.put(&[self.prior_waypoints, self.report_code, outcome])
    }
}
