//! (b) Random reads that hit, from a flash file with O_DIRECT, against the file itself.
//!
//! Both sides use the same open device, driver and flags, at depth 1 and 32 on one thread. The base
//! reads exactly the records that the cache reads: their places come from the record tables on
//! flash. Without compression the base only reads. With LZ4 it reads the sectors around the stored
//! bytes and decompresses them, one after the other, on the thread that reads.
//!
//! It does not drop the host's caches; both sides read the same few hundred MiB, so the caches
//! serve them alike.

use crate::{
    caches::{end, filled, only_hits, options_to_fill, runtime},
    data::{DataKind, Source},
    measure::{Res, Side, compare, lanes, time},
    options::Options,
    report::{Aim, Row},
};
use larder_device::{
    BlockDevice, IoBuf, IoError, IoErrorKind, IoOp, IoResult,
    driver::block_on,
    file::{FileDevice, OpenOptions},
    ram::RamDevice,
    rng::Rng,
};
use larder_engine::{Cache, Compression, Status};
use larder_format::{
    Encoding, Layout, LayoutRequest,
    segment::{SEGMENT_HEADER_BYTES, decode_header, decode_table},
};
use std::{hint::black_box, path::Path, rc::Rc, sync::Arc};

/// Bytes in the cache.
const SET_BYTES: u64 = 256 << 20;
const FLASH_BYTES: u64 = 512 << 20;
const ORIGIN_BYTES: u64 = 1 << 30;
/// Depths, and the reads in a round, which take a few hundredths of a second.
const ROUND_READS: [(usize, usize); 2] = [(1, 640), (32, 3200)];
const ROUNDS: usize = 161;
const RAW_AIM: f64 = 0.97;
const LZ4_AIM: f64 = 0.95;

/// A record on flash.
#[derive(Clone, Copy)]
struct Record {
    offset: u64,
    len: usize,
    encoding: Encoding,
}

/// Runs the measurement.
pub fn run(bench: &Options) -> Res<Vec<Row>> {
    let path = bench.dir.join("flash");
    let mut rows = Vec::new();
    for (name, chunk) in [("4", 4096), ("8", 8192)] {
        for compression in [Compression::Off, Compression::Lz4] {
            let result = one_cache(bench, &path, name, chunk, compression);
            // The file is gone already, or disturbs nothing.
            let _ = std::fs::remove_file(&path);
            rows.extend(result?);
        }
    }
    Ok(rows)
}

fn one_cache(bench: &Options, path: &Path, name: &str, chunk: usize, compression: Compression) -> Res<Vec<Row>> {
    let lz4 = compression == Compression::Lz4;
    let source = Source::new(if lz4 { DataKind::Text } else { DataKind::Noise }, chunk, 1);
    let open = OpenOptions { direct: true, create_bytes: Some(FLASH_BYTES), ..OpenOptions::default() };
    let flash = Arc::new(FileDevice::open(path, open)?);
    let origin = Arc::new(RamDevice::new("origin", ORIGIN_BYTES, 512));
    let runtime = runtime(0);
    let cache = Rc::new(filled(
        flash.clone(),
        origin,
        runtime.clone(),
        &options_to_fill(chunk, compression),
        (&source, SET_BYTES),
    )?);
    let records: Rc<[Record]> = records_of(&flash, &cache.status())?.into();
    if (records.len() as u64) < SET_BYTES / chunk as u64 {
        return Err(format!("only {} records are on flash: {:?}", records.len(), cache.status()).into());
    }
    let mut rows = Vec::new();
    for (depth, reads) in ROUND_READS {
        let each = reads / depth;
        let result = compare(bench.scaled(ROUNDS), |round, side| {
            let seed = move |lane: u64| (round as u64) << 8 | lane;
            time(|| {
                Ok(block_on(lanes(depth, |lane| {
                    let (cache, flash, records) = (cache.clone(), flash.clone(), records.clone());
                    async move {
                        match side {
                            Side::Ours => read_cache(&cache, chunk, each, seed(lane)).await,
                            Side::Base => read_records(&flash, &records, chunk, each, seed(lane)).await,
                        }
                    }
                }))? as f64)
            })
        })?;
        let (id, against, aim) = match lz4 {
            false => ("off", "raw reads", RAW_AIM),
            true => ("lz4", "raw reads + LZ4 decompression", LZ4_AIM),
        };
        let direct = if flash.is_direct() { "O_DIRECT" } else { "buffered: no O_DIRECT here" };
        let what = format!(
            "{name} KiB hits, flash file ({direct}), depth {depth}, {id}: {:.0} a second against {:.0} {against} \
             (by CPU time {:.3}): ratio",
            result.ours, result.base, result.cpu_ratio
        );
        rows.push(Row::aimed(&format!("b{name}.{id}.{depth}"), what, result.ratio, Aim::AtLeast(aim)));
    }
    only_hits(&cache)?;
    end(&cache, &runtime)?;
    Ok(rows)
}

async fn read_cache(cache: &Cache, chunk: usize, reads: usize, seed: u64) -> IoResult<u64> {
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(chunk);
    for _ in 0..reads {
        buf = cache.read(rng.below(SET_BYTES / chunk as u64) * chunk as u64, buf).await?;
        black_box(&buf);
    }
    Ok(reads as u64)
}

async fn read_records(flash: &FileDevice, records: &[Record], chunk: usize, reads: usize, seed: u64) -> IoResult<u64> {
    let sector = u64::from(flash.info().sector_bytes);
    let mut rng = Rng::new(seed);
    let mut buf = IoBuf::new(chunk);
    let mut out = IoBuf::new(chunk);
    for _ in 0..reads {
        let Some(&Record { offset, len, encoding }) = records.get(rng.index(records.len())) else { continue };
        let (from, to) = (offset / sector * sector, (offset + len as u64).next_multiple_of(sector));
        if buf.len() as u64 != to - from {
            buf = IoBuf::new((to - from) as usize);
        }
        buf = flash.read(from, buf).await?;
        if encoding == Encoding::Lz4 {
            let skip = (offset - from) as usize;
            let stored = buf.get(skip..skip + len).unwrap_or_default();
            let bytes = lz4::block::decompress_to_buffer(stored, Some(chunk as i32), &mut out);
            if !bytes.is_ok_and(|bytes| bytes == chunk) {
                return Err(IoError::new(IoErrorKind::Corrupt, IoOp::Read, offset, len as u64));
            }
            black_box(&out);
        }
        black_box(&buf);
    }
    Ok(reads as u64)
}

/// Returns every record in the segments on flash.
fn records_of(flash: &FileDevice, status: &Status) -> Res<Vec<Record>> {
    // The same options give the same layout as at the cache's creation.
    let info = flash.info();
    let layout = Layout::plan(LayoutRequest {
        flash_bytes: status.flash_bytes,
        origin_bytes: status.origin_bytes,
        chunk_bytes: status.chunk_bytes as u32,
        slot_bytes: status.slot_bytes as u32,
        sector_bytes: info.physical_sector_bytes.clamp(info.sector_bytes, 4096),
        fp_entries_max: None,
        mappings_max: None,
        buckets: None,
        history: None,
    })?;
    let mut records = Vec::new();
    let mut weu = IoBuf::new(layout.slot_bytes as usize);
    for slot in 0..u64::from(layout.slot_count) {
        let start = layout.slots_offset + slot * u64::from(layout.slot_bytes);
        weu = block_on(flash.read(start, weu))?;
        let mut at = 0;
        while let Some(Ok(header)) = weu.get(at..at + SEGMENT_HEADER_BYTES).map(decode_header) {
            let table = weu.get(at + header.table_offset as usize..).unwrap_or_default();
            records.extend(decode_table(&header, table)?.iter().map(|record| Record {
                offset: start + u64::from(record.offset),
                len: record.stored_len as usize,
                encoding: record.encoding,
            }));
            at += header.segment_bytes as usize;
        }
    }
    Ok(records)
}
