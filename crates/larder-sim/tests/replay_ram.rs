//! The RAM of a replay beside the cache: at most 48 bytes for each unique block of the trace.
//!
//! The allocator counts at the worst moment. A second check covers AustereCache with full lists,
//! which takes more.
//!
//! There is one test in this process, so that nothing else allocates meanwhile.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use larder_sim::{
    cache::WritePolicy,
    lab::{LabListener, broadcast},
    measure::Meter,
    replay::Batches,
    setup::{FlashAmount, Options, REPLAY_DESIGNS, ReplayDesign, Setup},
    survey::survey,
};
use larder_trace::{
    ContentId, InfoCollector, Op, Provenance, RechunkOptions, Rechunker, Record, TraceContent, TraceResult, chunks,
};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
static PEAK_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn count(bytes: i64) {
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
    PEAK_BYTES.fetch_max(live, Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    // A large block is moved by its pages: old and new are not there at the same time.
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that `work` had allocated at its worst moment, beside those before.
fn peak<T>(work: impl FnOnce() -> T) -> (i64, T) {
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let result = work();
    (PEAK_BYTES.load(Relaxed) - before, result)
}

const AUSTERE: &str = "austere";
const BLOCK: u64 = 4096;
/// RAM that does not grow with the trace: batches, and the record of touched regions.
const FIXED_BYTES: i64 = 256 << 10;

/// Most bytes of a trace's statistics for an address and a fingerprint. While both tables grow,
/// these are 3 * 41 and 3 * 25 bytes for each 7/8 of a slot.
const INFO_BYTES_MAX: i64 = 227;
/// The part of `INFO_BYTES_MAX` for an address.
const INFO_ADDRESS_BYTES_MAX: i64 = 141;

/// Returns reads and writes of all of `blocks` twice, out of order, each with a content that few
/// share. One in `stride` blocks of the disk is touched.
fn records(blocks: u64, stride: u64) -> impl Iterator<Item = TraceResult<Record>> {
    (0..2 * blocks).map(move |n| {
        let block = n * 7919 % blocks;
        let fingerprint = ContentId::from_u128(u128::from(block / 2 + 1) << 64 | u128::from(block));
        let content =
            TraceContent { fingerprint, stored_bytes: Some(2000), is_zero: false, provenance: Provenance::Recorded };
        let op = if n % 3 == 0 { Op::Write } else { Op::Read };
        Ok(Record { content: Some(content), ..Record::new(n, op, block * stride * BLOCK, BLOCK) })
    })
}

/// Returns the bytes of both passes of re-chunking, and the requests.
fn rechunk(blocks: u64, stride: u64, chunk_bytes: u32) -> (i64, usize) {
    peak(|| {
        let mut rechunker = Rechunker::new(RechunkOptions::new(chunk_bytes)).expect("a size");
        rechunker.learn(records(blocks, stride)).expect("pass 1");
        rechunker.replay(records(blocks, stride)).filter(Result::is_ok).count()
    })
}

/// Returns the bytes of a replay, from nothing, and the cache's own part at the worst moment.
fn replay(
    design: &'static ReplayDesign,
    flash_chunks: u64,
    records: impl Iterator<Item = TraceResult<Record>> + Send,
) -> (i64, i64) {
    // The papers' caches have no structures of a real flash beside the index.
    let setup = Setup {
        design,
        chunk_bytes: BLOCK as u32,
        flash: FlashAmount::DataChunks(flash_chunks),
        policy: WritePolicy::Through,
        options: Options::default(),
    }
    .by_its_paper();
    let (bytes, measures) = peak(|| {
        let mut meter = Meter::new(setup.build(0).expect("a cache"), BLOCK as u32, 100);
        let mut batches = Batches::new(chunks(records, BLOCK as u32).expect("a size"), BLOCK as u32);
        broadcast(&mut batches, &mut [&mut meter as &mut dyn LabListener], 1).expect("sound records");
        meter.finish()
    });
    let own = measures.figures.index_ram_bytes as i64;
    // AustereCache's table has its size from the beginning. Others grow by doubling: then old and
    // new are there.
    (bytes, if design.name == AUSTERE { own } else { 2 * own })
}

/// Returns writes of 60 contents to each of `blocks`; each content reaches 60 blocks. All lists of
/// AustereCache's metadata slots are full, mostly of addresses that have other content by now.
fn restless(blocks: u64) -> impl Iterator<Item = TraceResult<Record>> {
    (0..60 * blocks).map(move |n| {
        let (round, block) = (n / blocks, n % blocks);
        let fingerprint = ContentId::from_u128(u128::from((block + round) % blocks + 1));
        let content =
            TraceContent { fingerprint, stored_bytes: Some(1000), is_zero: false, provenance: Provenance::Recorded };
        Ok(Record { content: Some(content), ..Record::new(n, Op::Write, block * BLOCK, BLOCK) })
    })
}

/// Returns the bytes of the statistics of `records` for each of `count` addresses, contents, or
/// both.
fn statistics(records: impl Iterator<Item = TraceResult<Record>>, count: u64, most: i64) -> f64 {
    let (bytes, info) = peak(|| InfoCollector::collect(None, records).expect("sound records"));
    assert_eq!(info.blocks, 2 * count);
    let each = bytes as f64 / count as f64;
    assert!(each <= most as f64 && each > 20.0, "statistics of {count}: {each:.1} bytes each");
    each
}

#[test]
fn a_replay_takes_48_bytes_a_unique_block_at_most_beside_the_cache() {
    // Just above a power of two, where tables that double are largest; and just below it.
    for blocks in [(1u64 << 17) + 1, (1 << 17) - 1, 150_001, 114_689] {
        let most = 48 * blocks as i64 + FIXED_BYTES;
        // The count of `larder-lab trace info`: blocks with content of their own, many with one
        // content, one with many.
        let shared = records(1, 1).take(1).filter_map(Result::ok).find_map(|record| record.content);
        let of_one_content = records(blocks, 1).map(|record| record.map(|record| Record { content: shared, ..record }));
        let at_one_block = records(blocks, 1).map(|record| record.map(|record| Record { offset_bytes: 0, ..record }));
        let pairs = statistics(records(blocks, 1), blocks, INFO_BYTES_MAX);
        let addresses = statistics(of_one_content, blocks, INFO_ADDRESS_BYTES_MAX);
        let contents = statistics(at_one_block, blocks, INFO_BYTES_MAX - INFO_ADDRESS_BYTES_MAX);
        println!(
            "statistics of {blocks}: {addresses:.1} bytes an address, {contents:.1} a content, {pairs:.1} for both"
        );
        let (bytes, found) = peak(|| survey(chunks(records(blocks, 1), BLOCK as u32).unwrap()).unwrap());
        assert_eq!((found.requests, found.working_set_chunks), (2 * blocks, blocks));
        assert!(bytes <= most, "a survey of {blocks} blocks: {bytes} bytes");
        for (design, flash_chunks) in REPLAY_DESIGNS.iter().flat_map(|design| [(design, 8192), (design, blocks)]) {
            let (bytes, own) = replay(design, flash_chunks, records(blocks, 1));
            // The metadata slots of AustereCache are on flash, and are simulated in RAM: no other
            // design has any.
            let is_austere = design.name == AUSTERE;
            let (name, beside, most) = (design.name, bytes - own, if is_austere { most } else { FIXED_BYTES });
            if is_austere {
                let each = beside as f64 / blocks as f64;
                println!("{name}, a flash of {flash_chunks} chunks, {blocks} blocks: {each:.1} bytes a block");
            }
            assert!(beside <= most, "{name}, {flash_chunks} chunks, {blocks} blocks: {beside} bytes beside {own}");
        }
        // Chunks that are touched whole, to an eighth, and by one block, at any size.
        for stride in [1, 8, 32] {
            for chunk_bytes in [8192, 32 << 10, 128 << 10] {
                let (bytes, requests) = rechunk(blocks, stride, chunk_bytes);
                assert!(requests > 0);
                let each = bytes as f64 / blocks as f64;
                println!("{blocks} blocks, one in {stride}, chunks of {chunk_bytes} bytes: {each:.1} bytes a block");
                assert!(
                    bytes <= 48 * blocks as i64,
                    "{blocks} blocks, one in {stride}, in chunks of {chunk_bytes} bytes: {each:.1} bytes a block"
                );
            }
        }
    }
    // Only contents that share addresses again and again take more.
    let (blocks, austere) = (20_000, REPLAY_DESIGNS.iter().find(|design| design.name == AUSTERE).expect("is there"));
    let (bytes, own) = replay(austere, 2 * blocks, restless(blocks));
    let each = (bytes - own) as f64 / blocks as f64;
    println!("austere, full lists: {each:.1} bytes for each of {blocks} blocks and contents");
    assert!((600.0..700.0).contains(&each), "full lists: {each} bytes");
}
