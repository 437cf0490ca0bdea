//! The default output of `blkparse`: `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`.
//!
//! A request shows up several times, once for each action. One action counts: `Q` (queued) where the beginning of the
//! file has any, since those are the requests as they were made, before merging and splitting; else `D` (sent to the
//! driver), else `C` (completed). The caller may name another. All other lines are passed over, the summary at the end
//! of the file too.
//!
//! RWBS: R read, W write, D discard; an F before it is a flush that precedes the write, an F after it (FUA) one that
//! follows; a flush alone has no sectors. Other requests (N: no data) are passed over. Devices get regions of their own;
//! the process is the tag.

use super::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{Cursor, decimal, seconds_as_ns},
    record::{Op, Record, Tag},
    sink::{Regions, Sink},
};

/// Actions that name a request, best first.
const ACTIONS: [u8; 3] = *b"QDC";

/// The parser: which action counts, which devices there are, and whether the summary has begun.
pub(crate) struct Blkparse {
    action: u8,
    devices: Regions,
    is_in_summary: bool,
}

/// The best action that the beginning of a file has: Q, else D, else C.
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

/// Whether a line begins with `major,minor`.
fn looks_like_device(line: &[u8]) -> bool {
    let Some(field) = Cursor::blanks(line).field() else { return false };
    let mut numbers = field.splitn(2, |&byte| byte == b',');
    let is_number = |part: Option<&[u8]>| part.and_then(decimal).is_some();
    is_number(numbers.next()) && is_number(numbers.next())
}

impl Blkparse {
    pub fn new(action: u8) -> Blkparse {
        Blkparse { action, devices: Regions::default(), is_in_summary: false }
    }
}

/// What RWBS says.
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

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        if !looks_like_device(line) {
            let text = line.trim_ascii_start();
            self.is_in_summary |= text.starts_with(b"CPU") || text.starts_with(b"Total") || text.is_empty();
            let complaint = Complaint::expected("a line of blkparse, beginning with major,minor of a device");
            return if self.is_in_summary { Ok(()) } else { Err(complaint) };
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
        let base = self.devices.base(device)?;
        let request = sink.next_request();
        let mut record = Record::new(request, Op::Flush, 0, 0);
        record.time_us = Some(time_ns / 1000);
        record.tag = process(columns.rest());
        if said.flush_before {
            sink.push(record)?;
        }
        match (said.op, place) {
            (Some(op), Some((sector, sectors))) if sectors > 0 => {
                let offset_bytes = sector.saturating_mul(SECTOR_BYTES);
                let len_bytes = sectors.saturating_mul(SECTOR_BYTES);
                sink.push_in(base, Record { op, offset_bytes, len_bytes, ..record })?;
            }
            // A flush without data is printed as FWS or the like, with no sectors or with 0.
            (Some(_), _) if said.flush_before => return Ok(()),
            (Some(_), _) => return Err(Complaint::expected("\"sector + sectors\" after the kind of request")),
            (None, _) => return Ok(()),
        }
        if said.flush_after {
            sink.push(record)?;
        }
        Ok(())
    }
}

/// `sector + sectors`, where it stands there. Leaves what follows.
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

/// The process in brackets.
fn process(rest: &[u8]) -> Tag {
    let rest = rest.trim_ascii();
    match rest.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) {
        Some(name) => Tag::new(name),
        None => Tag::NONE,
    }
}
