//! The superblock and its twin: read and choose at opening, written one after the other.
//!
//! Invariants: an update writes the twins in turn, each durably before the next. It begins with the
//! twin that may be damaged. So a crash leaves at least one whole twin, even after a crash that
//! tore the other. The newer valid twin counts. Updates take turns.
//!
//! It does not decide its content.

use crate::{error::EngineError, status::counters::Counters, sync::Turns};
use larder_device::{BlockDevice, IoBuf, IoErrorKind, WriteFlags};
use larder_format::{
    FormatError, Superblock,
    layout::{SECTOR_BYTES_MAX, SUPERBLOCK_OFFSETS},
    superblock::{SUPERBLOCK_BYTES, choose},
};
use parking_lot::Mutex;
use std::sync::atomic::Ordering::*;

/// The superblock in force.
pub struct SuperblockKeeper {
    current: Mutex<Current>,
    updates: Turns,
}

struct Current {
    superblock: Superblock,
    /// The number of the newest superblock that both twins have.
    durable_sequence: u64,
    /// An update failed or was dropped: a twin may hold a superblock that is not in force.
    uncertain: bool,
    /// The twin to write first: the other one is whole.
    first: usize,
}

/// Reads both twins. Returns the superblock that counts, and the twin to repair, if any.
///
/// # Errors
/// The fault of both twins. The device's error, if one twin cannot be read and the other is
/// invalid.
pub async fn read(flash: &dyn BlockDevice) -> Result<(Superblock, Option<usize>), EngineError> {
    let info = flash.info();
    if info.sector_bytes > SECTOR_BYTES_MAX {
        return Err(EngineError::Invalid(format!(
            "{} has sectors of {} bytes, and a Larder flash can be on sectors of at most {SECTOR_BYTES_MAX} bytes: bring it to such a device",
            info.name, info.sector_bytes
        )));
    }
    let mut twins = Vec::new();
    let mut unread = None;
    for offset in SUPERBLOCK_OFFSETS {
        if offset + SUPERBLOCK_BYTES as u64 > flash.info().size_bytes {
            let error = FormatError::Truncated {
                structure: larder_format::Structure::Superblock,
                needed_bytes: offset + SUPERBLOCK_BYTES as u64,
            };
            return Err(error.into());
        }
        twins.push(match flash.read(offset, IoBuf::new(SUPERBLOCK_BYTES)).await {
            Ok(bytes) => bytes,
            // A twin that cannot be read counts as damaged.
            Err(error) if matches!(error.kind, IoErrorKind::Io | IoErrorKind::Corrupt) => {
                unread = Some(error);
                IoBuf::zeroed(SUPERBLOCK_BYTES)
            }
            // The device refuses the read for any content.
            Err(error) => return Err(error.into()),
        });
    }
    match (choose(&twins[0], &twins[1]), unread) {
        (Ok(chosen), _) => Ok((chosen.superblock, chosen.repair)),
        (Err(newer @ FormatError::NewerVersion { .. }), _) => Err(newer.into()),
        // The unread twin's content is unknown: the device is to blame, not the content.
        (Err(_), Some(error)) => Err(error.into()),
        (Err(error), None) => Err(error.into()),
    }
}

/// Writes a superblock to both twins, first to the damaged or older one.
///
/// # Errors
/// Errors of the device, and one for a flash that may only be read.
pub async fn write(
    flash: &dyn BlockDevice,
    superblock: &Superblock,
    damaged: Option<usize>,
) -> Result<(), EngineError> {
    superblock.check_writable()?;
    let first = damaged.unwrap_or(0);
    write_twin(flash, superblock, first).await?;
    write_twin(flash, superblock, 1 - first).await
}

async fn write_twin(flash: &dyn BlockDevice, superblock: &Superblock, number: usize) -> Result<(), EngineError> {
    let (offset, twin) = (SUPERBLOCK_OFFSETS[number], IoBuf::copy_of(&superblock.encode()).freeze());
    flash.write(offset, twin, WriteFlags { fua: true }).await.map_err(EngineError::Flash)
}

impl SuperblockKeeper {
    /// Returns a keeper of the superblock that was read, and of its damaged or older twin.
    pub fn new(superblock: Superblock, damaged: Option<usize>) -> Self {
        let (durable_sequence, first) = (superblock.sequence, damaged.unwrap_or(0));
        let current = Current { superblock, durable_sequence, uncertain: false, first };
        SuperblockKeeper { current: Mutex::new(current), updates: Turns::default() }
    }

    /// Returns whether a twin on flash may differ from the superblock in force.
    pub fn is_uncertain(&self) -> bool {
        self.current.lock().uncertain
    }

    /// Returns the number of the newest superblock that is durable.
    pub fn durable_sequence(&self) -> u64 {
        self.current.lock().durable_sequence
    }

    /// Returns a copy of the superblock in force.
    pub fn get(&self) -> Superblock {
        self.current.lock().superblock.clone()
    }

    /// Changes the superblock, durably.
    ///
    /// # Errors
    /// Errors of the device; then the old one is in force, though a twin may hold the new one.
    pub async fn update(
        &self,
        flash: &dyn BlockDevice,
        counters: &Counters,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), EngineError> {
        let _turn = self.updates.ask().granted().await;
        let (mut next, first) = {
            let mut current = self.current.lock();
            current.uncertain = true;
            // The number is used up in any case: a twin may carry it.
            current.superblock.advance();
            (current.superblock.clone(), current.first)
        };
        change(&mut next);
        next.check_writable()?;
        write_twin(flash, &next, first).await?;
        // If the next write is torn, this twin is the whole one.
        self.current.lock().first = 1 - first;
        write_twin(flash, &next, 1 - first).await?;
        let durable_sequence = next.sequence;
        *self.current.lock() = Current { superblock: next, durable_sequence, uncertain: false, first: 0 };
        let written = SUPERBLOCK_BYTES * SUPERBLOCK_OFFSETS.len();
        counters.flash_metadata_bytes_written.fetch_add(written as u64, Relaxed);
        Ok(())
    }
}
