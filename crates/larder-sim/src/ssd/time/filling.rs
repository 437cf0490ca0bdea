//! Pages that are being programmed, and what else refers to them already.
//!
//! The translation layer maps a page to content that is there as soon as it has its fingerprint; but the page that it finds may still
//! wait for its plane. Until that is programmed, the buffer alone has what was written.
//!
//! Invariants: what waits for a page is told once, when all programs of that page that were begun are over.
//!
//! What it does not do: know frames, or which page refers to which.

use hashbrown::HashMap;

use crate::ssd::geometry::{Lpn, Ppa};

/// A page of the host, and the batch with which it was handed over.
pub type Written = (Lpn, u64);

#[derive(Default)]
struct Page {
    programs: u32,
    waiting: Vec<Written>,
}

/// See the module.
#[derive(Default)]
pub struct Filling(HashMap<Ppa, Page>);

impl Filling {
    /// A page is to be programmed.
    pub fn begins(&mut self, ppa: Ppa) {
        self.0.entry(ppa).or_default().programs += 1;
    }

    /// What was written waits for a page. False where that is programmed already.
    pub fn waits(&mut self, ppa: Ppa, written: Written) -> bool {
        self.0.get_mut(&ppa).map(|page| page.waiting.push(written)).is_some()
    }

    /// A program of a page is over. What waited for it, if that was the last.
    pub fn ends(&mut self, ppa: Ppa) -> Vec<Written> {
        let Some(page) = self.0.get_mut(&ppa) else { return Vec::new() };
        page.programs -= 1;
        if page.programs > 0 {
            return Vec::new();
        }
        self.0.remove(&ppa).map(|page| page.waiting).unwrap_or_default()
    }
}
