//! The trait of all flash translation layers.
//!
//! Role: [`Ftl`] has the calls of the host's side of a drive. A layer is one file that implements
//! it and one line in [`FTLS`](crate::kinds::FTLS). The tests over random workloads run on all
//! lines of that table.
//!
//! Invariants: a layer has no clock and no randomness. The drive's write buffer is before the
//! layer, not in it. Pages that the buffer absorbs never come here; `write` gets the pages that
//! leave it.
//!
//! It leaves requests of partial pages to the host side.

use std::ops::Range;

use larder_types::Fingerprint;

use super::{
    array::{FlashArray, PageTotals},
    counts::DriveCounts,
    geometry::{Lpn, Ppa},
    op::OpSink,
};

/// A logical page that the host writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrite {
    /// The page.
    pub lpn: Lpn,
    /// The content: a fingerprint of 128 bits, if it is known.
    ///
    /// Equal fingerprints are equal pages; unknown content is like no other.
    pub content: Option<Fingerprint>,
}

/// The numbers of programmed and deduplicated pages of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenPages {
    /// Pages that were programmed.
    pub programmed: u32,
    /// Pages that were not, because their content was there.
    pub deduplicated: u32,
}

/// A flash translation layer.
pub trait Ftl: Send {
    /// Writes the pages of one request, each page once, in any order. CAFTL samples inside a
    /// request.
    ///
    /// The layer collects garbage inside the call if it needs room. It reports the pages that the
    /// collection drops, in the order of the operations. A dropped page may be an old copy of a
    /// page of this request, or the page that was just programmed.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`], or the request is not a multiple of
    /// [`Ftl::write_unit_pages`].
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages;

    /// Reads a page; returns false and reads nothing if the page is not there.
    ///
    /// # Panics
    /// If the page is not below [`Ftl::logical_pages`].
    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool;

    /// Trims these pages: the host has no more use for them.
    ///
    /// A layer that [takes no trims](Ftl::takes_trims) counts them and keeps the pages.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`].
    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink);

    /// Makes the layer's state in RAM durable, such as a journal. Most layers have none.
    fn flush(&mut self, _sink: &mut dyn OpSink) {}

    /// Works on deferred tasks, such as deduplication out of line, while the host asks for nothing.
    ///
    /// The layer may use about `budget` operations. Returns the number of used ones.
    fn idle(&mut self, _budget: u64, _sink: &mut dyn OpSink) -> u64 {
        0
    }

    /// Tells the fill of the drive's write buffer, in percent, for CAFTL's dynamic switch (section
    /// 3.4.3).
    ///
    /// The call comes before a write whenever the fill has changed.
    fn tell_buffer_fill(&mut self, _percent: u8) {}

    /// Tells the layer that pages are dirty, so that the drive must not drop them, or clean again.
    ///
    /// A page is dirty if the host alone has its newest content. The call stands for FlashTier's
    /// write-dirty, write-clean and clean: it comes before the write, and holds for the written
    /// content. A page is clean until told otherwise, and again once it is trimmed. The call has no
    /// effect on drives that drop only pages that they [named before](Ftl::next_eviction), or none.
    ///
    /// # Panics
    /// If a page is not below [`Ftl::logical_pages`], or is not [taken](Ftl::takes_dirty).
    fn tell_dirty(&mut self, _pages: Range<u32>, _is_dirty: bool) {}

    /// Returns true if this page may be told dirty.
    ///
    /// A drive that makes room by dropping pages needs some clean pages.
    fn takes_dirty(&self, _lpn: Lpn) -> bool {
        true
    }

    /// Returns the most aligned runs of a block's pages that may have dirty pages at a time.
    ///
    /// `None` means all of them.
    fn dirty_blocks_max(&self) -> Option<u32> {
        None
    }

    /// Returns true if the drive drops pages that it did not [name before](Ftl::next_eviction).
    ///
    /// Then the host has to [tell](Ftl::tell_dirty) it the dirty pages.
    fn drops_unasked(&self) -> bool {
        false
    }

    /// Returns true if the layer keeps pages of equal content once.
    ///
    /// Then it needs the content of written pages ([`PageWrite::content`]).
    fn deduplicates(&self) -> bool {
        false
    }

    /// Locates a page. This is no operation: it serves tests and followers of the layer.
    fn locate(&self, lpn: Lpn) -> Option<Ppa>;

    /// Counts the pages that the host can address.
    fn logical_pages(&self) -> u32 {
        self.array().geometry().logical_pages()
    }

    /// Returns the pages of the whole, aligned runs in which writes come.
    ///
    /// They are 1, or those of a write-evict unit on a drive made for them.
    fn write_unit_pages(&self) -> u32 {
        1
    }

    /// Returns true if trimmed pages are gone.
    fn takes_trims(&self) -> bool;

    /// Returns the logical pages that the drive would drop next if it needed room.
    ///
    /// A cache asks before it writes (Nitro section 4: the cache updates its indices and destages
    /// first). Drives that drop nothing return `None`.
    fn next_eviction(&self) -> Option<Range<u32>> {
        None
    }

    /// Returns the counts of all operations so far.
    fn counts(&self) -> &DriveCounts;

    /// Returns the physical state.
    fn array(&self) -> &FlashArray;

    /// Returns the number of physical pages in each state.
    fn totals(&self) -> PageTotals {
        self.array().totals()
    }

    /// Returns the bytes that the whole layer has allocated.
    fn ram_bytes(&self) -> u64;

    /// Checks the layer's tables page by page, for tests.
    ///
    /// # Panics
    /// If one of them is wrong.
    fn check(&self);
}
