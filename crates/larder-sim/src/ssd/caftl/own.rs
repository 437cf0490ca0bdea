//! The layer's own pages: what each holds, where it lies, and which of them a start goes by (CAFTL sections 3.3.2 and 3.3.3).
//!
//! Role: [`OwnPages`] stands for the contents of these pages on flash. A page that is programmed is put here
//! ([`OwnPages::put`]) right before, and leaves once a newer one that takes its place is there. [`OwnPages::find`] is what
//! a start sees: it goes by the pages alone, not by what RAM had of them.
//!
//! Each page says in itself what it is: which page of which table, a page of the journal, a metadata page, or part of a
//! sorted run, and a number that grows from page to page, where the paper links pages to a list. Of two that are the
//! same page of a table, or the same metadata page, the newer counts. The last page of the tables that are written out
//! together says so, and which page of the journal comes first behind them: without it, what is there of the new tables
//! is as good as the old, for the whole journal is still to be applied.
//!
//! Invariants: of what flash holds nothing is here that is older than what is here of the same page but while both
//! are on flash. What a start needs is here from the moment it is programmed, and leaves when nothing needs it.
//!
//! What it does not do: hold the bytes of metadata pages (`pages.rs` has what they say), or count what it costs to find these
//! pages: each that a start needs is read once.

use super::{
    books::Owner,
    journal::{Record, Tables},
    maps::{Location, Shared},
    options::Sizes,
};
use crate::ssd::geometry::Ppa;

/// No page.
pub(super) const NONE: u32 = u32::MAX;

/// What a page of the layer's own holds.
#[derive(Debug)]
pub(super) enum Body {
    /// Of the primary table, this page.
    Primary(u32, Vec<Location>),
    /// Of the secondary table, this page.
    Secondary(u32, Vec<Shared>),
    /// Of the journal.
    Journal(Vec<Record>),
    /// This metadata page.
    Metadata(u32),
    /// Of a sorted run: of no use to a start.
    Run,
}

#[derive(Debug)]
struct OwnPage {
    ppa: Ppa,
    sequence: u64,
    body: Body,
    /// The tables are written out with this one; behind them comes the journal from this number on.
    journal_from: Option<u64>,
}

/// Pages by what they hold, as their numbers.
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

    /// All that a start reads to have the tables: these, then the journal.
    pub fn tables_and_journal(&self) -> impl Iterator<Item = u32> {
        self.primary.iter().chain(&self.secondary).chain(&self.journal).copied().filter(|&id| id != NONE)
    }

    /// All metadata pages that were ever written.
    pub fn metadata(&self) -> impl Iterator<Item = u32> {
        self.metadata.iter().copied().filter(|&id| id != NONE)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct OwnPages {
    pages: Vec<Option<OwnPage>>,
    free: Vec<u32>,
    next_sequence: u64,
    entries_per_page: (usize, usize),
    sizes: Sizes,
    /// What RAM knows of them.
    pub lists: Lists,
}

impl OwnPages {
    /// None.
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

    /// Page `ppa` is programmed with this next: its number.
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

    /// Entries of the primary and of the secondary table on a page.
    pub fn entries_per_page(&self) -> (usize, usize) {
        self.entries_per_page
    }

    /// The number that the next page has, in the order in which pages are programmed.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The page lies there now.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn moved(&mut self, id: u32, ppa: Ppa) {
        self.page_mut(id).ppa = ppa;
    }

    /// Where the page lies.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn ppa(&self, id: u32) -> Ppa {
        self.page(id).ppa
    }

    /// Whether the page is there.
    pub fn is_at(&self, id: u32, ppa: Ppa) -> bool {
        self.pages[id as usize].as_ref().is_some_and(|page| page.ppa == ppa)
    }

    /// The page is of no use any longer; where it was.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn release(&mut self, id: u32) -> Ppa {
        let Some(page) = self.pages[id as usize].take() else { panic!("own page {id} is not there") };
        self.free.push(id);
        page.ppa
    }

    /// Its number in the order in which pages were programmed.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn sequence(&self, id: u32) -> u64 {
        self.page(id).sequence
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        (self.pages.len() - self.free.len()) as u32
    }

    /// Where all of them lie.
    pub fn owners(&self) -> impl Iterator<Item = (Ppa, Owner)> {
        let pages = (0..).zip(&self.pages);
        pages.filter_map(|(id, page)| Some((page.as_ref()?.ppa, Owner::Internal(id))))
    }

    /// What a start goes by, of all that is on flash.
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

    /// From now on RAM knows these, and flash has no other that is of any use.
    pub fn keep(&mut self, lists: Lists) {
        self.lists = lists;
        let kept: hashbrown::HashSet<u32> = self.lists.tables_and_journal().chain(self.lists.metadata()).collect();
        for id in 0..self.pages.len() as u32 {
            if self.pages[id as usize].is_some() && !kept.contains(&id) {
                self.release(id);
            }
        }
    }

    /// The tables that lie on flash, and the journal applied to them. Each of its records is `told`.
    pub fn load(&self, lists: &Lists, logical_pages: u32, told: &mut dyn FnMut(&Record)) -> Tables {
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

    /// Bytes that are allocated.
    pub fn ram_bytes(&self) -> u64 {
        let Lists { primary, secondary, journal, metadata } = &self.lists;
        let numbers: usize =
            [primary, secondary, journal, metadata, &self.free].iter().map(|numbers| numbers.capacity()).sum();
        let contents: usize = (self.pages.iter().flatten())
            .map(|page| match &page.body {
                Body::Primary(_, entries) => entries.capacity() * size_of::<Location>(),
                Body::Secondary(_, entries) => entries.capacity() * size_of::<Shared>(),
                Body::Journal(records) => records.capacity() * size_of::<Record>(),
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
