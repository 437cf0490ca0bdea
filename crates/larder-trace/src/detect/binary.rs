//! Names the binary formats that a trace may have.
//!
//! They are the records of a virtual SCSI disk, libCacheSim's oracleGeneral, and a bare list of
//! block numbers. None has a mark, so detection chooses none: these are the candidates that it
//! names to the caller. A record of a virtual SCSI disk has its version in one byte. A record of
//! oracleGeneral has a size, most often of whole sectors. It has the number of the next request for
//! the same object, too: a later one, or -1. A list of numbers has one sign alone: each number lies
//! on a device below 1 TiB.
//!
//! It does not tell binary files from text.

use crate::{
    formats::{
        FormatId,
        oracle_general::{OracleRecord, RECORD_BYTES},
        vscsi,
    },
    record::REQUEST_BYTES_MAX,
};

/// The bound of block numbers in a bare list (1 TiB in blocks of 4 KiB).
const BLOCK_ID_MAX: u32 = 1 << 28;
/// The bound of requests of a trace. This many records are 96 GiB.
const REQUESTS_MAX: i64 = 1 << 32;
/// Plausible records that are enough, with any sizes.
const RECORDS_ENOUGH: usize = 4;

/// Returns the formats that the file may have, the likeliest first.
pub(super) fn fitting(head: &[u8]) -> Vec<FormatId> {
    let fits = [
        (FormatId::Vscsi1, vscsi::looks_like::<{ vscsi::V1_BYTES }>(head)),
        (FormatId::Vscsi2, vscsi::looks_like::<{ vscsi::V2_BYTES }>(head)),
        (FormatId::OracleGeneral, Oracle::of(head).fits().is_ok()),
        (FormatId::BlockIds, block_ids(head).is_ok()),
    ];
    fits.into_iter().filter(|(_, fits)| *fits).map(|(format, _)| format).collect()
}

/// Returns the reasons why no format fits.
pub(super) fn reasons(head: &[u8]) -> String {
    let told = |result: Result<(), String>| result.err().unwrap_or_default();
    format!(
        "no format fits this binary file: vscsi1 and vscsi2 want their version in each record, oracle-general wants {}, and block-ids wants {}; name the format if it is one",
        told(Oracle::of(head).fits()),
        told(block_ids(head))
    )
}

/// Counts over the first records, read as oracleGeneral.
#[derive(Default)]
struct Oracle {
    records: usize,
    bad: usize,
    first_bad: Option<usize>,
    /// Records with a size of whole sectors.
    in_sectors: usize,
    /// Requests that are the last for their object.
    last: usize,
    /// Requests whose next request is among these records and is for the same object.
    right_links: usize,
    /// Records whose high words are zero, as in a small trace.
    small: usize,
}

impl Oracle {
    fn of(head: &[u8]) -> Oracle {
        let (records, _) = head.as_chunks::<RECORD_BYTES>();
        let object = |at: usize| records.get(at).map(|bytes| OracleRecord::decode(bytes).object);
        let mut oracle = Oracle { records: records.len(), ..Oracle::default() };
        for (at, bytes) in records.iter().enumerate() {
            let entry = OracleRecord::decode(bytes);
            // libCacheSim writes -1 for none, other programs the largest number.
            let is_last = entry.next == -1 || entry.next == i64::MAX;
            let is_later = entry.next > at as i64 && entry.next < REQUESTS_MAX;
            if !(is_last || is_later) || u64::from(entry.size_bytes) > REQUEST_BYTES_MAX {
                oracle.bad += 1;
                oracle.first_bad.get_or_insert(at * RECORD_BYTES);
                continue;
            }
            oracle.in_sectors += usize::from(entry.size_bytes > 0 && entry.size_bytes.is_multiple_of(512));
            oracle.last += usize::from(is_last);
            oracle.small += usize::from(is_later && entry.object < 1 << 32);
            let named = usize::try_from(entry.next).unwrap_or(usize::MAX);
            if is_later && named < records.len() {
                // Numbers count from 1; some files count from 0.
                let is_right = object(named - 1) == Some(entry.object) || object(named) == Some(entry.object);
                oracle.right_links += usize::from(is_right);
            }
        }
        oracle
    }

    /// Returns the expectation that fails unless the records are plausible.
    fn fits(&self) -> Result<(), String> {
        if self.records == 0 {
            return Err("one record at least".into());
        }
        if self.bad * 2 >= self.records {
            let at = self.first_bad.unwrap_or_default();
            return Err(format!(
                "a size of at most 1 GiB and the number of a later request, or -1, in the record at byte {at}"
            ));
        }
        let is_likely = self.in_sectors * 2 >= self.records || (self.last + self.right_links) * 2 >= self.records;
        if is_likely || self.records >= RECORDS_ENOUGH || self.small == self.records {
            return Ok(());
        }
        Err("sizes of whole sectors, or requests that name the next for their object".into())
    }
}

/// Returns the expectation that fails unless the file may be a bare list of block numbers.
fn block_ids(head: &[u8]) -> Result<(), String> {
    let (ids, _) = head.as_chunks::<4>();
    if ids.is_empty() {
        return Err("one number of 4 bytes at least".into());
    }
    // A crash leaves such a file, and so does an unwritten disk.
    if ids.iter().all(|id| *id == [0; 4]) {
        return Err("a block number that is not 0 in the beginning".into());
    }
    let mut ids = ids.iter().map(|id| u32::from_le_bytes(*id)).enumerate();
    match ids.find(|(_, id)| *id >= BLOCK_ID_MAX) {
        None => Ok(()),
        Some((at, id)) => Err(format!("block numbers below 2^28, and there is {id} at byte {}", 4 * at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<u8> {
        ids.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn entries(entries: &[(u32, u64, u32, i64)]) -> Vec<u8> {
        let entry = |&(seconds, object, size_bytes, next)| OracleRecord { seconds, object, size_bytes, next }.encode();
        entries.iter().flat_map(entry).collect()
    }

    #[test]
    fn lists_of_numbers_may_be_no_more() {
        for list in [vec![1, 2, 3, 1, 2, 3], (1..13).collect(), vec![7], (0..6000).map(|n| n % 100 * 7).collect()] {
            assert_eq!(fitting(&ids(list.clone())), [FormatId::BlockIds], "{list:?}");
        }
    }

    #[test]
    fn a_file_of_zeroes_is_no_trace() {
        for count in [1, 6, 600, 60_000] {
            let zeroes = ids(vec![0; count]);
            let told = reasons(&zeroes);
            assert!(fitting(&zeroes).is_empty() && told.contains("a block number that is not 0"), "{told}");
        }
    }

    #[test]
    fn all_that_fit_are_named() {
        for size in [8, 512] {
            let list = ids((0..2000).flat_map(|i| [i, i + 1, 0, size, i + 5, 0]));
            assert_eq!(fitting(&list), [FormatId::OracleGeneral, FormatId::BlockIds]);
        }
        // Small times: nothing else tells records of a virtual SCSI disk from numbers.
        let v1 = |at: u32| [at, 4096, 1, 0x0100_0028, at * 8, 0, at * 100, 0];
        assert_eq!(fitting(&ids((1..40).flat_map(v1))), [FormatId::Vscsi1, FormatId::BlockIds]);
        let v2 = |at: u32| [0x0200_002a, at, 4096, 1, at * 8, 0, at * 100, 0, 5, 0];
        assert_eq!(fitting(&ids((1..40).flat_map(v2))), [FormatId::Vscsi2, FormatId::BlockIds]);
    }

    #[test]
    fn a_few_bad_records_do_not_hide_a_candidate() {
        let short = [(7, 1, 512, -1), (3, 2, 0, -1)];
        assert_eq!(fitting(&entries(&short)), [FormatId::OracleGeneral]);
        assert_eq!(fitting(&entries(&[(7, 1, 0, -1)])), [FormatId::OracleGeneral]);
        let long = [(7, 1, 512, -1), (7, 2, u32::MAX, -1), (7, 2, 512, i64::MAX), (7, 2, 512, -9), (7, 2, 512, -1)];
        assert_eq!(fitting(&entries(&long)), [FormatId::OracleGeneral]);
    }

    #[test]
    fn what_fits_nothing_says_where() {
        let bad = entries(&[(7, 1, 512, -1), (7, 1, 512, -2), (7, 1, 512, 0)]);
        let told = reasons(&bad);
        assert!(fitting(&bad).is_empty());
        assert!(told.contains("in the record at byte 24") && told.contains("4294967295 at byte 16"), "{told}");
        assert!(reasons(&[0xff; 3]).contains("one record at least"));
    }
}
