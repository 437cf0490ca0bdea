//! A sound flash is clean; each kind of damage is found, named, and told from the remains of a
//! crash.
//!
//! [`crafted`] has structures that no bit flip makes: they are whole and contradict each other.

mod buckets;
mod crafted;
mod lying;
mod repairs;

use super::*;
use larder_core::{Lba, Lookup};
use larder_device::{
    IoBuf, Runtime, WriteFlags,
    driver::block_on,
    ram::RamDevice,
    threads::{ThreadRuntime, ThreadRuntimeOptions},
};
use larder_engine::{Cache, CreateOptions, create, designs, superblock, walk};
use larder_format::log::FRAME_HEADER_BYTES;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 8 << 10;

/// Makes a flash with unique chunks, duplicates, zeroes, a fragment and a trimmed run. Its cache
/// ended in order or not.
pub(crate) fn flash(is_closed: bool) -> Arc<RamDevice> {
    flash_of("nitro", is_closed, false)
}

/// Returns the same over a design; with all data destaged, if `is_clean` asks for it.
fn flash_of(design: &str, is_closed: bool, is_clean: bool) -> Arc<RamDevice> {
    let flash = Arc::new(RamDevice::new("flash", 16 * MIB, 512));
    let origin = Arc::new(RamDevice::new("origin", 8 * MIB, 512));
    let mut options = CreateOptions {
        slot_bytes: 512 << 10,
        flash_uuid: [7; 16],
        hash_key: [9; 32],
        origin_uri: "file:///origin".into(),
        ..CreateOptions::default()
    };
    designs::named(design).expect(design).fit(&mut options);
    block_on(create(&*flash, 8 * MIB, &options)).expect("created");
    let runtime = ThreadRuntime::new(ThreadRuntimeOptions { workers: 0, name: "verify".into() });
    // Destaging stays off during the test.
    let tuning = Tuning { dirty_low_percent: 90, dirty_high_percent: 90, dirty_max_percent: 95, ..Tuning::default() };
    let opening = Cache::open(flash.clone(), origin, runtime.clone() as Arc<dyn Runtime>, tuning);
    let cache = block_on(opening).expect("opened");
    for number in 0..200_u64 {
        let chunk: Vec<u8> = match number % 4 {
            0 => vec![0; CHUNK],
            // Every second one of these is a duplicate.
            1 => (0..CHUNK).map(|at| ((at as u64 * (number / 8 * 8 + 3)) >> 3) as u8).collect(),
            _ => (0..CHUNK).map(|at| (((at as u64 + number) * 2_654_435_761) >> 13) as u8).collect(),
        };
        cache.write_at(number * CHUNK as u64, &chunk).expect("written");
        if number % 20 == 19 {
            cache.flush_blocking().expect("flushed");
        }
    }
    cache.write_at(300 * CHUNK as u64 + 1024, &[5; 512]).expect("a fragment");
    cache.trim(400 * CHUNK as u64, 20 * CHUNK as u64).expect("trimmed");
    cache.flush_blocking().expect("flushed");
    assert!(!is_clean || block_on(cache.destage_all()), "the origin takes all");
    if is_closed {
        cache.close_blocking().expect("closed");
    }
    drop(cache);
    runtime.shutdown();
    flash
}

fn verified(flash: &RamDevice) -> VerifyReport {
    block_on(verify(flash, &mut |_, _| {})).expect("a cache")
}

fn flip(flash: &RamDevice, offset: u64) {
    let sector = offset / 512 * 512;
    let mut bytes = block_on(flash.read(sector, IoBuf::new(512))).expect("read");
    bytes[(offset - sector) as usize] ^= 0x10;
    block_on(flash.write(sector, bytes.freeze(), WriteFlags::default())).expect("written");
}

/// Returns the problems' sentences, one a line.
fn sentences(report: &VerifyReport) -> String {
    report.problems.iter().map(|problem| format!("{}: {}\n", problem.kind, problem.what)).collect()
}

fn kinds(report: &VerifyReport) -> Vec<&'static str> {
    let mut kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn a_sound_flash_is_clean_after_an_orderly_end_and_a_crash() {
    for is_closed in [true, false] {
        let report = verified(&flash(is_closed));
        assert!(report.clean, "{:?}", report.problems);
        assert_eq!((report.clean_shutdown, report.superblocks_valid), (is_closed, 2));
        assert_eq!((report.fragments, report.trimmed_runs), (1, 1), "{report:?}");
        assert!(report.duplicates > 0 && report.zero_mappings > 0 && report.records > 100, "{report:?}");
        assert_eq!(report.dirty_mappings, 201, "{report:?}");
    }
}

#[test]
fn a_damaged_record_is_named_with_the_chunks_that_it_hits() {
    let flash = flash(true);
    let recovered = block_on(recover(&*flash, None, &Tuning::default())).expect("recovered");
    let Lookup::Chunk { place, .. } = recovered.state.design().peek(Lba(2)) else { panic!("chunk 2 has a record") };
    flip(&flash, recovered.geometry.flash_offset(place.slot, place.offset) + 3);
    let report = verified(&flash);
    assert!(!report.clean && report.dirty_chunks_lost >= 1, "{report:?}");
    let problem = report.problems.iter().find(|problem| problem.lba == Some(2)).expect("chunk 2 is named");
    assert_eq!((problem.kind, problem.dirty), ("record", true));
    assert!(kinds(&report).iter().all(|kind| ["record", "fingerprint"].contains(kind)), "{:?}", report.problems);
}

#[test]
fn damaged_metadata_is_found() {
    let closed = flash(true);
    let (superblock, _) = block_on(superblock::read(&*closed)).expect("a superblock");
    let pointer = superblock.checkpoint.expect("an orderly end leaves a checkpoint");
    let area = superblock.layout.checkpoint_offset[usize::from(pointer.area)];

    flip(&closed, larder_format::layout::SUPERBLOCK_OFFSETS[1] + 100);
    assert_eq!(kinds(&verified(&closed)), ["superblock"]);
    flip(&closed, larder_format::layout::SUPERBLOCK_OFFSETS[1] + 100);

    // A block of the checkpoint; then recovery fails, too.
    flip(&closed, area + 4096 + 80);
    assert_eq!(kinds(&verified(&closed)), ["checkpoint", "recovery"]);
    flip(&closed, area + 4096 + 80);

    // The header of the first slot's first segment, and with it the list of its records.
    flip(&closed, superblock.layout.slots_offset + 20);
    assert_eq!(kinds(&verified(&closed)), ["segment"]);
    flip(&closed, superblock.layout.slots_offset + 20);
    assert!(verified(&closed).clean);
}

#[test]
fn a_damaged_frame_in_the_middle_of_the_log_is_told_from_a_torn_end() {
    let crashed = flash(false);
    let (superblock, _) = block_on(superblock::read(&*crashed)).expect("a superblock");
    let mut frames = Vec::new();
    let start = (superblock.log_start, superblock.entry_seq_next);
    block_on(walk::log(&*crashed, &superblock, start, &mut |at, _, _| frames.push(at))).expect("read");
    assert!(frames.len() >= 5, "each flush wrote a frame: {frames:?}");
    let last = superblock.layout.log_offset + frames[frames.len() - 1];
    flip(&crashed, last + 70);
    assert!(!kinds(&verified(&crashed)).contains(&"log"), "a torn end is none");
    flip(&crashed, last + 70);
    flip(&crashed, superblock.layout.log_offset + frames[1] + 70);
    assert!(kinds(&verified(&crashed)).contains(&"log"));
}

#[test]
fn what_is_left_of_sound_metadata_is_all_of_it() {
    for is_closed in [true, false] {
        let flash = flash(is_closed);
        let whole = block_on(recovered(&*flash)).expect("recovered");
        let left = block_on(salvage(&*flash, false)).expect("salvaged");
        assert!(!left.damage.is_any() && left.certain.is_none(), "{:?}", left.damage);
        assert_eq!(left.log_end, whole.log_end);
        let all = |found: &Salvaged| {
            let design = &found.design;
            let pieces = (0..design.export_pieces()).flat_map(|piece| design.export_mappings(piece));
            let mut mappings: Vec<_> =
                pieces.map(|mapping| format!("{mapping:?} {:?}", design.dirty_seq(mapping.lba))).collect();
            mappings.sort();
            (mappings, design.export_slots(), design.export_runs(), design.export_fingerprints())
        };
        assert_eq!(all(&whole), all(&left));
    }
}

/// The damage is in either of the two, and in each field of their headers.
#[test]
fn two_torn_frames_are_no_crash() {
    let crashed = flash(false);
    let (superblock, _) = block_on(superblock::read(&*crashed)).expect("a superblock");
    let mut frames = Vec::new();
    let start = (superblock.log_start, superblock.entry_seq_next);
    block_on(walk::log(&*crashed, &superblock, start, &mut |at, _, _| frames.push(at))).expect("read");
    let last = [2, 1].map(|from_end| superblock.layout.log_offset + frames[frames.len() - from_end]);
    for byte in (0..FRAME_HEADER_BYTES as u64).chain([FRAME_HEADER_BYTES as u64 + 6]) {
        flip(&crashed, last[1] + byte);
        let one = verified(&crashed);
        let notes = &one.notes;
        assert!(
            one.clean && notes.iter().any(|note| note.contains("not whole")),
            "{byte}: {} {notes:?}",
            sentences(&one)
        );
        block_on(recovered(&*crashed)).expect("one torn frame is what a crash leaves");
        flip(&crashed, last[0] + byte);
        let two = verified(&crashed);
        assert!(kinds(&two).contains(&"log"), "{byte}: {}", sentences(&two));
        assert!(matches!(block_on(recovered(&*crashed)), Err(EngineError::LogDamaged { .. })), "{byte}");
        last.iter().for_each(|frame| flip(&crashed, frame + byte));
    }
}

#[test]
fn what_is_no_cache_is_refused() {
    let blank = RamDevice::new("blank", MIB, 512);
    assert!(block_on(verify(&blank, &mut |_, _| {})).is_err());
}
