//! Reading many records with few requests: records that lie close together on flash are read as
//! one.
//!
//! Chunks that were written one after the other are neighbours in their slot. So a long read of
//! them is one request to the device and not one for each chunk.
//!
//! Invariants: each record is checked for itself, and stays pinned until its check.
//!
//! It does not wait; the caller joins these operations with others.

use crate::{
    record::{HeldBytes, HeldRecord, ReadingRecord, window},
    shared::Shared,
};
use larder_device::{IoBuf, IoFuture};

/// Limit of the bytes between two records of one request: reading on is cheaper than another
/// request.
const GAP_BYTES_MAX: u64 = 16 << 10;
/// Limit of the bytes of one request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A record of a batch, with a note of the caller.
pub struct BatchRecord<T> {
    /// The caller's note.
    pub about: T,
    /// The index of the batch's operation that reads the record.
    pub operation: usize,
    /// The way to find and check the record in that operation's bytes.
    pub reading: ReadingRecord,
}

impl Shared {
    /// Begins to read held records. Returns the operations, and the records in the order given.
    pub fn start_batch<T>(&self, held: Vec<(T, HeldRecord)>) -> (Vec<IoFuture<IoBuf>>, Vec<BatchRecord<T>>) {
        let mut operations: Vec<IoFuture<IoBuf>> = Vec::new();
        let mut records: Vec<BatchRecord<T>> = Vec::with_capacity(held.len());
        // Offset on flash, length and record of each range to read.
        let mut windows: Vec<(u64, u64, usize)> = Vec::new();
        for (about, HeldRecord { place, bytes }) in held {
            let (operation, pin, skip) = match bytes {
                HeldBytes::Memory(bytes) => {
                    operations.push(IoFuture::ready(Ok(bytes.into_iobuf())));
                    (operations.len() - 1, None, 0)
                }
                HeldBytes::Flash(pin) => {
                    let (offset, len, skip) = window(&self.geometry, &place);
                    windows.push((offset, len as u64, records.len()));
                    (0, Some(pin), skip)
                }
            };
            records.push(BatchRecord { about, operation, reading: ReadingRecord { place, pin, skip } });
        }
        windows.sort_unstable();
        let mut rest = windows.as_slice();
        while let Some(&(start, len, _)) = rest.first() {
            let mut end = start + len;
            let mut count = 1;
            while let Some(&(offset, len, _)) = rest.get(count) {
                let joined_end = end.max(offset + len);
                if offset > end + GAP_BYTES_MAX || joined_end - start > REQUEST_BYTES_MAX {
                    break;
                }
                end = joined_end;
                count += 1;
            }
            let (group, more) = rest.split_at(count);
            for &(offset, _, record) in group {
                records[record].operation = operations.len();
                records[record].reading.skip += (offset - start) as usize;
            }
            operations.push(self.read_data(self.stripes.mine(), start, IoBuf::new((end - start) as usize)));
            rest = more;
        }
        (operations, records)
    }
}
