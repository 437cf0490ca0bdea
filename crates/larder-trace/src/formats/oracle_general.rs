//! libCacheSim's `oracleGeneral`: little-endian records of 24 bytes a request.
//!
//! The fields are u32 time in seconds, u64 object, u32 size in bytes, and i64 number of the next
//! request for the object. That number counts from 1 and is -1 for none. An object is taken as a
//! sector number, as in traces of block devices; `block_bytes` overrides the 512. Objects that are
//! hashes lie past every device, and are refused. The file gives no operation, so all are reads.

use super::kinds::{BinaryFormat, SECTOR_BYTES};
use crate::{
    error::Complaint,
    record::{Op, Record},
    sink::Sink,
};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;

/// A record, field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OracleRecord {
    pub seconds: u32,
    pub object: u64,
    pub size_bytes: u32,
    pub next: i64,
}

impl OracleRecord {
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> OracleRecord {
        let [a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, d0, d1, d2, d3, d4, d5, d6, d7] = *bytes;
        OracleRecord {
            seconds: u32::from_le_bytes([a0, a1, a2, a3]),
            object: u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            size_bytes: u32::from_le_bytes([c0, c1, c2, c3]),
            next: i64::from_le_bytes([d0, d1, d2, d3, d4, d5, d6, d7]),
        }
    }

    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let fields = [
            &self.seconds.to_le_bytes()[..],
            &self.object.to_le_bytes(),
            &self.size_bytes.to_le_bytes(),
            &self.next.to_le_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }
}

/// The parser.
pub(crate) struct OracleGeneral {
    block_bytes: u64,
}

impl OracleGeneral {
    pub fn new(block_bytes: Option<u32>) -> OracleGeneral {
        OracleGeneral { block_bytes: block_bytes.map_or(SECTOR_BYTES, u64::from) }
    }
}

impl BinaryFormat for OracleGeneral {
    const RECORD_BYTES: usize = RECORD_BYTES;

    #[inline]
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let bytes = bytes.first_chunk().ok_or(Complaint::expected("24 bytes"))?;
        let entry = OracleRecord::decode(bytes);
        let offset_bytes = entry.object.saturating_mul(self.block_bytes);
        let mut record = Record::new(sink.next_request(), Op::Read, offset_bytes, u64::from(entry.size_bytes));
        record.time_us = Some(u64::from(entry.seconds) * 1_000_000);
        sink.push(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_bytes_of_libcachesim() {
        let entry = OracleRecord { seconds: 0x0055_f76a, object: 0x028f_1a09, size_bytes: 512, next: -1 };
        let bytes =
            [0x6a, 0xf7, 0x55, 0, 9, 0x1a, 0x8f, 2, 0, 0, 0, 0, 0, 2, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        assert_eq!(entry.encode(), bytes);
        assert_eq!(OracleRecord::decode(&bytes), entry);
    }
}
