//! The programming of the layer's own pages: metadata, journal and tables.
//!
//! See CAFTL sections 3.3.2 and 3.3.3.
//!
//! Role: [`Caftl::catch_up`] does the operations that a change made necessary. It brings metadata
//! pages into RAM and programs those that give way. It programs a full log as a page of the
//! journal, and writes the tables out when the journal is long enough.
//!
//! Invariants: the power may go after any operation. So a page's content is fixed, and told to
//! `own.rs`, right before it is programmed. By then all pages that moved to make room for it are
//! logged. A page's new version is programmed before the old one is given up, and so are all pages
//! of the tables before the journal. Without a capacitor the log is in the journal before any page
//! of the tables is programmed. Only changed pages of the tables are programmed.
//!
//! It does not decide which fingerprints to remember.

use super::{
    Caftl,
    books::{Books, PageOwner},
    own::{Body, NONE},
};
use crate::{
    geometry::Ppa,
    op::{Cause, Hash, OpSink, PageSource},
    space::WriteStream,
};

/// The records and pages that the tables cover once they are written out.
#[derive(Clone, Copy)]
struct Covered {
    /// Records of the log before this one.
    records: u64,
    /// Pages of the journal before this one.
    journal: u64,
}

impl Caftl {
    /// Does the operations that changes have made necessary.
    pub(super) fn catch_up(&mut self, sink: &mut dyn OpSink) {
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
            } else if self.books.own.lists.journal.len() as u32 >= self.sizes.journal_pages_max && !self.is_syncing {
                self.sync(sink);
            } else {
                return;
            }
        }
    }

    /// Programs an own page with the content that `put` puts there, and returns its number.
    fn program_put(&mut self, cause: Cause, put: impl FnOnce(&mut Books, Ppa) -> u32, sink: &mut dyn OpSink) -> u32 {
        let place = self.space.make_room(WriteStream::Internal, &mut self.books, sink);
        let id = put(&mut self.books, self.space.page_at(place));
        let word = self.books.word(PageOwner::Internal(id));
        self.space.program(place, word, PageSource::Internal, cause, sink);
        id
    }

    /// Programs a page of a sorted run, and returns its number.
    pub(super) fn program_run(&mut self, sink: &mut dyn OpSink) -> u32 {
        self.program_put(Cause::SortRun, |books, ppa| books.put_own(ppa, Body::Run, None), sink)
    }

    /// Gives up an own page.
    pub(super) fn give_up_own(&mut self, id: u32) {
        if id != NONE {
            let ppa = self.books.own.release(id);
            self.space.invalidate(ppa);
        }
    }

    pub(super) fn read_own(&mut self, id: u32, cause: Cause, sink: &mut dyn OpSink) {
        let ppa = self.books.own.ppa(id);
        self.flash().read(ppa, cause, sink);
    }

    /// Writes the whole log to the journal; the last page may have room left.
    pub(super) fn write_log(&mut self, sink: &mut dyn OpSink) {
        while !self.books.log.is_empty() {
            self.write_journal_page(sink);
        }
    }

    /// Writes the oldest records of the log to the journal.
    pub(super) fn write_journal_page(&mut self, sink: &mut dyn OpSink) {
        self.program_put(Cause::Journal, Books::put_journal, sink);
    }

    /// Writes the tables out.
    ///
    /// 1. The changed pages of the tables are programmed, each with its present content.
    /// 2. With the last page the journal begins anew, and the old pages are given up.
    ///
    /// Pages that move meanwhile stay in the log, or in the journal that was begun with it.
    fn sync(&mut self, sink: &mut dyn OpSink) {
        self.is_syncing = true;
        if !self.options.capacitor {
            self.write_log(sink);
        }
        self.books.counts.syncs += 1;
        let (primary, secondary) = self.books.log.take_changed_pages();
        let covered = Covered { records: self.books.log.next(), journal: self.books.own.next_sequence() };
        let mut left = primary.len() + secondary.len();
        let mut old = Vec::new();
        for page in primary {
            left -= 1;
            let id = self.program_table(|books| books.primary_page(page), (left == 0).then_some(covered), sink);
            old.push((true, page, id));
        }
        for page in secondary {
            left -= 1;
            let id = self.program_table(|books| books.secondary_page(page), (left == 0).then_some(covered), sink);
            old.push((false, page, id));
        }
        let own = &mut self.books.own;
        let (since, mut gone): (Vec<u32>, Vec<u32>) =
            std::mem::take(&mut own.lists.journal).into_iter().partition(|&id| own.sequence(id) >= covered.journal);
        own.lists.journal = since;
        for (is_primary, page, id) in old {
            let table = if is_primary { &mut own.lists.primary } else { &mut own.lists.secondary };
            gone.push(std::mem::replace(&mut table[page as usize], id));
        }
        for id in gone {
            self.give_up_own(id);
        }
        self.is_syncing = false;
    }

    /// Programs a page of the tables; the last one completes them.
    fn program_table(
        &mut self,
        body: impl FnOnce(&Books) -> Body,
        last: Option<Covered>,
        sink: &mut dyn OpSink,
    ) -> u32 {
        let put = |books: &mut Books, ppa| {
            let body = body(books);
            if let Some(Covered { records, .. }) = last {
                books.log.forget_before(records);
            }
            books.put_own(ppa, body, last.map(|covered| covered.journal))
        };
        self.program_put(Cause::MapTable, put, sink)
    }

    fn bring_in(&mut self, metadata_page: u32, changes: bool, sink: &mut dyn OpSink) {
        if let Some(dirty) = self.books.pages.bring_in(metadata_page, changes) {
            self.program_metadata(dirty, sink);
        }
        self.books.counts.metadata_pages_brought_in += 1;
        let id = self.books.own.lists.metadata[metadata_page as usize];
        if id != NONE {
            self.read_own(id, Cause::Metadata, sink);
        }
    }

    pub(super) fn program_metadata(&mut self, metadata_page: u32, sink: &mut dyn OpSink) {
        let put = |books: &mut Books, ppa| {
            books.pages.programmed(metadata_page);
            books.put_own(ppa, Body::Metadata(metadata_page), None)
        };
        let id = self.program_put(Cause::Metadata, put, sink);
        let old = std::mem::replace(&mut self.books.own.lists.metadata[metadata_page as usize], id);
        self.give_up_own(old);
    }
}

impl Books {
    /// Copies the present content of a page of the primary table.
    fn primary_page(&self, page: u32) -> Body {
        let (entries, _) = self.own.entries_per_page();
        Body::Primary(page, part(self.maps.primary(), page, entries))
    }

    /// Copies the present content of a page of the secondary table.
    fn secondary_page(&self, page: u32) -> Body {
        let (_, entries) = self.own.entries_per_page();
        Body::Secondary(page, part(self.maps.secondary(), page, entries))
    }
}

fn part<T: Clone>(table: &[T], page: u32, entries: usize) -> Vec<T> {
    let first = page as usize * entries;
    table[first..table.len().min(first + entries)].to_vec()
}
