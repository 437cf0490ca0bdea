//! The default output of `blkparse`. A line is
//! `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`.
//!
//! A request shows up several times, once for each action. One action counts. It is `Q` (queued) if
//! the beginning of the file has any: those are the requests before merging and splitting. Else it
//! is `D` (sent to the driver), else `C` (completed). The caller may name another. The parser
//! passes over all other lines, the summary at the end of the file and the list of its input files
//! too.
//!
//! RWBS: R read, W write, D discard. An F before the letter is a flush that precedes the write. An
//! F after it (FUA) is a flush that follows. A flush alone has no sectors. The parser passes over
//! other requests (N: no data). Devices get regions of their own. The process is the tag if the
//! action has it (`C` has an error number in its place).
//!
//! Source: blktrace's `blkparse_fmt.c`. It has three shapes for Q, I, D and C:
//!
//! - `sector + sectors`, perhaps with `(elapsed)`;
//! - a request without data: `[process]`, for C `sector [error]`;
//! - a command that passes through to the driver (SCSI, NVMe): `bytes (its bytes) [process]`, for C
//!   without the number.
//!
//! The last two move no blocks, and the parser passes over them as over any line that is no
//! request.

use super::kinds::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{Cursor, decimal, seconds_as_ns},
    record::{Op, Record, Tag},
    sink::{Regions, Sink},
};

/// Actions that name a request, best first.
const ACTIONS: [u8; 3] = *b"QDC";

/// Lines that name the input files. They stand before the requests or behind the summary.
const INPUT_FILE: &[u8] = b"Input file ";

/// The parser: the action that counts, the devices so far, and whether the summary has begun.
pub(crate) struct Blkparse {
    action: u8,
    devices: Regions,
    is_in_summary: bool,
}

/// Returns the best action at the beginning of a file: Q, else D, else C.
pub(crate) fn choose_action(head: &[u8]) -> u8 {
    let mut seen = [false; ACTIONS.len()];
    for line in head.split(|&byte| byte == b'\n') {
        let mut columns = Cursor::blanks(line);
        let action = (0..6).map_while(|_| columns.field()).nth(5);
        for (seen, known) in seen.iter_mut().zip(ACTIONS) {
            *seen |= action == Some(&[known]) && looks_like_device(line);
        }
    }
    ACTIONS.into_iter().zip(seen).find(|(_, seen)| *seen).map_or(b'Q', |(action, _)| action)
}

/// Returns whether a line begins with `major,minor`.
pub(crate) fn looks_like_device(line: &[u8]) -> bool {
    let Some(field) = Cursor::blanks(line).field() else { return false };
    let mut numbers = field.splitn(2, |&byte| byte == b',');
    let is_number = |part: Option<&[u8]>| part.and_then(decimal).is_some();
    is_number(numbers.next()) && is_number(numbers.next())
}

impl Blkparse {
    pub fn new(action: u8) -> Blkparse {
        Blkparse { action, devices: Regions::few(), is_in_summary: false }
    }
}

/// The meaning of RWBS.
#[derive(Debug, PartialEq, Eq)]
struct Rwbs {
    op: Option<Op>,
    flush_before: bool,
    flush_after: bool,
}

fn rwbs(field: &[u8]) -> Rwbs {
    let mut said = Rwbs { op: None, flush_before: false, flush_after: false };
    for byte in field {
        match byte {
            b'R' => said.op = Some(Op::Read),
            b'W' => said.op = Some(Op::Write),
            b'D' => said.op = Some(Op::Trim),
            b'F' if said.op.is_some() => said.flush_after = true,
            b'F' => said.flush_before = true,
            _ => {}
        }
    }
    said
}

/// Returns whether a line that is no event begins a summary of blkparse. The summary is for a
/// process (`name (pid)`), for a CPU, or for all.
fn begins_summary(line: &[u8]) -> bool {
    let begins = [&b"CPU"[..], b"Total", b"Throughput", b"Events"].iter().any(|word| line.starts_with(word));
    let pid = memchr::memrchr(b'(', line).and_then(|at| line.get(at + 1..)).and_then(|rest| rest.strip_suffix(b")"));
    begins || pid.is_some_and(|pid| decimal(pid.strip_suffix(b", ...").unwrap_or(pid)).is_some())
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if !looks_like_device(line) {
            let text = line.trim_ascii();
            self.is_in_summary |= begins_summary(text);
            let complaint = Complaint::expected("a line of blkparse, beginning with major,minor of a device");
            return if self.is_in_summary || text.starts_with(INPUT_FILE) { Ok(()) } else { Err(complaint) };
        }
        let mut columns = Cursor::blanks(line);
        let device = columns.need("major,minor in column 1")?;
        columns.number("the CPU in column 2")?;
        columns.number("the sequence number in column 3")?;
        const TIME: &str = "the time in seconds in column 4";
        let time_ns = seconds_as_ns(columns.need(TIME)?).ok_or(Complaint::expected(TIME))?;
        columns.need("the process number in column 5")?;
        if columns.need("an action in column 6")? != [self.action] {
            return Ok(());
        }
        let said = rwbs(columns.need("the kind of request (RWBS) in column 7")?);
        let place = place(&mut columns)?;
        let name = end(columns.rest(), place.is_none())?;
        // Older versions print a flush without data with 0 sectors.
        let data = said.op.zip(place).filter(|(_, (_, sectors))| *sectors > 0 || !said.flush_before);
        if data.is_none() && !said.flush_before {
            // The line moves no blocks, so it is no request to a cache.
            return Ok(());
        }
        let mut record = Record::new(sink.next_request(), Op::Flush, 0, 0);
        record.time_us = Some(time_ns / 1000);
        record.tag = if self.action == b'C' { Tag::NONE } else { Tag::new(name) };
        if said.flush_before {
            sink.push(record)?;
        }
        let Some((op, (sector, sectors))) = data else { return Ok(()) };
        let offset_bytes = sector.saturating_mul(SECTOR_BYTES);
        let len_bytes = sectors.saturating_mul(SECTOR_BYTES);
        let region = self.devices.region(device)?;
        sink.push_in(region, Record { op, offset_bytes, len_bytes, ..record })?;
        if said.flush_after {
            sink.push(record)?;
        }
        Ok(())
    }
}

/// Returns `sector + sectors` if it stands there, and leaves the rest.
fn place(columns: &mut Cursor<'_>) -> Result<Option<(u64, u64)>, Complaint> {
    let mut ahead = *columns;
    let Some(sector) = ahead.field().and_then(decimal) else { return Ok(None) };
    if ahead.field() != Some(b"+") {
        return Ok(None);
    }
    let sectors = ahead.number("the length in sectors after \"+\"")?;
    *columns = ahead;
    Ok(Some((sector, sectors)))
}

/// Returns the text in square brackets, which must follow the place or stand in its stead. A number
/// (bytes or a sector) and text in round brackets may precede it.
fn end(rest: &[u8], without_place: bool) -> Result<&[u8], Complaint> {
    let mut left = rest.trim_ascii();
    if without_place {
        let digits = left.iter().take_while(|byte| byte.is_ascii_digit()).count();
        left = left.get(digits..).unwrap_or_default().trim_ascii_start();
    }
    if left.starts_with(b"(") {
        let at = memchr::memchr(b')', left).map_or(left.len(), |at| at + 1);
        left = left.get(at..).unwrap_or_default().trim_ascii_start();
    }
    match left.strip_prefix(b"[").and_then(|left| left.strip_suffix(b"]")) {
        Some(name) => Ok(name),
        // The place identifies the line, with any rest.
        None if !without_place => Ok(b""),
        None => Err(Complaint::expected(
            "\"sector + sectors\" and [process] after the kind of request, or [process] alone where no blocks are moved",
        )),
    }
}
