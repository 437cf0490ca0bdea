//! A dump of a flash with all structures on it prints, entry by entry, the state that an opening
//! finds. A list that is cut short gives its full count.

use super::{values::runs, *};
use crate::verify::tests::flash;
use larder_core::slots::SlotState;
use larder_device::{IoBuf, WriteFlags, driver::block_on, ram::RamDevice};
use larder_engine::{CreateOptions, create, designs};

fn superblock_of(flash: &RamDevice) -> Superblock {
    block_on(larder_engine::superblock::read(flash)).expect("a whole superblock").0
}

/// Returns the entries of all blocks of one kind of the checkpoint, in order.
fn entries_of(flash: &RamDevice, kind: &str) -> Vec<CheckpointEntryDump> {
    let superblock = superblock_of(flash);
    let checkpoint = block_on(checkpoint(flash, &superblock, None, usize::MAX)).expect("one is named");
    let mut all = Vec::new();
    for block in checkpoint.blocks.entries.iter().filter(|block| block.kind == kind) {
        let found = block_on(checkpoint_block(flash, &superblock, None, block.block, usize::MAX)).expect("it is there");
        assert!(found.named_by_superblock && found.blocks.total == 1, "{found:?}");
        let only = found.blocks.entries.into_iter().next().expect("one block");
        assert_eq!((only.block.flash_offset, only.block.block), (block.flash_offset, block.block));
        assert_eq!((only.entries.total, only.entries.entries.len() as u64), (block.count, block.count));
        all.extend(only.entries.entries);
    }
    all
}

/// Returns an entry with all its fields.
fn told(entry: &impl std::fmt::Debug) -> String {
    format!("{entry:?}")
}

#[test]
fn each_block_of_a_checkpoint_is_told_entry_by_entry() {
    let flash = flash(true);
    let found = block_on(crate::verify::recovered(&*flash)).expect("a sound flash");

    let slots = entries_of(&flash, "slots");
    let expected = found.design.export_slots();
    assert_eq!(slots.len(), expected.len());
    for (entry, (slot, generation, state, _)) in slots.iter().zip(expected) {
        let CheckpointEntryDump::Slot(entry) = entry else { panic!("{entry:?}") };
        assert_eq!(entry.slot, slot.0, "least recent first");
        assert_eq!(entry.state == "free", state == SlotState::Free, "{entry:?}");
        if state != SlotState::Free {
            // In write-back all of it was dirty; an opening does not need the class.
            assert_eq!((entry.generation, &*entry.class), (Some(generation), "dirty"));
        }
    }

    let mut mapped: Vec<MappingDump> = Vec::new();
    for entry in entries_of(&flash, "mappings").into_iter().chain(entries_of(&flash, "fragments")) {
        let CheckpointEntryDump::Mapping(entry) = entry else { panic!("{entry:?}") };
        mapped.push(entry);
    }
    mapped.sort_by_key(|mapping| mapping.lba);
    let (all, salvaged) = block_on(mappings(&*flash, None, usize::MAX)).expect("a sound flash");
    assert_eq!((told(&mapped), salvaged), (told(&all.entries), false));
    let count = |kind: &str| mapped.iter().filter(|entry| entry.kind == kind).count();
    assert_eq!((count("zero"), count("fragment"), count("chunk")), (50, 1, 150));

    let (ranges, range) = (
        entries_of(&flash, "zero ranges"),
        ZeroRangeDump { lba: 400, chunk_count: 20, dirty: true, no_hole: false, advisory: false },
    );
    assert_eq!(told(&ranges), told(&[CheckpointEntryDump::ZeroRange(range)]));
    assert!(!entries_of(&flash, "fingerprints").is_empty());
}

#[test]
fn the_fp_index_is_told_least_recent_first_whatever_it_was_recovered_from() {
    for is_closed in [true, false] {
        let flash = flash(is_closed);
        let (known, salvaged) = block_on(fingerprints(&*flash, usize::MAX)).expect("a sound flash");
        assert_eq!((known.total, salvaged), (known.entries.len() as u64, false));
        let found = block_on(crate::verify::recovered(&*flash)).expect("a sound flash");
        let expected = found.design.export_fingerprints();
        assert!(expected.len() > 50, "{}", expected.len());
        let expected: Vec<_> =
            expected.iter().map(|(fingerprint, place)| fingerprint_dump(&fingerprint.0, place)).collect();
        assert_eq!(told(&known.entries), told(&expected));
        // Each names a record that its segment lists alike.
        let (segments, _) = block_on(segments(&*flash, usize::MAX)).expect("a sound flash");
        for known in &known.entries {
            let place = told(&known.place);
            let record = segments.entries.iter().flat_map(|segment| &segment.records).find(|r| told(&r.place) == place);
            assert_eq!(record.expect("a record").fingerprint.as_ref(), Some(&known.fingerprint));
        }
        // The log tells its additions, the checkpoint the earlier entries.
        let superblock = superblock_of(&flash);
        let log = block_on(log(&*flash, &superblock, usize::MAX)).expect("a sound log");
        let from_log = log.log.entries.iter().any(|entry| entry.fingerprint.is_some());
        assert_eq!((from_log, superblock.checkpoint.is_some()), (!is_closed, is_closed));
        if is_closed {
            let known = known.entries.into_iter().map(CheckpointEntryDump::Fingerprint).collect::<Vec<_>>();
            assert_eq!(told(&entries_of(&flash, "fingerprints")), told(&known));
        }
    }
}

#[test]
fn trimmed_runs_are_told_with_their_numbers() {
    for is_closed in [true, false] {
        let flash = flash(is_closed);
        let (found, salvaged) = block_on(trims(&*flash, 10)).expect("a sound flash");
        let [run] = &found.entries[..] else { panic!("{found:?}") };
        assert_eq!((run.lba, run.chunk_count, run.no_hole, found.total, salvaged), (400, 20, false, 1, false));
        let log = block_on(log(&*flash, &superblock_of(&flash), usize::MAX)).expect("a sound log");
        let entry = log.log.entries.iter().find(|entry| entry.kind == "trim");
        assert_eq!(entry.map_or(0, |entry| entry.seq), run.seq, "0: a checkpoint keeps no numbers");
        assert_eq!(entry.map(|entry| entry.no_hole), (!is_closed).then_some(Some(false)));
        assert_eq!(block_on(trims(&*flash, 0)).expect("a sound flash").0.total, 1);
    }
}

#[test]
fn a_limit_cuts_the_entries_of_a_block_and_says_so() {
    let flash = flash(true);
    let superblock = superblock_of(&flash);
    for limit in [0, 1, 7] {
        let found = block_on(checkpoint_block(&*flash, &superblock, None, 0, limit)).expect("the slots");
        assert_eq!((found.blocks.total, found.blocks.entries.len()), (1, limit.min(1)));
        for block in &found.blocks.entries {
            assert_eq!((block.entries.entries.len(), block.entries.total), (limit, block.block.count));
        }
    }
    let (segments, _) = block_on(segments(&*flash, 3)).expect("a sound flash");
    let cut = &segments.entries[0];
    assert!(cut.records.len() < 3 && cut.records_total > 3, "{cut:?}");
}

#[test]
fn a_block_that_is_not_there_is_refused_in_a_sentence() {
    let flash = flash(true);
    let superblock = superblock_of(&flash);
    let named = superblock.checkpoint.expect("it was closed").area;
    let sentence = |superblock: &Superblock, area, block| {
        block_on(checkpoint_block(&*flash, superblock, area, block, 9)).map(|_| ()).expect_err("refused").to_string()
    };
    let last = block_on(checkpoint(&*flash, &superblock, None, 0)).expect("one is named").blocks.total - 1;
    let said = sentence(&superblock, None, 99);
    assert!(said.contains(&format!("no whole block 99 in checkpoint area {named}")), "{said}");
    assert!(said.contains(&format!("from 0 to {last}")), "{said}");
    let said = sentence(&superblock, Some(1 - named), 0);
    assert!(said.contains(&format!("no whole block in checkpoint area {}", 1 - named)), "{said}");
    let said = sentence(&Superblock { checkpoint: None, ..superblock.clone() }, None, 0);
    assert!(said.contains("names no checkpoint"), "{said}");

    // A damaged block counts as none; the others are told as before.
    let block = block_on(checkpoint(&*flash, &superblock, None, 9)).expect("one is named").blocks.entries.remove(1);
    let byte = IoBuf::copy_of(&[0x5a; 512]).freeze();
    block_on(flash.write(block.flash_offset, byte, WriteFlags::default())).expect("written");
    assert!(sentence(&superblock, None, 1).contains("no whole block 1 "));
    block_on(checkpoint_block(&*flash, &superblock, None, 0, 9)).expect("the slots");
}

/// The rest of two checkpoints in one area may have the same number twice: both are told.
#[test]
fn blocks_of_two_checkpoints_with_one_number_are_both_told() {
    let flash = flash(true);
    let superblock = superblock_of(&flash);
    let named = superblock.checkpoint.expect("it was closed").area;
    let other = 1 - named;
    let (from, to) =
        (superblock.layout.checkpoint_offset[named as usize], superblock.layout.checkpoint_offset[other as usize]);
    let blocks = block_on(checkpoint(&*flash, &superblock, None, 9)).expect("one is named").blocks.entries;
    let first = &blocks[0];
    for copy in [first.flash_offset - from, first.flash_offset - from + first.bytes] {
        let bytes = block_on(flash.read(first.flash_offset, IoBuf::new(first.bytes as usize))).expect("read");
        block_on(flash.write(to + copy, bytes.freeze(), WriteFlags::default())).expect("written");
    }
    let found = block_on(checkpoint_block(&*flash, &superblock, Some(other), 0, 3)).expect("they are there");
    assert_eq!((found.area, found.named_by_superblock, found.blocks.total), (other, false, 2));
    let told: Vec<usize> = found.blocks.entries.iter().map(|block| block.entries.entries.len()).collect();
    assert_eq!(told, [3, 0], "the limit is for all of them");
}

#[test]
fn bitmaps_are_told_as_runs() {
    let mut map = larder_core::SectorMap::EMPTY;
    map.set(0, 4);
    map.set(7, 8);
    assert_eq!(runs(&map.to_bytes()), "0-3,7");
}

#[test]
fn a_listing_counts_what_it_does_not_keep() {
    let mut listing = Listing::new();
    (0..5).for_each(|n| listing.add(2, || n));
    assert_eq!((listing.entries, listing.total), (vec![0, 1], 5));
}

#[test]
fn a_layout_is_dumped_with_its_store() {
    let made = |name| {
        let mut options = CreateOptions::default();
        designs::named(name).expect(name).fit(&mut options);
        let flash = RamDevice::new("flash", 64 << 20, 4096);
        block_on(create(&flash, 1 << 30, &options)).expect("it fits");
        superblock_of(&flash)
    };
    let dump = |name| layout(&made(name));
    let buckets = dump("austere");
    let layout = made("austere").layout;
    assert_eq!((buckets.store, buckets.bucket_slots), ("buckets", layout.bucket_slots));
    assert!(buckets.design_pages_max > 0 && buckets.design_pages_max == layout.design_pages_max);
    let regions: Vec<_> = buckets.regions.iter().map(|region| (region.region, region.flash_offset)).collect();
    assert!(regions.ends_with(&[("metadata slots", layout.region_offset), ("data slots", layout.slots_offset)]));
    assert!(dump("larder").short_checkpoints && !buckets.short_checkpoints && !dump("nitro").short_checkpoints);
    for (name, store, slots) in [("nitro", "weus", "WEU slots"), ("d-lru", "slots", "data slots")] {
        assert_eq!((dump(name).store, dump(name).regions.last().map(|region| region.region)), (store, Some(slots)));
    }
}

#[test]
fn the_feature_words_are_told_as_they_are_on_the_flash() {
    use larder_format::{OriginState, WearRecord, features, layout::SUPERBLOCK_OFFSETS};
    let flash = flash(true);
    let marked = |superblock: &mut Superblock| {
        let sequence = superblock.sequence;
        superblock.features_compat = 1 << 33;
        superblock.features_read_only = 1 << 40;
        superblock.kept_trims = true;
        superblock.origin_state = Some(OriginState { sequence, size_bytes: 4096, epoch: 7, changes: u64::MAX });
        superblock.wear = Some(Box::new(WearRecord::new(5 << 30, 1_800_000_000, 4096, [1024, 3072])));
    };
    let mut superblock = superblock_of(&flash);
    marked(&mut superblock);
    let bytes = superblock.encode();
    for offset in SUPERBLOCK_OFFSETS {
        let twin = IoBuf::copy_of(&bytes).freeze();
        block_on(flash.write(offset, twin, WriteFlags::default())).expect("written");
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
    let [compatible, incompatible] = [48, 56].map(word);
    assert_eq!(compatible & features::COMPATIBLE_KNOWN, features::COMPATIBLE_KNOWN, "all that this program knows");
    for twin in block_on(superblocks(&*flash)) {
        let fields = twin.fields.expect("whole");
        assert_eq!((fields.features_compat, fields.features_compat_unknown), (compatible, 1 << 33));
        assert_eq!((fields.features_incompat, fields.features_incompat_unknown), (incompatible, 1 << 40));
        let state = (fields.origin_state_sequence, fields.origin_state_bytes);
        assert_eq!(state, (Some(superblock.sequence), Some(4096)));
        assert_eq!((fields.origin_state_epoch, fields.origin_state_changes), (Some(7), Some(u64::MAX)));
        let wear = (fields.wear_day_bytes, fields.wear_at_seconds, fields.wear_lent_bytes, fields.wear_counted_bytes);
        assert_eq!(wear, (Some(5 << 30), Some(1_800_000_000), Some(4096), Some(4096)));
    }
}
