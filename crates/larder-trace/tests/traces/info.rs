//! Statistics: the published tables of the traces, and small traces counted by hand.

use crate::common::{records, traces};
use larder_trace::{FormatId, Info, InfoCollector, Provenance, ReaderOptions};

fn info(bytes: &[u8], format: FormatId) -> Info {
    InfoCollector::collect(None, records(bytes, format).into_iter().map(Ok)).expect("statistics")
}

#[test]
fn a_small_trace_counted_by_hand() {
    let zero = "93d76fe148c689ba 26";
    let (a, b) = ("00000000000000aa 2048", "00000000000000bb 4096");
    let text = format!(
        "100 1 t 0 8 R 0 0 {a}\n100 1 t 8 8 R 0 0 {zero}\n\
         200 2 t 0 8 W 0 0 {a}\n150 3 t 8 8 W 0 0 {b}\n300 4 t 0 8 W 0 0 {a}\n\
         400 5 t 0 0 F 0 0 0 0\n500 6 t 8 8 R 0 0 {b}\n600 7 t 8 8 T 0 0 0 0\n700 8 t 8 8 R 0 0 {zero}\n\
         800 9 t 16 8 W 0 0 {b}\n900 10 t 24 8 W 0 0 {zero}\n"
    );
    let info = info(text.as_bytes(), FormatId::Content);
    assert_eq!((info.block_bytes, info.requests, info.blocks), (4096, 10, 9));
    assert_eq!((info.read_blocks, info.write_blocks, info.trims, info.trim_bytes, info.flushes), (4, 5, 1, 4096, 1));
    assert_eq!((info.working_set_blocks, info.written_set_blocks, info.end_bytes), (4, 4, 4 * 4096));
    assert_eq!((info.duration_us, info.back_steps.count, info.back_steps.worst_us), (Some(800), 1, 50));
    assert_eq!((info.read_sizes.max_bytes(), info.read_sizes.requests()), (Some(8192), 3));
    // 3 begins at the end of 2, 6 of 4, 9 of 8, and 10 of 9.
    assert_eq!((info.sequential_requests, info.data_requests), (4, 8));
    let content = info.content.expect("content");
    assert_eq!((content.unique_blocks, content.zero_blocks, content.zero_writes), (3, 3, 1));
    // a twice (read first, then written), b the second time, zeroes (read first).
    assert_eq!((content.duplicate_writes.all, content.duplicate_writes.zeroes), (4, 1));
    assert_eq!((content.rewritten_fingerprints.all, content.same_content_rewrites), (2, 1));
    assert_eq!((content.reads_checked, content.reads_mismatched), (1, 0));
    assert_eq!((content.reads_after_trim, content.reads_after_trim_not_zero), (1, 0));
    assert_eq!(content.stored_bytes, 3 * 26 + 3 * 2048 + 3 * 4096);
    assert_eq!(info.write_to_read_ratio(), Some(1.25));
    assert_eq!(info.duplicate_write_share_without_zeroes(), Some(0.75));
    assert_eq!(info.io_dedup_ratio(), Some(0.4));
    assert_eq!(info.compression_ratio_without_zeroes(), Some(6.0 * 4096.0 / (3.0 * 2048.0 + 3.0 * 4096.0)));
}

#[test]
fn a_trace_without_content_has_no_content() {
    let info = info(b"1 1 0 0\n1 4 0 1\n9 1 0 2\n", FormatId::ArcLis);
    assert_eq!((info.blocks, info.working_set_blocks, info.content), (6, 5, None));
    assert_eq!((info.duration_us, info.write_to_read_ratio(), info.dedup_ratio()), (None, Some(0.0), None));
    let empty = InfoCollector::collect(None, std::iter::empty()).unwrap();
    assert_eq!((empty.blocks, empty.sequential_share(), empty.duration_us), (0, None, None));
}

/// One row of TRACES.md, as it prints it.
struct Row {
    name: &'static str,
    /// Block lines, R, W, T, F.
    counts: [u64; 5],
    trim_mb: u64,
    span_s: u64,
    working_mb: u64,
    written_mb: u64,
    unique: u64,
    /// In tenths of a percent: dup-write, without zeroes, same-content, zeroes of W, of all.
    shares: [f64; 5],
    /// LZ4 ratio, without zeroes, W:R.
    ratios: [f64; 3],
    back_steps: (u64, u64),
    reads_checked: u64,
    /// Counted with another program. The table counts only blocks that the trace wrote before.
    reads_after_trim: u64,
}

fn check(row: &Row) {
    let Some(traces) = traces(row.name) else { return };
    let path = traces.join(format!("{}.trace.zst", row.name));
    let reader = larder_trace::open(&path, None, ReaderOptions::default()).expect("opens");
    let info = InfoCollector::collect(None, reader).expect("a sound trace");
    let content = info.content.expect("content");
    let mb = |bytes: u64| (bytes as f64 / f64::from(1 << 20)).round() as u64;
    let percent = |share: Option<f64>| (share.expect("a share") * 1000.0).round() / 10.0;
    let ratio = |ratio: Option<f64>| (ratio.expect("a ratio") * 100.0).round() / 100.0;
    assert_eq!([info.blocks, info.read_blocks, info.write_blocks, info.trims, info.flushes], row.counts);
    assert_eq!(
        (info.trim_bytes >> 20, info.duration_us.map(|us| (us + 500_000) / 1_000_000)),
        (row.trim_mb, Some(row.span_s))
    );
    assert_eq!((mb(info.working_set_bytes()), mb(info.written_set_bytes())), (row.working_mb, row.written_mb));
    assert_eq!((content.unique_blocks, content.provenance), (row.unique, Provenance::Recorded));
    let shares = [
        info.duplicate_write_share(),
        info.duplicate_write_share_without_zeroes(),
        info.same_content_share(),
        info.zero_write_share(),
        info.zero_share(),
    ];
    assert_eq!(shares.map(percent), row.shares);
    let ratios = [info.compression_ratio(), info.compression_ratio_without_zeroes(), info.write_to_read_ratio()];
    assert_eq!(ratios.map(ratio), row.ratios);
    assert_eq!((info.back_steps.count, info.back_steps.worst_us), row.back_steps);
    assert_eq!((content.reads_checked, content.reads_mismatched), (row.reads_checked, 0));
    assert_eq!((content.reads_after_trim, content.reads_after_trim_not_zero), (row.reads_after_trim, 0));
}

#[test]
fn the_published_table_for_postgres_tpcb() {
    check(&Row {
        name: "postgres-tpcb",
        counts: [768_761, 315_697, 453_064, 0, 23_327],
        trim_mb: 0,
        span_s: 369,
        working_mb: 1012,
        written_mb: 879,
        unique: 520_500,
        shares: [19.7, 17.4, 8.4, 2.8, 1.7],
        ratios: [3.41, 3.35, 1.44],
        back_steps: (10_917, 29_575),
        reads_checked: 142_006,
        reads_after_trim: 0,
    });
}

#[test]
fn the_published_table_for_devbuild() {
    check(&Row {
        name: "devbuild",
        counts: [862_022, 571_539, 290_483, 1277, 213],
        trim_mb: 28_102,
        span_s: 331,
        working_mb: 1225,
        written_mb: 836,
        unique: 266_354,
        shares: [42.5, 42.5, 0.2, 0.0, 0.1],
        ratios: [1.21, 1.21, 0.51],
        back_steps: (141_363, 15_462),
        reads_checked: 379_000,
        reads_after_trim: 258,
    });
}

#[test]
fn the_published_table_for_vm_boot() {
    check(&Row {
        name: "vm-boot",
        counts: [500_933, 370_729, 130_204, 487, 1061],
        trim_mb: 6474,
        span_s: 1627,
        working_mb: 947,
        written_mb: 334,
        unique: 105_266,
        shares: [60.5, 60.5, 9.0, 0.0, 0.7],
        ratios: [1.85, 1.84, 0.35],
        back_steps: (54_222, 48_353),
        reads_checked: 8162,
        reads_after_trim: 516,
    });
}

#[test]
fn the_published_table_for_devbuild_smallmem() {
    check(&Row {
        name: "devbuild-smallmem",
        counts: [1_505_083, 1_214_357, 290_726, 1831, 468],
        trim_mb: 28_357,
        span_s: 1229,
        working_mb: 1207,
        written_mb: 820,
        unique: 250_205,
        shares: [48.9, 48.9, 0.9, 0.0, 0.1],
        ratios: [1.14, 1.14, 0.24],
        back_steps: (100_479, 19_511),
        reads_checked: 934_216,
        reads_after_trim: 387,
    });
}

#[test]
fn the_published_table_for_apt_clones() {
    check(&Row {
        name: "apt-clones",
        counts: [2_336_763, 1_316_618, 1_020_145, 1321, 25_134],
        trim_mb: 7402,
        span_s: 177,
        working_mb: 3482,
        written_mb: 3175,
        unique: 436_673,
        shares: [64.6, 64.1, 1.7, 1.6, 1.3],
        ratios: [1.78, 1.76, 0.77],
        back_steps: (427_881, 29_841),
        reads_checked: 981_732,
        reads_after_trim: 0,
    });
}

#[test]
fn the_published_counts_of_snapshots() {
    let Some(traces) = traces("the_published_counts_of_snapshots") else { return };
    let reader = larder_trace::open(&traces.join("snapshots.days.zst"), None, ReaderOptions::default()).expect("opens");
    let info = InfoCollector::collect(None, reader).expect("a sound trace");
    let content = info.content.expect("content");
    assert_eq!((info.blocks, info.working_set_blocks, info.requests), (1_507_309, 786_432, 25));
    assert_eq!(content.unique_blocks, 610_522);
    let percent = |share: Option<f64>| (share.expect("a share") * 1000.0).round() / 10.0;
    assert_eq!(percent(info.zero_share()), 37.4);
    let ratio = |ratio: Option<f64>| (ratio.expect("a ratio") * 100.0).round() / 100.0;
    assert_eq!([info.compression_ratio(), info.compression_ratio_without_zeroes()].map(ratio), [2.81, 1.77]);
}

/// Content of blocks of two sizes cannot be counted in one.
#[test]
fn content_of_no_whole_block_is_counted_as_left_out() {
    let lines = b"1 1 a 0 8 W 0 0 00000000000000aa 9\n2 2 a 16 16 W 0 0 00000000000000bb 9\n\
                  3 3 a 4 8 R 0 0 00000000000000cc 9\n4 4 a 8 8 R 0 0 00000000000000dd 9\n";
    let info = info(lines, FormatId::Content);
    assert_eq!((info.content_left_out, info.blocks), (2, 6));
    assert_eq!(info.content.expect("content").unique_blocks, 2);
}
