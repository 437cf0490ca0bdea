//! The reading speed of each kind of format.
//!
//! It is lines and binary records a second, on one core, from memory.
//!
//! It does not judge. Run with `cargo bench -p larder-trace`.

use std::{fmt::Write as _, io::Cursor, sync::Arc};

use divan::{Bencher, counter::ItemsCount};
use larder_trace::{FormatId, ReaderOptions, TraceReader};

const LINES: u64 = 200_000;

fn main() {
    divan::main();
}

/// Returns a number that looks random.
fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9);
    z ^ z >> 27
}

fn text(format: FormatId) -> Vec<u8> {
    let mut out = String::new();
    if format == FormatId::Csv {
        out.push_str("version,time,op,size,lbn\n");
    }
    for n in 0..LINES {
        let (lba, time) = (mix(n) % (1 << 24) * 8, 1_000_000 + n * 37);
        let is_read = mix(n).is_multiple_of(3);
        let op = if is_read { 'R' } else { 'W' };
        let fingerprint = mix(n * 7 + 1);
        let _ = match format {
            FormatId::Content => writeln!(out, "{time} {n} dev {lba} 8 {op} 0 0 {fingerprint:016x} {}", 100 + n % 3996),
            FormatId::Fiu => {
                writeln!(out, "{time}000 4253 nfsd {lba} 8 {op} 6 0 {fingerprint:016x}{fingerprint:016x}")
            }
            FormatId::Msr => {
                let op = if is_read { "Read" } else { "Write" };
                writeln!(out, "1281662{time}0000,usr,0,{op},{},4096,1331", lba * 512)
            }
            FormatId::Csv => writeln!(out, "1,{},2a,4096,{lba}", time / 1000),
            FormatId::ArcLis => writeln!(out, "{lba} 8 0 {n}"),
            _ => writeln!(out, "{time}000 0 {lba} 8 {}", u8::from(is_read)),
        };
    }
    out.into_bytes()
}

/// A slice of bytes that readers can own without copying it.
struct Shared(Arc<[u8]>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn read(bencher: Bencher<'_, '_>, format: FormatId, bytes: Vec<u8>, items: u64) {
    let bytes: Arc<[u8]> = bytes.into();
    bencher.counter(ItemsCount::new(items)).bench(|| {
        let source = Cursor::new(Shared(Arc::clone(&bytes)));
        let reader = TraceReader::from_read("bench", source, Some(format), ReaderOptions::default()).expect("opens");
        let mut sum = 0u64;
        for record in reader {
            sum = sum.wrapping_add(record.expect("a record").offset_bytes);
        }
        sum
    });
}

#[divan::bench(args = [FormatId::Content, FormatId::Fiu, FormatId::Msr, FormatId::Csv, FormatId::ArcLis, FormatId::Ssdsim])]
fn lines(bencher: Bencher<'_, '_>, format: FormatId) {
    read(bencher, format, text(format), LINES);
}

#[divan::bench]
fn content_zstd(bencher: Bencher<'_, '_>) {
    let packed = zstd::encode_all(&text(FormatId::Content)[..], 3).expect("packs");
    read(bencher, FormatId::Content, packed, LINES);
}

#[divan::bench]
fn block_ids(bencher: Bencher<'_, '_>) {
    let records = 4_000_000;
    let bytes = (0..records).flat_map(|n| (mix(n) as u32 >> 8).to_le_bytes()).collect();
    read(bencher, FormatId::BlockIds, bytes, records);
}

#[divan::bench]
fn oracle_general(bencher: Bencher<'_, '_>) {
    let records = 1_000_000u64;
    let entry = |n: u64| {
        let mut bytes = [0u8; 24];
        bytes[..4].copy_from_slice(&(n as u32 / 100).to_le_bytes());
        bytes[4..12].copy_from_slice(&(mix(n) >> 30).to_le_bytes());
        bytes[12..16].copy_from_slice(&4096u32.to_le_bytes());
        bytes[16..].copy_from_slice(&(-1i64).to_le_bytes());
        bytes
    };
    read(bencher, FormatId::OracleGeneral, (0..records).flat_map(entry).collect(), records);
}
