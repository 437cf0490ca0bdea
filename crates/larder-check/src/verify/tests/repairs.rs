//! Repairs that need a certain damage. That is bad sectors, holes in the log before and after
//! affected entries, and no free slot.
//!
//! Random damage is tested in `tests/check/repair.rs`.

use super::crafted::repaired;
use super::*;
use crate::verify::repair::{RepairOptions, RepairReport};
use larder_device::{
    BlockDevice, DeviceInfo, Extent, IoError, IoErrorKind, IoFuture, IoOp, SharedBuf, ZeroFlags, faulty::Faulty,
};
use larder_format::Superblock;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// A device with sectors that cannot be read until they are written again, as on a disk.
struct BadSectors {
    inner: Arc<RamDevice>,
    bad: Mutex<BTreeSet<u64>>,
}

impl BadSectors {
    fn new(inner: Arc<RamDevice>, range: std::ops::Range<u64>) -> Arc<Self> {
        Arc::new(BadSectors { inner, bad: Mutex::new((range.start / 512..range.end.div_ceil(512)).collect()) })
    }

    fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / 512..(offset + len).div_ceil(512)
    }
}

impl BlockDevice for BadSectors {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        let len = buf.len() as u64;
        if self.bad.lock().range(Self::sectors(offset, len)).next().is_some() {
            return IoFuture::ready(Err(IoError::new(IoErrorKind::Io, IoOp::Read, offset, len)));
        }
        self.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        let sectors = Self::sectors(offset, data.len() as u64);
        self.bad.lock().retain(|sector| !sectors.contains(sector));
        self.inner.write(offset, data, flags)
    }
    fn flush(&self) -> IoFuture<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.inner.discard(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        self.inner.write_zeroes(offset, len, flags)
    }
    fn extents(&self, offset: u64, len: u64) -> IoFuture<Vec<Extent>> {
        self.inner.extents(offset, len)
    }
}

fn superblock_of(flash: &dyn BlockDevice) -> Superblock {
    block_on(superblock::read(flash)).expect("a superblock").0
}

/// Returns offset and size of the log's frames.
fn frames_of(flash: &RamDevice) -> Vec<(u64, u64)> {
    let superblock = superblock_of(flash);
    let start = (superblock.log_start, superblock.entry_seq_next);
    let mut frames = Vec::new();
    let mut visit = |at: u64, header: &larder_format::FrameHeader, _: &[larder_format::LogEntry]| {
        frames.push((superblock.layout.log_offset + at, u64::from(header.frame_bytes)));
    };
    block_on(walk::log(flash, &superblock, start, &mut visit)).expect("read");
    frames
}

/// Repairs a flash with unreadable parts. Without the option for that, a repair refuses and writes
/// nothing.
fn given_up(bad: &Arc<BadSectors>) -> RepairReport {
    let before = bad.inner.snapshot();
    let refused = block_on(repair::repair(&**bad, &RepairOptions::default(), &mut |_, _| {})).expect_err("unread");
    assert!(refused.to_string().contains("--unread-is-lost"), "{refused}");
    assert!(bad.inner.snapshot() == before, "a repair that could not read has written");
    repaired(&**bad, RepairOptions { unread_is_lost: true, ..RepairOptions::default() })
}

#[test]
fn bad_sectors_in_a_slot_cost_the_records_in_them() {
    let flash = flash(true);
    let found = block_on(recovered(&*flash)).expect("recovered");
    let Lookup::Chunk { place, .. } = found.design.peek(Lba(2)) else { panic!("chunk 2 has a record") };
    let at = found.geometry.flash_offset(place.slot, place.offset) / 4096 * 4096;
    let bad = BadSectors::new(flash, at..at + 4096);
    let report = block_on(verify(&*bad, &mut |_, _| {})).expect("a cache");
    assert!(sentences(&report).contains("cannot be read"), "{}", sentences(&report));
    assert!(report.unread_bytes >= 512, "{report:?}");
    let done = given_up(&bad);
    assert!(done.whole && done.lost.contains(2 * CHUNK as u64), "{done:?}");
    assert!(done.records_moved > 0, "the others in that slot were moved: {done:?}");
    assert!((1..=6).contains(&done.dirty_chunks_lost), "{done:?}");
}

#[test]
fn a_device_that_refuses_reads_is_no_damaged_flash() {
    for kind in [IoErrorKind::Unaligned, IoErrorKind::Gone, IoErrorKind::OutOfRange] {
        let flash = flash(true);
        let before = flash.snapshot();
        let layout = superblock_of(&*flash).layout;
        for (from, end) in
            [(layout.log_offset, layout.log_offset + layout.log_bytes), (layout.slots_offset, layout.flash_bytes)]
        {
            let device = Faulty::new(flash.clone());
            device.plan().fail_range(IoOp::Read, from..end, kind, u64::MAX);
            let is_the_devices = |error: EngineError| matches!(error, EngineError::Io(error) if error.kind == kind);
            assert!(is_the_devices(block_on(verify(&device, &mut |_, _| {})).expect_err("refused")), "{kind:?}");
            for dry_run in [true, false] {
                let options = RepairOptions { dry_run, unread_is_lost: true, ..RepairOptions::default() };
                let refused = block_on(repair::repair(&device, &options, &mut |_, _| {})).expect_err("refused");
                assert!(is_the_devices(refused), "{kind:?}");
            }
            assert!(flash.snapshot() == before, "{kind:?}: it was written to");
        }
    }
}

#[test]
fn bad_sectors_in_the_log_may_hide_any_number_of_frames() {
    let flash = flash(false);
    let (at, bytes) = frames_of(&flash)[2];
    let bad = BadSectors::new(flash, at..at + bytes);
    let report = block_on(verify(&*bad, &mut |_, _| {})).expect("a cache");
    assert!(kinds(&report).contains(&"log"), "{}", sentences(&report));
    assert!(report.unread_bytes >= 512, "{report:?}");
    let done = given_up(&bad);
    assert!(done.whole, "{:?}", done.after);
    assert!(!done.log_gaps.is_empty() && done.unknown_entries.is_none(), "{:?}", done.log_gaps);
    assert!(bad.bad.lock().is_empty(), "what could not be read was written");
}

#[test]
fn bad_sectors_in_an_unused_part_of_a_sound_log_are_found_and_mended() {
    let flash = flash(true);
    let layout = superblock_of(&*flash).layout;
    let end = layout.log_offset + layout.log_bytes;
    let bad = BadSectors::new(flash, end - 4096..end);
    let report = block_on(verify(&*bad, &mut |_, _| {})).expect("a cache");
    assert!(!report.clean);
    assert!(report.unread_bytes >= 512, "{report:?}");
    let done = given_up(&bad);
    // The end was orderly: the checkpoint is complete without the log.
    assert!(done.whole && !done.loses_data(), "{done:?}");
}

#[test]
fn what_a_hole_in_the_log_makes_suspect_can_be_dropped() {
    let damage = || {
        let flash = flash(false);
        let frames = frames_of(&flash);
        flip(&flash, frames[frames.len() / 2].0 + 70);
        flash
    };
    let kept = damage();
    let done = repaired(&*kept, RepairOptions::default());
    assert!(done.whole && !done.suspect_dropped && !done.suspect.is_empty(), "{done:?}");
    let dirty_kept = done.after.as_ref().expect("checked").dirty_mappings;
    let dropped = damage();
    let done = repaired(&*dropped, RepairOptions { drop_suspect: true, ..RepairOptions::default() });
    assert!(done.whole && done.suspect_dropped, "{done:?}");
    let dirty_left = done.after.as_ref().expect("checked").dirty_mappings;
    assert!(0 < dirty_left && dirty_left < dirty_kept, "{dirty_left} of {dirty_kept}");
    // Entries after the hole are not suspect.
    let found = block_on(recovered(&*dropped)).expect("recovered");
    assert_eq!(found.design.peek(Lba(2)), Lookup::Miss);
    assert!(found.design.dirty_counts().runs == 1, "the trim came last");
}

#[test]
fn two_holes_in_the_log_are_two() {
    let flash = flash(false);
    let frames = frames_of(&flash);
    assert!(frames.len() >= 7, "{frames:?}");
    flip(&flash, frames[1].0 + 70);
    flip(&flash, frames[4].0 + 70);
    let done = repaired(&*flash, RepairOptions::default());
    assert!(done.whole);
    assert_eq!(done.log_gaps.iter().map(|gap| gap.frames).collect::<Vec<_>>(), [Some(1), Some(1)]);
    let lost: u64 = done.log_gaps.iter().filter_map(|gap| gap.entries).sum();
    assert_eq!(done.unknown_entries, Some(lost));
}

#[test]
fn a_block_of_slots_costs_nothing_and_no_generation_comes_twice() {
    let flash = flash(true);
    let before = block_on(recovered(&*flash)).expect("recovered");
    let superblock = superblock_of(&*flash);
    let pointer = superblock.checkpoint.expect("a checkpoint");
    let start = superblock.layout.checkpoint_offset[usize::from(pointer.area)];
    flip(&flash, start + 4096 + 80);
    let done = repaired(&*flash, RepairOptions::default());
    assert!(done.whole && !done.loses_data() && done.checkpoint_blocks_lost == 1, "{done:?}");
    let after = block_on(recovered(&*flash)).expect("recovered");
    let mappings = |found: &Salvaged| {
        let design = &found.design;
        let mut all: Vec<_> = (0..design.export_pieces())
            .flat_map(|piece| design.export_mappings(piece))
            .map(|m| format!("{m:?}"))
            .collect();
        all.sort();
        all
    };
    assert_eq!(mappings(&before), mappings(&after));
}

#[test]
fn a_repair_that_cannot_write_says_so_and_leaves_the_cache_as_it_was() {
    let flash = flash(true);
    let superblock = superblock_of(&*flash);
    flip(&flash, superblock.layout.slots_offset + 20);
    let image = flash.snapshot();
    let read_only = RamDevice::new("flash", 16 * MIB, 512);
    read_only.restore(&image);
    let read_only = read_only.read_only();
    let result = block_on(repair::repair(&read_only, &RepairOptions::default(), &mut |_, _| {}));
    assert!(result.is_err());
    assert!(read_only.snapshot() == image);
    let dry_run = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let planned = block_on(repair::repair(&read_only, &dry_run, &mut |_, _| {})).expect("a dry run");
    assert!(planned.needed && planned.records_moved > 0 && !planned.whole);
}
