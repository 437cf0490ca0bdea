//! Flash for a translation layer: state, counts and sink as one.
//!
//! Role: [`CountedFlash`] does an operation to the [`FlashArray`], counts it by its cause and tells
//! the sink, in one call.
//!
//! Invariant: there is no other way to program, read or erase, so the sink hears exactly the
//! counted operations.
//!
//! It does not decide. [`CountedFlash::invalidate`] makes pages invalid; that costs no operation,
//! and the sink does not hear of it.

use super::{
    array::FlashArray,
    counts::DriveCounts,
    geometry::{BlockId, DriveGeometry, Lpn, Ppa},
    op::{Cause, FlashOp, Hash, OpSink, PageSource},
};

/// A drive's flash; see the module.
#[derive(Debug)]
pub struct CountedFlash {
    array: FlashArray,
    counts: DriveCounts,
}

impl CountedFlash {
    /// Makes flash that was never programmed.
    ///
    /// # Panics
    /// If the geometry is not sound.
    pub fn new(geometry: DriveGeometry) -> Self {
        CountedFlash { array: FlashArray::new(geometry), counts: DriveCounts::default() }
    }

    /// Returns the state.
    pub fn array(&self) -> &FlashArray {
        &self.array
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> &DriveGeometry {
        self.array.geometry()
    }

    /// Returns the counts of all operations so far.
    pub fn counts(&self) -> &DriveCounts {
        &self.counts
    }

    /// Returns the counts, for the translation layer, which counts the host's requests.
    ///
    /// Operations are counted here.
    pub fn host_counts(&mut self) -> &mut DriveCounts {
        &mut self.counts
    }

    /// Reads a page.
    pub fn read(&mut self, ppa: Ppa, cause: Cause, sink: &mut dyn OpSink) {
        self.counts.reads[cause as usize] += 1;
        sink.op(&FlashOp::Read { ppa, cause });
    }

    /// Programs the next free page of `block`; see [`FlashArray::program`].
    ///
    /// # Panics
    /// If the block is fully programmed.
    pub fn program(
        &mut self,
        block: BlockId,
        owner: u32,
        source: PageSource,
        cause: Cause,
        sink: &mut dyn OpSink,
    ) -> Ppa {
        let ppa = self.array.program(block, owner);
        self.counts.programs[cause as usize] += 1;
        sink.op(&FlashOp::Program { ppa, source, cause });
        ppa
    }

    /// Programs the next free page of `block` with nothing: the page is invalid at once.
    ///
    /// # Panics
    /// If the block is fully programmed.
    pub fn pad(&mut self, block: BlockId, cause: Cause, sink: &mut dyn OpSink) {
        let ppa = self.program(block, u32::MAX, PageSource::Padding, cause, sink);
        self.array.invalidate(ppa);
    }

    /// Copies the valid page `from` to the next free page of `to`, with its owner.
    ///
    /// `from` is invalid then. The caller changes the mappings to it.
    ///
    /// # Panics
    /// If `from` is not valid, or `to` fully programmed.
    pub fn copy(&mut self, from: Ppa, to: BlockId, cause: Cause, sink: &mut dyn OpSink) -> Ppa {
        self.read(from, cause, sink);
        let ppa = self.program(to, self.array.owner(from), PageSource::Copy(from), cause, sink);
        self.array.invalidate(from);
        ppa
    }

    /// Erases a block without valid pages.
    ///
    /// # Panics
    /// If a page of it is valid.
    pub fn erase(&mut self, block: BlockId, cause: Cause, sink: &mut dyn OpSink) {
        self.array.erase(block);
        self.counts.erases[cause as usize] += 1;
        sink.op(&FlashOp::Erase { block, cause });
    }

    /// Hashes a page in the controller.
    pub fn hash(&mut self, hash: Hash, cause: Cause, sink: &mut dyn OpSink) {
        self.counts.hashes[hash as usize] += 1;
        sink.op(&FlashOp::Hash { hash, cause });
    }

    /// Reports a logical page that the drive has dropped; the caller invalidates its physical page.
    pub fn evicted(&mut self, lpn: Lpn, sink: &mut dyn OpSink) {
        self.counts.pages_evicted += 1;
        sink.op(&FlashOp::Evicted { lpn });
    }

    /// Makes a page invalid; see [`FlashArray::invalidate`].
    ///
    /// # Panics
    /// If the page is not valid.
    pub fn invalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        self.array.invalidate(ppa)
    }

    /// Makes a page valid again; see [`FlashArray::revalidate`].
    ///
    /// # Panics
    /// If the page is free or valid.
    pub fn revalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        self.array.revalidate(ppa)
    }

    /// Changes a page's owner; see [`FlashArray::set_owner`].
    pub fn set_owner(&mut self, ppa: Ppa, owner: u32) {
        self.array.set_owner(ppa, owner);
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        self.array.ram_bytes()
    }
}
