//! Operations as SCSI opcodes: 08, 28, 88, a8 read; 0a, 2a, 8a, aa write; 42 unmap; 35, 91 flush.
//!
//! It does not know other commands; most of them move no blocks.

use crate::{parse::hex64, record::Op};

/// Returns the operation of an opcode if a cache sees that operation.
pub(crate) fn op(opcode: u64) -> Option<Op> {
    Some(match opcode {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write,
        0x42 => Op::Trim,
        0x35 | 0x91 => Op::Flush,
        _ => return None,
    })
}

/// Returns the same for hexadecimal digits, with `0x` or without.
pub(crate) fn op_of_digits(field: &[u8]) -> Option<Op> {
    let digits = field.strip_prefix(b"0x").or_else(|| field.strip_prefix(b"0X"));
    op(hex64(digits.unwrap_or(field))?)
}
