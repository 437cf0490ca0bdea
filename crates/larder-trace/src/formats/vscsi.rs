//! The traces of a virtual SCSI disk, as CloudPhysics has them, little-endian.
//!
//! Version 1 has records of 32 bytes: u32 serial number, u32 bytes, u32 pieces, u16 command, u16
//! version, u64 sector, u64 microseconds. Version 2 has records of 40 bytes: u16 command, u16
//! version, u32 serial number, u32 bytes, u32 pieces, u64 sector, u64 microseconds, u64 response
//! time.
//!
//! The high byte of the version is 1 or 2; the parser ignores the low byte. The low byte of the
//! command is the [SCSI opcode](super::scsi). The parser passes over a command that neither reads,
//! writes nor flushes. (UNMAP has its ranges in data that are not recorded.)
//!
//! Source: the record layouts of libCacheSim's `vscsi.h`.

use super::{
    kinds::{BinaryFormat, SECTOR_BYTES},
    scsi,
};
use crate::{
    error::Complaint,
    record::{Op, Record},
    sink::Sink,
};

/// Bytes of a record of version 1.
pub(crate) const V1_BYTES: usize = 32;
/// Bytes of a record of version 2.
pub(crate) const V2_BYTES: usize = 40;

/// The parser of records of this many bytes; it keeps nothing.
pub(crate) struct Vscsi<const BYTES: usize>;

/// The fields of a record that the parser uses.
struct Command {
    opcode: u16,
    version: u16,
    len_bytes: u32,
    sector: u64,
    time_us: u64,
}

impl Command {
    fn decode(bytes: &[u8]) -> Option<Command> {
        let short = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let long = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (opcode, version, len) = if bytes.len() < V2_BYTES { (12, 14, 4) } else { (0, 2, 8) };
        Some(Command {
            opcode: short(opcode)?,
            version: short(version)?,
            len_bytes: word(len)?,
            sector: long(16)?,
            time_us: long(24)?,
        })
    }

    fn is_version(&self, version: u16) -> bool {
        self.version >> 8 == version
    }
}

/// Returns the version of records of this many bytes.
const fn version_of(record_bytes: usize) -> u16 {
    if record_bytes == V1_BYTES { 1 } else { 2 }
}

/// Returns whether most of the first records have the version of records of this many bytes.
pub(crate) fn looks_like<const BYTES: usize>(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<BYTES>();
    let is_its =
        |bytes: &&[u8; BYTES]| Command::decode(&bytes[..]).is_some_and(|command| command.is_version(version_of(BYTES)));
    !records.is_empty() && records.iter().filter(is_its).count() * 10 >= records.len() * 9
}

impl<const BYTES: usize> BinaryFormat for Vscsi<BYTES> {
    const RECORD_BYTES: usize = BYTES;

    #[inline]
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        const VERSION: [&str; 2] =
            ["version 1 in byte 15 of a record of 32 bytes", "version 2 in byte 3 of a record of 40 bytes"];
        let [first, second] = VERSION;
        let wrong = Complaint::expected(if BYTES == V1_BYTES { first } else { second });
        let command = Command::decode(bytes).filter(|command| command.is_version(version_of(BYTES))).ok_or(wrong)?;
        let (offset_bytes, len_bytes) = (command.sector.saturating_mul(SECTOR_BYTES), u64::from(command.len_bytes));
        let record = match scsi::op(u64::from(command.opcode & 0xff)) {
            Some(Op::Flush) => Record::new(0, Op::Flush, 0, 0),
            // SCSI has reads and writes of no blocks.
            Some(Op::Read | Op::Write) if len_bytes == 0 => {
                sink.pass_empty();
                return Ok(());
            }
            Some(op @ (Op::Read | Op::Write)) => Record::new(0, op, offset_bytes, len_bytes),
            Some(Op::Trim) | None => return Ok(()),
        };
        let request = sink.next_request();
        sink.push(Record { request, time_us: Some(command.time_us), ..record })
    }
}
