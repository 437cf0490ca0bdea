//! The place of the next record of a segment: arithmetic that the engine and a simulator share.
//!
//! A segment is a header, payloads, the record table, and padding (see `docs/FORMAT.md`).
//! Compressed payloads are packed to the byte. A raw payload starts at a 512-byte sector, or, as
//! the first of its segment, at a device sector. A read of it then touches no other byte.
//!
//! Invariants: a record is placed only if it, the grown table and the padding fit the slot.
//!
//! It does not hold bytes.

/// The fixed sizes that packing depends on.
#[derive(Clone, Copy, Debug)]
pub struct PackingRules {
    /// Size of a slot in bytes.
    pub slot_bytes: u32,
    /// Size to which segments are padded.
    pub sector_bytes: u32,
    /// Bytes of a segment header.
    pub header_bytes: u32,
    /// Bytes of an entry of the record table.
    pub entry_bytes: u32,
}

/// The open segment of a slot.
#[derive(Clone, Copy, Debug)]
pub struct SegmentPacker {
    rules: PackingRules,
    start: u32,
    end: u32,
    records: u32,
}

impl SegmentPacker {
    /// Returns the first segment of an empty slot.
    pub fn new(rules: PackingRules) -> Self {
        SegmentPacker { rules, start: 0, end: rules.header_bytes, records: 0 }
    }

    /// Returns the segment's offset in the slot.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Counts the records in the segment so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Returns the end of the payloads so far, as an offset in the slot.
    pub fn payload_end(&self) -> u32 {
        self.end
    }

    /// Places a payload of `len` bytes; `None` if the slot is full.
    pub fn place(&mut self, len: u32, raw: bool) -> Option<u32> {
        let align = match (raw, self.records) {
            (false, _) => 1,
            (true, 0) => self.rules.sector_bytes,
            (true, _) => 512,
        };
        let offset = self.end.next_multiple_of(align);
        let table_end = (offset + len).next_multiple_of(8) + (self.records + 1) * self.rules.entry_bytes;
        if table_end.next_multiple_of(self.rules.sector_bytes) > self.rules.slot_bytes {
            return None;
        }
        self.end = offset + len;
        self.records += 1;
        Some(offset)
    }

    /// Returns the offset of the record table in the slot, if the segment were closed now.
    pub fn table_offset(&self) -> u32 {
        self.end.next_multiple_of(8)
    }

    /// Returns the offset of the segment's end in the slot, padding included, if it were closed
    /// now.
    pub fn closed_end(&self) -> u32 {
        (self.table_offset() + self.records * self.rules.entry_bytes).next_multiple_of(self.rules.sector_bytes)
    }

    /// Closes the segment and begins the next; false if no useful room is left for one.
    pub fn next_segment(&mut self) -> bool {
        let start = self.closed_end();
        *self = SegmentPacker { rules: self.rules, start, end: start + self.rules.header_bytes, records: 0 };
        start + 2 * self.rules.sector_bytes <= self.rules.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: PackingRules =
        PackingRules { slot_bytes: 512 << 10, sector_bytes: 4096, header_bytes: 64, entry_bytes: 64 };

    #[test]
    fn raw_payloads_are_aligned_and_compressed_ones_packed() {
        let mut packer = SegmentPacker::new(RULES);
        assert_eq!(packer.place(4096, true), Some(4096));
        assert_eq!(packer.place(4096, true), Some(8192));
        assert_eq!(packer.place(1000, false), Some(12288));
        assert_eq!(packer.place(1001, false), Some(13288));
        assert_eq!(packer.place(4096, true), Some(14336));
        assert_eq!(packer.closed_end() % 4096, 0);
    }

    #[test]
    fn never_overflows() {
        for len in [1, 100, 4095, 4096, 8192, 131_072] {
            for flush_every in [1, 3, 16, u32::MAX] {
                let mut packer = SegmentPacker::new(RULES);
                let mut last = 0;
                while let Some(offset) = packer.place(len, len % 512 == 0) {
                    assert!(offset >= last && offset >= packer.start() + 64);
                    last = offset + len;
                    assert!(packer.closed_end() <= RULES.slot_bytes);
                    if packer.records() == flush_every && !packer.next_segment() {
                        break;
                    }
                }
            }
        }
    }
}
