//! Which errors the contract allows, after what went wrong.
//!
//! Invariants: an error is allowed only where something went wrong that explains it. Reads of what the origin has fail
//! only where the origin does; so do writes and flushes of a volume without dirty data, while the flash takes writes.
//!
//! What it does not do: allow wrong data. Nothing does.

use crate::plan::{Device, FaultKind, Region};
use larder_device::IoOp;
use larder_engine::EngineError;

/// Which way a request went, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Write-back all the while.
    Back,
    /// Another mode all the while.
    Through,
    /// The mode was being changed.
    Unknown,
}

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// In this life: reads of the flash fail.
    pub flash_reads: bool,
    /// Writes, flushes or discards of the flash fail, or it is gone.
    pub flash_changes: bool,
    /// Writes of the flash that go astray, and reads that bring other bits. A frame of the log survives one.
    mischiefs: u32,
    /// Reads of the origin fail.
    pub origin_reads: bool,
    /// Writes, zeroings or flushes of the origin fail.
    pub origin_changes: bool,
    /// In this life, requests went to the origin: clients may yet be told of its flushes.
    pub was_through: bool,
    /// A fence cannot be kept.
    pub no_fence: bool,
    /// The cache is being closed.
    pub closing: bool,
    /// For good: something in the slots is damaged.
    pub slots_damaged: bool,
    /// So much metadata is damaged that the flash may be refused.
    pub metadata_damaged: bool,
    /// These superblock twins were damaged since an opening last wrote them, or during the one that goes on.
    twins_damaged: [bool; 2],
    /// These were damaged when the opening began that goes on, or that was cut off.
    twins_damaged_before: [bool; 2],
    /// The newest frame of the log may be damaged: that looks like a crash, and what it said is gone.
    pub log_damaged: bool,
    /// Somebody began to detach the cache.
    pub detaching: bool,
}

impl Trouble {
    /// A fault begins.
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
            // A frame of the log that was lost is noticed at once.
            FaultKind::LoseWrite => (self.slots_damaged, self.metadata_damaged) = (true, true),
            // Whatever it was that they hit.
            FaultKind::Misdirect { .. } | FaultKind::Misread { .. } => {
                (self.slots_damaged, self.metadata_damaged, self.log_damaged) = (true, true, true);
            }
            FaultKind::NoFence => self.no_fence = true,
        }
    }

    /// A life ends: what is left is the damage.
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

    /// An opening begins. It writes both twins, but what happens to one meanwhile may happen behind that.
    pub fn opening_begins(&mut self) {
        for (before, damaged) in self.twins_damaged_before.iter_mut().zip(&mut self.twins_damaged) {
            *before |= std::mem::take(damaged);
        }
    }

    /// It succeeded.
    pub fn opened(&mut self) {
        self.twins_damaged_before = [false; 2];
    }

    /// Another flash is in place.
    pub fn new_flash(&mut self) {
        *self = Trouble::default();
    }

    fn devices_fail(&self) -> bool {
        self.flash_reads || self.flash_changes || self.origin_reads || self.origin_changes
    }

    fn flash(&self) -> bool {
        self.flash_reads || self.flash_changes || self.slots_damaged
    }

    /// Whether the cache may take the flash to have failed: it refuses changes, loses a frame of the log twice, or is full of
    /// dirty data that cannot be read.
    pub fn flash_may_fail(&self) -> bool {
        self.flash_changes || self.flash_reads || self.mischiefs > 1
    }

    /// Whether a read may fail. `perhaps_dirty`: the cache may hold something of it that the origin lacks.
    pub fn read_may_fail(&self, perhaps_dirty: bool) -> bool {
        self.origin_reads || (perhaps_dirty && self.flash())
    }

    /// Whether a write or trim may fail. `perhaps_dirty` as above, of the chunks that it touches; `fence`: one could be
    /// kept, were it not for what went wrong.
    pub fn write_may_fail(&self, way: Way, perhaps_dirty: bool, fence: bool) -> bool {
        // Past a flash that failed a write needs a fence, and the origin; a part of a chunk needs the rest of it, too.
        (self.flash_may_fail() && (!fence || self.no_fence || self.origin_changes || self.origin_reads))
            || (way != Way::Through && perhaps_dirty && self.flash())
            // Coarse sectors of the origin are read first.
            || (way != Way::Back && (self.origin_changes || self.origin_reads))
    }

    /// Whether a flush may fail.
    pub fn flush_may_fail(&self, way: Way) -> bool {
        let to_origin = way != Way::Back || self.was_through;
        (way != Way::Through && self.flash_may_fail()) || (to_origin && self.origin_changes)
    }

    /// Whether what an operator asks for may fail.
    pub fn operation_may_fail(&self) -> bool {
        self.closing || self.devices_fail() || self.slots_damaged || self.no_fence
    }

    /// Whether closing may fail.
    pub fn closing_may_fail(&self) -> bool {
        self.devices_fail() || self.flash_may_fail()
    }

    /// Whether a record that a read meets may be damaged, or in another place.
    pub fn may_meet_damage(&self) -> bool {
        self.slots_damaged || self.metadata_damaged
    }

    /// Whether opening may fail, and the next may not. `fence_is_up`: and nobody allowed to drop dirty data.
    pub fn opening_may_fail(&self, error: &EngineError, fence_is_up: bool) -> bool {
        match error {
            EngineError::Io(_) | EngineError::Flash(_) | EngineError::FlashFailed(_) => self.devices_fail(),
            EngineError::Fenced { .. } => fence_is_up,
            EngineError::State(_) => self.no_fence,
            _ => false,
        }
    }

    /// Whether opening may be refused, now and for ever.
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

/// Checks of the above.
pub mod checks {
    use super::*;

    /// Nothing may fail where nothing went wrong, and what cannot explain an error does not excuse it.
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
