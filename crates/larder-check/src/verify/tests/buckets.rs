//! A bucket store: the entries of its metadata slots are checked. Dirty data does not depend on
//! them.

use super::{crafted::repaired, *};
use crate::{dump, region::stored_runs, verify::repair::RepairOptions};
use larder_core::SlotId;
use larder_format::Superblock;

fn superblock_of(flash: &RamDevice) -> Superblock {
    block_on(superblock::read(flash)).expect("a superblock").0
}

/// Returns the first slots of records with a metadata slot, either clean ones or dirty ones.
fn runs(flash: &RamDevice, is_dirty: bool) -> Vec<SlotId> {
    let found = block_on(recovered(flash)).expect("recovered");
    let runs = block_on(stored_runs(flash, &found.superblock, &found.design));
    let known = runs.iter().filter(|run| run.known(&found.design).is_some()).map(|run| run.slot);
    known.filter(|&slot| found.design.dirty_in(slot).is_empty() != is_dirty).collect()
}

/// Returns the number of chunks listed as clean, and as dirty.
fn mapped(flash: &RamDevice) -> (usize, usize) {
    let (listing, salvaged) = block_on(dump::mappings(flash, None, usize::MAX)).expect("listed");
    assert!(!salvaged);
    let dirty = listing.entries.iter().filter(|mapping| mapping.dirty).count();
    (listing.entries.len() - dirty, dirty)
}

#[test]
fn a_sound_bucket_store_is_clean_whatever_is_dirty() {
    // The chunks of the last destage are dirty again after a crash.
    for (is_closed, is_clean) in [(true, true), (true, false), (false, false)] {
        let flash = flash_of("austere", is_closed, is_clean);
        let report = verified(&flash);
        assert!(report.clean, "{} {:?}", sentences(&report), report.notes);
        // After a crash the last frame may lack a later write that confirms it.
        let doubts =
            report.notes.iter().filter(|note| note.starts_with("the end of the log cannot be confirmed")).count();
        assert_eq!(report.notes.len(), doubts, "{:?}", report.notes);
        assert!(doubts == 0 || !is_closed, "{:?}", report.notes);
        assert!(report.records > 100 && report.fingerprints > 100, "{report:?}");
        // Zeroes are content here.
        let expected = if is_clean { (200, 0) } else { (0, 201) };
        assert_eq!(mapped(&flash), expected);
        let all = (expected.0 + expected.1) as u64;
        assert_eq!((report.mappings, report.dirty_mappings), (all, expected.1 as u64));
        let found = block_on(recovered(&*flash)).expect("recovered");
        assert_eq!(found.design.stats().mapped_chunks, all);
        assert_eq!(report.trimmed_runs, u64::from(!is_clean));
    }
}

#[test]
fn what_is_left_of_a_sound_bucket_store_is_all_of_it() {
    for is_closed in [true, false] {
        let flash = flash_of("austere", is_closed, true);
        let whole = block_on(recovered(&*flash)).expect("recovered");
        let left = block_on(salvage(&*flash, false)).expect("salvaged");
        assert!(!left.damage.is_any(), "{:?}", left.damage);
        assert_eq!(whole.design.stored_runs(), left.design.stored_runs());
        let pages = |found: &Salvaged| -> Vec<_> {
            (0..found.design.page_count()).map(|page| found.design.export_page(page)).collect()
        };
        assert_eq!(pages(&whole), pages(&left));
    }
}

#[test]
fn a_record_is_found_by_its_chunk_and_by_its_place() {
    let flash = flash_of("austere", true, true);
    let superblock = superblock_of(&flash);
    let by_chunk =
        block_on(dump::record(&*flash, &superblock, dump::RecordAt::Chunk(2), false)).expect("chunk 2 is cached");
    assert!(by_chunk.checksum_matches && by_chunk.decodes && by_chunk.fingerprint.is_some());
    let at = dump::RecordAt::FlashOffset(by_chunk.flash_offset);
    let by_place = block_on(dump::record(&*flash, &superblock, at, false)).expect("a record is there");
    assert_eq!((by_place.lba, by_place.mapped), (2, true));
    let (slots, _) = block_on(dump::slots(&*flash, usize::MAX)).expect("listed");
    assert!(slots.entries.iter().any(|slot| slot.flash_offset == by_chunk.flash_offset && slot.mapped_chunks == 1));
    let (fingerprints, _) = block_on(dump::fingerprints(&*flash, usize::MAX)).expect("listed");
    assert_eq!(fingerprints.entries.len(), slots.entries.iter().filter(|slot| slot.mapped_chunks > 0).count());
}

#[test]
fn a_damaged_metadata_slot_costs_what_is_clean() {
    let flash = flash_of("austere", true, true);
    let before = mapped(&flash);
    let slot = runs(&flash, false)[3];
    let at = superblock_of(&flash).layout.metadata_slot_offset(slot.0).expect("there is one");
    flip(&flash, at + 40);
    let report = verified(&flash);
    assert_eq!(kinds(&report), ["metadata slot"], "{}", sentences(&report));
    assert_eq!(report.problems[0].flash_offset, Some(at));
    let repaired = repaired(&*flash, RepairOptions::default());
    assert!(repaired.whole && !repaired.loses_data(), "{repaired:?}");
    assert_eq!(repaired.clean_chunks_dropped, 1);
    let (clean, _) = mapped(&flash);
    assert!(clean < before.0 && clean > before.0 - 30, "{clean} of {}", before.0);
}

#[test]
fn a_damaged_metadata_slot_costs_nothing_dirty() {
    let flash = flash_of("austere", true, false);
    let before = mapped(&flash);
    for slot in runs(&flash, true) {
        flip(&flash, superblock_of(&flash).layout.metadata_slot_offset(slot.0).expect("there is one") + 40);
    }
    let report = verified(&flash);
    assert!(report.clean && report.notes.iter().any(|note| note.contains("metadata slot")), "{report:?}");
    assert_eq!(mapped(&flash), before);
    // A repair for another fault writes the slots anew.
    flip(&flash, larder_format::layout::SUPERBLOCK_OFFSETS[1] + 100);
    let area = superblock_of(&flash);
    let pointer = area.checkpoint.expect("an orderly end leaves a checkpoint");
    flip(&flash, area.layout.checkpoint_offset[usize::from(pointer.area)] + 20);
    let repaired = repaired(&*flash, RepairOptions::default());
    assert!(repaired.whole && !repaired.loses_data(), "{repaired:?}");
    let report = verified(&flash);
    assert!(report.clean && report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(mapped(&flash), before);
}

#[test]
fn a_damaged_record_of_clean_chunks_is_dropped() {
    let flash = flash_of("austere", true, true);
    let slot = runs(&flash, false)[5];
    flip(&flash, superblock_of(&flash).layout.slot_offset(slot.0).expect("there is one") + 2);
    let report = verified(&flash);
    assert_eq!((kinds(&report), report.dirty_chunks_lost), (vec!["fingerprint"], 0), "{}", sentences(&report));
    let repaired = repaired(&*flash, RepairOptions::default());
    assert!(repaired.whole && !repaired.loses_data(), "{repaired:?}");
}

/// The indices are lost, in part or whole: dirty chunks keep their slots.
#[test]
fn lost_design_pages_cost_nothing_dirty() {
    let flash = flash_of("austere", true, false);
    let (superblock, before) = (superblock_of(&flash), mapped(&flash));
    let pointer = superblock.checkpoint.expect("an orderly end leaves a checkpoint");
    let start = superblock.layout.checkpoint_offset[usize::from(pointer.area)];
    let mut kinds_of_blocks = Vec::new();
    block_on(walk::checkpoint(&*flash, &superblock, &pointer, &mut |_, offset, _, block| {
        if matches!(block, larder_format::CheckpointBlock::DesignPages(_)) {
            kinds_of_blocks.push(offset);
        }
    }))
    .expect("whole");
    assert!(!kinds_of_blocks.is_empty() && kinds_of_blocks.iter().all(|&at| at > start));
    kinds_of_blocks.iter().for_each(|at| flip(&flash, at + 80));
    assert!(!verified(&flash).clean);
    let repaired = repaired(&*flash, RepairOptions::default());
    assert!(repaired.whole, "{repaired:?}");
    assert!(repaired.lost.is_empty() && repaired.suspect.is_empty(), "{repaired:?}");
    assert_eq!(mapped(&flash).1, before.1);
}
