//! The two-level indirect mapping (CAFTL section 3.3.1).
//!
//! Role: the primary table maps a unique logical page to a physical one (PBA), and a page with
//! shared content to a virtual one (VBA). The secondary table maps a VBA to its physical page, and
//! counts the logical pages that refer to it. So a move of a shared page is one change for all of
//! them. Every change goes to a [`Log`].
//!
//! Invariants: the references of a VBA are exactly the entries of the primary table that name it,
//! and at least one. A page is named by one logical page or by one VBA, never by two.
//!
//! A page gets its VBA when a second logical page refers to it, and keeps it until none does. The
//! last one that is left is unknown, because VBAs have no list of their logical pages. The paper
//! does not say; a search of the whole primary table would be its only way.
//!
//! It does not know valid pages. A change returns the page or VBA that it released as [`Released`].

use super::{
    journal::{JournalRecord, Log},
    location::{At, FREE, Location, SharedPage, Vba},
};
use crate::{
    geometry::{Lpn, Ppa},
    table,
};

/// The former target of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Released {
    /// Nothing.
    Nothing,
    /// A page that others still refer to.
    Shared(Vba),
    /// A page that has no references now.
    Page(Ppa),
}

/// Both tables, as in the drive's RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maps {
    primary: Vec<Location>,
    secondary: Vec<SharedPage>,
    /// VBAs in no use.
    free: Vec<u32>,
}

impl Maps {
    /// Makes maps without a mapping.
    pub fn new(logical_pages: u32) -> Self {
        Maps { primary: table::filled(Location::NONE, logical_pages as usize), secondary: Vec::new(), free: Vec::new() }
    }

    /// Counts the logical pages.
    pub fn logical_pages(&self) -> u32 {
        self.primary.len() as u32
    }

    /// Returns a page's entry of the primary table.
    pub fn location(&self, lpn: Lpn) -> Location {
        self.primary[lpn.0 as usize]
    }

    /// Prefetches a page's entry of the primary table.
    pub fn prefetch(&self, lpn: Lpn) {
        table::prefetch(&self.primary, lpn.0 as usize);
    }

    /// Prefetches a VBA's entry of the secondary table.
    pub fn prefetch_shared(&self, vba: Vba) {
        table::prefetch(&self.secondary, vba.0 as usize);
    }

    /// Returns a VBA's entry of the secondary table.
    pub fn shared(&self, vba: Vba) -> SharedPage {
        self.secondary[vba.0 as usize]
    }

    /// Returns the physical page of a location.
    pub fn resolve(&self, location: Location) -> Option<Ppa> {
        match location.at()? {
            At::Page(ppa) => Some(ppa),
            At::Virtual(vba) => Some(self.shared(vba).ppa),
        }
    }

    /// Returns the primary table.
    pub fn primary(&self) -> &[Location] {
        &self.primary
    }

    /// Returns the secondary table, with its free entries.
    pub fn secondary(&self) -> &[SharedPage] {
        &self.secondary
    }

    /// Counts the VBAs in use.
    pub fn vbas(&self) -> u32 {
        (self.secondary.len() - self.free.len()) as u32
    }

    /// Maps `lpn` to `ppa`, its own page.
    pub fn map(&mut self, lpn: Lpn, ppa: Ppa, log: &mut Log) -> Released {
        self.set(lpn, Location::page(ppa), log)
    }

    /// Gives `lpn`'s page `ppa` a VBA, which only `lpn` refers to as yet.
    pub fn make_shared(&mut self, lpn: Lpn, ppa: Ppa, log: &mut Log) -> Vba {
        debug_assert_eq!(self.location(lpn), Location::page(ppa));
        let vba = self.free.pop().unwrap_or_else(|| {
            self.secondary.push(FREE);
            self.secondary.len() as u32 - 1
        });
        self.secondary[vba as usize] = SharedPage { ppa, references: 1 };
        log.push(JournalRecord::Secondary(Vba(vba), self.secondary[vba as usize]));
        self.primary[lpn.0 as usize] = Location::shared(Vba(vba));
        log.push(JournalRecord::Primary(lpn, self.primary[lpn.0 as usize]));
        Vba(vba)
    }

    /// Refers `lpn` to `vba`, too.
    pub fn refer(&mut self, lpn: Lpn, vba: Vba, log: &mut Log) -> Released {
        if self.location(lpn) == Location::shared(vba) {
            return Released::Nothing;
        }
        self.secondary[vba.0 as usize].references += 1;
        log.push(JournalRecord::Secondary(vba, self.shared(vba)));
        self.set(lpn, Location::shared(vba), log)
    }

    /// Unmaps `lpn`.
    pub fn unmap(&mut self, lpn: Lpn, log: &mut Log) -> Released {
        match self.location(lpn) {
            Location::NONE => Released::Nothing,
            _ => self.set(lpn, Location::NONE, log),
        }
    }

    /// Maps `lpn` to `to`, where its own page is now.
    pub fn page_moved(&mut self, lpn: Lpn, to: Ppa, log: &mut Log) {
        self.primary[lpn.0 as usize] = Location::page(to);
        log.push(JournalRecord::Primary(lpn, Location::page(to)));
    }

    /// Maps `vba` to `to`, where its page is now.
    pub fn shared_moved(&mut self, vba: Vba, to: Ppa, log: &mut Log) {
        self.secondary[vba.0 as usize].ppa = to;
        log.push(JournalRecord::Secondary(vba, self.shared(vba)));
    }

    /// Redirects all references to a VBA of `joins` to the one beside it.
    ///
    /// One search of the whole primary table serves all of them. Each VBA without references then
    /// is free; its page is returned.
    pub fn join(&mut self, joins: &[(Vba, Vba)], log: &mut Log) -> Vec<Ppa> {
        let mut into = hashbrown::HashMap::with_capacity(joins.len());
        into.extend(joins.iter().copied());
        let mut released = Vec::new();
        for lpn in (0..self.logical_pages()).map(Lpn) {
            let Some(At::Virtual(vba)) = self.location(lpn).at() else { continue };
            if let Some(&into) = into.get(&vba)
                && let Released::Page(ppa) = self.refer(lpn, into, log)
            {
                released.push(ppa);
            }
        }
        released
    }

    /// Returns the allocated bytes.
    pub fn ram_bytes(&self) -> u64 {
        let words = self.primary.capacity() + self.free.capacity();
        (words * size_of::<u32>() + self.secondary.capacity() * size_of::<SharedPage>()) as u64
    }

    /// Checks that references are exact, and that free VBAs are those without references.
    ///
    /// # Panics
    /// If not.
    pub fn check(&self) {
        let references = self.references();
        for (vba, shared) in self.secondary.iter().enumerate() {
            assert_eq!(shared.references, references[vba], "the references of VBA {vba}");
            assert_eq!(shared.references == 0, *shared == FREE, "VBA {vba} is free or has a page");
        }
        let mut free: Vec<u32> = self.free.clone();
        free.sort_unstable();
        let unreferred = (0..references.len() as u32).filter(|&vba| references[vba as usize] == 0);
        assert!(free.into_iter().eq(unreferred), "free VBAs are those without references");
    }

    fn references(&self) -> Vec<u32> {
        let mut references = vec![0; self.secondary.len()];
        for location in &self.primary {
            if let Some(At::Virtual(vba)) = location.at() {
                references[vba.0 as usize] += 1;
            }
        }
        references
    }

    fn set(&mut self, lpn: Lpn, location: Location, log: &mut Log) -> Released {
        let old = std::mem::replace(&mut self.primary[lpn.0 as usize], location);
        log.push(JournalRecord::Primary(lpn, location));
        match old.at() {
            None => Released::Nothing,
            Some(At::Page(ppa)) => Released::Page(ppa),
            Some(At::Virtual(vba)) => self.release(vba, log),
        }
    }

    fn release(&mut self, vba: Vba, log: &mut Log) -> Released {
        let shared = &mut self.secondary[vba.0 as usize];
        shared.references -= 1;
        let ppa = shared.ppa;
        let is_free = shared.references == 0;
        if is_free {
            *shared = FREE;
            self.free.push(vba.0);
        }
        log.push(JournalRecord::Secondary(vba, self.shared(vba)));
        if is_free { Released::Page(ppa) } else { Released::Shared(vba) }
    }
}
