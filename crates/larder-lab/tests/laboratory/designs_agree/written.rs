//! The engine's writes to flash, byte for byte: its counts, the device's, and the decisions'
//! demands.
//!
//! - *Slots and the metadata region* get the bytes that the simulator decided: the compared counts
//!   are those of the device.
//! - *The metadata log* has no simulator: the moment of a commit, and the entries of a frame,
//!   depend on time. A rule binds its bytes all the same. A frame is a header and its entries,
//!   padded to a sector. Each entry is owed to one decision, which the simulator made, too. A dirty
//!   chunk, a fragment and a trim are one entry under the decision's own number. An eviction is
//!   one, each newly clean chunk is one, and each dropped address is one. A change of the origin
//!   has one at most, for any mapping there. A clean chunk has one at most. It is logged when its
//!   record is written and the origin was flushed, if it is still mapped then.
//! - *Checkpoints and superblocks* are the rest of the device, as many bytes as the engine says.
//!
//!   A slot that goes at once, for a waiter, has had its entry on the way before.
//!
//! It leaves out writes that fail.

use larder_core::{
    Lba,
    decisions::{Answer, Event},
};
use larder_device::{BlockDevice, DeviceInfo, IoBuf, IoFuture, SharedBuf, WriteFlags, ZeroFlags, sim::SimDevice};
use larder_engine::Cache;
use larder_format::{
    Layout, LogEntry, Superblock,
    log::{decode_frame, frame_bytes_for},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Written bytes, by their region.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Bytes {
    pub slots: u64,
    pub region: u64,
    pub log: u64,
    /// Checkpoints and superblocks.
    pub rest: u64,
}

/// The debts of the decisions to the log, and the entries found there.
#[derive(Default)]
struct Owed {
    bytes: Bytes,
    frames: u64,
    entries: u64,
    /// The first dirty chunk under a number.
    dirty: HashMap<u64, Lba>,
    clean: HashSet<(Lba, u64)>,
    runs: HashSet<u64>,
    /// Evicted slots without a log entry so far.
    evicted: HashSet<u32>,
    /// Slots that the log frees without an eviction at that time, and those of them that went.
    freed_ahead: u64,
    reused: u64,
    /// Dropped addresses, and later changes, each of which may have an entry.
    dropped: u64,
    changes: u64,
    forgotten: u64,
    /// Clean chunks that were inserted, or mapped again by a read.
    may_map: u64,
    mapped: u64,
}

/// Both sides of the account.
pub struct Ledger {
    layout: Layout,
    flash_tag: u64,
    owed: Mutex<Owed>,
}

impl Ledger {
    pub fn of(made: &Superblock) -> Arc<Ledger> {
        Arc::new(Ledger { layout: made.layout, flash_tag: made.flash_tag(), owed: Mutex::default() })
    }

    /// Watches the flash from now on.
    pub fn watch(self: &Arc<Self>, flash: Arc<SimDevice>) -> Arc<Watched> {
        Arc::new(Watched { flash, ledger: self.clone() })
    }

    /// Notes a decision of the engine.
    pub fn decided(&self, event: &Event, answer: &Answer) {
        let mut owed = self.owed.lock();
        match (event, answer) {
            (Event::Insert { lba, dirty: Some(seq), .. } | Event::Fragment { lba, seq, .. }, _)
            | (Event::Trim { first: lba, seq, .. }, _) => {
                assert_eq!(owed.dirty.insert(*seq, *lba), None, "two decisions of one number: {event:?}");
            }
            (Event::Insert { dirty: None, .. }, _) | (Event::Read { .. } | Event::Merge { .. }, Answer::Hit(_)) => {
                owed.may_map += 1;
            }
            (Event::Evict, Answer::Slot(slot)) => assert!(owed.evicted.insert(slot.0), "{slot:?} is evicted twice"),
            (Event::Reuse { .. }, Answer::Count(slots)) => {
                owed.reused += slots;
                assert!(owed.reused <= owed.freed_ahead, "{event:?}: its slots are free by no entry");
            }
            (Event::Clean { lba, seq }, Answer::Count(1)) => assert!(owed.clean.insert((*lba, *seq)), "clean twice"),
            (Event::CleanRun { seq, .. }, _) => drop(owed.runs.insert(*seq)),
            (Event::Drop { .. }, Answer::Count(count)) => owed.dropped += count,
            (Event::Change { .. } | Event::Forget { .. }, _) => owed.changes += 1,
            _ => {}
        }
    }

    fn written(&self, offset: u64, data: &[u8]) {
        let Layout { log_offset, log_bytes, region_offset, slots_offset, .. } = self.layout;
        let mut owed = self.owed.lock();
        let bytes = data.len() as u64;
        let is_in = |start: u64, len: u64| (start..start + len).contains(&offset);
        if offset >= slots_offset {
            owed.bytes.slots += bytes;
        } else if is_in(region_offset, self.layout.region_bytes()) {
            owed.bytes.region += bytes;
        } else if is_in(log_offset, log_bytes) {
            owed.bytes.log += bytes;
            self.frame(&mut owed, data);
        } else {
            owed.bytes.rest += bytes;
        }
    }

    fn frame(&self, owed: &mut Owed, data: &[u8]) {
        let (header, entries) = decode_frame(data, self.flash_tag).expect("a frame is written whole, and alone");
        assert_eq!(data.len(), frame_bytes_for(entries.len(), self.layout.sector_bytes), "{header:?}");
        owed.frames += 1;
        for (seq, entry) in (header.start.first_entry_seq..).zip(entries) {
            owed.entries += 1;
            match entry {
                LogEntry::Map { lba, dirty: true, .. }
                | LogEntry::MapZero { lba, dirty: true }
                | LogEntry::Fragment { lba, dirty: true, .. }
                | LogEntry::Trim { lba, dirty: true, .. } => {
                    assert_eq!(owed.dirty.remove(&seq), Some(Lba(lba)), "{seq}: {entry:?} is owed to no decision");
                }
                LogEntry::Map { dirty: false, .. } | LogEntry::MapZero { dirty: false, .. } => owed.mapped += 1,
                LogEntry::SlotFreed { slot, .. } => {
                    if !owed.evicted.remove(&slot) {
                        // In buckets, likely victims are freed ahead.
                        assert!(self.layout.region_bytes() > 0, "slot {slot} is freed, and nobody evicted it");
                        owed.freed_ahead += 1;
                    }
                }
                LogEntry::Clean { lba, map_seq, .. } => {
                    let is_owed = owed.clean.remove(&(Lba(lba), map_seq)) || owed.runs.contains(&map_seq);
                    assert!(is_owed, "{entry:?} is owed to no decision");
                }
                LogEntry::Invalidate { .. } => owed.forgotten += 1,
                LogEntry::Fragment { dirty: false, .. }
                | LogEntry::Trim { dirty: false, .. }
                | LogEntry::Mode { .. } => {
                    panic!("{entry:?} is owed to nothing that was asked")
                }
            }
        }
    }

    /// Checks the whole account, after the cache was closed and has nothing more to write.
    pub fn check(&self, cache: &Cache, what: &str) -> Bytes {
        let owed = self.owed.lock();
        let status = cache.status();
        let said = Bytes {
            slots: status.counts.flash_segment_bytes_written,
            region: status.counts.flash_region_bytes_written,
            log: status.counts.flash_log_bytes_written,
            rest: status.counts.flash_metadata_bytes_written,
        };
        assert_eq!(owed.bytes, said, "{what}: the device and the engine");
        assert_eq!(status.flash_bytes_written, said.slots + said.region + said.log + said.rest, "{what}: in all");
        assert!(owed.dirty.is_empty(), "{what}: dirty, and not in the log: {:?}", owed.dirty);
        assert!(owed.clean.is_empty(), "{what}: clean, and not in the log: {:?}", owed.clean);
        assert!(owed.evicted.is_empty(), "{what}: slots evicted, and not in the log: {:?}", owed.evicted);
        // A mapping that never came to the log is dropped without an entry.
        let unlogged = owed.may_map - owed.mapped.min(owed.may_map);
        let forgotten = owed.dropped.saturating_sub(unlogged)..=owed.dropped + owed.changes;
        assert!(forgotten.contains(&owed.forgotten), "{what}: {} entries forget, not {forgotten:?}", owed.forgotten);
        assert!(owed.mapped <= owed.may_map, "{what}: {} clean entries, not {}", owed.mapped, owed.may_map);
        println!("{what}: {} entries in {} frames, {said:?}", owed.entries, owed.frames);
        said
    }
}

/// A flash that notes the writes to it.
pub struct Watched {
    flash: Arc<SimDevice>,
    ledger: Arc<Ledger>,
}

impl BlockDevice for Watched {
    fn info(&self) -> &DeviceInfo {
        self.flash.info()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> IoFuture<IoBuf> {
        self.flash.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> IoFuture<()> {
        self.ledger.written(offset, &data);
        self.flash.write(offset, data, flags)
    }

    fn flush(&self) -> IoFuture<()> {
        self.flash.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<()> {
        self.flash.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: ZeroFlags) -> IoFuture<()> {
        let zeroes = vec![0; len as usize];
        self.ledger.written(offset, &zeroes);
        self.flash.write_zeroes(offset, len, flags)
    }
}
