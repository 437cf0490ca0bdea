//! Trims, of whole chunks and of parts, in traces that are re-chunked.
//!
//! No design hits more reads than the bound allows.

use crate::common::{Rng, for_seeds};
use larder_sim::{
    cache::WritePolicy,
    lab::{BoundListener, Collected, LabListener, broadcast},
    measure::{Measures, Meter},
    replay::Batches,
    setup::{FlashAmount, Options, REPLAY_DESIGNS, Setup},
};
use larder_trace::{
    ChunkRequest, ContentId, InfoCollector, Op, Provenance, RechunkOptions, Rechunker, Record, TraceContent,
    TraceResult, Unknown, chunks, zero,
};

const BLOCK_BYTES: u32 = 4096;

/// Returns a read or write of a block; content 0 is zeroes.
fn block(request: u64, op: Op, block: u64, content: u64) -> Record {
    let fingerprint = if content == 0 { zero::XXH3_4K } else { ContentId::from_u128(u128::from(content)) };
    let stored_bytes = Some(1 + (content * 977 % u64::from(BLOCK_BYTES)) as u32);
    let content = TraceContent { fingerprint, stored_bytes, is_zero: content == 0, provenance: Provenance::Recorded };
    let block_bytes = u64::from(BLOCK_BYTES);
    Record { content: Some(content), ..Record::new(request, op, block * block_bytes, block_bytes) }
}

fn requests(records: &[Record], chunk_bytes: u32, unknown: Unknown) -> Vec<ChunkRequest> {
    let all = || records.iter().copied().map(Ok);
    let made: TraceResult<Vec<ChunkRequest>> =
        if chunk_bytes == BLOCK_BYTES || records.iter().all(|record| record.content.is_none()) {
            chunks(all(), chunk_bytes).expect("a size").collect()
        } else {
            let mut rechunker =
                Rechunker::new(RechunkOptions { unknown, ..RechunkOptions::new(chunk_bytes) }).expect("a size");
            rechunker.learn(all()).expect("pass 1");
            rechunker.replay(all()).collect()
        };
    made.expect("no error")
}

/// Returns each design's measures of the requests, and checks that none hits more reads than the
/// bound. A design that does not work at that size is left out.
fn check(requests: &[ChunkRequest], chunk_bytes: u32, flash_bytes: u64, warmup: u64) -> Vec<(String, Measures)> {
    let mut listener = BoundListener::new(warmup, u64::MAX);
    let mut names = Vec::new();
    let mut meters = Vec::new();
    for policy in [WritePolicy::Back, WritePolicy::Through, WritePolicy::Around] {
        for design in REPLAY_DESIGNS {
            let flash = FlashAmount::Bytes(flash_bytes);
            // WEUs that are small enough to be evicted.
            let asked = Options { weu_bytes: Some(512 << 10), ..Options::default() };
            let options = Options::default().or_from(&asked, design);
            let setup = Setup { design, chunk_bytes, flash, policy, options };
            let Ok(built) = setup.build(0) else { continue };
            names.push(format!("{}, {}", design.name, policy.name()));
            meters.push(Meter::new(built, chunk_bytes, warmup));
        }
    }
    let mut listeners: Vec<&mut dyn LabListener> =
        meters.iter_mut().map(|meter| meter as &mut dyn LabListener).collect();
    listeners.push(&mut listener);
    let mut batches = Batches::new(requests.iter().copied().map(Ok), chunk_bytes);
    broadcast(&mut batches, &mut listeners, 1).expect("no error");
    let Collected::Trace(traces) = listener.finish() else { panic!("this trace does not contradict itself") };
    let bound = traces.addresses.with_sizes(&[flash_bytes])[0];
    let measured: Vec<_> = names.into_iter().zip(meters.into_iter().map(Meter::finish)).collect();
    for (name, measures) in &measured {
        let hits = measures.tally.read_hits;
        assert!(
            hits <= bound.read_hits_upper,
            "{name}, chunks of {chunk_bytes} bytes on {flash_bytes} of flash: {hits} read hits; {bound:?}"
        );
    }
    measured
}

#[test]
fn what_is_left_of_a_chunk_is_not_what_it_was() {
    const CHUNK_BYTES: u32 = 128 << 10;
    let mut records: Vec<Record> = (0..32).map(|n| block(1, Op::Write, n, n + 1)).collect();
    records.push(Record::new(2, Op::Trim, 5 * 4096, 4096));
    records.push(block(3, Op::Read, 9, 10));
    let measured = check(&requests(&records, CHUNK_BYTES, Unknown::Unique), CHUNK_BYTES, 64 << 20, 0);
    assert_eq!(measured.len(), 3 * REPLAY_DESIGNS.len());
    for (name, measures) in &measured {
        let tally = measures.tally;
        assert_eq!((tally.writes, tally.trims, tally.reads, tally.read_hits), (1, 1, 1, 0), "{name}");
    }
}

/// Returns reads, writes and trims of a disk of `blocks` blocks, each read of the present content.
/// Trims begin and end at multiples of `unit` sectors. A block that one covers in part has new
/// content.
fn random_trace(rng: &mut Rng, blocks: u64, count: u64, unit: u64) -> Vec<Record> {
    let sectors = u64::from(BLOCK_BYTES) / 512;
    let contents = 1 + rng.below(4 * blocks);
    let mut next_new = contents;
    let mut disk: Vec<u64> = (0..blocks).map(|_| rng.below(contents)).collect();
    let mut records = Vec::new();
    for request in 1..=count {
        match rng.below(20) {
            0 | 1 => {
                let first = rng.skewed(blocks * sectors / unit) * unit;
                let end = (first + (1 + rng.skewed(blocks * sectors / unit)) * unit).min(blocks * sectors);
                records.push(Record::new(request, Op::Trim, first * 512, (end - first) * 512));
                for (block, held) in (0..).zip(&mut disk) {
                    let (from, to) = (first.max(block * sectors), end.min((block + 1) * sectors));
                    match to.saturating_sub(from) {
                        0 => {}
                        all if all == sectors => *held = 0,
                        _ => {
                            next_new += 1;
                            *held = next_new;
                        }
                    }
                }
            }
            2 => records.push(Record::new(request, Op::Flush, 0, 0)),
            kind => {
                let first = rng.skewed(blocks);
                let end = (first + 1 + rng.skewed(64)).min(blocks);
                let op = if kind < 9 { Op::Write } else { Op::Read };
                for at in first..end {
                    if op == Op::Write {
                        disk[at as usize] = rng.skewed(contents);
                    }
                    records.push(block(request, op, at, disk[at as usize]));
                }
            }
        }
    }
    records
}

#[test]
fn no_design_beats_the_bound_whatever_is_trimmed() {
    for_seeds(0..24, |seed| {
        let mut rng = Rng::new(seed);
        let blocks = 2000 + rng.below(8000);
        let chunk_bytes = rng.one_of(&[4 << 10, 8 << 10, 32 << 10, 128 << 10]);
        // Composed of blocks, a chunk in which a trim has cut through one has a content that only a
        // later read tells.
        let unit = if chunk_bytes == BLOCK_BYTES { 1 } else { u64::from(BLOCK_BYTES) / 512 };
        let mut records = random_trace(&mut rng, blocks, 500, unit);
        // Some traces have no content: a record of several chunks is one of each.
        if seed % 6 == 5 {
            records.iter_mut().for_each(|record| record.content = None);
        }
        let requests = requests(&records, chunk_bytes, rng.one_of(&[Unknown::Unique, Unknown::Zero]));
        let warmup = rng.one_of(&[0, 300]);
        for flash_bytes in [16 << 20, 128 << 20] {
            let measured = check(&requests, chunk_bytes, flash_bytes, warmup);
            assert!(measured.iter().any(|(name, _)| name == "nitro, write-back"), "{flash_bytes} bytes of flash");
            assert!(measured.iter().any(|(_, measures)| measures.tally.read_hits > 0), "a test that hits nothing");
        }
    });
}

/// `info` and the bound count the same reads, in blocks, for a trace whose trims cut blocks. Some
/// of its reads find other content than the disk holds.
#[test]
fn what_contradicts_a_trace_is_the_same_for_its_statistics_and_for_its_bound() {
    const BLOCKS: u64 = 24;
    const SECTORS: u64 = 8;
    for_seeds(0..60, |seed| {
        let mut rng = Rng::new(seed);
        let is_sound = seed % 2 == 0;
        // The content of each sector; a block whose sectors differ has content of its own.
        let mut disk = vec![0u64; (BLOCKS * SECTORS) as usize];
        let mut records = Vec::new();
        for at in 0..BLOCKS {
            disk[(at * SECTORS) as usize..((at + 1) * SECTORS) as usize].fill(at + 1);
            records.push(block(at, Op::Write, at, at + 1));
        }
        for request in BLOCKS..400 {
            let at = rng.below(BLOCKS);
            let range = (at * SECTORS) as usize..((at + 1) * SECTORS) as usize;
            match rng.below(8) {
                0 | 1 => {
                    let from = rng.below(BLOCKS * SECTORS);
                    let count = (1 + rng.below(3 * SECTORS)).min(BLOCKS * SECTORS - from);
                    let (from, count) = if rng.below(2) == 0 { (at * SECTORS, SECTORS) } else { (from, count) };
                    disk[from as usize..(from + count) as usize].fill(0);
                    records.push(Record::new(request, Op::Trim, from * 512, count * 512));
                }
                2 | 3 => {
                    let content = rng.below(4);
                    disk[range].fill(content);
                    records.push(block(request, Op::Write, at, content));
                }
                _ => {
                    let held = disk[range].iter().fold(0, |digest, sector| digest * 131 + sector);
                    let whole = disk[(at * SECTORS) as usize];
                    let is_whole = disk[(at * SECTORS) as usize..][..SECTORS as usize].iter().all(|one| *one == whole);
                    let odd = !is_sound && rng.below(6) == 0;
                    let content = if odd {
                        900 + rng.below(9)
                    } else if is_whole {
                        whole
                    } else {
                        1000 + held
                    };
                    records.push(block(request, Op::Read, at, content));
                }
            }
        }
        let info = InfoCollector::collect(None, records.iter().copied().map(Ok)).expect("statistics");
        let content = info.content.expect("content");
        let mut listener = BoundListener::new(0, u64::MAX);
        let chunked = chunks(records.iter().copied().map(Ok), BLOCK_BYTES).expect("a size");
        let mut batches = Batches::new(chunked, BLOCK_BYTES);
        broadcast(&mut batches, &mut [&mut listener as &mut dyn LabListener], 1).expect("no error");
        let contradicted = match listener.finish() {
            Collected::Contradicted(reads) => reads,
            Collected::Trace(_) => 0,
            Collected::TooLong => panic!("it is short"),
        };
        assert_eq!(content.reads_mismatched + content.reads_after_trim_not_zero, contradicted, "seed {seed}");
        assert!(content.reads_checked > 20 && content.reads_after_trim > 0, "seed {seed}");
        assert_eq!(contradicted == 0, is_sound, "seed {seed}");
    });
}
