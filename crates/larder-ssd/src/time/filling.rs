//! Pages that are being programmed, and other pages that refer to them already.
//!
//! The translation layer maps a page to present content as soon as it has its fingerprint. But the
//! page that it finds may still wait for its plane. Until that is programmed, the buffer alone has
//! the content.
//!
//! Invariants: the pages that wait for a page are returned once, when all programs of that page
//! that were begun are over.
//!
//! It does not know frames, or references between pages.

use hashbrown::HashMap;

use crate::geometry::{Lpn, Ppa};

/// A page of the host, and the batch with which it was handed over.
pub type Written = (Lpn, u64);

#[derive(Default)]
struct Page {
    programs: u32,
    waiting: Vec<Written>,
}

/// The pages that are being programmed; see the module.
#[derive(Default)]
pub struct Filling(HashMap<Ppa, Page>);

impl Filling {
    /// Notes that a page is to be programmed.
    pub fn begins(&mut self, ppa: Ppa) {
        self.0.entry(ppa).or_default().programs += 1;
    }

    /// Lets a written page wait for `ppa`; returns false if that is programmed already.
    pub fn waits(&mut self, ppa: Ppa, written: Written) -> bool {
        self.0.get_mut(&ppa).map(|page| page.waiting.push(written)).is_some()
    }

    /// Ends a program of a page. Returns the pages that waited for it, if that was the last.
    pub fn ends(&mut self, ppa: Ppa) -> Vec<Written> {
        let Some(page) = self.0.get_mut(&ppa) else { return Vec::new() };
        page.programs -= 1;
        if page.programs > 0 {
            return Vec::new();
        }
        self.0.remove(&ppa).map(|page| page.waiting).unwrap_or_default()
    }
}
