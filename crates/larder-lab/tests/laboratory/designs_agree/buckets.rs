//! AustereCache over buckets: the same requests, one by one, and the same counts after each. The
//! counts are chunks stored, found stored already and evicted; bytes of chunks and metadata slots
//! written; metadata slots read. And each read hits in both or in none.
//!
//! A content's fingerprint gives its bucket, and its stored length gives its number of slots. So
//! the simulator gets both from the engine's log of decisions: those of the bytes that the engine
//! hashed and compressed. It takes nothing else from the log. Both have the same layout
//! ([`AustereConfig::of_layout`]).
//!
//! *Writes* agree count by count. *Reads of the metadata region* agree by this rule
//! ([`Remembered`]). An index may name a run, for an address that is read or for a content that is
//! stored. The simulator then reads the run's metadata slot, as the paper's cache does. The engine
//! does so, too, unless it still knows the slot. For a content, it knows the slots that it read or
//! wrote last, those of hits apart. For an address, it knows a slot that was read since its last
//! look-up. In write-back the simulator also reads the metadata slots of victims, which may have
//! dirty addresses. The engine has dirty chunks with their whole addresses, and reads none for
//! them.
//!
//! A write of an address may take the place of a *sibling* in the list of a content, one that
//! shares its LBA-hash. The engine writes that in two steps: the sibling leaves the list at once,
//! and the address joins it when log or origin have the write. The simulator, which knows no
//! crashes, writes it once.
//!
//! In write-back the origin gets all dirty data after each request, in both. The engine finds a
//! dirty address until it was destaged, even if the indices have lost it. The simulator has only
//! its indices, and destages an address when they lose it.
//!
//! It leaves out requests at the same time, requests of parts of chunks, and the bytes of chunks
//! that are read.

use super::requests::{CHUNK, caches_some, content_of, drawn, of_traces, packed_bytes_of, settled};
use larder_codec::Codec;
use larder_core::{
    Fingerprint, Lba,
    austere::{AustereConfig, fp_index::SlotRun},
    decisions::{Event, NewContent, Stored},
};
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    rng::mix64,
    sim::{SimDevice, SimRuntime},
};
use larder_engine::{Cache, Compression, CreateOptions, Tuning, WriteMode, create, decision_log::DecisionLog, designs};
use larder_sim::{
    austere::AustereCache,
    cache::{CacheRequest, Content, ReplayCache, WritePolicy},
    traffic::Traffic,
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    ops::Range,
    sync::Arc,
    time::Duration,
};

/// Metadata of a small flash, beside its slots.
const METADATA_BYTES: u64 = 768 << 10;
/// Bytes of a slot in the metadata region.
const METADATA_SLOT_BYTES: u64 = 512;
/// Chunks that compress have so many slots.
const PACKED_CHUNK: usize = 4 * CHUNK;
/// Chunks of a volume, and contents, of which some share their hashes.
const SHARING_CHUNKS: u64 = 20_000;
const SHARING_CONTENTS: u64 = 6000;
const HASH_KEY: [u8; 32] = [3; 32];
/// Metadata slots that the engine still knows after it read or wrote them.
const REMEMBERED: usize = 256;
const MODES: [(WriteMode, WritePolicy); 3] = [
    (WriteMode::Back, WritePolicy::Back),
    (WriteMode::Through, WritePolicy::Through),
    (WriteMode::Around, WritePolicy::Around),
];

/// Counts of all work so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Counts {
    read_hits: u64,
    chunks_stored: u64,
    duplicates: u64,
    chunks_evicted: u64,
    data_bytes_written: u64,
    metadata_slots_written: u64,
}

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Run<'a> {
    mode: WriteMode,
    policy: WritePolicy,
    compression: Compression,
    chunk: usize,
    /// The fewest slots of the flash.
    slots: u64,
    /// Bytes of a sector of the flash: a metadata slot, or a block of several.
    sector_bytes: u32,
    /// The content of the volume before the run.
    before: &'a [Content],
}

impl Run<'_> {
    const SMALL: Run<'static> = Run {
        mode: WriteMode::Back,
        policy: WritePolicy::Back,
        compression: Compression::Off,
        chunk: CHUNK,
        slots: 180,
        sector_bytes: METADATA_SLOT_BYTES as u32,
        before: &[],
    };
}

/// An inserted content, by its fingerprint, and its stored form, if it was stored.
type Inserted = (Fingerprint, Option<Stored>);

/// The engine on simulated devices.
struct Engine {
    runtime: Arc<SimRuntime>,
    cache: Arc<Cache>,
    mode: WriteMode,
    sector_bytes: u32,
    /// The insertions of the last request.
    inserted: Arc<Mutex<Vec<Inserted>>>,
    layout: AustereConfig,
}

impl Engine {
    fn new(run: &Run<'_>) -> Engine {
        let Run { mode, compression, chunk, .. } = *run;
        let runtime = SimRuntime::timed(1);
        let volume_bytes = (run.before.len() * chunk) as u64;
        let slot_bytes = CHUNK as u64 + METADATA_SLOT_BYTES;
        let flash_bytes = (METADATA_BYTES + run.slots * slot_bytes).next_multiple_of(run.sector_bytes.into());
        let flash = SimDevice::new(&runtime, "flash", flash_bytes, run.sector_bytes);
        let origin = SimDevice::new(&runtime, "origin", volume_bytes, 512);
        for (lba, content) in run.before.iter().enumerate().filter(|(_, content)| !content.is_zero()) {
            origin.poke((lba * chunk) as u64, &packed_bytes_of(content, chunk));
        }
        let mut options = CreateOptions {
            mode,
            compression,
            chunk_bytes: chunk as u32,
            hash_key: HASH_KEY,
            ..CreateOptions::default()
        };
        designs::named("austere").expect("the engine runs it").fit(&mut options);
        let made = runtime.block_on(create(&*flash, volume_bytes, &options)).expect("it is made");
        let layout = designs::layout_of(&made.layout, run.before.len() as u64);
        let layout = AustereConfig::of_layout(&layout, made.layout.slot_count.into());
        let inserted = Arc::<Mutex<Vec<_>>>::default();
        let sink = inserted.clone();
        let decisions = DecisionLog::to(move |event, _| {
            if let Event::Insert { content: NewContent::Chunk { fingerprint, stored }, .. } = event {
                sink.lock().push((fingerprint.expect("it deduplicates"), *stored));
            }
        });
        // No read-ahead, and no destaging without a request for it.
        let tuning = Tuning {
            prefetch_bytes_max: 0,
            dirty_low_percent: 100,
            dirty_high_percent: 100,
            dirty_max_percent: 100,
            decisions,
            ..Tuning::default()
        };
        let cache = runtime.block_on(Cache::open(flash, origin, runtime.clone(), tuning)).expect("it opens");
        Engine { runtime, cache: Arc::new(cache), mode, sector_bytes: run.sector_bytes, inserted, layout }
    }

    /// Makes a request, and waits until all its consequences are done.
    fn make(&self, request: &CacheRequest) {
        let Engine { runtime, cache, layout, .. } = self;
        let chunk = layout.chunk_bytes as usize;
        let at = |lba: &Lba| lba.0 * chunk as u64;
        let failed = match request {
            CacheRequest::Read(lba, content) => {
                let read = runtime.block_on(cache.read(at(lba), IoBuf::new(chunk)));
                if let Ok(read) = &read {
                    assert!(read[..] == packed_bytes_of(content, chunk)[..], "{request:?} reads something else");
                }
                read.err().map(|error| error.to_string())
            }
            CacheRequest::Write(lba, content) => {
                let data = IoBuf::copy_of(&packed_bytes_of(content, chunk)).freeze();
                let written = runtime.block_on(cache.write(at(lba), data, WriteFlags::default()));
                written.err().map(|error| error.to_string())
            }
            CacheRequest::Trim(lba, count) => {
                let trimmed = cache.zero(at(lba), count * chunk as u64, ZeroFlags::default());
                runtime.block_on(trimmed).err().map(|error| error.to_string())
            }
            CacheRequest::Forget(..) => None,
            CacheRequest::Flush => runtime.block_on(cache.flush()).err().map(|error| error.to_string()),
        };
        assert_eq!(failed, None, "{request:?}");
        runtime.block_on(cache.wait_for_insertions());
        match self.mode {
            WriteMode::Back => assert!(runtime.block_on(cache.destage_all())),
            // A clean chunk is named on flash when the origin has it.
            _ => runtime.block_on(cache.flush()).expect("it is flushed"),
        }
        runtime.run_for(Duration::from_millis(50));
    }

    /// Returns its counts, and the number of metadata slots that it read for their content.
    fn counts(&self) -> (Counts, u64) {
        let counts = self.cache.status().counts;
        let block_bytes = u64::from(self.sector_bytes);
        assert_eq!(counts.flash_region_bytes_read, counts.flash_region_reads * block_bytes);
        assert_eq!(counts.flash_region_bytes_written, counts.flash_region_writes * block_bytes);
        // A block of several is read for each write to one of them.
        let read_to_write = if block_bytes > METADATA_SLOT_BYTES { counts.flash_region_writes } else { 0 };
        let done = Counts {
            read_hits: counts.read_hits,
            chunks_stored: counts.stored_records,
            duplicates: counts.duplicate_chunks,
            chunks_evicted: counts.evicted_slots,
            data_bytes_written: counts.flash_segment_bytes_written,
            metadata_slots_written: counts.flash_region_writes,
        };
        (done, counts.flash_region_reads - read_to_write)
    }
}

/// The metadata slots that the engine still knows, by the rule, and the number of its remaining
/// reads.
#[derive(Default)]
struct Remembered {
    /// Each with true if it was read since its last look-up.
    known: HashMap<u32, bool>,
    /// In order of their reads and writes; a slot may be there twice.
    order: VecDeque<u32>,
    reads: u64,
}

impl Remembered {
    /// Notes a look-up of an address that may be in the run at `slot`. A slot that confirms a hit
    /// is read and not kept.
    fn look_up(&mut self, slot: u32, is_hit: bool) {
        match (self.known.get(&slot) == Some(&true), is_hit) {
            (true, _) => {}
            (false, true) => self.reads += 1,
            (false, false) => self.read(slot),
        }
        self.known.entry(slot).and_modify(|is_fresh| *is_fresh = false);
    }

    /// Notes a search for a content that may be in the run at `slot`.
    fn compare(&mut self, slot: u32) {
        if !self.known.contains_key(&slot) {
            self.read(slot);
        }
    }

    fn read(&mut self, slot: u32) {
        self.reads += 1;
        self.known.insert(slot, true);
        self.remember(slot);
    }

    fn written(&mut self, slot: u32) {
        self.known.insert(slot, false);
        self.remember(slot);
    }

    fn remember(&mut self, slot: u32) {
        self.order.push_back(slot);
        if self.order.len() > REMEMBERED {
            let oldest = self.order.pop_front();
            if let Some(oldest) = oldest.filter(|oldest| !self.order.contains(oldest)) {
                self.known.remove(&oldest);
            }
        }
    }
}

/// The simulator, by itself, and the engine's expected reads of the metadata region.
struct Simulated {
    cache: AustereCache,
    policy: WritePolicy,
    read_hits: u64,
    remembered: Remembered,
    /// Runs that the indices named.
    looks: u64,
    /// Named runs with another content, or another address.
    vain_looks: u64,
    /// Metadata slots that the engine writes twice, and the simulator once.
    in_two_steps: u64,
    /// The log's content for each fingerprint.
    told: HashMap<Fingerprint, Content>,
}

impl Simulated {
    fn new(layout: AustereConfig, policy: WritePolicy) -> Simulated {
        let cache = AustereCache::new(layout, policy).expect("a layout");
        let (remembered, told) = (Remembered::default(), HashMap::new());
        Simulated { cache, policy, read_hits: 0, remembered, looks: 0, vain_looks: 0, in_two_steps: 0, told }
    }

    /// Learns the fingerprint and the stored form of `content`.
    fn learn(&mut self, content: &Content, fingerprint: Fingerprint, stored: Option<Stored>) {
        let known = self.told.get(&content.fingerprint);
        let stored_bytes = stored.map(|stored| stored.bytes).or(known.map(|known| known.stored_bytes));
        let stored_bytes = stored_bytes.unwrap_or_else(|| panic!("{content:?} is known, and was never stored"));
        assert!(known.is_none_or(|known| *known == Content { fingerprint, stored_bytes }), "{content:?} changed");
        self.told.insert(content.fingerprint, Content { fingerprint, stored_bytes });
    }

    /// Makes a request.
    fn make(&mut self, request: &CacheRequest) {
        let engines = |content: &Content| self.told.get(&content.fingerprint).copied().unwrap_or(*content);
        match request {
            CacheRequest::Read(lba, content) => {
                let (content, named) = (engines(content), self.cache.core().lookup(*lba));
                let (same, before) = (self.cache.core().find_content(&content.fingerprint), self.cache.traffic());
                let is_hit = self.cache.read(*lba, &content);
                if let Some(run) = named {
                    self.remembered.look_up(run.first, is_hit);
                }
                self.looks += u64::from(named.is_some());
                self.vain_looks += u64::from(named.is_some() && !is_hit);
                self.read_hits += u64::from(is_hit);
                if !is_hit {
                    self.inserted(&content, same, &before);
                }
            }
            CacheRequest::Write(lba, content) => {
                let content = engines(content);
                let (same, before) = (self.cache.core().find_content(&content.fingerprint), self.cache.traffic());
                let siblings = self.cache.siblings_replaced();
                self.cache.write(*lba, &content);
                self.in_two_steps += self.cache.siblings_replaced() - siblings;
                // As the engine does after each request.
                self.cache.clean(*lba);
                if self.policy != WritePolicy::Around {
                    self.inserted(&content, same, &before);
                }
            }
            CacheRequest::Trim(lba, count) => self.cache.trim_run(*lba, *count),
            CacheRequest::Forget(..) => {}
            CacheRequest::Flush => self.cache.flush(),
        }
    }

    /// Counts the insertion of `content`, for which the index named the run `same`.
    fn inserted(&mut self, content: &Content, same: Option<SlotRun>, before: &Traffic) {
        let done = self.cache.traffic().since(before);
        if let Some(run) = same {
            self.remembered.compare(run.first);
            self.looks += 1;
            self.vain_looks += done.chunks_stored;
        }
        if done.flash_metadata_bytes_written > 0 {
            let run = self.cache.core().find_content(&content.fingerprint).expect("it is stored");
            self.remembered.written(run.first);
        }
    }

    fn counts(&self) -> Counts {
        let traffic = self.cache.traffic();
        Counts {
            read_hits: self.read_hits,
            chunks_stored: traffic.chunks_stored,
            duplicates: traffic.chunks_deduplicated,
            chunks_evicted: traffic.chunks_evicted,
            data_bytes_written: traffic.flash_data_bytes_written,
            metadata_slots_written: traffic.flash_metadata_bytes_written / METADATA_SLOT_BYTES + self.in_two_steps,
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Outcome {
    reads: u64,
    counts: Counts,
    looks: u64,
    vain_looks: u64,
    region_reads: u64,
    /// Chunks stored in fewer slots than a raw chunk has.
    packed: u64,
}

fn agree_on(what: &str, run: &Run<'_>, requests: &[CacheRequest]) -> Outcome {
    let engine = Engine::new(run);
    let mut simulated = Simulated::new(engine.layout, run.policy);
    let slot_bytes = engine.layout.subchunk_bytes;
    let (_, region_reads_before) = engine.counts();
    let mut outcome = Outcome::default();
    for (number, request) in requests.iter().enumerate() {
        let at = || format!("{what}: request {number}, {request:?}");
        engine.make(request);
        if let CacheRequest::Read(_, content) | CacheRequest::Write(_, content) = request {
            for (fingerprint, stored) in std::mem::take(&mut *engine.inserted.lock()) {
                outcome.packed += u64::from(stored.is_some_and(|stored| stored.bytes <= run.chunk as u32 - slot_bytes));
                simulated.learn(content, fingerprint, stored);
            }
        }
        assert_eq!(engine.inserted.lock().len(), 0, "{}: something was inserted", at());
        simulated.make(request);
        let (counts, region_reads) = engine.counts();
        assert_eq!(counts, simulated.counts(), "{}: engine and simulator", at());
        let region_reads = region_reads - region_reads_before;
        assert_eq!(region_reads, simulated.remembered.reads, "{}: metadata slots read, by the rule", at());
        // The simulator also reads those of victims that may be dirty.
        let all_reads = simulated.cache.traffic().flash_metadata_bytes_read / METADATA_SLOT_BYTES;
        match run.mode {
            WriteMode::Back => assert!(all_reads >= simulated.looks, "{}: {all_reads} metadata reads", at()),
            _ => assert_eq!(all_reads, simulated.looks, "{}: metadata reads of the simulator", at()),
        }
        outcome.reads += u64::from(matches!(request, CacheRequest::Read(..)));
        (outcome.counts, outcome.region_reads) = (counts, region_reads);
    }
    assert_eq!(simulated.cache.wrong_hits(), 0, "{what}");
    engine.runtime.kill();
    (outcome.looks, outcome.vain_looks) = (simulated.looks, simulated.vain_looks);
    let slots = engine.layout.data_bytes / u64::from(slot_bytes);
    println!("{what}: {slots} slots in buckets of {}, {outcome:?}", engine.layout.bucket_slots);
    assert_eq!(outcome.counts.chunks_stored > 0, caches_some(run.mode, requests), "{what}: something was cached");
    outcome
}

/// Compares both in each write mode.
fn agree_in_modes(what: &str, run: &Run<'_>, requests: &[CacheRequest]) -> Vec<Outcome> {
    let in_mode = |(mode, policy)| agree_on(&format!("{what}, {mode:?}"), &Run { mode, policy, ..*run }, requests);
    MODES.map(in_mode).into()
}

/// Compares both on chunks of `chunk` bytes, few of them frequent, over few slots.
fn agree_on_drawn(seed: u64, compression: Compression, chunk: usize) {
    let mut requests = drawn(seed);
    for request in &mut requests {
        if let CacheRequest::Read(_, content) | CacheRequest::Write(_, content) = request {
            // Some do not compress.
            let stored = 1 + mix64(u64::from_le_bytes(std::array::from_fn(|i| content.fingerprint.0[i])))
                % (chunk as u64 * 5 / 4);
            content.stored_bytes = stored.min(chunk as u64) as u32;
        }
    }
    let before = settled(&mut requests);
    let run = Run { compression, chunk, before: &before, ..Run::SMALL };
    let what = format!("seed {seed}, {compression:?}, chunks of {chunk} bytes");
    for outcome in agree_in_modes(&what, &run, &requests) {
        let Counts { read_hits, chunks_evicted, duplicates, .. } = outcome.counts;
        assert!(read_hits > 0 && chunks_evicted > 0 && duplicates > 0, "{what}: {outcome:?}");
        let is_packed = compression != Compression::Off && chunk > CHUNK;
        assert_eq!(outcome.packed > 0, is_packed, "{what}: {outcome:?}");
    }
}

#[test]
fn drawn_requests_decide_alike() {
    for seed in 1..3 {
        agree_on_drawn(seed, Compression::Off, CHUNK);
        agree_on_drawn(seed, Compression::Lz4, PACKED_CHUNK);
    }
    agree_on_drawn(3, Compression::Zstd, PACKED_CHUNK);
    agree_on_drawn(4, Compression::Lz4, CHUNK);
}

/// Returns the numbers whose key another one has, too.
fn sharing<K: Eq + Hash>(numbers: Range<u64>, key: impl Fn(u64) -> K) -> Vec<u64> {
    let mut by_key: HashMap<K, Vec<u64>> = HashMap::new();
    numbers.for_each(|number| by_key.entry(key(number)).or_default().push(number));
    let mut sharing: Vec<u64> = by_key.into_values().filter(|numbers| numbers.len() > 1).flatten().collect();
    sharing.sort_unstable();
    sharing
}

#[test]
fn addresses_and_contents_of_one_hash_decide_alike() {
    let mut before = vec![content_of(0); SHARING_CHUNKS as usize];
    let layout = Engine::new(&Run { before: &before, ..Run::SMALL }).layout;
    let simulated = Simulated::new(layout, WritePolicy::Back);
    let core = simulated.cache.core();
    let codec = Codec::new(HASH_KEY, Compression::Off, 1, true);
    let fingerprint = |number| codec.fingerprint(&packed_bytes_of(&content_of(number), CHUNK)).expect("it has one");
    let addresses = sharing(0..SHARING_CHUNKS, |lba| core.key_of_lba(Lba(lba)).0);
    let contents = sharing(1..SHARING_CONTENTS, |number| core.contents().of_content(&fingerprint(number)).0);
    assert!(addresses.len() > 10 && contents.len() > 10, "{addresses:?}, {contents:?}");
    let mut requests = drawn(5);
    let lba_of = |lba: Lba| Lba(addresses[lba.0 as usize % addresses.len()]);
    for request in &mut requests {
        match request {
            CacheRequest::Read(lba, _) | CacheRequest::Trim(lba, _) => *lba = lba_of(*lba),
            CacheRequest::Write(lba, content) => {
                let number = u64::from_le_bytes(std::array::from_fn(|i| content.fingerprint.0[i]));
                (*lba, *content) = (lba_of(*lba), content_of(contents[number as usize % contents.len()]));
            }
            CacheRequest::Forget(..) | CacheRequest::Flush => {}
        }
    }
    let held = settled(&mut requests);
    before[..held.len()].copy_from_slice(&held);
    for outcome in agree_in_modes("shared hashes", &Run { before: &before, ..Run::SMALL }, &requests) {
        let Counts { read_hits, chunks_evicted, .. } = outcome.counts;
        assert!(read_hits > 100 && chunks_evicted > 10 && outcome.vain_looks > 100, "{outcome:?}");
    }
}

/// A flash that writes blocks of eight metadata slots decides alike; its costs count its blocks.
#[test]
fn chunks_on_a_flash_of_large_sectors_decide_alike() {
    let mut requests = drawn(3);
    let before = settled(&mut requests);
    let run = Run { sector_bytes: 4096, before: &before, ..Run::SMALL };
    for outcome in agree_in_modes("sectors of 4 KiB", &run, &requests) {
        assert!(outcome.counts.metadata_slots_written > 100 && outcome.region_reads > 100, "{outcome:?}");
    }
}

/// Compares both on the traces, with so few slots that most chunks must go again.
fn agree_on_traces(compression: Compression, chunk: usize) {
    for (trace, mut requests) in of_traces(chunk) {
        let before = settled(&mut requests);
        let slots = (requests.len() as u64 / 8).max(64) * (chunk / CHUNK) as u64;
        let run = Run { compression, chunk, slots, before: &before, ..Run::SMALL };
        agree_in_modes(&format!("{trace}, {compression:?}"), &run, &requests);
    }
}

#[test]
fn whole_chunks_of_traces_decide_alike() {
    agree_on_traces(Compression::Off, CHUNK);
}

#[test]
fn packed_chunks_of_traces_decide_alike() {
    agree_on_traces(Compression::Lz4, PACKED_CHUNK);
}
