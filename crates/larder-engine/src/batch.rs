//! Reading many records with few requests: what lies close together on flash is read as one.
//!
//! Chunks that were written one after the other are neighbours in their WEU, so a long read of them is one request to
//! the device and not one for each chunk.
//!
//! Invariants: each record is checked for itself, whatever it was read with; each stays pinned until it was.
//!
//! What it does not do: wait; the caller joins these operations with others.

use crate::{
    record::{Held, HeldRecord, ReadingRecord, window},
    shared::Shared,
};
use larder_device::{IoBuf, IoFuture};

/// Bytes between two records that are read along with them, at most: reading on is cheaper than another request.
const GAP_BYTES_MAX: u64 = 16 << 10;
/// Bytes of one request, at most.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A record of a batch, with what the caller wants to know of it.
pub struct BatchRecord<T> {
    /// The caller's.
    pub about: T,
    /// Which of the batch's operations reads it.
    pub operation: usize,
    /// How to find and check it in what that operation reads.
    pub reading: ReadingRecord,
}

impl Shared {
    /// Begins to read held records: the operations, and the records in the order given.
    pub fn start_batch<T>(&self, held: Vec<(T, HeldRecord)>) -> (Vec<IoFuture<IoBuf>>, Vec<BatchRecord<T>>) {
        let mut operations: Vec<IoFuture<IoBuf>> = Vec::new();
        let mut records: Vec<BatchRecord<T>> = Vec::with_capacity(held.len());
        // Offset on flash, length, and record, of what has to be read.
        let mut windows: Vec<(u64, u64, usize)> = Vec::new();
        for (about, HeldRecord { place, bytes }) in held {
            let (operation, pin, skip) = match bytes {
                Held::Memory(bytes) => {
                    operations.push(IoFuture::ready(Ok(bytes.into_iobuf())));
                    (operations.len() - 1, None, 0)
                }
                Held::Flash(pin) => {
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
