//! Drives with their write buffers, on every translation layer.
//!
//! A waiting page may be written again, trimmed, read or flushed. Each page is its newest content,
//! before the buffer is drained and after it. Each written page is programmed, absorbed or
//! deduplicated.
//!
//! No trim or read overtakes a write of the same page that is under way: the drive chooses their
//! order then.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
};

use crate::common::{
    Rng, for_seeds,
    ssd::{Watched, content, profile},
};
use larder_ssd::{
    array::FlashArray,
    counts::DriveCounts,
    ftl::{Ftl, PageWrite, WrittenPages},
    geometry::{DriveGeometry, Lpn, Ppa},
    kinds::{FTLS, FtlKind},
    op::{Cause, OpSink},
    profile::{CORTEX_R4, DriveProfile, Timing},
    time::{Drive, DriveRequest},
};
use larder_types::Fingerprint;

const GEOMETRY: DriveGeometry = DriveGeometry {
    packages: 1,
    dies_per_package: 1,
    planes_per_die: 2,
    blocks_per_plane: 64,
    pages_per_block: 16,
    page_bytes: 4096,
    over_provisioning_percent: 60.0,
};

/// The contents that the layer behind a buffer has reported.
#[derive(Default)]
struct Seen {
    /// The content on flash of the page that was located last.
    located: Option<Fingerprint>,
    /// The content of the last read of flash.
    read: Option<Fingerprint>,
}

/// A layer beside its shadow, behind a buffer.
struct Behind {
    watched: Watched,
    seen: Arc<Mutex<Seen>>,
}

impl Behind {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("one thread")
    }
}

impl Ftl for Behind {
    fn write(&mut self, pages: &[PageWrite], sink: &mut dyn OpSink) -> WrittenPages {
        self.watched.write_pages(pages, sink)
    }
    fn read(&mut self, lpn: Lpn, sink: &mut dyn OpSink) -> bool {
        let read = self.watched.on_flash(lpn);
        self.seen().read = read;
        self.watched.read_page(lpn, sink)
    }
    fn trim(&mut self, pages: Range<u32>, sink: &mut dyn OpSink) {
        self.watched.trim_pages(pages, sink);
    }
    fn flush(&mut self, sink: &mut dyn OpSink) {
        self.watched.flush_for(sink);
    }
    fn idle(&mut self, budget: u64, sink: &mut dyn OpSink) -> u64 {
        self.watched.idle_for(budget, sink)
    }
    fn tell_buffer_fill(&mut self, percent: u8) {
        self.watched.tell_buffer_fill(percent);
    }
    fn locate(&self, lpn: Lpn) -> Option<Ppa> {
        self.seen().located = self.watched.on_flash(lpn);
        self.watched.ftl.locate(lpn)
    }
    fn logical_pages(&self) -> u32 {
        self.watched.ftl.logical_pages()
    }
    fn write_unit_pages(&self) -> u32 {
        self.watched.ftl.write_unit_pages()
    }
    fn takes_trims(&self) -> bool {
        self.watched.ftl.takes_trims()
    }
    fn counts(&self) -> &DriveCounts {
        self.watched.ftl.counts()
    }
    fn array(&self) -> &FlashArray {
        self.watched.ftl.array()
    }
    fn ram_bytes(&self) -> u64 {
        self.watched.ftl.ram_bytes()
    }
    fn check(&self) {
        self.watched.check();
    }
}

/// Counts of the tested events.
#[derive(Clone, Copy, Debug, Default)]
struct Covered {
    /// Pages that a write found waiting.
    absorbed: u64,
    /// Pages that a trim found waiting, and that were not handed over.
    given_up: u64,
    /// Pages that a trim found waiting, and that were trimmed behind their unit.
    trimmed_later: u64,
    read_of_buffer: u64,
    read_of_flash: u64,
}

/// A drive with a buffer, and its host's knowledge.
struct Buffered {
    name: &'static str,
    drive: Drive,
    seen: Arc<Mutex<Seen>>,
    /// The newest content; `None`: it was trimmed, or never written.
    newest: BTreeMap<u32, Option<Fingerprint>>,
    /// Writes under way.
    writes: BTreeMap<u64, Range<u32>>,
    pages_written: u64,
    covered: Covered,
}

impl Buffered {
    /// Makes a drive with a buffer of this many pages, or of this many units.
    fn new(kind: &FtlKind, frames: u64) -> Buffered {
        let profile = DriveProfile {
            timing: Timing { read_ns: 25_000, program_ns: 200_000, erase_ns: 1_500_000, transfer_ns: 100_000 },
            erase_ns_by_block_bytes: None,
            controller: CORTEX_R4,
            link_bytes_per_second: 400 << 20,
            ..profile(GEOMETRY)
        };
        let ftl = (kind.make)(&profile).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let unit = u64::from(ftl.write_unit_pages());
        let frames = if unit > 1 { unit * (2 + frames % 3) + 3 } else { frames };
        let profile = DriveProfile { buffer_bytes: frames * 4096, ..profile };
        let seen = Arc::default();
        let behind = Behind { watched: Watched::new(kind.name, ftl), seen: Arc::clone(&seen) };
        let drive = Drive::new(Box::new(behind), &profile).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        let (newest, writes) = (BTreeMap::new(), BTreeMap::new());
        Buffered { name: kind.name, drive, seen, newest, writes, pages_written: 0, covered: Covered::default() }
    }

    fn on_flash(&self, lpn: u32) -> Option<Fingerprint> {
        let is_there = self.drive.ftl().locate(Lpn(lpn)).is_some();
        self.seen.lock().expect("one thread").located.filter(|_| is_there)
    }

    fn take_over(&mut self) {
        while let Some((request, _)) = self.drive.take_over() {
            self.writes.remove(&request);
        }
    }

    /// Lets time pass until the writes of some pages are over: the buffer has them, or flash.
    fn settle(&mut self, pages: &Range<u32>) {
        self.take_over();
        while self.writes.values().any(|write| write.start < pages.end && pages.start < write.end) {
            assert!(self.drive.step(), "{}: writes end", self.name);
            self.take_over();
        }
    }

    fn write(&mut self, pages: &[PageWrite]) {
        let (first, len) = (pages[0].lpn.0, pages.len() as u32);
        self.newest.extend(pages.iter().map(|page| (page.lpn.0, page.content)));
        self.pages_written += u64::from(len);
        let request = self.drive.submit(DriveRequest::Write(pages.to_vec()));
        self.writes.insert(request, first..first + len);
    }

    fn trim(&mut self, pages: Range<u32>) {
        self.settle(&pages);
        let trimmed = self.drive.ftl().counts().host_pages_trimmed;
        // Free frames may be filled at once if writes wait.
        let absorbed = self.writes.is_empty().then(|| self.drive.times().absorbed);
        self.drive.submit(DriveRequest::Trim(pages.clone()));
        let trimmed = self.drive.ftl().counts().host_pages_trimmed - trimmed;
        self.covered.given_up += absorbed.map_or(0, |absorbed| self.drive.times().absorbed - absorbed);
        self.covered.trimmed_later += (pages.len() as u64).saturating_sub(trimmed);
        for lpn in pages {
            // A layer that takes no trims keeps the pages that it had before, and gets none of the
            // waiting ones.
            let left = if self.drive.ftl().takes_trims() { None } else { self.on_flash(lpn) };
            self.newest.insert(lpn, left);
        }
    }

    /// Reads a page, and waits for it: of the buffer, or its newest content of flash.
    fn read(&mut self, lpn: u32) {
        self.settle(&(lpn..lpn + 1));
        let reads_of_flash = |drive: &Drive| drive.ftl().counts().host_pages_read;
        let before = reads_of_flash(&self.drive);
        let read = self.drive.submit(DriveRequest::Read(lpn..lpn + 1));
        let mut is_over = false;
        while !is_over {
            while let Some((request, _)) = self.drive.take_over() {
                self.writes.remove(&request);
                is_over |= request == read;
            }
            assert!(is_over || self.drive.step(), "{}: the read ends", self.name);
        }
        if reads_of_flash(&self.drive) == before {
            self.covered.read_of_buffer += 1;
            return;
        }
        self.covered.read_of_flash += 1;
        let read = self.seen.lock().expect("one thread").read;
        self.is_newest(lpn, read, "is read");
    }

    /// Checks that the content is the newest. The page may be missing if the drive may have dropped
    /// it.
    fn is_newest(&self, lpn: u32, is: Option<Fingerprint>, when: &str) {
        let newest = self.newest.get(&lpn).copied().flatten();
        let is_dropped = is.is_none() && self.drive.ftl().counts().pages_evicted > 0;
        assert!(is == newest || is_dropped, "{}: page {lpn} {when} as {is:?}, and not {newest:?}", self.name);
    }

    /// Drains the buffer, and compares all pages.
    fn drain(&mut self) {
        self.drive.submit(DriveRequest::Flush);
        self.drive.finish();
        self.take_over();
        assert!(self.writes.is_empty() && self.drive.in_flight() == 0, "{}: all is over", self.name);
        self.drive.ftl().check();
        let counts = self.drive.ftl().counts();
        let absorbed = self.drive.times().absorbed;
        assert_eq!(counts.host_pages_written, self.pages_written - absorbed, "{}: written or absorbed", self.name);
        let programs = self.pages_written - absorbed - counts.pages_deduplicated;
        assert_eq!(counts.programs[Cause::Host as usize], programs, "{}: written - absorbed - deduplicated", self.name);
        for lpn in 0..self.drive.ftl().logical_pages() {
            self.is_newest(lpn, self.on_flash(lpn), "is drained");
        }
        // The drive reports its drops, and nothing else is missing.
        let dropped: Vec<u32> = std::iter::from_fn(|| self.drive.take_evicted()).map(|lpn| lpn.0).collect();
        for lpn in dropped {
            self.newest.insert(lpn, None);
        }
        for (&lpn, newest) in &self.newest {
            assert_eq!(self.on_flash(lpn), *newest, "{}: page {lpn} is drained", self.name);
        }
        self.covered.absorbed = absorbed - self.covered.given_up;
    }
}

#[test]
fn what_waits_in_the_buffer_is_the_newest_content() {
    for kind in FTLS {
        for_seeds(0..4, |seed| {
            let mut rng = Rng::new(seed);
            let mut buffered = Buffered::new(kind, [16, 64, 17, 96][seed as usize]);
            let unit = buffered.drive.ftl().write_unit_pages();
            let logical = buffered.drive.ftl().logical_pages() / unit * unit;
            let mut number = 1_000;
            for _ in 0..2000 {
                let most = (8 * unit).min(logical / 2);
                let span = if rng.chance(70) { 5 * most } else { logical };
                let first = rng.below(u64::from(span.min(logical))) as u32;
                let len = 1 + rng.below(7) as u32;
                let run = first..(first + len).min(logical);
                let unit_run = first / unit * unit..(first / unit + 1) * unit;
                match rng.below(20) {
                    0..10 => {
                        let run = if unit > 1 { unit_run } else { run };
                        let page = |lpn| {
                            number += 1;
                            let number = if rng.chance(20) { rng.below(50) } else { number };
                            PageWrite { lpn: Lpn(lpn), content: content(number) }
                        };
                        buffered.write(&run.map(page).collect::<Vec<_>>());
                    }
                    10..13 => buffered.trim(if rng.chance(40) { unit_run } else { run }),
                    13..15 => buffered.read(first),
                    15 if rng.chance(10) => buffered.drain(),
                    16 => drop(buffered.drive.submit(DriveRequest::Flush)),
                    _ => {
                        let scale = rng.below(22);
                        buffered.drive.advance_to(buffered.drive.now() + rng.below(1 << scale));
                    }
                }
            }
            buffered.drain();
            let covered = buffered.covered;
            println!("{} with seed {seed}: {covered:?}", kind.name);
            let Covered { absorbed, given_up, trimmed_later, read_of_buffer, read_of_flash } = covered;
            let some = [absorbed, given_up, read_of_buffer, read_of_flash];
            assert!(some.iter().all(|&some| some > 20), "{}: {covered:?}", kind.name);
            assert!(unit == 1 || trimmed_later > 20, "{}: {covered:?}", kind.name);
        });
    }
}
