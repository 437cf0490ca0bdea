//! Encoding and decoding undo each other, for random values and at the limits.

use crate::common::*;
use larder_format::checkpoint::BLOCK_BYTES_MAX;
use larder_format::log::{ENTRIES_PER_FRAME_MAX, FRAME_BYTES_MAX, entries_that_fit, frame_bytes_for};
use larder_format::*;

#[test]
fn superblocks() {
    let mut random = Random::new(11);
    for _ in 0..2000 {
        let len = random.below(1025) as usize;
        let mut superblock = Superblock {
            sequence: random.counter(),
            flash_uuid: random.bytes(),
            features_compat: random.u64() & !features::COMPATIBLE_KNOWN | 1 << 63,
            log_positions: random.coin(),
            kept_trims: random.coin(),
            origin_state: random.coin().then(|| OriginState {
                sequence: random.counter(),
                size_bytes: random.u64(),
                epoch: random.u64(),
                changes: random.u64(),
            }),
            durable_frame: random
                .coin()
                .then(|| DurableFrame { sequence: random.counter(), frame_seq: random.counter() }),
            wear: random.coin().then(|| {
                let bins = std::array::from_fn(|_| random.u32());
                let (day_bytes, at_seconds, lent_bytes) = (random.u64(), random.u64(), random.u64());
                Box::new(WearRecord { day_bytes, at_seconds, lent_bytes, bins })
            }),
            features_read_only: random.u64() & features::READABLE,
            kept: Vec::new(),
            mode: random.pick(WriteMode::ALL),
            design: random.pick(DesignId::ALL),
            compression: random.pick(Compression::ALL),
            dedup: random.coin(),
            clean_shutdown: random.coin(),
            fp_index_percent: random.below(101) as u8,
            ram_budget_bytes: random.u64(),
            hash_key: random.bytes(),
            entry_seq_next: random.counter(),
            detached: random.coin(),
            state_dir: DirectoryPath::new("/d".repeat(len % 200)).unwrap(),
            volume_name: VolumeName::new("é".repeat(len % 33)).unwrap(),
            ..if random.coin() { superblock() } else { superblock_with_buckets() }
        };
        let before = if superblock.wear.is_some() { WEAR_RECORD_BYTES } else { 0 };
        let later = (0..random.below((2144 - before) as u64)).map(|at| at as u8).chain([1]);
        superblock.kept = std::iter::repeat_n(0, before).chain(later).collect();
        superblock.origin.size_bytes = (random.u64() % (layout::CHUNKS_MAX * 8192)).max(1);
        superblock.origin.identity = random.u64();
        superblock.origin.uri = OriginUri::new("u".repeat(len)).unwrap();
        superblock.log_start.frame_seq = random.counter();
        superblock.checkpoint = random.coin().then(|| CheckpointPointer {
            area: random.below(2) as u8,
            checkpoint_id: random.counter(),
            bytes: random.below(superblock.layout.checkpoint_area_bytes + 1),
        });
        assert_eq!(superblock.check(), Ok(()), "seed {}", random.seed);
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock), "seed {}", random.seed);
    }
}

#[test]
fn an_origin_state_is_that_of_its_superblock_alone() {
    let mut noted = noting_superblock();
    assert_eq!(noted.origin_state_now(), noted.origin_state);
    // A program that knows the field keeps it true; a program that does not know it only counts on.
    noted.advance();
    assert_eq!((noted.sequence, noted.origin_state_now().map(|state| state.changes)), (8, Some(99)));
    noted.sequence += 1;
    assert_eq!(noted.origin_state_now(), None);
    noted.advance();
    assert_eq!((noted.sequence, noted.origin_state), (10, None));
}

#[test]
fn a_durable_frame_is_that_of_its_superblock_alone() {
    let mut naming = naming_superblock();
    assert_eq!(naming.durable_frame_now(), 44);
    naming.advance();
    assert_eq!((naming.sequence, naming.durable_frame_now()), (8, 44));
    // A program that does not know the field only counts on: it may have written over the frame.
    naming.sequence += 1;
    assert_eq!(naming.durable_frame_now(), 0);
    naming.advance();
    assert_eq!(naming.durable_frame_now(), 0, "what was void stays void");
    naming.note_durable_frame(45);
    assert_eq!(naming.durable_frame_now(), 45);
    let mut silent = superblock();
    silent.advance();
    assert_eq!((silent.durable_frame, silent.durable_frame_now()), (None, 0));
    naming.note_durable_frame(COUNTER_MAX);
    assert!(naming.check().is_err(), "no frame has that number");
}

#[test]
fn a_frame_may_have_no_entries() {
    let bytes = encode_frame(&FRAME_START, &[], 512).expect("it fits");
    assert_eq!(bytes.len(), 512);
    let (header, entries) = decode_frame(&bytes, TAG).expect("whole");
    assert_eq!((header.entry_count, entries, header.entry_seq_next()), (0, Vec::new(), FRAME_START.first_entry_seq));
}

#[test]
fn a_log_start_at_the_end_of_the_log_is_kept() {
    let mut superblock = superblock();
    superblock.log_start.offset_in_log = superblock.layout.log_bytes;
    assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    assert_eq!(VolumeName::new("n".repeat(65)), Err(FormatError::BadText { bytes_max: 64 }));
    assert_eq!(OriginUri::new("a\0b"), Err(FormatError::BadText { bytes_max: 1024 }));
    assert_eq!(OriginUri::new("").unwrap().as_str(), "");
}

#[test]
fn frames() {
    let mut random = Random::new(12);
    for _ in 0..1000 {
        let entries: Vec<_> = (0..random.below(40)).map(|_| random.log_entry()).collect();
        let start = FrameStart {
            flash_tag: random.u64(),
            frame_seq: random.counter(),
            first_entry_seq: random.counter(),
            durable_frame_seq: random.u64(),
            previous_crc: random.u32(),
        };
        let sector_bytes = random.pick(&[512, 1024, 2048, 4096]);
        let mut bytes = encode_frame(&start, &entries, sector_bytes).unwrap();
        assert_eq!(bytes.len(), frame_bytes_for(entries.len(), sector_bytes));
        assert!(bytes.len().is_multiple_of(sector_bytes as usize));
        let mut buffer = vec![0xee; bytes.len() + 10];
        assert_eq!(encode_frame_into(&start, &entries, sector_bytes, &mut buffer), Ok(bytes.len()));
        assert_eq!(buffer[..bytes.len()], bytes);
        assert_eq!(buffer[bytes.len()..], [0xee; 10]);
        // Bytes behind a frame do not matter.
        bytes.extend(random.bytes::<100>());
        let (header, decoded) = decode_frame(&bytes, start.flash_tag).unwrap();
        assert_eq!((header.start, decoded), (start, entries), "seed {}", random.seed);
    }
}

#[test]
fn the_largest_frame_and_one_entry_more() {
    let mut random = Random::new(13);
    let mut entries: Vec<_> = (0..ENTRIES_PER_FRAME_MAX).map(|_| random.log_entry()).collect();
    let bytes = encode_frame(&FRAME_START, &entries, 4096).unwrap();
    assert_eq!(bytes.len() as u64, FRAME_BYTES_MAX);
    assert!(decode_frame(&bytes, TAG).unwrap().1 == entries);
    entries.push(random.log_entry());
    let too_large = Err(FormatError::TooLarge { structure: Structure::LogFrame, max: 16383 });
    assert_eq!(encode_frame(&FRAME_START, &entries, 4096), too_large);
    let no_room = encode_frame_into(&FRAME_START, &entries[..8], 4096, &mut [0; 1024]);
    assert!(matches!(no_room, Err(FormatError::TooLarge { .. })));
}

#[test]
fn entries_that_fit_do_fit() {
    for sector_bytes in [512, 4096] {
        for frame_bytes in (4096..200_000).step_by(sector_bytes as usize) {
            assert!(frame_bytes_for(entries_that_fit(frame_bytes), sector_bytes) as u64 <= frame_bytes);
            assert!(frame_bytes_for(entries_that_fit(frame_bytes) + 1, sector_bytes) as u64 > frame_bytes);
        }
    }
}

#[test]
fn only_the_next_frame_follows() {
    let frame = |start: FrameStart, count: usize| {
        let bytes = encode_frame(&start, &log_entries()[..count], 512).unwrap();
        let header = decode_frame(&bytes, TAG).unwrap().0;
        assert_eq!(header.crc, frame_crc(&bytes));
        header
    };
    let first = frame(FRAME_START, 3);
    assert_eq!(first.entry_seq_next(), 1004);
    let start = FrameStart { frame_seq: 42, first_entry_seq: 1004, previous_crc: first.crc, ..FRAME_START };
    assert!(frame(start, 5).follows(&first));
    for stale in [
        FrameStart { frame_seq: 43, ..start },
        FrameStart { frame_seq: 41, ..start },
        FrameStart { first_entry_seq: 1005, ..start },
        FrameStart { previous_crc: 0, ..start },
    ] {
        assert!(!frame(stale, 5).follows(&first), "{stale:?}");
    }
    assert!(!first.follows(&FrameHeader { start: FrameStart { frame_seq: u64::MAX, ..FRAME_START }, ..first }));
}

#[test]
fn a_frame_whose_sequence_numbers_overflow_is_refused() {
    let start = FrameStart { first_entry_seq: u64::MAX, ..FRAME_START };
    let bytes = encode_frame(&start, &log_entries(), 512).unwrap();
    assert!(matches!(decode_frame(&bytes, TAG), Err(FormatError::Invalid { .. })));
}

#[test]
fn segments() {
    let mut random = Random::new(14);
    for _ in 0..1000 {
        let offset = 512 * random.below(4096) as u32;
        let mut end = offset + segment::SEGMENT_HEADER_BYTES as u32;
        let mut records = Vec::new();
        for _ in 0..random.below(20) {
            let stored_len = 1 + random.below(16_000) as u32;
            let content = match random.coin() {
                true => RecordContent::Chunk(random.bytes()),
                false => RecordContent::Fragment(random.bytes()),
            };
            let (volume, encoding) = (random.next() as u16, random.pick(Encoding::ALL));
            let (lba, crc) = (random.u64(), random.u32());
            records.push(RecordEntry { volume, encoding, stored_len, lba, offset: end, crc, content });
            end += stored_len;
        }
        let mut table = vec![0; records.len() * segment::RECORD_ENTRY_BYTES];
        let table_offset = end - offset;
        let header = SegmentHeader {
            flash_tag: random.u64(),
            slot: random.u32(),
            generation: random.u32(),
            offset,
            segment_seq: random.u64(),
            durable_frame_seq: random.coin().then(|| random.counter()),
            segment_bytes: (table_offset + table.len() as u32).next_multiple_of(512),
            table_offset,
            record_count: records.len() as u32,
            class: random.pick(WeuClass::ALL),
            table_crc: segment::encode_table(&records, &mut table).unwrap(),
        };
        assert_eq!(segment::decode_header(&segment::encode_header(&header)), Ok(header), "seed {}", random.seed);
        assert_eq!(segment::decode_table(&header, &table), Ok(records), "seed {}", random.seed);
    }
    let too_large = Err(FormatError::TooLarge { structure: Structure::RecordTable, max: 1 });
    assert_eq!(segment::encode_table(&records(), &mut [0; 127]), too_large);
}

#[test]
fn records_outside_the_room_for_payloads_are_refused() {
    let good = records()[0];
    let (first, end) = (8192 + 64, 8192 + 1064);
    let decoded = |record: RecordEntry| {
        let mut table = [0; 64];
        let table_crc = segment::encode_table(&[record], &mut table).unwrap();
        segment::decode_table(&SegmentHeader { record_count: 1, table_crc, ..segment_header() }, &table)
    };
    for (offset, stored_len) in [(first, 1000), (end - 1, 1), (first, 1)] {
        let record = RecordEntry { offset, stored_len, ..good };
        assert_eq!(decoded(record), Ok(vec![record]));
    }
    for (offset, stored_len) in [(first, 1001), (first - 1, 2), (end, 1), (first, 0), (u32::MAX, u32::MAX), (0, 9)] {
        let refused = decoded(RecordEntry { offset, stored_len, ..good });
        assert!(matches!(refused, Err(FormatError::Invalid { .. })), "{offset} {stored_len}");
    }
}

#[test]
fn places_that_no_record_can_have_are_refused() {
    let (chunk_max, weu_max) = (layout::CHUNK_BYTES_MAX, layout::WEU_BYTES_MAX);
    let plausible = |offset, stored_len| {
        let place = FlashPlace { offset, stored_len, ..PLACE };
        let map = LogEntry::Map { lba: 1, place, dirty: true, duplicate: false, fingerprint: [0; 16] };
        let frame = encode_frame(&FRAME_START, &[map], 512).unwrap();
        let fingerprint = FingerprintEntry { fingerprint: [0; 16], place };
        let block = CheckpointBlock::Fingerprints(vec![fingerprint]).encode(&block_identity(0)).unwrap();
        let accepted = decode_frame(&frame, TAG).is_ok();
        assert_eq!(accepted, CheckpointBlock::decode(&block, &block_identity(0)).is_ok());
        assert_eq!(accepted, place.is_plausible());
        accepted
    };
    assert!(plausible(0, 1) && plausible(0, chunk_max) && plausible(weu_max - 1, 1));
    assert!(plausible(weu_max - chunk_max, chunk_max));
    assert!(!plausible(0, 0) && !plausible(0, chunk_max + 1) && !plausible(weu_max, 1) && !plausible(weu_max - 1, 2));
}

#[test]
fn metadata_slots() {
    let mut random = Random::new(16);
    for _ in 0..2000 {
        let count = random.below(61) as usize;
        let lbas: Vec<u64> = (0..count).map(|_| random.u64() % layout::CHUNKS_MAX).collect();
        let oldest = random.below(count.max(1) as u64) as usize;
        let place = random.place();
        let slot = MetadataSlot {
            flash_tag: random.u64(),
            slot: place.slot,
            generation: place.generation,
            fingerprint: random.bytes(),
            crc: place.crc,
            stored_len: place.stored_len,
            encoding: place.encoding,
            lbas: LbaList::new(&lbas, oldest).unwrap(),
            durable_frame_seq: random.counter(),
        };
        assert_eq!((slot.lbas.as_slice(), slot.lbas.oldest()), (&lbas[..], oldest), "seed {}", random.seed);
        assert_eq!(slot.place(), FlashPlace { offset: 0, ..place }, "seed {}", random.seed);
        let mut bytes = slot.encode().to_vec();
        // Bytes behind a slot do not matter.
        bytes.extend(random.bytes::<9>());
        assert_eq!(MetadataSlot::decode(&bytes, slot.flash_tag, slot.slot), Ok(slot), "seed {}", random.seed);
    }
}

#[test]
fn lists_of_addresses_that_no_metadata_slot_has_are_refused() {
    let too_large = Err(FormatError::TooLarge { structure: Structure::MetadataSlot, max: 60 });
    assert_eq!(LbaList::new(&[1; 61], 0), too_large);
    // Counts and positions that would be others in a byte.
    assert_eq!(LbaList::new(&[1; 256], 0), too_large);
    for (lbas, oldest) in [(&[layout::CHUNKS_MAX][..], 0), (&[u64::MAX], 0), (&[], 1), (&[1, 2], 2), (&[1, 2], 256)] {
        assert!(matches!(LbaList::new(lbas, oldest), Err(FormatError::Invalid { .. })), "{lbas:?} {oldest}");
    }
    let empty = LbaList::new(&[], 0).unwrap();
    assert_eq!((empty.as_slice(), empty.oldest()), (&[][..], 0));
    let [(_, good), _] = crate::common::metadata_slots();
    for stored_len in [0, layout::CHUNK_BYTES_MAX + 1] {
        let bytes = MetadataSlot { stored_len, ..good.clone() }.encode();
        assert!(matches!(MetadataSlot::decode(&bytes, TAG, 640), Err(FormatError::Invalid { .. })), "{stored_len}");
    }
}

#[test]
fn checkpoints_come_back_whole_and_keep_to_their_bound() {
    let mut random = Random::new(15);
    for round in 0..30 {
        let mut count = |max| if round == 0 { 0 } else { random.below(max) };
        let counts = CheckpointCounts {
            slots: count(6000),
            mappings: count(9000),
            fragments: count(3000),
            zero_ranges: count(4000),
            fingerprints: count(5000),
            design_pages: count(60),
        };
        let (bytes, header, given) = random_checkpoint(&mut random, counts);
        assert_eq!(bytes.len() as u64, checkpoint_bytes_max(&counts));
        assert_eq!((header.total_bytes, header.counts), (checkpoint_bytes_max(&counts), counts));
        assert_eq!(CheckpointHeader::decode(&bytes, TAG), Ok(header));

        let mut at = checkpoint::CHECKPOINT_HEADER_BYTES;
        let mut found = Vec::new();
        for block_index in 0..header.block_count {
            let window = &bytes[at..bytes.len().min(at + BLOCK_BYTES_MAX)];
            let (block, size) = CheckpointBlock::decode(window, &block_identity(block_index)).unwrap();
            found.push(block);
            at += size;
        }
        assert_eq!(at, bytes.len());
        assert!(joined(found) == given, "seed {}", random.seed);
    }
}

/// Returns a checkpoint's bytes and its entries, one block a kind.
fn random_checkpoint(
    random: &mut Random,
    counts: CheckpointCounts,
) -> (Vec<u8>, CheckpointHeader, Vec<CheckpointBlock>) {
    let mut encoder = CheckpointEncoder::new(TAG, 3, LogStart { offset_in_log: 512, frame_seq: 9 }, 77);
    let mut bytes = vec![0; checkpoint::CHECKPOINT_HEADER_BYTES];
    let mut write = |block: Option<Vec<u8>>| bytes.extend(block.unwrap_or_default());
    let (mut slots, mut mappings, mut fragments, mut ranges, mut fingerprints, mut pages) = Default::default();
    fn keep<T: Clone>(list: &mut Vec<T>, entry: T) -> T {
        list.push(entry.clone());
        entry
    }
    for _ in 0..counts.slots {
        let (state, class) = (random.pick(SlotState::ALL), random.pick(WeuClass::ALL));
        let entry = SlotEntry { slot: random.u32(), generation: random.u32(), state, class };
        write(encoder.push_slot(keep(&mut slots, entry)).expect("in order"));
    }
    for _ in 0..counts.mappings {
        let place = random.coin().then(|| random.place());
        let duplicate = place.is_some() && random.coin();
        let entry = MappingEntry { lba: random.u64(), place, dirty: random.coin(), duplicate };
        write(encoder.push_mapping(keep(&mut mappings, entry)).expect("in order"));
    }
    for _ in 0..counts.fragments {
        let (place, dirty) = (random.place(), random.coin());
        let entry = FragmentEntry { lba: random.u64(), place, dirty, sectors: random.bytes() };
        write(encoder.push_fragment(keep(&mut fragments, entry)).expect("in order"));
    }
    for _ in 0..counts.zero_ranges {
        let (no_hole, advisory) = random.pick(&[(false, false), (true, false), (false, true)]);
        let entry = ZeroRange {
            lba: random.next() >> 1,
            chunk_count: 1 + random.below(99),
            dirty: random.coin(),
            no_hole,
            advisory,
        };
        write(encoder.push_zero_range(keep(&mut ranges, entry)).expect("in order"));
    }
    for _ in 0..counts.fingerprints {
        let entry = FingerprintEntry { fingerprint: random.bytes(), place: random.place() };
        write(encoder.push_fingerprint(keep(&mut fingerprints, entry)).expect("in order"));
    }
    for _ in 0..counts.design_pages {
        let len = random.pick(&[0, 1, 1000, checkpoint::DESIGN_PAGE_BYTES_MAX]);
        let page = DesignPage::new(random.u32(), payload(len, random.next() as usize >> 8)).expect("it fits");
        write(encoder.push_design_page(keep(&mut pages, page)).expect("in order"));
    }
    assert_eq!(encoder.counts(), counts);
    let (last, header) = encoder.finish();
    write(last);
    bytes[..checkpoint::CHECKPOINT_HEADER_BYTES].copy_from_slice(&header.encode());
    let given = vec![
        CheckpointBlock::Slots(slots),
        CheckpointBlock::Mappings(mappings),
        CheckpointBlock::Fragments(fragments),
        CheckpointBlock::ZeroRanges(ranges),
        CheckpointBlock::Fingerprints(fingerprints),
        CheckpointBlock::DesignPages(pages),
    ];
    (bytes, header, given)
}

/// Joins blocks to one a kind.
fn joined(blocks: Vec<CheckpointBlock>) -> Vec<CheckpointBlock> {
    let mut joined: Vec<_> = checkpoint::BlockKind::ALL.into_iter().map(CheckpointBlock::new).collect();
    for block in blocks {
        let at = joined.iter().position(|other| other.kind() == block.kind()).expect("each kind is there");
        match (&mut joined[at], block) {
            (CheckpointBlock::Slots(to), CheckpointBlock::Slots(from)) => to.extend(from),
            (CheckpointBlock::Mappings(to), CheckpointBlock::Mappings(from)) => to.extend(from),
            (CheckpointBlock::Fragments(to), CheckpointBlock::Fragments(from)) => to.extend(from),
            (CheckpointBlock::ZeroRanges(to), CheckpointBlock::ZeroRanges(from)) => to.extend(from),
            (CheckpointBlock::Fingerprints(to), CheckpointBlock::Fingerprints(from)) => to.extend(from),
            (CheckpointBlock::DesignPages(to), CheckpointBlock::DesignPages(from)) => to.extend(from),
            _ => unreachable!("the kinds are equal"),
        }
    }
    joined
}

#[test]
fn kinds_out_of_order_are_refused() {
    let mut encoder = CheckpointEncoder::new(TAG, 3, LogStart::default(), 0);
    let range = zero_range(false, false);
    assert_eq!(encoder.push_zero_range(range), Ok(None));
    let slot = SlotEntry { slot: 0, generation: 0, state: SlotState::Free, class: WeuClass::Clean };
    assert!(matches!(encoder.push_slot(slot), Err(FormatError::Invalid { .. })));
    assert_eq!(encoder.counts(), CheckpointCounts { zero_ranges: 1, ..Default::default() });
}

#[test]
fn a_block_with_one_entry_too_many_is_refused() {
    for kind in checkpoint::BlockKind::ALL {
        let max = kind.entries_max();
        assert!(checkpoint::BLOCK_HEADER_BYTES + max * kind.entry_bytes() <= BLOCK_BYTES_MAX);
        assert!(checkpoint::BLOCK_HEADER_BYTES + (max + 1) * kind.entry_bytes() > BLOCK_BYTES_MAX);
    }
    let range = zero_range(false, false);
    let max = checkpoint::BlockKind::ZeroRanges.entries_max();
    let full = CheckpointBlock::ZeroRanges(vec![range; max]).encode(&block_identity(0));
    assert_eq!(full.map(|bytes| bytes.len()), Ok(BLOCK_BYTES_MAX));
    assert!(CheckpointBlock::ZeroRanges(vec![range; max + 1]).encode(&block_identity(0)).is_err());
}

#[test]
fn design_pages_fill_a_block_and_none_is_too_long() {
    let page = |len| DesignPage::new(u32::MAX, payload(len, 5));
    let longest = page(4084).unwrap();
    assert_eq!((longest.number(), longest.bytes()), (u32::MAX, &payload(4084, 5)[..]));
    assert_eq!(page(0).map(|page| page.bytes().len()), Ok(0));
    assert_eq!(page(4085), Err(FormatError::TooLarge { structure: Structure::CheckpointBlock, max: 4084 }));
    // No byte of a full block is padding.
    let full = CheckpointBlock::DesignPages(vec![longest; 16]).encode(&block_identity(0)).unwrap();
    assert_eq!((full.len(), full.last()), (BLOCK_BYTES_MAX, payload(4084, 5).last()));
    assert_eq!(BlockKind::DesignPages.entries_max(), 16);
}
