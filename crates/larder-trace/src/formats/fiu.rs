//! FIU IODedup traces: `ts_ns pid process lba sectors R|W major minor md5`.
//!
//! Source: Koller and Rangaswami, FAST'10. Mail and web-vm have an MD5 for each block of 4 KiB (a
//! line has one block, as a rule). Homes has one for each sector of a block, written without a gap.
//! The length of the last column tells the two apart. Each block, or sector, becomes a record; the
//! records of a line are one request. The process is the tag.
//!
//! Blanks or tabs separate columns. The parser takes them from both ends, because the name of a
//! process may have blanks. Major and minor are not used: a file is one device.

use super::kinds::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{Cursor, decimal, fingerprint},
    record::{CONTENT_BYTES_MAX, Op, Provenance, Record, Tag, TraceContent},
    sink::Sink,
    zero,
};

/// Hexadecimal digits of an MD5.
const MD5_DIGITS: usize = 32;

/// The parser; it keeps nothing.
pub(crate) struct Fiu;

impl LineFormat for Fiu {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        const NINE: &str = "the nine columns of an FIU trace (ts_ns pid process lba sectors R|W major minor md5)";
        let mut left = Cursor::blanks(line);
        let time_ns = left.number("the time in nanoseconds in column 1")?;
        left.number("the process number in column 2")?;
        let mut right = left.rest().trim_ascii();
        let mut last = || -> Result<&[u8], Complaint> {
            let at = memchr::memrchr2(b' ', b'\t', right).ok_or(Complaint::expected(NINE))?;
            let (rest, field) = right.split_at_checked(at).ok_or(Complaint::expected(NINE))?;
            right = rest.trim_ascii_end();
            Ok(field.get(1..).unwrap_or_default())
        };
        let (digits, minor, major, op, sectors, lba) = (last()?, last()?, last()?, last()?, last()?, last()?);
        let tag = Tag::new(right);
        let sectors = decimal(sectors).ok_or(Complaint::expected("the length in sectors in column 5"))?;
        let lba = decimal(lba).ok_or(Complaint::expected("the address in sectors in column 4"))?;
        if decimal(minor).is_none() || decimal(major).is_none() {
            return Err(Complaint::expected("device numbers in columns 7 and 8"));
        }
        let op = match op {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(Complaint::expected("R or W in column 6")),
        };
        let blocks = (digits.len() / MD5_DIGITS) as u64;
        if sectors == 0 {
            return Err(Complaint::ZERO_SIZE);
        }
        let is_even = digits.len() % MD5_DIGITS == 0 && blocks > 0 && sectors % blocks == 0;
        if !is_even || sectors > CONTENT_BYTES_MAX / SECTOR_BYTES {
            return Err(Complaint::expected("an MD5 of 32 digits for each 4 KiB or for each sector in column 9"));
        }
        let len_bytes = sectors * SECTOR_BYTES / blocks;
        if blocks > 1 && len_bytes != 512 && len_bytes != 4096 {
            return Err(Complaint::expected("as many MD5s in column 9 as the length has blocks of 4 KiB or sectors"));
        }
        let request = sink.next_request();
        for (at, md5) in digits.chunks_exact(MD5_DIGITS).enumerate() {
            let fingerprint = fingerprint(md5).ok_or(Complaint::expected("hexadecimal digits in column 9"))?;
            let is_zero = zero::md5(len_bytes) == Some(fingerprint);
            let content = TraceContent { fingerprint, stored_bytes: None, is_zero, provenance: Provenance::Recorded };
            sink.push(Record {
                time_us: Some(time_ns / 1000),
                request,
                tag,
                op,
                offset_bytes: lba.saturating_mul(SECTOR_BYTES).saturating_add(at as u64 * len_bytes),
                len_bytes,
                content: Some(content),
            })?;
        }
        Ok(())
    }
}
