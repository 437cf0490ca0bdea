//! Checksums: CRC32C (Castagnoli, the iSCSI polynomial, as CPUs compute it).
//!
//! Role: one function for structures, and one for records that binds the payload to the record's
//! place. A checksum detects accidents, not adversaries.

/// Returns the CRC32C of some bytes. (`crc32c(b"123456789") == 0xe306_9283`.)
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The place that a record belongs to.
///
/// It is a part of the record's checksum: stale or misdirected bytes, intact in themselves, are not
/// taken for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordIdentity {
    /// The slot.
    pub slot: u32,
    /// The slot's generation when the record was written.
    pub generation: u32,
    /// The record's first byte, in bytes from the start of the slot.
    pub offset: u32,
}

/// Returns the checksum of a record: CRC32C of 20 bytes.
///
/// Four little-endian `u32` are the slot, generation, offset and encoding. A fifth is the CRC32C of
/// the stored `payload`. The payload's CRC comes first and alone, which is the fast way over a
/// whole chunk.
#[inline]
pub fn record_crc(identity: RecordIdentity, encoding: u8, payload: &[u8]) -> u32 {
    record_crc_of(identity, encoding, crc32c(payload))
}

/// Returns [`record_crc`] of a payload whose CRC32C is `payload_crc`.
///
/// A caller can thus compute `payload_crc` before the record has its place.
#[inline]
pub fn record_crc_of(identity: RecordIdentity, encoding: u8, payload_crc: u32) -> u32 {
    // In software, eight bytes a step: over so few bytes that is quicker than the way in and out of
    // vector code.
    let state = small::step8(!0, u64::from(identity.slot) | u64::from(identity.generation) << 32);
    let state = small::step8(state, u64::from(identity.offset) | u64::from(encoding) << 32);
    !small::step4(state, payload_crc)
}

/// Table-driven CRC32C for a handful of bytes.
mod small {
    /// The polynomial, bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// `TABLES[k][b]`: the contribution of byte `b` when `k` more bytes follow it in the step.
    static TABLES: [[u32; 256]; 8] = tables();

    #[allow(clippy::indexing_slicing, reason = "const evaluation: an index out of bounds would not compile")]
    const fn tables() -> [[u32; 256]; 8] {
        let mut tables = [[0u32; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            tables[0][byte] = crc;
            byte += 1;
        }
        let mut k = 1;
        while k < 8 {
            let mut byte = 0;
            while byte < 256 {
                let previous = tables[k - 1][byte];
                tables[k][byte] = previous >> 8 ^ tables[0][(previous & 0xff) as usize];
                byte += 1;
            }
            k += 1;
        }
        tables
    }

    #[inline]
    #[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
    pub fn step8(crc: u32, word: u64) -> u32 {
        let b = (word ^ u64::from(crc)).to_le_bytes().map(usize::from);
        let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
        t7[b[0]] ^ t6[b[1]] ^ t5[b[2]] ^ t4[b[3]] ^ t3[b[4]] ^ t2[b[5]] ^ t1[b[6]] ^ t0[b[7]]
    }

    #[inline]
    #[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
    pub fn step4(crc: u32, word: u32) -> u32 {
        let b = (word ^ crc).to_le_bytes().map(usize::from);
        let [t0, t1, t2, t3, ..] = &TABLES;
        t3[b[0]] ^ t2[b[1]] ^ t1[b[2]] ^ t0[b[3]]
    }
}
