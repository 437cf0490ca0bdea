//! What is left after the power went, and how all is built up again from flash (CAFTL sections 3.2.3 and 3.3.2).
//!
//! Role: [`Caftl::lose_power`] is the loss and the start after it. With a capacitor the log is flushed into the journal,
//! and changed metadata pages are programmed; then RAM is gone. The tables in flash are loaded, the journal is applied,
//! and the fingerprint store is built up again from the maps and the metadata pages.
//!
//! Without a capacitor, of which the paper says nothing, the log is lost: the drive is as it was when its last page of
//! the journal was programmed (a flush of the host programs one). A page that was moved since, and whose old block is
//! erased, is lost. No fingerprint is trusted then: metadata may be of a page's former content, and one false fingerprint
//! is a false content; out of line all are computed again.
//!
//! Invariants: nothing is taken from what was in RAM before but what stands for flash: the [`Durable`] tables, what of
//! the fingerprints each metadata page had when it was programmed (`Pages::load`), and where the layer's own pages are.
//! A fingerprint whose metadata page in flash is of a former content, or names a former LBA or VBA, is not known then.
//!
//! What it does not do: bring back deleted pages that the store still knew: no map leads to them. Begin from the midst
//! of a request: the power goes between two.

use hashbrown::HashSet;

use super::{
    Caftl,
    books::Owner,
    maps::{At, Vba},
};
use crate::ssd::{
    array::PageState,
    geometry::{BlockId, Lpn, Ppa},
    op::{Cause, Sink},
};

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Pages of tables and journal that were read.
    pub map_pages_read: u64,
    /// Metadata pages that were read.
    pub metadata_pages_read: u64,
    /// Records of the log that were lost, for want of a capacitor.
    pub records_lost: u64,
    /// Logical pages that are unmapped, because what they refer to was erased.
    pub logical_pages_lost: u64,
    /// Fingerprints that the store has again.
    pub fingerprints: u64,
}

impl Caftl {
    /// The power goes, and comes back.
    pub fn lose_power(&mut self, sink: &mut dyn Sink) -> Recovered {
        let mut recovered = Recovered::default();
        if self.options.capacitor {
            self.flush_all(sink);
        } else {
            recovered.records_lost = self.books.log.lose();
        }
        self.forget_ram();
        let ids: Vec<u32> = self.own.tables_and_journal().collect();
        recovered.map_pages_read = ids.len() as u64;
        for id in ids {
            self.read_own(id, Cause::Recovery, sink);
        }
        self.books.maps = self.durable.load();
        recovered.logical_pages_lost = self.drop_erased();
        let pages = self.validate_mapped();
        let ids: Vec<(u32, u32)> = self.own.metadata().collect();
        recovered.metadata_pages_read = ids.len() as u64;
        for (metadata_page, id) in ids {
            self.read_own(id, Cause::Recovery, sink);
            self.books.pages.load(metadata_page);
        }
        self.rebuild_store(&pages);
        recovered.fingerprints = u64::from(self.books.store.len());
        self.settle(sink);
        recovered
    }

    /// With the capacitor's current: programming may move pages, which is logged in turn.
    fn flush_all(&mut self, sink: &mut dyn Sink) {
        loop {
            if !self.books.log.is_empty() {
                self.write_journal_page(sink);
            } else if let Some((metadata_page, changes)) = self.books.pages.next_wanted() {
                // It is not in RAM: what has changed of it goes to flash straight away.
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
        self.books.store.clear();
        self.books.pages.power_lost();
        self.books.hashes_due = 0;
        self.books.collected.clear();
        self.is_in_line_on = true;
        self.forget_out_of_line();
        if !self.options.capacitor {
            self.books.pages.forget_all();
        }
    }

    /// Unmaps what refers to blocks that were erased since the log was lost. How many logical pages that were.
    fn drop_erased(&mut self) -> u64 {
        let erased: HashSet<u32> = self.erased.drain(..).map(|BlockId(block)| block).collect();
        if erased.is_empty() {
            return 0;
        }
        let geometry = *self.space.array().geometry();
        let mut lost = 0;
        for lpn in (0..self.books.maps.logical_pages()).map(Lpn) {
            let ppa = self.books.maps.resolve(self.books.maps.location(lpn));
            if ppa.is_some_and(|ppa| erased.contains(&geometry.block_of(ppa).0)) {
                // What it releases is not as it was: `validate_mapped` says which pages are valid.
                let _ = self.books.maps.unmap(lpn, &mut self.books.log);
                lost += 1;
            }
        }
        lost
    }

    /// Pages are valid where the maps lead, and nowhere else but where the layer's own are. The pages of the maps.
    fn validate_mapped(&mut self) -> Vec<(Ppa, Owner)> {
        let maps = &self.books.maps;
        let unique = maps.primary().iter().enumerate().filter_map(|(lpn, location)| match location.at() {
            Some(At::Page(ppa)) => Some((ppa, Owner::Page(Lpn(lpn as u32)))),
            _ => None,
        });
        let shared = maps.secondary().iter().enumerate().filter(|(_, shared)| shared.references > 0);
        let shared = shared.map(|(vba, shared)| (shared.ppa, Owner::Shared(Vba(vba as u32))));
        let mut mapped: Vec<(Ppa, Owner)> = unique.chain(shared).collect();
        mapped.sort_unstable_by_key(|(ppa, _)| *ppa);
        let mut next = mapped.iter().peekable();
        for ppa in (0..self.space.array().geometry().pages()).map(Ppa) {
            let owner = next.next_if(|(mapped, _)| *mapped == ppa).map(|(_, owner)| *owner);
            match (self.space.array().state(ppa), owner) {
                (PageState::Free, Some(owner)) => panic!("page {} of {owner:?} is erased", ppa.0),
                (PageState::Invalid, Some(_)) => self.space.revalidate(ppa),
                (PageState::Valid, None) if !matches!(self.owner(ppa), Owner::Internal(_)) => {
                    self.space.invalidate(ppa);
                }
                _ => {}
            }
            if let Some(owner) = owner {
                let word = self.books.word(owner);
                self.space.flash_mut().set_owner(ppa, word);
            }
        }
        assert!(next.peek().is_none(), "a page belongs to one owner");
        mapped
    }

    fn rebuild_store(&mut self, pages: &[(Ppa, Owner)]) {
        for &(ppa, owner) in pages.iter().filter(|(ppa, _)| self.books.pages.is_known(*ppa)).collect::<Vec<_>>() {
            let digest = self.books.pages.digest(ppa);
            // Of several pages with the same content, the first is meant.
            if self.books.store.look_up(digest).is_none() {
                let entry = self.books.entry(digest, ppa, owner);
                self.books.remember(entry, ppa);
            }
        }
    }
}
