//! The mapping tables in flash and their journal (CAFTL section 3.3.2).
//!
//! Role: each change of a table in RAM is a [`Record`] in the [`Log`], a small buffer. A full buffer becomes a page of
//! the journal in flash. Now and then the tables are written out whole, and the journal begins anew. [`Durable`] is what
//! flash holds of all that: it knows nothing but what was programmed, so that recovery can be compared with what was lost.
//!
//! Invariants: records say what an entry *is*, not what changed, so that one that is applied twice does no harm. Tables
//! in flash, then the journal, then the log, in this order, are the tables in RAM.
//!
//! What it does not do: program pages (`persist.rs`).

use super::maps::{FREE, Location, Maps, Shared, Vba};
use crate::ssd::geometry::Lpn;

/// Bytes of a record: which entry of which table (the topmost bit says), its location, its references.
pub const RECORD_BYTES: u32 = 12;
/// Bytes of an entry of the primary table.
pub const PRIMARY_BYTES: u32 = 4;
/// Bytes of an entry of the secondary table.
pub const SECONDARY_BYTES: u32 = 8;

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
            primary_changed: changed(PRIMARY_BYTES),
            secondary_changed: changed(SECONDARY_BYTES),
        }
    }

    /// A table has changed.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Primary(lpn, _) => self.primary_changed.note(lpn.0),
            Record::Secondary(vba, _) => self.secondary_changed.note(vba.0),
        }
        self.records.push(record);
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The oldest `most` records: they go to flash.
    pub fn take(&mut self, most: usize) -> impl Iterator<Item = Record> {
        self.records.drain(..most.min(self.records.len()))
    }

    /// The records are lost. How many were there.
    pub fn lose(&mut self) -> u64 {
        let lost = self.records.len() as u64;
        self.records.clear();
        lost
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

/// What flash holds of the tables.
#[derive(Debug)]
pub struct Durable {
    primary: Vec<Location>,
    secondary: Vec<Shared>,
    journal: Vec<Record>,
}

impl Durable {
    /// Of a new drive.
    pub fn new(logical_pages: u32) -> Self {
        Durable { primary: vec![Location::NONE; logical_pages as usize], secondary: Vec::new(), journal: Vec::new() }
    }

    /// A journal page was programmed.
    pub fn append(&mut self, records: impl Iterator<Item = Record>) {
        self.journal.extend(records);
    }

    /// The tables were written out as they were when `log`, the part that no journal page has, had so many `records`.
    /// The journal begins anew.
    pub fn sync(&mut self, log: &mut Log, records: usize) {
        let journal = std::mem::take(&mut self.journal);
        for record in journal.into_iter().chain(log.take(records)) {
            apply(&mut self.primary, &mut self.secondary, record);
        }
    }

    /// Tables, and the journal applied to them: what is there when the power comes back.
    pub fn load(&self) -> Maps {
        let (mut primary, mut secondary) = (self.primary.clone(), self.secondary.clone());
        for &record in &self.journal {
            apply(&mut primary, &mut secondary, record);
        }
        Maps::from_tables(primary, secondary)
    }

    /// [`Durable::load`], with the log applied, too, is `maps`.
    ///
    /// # Panics
    /// If not.
    pub fn check(&self, log: &Log, maps: &Maps) {
        let (mut primary, mut secondary) = (self.primary.clone(), self.secondary.clone());
        for &record in self.journal.iter().chain(&log.records) {
            apply(&mut primary, &mut secondary, record);
        }
        assert!(primary == maps.primary(), "tables, journal and log are the primary table");
        assert!(secondary == maps.secondary(), "tables, journal and log are the secondary table");
    }

    /// Bytes that are allocated.
    pub fn ram_bytes(&self) -> u64 {
        let secondary = self.secondary.capacity() * size_of::<Shared>();
        (self.primary.capacity() * size_of::<Location>() + secondary + self.journal.capacity() * size_of::<Record>())
            as u64
    }
}

fn apply(primary: &mut [Location], secondary: &mut Vec<Shared>, record: Record) {
    match record {
        Record::Primary(lpn, location) => primary[lpn.0 as usize] = location,
        Record::Secondary(vba, shared) => {
            let at = vba.0 as usize;
            if at >= secondary.len() {
                secondary.resize(at + 1, FREE);
            }
            secondary[at] = shared;
        }
    }
}
