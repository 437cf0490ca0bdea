//! Structures with right checksums that contradict each other, as a defect would leave them. Each
//! invariant that `verify` checks is broken once, found, and gone after a repair.

use super::*;
use crate::verify::repair::{RepairOptions, RepairReport, repair};
use larder_device::BlockDevice;
use larder_engine::offline::to_format;
use larder_format::{
    CheckpointBlock, CheckpointEncoder, DesignPage, Encoding, FingerprintEntry, FlashPlace, FragmentEntry, FrameHeader,
    FrameStart, LogEntry, MappingEntry, RecordContent, RecordEntry, RecordIdentity, SlotEntry, SlotState, Superblock,
    WeuClass, ZeroRange,
    checkpoint::CHECKPOINT_HEADER_BYTES,
    encode_frame, record_crc,
    segment::{decode_header, encode_header, encode_table},
};

/// The content of a checkpoint.
#[derive(Default)]
struct Entries {
    slots: Vec<SlotEntry>,
    mappings: Vec<MappingEntry>,
    fragments: Vec<FragmentEntry>,
    ranges: Vec<ZeroRange>,
    fingerprints: Vec<FingerprintEntry>,
    pages: Vec<DesignPage>,
}

fn put(flash: &RamDevice, offset: u64, bytes: &[u8]) {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(512), 0);
    block_on(flash.write(offset, IoBuf::copy_of(&padded).freeze(), WriteFlags::default())).expect("written");
}

fn superblock_of(flash: &RamDevice) -> Superblock {
    block_on(superblock::read(flash)).expect("a superblock").0
}

/// Writes the checkpoint of a closed cache anew, changed by `edit`.
fn recraft(flash: &RamDevice, edit: impl FnOnce(&mut Entries)) {
    let mut superblock = superblock_of(flash);
    let mut pointer = superblock.checkpoint.expect("a closed cache has a checkpoint");
    let mut entries = Entries::default();
    let mut visit = |_: u32, _: u64, _: usize, block: CheckpointBlock| match block {
        CheckpointBlock::Slots(slots) => entries.slots.extend(slots),
        CheckpointBlock::Mappings(mappings) => entries.mappings.extend(mappings),
        CheckpointBlock::Fragments(fragments) => entries.fragments.extend(fragments),
        CheckpointBlock::ZeroRanges(ranges) => entries.ranges.extend(ranges),
        CheckpointBlock::Fingerprints(fingerprints) => entries.fingerprints.extend(fingerprints),
        CheckpointBlock::DesignPages(pages) => entries.pages.extend(pages),
    };
    block_on(walk::checkpoint(flash, &superblock, &pointer, &mut visit)).expect("whole");
    edit(&mut entries);
    let (tag, id) = (superblock.flash_tag(), pointer.checkpoint_id);
    let mut encoder = CheckpointEncoder::new(tag, id, superblock.log_start, superblock.entry_seq_next);
    let mut blocks: Vec<u8> = Vec::new();
    let mut push = |block: Result<Option<Vec<u8>>, larder_format::FormatError>| {
        blocks.extend(block.expect("in order").unwrap_or_default());
    };
    entries.slots.into_iter().for_each(|entry| push(encoder.push_slot(entry)));
    entries.mappings.into_iter().for_each(|entry| push(encoder.push_mapping(entry)));
    entries.fragments.into_iter().for_each(|entry| push(encoder.push_fragment(entry)));
    entries.ranges.into_iter().for_each(|entry| push(encoder.push_zero_range(entry)));
    entries.fingerprints.into_iter().for_each(|entry| push(encoder.push_fingerprint(entry)));
    entries.pages.into_iter().for_each(|page| push(encoder.push_design_page(page)));
    let (last, header) = encoder.finish();
    blocks.extend(last.unwrap_or_default());
    let start = superblock.layout.checkpoint_offset[usize::from(pointer.area)];
    put(flash, start + CHECKPOINT_HEADER_BYTES as u64, &blocks);
    put(flash, start, &header.encode());
    pointer.bytes = header.total_bytes;
    superblock.checkpoint = Some(pointer);
    superblock.sequence += 1;
    block_on(superblock::write(flash, &superblock, None)).expect("written");
}

/// Appends a frame to the log.
fn append(flash: &RamDevice, entries: &[LogEntry]) {
    append_as(flash, entries, |_| ());
}

/// Appends a frame with other numbers than those that come next.
fn append_as(flash: &RamDevice, entries: &[LogEntry], edit: impl FnOnce(&mut FrameStart)) {
    let superblock = superblock_of(flash);
    let start = (superblock.log_start, superblock.entry_seq_next);
    let (mut previous_crc, mut first_entry_seq) = (0, superblock.entry_seq_next);
    let mut visit = |_: u64, header: &FrameHeader, _: &[LogEntry]| {
        previous_crc = header.crc;
        first_entry_seq = header.entry_seq_next();
    };
    let end = block_on(walk::log(flash, &superblock, start, &mut visit)).expect("read");
    let mut frame = FrameStart {
        flash_tag: superblock.flash_tag(),
        frame_seq: end.next_frame_seq,
        first_entry_seq,
        durable_frame_seq: end.next_frame_seq - 1,
        previous_crc,
    };
    edit(&mut frame);
    let bytes = encode_frame(&frame, entries, superblock.layout.sector_bytes).expect("it fits");
    put(flash, superblock.layout.log_offset + end.next_offset_in_log, &bytes);
}

/// Writes the table of the first segment of `slot` anew; `edit` changes it and the WEU.
fn retable(flash: &RamDevice, slot: u32, edit: impl FnOnce(&mut Vec<RecordEntry>, &mut [u8])) {
    let layout = superblock_of(flash).layout;
    let start = layout.slot_offset(slot).expect("a slot");
    let mut weu = block_on(flash.read(start, IoBuf::new(layout.slot_bytes as usize))).expect("read").to_vec();
    let mut header = decode_header(&weu).expect("a segment");
    let table = header.table_offset as usize;
    let mut records = larder_format::segment::decode_table(&header, &weu[table..]).expect("a table");
    edit(&mut records, &mut weu);
    assert_eq!(records.len(), header.record_count as usize);
    header.table_crc = encode_table(&records, &mut weu[table..]).expect("it fits");
    weu[..64].copy_from_slice(&encode_header(&header));
    put(flash, start, &weu);
}

fn place_of(flash: &RamDevice, lba: u64) -> FlashPlace {
    let found = block_on(recovered(flash)).expect("recovered");
    match found.design.peek(Lba(lba)) {
        Lookup::Chunk { place, .. } | Lookup::Fragment { place, .. } => to_format(&place),
        other => panic!("chunk {lba} is {other:?}"),
    }
}

fn index_of(entries: &Entries, lba: u64) -> usize {
    entries.mappings.iter().position(|mapping| mapping.lba == lba).expect("it is mapped")
}

pub(super) fn repaired(flash: &dyn BlockDevice, options: RepairOptions) -> RepairReport {
    block_on(repair(flash, &options, &mut |_, _| {})).expect("it can be repaired")
}

/// Checks that the damage is found, in these words, and that a repair mends it.
fn found(flash: &RamDevice, words: &[&str]) -> RepairReport {
    let report = verified(flash);
    for words in words {
        assert!(sentences(&report).contains(words), "{words:?} is not among:\n{}", sentences(&report));
    }
    assert!(!report.clean);
    let done = repaired(flash, RepairOptions::default());
    let after = done.after.as_ref().expect("it was checked again");
    assert!(done.whole, "after {words:?}:\n{}", sentences(after));
    done
}

#[test]
fn a_checkpoint_that_names_chunks_wrongly() {
    let flash = flash(true);
    recraft(&flash, |entries| {
        let twice = entries.mappings[0];
        entries.mappings.push(twice);
        entries.mappings.push(MappingEntry { lba: 1 << 30, place: None, dirty: true, duplicate: false });
        let nowhere = FlashPlace { slot: 999, ..entries.fragments[0].place };
        entries.fragments.push(FragmentEntry { lba: 500, place: nowhere, ..entries.fragments[0] });
    });
    found(
        &flash,
        &["twice", "chunk 1073741824, past the end of the volume", "chunk 500 in slot 999, which there is not"],
    );
}

#[test]
fn a_checkpoint_that_names_slots_wrongly() {
    let flash = flash(true);
    recraft(&flash, |entries| {
        entries.slots.pop();
        let twice = entries.slots[0];
        entries.slots.push(twice);
        entries.slots.push(SlotEntry { slot: 999, generation: 0, state: SlotState::Sealed, class: WeuClass::Clean });
    });
    found(&flash, &["slot 999 of", "twice", "slots, and there are"]);
}

#[test]
fn a_checkpoint_whose_mapping_is_older_than_its_slot() {
    let flash = flash(true);
    let place = place_of(&flash, 2);
    recraft(&flash, |entries| {
        let slot = entries.slots.iter_mut().find(|slot| slot.slot == place.slot).expect("its slot");
        slot.generation += 1;
    });
    let done = found(&flash, &["which is over: the slot is at 1"]);
    assert_eq!(done.dirty_chunks_lost, 0, "an opening would not find those chunks either");
}

#[test]
fn a_checkpoint_with_wrong_runs_and_fingerprints() {
    let flash = flash(true);
    recraft(&flash, |entries| {
        let first = entries.ranges[0];
        entries.ranges.push(ZeroRange { lba: first.lba + 1, chunk_count: 2, ..first });
        entries.ranges.push(ZeroRange { lba: 1000, chunk_count: 1 << 20, ..first });
        let twice = entries.fingerprints[0];
        entries.fingerprints.push(twice);
    });
    found(&flash, &["overlap", "the trimmed run at chunk 1000 leaves the volume", "a fingerprint twice"]);
}

#[test]
fn checkpoint_and_superblock_that_disagree_on_the_log() {
    let flash = flash(true);
    let mut superblock = superblock_of(&flash);
    superblock.entry_seq_next += 1;
    block_on(superblock::write(&*flash, &superblock, None)).expect("written");
    found(&flash, &["log start"]);
}

#[test]
fn log_entries_that_make_no_sense() {
    let flash = flash(false);
    let place = place_of(&flash, 2);
    append(
        &flash,
        &[
            LogEntry::Trim { lba: 1000, chunk_count: 1 << 20, dirty: true, no_hole: false, advisory: false },
            LogEntry::SlotFreed { slot: 999, generation: 0 },
            LogEntry::Map {
                lba: 3,
                place: FlashPlace { slot: 999, ..place },
                dirty: true,
                duplicate: false,
                fingerprint: [0; 16],
            },
        ],
    );
    found(&flash, &["past the end of the volume", "frees slot 999", "has chunk 3 in slot 999"]);
}

#[test]
fn dirty_entries_behind_an_orderly_end() {
    let flash = flash(true);
    append(&flash, &[LogEntry::MapZero { lba: 700, dirty: true }]);
    found(&flash, &["makes chunk 700 dirty, after an end that was marked as orderly"]);
}

#[test]
fn a_mapping_to_the_record_of_another_chunk() {
    let flash = flash(true);
    let other = place_of(&flash, 6);
    recraft(&flash, |entries| {
        let at = index_of(entries, 2);
        entries.mappings[at].place = Some(other);
    });
    let done = found(&flash, &["chunk 2 is mapped to the record of chunk 6"]);
    assert_eq!((done.lost.all()[0].offset, done.lost.bytes()), (2 * CHUNK as u64, CHUNK as u64));
}

#[test]
fn a_mapping_that_takes_a_fragment_for_a_chunk() {
    let flash = flash(true);
    recraft(&flash, |entries| {
        let at = index_of(entries, 2);
        let place = entries.mappings.remove(at).place.expect("a record");
        entries.fragments.push(FragmentEntry { lba: 2, place, dirty: true, sectors: [255; 32] });
    });
    // Its bitmap has more sectors than the chunk, too.
    found(&flash, &["sectors that the chunk does not have"]);
    let flash = super::flash(true);
    recraft(&flash, |entries| {
        let at = index_of(entries, 2);
        let place = entries.mappings.remove(at).place.expect("a record");
        let mut sectors = [0; 32];
        sectors[..CHUNK / 512 / 8].fill(255);
        entries.fragments.push(FragmentEntry { lba: 2, place, dirty: true, sectors });
    });
    found(&flash, &["chunk 2 takes a fragment for a chunk"]);
}

#[test]
fn a_fragment_of_no_sector() {
    let flash = flash(true);
    recraft(&flash, |entries| entries.fragments[0].sectors = [0; 32]);
    found(&flash, &["holds no sector"]);
}

#[test]
fn a_fingerprint_of_other_content() {
    let flash = flash(true);
    recraft(&flash, |entries| entries.fingerprints[0].fingerprint[3] ^= 1);
    let done = found(&flash, &["the FP index names a record with other content"]);
    assert_eq!(done.fingerprints_dropped, 1);
    assert!(!done.loses_data());
}

#[test]
fn pages_of_a_design_that_has_none() {
    let flash = flash(true);
    recraft(&flash, |entries| entries.pages.push(DesignPage::new(0, vec![7; 100]).expect("it fits")));
    let dumped = block_on(crate::dump::checkpoint(&flash, &superblock_of(&flash), None, 1000)).expect("a checkpoint");
    assert_eq!(dumped.header.expect("whole").design_pages, 1);
    assert!(dumped.blocks.entries.iter().any(|block| (&*block.kind, block.count) == ("design pages", 1)));
    let done = found(&flash, &["has 1 design pages, and 0 are allowed", "has design page 0 of 0"]);
    assert!(!done.loses_data());
}

#[test]
fn a_table_that_describes_another_record() {
    let flash = flash(true);
    let place = place_of(&flash, 2);
    retable(&flash, place.slot, |records, _| {
        records.iter_mut().find(|record| record.lba == 2).expect("it is listed").crc ^= 1;
    });
    let done = found(&flash, &["segment and mapping describe different records"]);
    assert!(done.records_moved > 0 && !done.loses_data());
}

#[test]
fn a_table_with_a_wrong_fingerprint() {
    let flash = flash(true);
    let place = place_of(&flash, 2);
    retable(&flash, place.slot, |records, _| {
        let record = records.iter_mut().find(|record| record.lba == 2).expect("it is listed");
        let RecordContent::Chunk(fingerprint) = &mut record.content else { panic!("a chunk") };
        fingerprint[0] ^= 1;
    });
    let done = found(&flash, &["has another fingerprint than its segment says"]);
    assert!(done.records_moved > 0 && !done.loses_data());
}

#[test]
fn a_record_that_no_table_lists() {
    let flash = flash(true);
    let place = place_of(&flash, 2);
    retable(&flash, place.slot, |records, _| {
        // Another record is listed twice instead.
        let at = records.iter().position(|record| record.lba == 2).expect("it is listed");
        let other = records.iter().find(|record| record.lba != 2).copied().expect("another");
        records[at] = other;
    });
    let done = found(&flash, &["is whole, but no segment of its slot lists it", "overlap"]);
    assert!(done.records_moved > 0 && !done.loses_data());
}

#[test]
fn records_that_overlap() {
    let flash = flash(true);
    let outer = place_of(&flash, 2);
    // The record of one chunk, and another record over a part of its bytes, with a checksum of its
    // own.
    assert!(outer.stored_len > 700);
    let layout = superblock_of(&flash).layout;
    let start = layout.slot_offset(outer.slot).expect("a slot");
    let weu = block_on(flash.read(start, IoBuf::new(layout.slot_bytes as usize))).expect("read");
    let inner = FlashPlace { offset: outer.offset + 100, stored_len: 512, encoding: Encoding::Raw, ..outer };
    let identity = RecordIdentity { slot: inner.slot, generation: inner.generation, offset: inner.offset };
    let crc = record_crc(identity, 0, &weu[inner.offset as usize..][..512]);
    recraft(&flash, |entries| {
        let mut sectors = [0; 32];
        sectors[0] = 1;
        entries.fragments.push(FragmentEntry { lba: 600, place: FlashPlace { crc, ..inner }, dirty: true, sectors });
    });
    let done = found(&flash, &["two records that are in use overlap"]);
    assert!(done.records_moved > 0 && !done.loses_data());
}

#[test]
fn a_slot_that_holds_more_than_the_log_says() {
    let flash = flash(true);
    let layout = superblock_of(&flash).layout;
    let found_state = block_on(recovered(&*flash)).expect("recovered");
    let free = found_state
        .design
        .export_slots()
        .into_iter()
        .find(|(_, _, state, _)| *state == larder_core::slots::SlotState::Free);
    let (slot, generation, ..) = free.expect("a free slot");
    // A segment of an unrecorded use: another slot's segment with this slot's number.
    let from = layout.slot_offset(place_of(&flash, 2).slot).expect("a slot");
    let weu = block_on(flash.read(from, IoBuf::new(4096))).expect("read");
    let mut header = decode_header(&weu).expect("a segment");
    (header.slot, header.generation) = (slot.0, generation + 3);
    put(&flash, layout.slot_offset(slot.0).expect("a slot"), &encode_header(&header));
    let done = found(&flash, &["the log does not speak of it"]);
    assert!(done.log_gaps.len() == 1 && done.loses_data(), "what freed the slot is lost, and who knows what else");
    let after = block_on(recovered(&*flash)).expect("recovered");
    let (_, next, ..) = after.design.export_slots().into_iter().find(|(at, ..)| *at == slot).expect("the slot");
    assert_eq!(next, generation + 4, "the next use is one that this flash has not seen");
}

/// A frame has an earlier frame's number, and its other numbers show a loss before it. It proves
/// the loss, and its entries are not believed, because its position is unknown.
#[test]
fn a_frame_with_a_number_from_before_proves_a_loss_and_is_passed_over() {
    let flash = flash(false);
    let mapped = || {
        let design = block_on(recovered(&*flash)).expect("recovered").design;
        let is_mapped = |lba: &u64| matches!(design.peek(Lba(*lba)), Lookup::Chunk { .. });
        (0..40).filter(is_mapped).take(2).collect::<Vec<u64>>()
    };
    let lbas = mapped();
    assert_eq!(lbas.len(), 2, "there are chunks");
    let entries = [lbas[0], lbas[1]].map(|lba| LogEntry::MapZero { lba, dirty: true });
    append_as(&flash, &entries, |frame| {
        assert!(frame.frame_seq > 1, "there were frames before");
        (frame.durable_frame_seq, frame.frame_seq) = (frame.frame_seq, frame.frame_seq - 1);
        frame.first_entry_seq += 5;
    });
    let report = verified(&flash);
    assert!(!report.clean, "{}", sentences(&report));
    let done = repaired(&*flash, RepairOptions::default());
    assert!(done.whole && done.loses_data(), "{done:?}");
    assert_eq!(done.log_gaps.iter().map(|gap| (gap.frames, gap.entries)).collect::<Vec<_>>(), [(None, None)]);
    assert_eq!(mapped(), lbas, "it was applied");
}
