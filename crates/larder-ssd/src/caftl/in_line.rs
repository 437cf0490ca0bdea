//! Writes, deduplicated in line (CAFTL sections 3.1 and 3.4).
//!
//! Role: a request is divided into sampling units. A unit's sample page decides if the others are
//! fingerprinted. A fingerprinted page is looked up, if the options say so after its CRC32. If the
//! store has its content, the maps refer to that. If not, the page is programmed and remembered.
//!
//! Invariants: after each page the maps, the store and the flash agree. A page that is found costs
//! no program.
//!
//! It does not wait: a full buffer switches it off (`tell_buffer_fill`), and the duplicates that it
//! misses are found out of line.

use super::{
    Caftl,
    books::PageOwner,
    digest::Digest,
    entry::StoreEntry,
    location::{At, Location},
    maps::Released,
};
use crate::{
    array::PageState,
    ftl::PageWrite,
    geometry::Lpn,
    op::{Cause, Hash, OpSink, PageSource},
    space::WriteStream,
};

impl Caftl {
    /// Writes a request without deduplication in line, as a drive did before it had CAFTL.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`](crate::ftl::Ftl::logical_pages).
    pub fn write_undeduplicated(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) {
        for page in pages {
            let digest = self.digest(page);
            self.program(page, digest, false, sink);
        }
        self.flash().host_counts().host_pages_written += pages.len() as u64;
    }

    /// Writes a request; returns the number of its pages that were there.
    pub(super) fn write_in_line(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> u32 {
        for page in pages {
            self.books.maps.prefetch(page.lpn);
        }
        if !self.options.in_line || !self.is_in_line_on {
            if self.options.in_line {
                self.books.counts.pages_switched_off += pages.len() as u64;
            }
            for page in pages {
                let digest = self.digest(page);
                self.program(page, digest, false, sink);
            }
            return 0;
        }
        pages.chunks(self.sizes.sampling_unit_pages).map(|unit| self.write_unit(unit, sink)).sum()
    }

    fn write_unit(&mut self, unit: &[PageWrite], sink: &mut dyn OpSink) -> u32 {
        let [only] = unit else { return self.write_sampled(unit, sink) };
        let digest = self.digest(only);
        u32::from(self.write_fingerprinted(only, digest, sink))
    }

    /// Writes a sampled unit. The page of the greatest sample bytes decides; the first of equals.
    fn write_sampled(&mut self, unit: &[PageWrite], sink: &mut dyn OpSink) -> u32 {
        let digests: Vec<Digest> = unit.iter().map(|page| self.digest(page)).collect();
        let (mut sample, mut greatest) = (0, 0);
        for (at, digest) in digests.iter().enumerate() {
            let bytes = digest.sample_bytes();
            if at == 0 || bytes > greatest {
                (sample, greatest) = (at, bytes);
            }
        }
        let is_there = self.write_fingerprinted(&unit[sample], digests[sample], sink);
        self.books.counts.units_sampled += 1;
        self.books.counts.samples_found += u64::from(is_there);
        let mut deduplicated = u32::from(is_there);
        for (at, page) in unit.iter().enumerate().filter(|(at, _)| *at != sample) {
            if is_there {
                deduplicated += u32::from(self.write_fingerprinted(page, digests[at], sink));
            } else {
                self.books.counts.pages_sampled_out += 1;
                self.program(page, digests[at], false, sink);
            }
        }
        deduplicated
    }

    /// Fingerprints a page, and writes it unless its content is there. Returns true if it was.
    fn write_fingerprinted(&mut self, page: &PageWrite, digest: Digest, sink: &mut dyn OpSink) -> bool {
        if self.options.pre_hashes {
            self.flash().hash(Hash::Crc32, Cause::Host, sink);
            self.books.counts.crc_lookups += 1;
            if !self.books.store.has_crc(digest.crc32()) {
                self.program(page, digest, false, sink);
                return false;
            }
            self.books.counts.crc_found += 1;
        }
        self.flash().hash(Hash::Sha1, Cause::Host, sink);
        let found = self.books.store.look_up(digest);
        self.prefetch_release(page.lpn);
        if let Some(entry) = found
            && self.refer(page.lpn, &entry)
        {
            self.catch_up(sink);
            return true;
        }
        self.program(page, digest, true, sink);
        false
    }

    /// Prefetches the tables for the target of `lpn`, which will be given up soon.
    fn prefetch_release(&self, lpn: Lpn) {
        match self.books.maps.location(lpn).at() {
            None => {}
            Some(At::Page(ppa)) => {
                self.space.array().prefetch(ppa);
                self.books.pages.prefetch(ppa);
            }
            Some(At::Virtual(vba)) => self.books.maps.prefetch_shared(vba),
        }
    }

    /// Refers `lpn` to the content that the store has found; returns false if that was erased.
    fn refer(&mut self, lpn: Lpn, entry: &StoreEntry) -> bool {
        let released = match entry.location.at() {
            None => panic!("{entry:?} is nowhere"),
            Some(At::Virtual(vba)) => {
                let before = self.books.maps.shared(vba).references;
                let released = self.books.maps.refer(lpn, vba, &mut self.books.log);
                if self.books.maps.shared(vba).references == before {
                    self.books.counts.same_content += 1;
                } else {
                    self.books.references_changed(vba);
                }
                released
            }
            Some(At::Page(ppa)) => match self.space.array().state(ppa) {
                PageState::Free => {
                    self.books.reused(ppa);
                    return false;
                }
                PageState::Invalid => {
                    self.space.revalidate(ppa);
                    self.set_owner(ppa, PageOwner::Page(lpn));
                    self.books.store.change(entry.digest, Location::page(ppa), 1);
                    self.books.counts.revalidated += 1;
                    self.books.maps.map(lpn, ppa, &mut self.books.log)
                }
                PageState::Valid => {
                    let PageOwner::Page(first) = self.owner(ppa) else { panic!("page {} has one logical page", ppa.0) };
                    if first == lpn {
                        self.books.counts.same_content += 1;
                        Released::Nothing
                    } else {
                        let vba = self.share(first, ppa);
                        let released = self.books.maps.refer(lpn, vba, &mut self.books.log);
                        self.books.references_changed(vba);
                        released
                    }
                }
            },
        };
        self.released(released);
        true
    }

    /// Programs a page of the host.
    fn program(&mut self, page: &PageWrite, digest: Digest, is_known: bool, sink: &mut dyn OpSink) {
        let PageWrite { lpn, content } = *page;
        let ppa =
            self.append(WriteStream::Host, PageOwner::Page(lpn), PageSource::Host(lpn, content), Cause::Host, sink);
        // The prefetched fingerprint has come by now.
        if let Some(At::Page(old)) = self.books.maps.location(lpn).at() {
            self.books.prefetch_change(old);
        }
        self.books.pages.hold(ppa, digest, is_known);
        self.books.pages.touch(ppa, true);
        // The map comes last: collection may have moved the old page.
        let released = self.books.maps.map(lpn, ppa, &mut self.books.log);
        self.released(released);
        if is_known {
            let entry = self.books.entry(digest, ppa, PageOwner::Page(lpn));
            self.books.remember(entry, ppa);
        }
        self.catch_up(sink);
    }

    fn digest(&mut self, page: &PageWrite) -> Digest {
        assert!(page.lpn.0 < self.books.maps.logical_pages(), "logical page {} is beyond the drive", page.lpn.0);
        match page.content {
            Some(content) => Digest::of(content),
            None => {
                self.unknown += 1;
                Digest::of_unknown(self.unknown)
            }
        }
    }
}
