//! The mapping tables in flash and their journal (CAFTL section 3.3.2).
//!
//! Role: each change of a table in RAM is a [`Record`] in the [`Log`], a small buffer. A full buffer becomes a page of
//! the journal in flash. Now and then the tables are written out whole, and the journal begins anew. [`Tables`] are built
//! up again from those in flash and the journal.
//!
//! Invariants: records say what an entry *is*, not what changed, so that one that is applied twice does no harm. Tables
//! in flash, then the journal, then the log, in this order, are the tables in RAM. After any of the records the
//! primary table names VBAs alone that the secondary has: one is logged before it is first named, and given up after it is
//! last. So of a log that is lost from some record on, only the references are not exact ([`Maps::recount`]).
//!
//! What it does not do: program pages (`persist.rs`), or know what they hold (`own.rs`).

use super::maps::{FREE, Location, Maps, Shared, Vba};
use crate::ssd::geometry::Lpn;

/// Bytes of a record: which entry of which table (the topmost bit says), its location, its references.
pub const RECORD_BYTES: u32 = 12;
/// Bytes of an entry of the primary table.
pub const PRIMARY_BYTES: u32 = 4;
/// Bytes of an entry of the secondary table.
pub const SECONDARY_BYTES: u32 = 8;

/// Entries of the primary and of the secondary table on a page.
pub(super) fn entries_per_page(page_bytes: u32) -> (usize, usize) {
    ((page_bytes / PRIMARY_BYTES) as usize, (page_bytes / SECONDARY_BYTES) as usize)
}

/// What an entry of a table is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of the primary table.
    Primary(Lpn, Location),
    /// Of the secondary table; free where it has no references.
    Secondary(Vba, Shared),
}

/// Records that are in RAM alone, and which pages of the tables have changed since these were written.
#[derive(Debug)]
pub struct Log {
    records: Vec<Record>,
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

    /// The pages that changed; none did, from now on.
    fn take(&mut self) -> Vec<u32> {
        let changed = self.pages.iter().enumerate().filter(|(_, changed)| **changed);
        let pages = changed.map(|(page, _)| page as u32).collect();
        self.pages.fill(false);
        pages
    }
}

impl Log {
    /// Empty, for tables in pages of `page_bytes`.
    pub fn new(page_bytes: u32) -> Self {
        let changed = |entry_bytes| Changed { entries_per_page: page_bytes / entry_bytes, pages: Vec::new() };
        Log {
            records: Vec::new(),
            taken: 0,
            primary_changed: changed(PRIMARY_BYTES),
            secondary_changed: changed(SECONDARY_BYTES),
        }
    }

    /// A table has changed.
    pub fn push(&mut self, record: Record) {
        self.note(&record);
        self.records.push(record);
    }

    /// A record that flash has: its page of a table has changed since that was written.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Primary(lpn, _) => self.primary_changed.note(lpn.0),
            Record::Secondary(vba, _) => self.secondary_changed.note(vba.0),
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records that are there.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The oldest `most` records: they go to flash.
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = Record> {
        let most = most.min(self.records.len());
        self.taken += most as u64;
        self.records.drain(..most)
    }

    /// The number that the next record has.
    pub fn next(&self) -> u64 {
        self.taken + self.records.len() as u64
    }

    /// Records before the one with this number are of no use any longer: flash has what they say.
    pub fn forget_before(&mut self, number: u64) {
        let most = number.saturating_sub(self.taken) as usize;
        drop(self.take(most));
    }

    /// Pages of the primary and of the secondary table that have changed since this was last asked.
    pub fn take_changed_pages(&mut self) -> (Vec<u32>, Vec<u32>) {
        (self.primary_changed.take(), self.secondary_changed.take())
    }

    /// Bytes that are allocated.
    pub fn ram_bytes(&self) -> u64 {
        let changed = self.primary_changed.pages.capacity() + self.secondary_changed.pages.capacity();
        (self.records.capacity() * size_of::<Record>() + changed) as u64
    }
}

/// Tables as a start builds them up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The primary table.
    pub primary: Vec<Location>,
    /// The secondary, as far as anything is known of it.
    pub secondary: Vec<Shared>,
}

impl Tables {
    /// Of a drive on which nothing was written.
    pub fn new(logical_pages: u32) -> Self {
        Tables { primary: vec![Location::NONE; logical_pages as usize], secondary: Vec::new() }
    }

    /// What an entry is now.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Primary(lpn, location) => self.primary[lpn.0 as usize] = location,
            Record::Secondary(vba, shared) => self.set_secondary(vba.0 as usize, &[shared]),
        }
    }

    /// A page of the primary table, from this entry on.
    pub fn set_primary(&mut self, first: usize, entries: &[Location]) {
        self.primary[first..first + entries.len()].copy_from_slice(entries);
    }

    /// A page of the secondary table, from this entry on.
    pub fn set_secondary(&mut self, first: usize, entries: &[Shared]) {
        let end = first + entries.len();
        if end > self.secondary.len() {
            self.secondary.resize(end, FREE);
        }
        self.secondary[first..end].copy_from_slice(entries);
    }

    /// Tables in RAM.
    pub fn into_maps(self) -> Maps {
        Maps::from_tables(self.primary, self.secondary)
    }
}
