//! Target: the whole recovery over a damaged image.
//!
//! A run opens the cache, reads every sector, works on, runs `verify`, ends, and opens again.
//!
//! Properties, after any damage: no panic, no endless run (the simulation counts steps), no
//! allocation out of proportion. If checksums can tell the damage, there are more:
//!
//! - A read gives the newest bytes of a sector, or an error. If the log lost its end, and no
//!   remaining frame proves it, the bytes after a crash there are right, too.
//! - Damage to records and metadata slots refuses no opening, and costs clean chunks nothing: the
//!   origin has them.
//! - One damaged superblock costs nothing.
//! - `verify` calls no image clean whose opening is refused or whose reads fail.
//! - Writes after the opening read back, now and after another opening.
//!
//! Invariants: the bytes alone decide the run.
//!
//! It does not crash in the middle. It leaves this to the simulation of the engine's tests.

pub mod base;
pub mod damage;
pub mod medium;
pub mod repair;

use super::{input::Input, memory};
use base::{Base, CHUNK, Kind, VOLUME_BYTES, runtime, tuning};
use damage::Damaged;
use larder_check::{dump, verify::verify};
use larder_device::{IoBuf, WriteFlags, ZeroFlags, sim::Schedule, sim::SimRuntime};
use larder_engine::Cache;
use larder_format::{Superblock, layout::SUPERBLOCK_OFFSETS, superblock::SUPERBLOCK_BYTES};
use medium::{Medium, SECTOR};
use std::sync::{Arc, OnceLock};

/// Bytes that a run may allocate, the image apart; a sound one takes a fraction of it.
const ALLOCATED_BYTES_MAX: usize = 64 << 20;
/// Operations after the opening.
const OPERATIONS_MAX: usize = 6;

/// The outcome of a run, for tests that all kinds of outcome happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub sealed: bool,
    pub opened: bool,
    pub chunks_failed: usize,
    /// True if the log lost its end without a proof.
    pub rolled_back: bool,
    pub verified_clean: bool,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(Base::all)
}

/// The bytes that a read of a sector may give.
enum Expected {
    /// Anything.
    Anything,
    /// The newest version as of the beginning of this step, or a later one.
    Since(usize),
}

struct Run {
    base: &'static Base,
    expected: Expected,
    /// The bytes of each sector written after the opening.
    written: Vec<Option<[u8; SECTOR]>>,
    /// Sectors that may read as any version of themselves.
    older: Vec<bool>,
    chunks_failed: usize,
}

/// Runs the fuzz target, and returns the outcome.
pub fn look(data: &[u8]) -> Seen {
    let all = bases();
    let mut input = Input(data);
    let base = &all[input.below(all.len())];
    let seed = u64::from(input.byte());
    // The input has the work after the opening in front, so that the damage can be of any length.
    let work = input.bytes(3 * OPERATIONS_MAX);
    let damaged = damage::damage(base, &mut input);
    let (seen, peak) = memory::peak_of(|| look_at(base, &damaged, seed, work));
    assert!(peak <= ALLOCATED_BYTES_MAX, "{peak} bytes were allocated");
    seen
}

fn look_at(base: &'static Base, damaged: &Damaged, seed: u64, work: &[u8]) -> Seen {
    let mut seen = Seen { sealed: damaged.sealed, ..Seen::default() };
    let (expected, rolled_back) = expectation(base, damaged);
    seen.rolled_back = rolled_back;
    let image = Arc::new(damaged.flash.clone());
    let flash = Medium::new("flash", image, damaged.size_bytes, false);
    let origin = Medium::new("origin", base.origin.clone(), VOLUME_BYTES, false);

    let runtime = runtime(seed, Schedule::Chaos);
    let report = runtime.block_on(verify(&*flash, &mut |_, _| {}));
    seen.verified_clean = report.as_ref().is_ok_and(|report| report.clean);
    dump_all(&runtime, &flash);
    let opening = Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning());
    let opened = runtime.block_on(opening);
    let touched = Touched::of(base, damaged);
    if !damaged.sealed {
        assert!(opened.is_ok() || !seen.verified_clean, "{}: verify calls clean what does not open", base.name);
        assert!(opened.is_ok() || touched.metadata, "{}: damage to records refuses the opening", base.name);
    }
    let mut run = Run::new(base, expected);
    if let Ok(cache) = opened {
        seen.opened = true;
        run.read_all(&runtime, &cache, |lba| !damaged.sealed && !touched.metadata && !base.dirty.contains(&lba));
        if !damaged.sealed {
            let is_sound = run.chunks_failed == 0;
            assert!(is_sound || touched.any(), "{}: reads of a sound image fail", base.name);
            assert!(is_sound || !seen.verified_clean, "{}: verify calls clean what cannot be read", base.name);
        }
        seen.chunks_failed = run.chunks_failed;
        run.work(&runtime, &cache, work);
        run.read_all(&runtime, &cache, |_| false);
        let _ = runtime.block_on(cache.close());
        drop(cache);
    }
    runtime.kill();
    if seen.opened {
        run.open_again(&flash, &origin, seed);
    }
    seen
}

/// The structures that a damage hit.
struct Touched {
    records: bool,
    /// True for anything but records, the metadata slots that speak of them, and one superblock.
    metadata: bool,
    one_superblock: bool,
}

impl Touched {
    fn of(base: &Base, damaged: &Damaged) -> Touched {
        let slots = base.slots();
        let differs = |from: usize, to: usize| base.flash[from..to] != damaged.flash[from..to];
        let twins = SUPERBLOCK_OFFSETS.map(|at| differs(at as usize, at as usize + SUPERBLOCK_BYTES));
        let metadata_start = larder_format::layout::METADATA_OFFSET as usize;
        Touched {
            records: differs(base.metadata_end(), slots.end),
            metadata: twins == [true; 2]
                || differs(metadata_start, base.metadata_end())
                || damaged.size_bytes < base.flash.len() as u64,
            one_superblock: twins.contains(&true),
        }
    }

    fn any(&self) -> bool {
        self.records || self.metadata || self.one_superblock
    }
}

/// Returns the bytes that reads may give after this damage, and whether the log lost its end
/// unproven.
fn expectation(base: &Base, damaged: &Damaged) -> (Expected, bool) {
    if damaged.sealed {
        return (Expected::Anything, false);
    }
    let twins = SUPERBLOCK_OFFSETS.map(|at| &damaged.flash[at as usize..at as usize + SUPERBLOCK_BYTES]);
    let newest = twins.iter().filter_map(|bytes| Superblock::decode(bytes).ok()).max_by_key(|twin| twin.sequence);
    if newest.is_some_and(|newest| newest != base.superblock) {
        // Both were rolled back: no checksum tells, and each sector is some version of itself.
        return (Expected::Since(0), true);
    }
    let frames = || {
        base.structures.iter().filter_map(|structure| match structure.kind {
            Kind::Frame { seq, durable } => {
                let range = structure.offset..structure.offset + structure.bytes;
                Some((seq, durable, damaged.flash[range.clone()] == base.flash[range]))
            }
            _ => None,
        })
    };
    // The data that a remaining frame calls durable was there: opening is refused if it is lost.
    // Behind that, a lost end looks like a crash.
    let proven = frames().filter(|(_, _, is_whole)| *is_whole).map(|(_, durable, _)| durable).max().unwrap_or(0);
    let mut lost = frames().filter(|(_, _, is_whole)| !is_whole).map(|(seq, _, _)| seq);
    let is_refused = lost.clone().any(|seq| seq <= proven);
    match lost.find(|&seq| seq > proven) {
        Some(seq) => (Expected::Since(base.step_of(seq)), !is_refused),
        None => (Expected::Since(usize::MAX), false),
    }
}

impl Run {
    fn new(base: &'static Base, expected: Expected) -> Run {
        let sectors = VOLUME_BYTES as usize / SECTOR;
        Run { base, expected, written: vec![None; sectors], older: vec![false; sectors], chunks_failed: 0 }
    }

    /// Reads every chunk. An error is a failure for a chunk with `must_succeed`.
    fn read_all(&mut self, runtime: &SimRuntime, cache: &Cache, must_succeed: impl Fn(u64) -> bool) {
        let volume = larder_device::BlockDevice::info(cache).size_bytes.min(VOLUME_BYTES);
        for lba in 0..volume.div_ceil(CHUNK as u64) {
            let offset = lba * CHUNK as u64;
            let len = (volume - offset).min(CHUNK as u64) as usize / SECTOR * SECTOR;
            match runtime.block_on(cache.read(offset, IoBuf::new(len))) {
                Ok(bytes) => self.check(offset, &bytes),
                Err(error) => {
                    assert!(!must_succeed(lba), "{}: clean chunk {lba} cannot be read: {error}", self.base.name);
                    self.chunks_failed += 1;
                    // Each of its sectors alone: some may be readable, none may be wrong.
                    for at in (0..len).step_by(SECTOR) {
                        let at = offset + at as u64;
                        if let Ok(bytes) = runtime.block_on(cache.read(at, IoBuf::new(SECTOR))) {
                            self.check(at, &bytes);
                        }
                    }
                }
            }
        }
    }

    fn check(&self, offset: u64, bytes: &[u8]) {
        let Expected::Since(step) = self.expected else { return };
        for (i, sector) in bytes.chunks_exact(SECTOR).enumerate() {
            let number = offset as usize / SECTOR + i;
            let right = match &self.written[number] {
                Some(written) => written == sector,
                None => {
                    let versions = &self.base.versions[number];
                    let step = if self.older[number] { 0 } else { step };
                    let newest_before = versions.iter().rposition(|(at, _)| *at < step).unwrap_or(0);
                    versions[newest_before..].iter().any(|(_, version)| version == sector)
                }
            };
            assert!(right, "{}: sector {number} (chunk {}) is wrong", self.base.name, number * SECTOR / CHUNK);
        }
    }

    /// Runs some operations, and notes their writes.
    fn work(&mut self, runtime: &SimRuntime, cache: &Cache, work: &[u8]) {
        let volume = larder_device::BlockDevice::info(cache).size_bytes.min(VOLUME_BYTES) / SECTOR as u64;
        for (number, operation) in work.chunks(3).enumerate() {
            let mut input = Input(operation);
            let kind = input.byte();
            if volume < 64 {
                return;
            }
            let first = (u64::from(input.u16()) % (volume - 48)) / if kind & 16 == 0 { 16 } else { 1 };
            let (first, count) =
                if kind & 16 == 0 { (first * 16, 16 * (1 + usize::from(kind >> 5) % 3)) } else { (first, 5) };
            let (offset, len) = (first * SECTOR as u64, count * SECTOR);
            let fill = 0x80 | number as u8;
            let done = match kind % 8 {
                0..=2 => {
                    let data: Vec<u8> = (0..len).map(|i| fill ^ (i / SECTOR) as u8 ^ (i % 251) as u8).collect();
                    let write = cache.write(offset, IoBuf::copy_of(&data).freeze(), WriteFlags { fua: kind & 8 != 0 });
                    Some((runtime.block_on(write).is_ok(), data))
                }
                3 => {
                    let zeroed = runtime.block_on(cache.zero(offset, len as u64, ZeroFlags::default()));
                    Some((zeroed.is_ok(), vec![0; len]))
                }
                4 => {
                    let _ = runtime.block_on(cache.destage_all());
                    None
                }
                5 => {
                    let _ = runtime.block_on(cache.checkpoint());
                    None
                }
                6 => {
                    let _ = runtime.block_on(cache.flush());
                    None
                }
                _ => {
                    let modes = larder_format::WriteMode::ALL;
                    let mode = modes[usize::from(kind >> 4) % modes.len()];
                    let _ = runtime.block_on(cache.set_mode(mode));
                    None
                }
            };
            if let Some((is_done, data)) = done {
                self.note(first as usize, is_done, &data);
            }
        }
    }

    fn note(&mut self, first: usize, is_done: bool, data: &[u8]) {
        if !is_done {
            // Old or new from here on: too little to check.
            self.expected = Expected::Anything;
        }
        for (i, sector) in data.chunks_exact(SECTOR).enumerate() {
            self.written[first + i] = Some(sector.try_into().expect("a sector"));
        }
    }

    /// Opens the flash that the first opening left.
    fn open_again(&mut self, flash: &Arc<Medium>, origin: &Arc<Medium>, seed: u64) {
        let runtime = runtime(seed ^ 1, Schedule::Chaos);
        let opening = Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning());
        match runtime.block_on(opening) {
            Ok(cache) => self.read_all(&runtime, &cache, |_| false),
            Err(error) => {
                let is_free = matches!(self.expected, Expected::Anything);
                assert!(is_free, "{}: it opened once, and does not open again: {error}", self.base.name);
            }
        }
        runtime.kill();
    }
}

/// Formats every part of the flash, and drops the output.
fn dump_all(runtime: &SimRuntime, flash: &Medium) {
    const LIMIT: usize = 50;
    runtime.block_on(async {
        dump::superblocks(flash).await;
        if let Ok((superblock, _)) = larder_engine::superblock::read(flash).await {
            dump::layout(&superblock);
            for area in [None, Some(0), Some(1)] {
                let _ = dump::checkpoint(flash, &superblock, area, LIMIT).await;
                for block in 0..5 {
                    let _ = dump::checkpoint_block(flash, &superblock, area, block, LIMIT).await;
                }
            }
            let _ = dump::log(flash, &superblock, LIMIT).await;
            let _ = dump::frames(flash, &superblock, LIMIT).await;
            let _ = dump::frame(flash, &superblock, superblock.layout.log_offset, LIMIT).await;
            let _ = dump::history(flash, &superblock, 3, LIMIT).await;
            for record in [dump::RecordAt::Chunk(3), dump::RecordAt::FlashOffset(superblock.layout.slots_offset + 64)] {
                let _ = dump::record(flash, &superblock, record, true).await;
            }
            let _ = dump::slot_segments(flash, &superblock, 0, LIMIT).await;
        }
        let _ = dump::slots(flash, LIMIT).await;
        let _ = dump::mappings(flash, None, LIMIT).await;
        let _ = dump::trims(flash, LIMIT).await;
        let _ = dump::fingerprints(flash, LIMIT).await;
        let _ = dump::segments(flash, LIMIT).await;
    });
}

/// Returns inputs that once failed. They are sealed changes of one field, eight bytes wide, with
/// work after the opening.
fn found() -> Vec<Vec<u8>> {
    /// Write, trim, flush, partial write, checkpoint, flush.
    const WORK: [u8; 18] = [0, 20, 0, 3, 90, 1, 6, 0, 0, 17, 9, 2, 5, 0, 0, 6, 0, 0];
    // In the first image: the structure, the field's offset in it (as `Input::below` takes it), the
    // value's code.
    let found: [(usize, &[u8], u8); 5] = [
        // A checkpoint whose log starts past the end of the log, by little or by a lot.
        (2, &[88], 6),
        (2, &[88], 13),
        (2, &[88], 15),
        // A RAM budget for no entry: writes waited for room for ever.
        (0, &[176, 0], 1),
        // A limit of no fragments: the same.
        (0, &[152, 0], 0),
    ];
    let structures = bases()[0].structures.len();
    found
        .iter()
        .map(|&(structure, at, value)| {
            let structure = (structure as u16).to_le_bytes();
            let structure = if structures > 256 { &structure[..] } else { &structure[..1] };
            [&[0, 3], &WORK[..], &[11], structure, &[0, 3], at, &[value]].concat()
        })
        .collect()
}

/// Returns first inputs. They are the inputs that once failed, and one of each kind of damage on
/// each image. A flipped bit in each of its structures follows, at the address field of a frame.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = found();
    for image in 0..bases().len() as u8 {
        // Image, order, work: write, trim, destage, checkpoint, partial write, flush.
        let head: Vec<u8> = [image, 3, 0, 20, 0, 3, 90, 1, 4, 0, 0, 5, 0, 0, 17, 9, 2, 6, 0, 0].to_vec();
        seeds.push(head.clone());
        for (choice, rest) in [
            (0, vec![1, 0, 30, 3]),
            (0, vec![3, 5, 9, 1]),
            (3, vec![1, 1, 0]),
            (4, vec![3, 7, 0, 3, 9, 0]),
            (5, vec![1, 5, 0, 1, 6, 0]),
            (6, vec![9, 3]),
            (7, vec![0, 0]),
            (7, vec![1, 3]),
            (7, vec![2, 1]),
            (8, vec![3, 4, 0, 1, 2, 3]),
            (25, vec![7]),
            (9, vec![3, 8, 0, 4]),
            (10, vec![6, 1, 9, 0]),
            (11, vec![0, 0, 0, 72, 200, 0, 0, 1]),
            (12, vec![6, 1, 0, 80, 15, 2, 90, 3]),
            (13, vec![5, 1, 2, 3, 4, 5, 6, 1, 2, 8, 15]),
            (14, vec![12, 2, 0, 3, 15, 2, 9, 200]),
        ] {
            let mut seed = head.clone();
            seed.push(choice);
            seed.extend(rest);
            seeds.push(seed);
        }
        let structures = &bases()[usize::from(image)].structures;
        for (at_structure, structure) in structures.iter().enumerate() {
            let at = if structure.bytes > 72 { 72 } else { structure.bytes / 2 } as u8;
            // The numbers as `Input::below` takes them.
            let number = |number: usize, bound: usize| match bound {
                0..=256 => vec![number as u8],
                _ => (number as u16).to_le_bytes().to_vec(),
            };
            let mut seed = vec![image, 3];
            seed.extend([6; 3 * OPERATIONS_MAX]);
            seed.extend([0, 1]);
            seed.extend(number(at_structure, structures.len()));
            seed.extend(number(at.into(), structure.bytes));
            seed.push(1);
            seeds.push(seed);
        }
    }
    seeds
}
