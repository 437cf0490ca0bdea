//! Flash as a translation layer works on it: state, counts and sink as one.
//!
//! Role: [`Flash`] does an operation to the [`FlashArray`], counts it by its cause and tells the sink, in one call.
//!
//! Invariant: there is no other way to program, read or erase, so that what a sink heard is what was counted and done.
//!
//! What it does not do: decide. Pages become invalid with [`Flash::invalidate`]; that costs no operation, and nobody is
//! told.

use super::{
    array::FlashArray,
    counts::Counts,
    geometry::{BlockId, Geometry, Lpn, Ppa},
    op::{Cause, Hash, Op, Sink, Source},
};

/// See the module.
#[derive(Debug)]
pub struct Flash {
    array: FlashArray,
    counts: Counts,
}

impl Flash {
    /// Flash that was never programmed.
    ///
    /// # Panics
    /// If the geometry is not sound.
    pub fn new(geometry: Geometry) -> Self {
        Flash { array: FlashArray::new(geometry), counts: Counts::default() }
    }

    /// The state.
    pub fn array(&self) -> &FlashArray {
        &self.array
    }

    /// How it is built.
    pub fn geometry(&self) -> &Geometry {
        self.array.geometry()
    }

    /// What was done until now.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The counts of the host's requests are the translation layer's to keep; those of operations are kept here.
    pub fn host_counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Reads a page.
    pub fn read(&mut self, ppa: Ppa, cause: Cause, sink: &mut dyn Sink) {
        self.counts.reads[cause as usize] += 1;
        sink.op(&Op::Read { ppa, cause });
    }

    /// Programs the next free page of `block`; see [`FlashArray::program`].
    ///
    /// # Panics
    /// If the block is fully programmed.
    pub fn program(&mut self, block: BlockId, owner: u32, source: Source, cause: Cause, sink: &mut dyn Sink) -> Ppa {
        let ppa = self.array.program(block, owner);
        self.counts.programs[cause as usize] += 1;
        sink.op(&Op::Program { ppa, source, cause });
        ppa
    }

    /// Programs the next free page of `block` with nothing: the page is invalid at once.
    ///
    /// # Panics
    /// If the block is fully programmed.
    pub fn pad(&mut self, block: BlockId, cause: Cause, sink: &mut dyn Sink) {
        let ppa = self.program(block, u32::MAX, Source::Padding, cause, sink);
        self.array.invalidate(ppa);
    }

    /// Reads the valid page `from` and programs it to the next free page of `to`, with its owner. `from` is invalid
    /// then. What maps to it is the caller's to change.
    ///
    /// # Panics
    /// If `from` is not valid, or `to` fully programmed.
    pub fn copy(&mut self, from: Ppa, to: BlockId, cause: Cause, sink: &mut dyn Sink) -> Ppa {
        self.read(from, cause, sink);
        let ppa = self.program(to, self.array.owner(from), Source::Copy(from), cause, sink);
        self.array.invalidate(from);
        ppa
    }

    /// Erases a block without valid pages.
    ///
    /// # Panics
    /// If a page of it is valid.
    pub fn erase(&mut self, block: BlockId, cause: Cause, sink: &mut dyn Sink) {
        self.array.erase(block);
        self.counts.erases[cause as usize] += 1;
        sink.op(&Op::Erase { block, cause });
    }

    /// The controller hashes a page.
    pub fn hash(&mut self, hash: Hash, cause: Cause, sink: &mut dyn Sink) {
        self.counts.hashes[hash as usize] += 1;
        sink.op(&Op::Hash { hash, cause });
    }

    /// The drive has dropped a logical page; its physical one is the caller's to invalidate.
    pub fn evicted(&mut self, lpn: Lpn, sink: &mut dyn Sink) {
        self.counts.pages_evicted += 1;
        sink.op(&Op::Evicted { lpn });
    }

    /// See [`FlashArray::invalidate`].
    ///
    /// # Panics
    /// If the page is not valid.
    pub fn invalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        self.array.invalidate(ppa)
    }

    /// See [`FlashArray::revalidate`].
    ///
    /// # Panics
    /// If the page is free or valid.
    pub fn revalidate(&mut self, ppa: Ppa) -> (BlockId, u32) {
        self.array.revalidate(ppa)
    }

    /// See [`FlashArray::set_owner`].
    pub fn set_owner(&mut self, ppa: Ppa, owner: u32) {
        self.array.set_owner(ppa, owner);
    }

    /// Bytes that are allocated.
    pub fn ram_bytes(&self) -> u64 {
        self.array.ram_bytes()
    }
}
