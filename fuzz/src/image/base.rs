//! The sound images for the damage, made by the engine over each of its stores.
//!
//! Each image holds all that a flash can hold.
//!
//! Role: a scripted life of a small cache in simulation. Every version of each sector of the volume
//! is kept, with the *step* that wrote it. Each step ends with a flush, so that a log that ends in
//! a step gives the right versions.
//!
//! Invariants: the same image each time. [`Base::make`] checks the content of the image.
//!
//! It does not damage anything.

use super::medium::{Medium, OldSector, SECTOR};
use larder_core::{Lookup, Place};
use larder_device::{
    IoBuf, WriteFlags, ZeroFlags,
    rng::{Rng, mix64},
    sim::{Schedule, SimOptions, SimRuntime},
};
use larder_engine::{
    Cache, Compression, CreateOptions, Tuning, WriteMode, create, designs, places::from_format, recover::recover, walk,
};
use larder_format::{
    DesignId, Superblock,
    layout::{SUPERBLOCK_OFFSETS, StoreKind},
    metadata_slot::{METADATA_SLOT_BYTES, MetadataSlot},
    superblock::SUPERBLOCK_BYTES,
};
use std::{collections::BTreeSet, sync::Arc};

pub const CHUNK: usize = 8 << 10;
pub const VOLUME_BYTES: u64 = 1 << 20;
const CHUNKS: u64 = VOLUME_BYTES / CHUNK as u64;
/// Steps of a simulation after which it counts as stuck; a run over an image takes some thousands.
pub const STEPS_MAX: u64 = 300_000;

/// A piece of metadata on the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Superblock,
    CheckpointHeader,
    CheckpointBlock,
    /// With its number and the newest frame that it calls durable.
    Frame {
        seq: u64,
        durable: u64,
    },
    SegmentHeader,
    /// The metadata slot of a run of slots in a bucket.
    MetadataSlot,
    /// With the offset of its segment's header on flash.
    Table {
        header: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Structure {
    pub kind: Kind,
    pub offset: usize,
    pub bytes: usize,
}

/// A mapped record, and the place of its stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub lba: u64,
    pub place: Place,
    pub offset: usize,
}

/// A sound image and the facts about it.
pub struct Base {
    pub name: &'static str,
    pub flash: Arc<Vec<u8>>,
    pub origin: Arc<Vec<u8>>,
    pub superblock: Superblock,
    pub structures: Vec<Structure>,
    pub records: Vec<Record>,
    /// Dirty chunks, zeroes and trimmed ones included.
    pub dirty: BTreeSet<u64>,
    /// The end of the log.
    pub log_end: walk::LogEnd,
    /// Old versions of the flash's sectors.
    pub old: Vec<OldSector>,
    /// Each version of each sector of the volume: the step that wrote it, and the bytes. The last
    /// one is the newest.
    pub versions: Vec<Vec<(usize, [u8; SECTOR])>>,
    /// The number of the next frame at the beginning of each step.
    pub step_frames: Vec<u64>,
}

struct Life {
    runtime: Arc<SimRuntime>,
    flash: Arc<Medium>,
    cache: Cache,
    versions: Vec<Vec<(usize, [u8; SECTOR])>>,
    step_frames: Vec<u64>,
    number: u64,
}

pub fn tuning() -> Tuning {
    Tuning {
        dirty_low_percent: 80,
        dirty_high_percent: 85,
        dirty_max_percent: 90,
        destage_rate_bytes_per_s: 0,
        ..Tuning::default()
    }
}

pub fn runtime(seed: u64, schedule: Schedule) -> Arc<SimRuntime> {
    SimRuntime::with_options(seed, SimOptions { schedule, steps_max: STEPS_MAX, ..SimOptions::default() })
}

fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(mix64(number)).fill(&mut bytes);
    bytes
}

/// Returns bytes that compress.
fn text(number: u64, len: usize) -> Vec<u8> {
    let word = mix64(number).to_le_bytes();
    (0..len).map(|i| if i % 64 < 8 { word[i % 8] ^ (i / 64) as u8 } else { b'a' + (i % 7) as u8 }).collect()
}

impl Life {
    fn step(&mut self, act: impl FnOnce(&mut Life)) {
        let superblock = self.runtime.block_on(larder_engine::superblock::read(&*self.flash)).expect("a superblock").0;
        let start = (superblock.log_start, superblock.entry_seq_next);
        let end = self.runtime.block_on(walk::log(&*self.flash, &superblock, start, &mut |_, _, _| {}));
        self.step_frames.push(end.expect("a log").next_frame_seq);
        act(self);
        self.runtime.block_on(self.cache.wait_for_insertions());
        self.runtime.block_on(self.cache.flush()).expect("flushed");
    }

    fn note(&mut self, offset: u64, data: &[u8]) {
        let step = self.step_frames.len() - 1;
        for (i, sector) in data.chunks_exact(SECTOR).enumerate() {
            let bytes = sector.try_into().expect("a sector");
            self.versions[offset as usize / SECTOR + i].push((step, bytes));
        }
    }

    fn write(&mut self, lba: u64, from_sector: usize, data: &[u8]) {
        let offset = lba * CHUNK as u64 + (from_sector * SECTOR) as u64;
        let buf = IoBuf::copy_of(data).freeze();
        self.runtime.block_on(self.cache.write(offset, buf, WriteFlags::default())).expect("written");
        self.note(offset, data);
    }

    fn fresh(&mut self, lba: u64) {
        self.number += 1;
        let data = if self.number.is_multiple_of(3) { text(self.number, CHUNK) } else { noise(self.number, CHUNK) };
        self.write(lba, 0, &data);
    }

    fn copy(&mut self, from: u64, to: u64) {
        let data = self.read(from);
        self.write(to, 0, &data);
    }

    fn read(&mut self, lba: u64) -> Vec<u8> {
        self.runtime.block_on(self.cache.read(lba * CHUNK as u64, IoBuf::new(CHUNK))).expect("read").to_vec()
    }

    fn trim(&mut self, lba: u64, count: u64) {
        let (offset, len) = (lba * CHUNK as u64, count as usize * CHUNK);
        self.runtime.block_on(self.cache.zero(offset, len as u64, ZeroFlags::default())).expect("trimmed");
        self.note(offset, &vec![0; len]);
    }

    fn destage(&mut self) {
        assert!(self.runtime.block_on(self.cache.destage_all()), "destaged");
    }

    /// Puts a bit of everything in chunks `at..at + 32`.
    fn variety(&mut self, at: u64) {
        self.step(|life| (at..at + 8).for_each(|lba| life.fresh(lba)));
        self.step(|life| {
            life.copy(at, at + 8);
            life.copy(at + 3, at + 9);
            life.trim(at + 10, 2);
            life.write(at + 12, 0, &vec![0; CHUNK]);
        });
        self.step(|life| {
            // Fragments, and one that is completed.
            for (lba, first, count) in [(13, 3, 2), (14, 0, 5), (14, 9, 1), (15, 15, 1), (16, 4, 4)] {
                life.number += 1;
                let data = noise(life.number, count * SECTOR);
                life.write(at + lba, first, &data);
            }
            life.read(at + 16);
        });
        // Clean copies, not in a row, so that they are no stream.
        self.step(|life| [17, 21, 18, 23, 20, 25].into_iter().for_each(|lba| drop(life.read(at + lba))));
        self.step(|life| {
            life.copy(at + 17, at + 26);
            life.fresh(at + 18);
            life.fresh(at + 1);
            life.write(at + 9, 2, &[0x5a; SECTOR]);
        });
    }
}

impl Base {
    /// Makes all images.
    pub fn all() -> Vec<Base> {
        let lz4 = CreateOptions {
            design: DesignId::Nitro,
            chunk_bytes: CHUNK as u32,
            slot_bytes: 512 << 10,
            flash_uuid: [7; 16],
            hash_key: [9; 32],
            origin_uri: "sim:origin".into(),
            name: "volume".into(),
            ..CreateOptions::default()
        };
        let zstd = CreateOptions { compression: Compression::Zstd, fp_index_percent: 50, ..lz4.clone() };
        let through = CreateOptions { mode: WriteMode::Through, ..lz4.clone() };
        let of = |name| {
            let mut options = lz4.clone();
            designs::named(name).expect("a design").fit(&mut options);
            options
        };
        vec![
            Base::make("nitro in write-back, crashed", &lz4, true, false),
            Base::make("nitro in write-back, closed", &zstd, true, true),
            Base::make("nitro in write-back, no checkpoint", &zstd, false, false),
            Base::make("nitro in write-through, crashed", &through, true, false),
            Base::make("larder in write-back, crashed", &of("larder"), true, false),
            Base::make("larder in write-back, closed", &of("larder"), true, true),
            Base::make("cd-arc in write-back, closed", &of("cd-arc"), true, true),
            Base::make("d-arc in write-back, crashed", &of("d-arc"), true, false),
            Base::make("lru in write-back, crashed", &of("lru"), true, false),
            Base::make("austere in write-back, crashed", &of("austere"), true, false),
        ]
    }

    fn make(name: &'static str, options: &CreateOptions, has_checkpoint: bool, is_closed: bool) -> Base {
        let runtime = runtime(1, Schedule::Timed);
        // WEUs are few, and large. Slots are few enough that all of them are used.
        let is_of_weus = designs::find(options.design).expect("a design").kind() == StoreKind::Weus;
        let flash_bytes: u64 = if is_of_weus { 4 << 20 } else { 7 << 18 };
        let flash = Medium::new("flash", Arc::new(vec![0; flash_bytes as usize]), flash_bytes, true);
        let content = Arc::new(noise(1 << 40, VOLUME_BYTES as usize));
        let origin = Medium::new("origin", content.clone(), VOLUME_BYTES, false);
        let cache = runtime.block_on(async {
            create(&*flash, VOLUME_BYTES, options).await.expect("created");
            Cache::open(flash.clone(), origin.clone(), runtime.clone(), tuning()).await.expect("opened")
        });
        let versions = content.chunks_exact(SECTOR).map(|s| vec![(0, s.try_into().expect("a sector"))]).collect();
        let mut life =
            Life { runtime: runtime.clone(), flash: flash.clone(), cache, versions, step_frames: vec![0], number: 0 };
        if has_checkpoint {
            // Slots are used again, so that old segments, frames and blocks lie about.
            for round in 0..9 {
                life.step(|life| (0..64).for_each(|i| life.fresh((round * 32 + i) % CHUNKS)));
                life.step(Life::destage);
                if round % 3 == 2 {
                    runtime.block_on(life.cache.checkpoint()).expect("a checkpoint");
                }
            }
        }
        life.variety(0);
        if has_checkpoint {
            runtime.block_on(life.cache.checkpoint()).expect("a checkpoint");
        }
        life.variety(40);
        if has_checkpoint {
            life.step(|life| {
                life.destage();
                life.fresh(42);
                life.copy(42, 70);
            });
        }
        life.variety(80);
        life.step(|life| {
            life.fresh(3);
            life.fresh(83);
            life.trim(72, 3);
        });
        let Life { cache, versions, step_frames, .. } = life;
        if is_closed {
            runtime.block_on(cache.close()).expect("closed");
        }
        let old = flash.take_old();
        let (flash, origin) = (Arc::new(flash.bytes()), Arc::new(origin.bytes()));
        drop(cache);
        runtime.kill();
        let base = Base::look_at(name, flash, origin, old, versions, step_frames);
        base.check(options, has_checkpoint, is_closed);
        base
    }

    fn look_at(
        name: &'static str,
        flash: Arc<Vec<u8>>,
        origin: Arc<Vec<u8>>,
        old: Vec<OldSector>,
        versions: Vec<Vec<(usize, [u8; SECTOR])>>,
        step_frames: Vec<u64>,
    ) -> Base {
        let device = Medium::new("flash", flash.clone(), flash.len() as u64, false);
        let runtime = runtime(1, Schedule::Timed);
        let recovered = runtime.block_on(recover(&*device, None, &tuning())).expect("recovered");
        let superblock = recovered.superblock;
        let layout = superblock.layout;
        let mut structures: Vec<Structure> = SUPERBLOCK_OFFSETS
            .map(|offset| Structure { kind: Kind::Superblock, offset: offset as usize, bytes: SUPERBLOCK_BYTES })
            .to_vec();
        let mut start = (superblock.log_start, superblock.entry_seq_next);
        if let Some(pointer) = &superblock.checkpoint {
            let offset = layout.checkpoint_offset[usize::from(pointer.area)] as usize;
            structures.push(Structure { kind: Kind::CheckpointHeader, offset, bytes: 4096 });
            let header =
                runtime.block_on(walk::checkpoint(&*device, &superblock, pointer, &mut |_, offset, bytes, _| {
                    structures.push(Structure { kind: Kind::CheckpointBlock, offset: offset as usize, bytes });
                }));
            let header = header.expect("a checkpoint");
            start = (header.log_start, header.entry_seq_next);
        }
        let log_end = runtime
            .block_on(walk::log(&*device, &superblock, start, &mut |at, header, _| {
                let kind = Kind::Frame { seq: header.start.frame_seq, durable: header.start.durable_frame_seq };
                let offset = (layout.log_offset + at) as usize;
                structures.push(Structure { kind, offset, bytes: header.frame_bytes as usize });
            }))
            .expect("a log");
        let design = recovered.state.design();
        for (slot, generation, ..) in design.export_slots() {
            let from = layout.slot_offset(slot.0).expect("a slot") as usize;
            let weu = &flash[from..from + layout.slot_bytes as usize];
            for segment in walk::segments(weu, superblock.flash_tag(), slot.0, generation).0 {
                let header = from + segment.header.offset as usize;
                let offset = header + segment.header.table_offset as usize;
                structures.push(Structure { kind: Kind::SegmentHeader, offset: header, bytes: 64 });
                let bytes = segment.header.table_bytes();
                structures.push(Structure { kind: Kind::Table { header }, offset, bytes });
            }
        }
        let mappings = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
        let (mut records, mut dirty) = (Vec::new(), BTreeSet::new());
        for mapping in mappings {
            if mapping.dirty {
                dirty.insert(mapping.lba.0);
            }
            if let Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } = mapping.lookup {
                let offset = recovered.geometry.flash_offset(place.slot, place.offset) as usize;
                records.push(Record { lba: mapping.lba.0, place, offset });
            }
        }
        // For clean chunks a design over buckets knows the places of possible records; the metadata
        // slot has the rest.
        for (slot, _) in design.stored_runs() {
            let offset = layout.metadata_slot_offset(slot.0).expect("a metadata slot") as usize;
            let bytes = &flash[offset..offset + METADATA_SLOT_BYTES];
            let Ok(found) = MetadataSlot::decode(bytes, superblock.flash_tag(), slot.0) else { continue };
            structures.push(Structure { kind: Kind::MetadataSlot, offset, bytes: METADATA_SLOT_BYTES });
            let place = from_format(&found.place());
            let lba = found.lbas.as_slice().first().copied().unwrap_or(u64::MAX);
            let offset = layout.slot_offset(slot.0).expect("a slot") as usize;
            if records.iter().all(|record: &Record| record.place != place) {
                records.push(Record { lba, place, offset });
            }
        }
        dirty.extend(design.export_runs().into_iter().flat_map(|run| run.first.0..run.first.0 + run.count));
        records.sort_by_key(|record| record.lba);
        runtime.kill();
        Base { name, flash, origin, superblock, structures, records, dirty, log_end, old, versions, step_frames }
    }

    /// Checks the intended content of the image.
    fn check(&self, options: &CreateOptions, has_checkpoint: bool, is_closed: bool) {
        let count = |wanted: fn(&Kind) -> bool| self.structures.iter().filter(|s| wanted(&s.kind)).count();
        let frames = count(|kind| matches!(kind, Kind::Frame { .. }));
        assert_eq!(self.superblock.checkpoint.is_some(), has_checkpoint || is_closed, "{}", self.name);
        assert_eq!(self.superblock.clean_shutdown, is_closed, "{}", self.name);
        // An orderly end leaves one, without entries.
        assert_eq!(frames == 1, is_closed, "{}: {frames} frames", self.name);
        let blocks = count(|kind| matches!(kind, Kind::CheckpointBlock));
        assert_eq!(blocks >= 3, has_checkpoint || is_closed, "{}: {blocks} blocks", self.name);
        let of_store = [count(|kind| matches!(kind, Kind::Table { .. })), count(|kind| *kind == Kind::MetadataSlot)];
        let is_there = of_store.map(|structures| structures >= 3);
        let store = self.superblock.layout.store();
        assert_eq!(is_there, [store == StoreKind::Weus, store == StoreKind::Buckets], "{}: {of_store:?}", self.name);
        assert_eq!(self.dirty.is_empty(), options.mode != WriteMode::Back, "{}", self.name);
        assert!(self.records.len() > 40, "{}: {} records", self.name, self.records.len());
        assert!(
            self.old.len() > if has_checkpoint { 1000 } else { 1 },
            "{}: {} old sectors",
            self.name,
            self.old.len()
        );
        let used_again = self.records.iter().any(|record| record.place.generation > 0);
        assert_eq!(used_again, has_checkpoint, "{}: slots are used again", self.name);
    }

    /// Returns the range of slots on the flash.
    pub fn slots(&self) -> std::ops::Range<usize> {
        let layout = &self.superblock.layout;
        let from = layout.slots_offset as usize;
        from..from + layout.slot_count as usize * layout.slot_bytes as usize
    }

    /// Returns the end of superblocks, checkpoints and log. The bytes between it and the slots
    /// speak of single records.
    pub fn metadata_end(&self) -> usize {
        match self.superblock.layout.region_offset {
            0 => self.slots().start,
            region => region as usize,
        }
    }

    /// Returns the step to which frame `seq` belongs.
    pub fn step_of(&self, seq: u64) -> usize {
        self.step_frames.iter().rposition(|&first| first <= seq).unwrap_or(0)
    }
}
