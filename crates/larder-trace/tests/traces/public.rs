//! The traces beside the checkout, if there are any: counts of public traces, as in their README.

use std::{collections::HashSet, path::Path};

use crate::common::traces;
use larder_trace::{FormatId, Op, Packing, ReaderOptions, Record, TraceReader};

fn open(path: &Path) -> TraceReader {
    open_as(path, None)
}

fn open_as(path: &Path, format: Option<FormatId>) -> TraceReader {
    larder_trace::open(path, format, ReaderOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn read(path: &Path) -> impl Iterator<Item = Record> {
    read_as(path, None)
}

fn read_as(path: &Path, format: Option<FormatId>) -> impl Iterator<Item = Record> {
    open_as(path, format).map(|record| record.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn arc_references() {
    let Some(traces) = traces("arc_references") else { return };
    for (name, references) in
        [("OLTP", 914_145), ("P3", 3_912_296), ("P6", 12_672_123), ("P12", 13_208_930), ("P2", 12_729_495)]
    {
        let path = traces.join(format!("public/arc-fast03/{name}.lis.zst"));
        assert_eq!(
            read_as(&path, Some(FormatId::ArcLis)).map(|record| record.len_bytes / 4096).sum::<u64>(),
            references,
            "{name}"
        );
    }
}

#[test]
fn block_ids_of_w106() {
    let Some(traces) = traces("block_ids_of_w106") else { return };
    let path = traces.join("public/cloudphysics/w106.trace.xz");
    let reader = open_as(&path, Some(FormatId::BlockIds));
    assert_eq!(reader.packing(), Packing::Xz);
    let mut count = 0;
    let mut distinct = HashSet::new();
    for record in reader {
        count += 1;
        distinct.insert(record.expect("a record").offset_bytes);
    }
    assert_eq!((count, distinct.len()), (5_292_456, 275_171));
}

#[test]
fn csv_and_oracle_general_are_the_same_requests() {
    let Some(traces) = traces("csv_and_oracle_general_are_the_same_requests") else { return };
    let csv = traces.join("public/cloudphysics/cloudPhysicsIO.csv");
    let binary = traces.join("public/cloudphysics/cloudPhysicsIO.oracleGeneral.bin");
    assert_eq!(open(&csv).format(), FormatId::Csv);
    let binary = || read_as(&binary, Some(FormatId::OracleGeneral));
    let mut writes = 0;
    let mut count = 0;
    for (text, record) in read(&csv).zip(binary()) {
        writes += u64::from(text.op == Op::Write);
        // The binary file repeats an object's first size.
        assert_eq!((text.time_us, text.offset_bytes), (record.time_us, record.offset_bytes));
        assert_eq!(record.op, Op::Read);
        count += 1;
    }
    assert_eq!((count, writes), (113_872, 66_898));
    assert_eq!(read(&csv).count(), binary().count());
}

#[test]
fn fiu_samples_of_both_widths() {
    let Some(traces) = traces("fiu_samples_of_both_widths") else { return };
    let folder = traces.join("public/fiu-iodedup-samples");
    for (name, blocks, bytes) in [
        ("web-vm-sample.blkparse", 1000, 4096),
        ("mail-01-sample.blkparse", 1000, 4096),
        ("homes-sample.1.blkparse", 8000, 512),
    ] {
        let path = folder.join(name);
        assert_eq!(open(&path).format(), FormatId::Fiu);
        let records: Vec<Record> = read(&path).collect();
        assert_eq!(records.len(), blocks, "{name}");
        assert!(records.iter().all(|record| record.len_bytes == bytes && record.content.is_some()), "{name}");
        assert_eq!(records.last().map(|record| record.request), Some(1000));
    }
    let path = folder.join("homes-sample.1.blkparse");
    let homes = read(&path);
    assert!(homes.filter(|record| record.content.is_some_and(|content| content.is_zero)).count() > 100);
    for name in ["ricarkol/homes.replay.0", "ricarkol/mail.replay.0"] {
        assert!(read(&folder.join(name)).count() > 100, "{name}");
    }
}

#[test]
fn austere_sample() {
    let Some(traces) = traces("austere_sample") else { return };
    let path = traces.join("public/austere-synthetic/syn-rw7to3-dup50.txt.zst");
    assert_eq!(open(&path).format(), FormatId::Austere);
    let writes = read(&path).filter(|record| record.op == Op::Write).count();
    assert_eq!((read(&path).count(), writes), (163_840, 114_645));
}

#[test]
fn content_and_days_are_found_out() {
    let Some(traces) = traces("content_and_days_are_found_out") else { return };
    for name in ["devbuild", "devbuild-smallmem", "apt-clones", "postgres-tpcb", "vm-boot"] {
        let mut reader = open(&traces.join(format!("{name}.trace.zst")));
        assert_eq!(reader.format(), FormatId::Content, "{name}");
        assert!(reader.by_ref().take(1000).all(|record| record.is_ok()), "{name}");
    }
    assert_eq!(open(&traces.join("snapshots.days.zst")).format(), FormatId::Days);
}
