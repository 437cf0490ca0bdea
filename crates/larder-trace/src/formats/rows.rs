//! Rows of columns: the common part of all formats with one request a row.
//!
//! Csv with and without a header is among them. A format gives the meaning and the unit of each
//! column; this module does the rest. One byte separates columns, or blanks do. Blanks around a
//! column are no part of it, nor are quotes (`"`). A separator in quotes is part of the column.
//!
//! Invariants: a unit is never guessed: it comes from the format, or from the caller that names the
//! columns.
//!
//! It does not know any format.

use super::{kinds::LineFormat, scsi};
use crate::{
    error::Complaint,
    parse::{decimal, time_as_us},
    record::{Op, Record, Tag},
    sink::{Regions, Sink},
};

/// The most columns that the parser looks at.
pub(crate) const COLUMNS_MAX: usize = 32;

/// The separators of columns. If a line has equally many of two, the first wins.
const SEPARATORS: [u8; 4] = *b",\t;|";

/// A second, in nanoseconds.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The ways to write an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ops {
    /// A word: R, W, T, F, read, write, trim, discard, unmap, flush, get, set.
    Words,
    /// A word, or a SCSI opcode in hexadecimal.
    WordsAndOpcodes,
    /// A SCSI opcode in hexadecimal.
    Opcodes,
    /// R, W, Read or Write.
    ReadWrite,
    /// The same; a row without an operation is no request.
    ReadWriteOrNone,
    /// 0 reads, 1 writes.
    ReadIs0,
    /// 1 reads, 0 writes.
    ReadIs1,
}

/// The meaning of an operation's column.
enum Said {
    Op(Op),
    /// The row is no request.
    Nothing,
    /// An unknown operation.
    Unknown,
}

impl Ops {
    #[inline]
    fn read(self, field: &[u8]) -> Said {
        let op = match self {
            Ops::Words => word(field),
            Ops::WordsAndOpcodes => word(field).or_else(|| scsi::op_of_digits(field)),
            Ops::Opcodes => scsi::op_of_digits(field),
            Ops::ReadWriteOrNone if field.is_empty() => return Said::Nothing,
            Ops::ReadWrite | Ops::ReadWriteOrNone => match word(field) {
                Some(op @ (Op::Read | Op::Write)) => Some(op),
                _ => None,
            },
            Ops::ReadIs0 | Ops::ReadIs1 => match (field, self) {
                (b"0", Ops::ReadIs0) | (b"1", Ops::ReadIs1) => Some(Op::Read),
                (b"0" | b"1", _) => Some(Op::Write),
                _ => None,
            },
        };
        op.map_or(Said::Unknown, Said::Op)
    }
}

fn word(field: &[u8]) -> Option<Op> {
    let mut lower = [0u8; 8];
    for (to, from) in lower.iter_mut().zip(field) {
        *to = from.to_ascii_lowercase();
    }
    Some(match lower.get(..field.len())? {
        b"r" | b"read" | b"get" => Op::Read,
        b"w" | b"write" | b"set" => Op::Write,
        b"t" | b"trim" | b"discard" | b"unmap" => Op::Trim,
        b"f" | b"flush" => Op::Flush,
        _ => return None,
    })
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// The time, in units of this many nanoseconds, with a fraction or without.
    Time(u64),
    /// The operation.
    Op(Ops),
    /// The address, in units of this many bytes.
    Offset(u64),
    /// The length, in units of this many bytes.
    Length(u64),
    /// The device, or a part of its name.
    Device,
    /// A part of the device's name, and the tag.
    Host,
    /// A number that is not used.
    Number,
    /// Anything.
    Other,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub field: Field,
    /// The value that belongs in it, for the complaint.
    pub expected: &'static str,
}

impl Column {
    pub const fn new(field: Field, expected: &'static str) -> Column {
        Column { field, expected }
    }
}

/// Returns the separator and the columns that a header gives; a block number stands for so many
/// bytes.
type ColumnsOf = fn(&[u8], u64) -> Result<(Option<u8>, Vec<Column>), Complaint>;

/// The kinds of a first row, beside a request.
#[derive(Clone, Copy)]
pub(crate) enum FirstRow {
    /// A header, if it is one; the columns are known.
    MayBeHeader(fn(&[u8]) -> bool),
    /// The header that names the columns; a block number counts in blocks of `block_bytes`.
    IsHeader { block_bytes: u64, columns: ColumnsOf },
    /// A header, if none of the numbers is one. The first row tells the separator, unless that is
    /// known.
    MayLackNumbers { is_parted: bool },
}

/// The layout of rows.
#[derive(Clone)]
pub(crate) struct Layout {
    pub columns: Vec<Column>,
    /// The separator; `None` for blanks.
    pub separator: Option<u8>,
    pub first: FirstRow,
    /// The complaint about a row with fewer columns; `None` takes the complaint of the missing
    /// column.
    pub missing: Option<&'static str>,
    /// The complaint about a row with more columns; `None` allows them.
    pub end: Option<&'static str>,
    /// The length if no column has it.
    pub len_bytes: u64,
    /// A request of length 0 is passed over, and is no error.
    pub may_be_empty: bool,
}

/// The parser: the layout, and the devices so far.
pub(crate) struct Rows {
    layout: Layout,
    devices: Regions,
    name: Vec<u8>,
    /// True once a row was seen: only the first may be a header.
    has_begun: bool,
}

impl Rows {
    /// Makes a parser of rows with this layout; `devices` gives each device its region.
    pub fn new(layout: Layout, devices: Regions) -> Rows {
        Rows { layout, devices, name: Vec::new(), has_begun: false }
    }

    /// Makes a parser of exactly these columns, separated by commas, perhaps under a header.
    pub fn of(columns: &[Column], is_header: fn(&[u8]) -> bool, end: Option<&'static str>, devices: Regions) -> Rows {
        let first = FirstRow::MayBeHeader(is_header);
        let (columns, separator, len_bytes) = (columns.to_vec(), Some(b','), 0);
        let layout = Layout { columns, separator, first, missing: None, end, len_bytes, may_be_empty: false };
        Rows::new(layout, devices)
    }

    /// Returns whether the first row is a header.
    fn begin(&mut self, line: &[u8]) -> Result<bool, Complaint> {
        let is_header = match self.layout.first {
            FirstRow::MayBeHeader(is_header) => is_header(line),
            FirstRow::IsHeader { block_bytes, columns } => {
                (self.layout.separator, self.layout.columns) = columns(line, block_bytes)?;
                true
            }
            FirstRow::MayLackNumbers { is_parted } => {
                if !is_parted {
                    self.layout.separator = most_frequent(line);
                }
                self.lacks_numbers(line)
            }
        };
        self.has_begun = true;
        Ok(is_header)
    }

    /// Returns whether a line has all columns, and no column of a number has a digit.
    fn lacks_numbers(&self, line: &[u8]) -> bool {
        let mut fields = Fields::new(line, self.layout.separator);
        self.layout.columns.iter().all(|column| {
            let is_number = matches!(column.field, Field::Time(_) | Field::Offset(_) | Field::Length(_));
            fields.next().is_some_and(|field| !is_number || !field.iter().any(u8::is_ascii_digit))
        })
    }
}

impl LineFormat for Rows {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if !self.has_begun && self.begin(line)? {
            return Ok(());
        }
        let Rows { layout, name, .. } = self;
        let mut fields = Fields::new(line, layout.separator);
        let mut record = Record::new(0, Op::Read, 0, layout.len_bytes);
        let (mut is_request, mut has_device) = (true, false);
        // Only a request that moves blocks needs them.
        let mut lacks_blocks = None;
        name.clear();
        for &Column { field: what, expected } in &layout.columns {
            let wrong = Complaint::expected(expected);
            let field = fields.next().ok_or(layout.missing.map_or(wrong, Complaint::expected))?;
            match what {
                Field::Other => {}
                Field::Offset(_) | Field::Length(_) if field.is_empty() => {
                    lacks_blocks.get_or_insert(wrong);
                }
                Field::Number => drop(decimal(field).ok_or(wrong)?),
                Field::Time(unit_ns) => record.time_us = Some(time_as_us(field, unit_ns).ok_or(wrong)?),
                Field::Offset(unit) => record.offset_bytes = decimal(field).ok_or(wrong)?.saturating_mul(unit),
                Field::Length(unit) => record.len_bytes = decimal(field).ok_or(wrong)?.saturating_mul(unit),
                Field::Op(ops) => match ops.read(field) {
                    Said::Op(op) => record.op = op,
                    Said::Nothing => is_request = false,
                    Said::Unknown => return Err(wrong),
                },
                Field::Device | Field::Host => {
                    if field.is_empty() {
                        return Err(wrong);
                    }
                    if std::mem::replace(&mut has_device, true) {
                        name.push(b',');
                    }
                    name.extend_from_slice(field);
                    if what == Field::Host {
                        record.tag = Tag::new(field);
                    }
                }
            }
        }
        if let Some(expected) = layout.end
            && fields.has_more()
        {
            return Err(Complaint::expected(expected));
        }
        match is_request {
            true => self.push(record, has_device, lacks_blocks, sink),
            false => Ok(()),
        }
    }
}

impl Rows {
    /// Gives the sink a whole record.
    #[inline]
    fn push(
        &mut self,
        mut record: Record,
        has_device: bool,
        lacks_blocks: Option<Complaint>,
        sink: &mut Sink,
    ) -> Result<(), Complaint> {
        let Rows { layout, devices, name, .. } = self;
        if record.op == Op::Flush {
            (record.request, record.offset_bytes, record.len_bytes) = (sink.next_request(), 0, 0);
            return sink.push(record);
        }
        if let Some(wrong) = lacks_blocks {
            return Err(wrong);
        }
        if layout.may_be_empty && record.len_bytes == 0 {
            sink.pass_empty();
            return Ok(());
        }
        record.request = sink.next_request();
        match has_device {
            true => sink.push_in(devices.region(name)?, record),
            false => sink.push(record),
        }
    }
}

/// Returns whether a line names these columns, in any case, and no other.
pub(crate) fn names_columns(line: &[u8], names: &[&str]) -> bool {
    let mut fields = Fields::new(line, Some(b','));
    let is_named = |name: &&str| fields.next().is_some_and(|field| field.eq_ignore_ascii_case(name.as_bytes()));
    names.iter().all(is_named) && !fields.has_more()
}

/// Returns the most frequent separator of a line.
pub(crate) fn most_frequent(line: &[u8]) -> Option<u8> {
    let how_many = |separator: &u8| line.iter().filter(|byte| *byte == separator).count();
    // The search takes the last of the largest, so it goes backwards.
    let most = SEPARATORS.into_iter().rev().max_by_key(how_many)?;
    (how_many(&most) > 0).then_some(most)
}

/// The columns of a line.
pub(crate) struct Fields<'a> {
    /// The bytes that are left; `None` behind the last column.
    rest: Option<&'a [u8]>,
    separator: Option<u8>,
}

impl<'a> Fields<'a> {
    pub fn new(line: &'a [u8], separator: Option<u8>) -> Fields<'a> {
        Fields { rest: Some(line), separator }
    }

    /// Returns whether a column that is not empty is left.
    pub fn has_more(&self) -> bool {
        self.rest.is_some_and(|rest| !rest.trim_ascii().is_empty())
    }

    /// Returns the next column, without blanks around it and without quotes.
    #[inline]
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let Some(separator) = self.separator else { return self.next_word(rest) };
        if rest.first().is_some_and(|byte| matches!(byte, b'"' | b' ')) {
            let inner = rest.trim_ascii_start().strip_prefix(b"\"");
            if let Some((field, behind)) = inner.and_then(|inner| quoted(inner, separator)) {
                self.rest = behind;
                return Some(field);
            }
        }
        let len = memchr::memchr(separator, rest).unwrap_or(rest.len());
        let (field, behind) = rest.split_at_checked(len)?;
        self.rest = behind.get(1..);
        Some(field.trim_ascii())
    }

    /// Returns the next column if blanks separate columns.
    fn next_word(&mut self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let rest = rest.trim_ascii_start();
        let len = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (field, behind) = rest.split_at_checked(len)?;
        self.rest = Some(behind);
        (!field.is_empty()).then_some(field)
    }
}

/// Returns a column behind its opening quote, and the rest behind its separator. `None` if the
/// quotes are no pair around the column.
fn quoted(inner: &[u8], separator: u8) -> Option<(&[u8], Option<&[u8]>)> {
    let (field, behind) = inner.split_at_checked(memchr::memchr(b'"', inner)?)?;
    let behind = behind.get(1..)?;
    let blanks = behind.iter().take_while(|byte| **byte == b' ').count();
    match behind.get(blanks..)? {
        [] => Some((field.trim_ascii(), None)),
        [first, rest @ ..] if *first == separator => Some((field.trim_ascii(), Some(rest))),
        _ => None,
    }
}
