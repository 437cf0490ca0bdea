//! The errors that the contract allows after a fault.
//!
//! Invariants: an error is allowed only if an earlier fault explains it. Reads of data on the
//! origin fail only if the origin fails. The same holds for writes and flushes of a volume without
//! dirty data, while the flash takes writes.
//!
//! It does not allow wrong data. Nothing does.

use crate::plan::{Device, FaultKind, Region};
use larder_device::IoOp;
use larder_engine::EngineError;

/// The way of a request, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Write-back all the while.
    Back,
    /// Another mode all the while.
    Through,
    /// The mode was being changed.
    Unknown,
}

/// The faults so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// In this life: reads of the flash fail.
    pub flash_reads: bool,
    /// Writes, flushes or discards of the flash fail, or it is gone.
    pub flash_changes: bool,
    /// Stray writes of the flash, and reads that bring other bits. A frame of the log survives one.
    mischiefs: u32,
    /// Reads of the origin fail.
    pub origin_reads: bool,
    /// Writes, zeroings or flushes of the origin fail.
    pub origin_changes: bool,
    /// In this life, requests went to the origin: clients may still hear of its flushes.
    pub was_through: bool,
    /// A fence cannot be kept.
    pub no_fence: bool,
    /// The cache is being closed.
    pub closing: bool,
    /// For good: a slot is damaged.
    pub slots_damaged: bool,
    /// So much metadata is damaged that the flash may be refused.
    pub metadata_damaged: bool,
    /// The superblock twins that were damaged since the opening that last wrote them, or during
    /// this one.
    twins_damaged: [bool; 2],
    /// The twins that were damaged at the start of the present opening, or of the one that was cut
    /// off.
    twins_damaged_before: [bool; 2],
    /// The newest frame of the log may be damaged: that looks like a crash, and its content is
    /// gone.
    pub log_damaged: bool,
    /// In this life: a write of the flash was lost.
    write_lost: bool,
    /// An operator began to detach the cache.
    pub detaching: bool,
    /// The flash has a wear budget. If the budget is used up, the flash counts as failed.
    pub wears_out: bool,
}

impl Trouble {
    /// Notes the beginning of a fault.
    pub fn note(&mut self, fault: &FaultKind) {
        let mischief = matches!(fault, FaultKind::LoseWrite | FaultKind::Misdirect { .. } | FaultKind::Misread { .. });
        self.mischiefs += u32::from(mischief);
        match *fault {
            FaultKind::Fail { device: Device::Flash, op: IoOp::Read, .. } => self.flash_reads = true,
            FaultKind::Fail { device: Device::Origin, op: IoOp::Read, .. } => self.origin_reads = true,
            FaultKind::Fail { device: Device::Flash, .. } | FaultKind::Full(Device::Flash) => self.flash_changes = true,
            FaultKind::Fail { device: Device::Origin, .. } | FaultKind::Full(Device::Origin) => {
                self.origin_changes = true;
            }
            FaultKind::Gone(Device::Flash) => (self.flash_reads, self.flash_changes) = (true, true),
            FaultKind::Gone(Device::Origin) => (self.origin_reads, self.origin_changes) = (true, true),
            FaultKind::Back(_) | FaultKind::Slow(..) => {}
            FaultKind::Flip { region: Region::Slots, .. } => self.slots_damaged = true,
            FaultKind::Flip { region: Region::Checkpoints, .. } => self.metadata_damaged = true,
            FaultKind::Flip { region: Region::Log, .. } => (self.metadata_damaged, self.log_damaged) = (true, true),
            FaultKind::Flip { region: Region::Twin(twin), .. } => self.twins_damaged[twin] = true,
            FaultKind::LoseWrite => {
                (self.slots_damaged, self.metadata_damaged, self.write_lost) = (true, true, true);
            }
            // Any place may have been hit.
            FaultKind::Misdirect { .. } | FaultKind::Misread { .. } => {
                (self.slots_damaged, self.metadata_damaged, self.log_damaged) = (true, true, true);
            }
            FaultKind::NoFence => self.no_fence = true,
        }
    }

    /// Ends a life: only the damage remains.
    pub fn life_ends(&mut self) {
        *self = Trouble {
            slots_damaged: self.slots_damaged,
            metadata_damaged: self.metadata_damaged,
            twins_damaged: self.twins_damaged,
            twins_damaged_before: self.twins_damaged_before,
            detaching: self.detaching,
            ..Trouble::default()
        };
    }

    /// Begins an opening. It writes both twins, but a fault may damage one again behind that.
    pub fn opening_begins(&mut self) {
        for (before, damaged) in self.twins_damaged_before.iter_mut().zip(&mut self.twins_damaged) {
            *before |= std::mem::take(damaged);
        }
    }

    /// Notes that the opening succeeded.
    pub fn opened(&mut self) {
        self.twins_damaged_before = [false; 2];
    }

    /// Forgets all faults: another flash is in place.
    pub fn new_flash(&mut self) {
        *self = Trouble::default();
    }

    /// Returns true if the log may lack a frame, unnoticed.
    ///
    /// The cache notices a lost frame at once, unless the flash cannot be read then.
    pub fn log_may_lack_a_frame(&self) -> bool {
        self.log_damaged || self.write_lost && self.flash_reads
    }

    fn devices_fail(&self) -> bool {
        self.flash_reads || self.flash_changes || self.origin_reads || self.origin_changes
    }

    fn flash(&self) -> bool {
        self.flash_reads || self.flash_changes || self.slots_damaged
    }

    /// Returns true if the cache may take the flash to have failed.
    ///
    /// The flash refuses changes, loses a frame of the log twice, or has used up its wear budget.
    /// Or it is full of dirty data that cannot be read.
    pub fn flash_may_fail(&self) -> bool {
        self.flash_changes || self.flash_reads || self.mischiefs > 1 || self.wears_out
    }

    /// Returns true if a read may fail.
    ///
    /// `perhaps_dirty`: the cache may hold data of it that the origin lacks.
    pub fn read_may_fail(&self, perhaps_dirty: bool) -> bool {
        self.origin_reads || (perhaps_dirty && self.flash())
    }

    /// Returns true if a write or trim may fail.
    ///
    /// `perhaps_dirty` as above, of the chunks that it touches. `fence`: the keeper would keep a
    /// fence, but for the faults.
    pub fn write_may_fail(&self, way: Way, perhaps_dirty: bool, fence: bool) -> bool {
        // Past a failed flash a write needs a fence and the origin. A part of a chunk needs the
        // rest of it, too.
        (self.flash_may_fail() && (!fence || self.no_fence || self.origin_changes || self.origin_reads))
            || (way != Way::Through && perhaps_dirty && self.flash())
            // Coarse sectors of the origin are read first.
            || (way != Way::Back && (self.origin_changes || self.origin_reads))
    }

    /// Returns true if a flush may fail.
    pub fn flush_may_fail(&self, way: Way) -> bool {
        let to_origin = way != Way::Back || self.was_through;
        (way != Way::Through && self.flash_may_fail()) || (to_origin && self.origin_changes)
    }

    /// Returns true if an operator's request may fail.
    pub fn operation_may_fail(&self) -> bool {
        self.closing || self.devices_fail() || self.wears_out || self.slots_damaged || self.no_fence
    }

    /// Returns true if closing may fail.
    pub fn closing_may_fail(&self) -> bool {
        self.devices_fail() || self.flash_may_fail()
    }

    /// Returns true if a read may meet a record that is damaged, or in another place.
    pub fn may_meet_damage(&self) -> bool {
        self.slots_damaged || self.metadata_damaged
    }

    /// Returns true if this opening may fail while the next may not.
    ///
    /// `fence_is_up`: and no option allows it to drop dirty data.
    pub fn opening_may_fail(&self, error: &EngineError, fence_is_up: bool) -> bool {
        match error {
            EngineError::Io(_) | EngineError::Flash(_) | EngineError::FlashFailed(_) | EngineError::Origin { .. } => {
                self.devices_fail() || self.wears_out
            }
            EngineError::Fenced { .. } => fence_is_up,
            EngineError::State(_) => self.no_fence,
            _ => false,
        }
    }

    /// Returns true if no fault may have cost a twin its newest superblock.
    pub fn twins_are_whole(&self) -> bool {
        !self.metadata_damaged && self.twins_damaged == [false; 2] && self.twins_damaged_before == [false; 2]
    }

    /// Returns true if the opening may be refused, now and for ever.
    pub fn opening_may_be_refused(&self, error: &EngineError) -> bool {
        let twin_damaged = |twin| self.twins_damaged[twin] || self.twins_damaged_before[twin];
        let damaged = self.metadata_damaged || (twin_damaged(0) && twin_damaged(1));
        match error {
            EngineError::Format(_) | EngineError::LogDamaged { .. } | EngineError::Invalid(_) => damaged,
            EngineError::Detached => self.detaching,
            _ => false,
        }
    }
}

/// Checks of this module.
pub mod checks {
    use super::*;

    /// Without a fault no request may fail, and a fault excuses only its own errors.
    pub fn errors_need_a_reason() {
        let calm = Trouble::default();
        assert!(
            !calm.read_may_fail(true)
                && !calm.write_may_fail(Way::Unknown, true, false)
                && !calm.flush_may_fail(Way::Unknown)
        );
        assert!(!calm.operation_may_fail() && !calm.opening_may_be_refused(&EngineError::Invalid(String::new())));
        let mut rotten = calm;
        rotten.note(&FaultKind::Flip { region: Region::Slots, place: 0, seed: 0 });
        assert!(rotten.read_may_fail(true) && !rotten.read_may_fail(false), "clean data is on the origin, too");
        assert!(!rotten.flush_may_fail(Way::Unknown) && !rotten.write_may_fail(Way::Through, true, true));
        let mut origin = calm;
        origin.note(&FaultKind::Gone(Device::Origin));
        assert!(origin.write_may_fail(Way::Through, false, true) && !origin.write_may_fail(Way::Back, true, true));
        let mut gone = calm;
        gone.note(&FaultKind::Gone(Device::Flash));
        assert!(gone.write_may_fail(Way::Through, false, false), "without a fence");
        assert!(!gone.write_may_fail(Way::Through, false, true) && !gone.read_may_fail(false));
        assert!(!gone.flush_may_fail(Way::Through) && gone.flush_may_fail(Way::Back));
        let mut twin = calm;
        twin.note(&FaultKind::Flip { region: Region::Twin(0), place: 0, seed: 0 });
        let error = EngineError::Invalid(String::new());
        assert!(!twin.opening_may_be_refused(&error), "one twin is enough");
        twin.note(&FaultKind::Flip { region: Region::Twin(1), place: 0, seed: 0 });
        assert!(twin.opening_may_be_refused(&error));
    }
}
