//! The wear budget in a superblock, and the bytes written to the flash in the last day.
//!
//! Role: [`WearRecord`] goes on from one opening to the next.
//!
//! Invariants: the flash was written at most the bytes of the bins and those lent, from the first
//! record on. A program that does not know the record does not count.
//!
//! It does not count.

/// Bins of a record: that of its time, and those of 24 hours before it.
pub const WEAR_RECORD_BINS: usize = 289;
/// Bytes of a record.
pub const WEAR_RECORD_BYTES: usize = 3 * 8 + 4 * WEAR_RECORD_BINS;
/// Bytes of a unit of a bin.
const UNIT: u64 = 1024;

/// The wear budget with the bytes of the last day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WearRecord {
    /// The budget of 24 hours in bytes; 0 for none.
    pub day_bytes: u64,
    /// Time of the record, in seconds since 1970.
    pub at_seconds: u64,
    /// Bytes that may have been written since.
    pub lent_bytes: u64,
    /// Bytes of each five minutes, in KiB, newest first.
    pub bins: [u32; WEAR_RECORD_BINS],
}

impl WearRecord {
    /// Returns a record of these bytes of each bin, newest first. A part of a KiB counts as one.
    pub fn new(day_bytes: u64, at_seconds: u64, lent_bytes: u64, bytes: impl IntoIterator<Item = u64>) -> WearRecord {
        let mut bins = [0; WEAR_RECORD_BINS];
        let kib = |bytes: u64| u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        bins.iter_mut().zip(bytes).for_each(|(bin, bytes)| *bin = kib(bytes));
        WearRecord { day_bytes, at_seconds, lent_bytes, bins }
    }

    /// Returns the bytes of each bin, newest first, without the lent ones.
    pub fn bytes(&self) -> impl Iterator<Item = u64> + '_ {
        self.bins.iter().map(|&kib| u64::from(kib) * UNIT)
    }

    pub(super) fn encode(&self) -> [u8; WEAR_RECORD_BYTES] {
        let mut encoded = [0; WEAR_RECORD_BYTES];
        let words = [self.day_bytes, self.at_seconds, self.lent_bytes].into_iter().flat_map(u64::to_le_bytes);
        let bytes = words.chain(self.bins.iter().flat_map(|bin| bin.to_le_bytes()));
        encoded.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        encoded
    }

    pub(super) fn decode(bytes: &[u8; WEAR_RECORD_BYTES]) -> Self {
        let (words, bins) = bytes.split_at(24);
        let word = |at: usize| words.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        let mut record =
            WearRecord { day_bytes: word(0), at_seconds: word(1), lent_bytes: word(2), bins: [0; WEAR_RECORD_BINS] };
        let kib = bins.as_chunks().0.iter().map(|bin| u32::from_le_bytes(*bin));
        record.bins.iter_mut().zip(kib).for_each(|(bin, kib)| *bin = kib);
        record
    }
}
