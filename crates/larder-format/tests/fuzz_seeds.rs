//! The fuzz targets of the structures on flash, from seeds; `fuzz/src/format.rs` has their rules.
//!
//! Earlier finds of fuzzing are tests of their own.

#[allow(dead_code, reason = "another program uses the rest")]
mod common;
#[path = "../../../fuzz/src/format.rs"]
mod format;
#[path = "../../../fuzz/src/input.rs"]
mod input;
#[path = "../../../fuzz/src/memory.rs"]
mod memory;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;

use common::{FRAME_START, TAG, checkpoint_header, log_entries, superblock};
use larder_format::{
    COUNTER_MAX, CheckpointHeader, FormatError, FrameStart, Superblock, decode_frame, encode_frame, layout,
};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

const CASES: u64 = 20_000;

#[test]
fn superblocks() {
    assert!(memory::is_installed());
    seeded::check("superblock", &format::superblock_seeds(), CASES, format::superblock);
}

#[test]
fn layouts() {
    seeded::check("layout", &format::layout_seeds(), CASES, format::layout);
}

#[test]
fn segments() {
    seeded::check("segment", &format::segment_seeds(), CASES, format::segment);
}

#[test]
fn log_frames() {
    seeded::check("log_frame", &format::log_frame_seeds(), CASES, format::log_frame);
}

#[test]
fn checkpoints() {
    seeded::check("checkpoint", &format::checkpoint_seeds(), CASES, format::checkpoint);
}

#[test]
fn metadata_slots() {
    seeded::check("metadata_slot", &format::metadata_slot_seeds(), CASES, format::metadata_slot);
}

/// A first write would wait for ever in a cache without room for a fragment, zero range or mapping.
#[test]
fn limits_that_no_writer_makes_are_refused() {
    let limits: [fn(&mut Superblock) -> &mut u64; 4] = [
        |superblock| &mut superblock.layout.fragments_max,
        |superblock| &mut superblock.layout.zero_ranges_max,
        |superblock| &mut superblock.layout.fp_entries_max,
        |superblock| &mut superblock.layout.mappings_max,
    ];
    for limit in limits {
        let mut changed = superblock();
        *limit(&mut changed) = layout::ENTRIES_MIN;
        assert!(Superblock::decode(&changed.encode()).is_ok());
        *limit(&mut changed) = layout::ENTRIES_MIN - 1;
        assert!(matches!(Superblock::decode(&changed.encode()), Err(FormatError::Invalid { .. })));
    }
    // A small origin needs no more mappings than it has chunks.
    let mut small = superblock();
    small.origin.size_bytes = 3 * u64::from(small.layout.chunk_bytes);
    small.layout.mappings_max = 3;
    assert!(Superblock::decode(&small.encode()).is_ok());
    let mut large = superblock();
    large.origin.size_bytes = (layout::CHUNKS_MAX + 1) * u64::from(large.layout.chunk_bytes);
    assert!(matches!(Superblock::decode(&large.encode()), Err(FormatError::Invalid { .. })));
}

/// A writer that counts on from a counter near the end of its range would overflow.
#[test]
fn counters_that_no_writer_reaches_are_refused() {
    let counters: [fn(&mut Superblock) -> &mut u64; 4] = [
        |superblock| &mut superblock.sequence,
        |superblock| &mut superblock.entry_seq_next,
        |superblock| &mut superblock.log_start.frame_seq,
        |superblock| &mut superblock.checkpoint.as_mut().expect("a checkpoint").checkpoint_id,
    ];
    for counter in counters {
        let mut changed = superblock();
        *counter(&mut changed) = COUNTER_MAX - 1;
        assert!(Superblock::decode(&changed.encode()).is_ok());
        *counter(&mut changed) = COUNTER_MAX;
        assert!(matches!(Superblock::decode(&changed.encode()), Err(FormatError::Invalid { .. })));
    }
    let header = CheckpointHeader { entry_seq_next: COUNTER_MAX, ..checkpoint_header() };
    assert!(matches!(CheckpointHeader::decode(&header.encode(), TAG), Err(FormatError::Invalid { .. })));
    for start in [
        FrameStart { frame_seq: COUNTER_MAX, ..FRAME_START },
        FrameStart { first_entry_seq: COUNTER_MAX, ..FRAME_START },
    ] {
        let frame = encode_frame(&start, &log_entries(), 512).expect("it fits");
        assert!(matches!(decode_frame(&frame, TAG), Err(FormatError::Invalid { .. })));
    }
}
