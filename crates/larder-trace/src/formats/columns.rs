//! Rows whose columns the caller names, in place of a format.
//!
//! An example is `time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5`. Each key has the number
//! of its column, from 1, and behind a colon its unit, which is never guessed:
//!
//! | key | unit |
//! |---|---|
//! | `time` | `s`, `ms`, `us` or `ns`; with a fraction or without |
//! | `offset`, needed | `bytes`, `sectors` of 512 bytes, or the bytes of a block |
//! | `length` | the same; without that column each request is one block of the offset's |
//! | `op` | none: words; `read0`: 0 reads and 1 writes; `read1`: the other way round; `scsi`: opcodes. Without that column all read |
//! | `device` | none; each gets a region of its own, of 16 TiB |
//! | `separator` | in place of a number `comma`, `tab`, `semicolon`, `bar` or `blanks`; else the one that the first row has most of |
//!
//! The first row is a header if it has all columns, and none of time, offset and length has a
//! digit. The parser passes over other columns.
//!
//! It does not read rows. It leaves this to `rows.rs`.

use std::{fmt, str::FromStr};

use super::{
    kinds::SECTOR_BYTES,
    rows::{COLUMNS_MAX, Column, Field, FirstRow, Layout, Ops, Rows, SECOND_NS},
};
use crate::{error::TraceError, sink::Regions};

/// The largest block size that a number may count in.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// The keys that name a column.
const KEYS: [&str; 5] = ["time", "op", "offset", "length", "device"];

/// A named column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    /// The column's number, from 1.
    number: usize,
    field: Field,
}

const SEPARATORS: [(&str, Separator); 5] = [
    ("comma", Separator::Byte(b',')),
    ("tab", Separator::Byte(b'\t')),
    ("semicolon", Separator::Byte(b';')),
    ("bar", Separator::Byte(b'|')),
    ("blanks", Separator::Blanks),
];

/// The meaning of each column. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    named: [Option<Named>; KEYS.len()],
    separator: Option<Separator>,
    len_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Byte(u8),
    Blanks,
}

/// Makes the parser.
pub(crate) fn rows(columns: &Columns) -> Rows {
    const MISSING: &str = "as many columns as --columns names";
    let named = || columns.named.iter().flatten();
    let last = named().map(|named| named.number).max().unwrap_or_default();
    let mut all = vec![Column::new(Field::Other, MISSING); last];
    for Named { number, field } in named() {
        if let Some(column) = all.get_mut(number - 1) {
            *column = Column::new(*field, expected(*field));
        }
    }
    let separator = match columns.separator {
        Some(Separator::Byte(byte)) => Some(byte),
        Some(Separator::Blanks) | None => None,
    };
    let layout = Layout {
        columns: all,
        separator,
        first: FirstRow::MayLackNumbers { is_parted: columns.separator.is_some() },
        missing: Some(MISSING),
        end: None,
        len_bytes: columns.len_bytes,
        may_be_empty: true,
    };
    Rows::new(layout, Regions::many())
}

/// Returns the value that belongs in a column, for the complaint.
fn expected(field: Field) -> &'static str {
    match field {
        Field::Time(_) => "a number in the column of the time",
        Field::Offset(_) => "a number in the column of the offset",
        Field::Length(_) => "a number in the column of the length",
        Field::Op(Ops::ReadIs0) => "0 (read) or 1 (write) in the column of the operation",
        Field::Op(Ops::ReadIs1) => "0 (write) or 1 (read) in the column of the operation",
        Field::Op(Ops::Opcodes) => "a SCSI opcode in the column of the operation",
        Field::Op(_) => {
            "a word in the column of the operation (R, W, T, F, read, write, trim, discard, unmap, flush; for numbers say \
             op=N:read0, op=N:read1 or op=N:scsi)"
        }
        Field::Device | Field::Host | Field::Number | Field::Other => "a name in the column of the device",
    }
}

/// Returns the field that a key and its unit name.
fn field(key: &str, unit: Option<&str>) -> Result<Field, String> {
    match key {
        "time" => match unit {
            Some("s") => Ok(Field::Time(SECOND_NS)),
            Some("ms") => Ok(Field::Time(1_000_000)),
            Some("us") => Ok(Field::Time(1000)),
            Some("ns") => Ok(Field::Time(1)),
            _ => Err("time needs a unit: s, ms, us or ns, as in time=1:us".into()),
        },
        "offset" => Ok(Field::Offset(bytes(key, unit)?)),
        "length" => Ok(Field::Length(bytes(key, unit)?)),
        "device" if unit.is_none() => Ok(Field::Device),
        "device" => Err("device has no unit, as in device=5".into()),
        "op" => match unit {
            None => Ok(Field::Op(Ops::Words)),
            Some("read0") => Ok(Field::Op(Ops::ReadIs0)),
            Some("read1") => Ok(Field::Op(Ops::ReadIs1)),
            Some("scsi") => Ok(Field::Op(Ops::Opcodes)),
            Some(_) => {
                let known =
                    "op is of words, or read0 (0 reads, 1 writes), read1 (1 reads, 0 writes) or scsi, as in op=2:read0";
                Err(known.into())
            }
        },
        _ => Err(format!("no column \"{key}\"; there are {} and separator", KEYS.join(", "))),
    }
}

/// Returns the bytes of a unit of addresses.
fn bytes(key: &str, unit: Option<&str>) -> Result<u64, String> {
    let wrong =
        || format!("{key} needs a unit: bytes, sectors, or the bytes of a block, as in {key}=3:bytes or {key}=3:4096");
    match unit {
        Some("bytes") => Ok(1),
        Some("sectors") => Ok(SECTOR_BYTES),
        Some(number) => number.parse().ok().filter(|bytes| (1..=BLOCK_BYTES_MAX).contains(bytes)).ok_or_else(wrong),
        None => Err(wrong()),
    }
}

fn separator(name: &str) -> Result<Separator, String> {
    let known = SEPARATORS.iter().find(|(known, _)| *known == name);
    known.map(|(_, separator)| *separator).ok_or("separator is comma, tab, semicolon, bar or blanks".into())
}

fn parse(text: &str) -> Result<Columns, String> {
    let mut all = Columns { named: [None; KEYS.len()], separator: None, len_bytes: 0 };
    for part in text.split(',') {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("expected KEY=COLUMN[:UNIT], found \"{part}\""))?;
        let twice = || format!("{key} is there twice");
        if key == "separator" {
            match all.separator.replace(separator(value)?) {
                Some(_) => return Err(twice()),
                None => continue,
            }
        }
        let (number, unit) = value.split_once(':').map_or((value, None), |(number, unit)| (number, Some(unit)));
        let field = field(key, unit)?;
        let Some(number) = number.parse().ok().filter(|number| (1..=COLUMNS_MAX).contains(number)) else {
            return Err(format!("{key} needs the number of a column from 1 to {COLUMNS_MAX}, not \"{number}\""));
        };
        if all.named.iter().flatten().any(|named| named.number == number) {
            return Err(format!("column {number} is named twice"));
        }
        // Each key has one place.
        let place = KEYS.iter().position(|known| *known == key).and_then(|at| all.named.get_mut(at));
        if place.is_some_and(|place| place.replace(Named { number, field }).is_some()) {
            return Err(twice());
        }
    }
    let fields = || all.named.iter().flatten().map(|named| named.field);
    let offset_bytes = fields().find_map(|field| match field {
        Field::Offset(bytes) => Some(bytes),
        _ => None,
    });
    all.len_bytes = offset_bytes.ok_or("offset is needed, as in offset=3:bytes")?;
    if all.len_bytes == 1 && !fields().any(|field| matches!(field, Field::Length(_))) {
        return Err("length is needed where offsets are bytes, as in length=4:bytes".into());
    }
    Ok(all)
}

/// The form of the command line, in the order of the keys.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for Named { number, field } in self.named.iter().flatten() {
            f.write_str(std::mem::replace(&mut comma, ","))?;
            match field {
                Field::Time(SECOND_NS) => write!(f, "time={number}:s")?,
                Field::Time(1_000_000) => write!(f, "time={number}:ms")?,
                Field::Time(1000) => write!(f, "time={number}:us")?,
                Field::Time(_) => write!(f, "time={number}:ns")?,
                Field::Offset(bytes) => write!(f, "offset={number}:{}", UnitName(*bytes))?,
                Field::Length(bytes) => write!(f, "length={number}:{}", UnitName(*bytes))?,
                Field::Op(Ops::ReadIs0) => write!(f, "op={number}:read0")?,
                Field::Op(Ops::ReadIs1) => write!(f, "op={number}:read1")?,
                Field::Op(Ops::Opcodes) => write!(f, "op={number}:scsi")?,
                Field::Op(_) => write!(f, "op={number}")?,
                Field::Device | Field::Host | Field::Number | Field::Other => write!(f, "device={number}")?,
            }
        }
        match self.separator.and_then(|separator| SEPARATORS.iter().find(|(_, known)| *known == separator)) {
            Some((name, _)) => write!(f, ",separator={name}"),
            None => Ok(()),
        }
    }
}

struct UnitName(u64);

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("bytes"),
            SECTOR_BYTES => f.write_str("sectors"),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for Columns {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Columns, TraceError> {
        parse(text).map_err(TraceError::parameter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unclear_is_refused() {
        for (text, told) in [
            ("", "expected KEY=COLUMN[:UNIT]"),
            ("time=1,offset=2:bytes,length=3:bytes", "time needs a unit"),
            ("time=1:min,offset=2:sectors", "time needs a unit"),
            ("offset=2,length=3:bytes", "offset needs a unit"),
            ("offset=2:0", "offset needs a unit"),
            ("offset=2:2097152", "offset needs a unit"),
            ("offset=2:bytes,length=3", "length needs a unit"),
            ("offset=2:bytes", "length is needed"),
            ("time=1:s", "offset is needed"),
            ("offset=0:sectors", "a column from 1 to 32, not \"0\""),
            ("offset=33:sectors", "a column from 1 to 32"),
            ("offset=x:sectors", "a column from 1 to 32"),
            ("offset=1:sectors,op=1", "column 1 is named twice"),
            ("offset=1:sectors,offset=2:sectors", "offset is there twice"),
            ("offset=1:sectors,op=2:0", "op is of words, or read0"),
            ("offset=1:sectors,device=2:x", "device has no unit"),
            ("offset=1:sectors,tag=2", "no column \"tag\""),
            ("offset=1:sectors,separator=colon", "separator is comma, tab"),
        ] {
            let error = text.parse::<Columns>().expect_err(text).to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn columns_are_taken_by_their_numbers() {
        let columns: Columns = "length=4:4096,offset=2:sectors,separator=blanks".parse().expect("all is said");
        let named: Vec<Named> = columns.named.into_iter().flatten().collect();
        let expected = [(2, Field::Offset(512)), (4, Field::Length(4096))];
        assert_eq!(named, expected.map(|(number, field)| Named { number, field }));
        assert_eq!((columns.separator, columns.len_bytes), (Some(Separator::Blanks), 512));
        for text in [
            "offset=2:sectors,length=4:4096,separator=blanks",
            "time=1:us,op=2,offset=3:bytes,length=4:bytes,device=5",
            "time=3:ns,op=2:read0,offset=1:4096,separator=tab",
        ] {
            assert_eq!(text.parse::<Columns>().expect(text).to_string(), text);
        }
    }
}
