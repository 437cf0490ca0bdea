//! The cost of CAFTL's own pages: its copies under uniform random writes.
//!
//! CAFTL copies more than its page-mapped layer because of these pages. A full drive of 15%
//! over-provisioning is written over at random. Parts are switched off one by one: deduplication in
//! line, metadata pages in flash, the tables, all of it. With metadata off all of it is in RAM;
//! with tables off their journal never ends. Beside them the page-mapped layer has fewer and fewer
//! blocks for the same logical pages. That gives CAFTL's own pages their worth in blocks.
//!
//! The drive has 8 planes of 177 blocks, a tenth of CAFTL's scaled to 3 GB; `LARDER_PACKAGES=10`
//! makes it that one. `--nocapture` prints the figures that docs/reproduction/ has.
//!
//! It does not measure time.

use crate::common::{Rng, ssd::content};
use larder_ssd::{
    caftl::{Caftl, options::CaftlOptions},
    counts::DriveCounts,
    ftl::{Ftl, PageWrite},
    geometry::{DriveGeometry, Lpn},
    op::{Cause, FlashOp, OpSink, PageSource},
    page_mapped::{PageMapped, PageMappedOptions},
    profile::PROFILES,
    space::SpaceOptions,
};

/// A sink that knows the layer's own pages, and counts the copies of these.
struct Watch {
    is_own: Vec<bool>,
    own_copies: u64,
}

impl OpSink for Watch {
    fn op(&mut self, op: &FlashOp) {
        if let FlashOp::Program { ppa, source, .. } = *op {
            let is_own = match source {
                PageSource::Internal => true,
                PageSource::Copy(from) => self.is_own[from.0 as usize],
                PageSource::Host(..) | PageSource::Padding => false,
            };
            self.own_copies += u64::from(is_own && matches!(source, PageSource::Copy(_)));
            self.is_own[ppa.0 as usize] = is_own;
        }
    }
}

/// The results of the writes after the first of each page.
struct Found {
    copies: u64,
    own_copies: u64,
    own_valid: u64,
    counts: DriveCounts,
}

/// A drive with a number of packages, and a number of writes.
struct Bench {
    geometry: DriveGeometry,
    writes: u32,
    duplicates_percent: u64,
}

impl Bench {
    fn run(&self, name: &str, mut ftl: impl Ftl) -> Found {
        let logical = self.geometry.logical_pages();
        let mut watch = Watch { is_own: vec![false; ftl.array().geometry().pages() as usize], own_copies: 0 };
        let mut rng = Rng::new(7);
        let mut contents = u64::from(logical);
        (0..logical).for_each(|lpn| write(&mut ftl, lpn, u64::from(lpn), &mut watch));
        let before = ftl.counts().clone();
        watch.own_copies = 0;
        for _ in 0..self.writes {
            let lpn = rng.below(u64::from(logical)) as u32;
            contents += 1;
            let repeats = rng.below(100) < self.duplicates_percent;
            let number = if repeats { rng.below(contents) } else { contents };
            write(&mut ftl, lpn, number, &mut watch);
        }
        let counts = ftl.counts().since(&before);
        let own_valid = (watch.is_own.iter().enumerate())
            .filter(|&(page, is_own)| *is_own && ftl.array().is_valid(larder_ssd::geometry::Ppa(page as u32)))
            .count() as u64;
        let found = Found { copies: counts.pages_copied(), own_copies: watch.own_copies, own_valid, counts };
        let by = |cause: Cause| found.counts.programs[cause as usize];
        println!(
            "{name:<36} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9}",
            found.copies,
            found.own_copies,
            by(Cause::Metadata),
            by(Cause::Journal),
            by(Cause::MapTable),
            found.own_valid,
        );
        found
    }

    /// Makes the page-mapped layer with `blocks_less` fewer blocks in each plane. It has as many
    /// logical pages.
    fn page_mapped(&self, blocks_less: u32) -> PageMapped {
        let mut geometry = self.geometry;
        geometry.blocks_per_plane -= blocks_less;
        let spare = f64::from(geometry.pages()) / f64::from(self.geometry.logical_pages()) - 1.0;
        geometry.over_provisioning_percent = 100.0 * spare - 0.001;
        assert!(geometry.logical_pages().abs_diff(self.geometry.logical_pages()) < 20, "as many logical pages");
        let options = PageMappedOptions { space: SpaceOptions::default(), takes_trims: true };
        PageMapped::new(geometry, options).expect("a drive")
    }

    fn caftl(&self, options: CaftlOptions) -> Caftl {
        Caftl::new(self.geometry, options).expect("a drive")
    }
}

fn write(ftl: &mut dyn Ftl, lpn: u32, number: u64, watch: &mut Watch) {
    ftl.write(&[PageWrite { lpn: Lpn(lpn), content: content(number) }], watch);
}

#[test]
fn what_caftl_copies_more_is_for_its_own_pages() {
    let packages = std::env::var("LARDER_PACKAGES").ok().and_then(|packages| packages.parse().ok()).unwrap_or(1);
    let mut geometry = PROFILES[0].geometry;
    (geometry.packages, geometry.blocks_per_plane) = (packages, 177);
    let bench = Bench { geometry, writes: 50_000 * packages, duplicates_percent: 0 };
    println!(
        "{} logical pages, {} physical, {} writes; seed 7",
        geometry.logical_pages(),
        geometry.pages(),
        bench.writes
    );
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9}",
        "", "copies", "of own", "metadata", "journal", "tables", "own valid"
    );

    let plain = bench.run("page-mapped", bench.page_mapped(0));
    let fewer: Vec<Found> = (1..=5)
        .map(|less| bench.run(&format!("page-mapped, {less} blocks a plane less"), bench.page_mapped(less)))
        .collect();
    let options = CaftlOptions::default();
    let caftl = bench.run("CAFTL", bench.caftl(options));
    let off_line = CaftlOptions { in_line: false, fingerprints_collected: false, ..options };
    let off_line = bench.run("CAFTL, in line off", bench.caftl(off_line));
    let in_ram = CaftlOptions { metadata_pages_in_ram: Some(1 << 20), ..options };
    let no_metadata = bench.run("CAFTL, metadata in RAM", bench.caftl(in_ram));
    let no_tables = CaftlOptions { journal_pages_max: Some(1_500 * packages), ..options };
    let no_tables = bench.run("CAFTL, tables never written out", bench.caftl(no_tables));
    let no_log = CaftlOptions { log_pages: 1024, journal_pages_max: Some(1_500 * packages), ..in_ram };
    let nothing = bench.run("CAFTL, neither, log of 4 MB", bench.caftl(no_log));
    let repeating = Bench { duplicates_percent: 20, ..bench };
    let deduplicating = repeating.run("CAFTL, 20% duplicates", repeating.caftl(options));

    // Contents are all distinct: deduplication makes no difference, and nothing is shared.
    assert_eq!(caftl.counts.pages_deduplicated, 0);
    assert_eq!(caftl.copies, off_line.copies);
    // Without pages of its own CAFTL copies exactly as the page-mapped layer.
    if nothing.counts.programs[Cause::Journal as usize] == 0 {
        assert_eq!(nothing.copies, plain.copies);
    }
    // Metadata pages are most of it; a journal that never ends takes space.
    assert!(caftl.copies > no_metadata.copies && no_metadata.copies > plain.copies);
    assert!(2 * (no_metadata.copies - plain.copies) < caftl.copies - plain.copies);
    assert!(no_tables.copies > caftl.copies && no_tables.own_valid > caftl.own_valid);
    // The host's data alone is copied as with 2 to 4 blocks a plane less. That is more than CAFTL's
    // own valid pages are, since these lie among their own former versions, but not much.
    let of_data = caftl.copies - caftl.own_copies;
    assert!(fewer[1].copies < of_data && of_data < fewer[3].copies, "{of_data}");
    let own_blocks = caftl.own_valid as f64 / f64::from(geometry.planes() * geometry.pages_per_block);
    assert!((0.5..2.0).contains(&own_blocks), "{own_blocks}");
    // Deduplication makes spare space, which wins back more than that.
    assert!(deduplicating.copies < plain.copies && deduplicating.counts.pages_deduplicated > 0);
}
