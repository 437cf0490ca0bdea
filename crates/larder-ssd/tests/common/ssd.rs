//! A shadow of a drive's flash, and small drives for tests.
//!
//! Only the operations that a sink hears drive the shadow. It knows the content of each page, and
//! checks the rules of flash by itself.
//!
//! It does not believe the array of the simulator: it counts for itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use larder_ssd::{
    counts::DriveCounts,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, Ppa},
    op::{Cause, FlashOp, Nobody, OpSink, PageSource},
    profile::{DriveProfile, PROFILES},
};
use larder_types::Fingerprint;

/// The content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The host's data of this request.
    Host { lpn: Lpn, content: Option<Fingerprint>, request: u64 },
    /// Nothing.
    Padding,
    /// A page of the layer's own, programmed for this cause.
    Internal(Cause),
}

/// See the module.
pub struct Shadow {
    geometry: DriveGeometry,
    pages: Vec<Option<Held>>,
    written: Vec<u32>,
    erases: Vec<u64>,
    /// The number of the current request, which tells unknown contents apart.
    pub request: u64,
    /// Pages that were read for the host since the last clear.
    pub host_reads: Vec<Ppa>,
    /// Logical pages since the last clear, in order: dropped by the drive (true) or programmed.
    pub came_and_went: Vec<(Lpn, bool)>,
    pub counts: DriveCounts,
    /// Pages hashed, by cause.
    pub hashed_for: [u64; Cause::COUNT],
    /// The causes of a block's programs since its erasure, a bit for each cause.
    pub causes_in: Vec<u32>,
}

impl Shadow {
    pub fn new(geometry: DriveGeometry) -> Self {
        Shadow {
            geometry,
            pages: vec![None; geometry.pages() as usize],
            written: vec![0; geometry.blocks() as usize],
            erases: vec![0; geometry.blocks() as usize],
            request: 0,
            host_reads: Vec::new(),
            came_and_went: Vec::new(),
            counts: DriveCounts::default(),
            hashed_for: [0; Cause::COUNT],
            causes_in: vec![0; geometry.blocks() as usize],
        }
    }

    pub fn held(&self, ppa: Ppa) -> Held {
        self.pages[ppa.0 as usize].unwrap_or_else(|| panic!("page {} is not programmed", ppa.0))
    }

    fn program(&mut self, ppa: Ppa, source: PageSource, cause: Cause) {
        let block = ppa.0 / self.geometry.pages_per_block;
        let written = &mut self.written[block as usize];
        assert_eq!(ppa.0 % self.geometry.pages_per_block, *written, "block {block} is programmed in order");
        *written += 1;
        if let PageSource::Host(lpn, _) = source {
            self.came_and_went.push((lpn, false));
        }
        let held = match source {
            PageSource::Host(lpn, content) => Held::Host { lpn, content, request: self.request },
            PageSource::Copy(from) => self.held(from),
            PageSource::Padding => Held::Padding,
            PageSource::Internal => Held::Internal(cause),
        };
        let before = self.pages[ppa.0 as usize].replace(held);
        assert_eq!(before, None, "page {} is programmed once", ppa.0);
        match cause {
            Cause::Host => assert!(matches!(source, PageSource::Host(..))),
            Cause::Collection | Cause::WearLevelling | Cause::Merge => assert!(matches!(source, PageSource::Copy(_))),
            Cause::MergePadding => assert_eq!(source, PageSource::Padding),
            Cause::Metadata | Cause::Journal | Cause::MapTable | Cause::SortRun => {
                assert_eq!(source, PageSource::Internal)
            }
            Cause::OutOfLine | Cause::Eviction => panic!("nothing is programmed for {}", cause.name()),
        }
        self.counts.programs[cause as usize] += 1;
        self.causes_in[block as usize] |= 1 << cause as u32;
    }

    /// Returns the number of erasures of each block.
    pub fn erases(&self) -> &[u64] {
        &self.erases
    }
}

impl OpSink for Shadow {
    fn op(&mut self, op: &FlashOp) {
        match *op {
            FlashOp::Read { ppa, cause } => {
                self.held(ppa);
                self.counts.reads[cause as usize] += 1;
                if cause == Cause::Host {
                    self.host_reads.push(ppa);
                }
            }
            FlashOp::Program { ppa, source, cause } => self.program(ppa, source, cause),
            FlashOp::Erase { block, cause } => {
                let pages = self.geometry.pages_per_block;
                let start = (block.0 * pages) as usize;
                self.pages[start..start + pages as usize].fill(None);
                self.written[block.0 as usize] = 0;
                self.erases[block.0 as usize] += 1;
                self.causes_in[block.0 as usize] = 0;
                self.counts.erases[cause as usize] += 1;
            }
            FlashOp::Hash { hash, cause } => {
                self.counts.hashes[hash as usize] += 1;
                self.hashed_for[cause as usize] += 1;
            }
            FlashOp::Evicted { lpn } => {
                self.came_and_went.push((lpn, true));
                self.counts.pages_evicted += 1;
            }
        }
    }
}

/// Returns a sink for the shadow and for another listener.
fn both(shadow: &mut Shadow, sink: &mut dyn OpSink) -> impl FnMut(&FlashOp) {
    |op| {
        shadow.op(op);
        sink.op(op);
    }
}

/// The host's last writes, by logical page: content and request.
#[derive(Default)]
pub struct Model {
    pages: BTreeMap<u32, (Option<Fingerprint>, u64)>,
}

/// A drive beside its shadow and the host's knowledge.
pub struct Watched {
    pub name: &'static str,
    pub ftl: Box<dyn Ftl>,
    pub shadow: Shadow,
    model: Model,
    dirty: BTreeSet<u32>,
}

impl Watched {
    pub fn new(name: &'static str, ftl: Box<dyn Ftl>) -> Self {
        let shadow = Shadow::new(*ftl.array().geometry());
        Watched { name, ftl, shadow, model: Model::default(), dirty: BTreeSet::new() }
    }

    fn forget_evicted(&mut self) {
        self.learn(&[]);
    }

    /// Takes the drive's programs and drops in order. A written page may be dropped before the
    /// request ends, and the other way round.
    fn learn(&mut self, written: &[PageWrite]) {
        let heard = std::mem::take(&mut self.shadow.came_and_went);
        let content_of: BTreeMap<u32, _> = written.iter().map(|page| (page.lpn.0, page.content)).collect();
        let programmed: BTreeSet<u32> = heard.iter().filter(|(_, went)| !went).map(|(lpn, _)| lpn.0).collect();
        let request = self.shadow.request;
        for page in written.iter().filter(|page| !programmed.contains(&page.lpn.0)) {
            self.model.pages.insert(page.lpn.0, (page.content, request));
        }
        for (lpn, went) in heard {
            match went {
                true => {
                    let was = self.model.pages.remove(&lpn.0);
                    assert!(was.is_some(), "{}: {} was there to be evicted", self.name, lpn.0);
                    assert!(!self.dirty.contains(&lpn.0), "{}: {} is dirty and was evicted", self.name, lpn.0);
                }
                false => drop(self.model.pages.insert(lpn.0, (content_of[&lpn.0], request))),
            }
        }
    }

    /// Tells the drive that pages are dirty, if they may be, or clean.
    pub fn tell_dirty(&mut self, first: u32, len: u32, is_dirty: bool) {
        let logical = self.ftl.logical_pages();
        let first = first % logical;
        for lpn in first..first.saturating_add(len).min(logical) {
            if is_dirty && self.ftl.takes_dirty(Lpn(lpn)) {
                self.ftl.tell_dirty(lpn..lpn + 1, true);
                self.dirty.insert(lpn);
            } else if !is_dirty {
                self.ftl.tell_dirty(lpn..lpn + 1, false);
                self.dirty.remove(&lpn);
            }
        }
    }

    /// Writes pages with their contents, rounded to the drive's units.
    pub fn write(&mut self, first: u32, contents: &[Option<Fingerprint>]) {
        let unit = self.ftl.write_unit_pages();
        let logical = self.ftl.logical_pages() / unit * unit;
        let first = first % logical / unit * unit;
        let len = (contents.len() as u32).next_multiple_of(unit).min(logical - first);
        let pages: Vec<PageWrite> = (0..len)
            .map(|at| PageWrite { lpn: Lpn(first + at), content: contents[at as usize % contents.len()] })
            .collect();
        self.write_pages(&pages, &mut Nobody);
    }

    /// Writes these pages; `sink` hears of it, too.
    pub fn write_pages(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        let len = pages.len() as u32;
        self.shadow.request += 1;
        let written = self.ftl.write(pages, &mut both(&mut self.shadow, sink));
        assert_eq!(written.programmed + written.deduplicated, len, "{}", self.name);
        self.shadow.counts.host_pages_written += u64::from(len);
        self.shadow.counts.pages_deduplicated += u64::from(written.deduplicated);
        self.learn(pages);
        written
    }

    /// Reads a page: the drive reads exactly its physical page, or nothing.
    pub fn read(&mut self, lpn: u32) {
        self.read_page(Lpn(lpn % self.ftl.logical_pages()), &mut Nobody);
    }

    /// Reads a page; `sink` hears of it, too.
    pub fn read_page(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        self.shadow.host_reads.clear();
        let found = self.ftl.read(lpn, &mut both(&mut self.shadow, sink));
        self.forget_evicted();
        let expected: Vec<Ppa> = self.ftl.locate(lpn).into_iter().collect();
        assert_eq!(self.shadow.host_reads, expected, "{}: page {}", self.name, lpn.0);
        assert_eq!(found, self.model.pages.contains_key(&lpn.0), "{}: page {}", self.name, lpn.0);
        self.shadow.counts.host_pages_read += 1;
        self.shadow.counts.unmapped_pages_read += u64::from(!found);
        found
    }

    pub fn trim(&mut self, first: u32, len: u32) {
        let logical = self.ftl.logical_pages();
        let first = first % logical;
        self.trim_pages(first..first.saturating_add(len).min(logical), &mut Nobody);
    }

    /// Trims these pages; `sink` hears of it, too.
    pub fn trim_pages(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        let Range { start: first, end } = pages;
        self.ftl.trim(first..end, &mut both(&mut self.shadow, sink));
        self.shadow.counts.host_pages_trimmed += u64::from(end - first);
        self.forget_evicted();
        if self.ftl.takes_trims() {
            for lpn in first..end {
                self.model.pages.remove(&lpn);
                self.dirty.remove(&lpn);
            }
        }
    }

    pub fn flush(&mut self) {
        self.flush_for(&mut Nobody);
    }

    /// Flushes; `sink` hears of it, too.
    pub fn flush_for(&mut self, sink: &mut dyn OpSink) {
        self.ftl.flush(&mut both(&mut self.shadow, sink));
        self.forget_evicted();
    }

    pub fn idle(&mut self, budget: u64) {
        self.idle_for(budget, &mut Nobody);
    }

    /// Leaves the drive idle; `sink` hears of it, too.
    pub fn idle_for(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        let used = self.ftl.idle(budget, &mut both(&mut self.shadow, sink));
        self.forget_evicted();
        used
    }

    /// Returns the content of a page on flash; `None` if it is not there or unknown.
    pub fn on_flash(&self, lpn: Lpn) -> Option<Fingerprint> {
        match self.shadow.held(self.ftl.locate(lpn)?) {
            Held::Host { content, .. } => content,
            held => panic!("{}: page {} is on {held:?}", self.name, lpn.0),
        }
    }

    pub fn tell_buffer_fill(&mut self, percent: u8) {
        self.ftl.tell_buffer_fill(percent);
    }

    /// Checks everything that has to hold at any time.
    pub fn check(&self) {
        let name = self.name;
        self.ftl.check();
        self.check_contents();
        let array = self.ftl.array();
        let (totals, pages) = (self.ftl.totals(), u64::from(array.geometry().pages()));
        assert_eq!(totals, array.recount(), "{name}");
        assert_eq!(totals.valid + totals.invalid + totals.free, pages, "{name}");
        let free = self.shadow.pages.iter().filter(|page| page.is_none()).count() as u64;
        assert_eq!(totals.free, free, "{name}");
        assert!(array.all_erases().map(u64::from).eq(self.shadow.erases.iter().copied()), "{name}");

        let counts = self.ftl.counts();
        assert_eq!(*counts, self.shadow.counts, "{name}: what was counted is what was heard");
        let by = |cause: Cause| counts.programs[cause as usize];
        let others: u64 = Cause::ALL.into_iter().filter(|&cause| cause != Cause::Host).map(by).sum();
        assert_eq!(by(Cause::Host), counts.host_pages_written - counts.pages_deduplicated, "{name}");
        assert_eq!(
            counts.pages_programmed(),
            counts.host_pages_written - counts.pages_deduplicated + others,
            "{name}: programs = host pages - deduplicated + copies + padding + the layer's own"
        );
        for cause in [Cause::Collection, Cause::WearLevelling, Cause::Merge] {
            let reads = counts.reads[cause as usize];
            assert_eq!(reads, by(cause), "{name}: each page copied for {} is read once", cause.name());
        }
        let per_block = u64::from(array.geometry().pages_per_block);
        assert!(counts.blocks_erased() * per_block + pages >= counts.pages_programmed(), "{name}");
    }

    /// Checks that each logical page is at the place of its newest content.
    fn check_contents(&self) {
        for lpn in (0..self.ftl.logical_pages()).map(Lpn) {
            let located = self.ftl.locate(lpn);
            let Some(&(content, request)) = self.model.pages.get(&lpn.0) else {
                assert_eq!(located, None, "{}: page {} is not there", self.name, lpn.0);
                continue;
            };
            let ppa = located.unwrap_or_else(|| panic!("{}: page {} is lost", self.name, lpn.0));
            assert!(self.ftl.array().is_valid(ppa), "{}: page {} is on a valid page", self.name, lpn.0);
            let held = self.shadow.held(ppa);
            // A page of known content may be shared; unknown content is that of one request.
            let is_newest = match (held, content) {
                (Held::Host { content: held, .. }, Some(_)) => held == content,
                (Held::Host { lpn: of, request: held, content: None }, None) => of == lpn && held == request,
                _ => false,
            };
            assert!(is_newest, "{}: page {} holds {held:?}, not {content:?} of request {request}", self.name, lpn.0);
        }
    }
}

/// Returns the content with a number.
pub fn content(number: u64) -> Option<Fingerprint> {
    Some(Fingerprint(u128::from(number).to_le_bytes()))
}

/// Makes a drive of `geometry`, with the rest of the first profile's.
pub fn profile(geometry: DriveGeometry) -> DriveProfile {
    DriveProfile { geometry, ..PROFILES[0] }
}
