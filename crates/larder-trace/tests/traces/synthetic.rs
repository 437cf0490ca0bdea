//! Made-up content: labelled, consistent, and with the configured duplication and compressibility.

use std::collections::HashMap;

use crate::common::records;
use larder_trace::{
    Compressibility, ContentId, FormatId, Info, InfoCollector, Op, Provenance, Record, SyntheticOptions, TraceContent,
    TraceResult, with_content, with_sizes, zero,
};

/// Returns reads and writes all over 1000 blocks of 4 KiB. Some cover two blocks, some cross a
/// block's end.
fn plain() -> Vec<Record> {
    (0..40_000u64)
        .map(|n| {
            let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let op = if n % 3 == 0 { Op::Read } else { Op::Write };
            Record::new(n + 1, op, at % 1000 * 4096 + n % 5 * 512, 512 << (n % 5))
        })
        .collect()
}

fn made(options: SyntheticOptions) -> Vec<Record> {
    let records = with_content(plain().into_iter().map(Ok), options).expect("sound options");
    records.collect::<TraceResult<_>>().expect("records")
}

fn info(records: &[Record]) -> Info {
    InfoCollector::collect(None, records.iter().copied().map(Ok)).expect("statistics")
}

#[test]
fn ratios_follow_the_normal_distribution_of_the_papers() {
    let compress = Compressibility::default();
    let ratios: Vec<f64> = (0..100_000).map(|n| compress.ratio(ContentId([n, n * 31]))).collect();
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / ratios.len() as f64;
    // Ratios below 1 (2.3%) are cut off there, which lifts the mean by 0.004 and takes 0.012 off
    // the variance.
    assert!((mean - 2.0).abs() < 0.012 && (variance - 0.24).abs() < 0.015, "mean {mean}, variance {variance}");
    assert!(ratios.iter().all(|ratio| *ratio >= 1.0));
    let fingerprint = ContentId([1, 2]);
    assert_eq!(compress.stored_bytes(fingerprint, 4096), compress.stored_bytes(fingerprint, 4096));
    assert_ne!(compress.ratio(fingerprint), Compressibility { seed: 1, ..compress }.ratio(fingerprint));
    let broken = Compressibility { mean: f64::NAN, variance: -1.0, seed: 0 };
    assert_eq!(broken.stored_bytes(fingerprint, 4096), 4096);
}

#[test]
fn reads_give_what_was_written_and_all_is_labelled() {
    let records = made(SyntheticOptions::default());
    let mut held: HashMap<u64, TraceContent> = HashMap::new();
    let mut sizes = HashMap::new();
    for record in &records {
        let content = record.content.expect("content");
        assert_eq!((content.provenance, record.len_bytes, record.offset_bytes % 4096), (Provenance::Made, 4096, 0));
        let known = held.insert(record.offset_bytes, content);
        assert!(record.op == Op::Write || known.is_none_or(|known| known == content));
        let size = *sizes.entry(content.fingerprint).or_insert(content.stored_bytes);
        assert_eq!(size, content.stored_bytes);
    }
    let info = info(&records);
    assert_eq!(info.requests, 40_000);
    assert_eq!(info.content.expect("content").reads_mismatched, 0);
    assert_eq!(records, made(SyntheticOptions::default()));
    assert_ne!(records, made(SyntheticOptions { seed: 1, ..SyntheticOptions::default() }));
}

#[test]
fn duplication_is_as_asked() {
    for duplication in [0.0, 0.3, 0.8, 1.0] {
        let info = info(&made(SyntheticOptions { duplication, ..SyntheticOptions::default() }));
        let share = info.duplicate_write_share().expect("writes");
        assert!((share - duplication).abs() < 0.01, "{share} for {duplication}");
    }
    for wrong in [-0.1, 1.1, f64::NAN] {
        let options = SyntheticOptions { duplication: wrong, ..SyntheticOptions::default() };
        assert!(with_content(std::iter::empty(), options).is_err(), "{wrong}");
    }
    assert!(
        with_content(std::iter::empty(), SyntheticOptions { block_bytes: 5, ..SyntheticOptions::default() }).is_err()
    );
}

#[test]
fn what_a_trace_says_stays() {
    let text = b"1 1 - 0 8 W 0 0 00000000000000aa 77\n2 2 - 0 8 W 0 0 00000000000000bb -\n3 3 - 8 8 W 0 0 93d76fe148c689ba -\n";
    let before = records(text, FormatId::Content);
    let sized: Vec<Record> =
        with_sizes(before.iter().copied().map(Ok), Compressibility::default()).collect::<TraceResult<_>>().unwrap();
    assert_eq!(sized[0], before[0]);
    let (made, zeroes) = (sized[1].content.unwrap(), sized[2].content.unwrap());
    assert_eq!((made.fingerprint, made.provenance), (ContentId([0, 0xbb]), Provenance::SizeMade));
    assert!(made.stored_bytes.is_some());
    assert_eq!((zeroes.fingerprint, zeroes.stored_bytes), (zero::XXH3_4K, Some(26)));
    let kept: Vec<Record> = with_content(before.iter().copied().map(Ok), SyntheticOptions::default())
        .unwrap()
        .collect::<TraceResult<_>>()
        .unwrap();
    assert_eq!(kept, before);
}
