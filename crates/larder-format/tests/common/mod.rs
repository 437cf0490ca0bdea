//! Shared parts of the format's tests: a sample of each structure, and a seeded source of random
//! ones.
//!
//! The samples are the values of the fixtures of version 1.

use larder_format::*;

pub const UUID: [u8; 16] =
    [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf];
pub const TAG: u64 = 0xa7a6_a5a4_a3a2_a1a0;
pub const FINGERPRINT: [u8; 16] =
    [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f];
pub const PLACE: FlashPlace =
    FlashPlace { slot: 5, generation: 2, offset: 8256, stored_len: 700, crc: 0xdead_beef, encoding: Encoding::Lz4 };
pub const FRAME_START: FrameStart = FrameStart {
    flash_tag: TAG,
    frame_seq: 41,
    first_entry_seq: 1001,
    durable_frame_seq: 40,
    previous_crc: 0x1234_5678,
};

/// Returns the bytes of a fixture of version 1.
pub fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/v1/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn sectors() -> Sectors {
    let mut sectors = [0; 32];
    sectors[..2].copy_from_slice(&[0x0f, 0x80]);
    sectors
}

pub fn superblock() -> Superblock {
    let area = 0xf0000;
    let mut hash_key = [0; 32];
    hash_key.iter_mut().zip(0..).for_each(|(byte, i)| *byte = i);
    Superblock {
        sequence: 7,
        flash_uuid: UUID,
        // With the bit of an origin's state. Its fields are zero.
        features_compat: 4,
        log_positions: false,
        kept_trims: false,
        origin_state: Some(OriginState { sequence: 0, size_bytes: 0, epoch: 0, changes: 0 }),
        durable_frame: None,
        wear: None,
        features_read_only: 0,
        kept: Vec::new(),
        detached: false,
        mode: WriteMode::Back,
        design: DesignId::Larder,
        compression: Compression::Lz4,
        dedup: true,
        clean_shutdown: false,
        fp_index_percent: 40,
        ram_budget_bytes: 64 << 20,
        hash_key,
        layout: Layout {
            flash_bytes: 64 << 20,
            chunk_bytes: 8192,
            slot_bytes: 2 << 20,
            sector_bytes: 4096,
            superblock_offsets: [0, 65536],
            checkpoint_offset: [0x20000, 0x20000 + area],
            checkpoint_area_bytes: area,
            log_offset: 0x20000 + 2 * area,
            log_bytes: (4 << 20) - 0x20000 - 2 * area,
            region_offset: 0,
            slots_offset: 4 << 20,
            slot_count: 30,
            bucket_slots: 0,
            mappings_max: 8192,
            fragments_max: 2048,
            zero_ranges_max: 512,
            fp_entries_max: 4096,
            design_pages_max: 0,
            short_checkpoints: false,
        },
        origin: Origin {
            size_bytes: 1 << 30,
            identity: 0x0123_4567_89ab_cdef,
            uri: OriginUri::new("file:///srv/disk.img").expect("short"),
        },
        volume_name: VolumeName::new("scratch").expect("short"),
        state_dir: Default::default(),
        checkpoint: Some(CheckpointPointer { area: 1, checkpoint_id: 3, bytes: 0x9000 }),
        log_start: LogStart { offset_in_log: 0x2000, frame_seq: 41 },
        entry_seq_next: 1001,
    }
}

/// Returns the superblock of a bucket store: 54 buckets of 128 subchunks.
pub fn superblock_with_buckets() -> Superblock {
    let good = superblock();
    let layout = Layout {
        chunk_bytes: 32 << 10,
        slot_bytes: 8 << 10,
        region_offset: 4 << 20,
        slots_offset: (4 << 20) + 54 * 128 * 512,
        slot_count: 54 * 128,
        bucket_slots: 128,
        fp_entries_max: 0,
        design_pages_max: 64,
        short_checkpoints: false,
        ..good.layout
    };
    Superblock { layout, ..good }
}

pub fn payload(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed) as u8).collect()
}

pub fn records() -> Vec<RecordEntry> {
    let record = |lba, offset: u32, encoding: Encoding, payload: Vec<u8>, content| RecordEntry {
        volume: 0,
        encoding,
        stored_len: payload.len() as u32,
        lba,
        offset,
        crc: record_crc(RecordIdentity { slot: 5, generation: 2, offset }, encoding.code(), &payload),
        content,
    };
    vec![
        record(77, 8192 + 64, Encoding::Lz4, payload(700, 1), RecordContent::Chunk(FINGERPRINT)),
        record(78, 8192 + 764, Encoding::Zstd, payload(300, 2), RecordContent::Fragment(sectors())),
    ]
}

pub fn segment_header() -> SegmentHeader {
    SegmentHeader {
        flash_tag: TAG,
        slot: 5,
        generation: 2,
        offset: 8192,
        segment_seq: 9,
        durable_frame_seq: None,
        segment_bytes: 1536,
        table_offset: 1064,
        record_count: 2,
        class: WeuClass::Dirty,
        table_crc: segment::encode_table(&records(), &mut [0; 128]).expect("it fits"),
    }
}

/// Returns the same header with a durable frame of the log.
pub fn naming_header() -> SegmentHeader {
    SegmentHeader { durable_frame_seq: Some(40), ..segment_header() }
}

/// Returns a metadata slot that names a frame.
pub fn naming_slot() -> MetadataSlot {
    let [(_, slot), _] = metadata_slots();
    MetadataSlot { durable_frame_seq: 40, ..slot }
}

/// Returns the superblock of a flash whose segments name frames.
///
/// It has the origin's state of an orderly end.
pub fn noting_superblock() -> Superblock {
    let origin_state =
        Some(OriginState { sequence: 7, size_bytes: 1 << 30, epoch: 0x1122_3344_5566_7788, changes: 99 });
    Superblock { log_positions: true, origin_state, clean_shutdown: true, ..superblock() }
}

/// Returns a superblock with a wear budget.
pub fn worn_superblock() -> Superblock {
    let mut bins = [0; WEAR_RECORD_BINS];
    (bins[0], bins[1], bins[288]) = (7, 9, 11);
    let wear = WearRecord { day_bytes: 50_000_000_000, at_seconds: 1_800_000_000, lent_bytes: 1_000_000, bins };
    Superblock { wear: Some(Box::new(wear)), ..superblock() }
}

/// Returns a superblock that names a durable frame.
pub fn naming_superblock() -> Superblock {
    Superblock { durable_frame: Some(DurableFrame { sequence: 7, frame_seq: 44 }), ..superblock() }
}

/// Returns a whole segment.
pub fn segment() -> Vec<u8> {
    let mut bytes = segment::encode_header(&segment_header()).to_vec();
    bytes.extend(payload(700, 1));
    bytes.extend(payload(300, 2));
    bytes.resize(1536, 0);
    segment::encode_table(&records(), &mut bytes[1064..]).expect("it fits");
    bytes
}

pub fn log_entries() -> Vec<LogEntry> {
    vec![
        LogEntry::Map { lba: 77, place: PLACE, dirty: true, duplicate: true, fingerprint: FINGERPRINT },
        LogEntry::MapZero { lba: 80, dirty: true },
        LogEntry::Fragment { lba: 78, place: PLACE, dirty: true, sectors: sectors() },
        LogEntry::Trim { lba: 100, chunk_count: 50, dirty: true, no_hole: true, advisory: false },
        LogEntry::Invalidate { lba: 200, chunk_count: 3 },
        LogEntry::Clean { lba: 77, chunk_count: 2, map_seq: 1000 },
        LogEntry::SlotFreed { slot: 4, generation: 1 },
        LogEntry::Mode { mode: WriteMode::Through },
    ]
}

/// Returns a trimmed run in a checkpoint's form.
pub fn zero_range(no_hole: bool, advisory: bool) -> ZeroRange {
    ZeroRange { lba: 100, chunk_count: 50, dirty: true, no_hole, advisory }
}

/// Returns the entry of a trim that is kept apart from zeroes.
pub fn advisory_trim() -> LogEntry {
    LogEntry::Trim { lba: 100, chunk_count: 50, dirty: true, no_hole: false, advisory: true }
}

/// Returns one block of each kind, in order, each with its fixture's name.
pub fn blocks() -> Vec<(&'static str, CheckpointBlock)> {
    let mapping = |lba, place, dirty, duplicate| MappingEntry { lba, place, dirty, duplicate };
    vec![
        (
            "block-slots-good",
            CheckpointBlock::Slots(vec![
                SlotEntry { slot: 4, generation: 1, state: SlotState::Free, class: WeuClass::Clean },
                SlotEntry { slot: 5, generation: 2, state: SlotState::Sealed, class: WeuClass::Dirty },
            ]),
        ),
        (
            "block-mappings-good",
            CheckpointBlock::Mappings(vec![
                mapping(77, Some(PLACE), true, true),
                mapping(80, None, true, false),
                mapping(81, Some(PLACE), false, false),
            ]),
        ),
        (
            "block-fragments-good",
            CheckpointBlock::Fragments(vec![FragmentEntry { lba: 78, place: PLACE, dirty: true, sectors: sectors() }]),
        ),
        ("block-zero-ranges-good", CheckpointBlock::ZeroRanges(vec![zero_range(true, false)])),
        (
            "block-fingerprints-good",
            CheckpointBlock::Fingerprints(vec![FingerprintEntry { fingerprint: FINGERPRINT, place: PLACE }]),
        ),
        (
            "block-design-pages-good",
            CheckpointBlock::DesignPages(vec![
                DesignPage::new(6, payload(4084, 3)).expect("it fits"),
                DesignPage::new(7, payload(100, 4)).expect("it fits"),
            ]),
        ),
    ]
}

pub fn block_identity(block_index: u32) -> BlockIdentity {
    BlockIdentity { flash_tag: TAG, checkpoint_id: 3, block_index }
}

pub fn checkpoint_header() -> CheckpointHeader {
    CheckpointHeader {
        flash_tag: TAG,
        checkpoint_id: 3,
        block_count: 5,
        total_bytes: 6 * 4096,
        counts: CheckpointCounts {
            slots: 2,
            mappings: 3,
            fragments: 1,
            zero_ranges: 1,
            fingerprints: 1,
            design_pages: 0,
        },
        log_start: LogStart { offset_in_log: 0x2000, frame_seq: 41 },
        entry_seq_next: 1001,
    }
}

/// Returns the header of a checkpoint of all of [`blocks`].
///
/// [`checkpoint_header`] is that of one without design pages.
pub fn checkpoint_header_with_pages() -> CheckpointHeader {
    let header = checkpoint_header();
    let counts = CheckpointCounts { design_pages: 2, ..header.counts };
    CheckpointHeader { block_count: 6, total_bytes: 9 * 4096, counts, ..header }
}

/// Returns a metadata slot with room for more addresses, and a full one.
pub fn metadata_slots() -> [(&'static str, MetadataSlot); 2] {
    let slot = |slot, lbas: &[u64], oldest| MetadataSlot {
        flash_tag: TAG,
        slot,
        generation: 2,
        fingerprint: FINGERPRINT,
        crc: 0xdead_beef,
        stored_len: 19_000,
        encoding: Encoding::Lz4,
        lbas: LbaList::new(lbas, oldest).expect("valid"),
        durable_frame_seq: 0,
    };
    let full: Vec<u64> = (0..60).map(|i| 1000 + i * i).collect();
    [
        ("metadata-slot-good", slot(640, &[77, 80, layout::CHUNKS_MAX - 1], 0)),
        ("metadata-slot-full", slot(641, &full, 17)),
    ]
}

/// A seeded source of random values (SplitMix64). `LARDER_SEED` chooses another seed.
pub struct Random {
    pub seed: u64,
    state: u64,
}

impl Random {
    pub fn new(default_seed: u64) -> Self {
        let seed = std::env::var("LARDER_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(default_seed);
        // The harness shows this when the test fails.
        println!("seed: LARDER_SEED={seed}");
        Random { seed, state: seed }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Returns a small number, a large one or any, so that tests meet the ends of the range.
    pub fn u64(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(4),
            1 => u64::MAX - self.below(4),
            _ => self.next(),
        }
    }

    /// Returns a number up to the limit of a counter.
    pub fn counter(&mut self) -> u64 {
        self.u64() % COUNTER_MAX
    }

    pub fn u32(&mut self) -> u32 {
        (self.u64() >> (32 * self.below(2))) as u32
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.next() as u8)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn place(&mut self) -> FlashPlace {
        let stored_len = 1 + self.below(layout::CHUNK_BYTES_MAX.into()) as u32;
        FlashPlace {
            slot: self.u32(),
            generation: self.u32(),
            offset: self.below(u64::from(layout::WEU_BYTES_MAX - stored_len) + 1) as u32,
            stored_len,
            crc: self.u32(),
            encoding: self.pick(Encoding::ALL),
        }
    }

    pub fn log_entry(&mut self) -> LogEntry {
        let lba = self.next() >> self.below(60);
        let chunk_count = 1 + self.below((u64::MAX - lba).max(1));
        let dirty = self.coin();
        match self.below(8) {
            0 => LogEntry::Map { lba, place: self.place(), dirty, duplicate: self.coin(), fingerprint: self.bytes() },
            1 => LogEntry::MapZero { lba, dirty },
            2 => LogEntry::Fragment { lba, place: self.place(), dirty, sectors: self.bytes() },
            3 => {
                let (no_hole, advisory) = self.pick(&[(false, false), (true, false), (false, true)]);
                LogEntry::Trim { lba, chunk_count, dirty, no_hole, advisory }
            }
            4 => LogEntry::Invalidate { lba, chunk_count },
            5 => LogEntry::Clean { lba, chunk_count, map_seq: self.u64() },
            6 => LogEntry::SlotFreed { slot: self.u32(), generation: self.u32() },
            _ => LogEntry::Mode { mode: self.pick(WriteMode::ALL) },
        }
    }
}
