//! Results as tables, and tables as Parquet.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use lab::metrics::TransferMetrics;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::{Done, Finished, Job, Number, Sheet};

/// A named column. Rows without a value have `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Values.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Booleans.
    Flags(Vec<Option<bool>>),
    /// Counts.
    Counts(Vec<Option<u64>>),
    /// Numbers.
    Numbers(Vec<Option<f64>>),
    /// Texts.
    Texts(Vec<Option<String>>),
}

/// One value.
enum Value {
    Flag(Option<bool>),
    Count(Option<u64>),
    Number(Option<f64>),
    Text(Option<String>),
}

impl Values {
    fn new(of: &Value) -> Self {
        match of {
            Value::Flag(_) => Self::Flags(Vec::new()),
            Value::Count(_) => Self::Counts(Vec::new()),
            Value::Number(_) => Self::Numbers(Vec::new()),
            Value::Text(_) => Self::Texts(Vec::new()),
        }
    }

    fn push(&mut self, value: Value) {
        match (self, value) {
            (Self::Flags(all), Value::Flag(flag)) => all.push(flag),
            (Self::Counts(all), Value::Count(count)) => all.push(count),
            (Self::Numbers(all), Value::Number(number)) => all.push(number),
            (Self::Texts(all), Value::Text(text)) => all.push(text),
            // A column has values of one type: its own.
            (_, Value::Flag(_) | Value::Count(_) | Value::Number(_) | Value::Text(_)) => {}
        }
    }
}

/// Function that finds a value.
type Find = fn(&Row<'_>) -> Value;

/// A transfer of a run.
struct Row<'a> {
    job: &'a Job<'a>,
    done: &'a Done,
    index: usize,
    transfer: &'a TransferMetrics,
}

macro_rules! columns {
    ($($name:literal = $kind:ident($find:expr);)*) => {
        &[$(($name, |row| {
            let find: fn(&Row<'_>) -> _ = $find;
            Value::$kind(find(row))
        })),*]
    };
}

/// Columns that identify a row, before the columns of its cell.
const BEFORE: &[(&str, Find)] = columns! {
    "cell" = Count(|row| Some(row.job.cell.index));
    "run" = Count(|row| Some(u64::from(row.job.run)));
    "seed" = Count(|row| Some(row.job.seed()));
    "transfer" = Count(|row| Some(row.index as u64));
};

/// Columns of results.
const AFTER: &[(&str, Find)] = columns! {
    "from" = Text(|row| Some(row.transfer.from.clone()));
    "to" = Text(|row| Some(row.transfer.to.clone()));
    "carrier" = Text(|row| Some(row.transfer.protocol.clone()));
    "file_bytes" = Count(|row| Some(row.transfer.file_bytes));
    "completed" = Flag(|row| Some(row.transfer.completed));
    "verified" = Flag(|row| Some(row.transfer.verified));
    "wrong_success" = Flag(|row| Some(row.transfer.wrong_success));
    "failure" = Text(|row| row.transfer.failure.clone());
    "delivered_s" = Number(|row| row.transfer.delivered_s);
    "confirmed_s" = Number(|row| row.transfer.confirmed_s);
    "ready_s" = Number(|row| row.transfer.ready_s);
    "transfer_s" = Number(|row| row.transfer.transfer_s);
    "quiet_s" = Number(|row| row.transfer.quiet_s);
    "wire_s" = Number(|row| row.transfer.wire_s);
    "goodput_bps" = Number(|row| row.transfer.goodput_bps);
    "goodput_grc_bps" = Number(|row| row.transfer.goodput_grc_bps);
    "throughput_bps" = Number(|row| row.transfer.traffic.throughput_bps);
    "bound_s" = Number(|row| row.transfer.bound_s);
    "bound_is_mean" = Flag(|row| Some(row.transfer.least.bound_is_mean));
    "efficiency" = Number(|row| row.transfer.efficiency);
    "spent" = Number(|row| row.transfer.spent);
    "bound_spent" = Number(|row| row.transfer.least.bound_spent);
    "packets_str" = Count(|row| row.transfer.traffic.packets_str);
    "packets_rts" = Count(|row| row.transfer.traffic.packets_rts);
    "bytes_str" = Count(|row| row.transfer.traffic.bytes_str);
    "bytes_rts" = Count(|row| row.transfer.traffic.bytes_rts);
    "link_bytes" = Count(|row| row.transfer.traffic.link_bytes);
    "repairs_str" = Count(|row| row.transfer.traffic.repairs_str);
    "nacks_rts" = Count(|row| row.transfer.traffic.nacks_rts);
    "peer_window_limited_s" = Number(|row| row.transfer.traffic.buffers.map(|it| it.peer_window_limited_s));
    "send_buffer_limited_s" = Number(|row| row.transfer.traffic.buffers.map(|it| it.send_buffer_limited_s));
    "key_median_s" = Number(|row| row.transfer.latency.map(|latency| latency.median_s));
    "key_p95_s" = Number(|row| row.transfer.latency.map(|latency| latency.p95_s));
    "trusted" = Flag(|row| row.done.trusted);
    "packets_lost" = Count(|row| Some(row.done.lost));
    "ended" = Text(|row| Some(row.done.ended.clone()));
    "time_s" = Number(|row| Some(row.done.time_s));
    "events" = Count(|row| Some(row.done.events));
    "world" = Text(|row| Some(row.done.world.clone()));
};

/// Returns the names of all columns except axes.
pub fn columns() -> impl Iterator<Item = &'static str> {
    BEFORE.iter().chain(AFTER).map(|(name, _)| *name)
}

/// Returns the table of a sheet: a row for each transfer of each of its runs, in the order of the
/// grid. Each axis has a column of labels and, where these are quantities of one unit, one of
/// numbers: `delay` and `delay_s`.
#[must_use]
pub fn table(sheet: &Sheet, all: &Finished<'_>) -> Vec<Column> {
    let of_sheet = |(job, _): &(&Job<'_>, _)| job.sheet.name == sheet.name;
    let rows: Vec<_> = all
        .jobs
        .iter()
        .zip(&all.done)
        .filter(of_sheet)
        .flat_map(|(job, done)| {
            let of = move |(index, transfer)| Row { job, done, index, transfer };
            done.transfers.iter().enumerate().map(of)
        })
        .collect();
    let found = |(name, find): &(&str, Find)| {
        let mut values: Option<Values> = None;
        for row in &rows {
            let value = find(row);
            values.get_or_insert_with(|| Values::new(&value)).push(value);
        }
        Some(Column { name: (*name).to_owned(), values: values? })
    };
    let axes = sheet.axes.iter().enumerate().flat_map(|(place, axis)| {
        let labels: Vec<_> = axis.values.iter().map(super::Value::label).collect();
        let label = |row: &Row<'_>| Some(labels[row.job.cell.values[place]].clone());
        let texts = Values::Texts(rows.iter().map(label).collect());
        let number = |Number { unit, values }: Number| {
            let of = |row: &Row<'_>| Some(values[row.job.cell.values[place]]);
            let numbers = Values::Numbers(rows.iter().map(of).collect());
            Column { name: format!("{}{}", axis.name, unit.suffix()), values: numbers }
        };
        let numbers = axis.numbers().map(number);
        [Column { name: axis.name.clone(), values: texts }].into_iter().chain(numbers)
    });
    let before = BEFORE.iter().filter_map(found);
    before.chain(axes).chain(AFTER.iter().filter_map(found)).collect()
}

/// Writes a table with the metadata `about`. Tables of equal values are equal bytes.
///
/// # Errors
///
/// The system refuses. The file then has either the whole table or its old content.
pub fn write(path: &Path, columns: &[Column], about: &[(&str, String)]) -> io::Result<()> {
    let as_io = |error: ParquetError| match error {
        ParquetError::External(error) => io::Error::other(error),
        error => io::Error::other(error),
    };
    replace(path, |file| write_to(file, columns, about).map_err(as_io))
}

/// Replaces a file atomically.
pub(super) fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    write(file.as_file())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    readable_by_all(path)
}

/// Makes a file readable by all: temporary files are their owner's only.
fn readable_by_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

fn write_to(file: &File, columns: &[Column], about: &[(&str, String)]) -> Result<(), ParquetError> {
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let metadata = about.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(metadata.collect()))
        .build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        if let Some(mut to) = group.next_column()? {
            write_column(to.untyped(), &column.values)?;
            to.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn field(column: &Column) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Flags(_) => (Physical::BOOLEAN, None),
        Values::Counts(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Values::Numbers(_) => (Physical::DOUBLE, None),
        Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let field = Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(field))
}

/// The present values, and for each row whether it has one.
fn parted<T, U>(all: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<U>, Vec<i16>) {
    let there = all.iter().map(|value| i16::from(value.is_some())).collect();
    (all.iter().flatten().map(of).collect(), there)
}

fn write_column(to: &mut ColumnWriter<'_>, values: &Values) -> Result<(), ParquetError> {
    match (to, values) {
        (ColumnWriter::BoolColumnWriter(to), Values::Flags(all)) => {
            let (some, there) = parted(all, |flag| *flag);
            to.write_batch(&some, Some(&there), None)?;
        }
        (ColumnWriter::Int64ColumnWriter(to), Values::Counts(all)) => {
            // The format stores unsigned numbers as signed ones of the same bits.
            let (some, there) = parted(all, |count| count.cast_signed());
            to.write_batch(&some, Some(&there), None)?;
        }
        (ColumnWriter::DoubleColumnWriter(to), Values::Numbers(all)) => {
            let (some, there) = parted(all, |number| *number);
            to.write_batch(&some, Some(&there), None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(to), Values::Texts(all)) => {
            let (some, there) = parted(all, |text| ByteArray::from(text.as_str()));
            to.write_batch(&some, Some(&there), None)?;
        }
        (_, Values::Flags(_) | Values::Counts(_) | Values::Numbers(_) | Values::Texts(_)) => {
            return Err(ParquetError::General("a column of another kind".to_owned()));
        }
    }
    Ok(())
}
