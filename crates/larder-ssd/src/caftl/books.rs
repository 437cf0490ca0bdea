//! CAFTL's tables in RAM about its pages, and their updates for a moved page.
//!
//! Role: [`Books`] has the maps and their log, the pages' fingerprints, the fingerprint store, and
//! the places of the layer's own pages. It is the [`Relocate`] of CAFTL's space: a moved page is
//! one change of a map, however many logical pages share it.
//!
//! Invariants: the owner word beside a valid page names its logical page, VBA or own page. A move
//! makes operations on flash necessary (journal, metadata, hashes). They are only noted here, and
//! done once the space is free again (`persist.rs`).
//!
//! Without a capacitor the log is not only noted: it goes to the journal before a block is erased
//! ([`Relocate::owes_page`]).
//!
//! It does no operation on flash.

use super::{
    counts::CaftlCounts,
    digest::Digest,
    entry::StoreEntry,
    journal::Log,
    location::{At, Location, Vba},
    maps::Maps,
    own::{Body, OwnPages},
    pages::PageFingerprints,
    store::{Inserted, Store},
};
use crate::{
    geometry::{Lpn, Ppa},
    space::Relocate,
};

/// The content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageOwner {
    /// The content of one logical page.
    Page(Lpn),
    /// The content of all logical pages that refer to the VBA.
    Shared(Vba),
    /// A page of the layer's own, by its number among these.
    Internal(u32),
}

/// The bit of an owner word that no logical page has.
const NOT_A_PAGE: u32 = 1 << 31;

/// The tables in RAM; see the module.
#[derive(Debug)]
pub(super) struct Books {
    pub maps: Maps,
    pub log: Log,
    pub pages: PageFingerprints,
    pub store: Store,
    pub own: OwnPages,
    /// True if the log survives a loss of power. If not, flash has it before a block is erased.
    pub has_capacitor: bool,
    /// Records of a page of the journal.
    pub records_per_page: usize,
    pub counts: CaftlCounts,
    /// True if collection fingerprints the pages that it moves.
    pub fingerprints_collected: bool,
    /// Hashes of moved pages that are not told yet.
    pub hashes_due: u32,
    /// Pages that collection fingerprinted, to be looked up.
    pub collected: Vec<Ppa>,
}

impl Books {
    /// Decodes an owner word.
    pub fn owner(&self, word: u32) -> PageOwner {
        if word & NOT_A_PAGE == 0 {
            return PageOwner::Page(Lpn(word));
        }
        // VBAs are at most as many as logical pages: their numbers end there, and those of own
        // pages begin.
        let number = word & !NOT_A_PAGE;
        match number.checked_sub(self.maps.logical_pages()) {
            None => PageOwner::Shared(Vba(number)),
            Some(id) => PageOwner::Internal(id),
        }
    }

    /// Encodes an owner word.
    pub fn word(&self, owner: PageOwner) -> u32 {
        match owner {
            PageOwner::Page(lpn) => lpn.0,
            PageOwner::Shared(vba) => NOT_A_PAGE | vba.0,
            PageOwner::Internal(id) => NOT_A_PAGE | (self.maps.logical_pages() + id),
        }
    }

    /// Makes the store's entry for a page of data, by its owner.
    pub fn entry(&self, digest: Digest, ppa: Ppa, owner: PageOwner) -> StoreEntry {
        match owner {
            PageOwner::Page(_) => StoreEntry { digest, location: Location::page(ppa), reference: 1 },
            PageOwner::Shared(vba) => {
                let reference = reference(self.maps.shared(vba).references);
                StoreEntry { digest, location: Location::shared(vba), reference }
            }
            PageOwner::Internal(_) => panic!("page {} is none of data", ppa.0),
        }
    }

    /// Adds an entry for this page, which has none, to the store.
    pub fn remember(&mut self, entry: StoreEntry, ppa: Ppa) {
        match self.store.insert(entry) {
            Inserted::Refused => return,
            Inserted::Added => {}
            Inserted::Replaced(old) => {
                let Some(old) = self.maps.resolve(old.location) else { panic!("{old:?} is somewhere") };
                self.pages.set_stored(old, false);
            }
        }
        self.pages.set_stored(ppa, true);
    }

    /// Notes that the number of pages that refer to a VBA has changed.
    pub fn references_changed(&mut self, vba: Vba) {
        let ppa = self.maps.shared(vba).ppa;
        if self.pages.is_stored(ppa) {
            let StoreEntry { digest, location, reference } =
                self.entry(self.pages.digest(ppa), ppa, PageOwner::Shared(vba));
            self.store.change(digest, location, reference);
        }
    }

    /// Hands the entry of `gone` over to `kept`, which has the same content.
    pub fn hand_over(&mut self, gone: Ppa, kept: Ppa) {
        if self.pages.is_stored(gone) {
            self.pages.set_stored(gone, false);
            self.pages.set_stored(kept, true);
        }
    }

    /// Prefetches the store's entry of this page, which changes soon.
    pub fn prefetch_change(&self, ppa: Ppa) {
        if self.pages.is_stored(ppa) {
            self.store.prefetch(self.pages.digest(ppa));
        }
    }

    /// Forgets the store's entry of a page that is programmed anew.
    pub fn reused(&mut self, ppa: Ppa) {
        if self.pages.is_stored(ppa) {
            self.store.remove(self.pages.digest(ppa));
            self.pages.set_stored(ppa, false);
        }
    }

    /// Returns true if the maps, or the list of the layer's own pages, have `owner` on `ppa`.
    pub fn is_mapped(&self, owner: PageOwner, ppa: Ppa) -> bool {
        match owner {
            PageOwner::Page(lpn) => self.maps.location(lpn).at() == Some(At::Page(ppa)),
            PageOwner::Shared(vba) => self.maps.shared(vba).ppa == ppa,
            PageOwner::Internal(id) => self.own.is_at(id, ppa),
        }
    }
}

impl Books {
    /// Notes an own page that is programmed on `ppa` next, and returns its number.
    pub fn put_own(&mut self, ppa: Ppa, body: Body, journal_from: Option<u64>) -> u32 {
        self.reused(ppa);
        self.pages.forget(ppa);
        self.own.put(ppa, body, journal_from)
    }

    /// Notes the log's oldest records as a page that is programmed on `ppa` next.
    pub fn put_journal(&mut self, ppa: Ppa) -> u32 {
        let records = self.log.take(self.records_per_page).collect();
        let id = self.put_own(ppa, Body::Journal(records), None);
        self.own.lists.journal.push(id);
        id
    }
}

/// Returns references as the store has them.
pub(super) fn reference(references: u32) -> u8 {
    u8::try_from(references).unwrap_or(u8::MAX)
}

impl Relocate for Books {
    /// Returns whether the log must be written before a block is erased. Without a capacitor, a
    /// page that has left the block would be lost with the log.
    fn owes_page(&self) -> bool {
        !self.has_capacitor && !self.log.is_empty()
    }

    fn pay_page(&mut self, at: Ppa) -> u32 {
        let id = self.put_journal(at);
        self.word(PageOwner::Internal(id))
    }

    /// Returns true: the fingerprint store is large on any drive.
    fn looks_far(&self, _: u32) -> bool {
        true
    }

    fn prefetch_move(&self, owner: u32, from: Ppa) {
        match self.owner(owner) {
            PageOwner::Page(lpn) => {
                self.maps.prefetch(lpn);
                // The store's entry of a shared page names its VBA, and stays.
                self.prefetch_change(from);
            }
            PageOwner::Shared(vba) => self.maps.prefetch_shared(vba),
            PageOwner::Internal(_) => {}
        }
    }

    fn moved(&mut self, owner: u32, from: Ppa, to: Ppa) {
        self.reused(to);
        let owner = self.owner(owner);
        match owner {
            PageOwner::Page(lpn) => self.maps.page_moved(lpn, to, &mut self.log),
            PageOwner::Shared(vba) => self.maps.shared_moved(vba, to, &mut self.log),
            PageOwner::Internal(id) => {
                self.own.moved(id, to);
                self.pages.forget(to);
                return;
            }
        }
        self.pages.touch(from, false);
        let digest = self.pages.digest(from);
        let mut is_known = self.pages.is_known(from);
        if !is_known && self.fingerprints_collected {
            is_known = true;
            self.hashes_due += 1;
            self.counts.fingerprinted_collected += 1;
            self.collected.push(to);
        }
        self.pages.hold(to, digest, is_known);
        self.pages.touch(to, true);
        if self.pages.is_stored(from) {
            self.hand_over(from, to);
            if let PageOwner::Page(_) = owner {
                self.store.change(digest, Location::page(to), 1);
            }
        }
    }
}
