//! SSDsim's and MQSim's ASCII traces: `time_ns device lba sectors type`.
//!
//! Type 0 is a write and 1 a read. Devices get regions of their own, in the order of appearance.

use super::kinds::{LineFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    parse::{Cursor, decimal},
    record::{Op, Record},
    sink::{Regions, Sink},
};

/// The parser, with the devices so far.
pub(crate) struct Ssdsim {
    devices: Regions,
}

impl Ssdsim {
    pub fn new() -> Ssdsim {
        Ssdsim { devices: Regions::few() }
    }
}

impl LineFormat for Ssdsim {
    #[inline]
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let mut columns = Cursor::blanks(line);
        let time_ns = columns.number("the time in nanoseconds in column 1")?;
        const DEVICE: &str = "the number of the device in column 2";
        let device = columns.need(DEVICE)?;
        decimal(device).ok_or(Complaint::expected(DEVICE))?;
        let lba = columns.number("the address in sectors in column 3")?;
        let sectors = columns.number("the length in sectors in column 4")?;
        let op = match columns.need("0 (write) or 1 (read) in column 5")? {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(Complaint::expected("0 (write) or 1 (read) in column 5")),
        };
        columns.end("five columns and no more")?;
        let region = self.devices.region(device)?;
        let offset_bytes = lba.saturating_mul(SECTOR_BYTES);
        let mut record = Record::new(sink.next_request(), op, offset_bytes, sectors.saturating_mul(SECTOR_BYTES));
        record.time_us = Some(time_ns / 1000);
        sink.push_in(region, record)
    }
}
