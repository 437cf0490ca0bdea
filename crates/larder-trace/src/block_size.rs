//! The block size of a trace's content.
//!
//! Replay and re-chunking need blocks of one size, each at a multiple of that size. This module
//! finds the line of the first block that breaks this rule.
//!
//! It does not decide whether that is an error. It leaves this to `ReaderOptions::one_block_size`
//! of the reader.

use crate::{
    error::{Position, TraceError, TraceErrorKind},
    record::Record,
};

/// The size of the blocks of content so far.
#[derive(Default)]
pub(crate) struct BlockSize {
    /// Bytes and line of the first.
    first: Option<(u64, u64)>,
}

impl BlockSize {
    /// Checks the records of line `line` of the file `name`. Returns an error if a block has
    /// another size than the first, or begins within a block.
    #[inline]
    pub fn check(&mut self, records: &[Record], name: &str, line: u64) -> Option<TraceError> {
        for record in records.iter().filter(|record| record.content.is_some()) {
            let &mut (bytes, first_line) = self.first.get_or_insert((record.len_bytes, line));
            if bytes != record.len_bytes || !record.offset_bytes.is_multiple_of(bytes) {
                return Some(other(bytes, first_line, record, name, line));
            }
        }
        None
    }
}

#[cold]
fn other(bytes: u64, first_line: u64, found: &Record, name: &str, line: u64) -> TraceError {
    let &Record { offset_bytes, len_bytes, .. } = found;
    let message = if len_bytes == bytes {
        format!("expected a block of {bytes} bytes of content at a multiple of that, found one at byte {offset_bytes}")
    } else {
        format!(
            "expected content in blocks of {bytes} bytes, as in line {first_line}, found a block of {len_bytes} bytes"
        )
    };
    TraceError::new(TraceErrorKind::Content, name, Position::Line(line), message)
}
