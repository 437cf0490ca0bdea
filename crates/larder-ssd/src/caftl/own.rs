//! The layer's own pages: contents, places, and those that a start goes by.
//!
//! See CAFTL sections 3.3.2 and 3.3.3.
//!
//! Role: [`OwnPages`] stands for the contents of these pages on flash. A page is put here right
//! before it is programmed ([`OwnPages::put`]), and leaves once a newer one that takes its place is
//! there. [`OwnPages::find`] is a start's view: it goes by the pages alone, not by RAM's lists of
//! them.
//!
//! Each page says in itself its kind: a page of a table, a page of the journal, a metadata page, or
//! part of a sorted run. It has a number that grows from page to page; the paper links pages to a
//! list instead. If two are the same page of a table, or the same metadata page, the newer counts.
//! The last page of tables that are written out together says so, and names the first page of the
//! journal behind them. Without it, the new pages of the tables are as good as the old, because the
//! whole journal is still to be applied.
//!
//! Invariants: an older version of a page is here only while both versions are on flash. A page
//! that a start needs is here from the moment it is programmed, and leaves when nothing needs it.
//!
//! It leaves the contents of metadata pages to `pages.rs`. It does not count the search for these
//! pages: a start reads each that it needs once.

use super::{
    journal::{JournalRecord, Tables},
    location::{Location, SharedPage},
    options::Sizes,
};
use crate::geometry::Ppa;

/// No page.
pub(super) const NONE: u32 = u32::MAX;

/// The content of a page of the layer's own.
#[derive(Debug)]
pub(super) enum Body {
    /// This page of the primary table.
    Primary(u32, Vec<Location>),
    /// This page of the secondary table.
    Secondary(u32, Vec<SharedPage>),
    /// A page of the journal.
    Journal(Vec<JournalRecord>),
    /// This metadata page.
    Metadata(u32),
    /// A page of a sorted run: of no use to a start.
    Run,
}

#[derive(Debug)]
struct OwnPage {
    ppa: Ppa,
    sequence: u64,
    body: Body,
    /// This page completes the tables; behind them comes the journal from this number on.
    journal_from: Option<u64>,
}

/// The numbers of pages by their contents.
#[derive(Debug)]
pub(super) struct Lists {
    pub primary: Vec<u32>,
    pub secondary: Vec<u32>,
    /// The oldest first.
    pub journal: Vec<u32>,
    /// The metadata page array.
    pub metadata: Vec<u32>,
}

impl Lists {
    fn new(sizes: &Sizes) -> Self {
        Lists {
            primary: vec![NONE; sizes.primary_pages as usize],
            secondary: vec![NONE; sizes.secondary_pages as usize],
            journal: Vec::new(),
            metadata: vec![NONE; sizes.metadata_pages as usize],
        }
    }

    /// Lists the pages that a start reads for the tables: these, then the journal.
    pub fn tables_and_journal(&self) -> impl Iterator<Item = u32> {
        self.primary.iter().chain(&self.secondary).chain(&self.journal).copied().filter(|&id| id != NONE)
    }
}

/// The own pages; see the module.
#[derive(Debug)]
pub(super) struct OwnPages {
    pages: Vec<Option<OwnPage>>,
    free: Vec<u32>,
    next_sequence: u64,
    entries_per_page: (usize, usize),
    sizes: Sizes,
    /// RAM's lists of them.
    pub lists: Lists,
}

impl OwnPages {
    /// Makes an empty set.
    pub fn new(sizes: &Sizes, entries_per_page: (usize, usize)) -> Self {
        OwnPages {
            pages: Vec::new(),
            free: Vec::new(),
            next_sequence: 0,
            entries_per_page,
            sizes: *sizes,
            lists: Lists::new(sizes),
        }
    }

    /// Adds the content that page `ppa` is programmed with next, and returns its number.
    pub fn put(&mut self, ppa: Ppa, body: Body, journal_from: Option<u64>) -> u32 {
        let page = Some(OwnPage { ppa, sequence: self.next_sequence, body, journal_from });
        self.next_sequence += 1;
        match self.free.pop() {
            Some(id) => {
                self.pages[id as usize] = page;
                id
            }
            None => {
                self.pages.push(page);
                self.pages.len() as u32 - 1
            }
        }
    }

    /// Returns the entries of the primary and of the secondary table on a page.
    pub fn entries_per_page(&self) -> (usize, usize) {
        self.entries_per_page
    }

    /// Returns the next page's number in the order in which pages are programmed.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Notes that the page lies on `ppa` now.
    ///
    /// # Panics
    /// If no page has this number.
    pub fn moved(&mut self, id: u32, ppa: Ppa) {
        self.page_mut(id).ppa = ppa;
    }

    /// Returns the place of a page.
    ///
    /// # Panics
    /// If no page has this number.
    pub fn ppa(&self, id: u32) -> Ppa {
        self.page(id).ppa
    }

    /// Returns true if the page is on `ppa`.
    pub fn is_at(&self, id: u32, ppa: Ppa) -> bool {
        self.pages[id as usize].as_ref().is_some_and(|page| page.ppa == ppa)
    }

    /// Drops a page that is of no use any longer, and returns its place.
    ///
    /// # Panics
    /// If no page has this number.
    pub fn release(&mut self, id: u32) -> Ppa {
        let Some(page) = self.pages[id as usize].take() else { panic!("own page {id} is not there") };
        self.free.push(id);
        page.ppa
    }

    /// Returns a page's number in the order in which pages were programmed.
    ///
    /// # Panics
    /// If no page has this number.
    pub fn sequence(&self, id: u32) -> u64 {
        self.page(id).sequence
    }

    /// Counts the pages.
    pub fn len(&self) -> u32 {
        (self.pages.len() - self.free.len()) as u32
    }

    /// Finds the pages that a start goes by, of all on flash.
    pub fn find(&self) -> Lists {
        let there = || (0..).zip(&self.pages).filter_map(|(id, page): (u32, _)| Some((id, page.as_ref()?)));
        let journal_from = there().filter_map(|(_, page)| page.journal_from).max().unwrap_or(0);
        let mut lists = Lists::new(&self.sizes);
        for (id, page) in there() {
            let place = match page.body {
                Body::Primary(at, _) => &mut lists.primary[at as usize],
                Body::Secondary(at, _) => &mut lists.secondary[at as usize],
                Body::Metadata(at) => &mut lists.metadata[at as usize],
                Body::Journal(_) => {
                    if page.sequence >= journal_from {
                        lists.journal.push(id);
                    }
                    continue;
                }
                Body::Run => continue,
            };
            if *place == NONE || self.sequence(*place) < page.sequence {
                *place = id;
            }
        }
        lists.journal.sort_unstable_by_key(|&id| self.sequence(id));
        lists
    }

    /// Loads the tables on flash and applies the journal; each of its records is `told`.
    pub fn load(&self, lists: &Lists, logical_pages: u32, told: &mut dyn FnMut(&JournalRecord)) -> Tables {
        let mut tables = Tables::new(logical_pages);
        for id in lists.tables_and_journal() {
            match &self.page(id).body {
                Body::Primary(at, entries) => tables.set_primary(*at as usize * self.entries_per_page.0, entries),
                Body::Secondary(at, entries) => tables.set_secondary(*at as usize * self.entries_per_page.1, entries),
                Body::Journal(records) => records.iter().for_each(|record| {
                    told(record);
                    tables.apply(*record);
                }),
                body => panic!("{body:?} is none of the tables"),
            }
        }
        tables
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let Lists { primary, secondary, journal, metadata } = &self.lists;
        let numbers: usize =
            [primary, secondary, journal, metadata, &self.free].iter().map(|numbers| numbers.capacity()).sum();
        let contents: usize = (self.pages.iter().flatten())
            .map(|page| match &page.body {
                Body::Primary(_, entries) => entries.capacity() * size_of::<Location>(),
                Body::Secondary(_, entries) => entries.capacity() * size_of::<SharedPage>(),
                Body::Journal(records) => records.capacity() * size_of::<JournalRecord>(),
                Body::Metadata(_) | Body::Run => 0,
            })
            .sum();
        (contents + numbers * size_of::<u32>() + self.pages.capacity() * size_of::<Option<OwnPage>>()) as u64
    }

    fn page(&self, id: u32) -> &OwnPage {
        let Some(page) = &self.pages[id as usize] else { panic!("own page {id} is not there") };
        page
    }

    fn page_mut(&mut self, id: u32) -> &mut OwnPage {
        let Some(page) = &mut self.pages[id as usize] else { panic!("own page {id} is not there") };
        page
    }
}
