//! Whole requests of a trace that has a record for each block of them.
//!
//! Consecutive records of one request become one record without content if they have the same
//! operation and lie end to end. A request becomes several records if it is longer than any read or
//! write, or if its blocks lie apart.
//!
//! Invariants: bytes, operations and order stay. One record is kept in memory.
//!
//! It does not join requests that are separate in the trace.

use std::iter::Fuse;

use crate::{
    error::TraceResult,
    record::{REQUEST_BYTES_MAX, Record},
};

/// Returns the requests of `records`, whole.
pub fn whole_requests<I>(records: I) -> WholeRequests<I::IntoIter>
where
    I: IntoIterator<Item = TraceResult<Record>>,
{
    WholeRequests { records: records.into_iter().fuse(), next: None }
}

/// See [`whole_requests`].
pub struct WholeRequests<I> {
    records: Fuse<I>,
    /// The record that was read ahead and may still grow, or an error behind the last one.
    next: Option<TraceResult<Record>>,
}

impl<I: Iterator<Item = TraceResult<Record>>> Iterator for WholeRequests<I> {
    type Item = TraceResult<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut whole = match self.next.take().or_else(|| self.records.next())? {
            Ok(record) => Record { content: None, ..record },
            Err(error) => return Some(Err(error)),
        };
        loop {
            self.next = self.records.next();
            match &self.next {
                Some(Ok(block)) if goes_on(&whole, block) => whole.len_bytes += block.len_bytes,
                _ => return Some(Ok(whole)),
            }
        }
    }
}

/// Returns whether a block continues a request.
fn goes_on(whole: &Record, block: &Record) -> bool {
    let is_its = (whole.request, whole.op) == (block.request, block.op) && whole.is_data();
    is_its && whole.end_bytes() == block.offset_bytes && whole.len_bytes + block.len_bytes <= REQUEST_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceError, record::Op};

    #[test]
    fn blocks_of_a_request_become_one() {
        let block = |request, op, at: u64| Record::new(request, op, at * 4096, 4096);
        let all = [
            block(1, Op::Read, 0),
            block(1, Op::Read, 1),
            block(1, Op::Read, 2),
            block(1, Op::Read, 9),
            block(1, Op::Write, 10),
            block(2, Op::Write, 11),
            block(2, Op::Write, 12),
            Record::new(3, Op::Flush, 0, 0),
            Record::new(3, Op::Flush, 0, 0),
            block(4, Op::Trim, 0),
            block(4, Op::Trim, 1),
        ];
        let whole: Vec<_> = whole_requests(all.map(Ok)).map(|record| record.expect("sound")).collect();
        let told =
            whole.iter().map(|record| (record.request, record.op, record.offset_bytes / 4096, record.len_bytes / 4096));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                (1, Op::Read, 0, 3),
                (1, Op::Read, 9, 1),
                (1, Op::Write, 10, 1),
                (2, Op::Write, 11, 2),
                (3, Op::Flush, 0, 0),
                (3, Op::Flush, 0, 0),
                (4, Op::Trim, 0, 1),
                (4, Op::Trim, 1, 1),
            ]
        );
    }

    #[test]
    fn no_request_is_longer_than_any_that_is_read() {
        let half = REQUEST_BYTES_MAX / 2;
        let all = (0..5).map(|at| Ok(Record::new(1, Op::Write, at * half, half)));
        let lengths: Vec<u64> = whole_requests(all).map(|record| record.expect("sound").len_bytes).collect();
        assert_eq!(lengths, [REQUEST_BYTES_MAX, REQUEST_BYTES_MAX, half]);
    }

    #[test]
    fn an_error_comes_behind_what_was_whole() {
        let all = [
            Ok(Record::new(1, Op::Read, 0, 512)),
            Err(TraceError::parameter("bad")),
            Ok(Record::new(1, Op::Read, 512, 512)),
        ];
        let told: Vec<bool> = whole_requests(all).map(|record| record.is_ok()).collect();
        assert_eq!(told, [true, false, true]);
    }
}
