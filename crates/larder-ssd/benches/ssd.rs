//! Speed of the simulation of a drive: page operations a second, on one core.
//!
//! An operation is a program or a read of flash for any cause, so a copy counts as two. The
//! requests overwrite a full drive at random (0), so that most operations are collection's, or mix
//! as many reads with the writes (50). A round before counts the operations of a sample's requests.
//! The benches with time have requests of a page each, 16 outstanding, on a drive with its planes,
//! buses, buffer and link.
//!
//! If contents repeat, a page that the host writes makes fewer operations, and operations a second
//! fall by that alone. The bytes that the host writes a second stand beside them.
//!
//! It does not judge. Run with `cargo bench -p larder-ssd`.

use divan::{
    Bencher,
    counter::{BytesCount, ItemsCount},
};
use larder_ssd::{
    ftl::{Ftl, PageWrite},
    geometry::Lpn,
    kinds::FtlKind,
    op::Nobody,
    profile::{DriveProfile, ProfileScale},
    time::{Drive, DriveRequest, run},
};
use larder_types::Fingerprint;

/// Pages that the requests of a sample write or read.
const REQUESTS: u32 = 1_000_000;
/// Distinct contents among the pages that repeat one, all equally likely.
const REPEATED_CONTENTS: u32 = 200_000;
/// Requests in flight, with time.
const OUTSTANDING: usize = 16;

fn main() {
    divan::main();
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32 % n
    }
}

/// Writes the unit that begins at a page; on most drives a unit is one page.
fn write(ftl: &mut dyn Ftl, first: u32, unit: &mut Vec<PageWrite>) {
    let pages = ftl.write_unit_pages();
    unit.clear();
    unit.extend((first..first + pages).map(|lpn| PageWrite { lpn: Lpn(lpn), content: None }));
    ftl.write(unit, &mut Nobody);
}

/// Makes a full drive.
fn full(profile: &DriveProfile, name: &str) -> Box<dyn Ftl> {
    let kind = FtlKind::named(name).expect("a layer");
    let mut ftl = (kind.make)(profile).expect("a drive");
    let unit_pages = ftl.write_unit_pages();
    let mut unit = Vec::new();
    for at in 0..ftl.logical_pages() / unit_pages {
        write(&mut *ftl, at * unit_pages, &mut unit);
    }
    ftl
}

fn requests(ftl: &mut dyn Ftl, random: &mut Random, reads_percent: u32) {
    let unit_pages = ftl.write_unit_pages();
    let units = ftl.logical_pages() / unit_pages;
    let mut unit = Vec::new();
    for _ in 0..REQUESTS / unit_pages {
        let first = random.below(units) * unit_pages;
        if random.below(100) < reads_percent {
            for lpn in first..first + unit_pages {
                ftl.read(Lpn(lpn), &mut Nobody);
            }
        } else {
            write(ftl, first, &mut unit);
        }
    }
}

fn bench(bencher: Bencher<'_, '_>, profile: &DriveProfile, name: &str, reads_percent: u32) {
    let mut ftl = full(profile, name);
    let mut random = Random(20_266);
    // Collection has to be steady first. A drive with this over-provisioning needs about its size
    // in writes again.
    for _ in 0..(ftl.logical_pages() / REQUESTS).clamp(1, 16) {
        requests(&mut *ftl, &mut random, 0);
    }
    let before = ftl.counts().clone();
    requests(&mut *ftl, &mut random, reads_percent);
    let done = ftl.counts().since(&before);
    let operations = done.pages_programmed() + done.pages_read();
    bencher.counter(ItemsCount::new(operations)).bench_local(|| requests(&mut *ftl, &mut random, reads_percent));
}

/// Writes pages at random.
///
/// `repeated_percent` of them have one of the repeated contents. The others have an unknown
/// content, which no page had before.
fn repeating_writes(ftl: &mut dyn Ftl, random: &mut Random, repeated_percent: u32) {
    for _ in 0..REQUESTS {
        let lpn = Lpn(random.below(ftl.logical_pages()));
        let content = content(random, repeated_percent);
        ftl.write(&[PageWrite { lpn, content }], &mut Nobody);
    }
}

fn content(random: &mut Random, repeated_percent: u32) -> Option<Fingerprint> {
    let repeats = random.below(100) < repeated_percent;
    repeats.then(|| Fingerprint(u128::from(random.below(REPEATED_CONTENTS)).to_be_bytes()))
}

fn bench_repeating(bencher: Bencher<'_, '_>, profile: &DriveProfile, name: &str, repeated_percent: u32) {
    let mut ftl = full(profile, name);
    let mut random = Random(20_266);
    // The contents on the drive have to repeat as often as the written ones first.
    for _ in 0..(ftl.logical_pages() / REQUESTS).clamp(1, 16) {
        repeating_writes(&mut *ftl, &mut random, repeated_percent);
    }
    let before = ftl.counts().clone();
    repeating_writes(&mut *ftl, &mut random, repeated_percent);
    let done = ftl.counts().since(&before);
    let operations = done.pages_programmed() + done.pages_read();
    let bytes = done.host_pages_written * u64::from(profile.geometry.page_bytes);
    let bencher = bencher.counter(ItemsCount::new(operations)).counter(BytesCount::new(bytes));
    bencher.bench_local(|| repeating_writes(&mut *ftl, &mut random, repeated_percent));
}

/// Simulates CAFTL's drive, whole: 40 GiB in pages of 4 KiB.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn caftl(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), "page", reads_percent);
}

/// Simulates the same drive with CAFTL and unknown contents, which are all distinct.
///
/// CAFTL fingerprints each page, looks it up and remembers it for the coldest. It writes journal,
/// tables and metadata.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn caftl_deduplicating(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), "caftl", reads_percent);
}

/// Simulates the same drive with CAFTL and repeated contents.
///
/// Pages are shared, given up and found again, and the store's entries change with them. In the
/// paper's workloads, 5.8 to 28.1% of the writes repeat (CAFTL Figure 2).
#[divan::bench(args = [6, 28, 60], sample_count = 5, sample_size = 1)]
fn caftl_repeating(bencher: Bencher<'_, '_>, repeated_percent: u32) {
    bench_repeating(bencher, &DriveProfile::named("caftl").expect("a profile"), "caftl", repeated_percent);
}

/// Simulates the same drive with the external merge behind each collection.
///
/// The merge reads the pages without a fingerprint, and sorts.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn caftl_collecting(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), "caftl-collecting", reads_percent);
}

/// Simulates the external merge with repeated contents.
#[divan::bench(args = [6, 28], sample_count = 5, sample_size = 1)]
fn caftl_collecting_repeating(bencher: Bencher<'_, '_>, repeated_percent: u32) {
    bench_repeating(bencher, &DriveProfile::named("caftl").expect("a profile"), "caftl-collecting", repeated_percent);
}

/// Simulates the same drive with hybrid mapping: nearly all operations are those of merges.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn caftl_hybrid(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), "hybrid", reads_percent);
}

/// Simulates the same drive with hybrid mapping that drops clean data.
#[divan::bench(args = ["flashtier", "flashtier-merge", "flashtier-lru"], sample_count = 5, sample_size = 1)]
fn caftl_evicting(bencher: Bencher<'_, '_>, name: &str) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), name, 0);
}

/// Simulates the same drive with write-evict units, of 2 MiB.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn caftl_weu(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("caftl").expect("a profile"), "weu", reads_percent);
}

/// Simulates 1 TB in pages of 16 KiB.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn tlc_nvme(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench(bencher, &DriveProfile::named("tlc-nvme").expect("a profile"), "page-trim", reads_percent);
}

/// Simulates the same drive cut to 4 GB, which the processor's caches hold.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn small(bencher: Bencher<'_, '_>, reads_percent: u32) {
    let profile = DriveProfile::named("tlc-nvme").expect("a profile");
    let small = profile.scaled_to(4 << 30, ProfileScale::BlockSize).expect("a drive");
    bench(bencher, &small, "page-trim", reads_percent);
}

fn timed_requests(drive: &mut Drive, random: &mut Random, (reads_percent, repeated_percent): (u32, u32)) {
    let pages = drive.ftl().logical_pages();
    let requests = std::iter::repeat_with(|| {
        let lpn = random.below(pages);
        if random.below(100) < reads_percent {
            DriveRequest::Read(lpn..lpn + 1)
        } else {
            DriveRequest::Write(vec![PageWrite { lpn: Lpn(lpn), content: content(random, repeated_percent) }])
        }
    });
    run::at_full_load(drive, OUTSTANDING, requests.take(REQUESTS as usize));
}

/// Simulates a drive with time, with these percentages of reads and of repeated contents.
fn bench_timed(bencher: Bencher<'_, '_>, name: &str, reads_percent: u32, repeated_percent: u32) {
    let profile = &timed_profile();
    let percents = (reads_percent, repeated_percent);
    let mut drive = Drive::new(full(profile, name), profile).expect("a drive with time");
    let mut random = Random(20_266);
    for _ in 0..(drive.ftl().logical_pages() / REQUESTS).clamp(1, 16) {
        timed_requests(&mut drive, &mut random, (0, repeated_percent));
    }
    let before = drive.ftl().counts().clone();
    timed_requests(&mut drive, &mut random, percents);
    let done = drive.ftl().counts().since(&before);
    let operations = done.pages_programmed() + done.pages_read();
    let requests = |drive: &mut Drive, random: &mut Random| timed_requests(drive, random, percents);
    bencher.counter(ItemsCount::new(operations)).bench_local(|| requests(&mut drive, &mut random));
}

/// Times CAFTL's drive with fewer blocks, 4 GiB.
///
/// The whole drive would take minutes until its collection is steady.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn timed(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench_timed(bencher, "page", reads_percent, 0);
}

/// Times the same drive with CAFTL, its hashes in the controller's time.
#[divan::bench(args = [0, 50], sample_count = 5, sample_size = 1)]
fn timed_deduplicating(bencher: Bencher<'_, '_>, reads_percent: u32) {
    bench_timed(bencher, "caftl", reads_percent, 0);
}

/// Times the same drive with CAFTL and repeated contents.
#[divan::bench(args = [6, 28], sample_count = 5, sample_size = 1)]
fn timed_repeating(bencher: Bencher<'_, '_>, repeated_percent: u32) {
    bench_timed(bencher, "caftl", 0, repeated_percent);
}

/// Times the same drive with CAFTL, sampling, pre-hashing and the dynamic switch.
#[divan::bench(args = [6, 28], sample_count = 5, sample_size = 1)]
fn timed_accelerated_repeating(bencher: Bencher<'_, '_>, repeated_percent: u32) {
    bench_timed(bencher, "caftl-accelerated", 0, repeated_percent);
}

fn timed_profile() -> DriveProfile {
    DriveProfile::named("caftl").expect("a profile").scaled_to(4 << 30, ProfileScale::Blocks).expect("a drive")
}
