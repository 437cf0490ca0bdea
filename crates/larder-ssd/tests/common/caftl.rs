//! A CAFTL drive beside a shadow flash and the host's data, for tests that look inside it.
//!
//! It does not judge.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use larder_ssd::{
    caftl::{
        Caftl,
        entry::{StoreEntry, StoreOptions},
        location::At,
        options::CaftlOptions,
    },
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, Ppa},
};
use larder_types::Fingerprint;

use super::ssd::{Held, Shadow, content};

/// 1024 pages, of which 682 are logical.
pub const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 2,
    dies_per_package: 1,
    planes_per_die: 1,
    blocks_per_plane: 64,
    pages_per_block: 8,
    page_bytes: 4096,
    over_provisioning_percent: 50.0,
};

/// Room for every fingerprint.
pub const ROOMY: StoreOptions = StoreOptions {
    segments: 4,
    bucket_bytes: 4096,
    buckets_max: 64,
    range_check: true,
    order: larder_ssd::caftl::entry::Order::Fingerprint,
};

/// See the module.
pub struct Drive {
    pub ftl: Caftl,
    pub shadow: Shadow,
    pub model: BTreeMap<u32, Option<Fingerprint>>,
}

impl Drive {
    pub fn new(options: CaftlOptions) -> Drive {
        Drive::of(GEOMETRY, options)
    }

    pub fn of(geometry: DriveGeometry, options: CaftlOptions) -> Drive {
        let ftl = Caftl::new(geometry, options).unwrap_or_else(|error| panic!("{error}"));
        Drive { ftl, shadow: Shadow::new(geometry), model: BTreeMap::new() }
    }

    /// Writes contents by number from a page on, as one request.
    pub fn write(&mut self, first: u32, numbers: &[u64]) -> WrittenPages {
        let pages: Vec<PageWrite> = (first..)
            .zip(numbers)
            .map(|(lpn, &number)| PageWrite { lpn: Lpn(lpn), content: content(number) })
            .collect();
        self.shadow.request += 1;
        let written = self.ftl.write(&pages, &mut self.shadow);
        self.model.extend(pages.iter().map(|page| (page.lpn.0, page.content)));
        written
    }

    pub fn trim(&mut self, lpn: u32) {
        self.ftl.trim(lpn..lpn + 1, &mut self.shadow);
        self.model.remove(&lpn);
    }

    pub fn idle(&mut self, budget: u64) -> u64 {
        self.ftl.idle(budget, &mut self.shadow)
    }

    pub fn locate(&self, lpn: u32) -> Ppa {
        self.ftl.locate(Lpn(lpn)).unwrap_or_else(|| panic!("page {lpn} is somewhere"))
    }

    /// Returns the content on flash at the place of a page.
    pub fn held(&self, lpn: u32) -> Option<Fingerprint> {
        match self.shadow.held(self.ftl.locate(Lpn(lpn))?) {
            Held::Host { content, .. } => content,
            held => panic!("page {lpn} is on {held:?}"),
        }
    }

    /// Returns the references to a page's shared content; 1 if it shares nothing.
    pub fn references(&self, lpn: u32) -> u32 {
        match self.ftl.maps().location(Lpn(lpn)).at() {
            Some(At::Virtual(vba)) => self.ftl.maps().shared(vba).references,
            Some(At::Page(_)) => 1,
            None => 0,
        }
    }

    /// Returns entries of the store for pages that are not deleted.
    pub fn live_entries(&self) -> Vec<StoreEntry> {
        let mut entries: Vec<StoreEntry> =
            self.ftl.store().entries().filter(|entry| entry.reference > 0).copied().collect();
        entries.sort_by_key(|entry| entry.digest);
        entries
    }

    /// Returns the number of physical pages that hold the host's data, and of contents.
    pub fn pages_and_contents(&self) -> (usize, usize) {
        let pages: BTreeSet<Ppa> = self.model.keys().map(|&lpn| self.locate(lpn)).collect();
        let contents: HashSet<Option<Fingerprint>> = self.model.values().copied().collect();
        (pages.len(), contents.len())
    }

    /// Checks the layer's own beliefs, and that each page reads its written content.
    pub fn check(&self) {
        self.ftl.check();
        for lpn in 0..self.ftl.logical_pages() {
            match self.model.get(&lpn) {
                Some(content) => assert_eq!(self.held(lpn), *content, "page {lpn}"),
                None => assert_eq!(self.ftl.locate(Lpn(lpn)), None, "page {lpn}"),
            }
        }
        let (ours, heard) = (self.ftl.counts(), &self.shadow.counts);
        assert_eq!((ours.programs, ours.reads, ours.hashes), (heard.programs, heard.reads, heard.hashes));
    }
}
