//! A loss of power, and the start that builds all up again from flash.
//!
//! See CAFTL sections 3.2.3 and 3.3.2.
//!
//! Role: [`Caftl::lose_power`] is the loss and the start after it. The power may go between two
//! requests, or within one, after any operation on flash. The sink unwinds, and the layer's work is
//! never ended. With a capacitor the log is flushed into the journal, and changed metadata pages
//! are programmed, in free room without a move. Then RAM is gone.
//!
//! The start looks at the flash for free, open and closed blocks (`restart.rs`) and for the layer's
//! own pages (`own.rs`). It loads the tables and applies the journal, and so knows the valid pages.
//! It reads the metadata pages, builds the fingerprint store up again, and ends an interrupted
//! collection.
//!
//! If a request was under way, pages whose mapping was logged are there; others have their former
//! content. The paper says as much of the log and the capacitor, and no more. The rest is ours:
//!
//! - Tables that are not all written out count page by page. The whole journal is applied to them,
//!   and a record that is in them already does no harm.
//! - A programmed page that no record names is garbage. Nothing beside it names its owner, because
//!   the spare area has the checksum alone (section 3.3.3).
//! - Without a capacitor the log is lost, and nothing else. It is written before a block is erased
//!   ([`Relocate::owes_page`](crate::space::Relocate::owes_page)) and before tables are. So
//!   pages that the journal names are on flash, and the drive is as it was after some record. That
//!   record is at least the last that a flush of the host, a full log, or an erasure brought there.
//!   References are counted anew, because the log may end between a VBA and its page.
//! - Without a capacitor no fingerprint is trusted. Metadata may be of a page's former content, and
//!   one false fingerprint is a false content. All are computed again out of line.
//! - An operation ends or was never begun. A half-programmed page would be known by its checksum,
//!   and a half-erased block is erased again.
//!
//! Invariants: a start uses no former state of RAM but the stand-ins for flash. These are the
//! programmed pages and erasures of a block (`array.rs`), and the contents of the layer's own pages
//! (`own.rs`). The last are the pages whose metadata has a fingerprint (`Pages::load`).
//!
//! It does not bring back deleted pages that the store still knew: no map leads to them. It does
//! not bear an endless series of losses within its starts. Each leaves at most a few more pages of
//! journal and metadata, which a start that ends collects.

use super::{
    Caftl,
    books::Owner,
    journal::Log,
    maps::{At, Vba},
};
use crate::{
    array::PageState,
    geometry::{Lpn, Ppa},
    op::{Cause, Sink},
};

/// The result of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pages of tables and journal that were read.
    pub map_pages_read: u64,
    /// Metadata pages that were read.
    pub metadata_pages_read: u64,
    /// Records of the log that were lost, for want of a capacitor.
    pub records_lost: u64,
    /// Fingerprints that the store has again.
    pub fingerprints: u64,
}

impl Caftl {
    /// Cuts the power, and starts again.
    ///
    /// If the power has gone within a request, the caller has caught the request's panic.
    pub fn lose_power(&mut self, sink: &mut dyn Sink) -> Recovered {
        let mut recovered = Recovered::default();
        if self.options.capacitor {
            self.space.find_again();
            self.on_capacitor = true;
            self.flush_all(sink);
        } else {
            recovered.records_lost = self.books.log.len() as u64;
        }
        self.forget_ram();
        self.load_maps(&mut recovered, sink);
        let pages = self.validate_mapped();
        self.space.find_again();
        self.load_metadata(&pages, &mut recovered, sink);
        self.rebuild_store(&pages);
        recovered.fingerprints = u64::from(self.books.store.len());
        self.space.restore_room(&mut self.books, sink);
        self.settle(sink);
        recovered
    }

    /// Flushes log and metadata with the capacitor's current.
    fn flush_all(&mut self, sink: &mut dyn Sink) {
        self.write_log(sink);
        loop {
            if let Some((metadata_page, changes)) = self.books.pages.next_wanted() {
                // It is not in RAM: its changes go to flash straight away.
                if changes {
                    self.program_metadata(metadata_page, sink);
                }
            } else if let Some(metadata_page) = self.books.pages.take_dirty() {
                self.program_metadata(metadata_page, sink);
            } else {
                return;
            }
        }
    }

    fn forget_ram(&mut self) {
        let books = &mut self.books;
        books.store.clear();
        books.pages.power_lost(self.options.capacitor);
        books.log = Log::new(self.space.array().geometry().page_bytes);
        books.hashes_due = 0;
        books.collected.clear();
        self.is_in_line_on = true;
        self.is_syncing = false;
        self.on_capacitor = false;
        self.forget_out_of_line();
    }

    fn load_maps(&mut self, recovered: &mut Recovered, sink: &mut dyn Sink) {
        let books = &mut self.books;
        let mut lists = books.own.find();
        if !books.has_capacitor {
            lists.metadata.fill(super::own::NONE);
        }
        let log = &mut books.log;
        let tables = books.own.load(&lists, books.maps.logical_pages(), &mut |record| log.note(record));
        books.maps = tables.into_maps();
        let changed = books.maps.recount(&mut books.log);
        assert!(changed == 0 || !books.has_capacitor, "what a capacitor saved is whole");
        books.own.keep(lists);
        let ids: Vec<u32> = books.own.lists.tables_and_journal().collect();
        recovered.map_pages_read = ids.len() as u64;
        for id in ids {
            self.read_own(id, Cause::Recovery, sink);
        }
    }

    /// Makes exactly the pages of the maps and the useful own pages valid.
    ///
    /// Returns the pages of the maps.
    fn validate_mapped(&mut self) -> Vec<(Ppa, Owner)> {
        let maps = &self.books.maps;
        let unique = maps.primary().iter().enumerate().filter_map(|(lpn, location)| match location.at() {
            Some(At::Page(ppa)) => Some((ppa, Owner::Page(Lpn(lpn as u32)))),
            _ => None,
        });
        let shared = maps.secondary().iter().enumerate().filter(|(_, shared)| shared.references > 0);
        let shared = shared.map(|(vba, shared)| (shared.ppa, Owner::Shared(Vba(vba as u32))));
        let mapped: Vec<(Ppa, Owner)> = unique.chain(shared).collect();
        let mut owned: Vec<(Ppa, Owner)> = mapped.iter().copied().chain(self.books.own.owners()).collect();
        owned.sort_unstable_by_key(|(ppa, _)| *ppa);
        let mut next = owned.into_iter().peekable();
        for ppa in (0..self.space.array().geometry().pages()).map(Ppa) {
            let owner = next.next_if(|(owned, _)| *owned == ppa).map(|(_, owner)| owner);
            match (self.space.array().state(ppa), owner) {
                (PageState::Free, Some(owner)) => panic!("page {} of {owner:?} is erased", ppa.0),
                (PageState::Invalid, Some(_)) => drop(self.flash().revalidate(ppa)),
                (PageState::Valid, None) => drop(self.flash().invalidate(ppa)),
                _ => {}
            }
            if let Some(owner) = owner {
                let word = self.books.word(owner);
                self.flash().set_owner(ppa, word);
            }
        }
        assert!(next.peek().is_none(), "a page belongs to one owner");
        mapped
    }

    fn load_metadata(&mut self, pages: &[(Ppa, Owner)], recovered: &mut Recovered, sink: &mut dyn Sink) {
        let ids: Vec<u32> = self.books.own.lists.metadata().collect();
        recovered.metadata_pages_read = ids.len() as u64;
        for id in ids {
            self.read_own(id, Cause::Recovery, sink);
        }
        for (ppa, _) in pages {
            self.books.pages.load(*ppa);
        }
    }

    fn rebuild_store(&mut self, pages: &[(Ppa, Owner)]) {
        let mut known: Vec<(Ppa, Owner)> =
            pages.iter().copied().filter(|(ppa, _)| self.books.pages.is_known(*ppa)).collect();
        known.sort_unstable_by_key(|(ppa, _)| *ppa);
        for (ppa, owner) in known {
            let digest = self.books.pages.digest(ppa);
            // If several pages have the same content, the entry means the first.
            if self.books.store.look_up(digest).is_none() {
                let entry = self.books.entry(digest, ppa, owner);
                self.books.remember(entry, ppa);
            }
        }
    }
}
