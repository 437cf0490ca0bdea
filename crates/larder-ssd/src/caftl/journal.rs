//! The mapping tables in flash and their journal (CAFTL section 3.3.2).
//!
//! Role: each change of a table in RAM is a [`JournalRecord`] in the [`Log`], a small buffer. A
//! full buffer becomes a page of the journal in flash. Now and then the tables are written out
//! whole, and the journal begins anew. [`Tables`] are built up again from those in flash and the
//! journal.
//!
//! Invariants: records have the new value of an entry, not the change, so that one that is applied
//! twice does no harm. Tables in flash, then the journal, then the log, in this order, are the
//! tables in RAM. After any record the primary table names only VBAs that the secondary has. A VBA
//! is logged before its first reference, and given up after its last. So if a log is lost from some
//! record on, only the references are not exact.
//!
//! It leaves the programming of pages to `persist.rs`, and their contents to `own.rs`.

use super::location::{FREE, Location, SharedPage, Vba};
use crate::geometry::Lpn;

/// Bytes of a record: table (the topmost bit) and entry, its location, its references.
pub const RECORD_BYTES: u32 = 12;
/// Bytes of an entry of the primary table.
pub const PRIMARY_BYTES: u32 = 4;
/// Bytes of an entry of the secondary table.
pub const SECONDARY_BYTES: u32 = 8;

/// Returns the entries of the primary and of the secondary table on a page.
pub(super) fn entries_per_page(page_bytes: u32) -> (usize, usize) {
    ((page_bytes / PRIMARY_BYTES) as usize, (page_bytes / SECONDARY_BYTES) as usize)
}

/// The new value of an entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalRecord {
    /// An entry of the primary table.
    Primary(Lpn, Location),
    /// An entry of the secondary table; free if it has no references.
    Secondary(Vba, SharedPage),
}

/// Records that are in RAM alone, and the table pages that changed since they were written.
#[derive(Debug)]
pub struct Log {
    records: Vec<JournalRecord>,
    /// Records that were there before the oldest one.
    taken: u64,
    primary_changed: Changed,
    secondary_changed: Changed,
}

#[derive(Debug)]
struct Changed {
    entries_per_page: u32,
    pages: Vec<bool>,
}

impl Changed {
    fn note(&mut self, entry: u32) {
        let page = (entry / self.entries_per_page) as usize;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, false);
        }
        self.pages[page] = true;
    }

    /// Takes the changed pages; afterwards there are none.
    fn take(&mut self) -> Vec<u32> {
        let changed = self.pages.iter().enumerate().filter(|(_, changed)| **changed);
        let pages = changed.map(|(page, _)| page as u32).collect();
        self.pages.fill(false);
        pages
    }
}

impl Log {
    /// Makes an empty log, for tables in pages of `page_bytes`.
    pub fn new(page_bytes: u32) -> Self {
        let changed = |entry_bytes| Changed { entries_per_page: page_bytes / entry_bytes, pages: Vec::new() };
        Log {
            records: Vec::new(),
            taken: 0,
            primary_changed: changed(PRIMARY_BYTES),
            secondary_changed: changed(SECONDARY_BYTES),
        }
    }

    /// Logs a change of a table.
    pub fn push(&mut self, record: JournalRecord) {
        self.note(&record);
        self.records.push(record);
    }

    /// Notes a record that flash has: its page of a table has changed since that was written.
    pub fn note(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Primary(lpn, _) => self.primary_changed.note(lpn.0),
            JournalRecord::Secondary(vba, _) => self.secondary_changed.note(vba.0),
        }
    }

    /// Counts the records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the records.
    pub fn records(&self) -> &[JournalRecord] {
        &self.records
    }

    /// Takes the oldest `most` records, which go to flash.
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = JournalRecord> {
        let most = most.min(self.records.len());
        self.taken += most as u64;
        self.records.drain(..most)
    }

    /// Returns the number of the next record.
    pub fn next(&self) -> u64 {
        self.taken + self.records.len() as u64
    }

    /// Drops the records before `number`: flash has their values.
    pub fn forget_before(&mut self, number: u64) {
        let most = number.saturating_sub(self.taken) as usize;
        drop(self.take(most));
    }

    /// Takes the pages of the primary and the secondary table that changed since the last call.
    pub fn take_changed_pages(&mut self) -> (Vec<u32>, Vec<u32>) {
        (self.primary_changed.take(), self.secondary_changed.take())
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let changed = self.primary_changed.pages.capacity() + self.secondary_changed.pages.capacity();
        (self.records.capacity() * size_of::<JournalRecord>() + changed) as u64
    }
}

/// Tables as a start builds them up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The primary table.
    pub primary: Vec<Location>,
    /// The secondary table, up to its last known entry.
    pub secondary: Vec<SharedPage>,
}

impl Tables {
    /// Makes the tables of a drive without writes.
    pub fn new(logical_pages: u32) -> Self {
        Tables { primary: vec![Location::NONE; logical_pages as usize], secondary: Vec::new() }
    }

    /// Applies a record.
    pub fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Primary(lpn, location) => self.primary[lpn.0 as usize] = location,
            JournalRecord::Secondary(vba, shared) => self.set_secondary(vba.0 as usize, &[shared]),
        }
    }

    /// Sets a page of the primary table, from entry `first` on.
    pub fn set_primary(&mut self, first: usize, entries: &[Location]) {
        self.primary[first..first + entries.len()].copy_from_slice(entries);
    }

    /// Sets a page of the secondary table, from entry `first` on.
    pub fn set_secondary(&mut self, first: usize, entries: &[SharedPage]) {
        let end = first + entries.len();
        if end > self.secondary.len() {
            self.secondary.resize(end, FREE);
        }
        self.secondary[first..end].copy_from_slice(entries);
    }
}
