//! Bare little-endian u32 block numbers, as in CloudPhysics' `w106`.
//!
//! There are 4 bytes a reference and nothing else. The file gives no operation, so all are reads. A
//! block is 4096 bytes unless the caller gives another size. There are no times.

use super::kinds::BinaryFormat;
use crate::{
    error::Complaint,
    record::{Op, Record},
    sink::Sink,
};

/// Bytes of a block if the caller gives no size.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// The parser.
pub(crate) struct BlockIds {
    block_bytes: u64,
}

impl BlockIds {
    pub fn new(block_bytes: Option<u32>) -> BlockIds {
        BlockIds { block_bytes: u64::from(block_bytes.unwrap_or(BLOCK_BYTES)) }
    }
}

impl BinaryFormat for BlockIds {
    const RECORD_BYTES: usize = 4;

    #[inline]
    fn record(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<(), Complaint> {
        let id = bytes.first_chunk().ok_or(Complaint::expected("4 bytes"))?;
        let offset_bytes = u64::from(u32::from_le_bytes(*id)) * self.block_bytes;
        let request = sink.next_request();
        sink.push(Record::new(request, Op::Read, offset_bytes, self.block_bytes))
    }
}
