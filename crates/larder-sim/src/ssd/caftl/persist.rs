//! When the layer's own pages are programmed: metadata, journal and tables (CAFTL sections 3.3.2 and 3.3.3).
//!
//! Role: [`Caftl::settle`] does, after each change, what the change made necessary: it brings metadata pages into RAM and
//! programs those that give way, programs a full log as a page of the journal, and writes the tables out when the journal
//! is long enough.
//!
//! Invariants: a page's new version is programmed before the old one is given up, and so are all pages of the tables
//! before the journal. What stands for flash changes once the last of these pages is programmed, never before. Of the
//! tables only those pages are programmed that have changed.
//!
//! What it does not do: decide what is worth remembering, or stop in the midst: between two operations of one request
//! the layer is in no state that a start could begin from.

use super::{Caftl, books::Owner, options::Sizes};
use crate::ssd::{
    geometry::Ppa,
    op::{Cause, Hash, Sink, Source},
    space::Stream,
};

/// No page.
const NONE: u32 = u32::MAX;

/// The layer's own pages in flash, by what they hold: their numbers in `Internals`.
#[derive(Debug)]
pub(super) struct OwnPages {
    primary: Vec<u32>,
    secondary: Vec<u32>,
    journal: Vec<u32>,
    /// The metadata page array.
    metadata: Vec<u32>,
    is_syncing: bool,
}

impl OwnPages {
    pub fn new(sizes: &Sizes) -> Self {
        OwnPages {
            primary: vec![NONE; sizes.primary_pages as usize],
            secondary: vec![NONE; sizes.secondary_pages as usize],
            journal: Vec::new(),
            metadata: vec![NONE; sizes.metadata_pages as usize],
            is_syncing: false,
        }
    }

    /// All that a start reads to have the tables: these, then the journal.
    pub fn tables_and_journal(&self) -> impl Iterator<Item = u32> {
        self.primary.iter().chain(&self.secondary).chain(&self.journal).copied().filter(|&id| id != NONE)
    }

    /// All metadata pages that were ever written, each with its number among the layer's own.
    pub fn metadata(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(self.metadata.iter().copied()).filter(|&(_, id)| id != NONE)
    }

    pub fn ram_bytes(&self) -> u64 {
        let numbers = [&self.primary, &self.secondary, &self.journal, &self.metadata];
        numbers.iter().map(|numbers| (numbers.capacity() * size_of::<u32>()) as u64).sum()
    }
}

impl Caftl {
    /// Does what changes have made necessary.
    pub(super) fn settle(&mut self, sink: &mut dyn Sink) {
        loop {
            if let Some((metadata_page, changes)) = self.books.pages.next_wanted() {
                self.bring_in(metadata_page, changes, sink);
            } else if self.books.hashes_due > 0 {
                self.books.hashes_due -= 1;
                self.flash().hash(Hash::Sha1, Cause::OutOfLine, sink);
            } else if self.books.log.len() >= self.sizes.log_records {
                if self.options.capacitor {
                    self.write_journal_page(sink);
                } else {
                    self.write_log(sink);
                }
            } else if let Some(ppa) = self.books.collected.pop() {
                self.meet(ppa);
            } else if self.own.journal.len() as u32 >= self.sizes.journal_pages_max && !self.own.is_syncing {
                self.sync(sink);
            } else {
                return;
            }
        }
    }

    /// Programs a page of the layer's own; its number.
    pub(super) fn program_own(&mut self, cause: Cause, sink: &mut dyn Sink) -> u32 {
        let id = self.books.internals.reserve();
        let ppa = self.append(Stream::Internal, Owner::Internal(id), Source::Internal, cause, sink);
        self.books.internals.set(id, ppa);
        id
    }

    /// A page of the layer's own is of no use any longer.
    pub(super) fn give_up_own(&mut self, id: u32) {
        if id != NONE {
            let ppa = self.books.internals.release(id);
            self.space.invalidate(ppa);
        }
    }

    pub(super) fn read_own(&mut self, id: u32, cause: Cause, sink: &mut dyn Sink) {
        let ppa: Ppa = self.books.internals.get(id);
        self.flash().read(ppa, cause, sink);
    }

    /// All of the log goes to the journal, the last page of it with room left.
    pub(super) fn write_log(&mut self, sink: &mut dyn Sink) {
        while !self.books.log.is_empty() {
            self.write_journal_page(sink);
        }
        self.erased.clear();
    }

    /// The oldest of the log goes to the journal.
    pub(super) fn write_journal_page(&mut self, sink: &mut dyn Sink) {
        let id = self.program_own(Cause::Journal, sink);
        self.own.journal.push(id);
        self.durable.append(self.books.log.take(self.sizes.records_per_page as usize));
    }

    /// 1. What has changed of the tables is programmed, as it is now. 2. The old pages, and the journal, are given up:
    ///    until then they are what stands for flash. What is moved meanwhile stays in the log.
    fn sync(&mut self, sink: &mut dyn Sink) {
        self.own.is_syncing = true;
        self.books.counts.syncs += 1;
        let (primary, secondary) = self.books.log.take_changed_pages();
        let (records, erased) = (self.books.log.len(), self.erased.len());
        let new_primary: Vec<u32> = primary.iter().map(|_| self.program_own(Cause::MapTable, sink)).collect();
        let new_secondary: Vec<u32> = secondary.iter().map(|_| self.program_own(Cause::MapTable, sink)).collect();
        self.durable.sync(&mut self.books.log, records);
        self.erased.drain(..erased);
        let mut old = std::mem::take(&mut self.own.journal);
        for (page, id) in primary.into_iter().zip(new_primary) {
            old.push(std::mem::replace(&mut self.own.primary[page as usize], id));
        }
        for (page, id) in secondary.into_iter().zip(new_secondary) {
            old.push(std::mem::replace(&mut self.own.secondary[page as usize], id));
        }
        for id in old {
            self.give_up_own(id);
        }
        self.own.is_syncing = false;
    }

    fn bring_in(&mut self, metadata_page: u32, changes: bool, sink: &mut dyn Sink) {
        if let Some(dirty) = self.books.pages.bring_in(metadata_page, changes) {
            self.program_metadata(dirty, sink);
        }
        self.books.counts.metadata_pages_brought_in += 1;
        let id = self.own.metadata[metadata_page as usize];
        if id != NONE {
            self.read_own(id, Cause::Metadata, sink);
        }
    }

    pub(super) fn program_metadata(&mut self, metadata_page: u32, sink: &mut dyn Sink) {
        let id = self.program_own(Cause::Metadata, sink);
        self.books.pages.programmed(metadata_page);
        let old = std::mem::replace(&mut self.own.metadata[metadata_page as usize], id);
        self.give_up_own(old);
    }
}
