//! The superblock and its twin: read and choose at opening, written one after the other.
//!
//! Invariants: an update writes the twins in turn with a flush between them, so that a crash leaves at least one whole;
//! the newer valid one counts. Updates take turns.
//!
//! What it does not do: decide what is in it.

use crate::{error::EngineError, status::Counters, sync::Notify};
use larder_device::{BlockDevice, IoBuf, WriteFlags};
use larder_format::{
    FormatError, Superblock,
    layout::SUPERBLOCK_OFFSETS,
    superblock::{SUPERBLOCK_BYTES, choose},
};
use parking_lot::Mutex;
use std::sync::atomic::Ordering::*;

/// The superblock in force.
pub struct SuperblockKeeper {
    current: Mutex<(Superblock, bool)>,
    free: Notify,
}

/// Reads both twins: the one that counts, and whether the other needs repair.
///
/// # Errors
/// What is wrong with both.
pub async fn read(flash: &dyn BlockDevice) -> Result<(Superblock, Option<usize>), EngineError> {
    let mut twins = Vec::new();
    for offset in SUPERBLOCK_OFFSETS {
        if offset + SUPERBLOCK_BYTES as u64 > flash.info().size_bytes {
            let error = FormatError::Truncated {
                structure: larder_format::Structure::Superblock,
                needed_bytes: offset + SUPERBLOCK_BYTES as u64,
            };
            return Err(error.into());
        }
        // A twin that cannot be read counts as damaged.
        let bytes = flash.read(offset, IoBuf::new(SUPERBLOCK_BYTES)).await;
        twins.push(bytes.unwrap_or_else(|_| IoBuf::zeroed(SUPERBLOCK_BYTES)));
    }
    let chosen = choose(&twins[0], &twins[1])?;
    Ok((chosen.superblock, chosen.repair))
}

/// Writes a superblock to both twins.
///
/// # Errors
/// The device's.
pub async fn write(flash: &dyn BlockDevice, superblock: &Superblock) -> Result<u64, EngineError> {
    let bytes = superblock.encode();
    for offset in SUPERBLOCK_OFFSETS {
        flash.write(offset, IoBuf::copy_of(&bytes).freeze(), WriteFlags { fua: true }).await?;
    }
    Ok((bytes.len() * SUPERBLOCK_OFFSETS.len()) as u64)
}

impl SuperblockKeeper {
    /// Keeps what was read.
    pub fn new(superblock: Superblock) -> Self {
        SuperblockKeeper { current: Mutex::new((superblock, false)), free: Notify::default() }
    }

    /// A copy of the superblock in force.
    pub fn get(&self) -> Superblock {
        self.current.lock().0.clone()
    }

    /// Changes it, durably.
    ///
    /// # Errors
    /// The device's; then the old one is in force, though a twin may hold the new one.
    pub async fn update(
        &self,
        flash: &dyn BlockDevice,
        counters: &Counters,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), EngineError> {
        let mut next = loop {
            let free = self.free.listen();
            {
                let mut current = self.current.lock();
                if !current.1 {
                    current.1 = true;
                    break current.0.clone();
                }
            }
            free.await;
        };
        next.sequence += 1;
        change(&mut next);
        let result = write(flash, &next).await;
        {
            let mut current = self.current.lock();
            current.1 = false;
            // After a failure the sequence number is used up all the same: a twin may carry it.
            if result.is_ok() { current.0 = next } else { current.0.sequence = next.sequence }
        }
        self.free.notify();
        counters.flash_metadata_bytes_written.fetch_add(result?, Relaxed);
        Ok(())
    }
}
