//! Figure 12 (Exp#8): microseconds of fingerprint, compression, index lookup and index update.
//!
//! The trace goes through the index of each design, with a cache of 12.5% of the working set. The
//! last 100 writes of new content are measured, each step by itself. The median counts: on a shared
//! machine other programs shift a mean. Beside them stand 32 KiB writes to the media, on the
//! virtual clock.
//!
//! It does not measure a write as a whole; `larder-lab bench` does.

use super::super::{
    Means,
    load::{Load, before, on_rig},
    rig::{Plan, Time, Volume},
};
use super::{
    index::Index,
    setting::{CHUNK_BYTES, DISK, DISK_BYTES, FLASH, synthetic, variants},
};
use crate::{Comparison, How, Lab, PaperReport, Span, Table, averages::median, content::Bytes};
use larder_codec::Codec;
use larder_core::Fingerprint;
use larder_engine::Compression;
use larder_format::StoreKind;
use larder_sim::report::plot::Scale;
use larder_trace::{Op, Unknown};
use std::{
    hint::black_box,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// The measured writes.
const WRITES: usize = 100;
const CACHE_PERCENT: u64 = 12;
const WEU_BYTES: u32 = 2 << 20;
/// Writes to the media: the first fill the disk's buffer.
const MEDIA_WRITES: u64 = 1500;
const MEDIA_WARMUP: usize = 1000;
/// The paper's, in microseconds: fingerprint, all four together, and a write of 32 KiB to SSD and
/// disk.
const PUBLISHED: [f64; 4] = [15.5, 31.2, 85.0, 5997.0];

/// Words below the table.
const OF_ALL: [&str; 2] = [
    "A fingerprint is keyed BLAKE3 here and SHA-1 in the paper; compression is LZ4 in both. Index times are of look-up and \
     insertion in memory, room that has to be made included; the paper's AustereCache is not told from others there. The median is of \
     times on a machine that does other things, too.",
    "The media's writes are those of the throttled devices that all experiments run on: the other figures of time \
     rest on them.",
];

/// A step's times, in microseconds.
type StepTimes = Vec<f64>;

/// Runs the experiment.
pub fn run(lab: &mut Lab<'_>, means: &Means) -> Result<PaperReport, String> {
    let (contents, asked) = trace(lab)?;
    let [fingerprint, compression] = codec_times(&contents);
    let how = How::new(CHUNK_BYTES, Unknown::Zero);
    let data_bytes = lab.survey(0, &how)?.working_set_chunks * CACHE_PERCENT / 100 * u64::from(CHUNK_BYTES);
    let steps = ["Fingerprint", "Compression", "Index lookup", "Index update", "All"];
    let title = lab.workload(0)?.title();
    let mut table = Table::new(title, "Median time (us)", "Design", steps);
    let mut totals = Vec::new();
    for variant in variants() {
        let cache = variant.cache(data_bytes)?;
        let (dedup, compress) = cache.reduces();
        let mut options = cache.options();
        if cache.design.kind() == StoreKind::Weus {
            options.slot_bytes = WEU_BYTES;
        }
        let mut index = Index::new(cache.design, &options, data_bytes.max(16 * u64::from(WEU_BYTES)))?;
        let (mut lookups, mut updates) = (StepTimes::new(), StepTimes::new());
        for (number, (lba, is_write, content, stored)) in asked.iter().enumerate() {
            if number % 4096 == 0 && means.ending.load(Ordering::Relaxed) {
                return Err("ended by a signal".to_owned());
            }
            let asked = index.ask(*lba, *is_write, *content, if compress { *stored } else { CHUNK_BYTES })?;
            if asked.is_new {
                lookups.push(asked.lookup.as_secs_f64() * 1e6);
                updates.push(asked.update.as_secs_f64() * 1e6);
            }
        }
        let last = |times: &StepTimes| {
            let last = times.get(times.len().saturating_sub(WRITES)..).unwrap_or_default();
            median(last.to_vec()).unwrap_or(0.0)
        };
        let compression = if compress { compression } else { 0.0 };
        let fingerprint = if dedup { fingerprint } else { 0.0 };
        let (lookup, update) = (last(&lookups), last(&updates));
        let all = fingerprint + compression + lookup + update;
        if dedup && compress {
            totals.push(all);
        }
        table.push(variant.name, [fingerprint, compression, lookup, update, all].map(Some));
    }
    table.publish("AC-DC", "Fingerprint", PUBLISHED[0]);
    table.publish("AC-DC", "All", PUBLISHED[1]);
    let media = media(means)?;
    let charts =
        vec![table.bars("Computing of a write of new content", "32 KiB; median of the last 100 writes", Scale::Linear)];
    let [of_fingerprint, of_all, of_ssd, of_disk] = PUBLISHED;
    let [ssd, disk] = media;
    let line = |what: &str, published, ours| Comparison { what: what.to_owned(), published: Span::at(published), ours };
    let comparisons = vec![
        line("Fingerprint of 32 KiB (us)", of_fingerprint, Some(Span::at(fingerprint))),
        line("All four steps, of designs that have them (us)", of_all, Span::over(totals.iter().copied())),
        line("Write of 32 KiB to the SSD (us)", of_ssd, Some(Span::at(ssd))),
        line("Write of 32 KiB to the disk (us)", of_disk, Some(Span::at(disk))),
    ];
    let words = lab.words(&OF_ALL, &[]);
    Ok(PaperReport { tables: vec![table], comparisons, words, charts })
}

/// A request of a chunk: address, whether it writes, content, its compressed bytes.
type Asking = (u64, bool, u128, u32);

/// Returns the measured contents, and all requests.
fn trace(lab: &Lab<'_>) -> Result<(Vec<Bytes>, Vec<Asking>), String> {
    let how = How::new(CHUNK_BYTES, Unknown::Zero);
    let (mut contents, mut asked) = (Vec::new(), Vec::new());
    for chunk in lab.requests(0, &how)? {
        let chunk = chunk?;
        let Some(content) = chunk.content.filter(|_| matches!(chunk.op, Op::Read | Op::Write)) else { continue };
        let is_write = chunk.op == Op::Write;
        let stored = content.stored_bytes.unwrap_or(CHUNK_BYTES);
        asked.push((chunk.lba, is_write, content.fingerprint.to_u128(), stored));
        if is_write && contents.len() < WRITES {
            contents.push(Bytes::of(&content));
        }
    }
    match contents.is_empty() {
        true => Err("the trace writes nothing: choose a larger scale, or another trace".to_owned()),
        false => Ok((contents, asked)),
    }
}

/// Returns the microseconds of a fingerprint and of a compression.
fn codec_times(contents: &[Bytes]) -> [f64; 2] {
    let codec = Codec::new([7; 32], Compression::Lz4, 1, true);
    let mut data = vec![0; CHUNK_BYTES as usize];
    let (mut fingerprints, mut compressions) = (StepTimes::new(), StepTimes::new());
    for content in contents {
        content.fill(&mut data);
        let began = Instant::now();
        let fingerprint: Option<Fingerprint> = codec.fingerprint(black_box(&data));
        fingerprints.push(began.elapsed().as_secs_f64() * 1e6);
        let began = Instant::now();
        let encoded = codec.encode(black_box(&data));
        compressions.push(began.elapsed().as_secs_f64() * 1e6);
        black_box((fingerprint, encoded));
    }
    [fingerprints, compressions].map(|times| median(times).unwrap_or(0.0))
}

/// Returns the microseconds of a random write of 32 KiB to flash and to disk, one at a time.
fn media(means: &Means) -> Result<[f64; 2], String> {
    let all = synthetic(1.0, 0.0, 1e9, MEDIA_WRITES)?;
    let initial = before(&all, CHUNK_BYTES);
    let load =
        Load { requests: Arc::new(all), block_bytes: CHUNK_BYTES, outstanding: 1, warmup: MEDIA_WARMUP, drains: false };
    let mut times = [0.0; 2];
    for (time, volume) in times.iter_mut().zip([Volume::Flash, Volume::Disk]) {
        let plan = Plan {
            volume,
            disk: DISK,
            flash: FLASH,
            disk_bytes: DISK_BYTES,
            block_bytes: CHUNK_BYTES,
            initial: initial.clone(),
            workers: 1,
        };
        *time = on_rig(&plan, Time::Virtual, &load, &means.ending)?.mean_us();
    }
    Ok(times)
}
