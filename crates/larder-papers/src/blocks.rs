//! The content of each block of a device, while a trace changes it.
//!
//! Invariants: the state of a block follows its last change; a change of unknown outcome leaves it
//! unknown. Memory: about 50 bytes for each block that the trace touches.
//!
//! It does not read or write.

use larder_trace::Op;
use std::collections::HashMap;

use crate::{content::Bytes, request::PaperRequest};

/// The known content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Bytes(Bytes),
    /// Unknown, after a change of a part of it.
    Nothing,
}

/// The expected content of a read block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// These bytes: they were written, or read before.
    Surely(Bytes),
    /// These bytes, by the trace's first read there: the device has them if it was prepared.
    IfPrepared(Bytes),
    /// Any bytes.
    Anything,
}

/// The blocks.
pub struct Blocks {
    block_bytes: u64,
    known: HashMap<u64, Known>,
    /// Reads whose content in the trace differs from the trace's own last write there.
    pub contradictions: u64,
}

impl Blocks {
    /// Returns a device without any known block.
    pub fn new(block_bytes: u64) -> Blocks {
        Blocks { block_bytes, known: HashMap::new(), contradictions: 0 }
    }

    /// Returns the expected content of each block of a read, and remembers it.
    pub fn read(&mut self, request: &PaperRequest) -> Vec<Expected> {
        let mut expected = Vec::with_capacity(request.blocks.len());
        for block in &request.blocks {
            let number = (request.offset + block.at) / self.block_bytes;
            let Some(said) = block.bytes else {
                expected.push(Expected::Anything);
                continue;
            };
            expected.push(match self.known.get(&number) {
                Some(Known::Bytes(bytes)) => {
                    self.contradictions += u64::from(*bytes != said);
                    Expected::Surely(*bytes)
                }
                Some(Known::Nothing) => Expected::Anything,
                None => {
                    self.known.insert(number, Known::Bytes(said));
                    Expected::IfPrepared(said)
                }
            });
        }
        expected
    }

    /// Notes a request that may change blocks.
    pub fn change(&mut self, request: &PaperRequest) {
        if request.op == Op::Read {
            return;
        }
        for block in &request.blocks {
            if let Some(bytes) = block.bytes {
                self.known.insert((request.offset + block.at) / self.block_bytes, Known::Bytes(bytes));
            }
        }
        if request.op == Op::Trim && request.len > 0 {
            self.trim(request.offset, request.offset + request.len);
        }
    }

    fn trim(&mut self, start: u64, end: u64) {
        let block = self.block_bytes;
        let (first, last) = (start / block, (end - 1) / block);
        let is_whole = |number: u64| start <= number * block && (number + 1) * block <= end;
        let mut set = |number: u64, to: Known| {
            // An untouched block reads as the trace says later.
            self.known.insert(number, to);
        };
        if last - first < 1 << 20 {
            for number in first..=last {
                set(number, if is_whole(number) { Known::Bytes(Bytes::Zero) } else { Known::Nothing });
            }
            return;
        }
        // It may be a whole disk; the untouched blocks stay without a state.
        for (&number, known) in self.known.iter_mut().filter(|(number, _)| (first..=last).contains(number)) {
            *known = if is_whole(number) { Known::Bytes(Bytes::Zero) } else { Known::Nothing };
        }
    }

    /// Returns the blocks for which this request is the first known operation, if it is a read.
    pub fn first_reads(&mut self, request: &PaperRequest) -> Vec<(u64, u64, Bytes)> {
        if request.op != Op::Read {
            self.change(request);
            return Vec::new();
        }
        let expected = self.read(request);
        let first = request.blocks.iter().zip(expected).filter_map(|(block, expected)| match expected {
            Expected::IfPrepared(bytes) => Some((request.offset + block.at, block.len, bytes)),
            _ => None,
        });
        first.collect()
    }
}
