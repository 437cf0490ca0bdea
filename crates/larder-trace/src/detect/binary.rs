//! Which of the two binary formats a trace has: libCacheSim's oracleGeneral, or a bare list of block numbers.
//!
//! A list of numbers has nothing to be known by, but that they are numbers of a device below 1 TiB. A record of
//! oracleGeneral has a size, most often of whole sectors, and the number of the next request for the same object, which is
//! a later one, or -1: and where that request is among those that are looked at, it must be for that object. A few
//! records that are bad do not hide the format, nor do sizes of 0 and times that step back.
//!
//! Invariants: where both fit, and the requests that are named do not settle it, nothing is guessed.
//!
//! What it does not do: tell binary files from text.

use crate::{
    formats::{
        FormatId,
        oracle_general::{Entry, RECORD_BYTES},
    },
    record::REQUEST_BYTES_MAX,
};

/// Block numbers of a bare list are below this (1 TiB in blocks of 4 KiB).
const BLOCK_ID_MAX: u32 = 1 << 28;
/// Requests of a trace are fewer: so many are 96 GiB.
const REQUESTS_MAX: i64 = 1 << 32;
/// So many plausible records are enough, whatever their sizes.
const RECORDS_ENOUGH: usize = 4;
/// So many requests that are named, nine of ten rightly, settle it.
const LINKS_ENOUGH: usize = 8;

/// The format, or why none fits, or why two do.
pub(super) fn detect(head: &[u8]) -> Result<FormatId, String> {
    let oracle = Oracle::of(head);
    match (oracle.fits(), block_ids(head)) {
        (Ok(()), Ok(())) if !oracle.is_settled() => Err(
            "two formats fit, 24-byte records of libCacheSim's oracleGeneral and bare u32 block numbers: expected to be \
             told which, with --format oracle-general or --format block-ids"
                .into(),
        ),
        (Ok(()), _) => Ok(FormatId::OracleGeneral),
        (Err(_), Ok(())) => Ok(FormatId::BlockIds),
        (Err(no_oracle), Err(no_ids)) => Err(format!(
            "no format fits: the file is binary; oracle-general (24 bytes a request) wants {no_oracle}; block-ids wants \
             {no_ids}; name the format if it is one of them"
        )),
    }
}

/// What the first records look like as oracleGeneral.
#[derive(Default)]
struct Oracle {
    records: usize,
    bad: usize,
    first_bad: Option<usize>,
    /// Sizes of whole sectors.
    in_sectors: usize,
    /// Requests that are the last for their object.
    last: usize,
    /// Requests that name one which was looked at, and those of them that name one for their object.
    links: usize,
    right_links: usize,
    /// Records whose high words are zero, as those of a small trace are.
    small: usize,
}

impl Oracle {
    fn of(head: &[u8]) -> Oracle {
        let (records, _) = head.as_chunks::<RECORD_BYTES>();
        let object = |at: usize| records.get(at).map(|bytes| Entry::decode(bytes).object);
        let mut oracle = Oracle { records: records.len(), ..Oracle::default() };
        for (at, bytes) in records.iter().enumerate() {
            let entry = Entry::decode(bytes);
            // libCacheSim writes -1 for none, others the largest number.
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
                // Counted from 1; some count from 0.
                let is_right = object(named - 1) == Some(entry.object) || object(named) == Some(entry.object);
                oracle.links += 1;
                oracle.right_links += usize::from(is_right);
            }
        }
        oracle
    }

    /// Whether the records may well be such; else what is expected.
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

    /// Whether no list of block numbers looks so: it has no -1, and names no requests.
    fn is_settled(&self) -> bool {
        self.last > 0 || self.links >= LINKS_ENOUGH && self.right_links * 10 >= self.links * 9
    }
}

/// Whether the file may be a bare list of block numbers; else what is expected.
fn block_ids(head: &[u8]) -> Result<(), String> {
    let (ids, _) = head.as_chunks::<4>();
    if ids.is_empty() {
        return Err("one number of 4 bytes at least".into());
    }
    // As a crash leaves a file, or a disk that nobody wrote to.
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
        let entry = |&(seconds, object, size_bytes, next)| Entry { seconds, object, size_bytes, next }.encode();
        entries.iter().flat_map(entry).collect()
    }

    #[test]
    fn lists_of_numbers_are_no_records() {
        for list in [vec![1, 2, 3, 1, 2, 3], (1..13).collect(), vec![7], (0..6000).map(|n| n % 100 * 7).collect()] {
            assert_eq!(detect(&ids(list.clone())), Ok(FormatId::BlockIds), "{list:?}");
        }
    }

    #[test]
    fn a_file_of_zeroes_is_no_trace() {
        for count in [1, 6, 600, 60_000] {
            let told = detect(&ids(vec![0; count])).unwrap_err();
            assert!(told.starts_with("no format fits") && told.contains("a block number that is not 0"), "{told}");
        }
    }

    #[test]
    fn what_both_fit_is_told() {
        for size in [8, 512] {
            let list = ids((0..2000).flat_map(|i| [i, i + 1, 0, size, i + 5, 0]));
            let told = detect(&list).unwrap_err();
            assert!(
                told.contains("two formats fit") && told.contains("--format oracle-general or --format block-ids"),
                "{told}"
            );
        }
        // A trace too short to be known by the requests that it names.
        assert!(detect(&entries(&[(1, 9, 512, 4000)])).is_err());
        // The same, where it names them rightly: objects 0 to 8 over and over.
        let named: Vec<_> = (0..40u32).map(|at| (at, u64::from(at % 9), 1, i64::from(at) + 10)).collect();
        assert_eq!(detect(&entries(&named)), Ok(FormatId::OracleGeneral));
        let wrongly: Vec<_> = named.iter().map(|&(at, object, size, next)| (at, object, size, next + 1)).collect();
        assert!(detect(&entries(&wrongly)).is_err());
    }

    #[test]
    fn a_few_bad_records_do_not_hide_the_format() {
        let short = [(7, 1, 512, -1), (3, 2, 0, -1)];
        assert_eq!(detect(&entries(&short)), Ok(FormatId::OracleGeneral));
        assert_eq!(detect(&entries(&[(7, 1, 0, -1)])), Ok(FormatId::OracleGeneral));
        let long = [(7, 1, 512, -1), (7, 2, u32::MAX, -1), (7, 2, 512, i64::MAX), (7, 2, 512, -9), (7, 2, 512, -1)];
        assert_eq!(detect(&entries(&long)), Ok(FormatId::OracleGeneral));
    }

    #[test]
    fn what_fits_neither_says_where() {
        let bad = entries(&[(7, 1, 512, -1), (7, 1, 512, -2), (7, 1, 512, 0)]);
        let told = detect(&bad).unwrap_err();
        assert!(told.contains("in the record at byte 24") && told.contains("4294967295 at byte 16"), "{told}");
        assert!(detect(&[0xff; 3]).unwrap_err().contains("one record at least"));
    }
}
