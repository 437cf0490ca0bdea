//! Figures 1, 2 and 7: contents alone, without a drive.
//!
//! A duplicate is each page or write of a content except the first; of zeroes, too. Figure 7 takes
//! the lowest bits of the fingerprints that a trace or the command line has, 64 or 128; the paper's
//! SHA-1 has 160. Its text does not define a condense rate. Here it is the share of pages that are
//! duplicates by hashes of so many bits.
//!
//! Invariants: memory is about 50 bytes a page.
//!
//! It does not hash bytes.

use hashbrown::{HashMap, HashSet};
use larder_trace::{ContentId, Op};

use super::{
    setting::{OF_GENERATED, WORKLOAD, compared, how, publish, titles},
    stream::PageStream,
    workloads::WORKLOADS,
};
use crate::{Lab, PaperReport, Span, Table};
use larder_sim::report::plot::Scale;

/// The numbers of bits that a hash may have.
const BITS: [u32; 11] = [8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128];
/// The bits of a CRC32.
const CRC_BITS: u32 = 32;

/// The contents of a disk in the end.
struct DiskContents {
    /// The contents of all pages, in no order.
    contents: Vec<ContentId>,
    zeroes: u64,
}

impl DiskContents {
    fn of(lab: &Lab<'_>, at: usize) -> Result<DiskContents, String> {
        let mut pages: HashMap<u64, (ContentId, bool)> = HashMap::new();
        for request in lab.requests(at, &how())? {
            let request = request?;
            match (request.op, request.content) {
                (Op::Read | Op::Write, Some(content)) => {
                    pages.insert(request.lba, (content.fingerprint, content.is_zero));
                }
                (Op::Trim, _) if request.is_whole => {
                    pages.remove(&request.lba);
                }
                _ => {}
            }
        }
        let zeroes = pages.values().filter(|(_, is_zero)| *is_zero).count() as u64;
        Ok(DiskContents { contents: pages.into_values().map(|(fingerprint, _)| fingerprint).collect(), zeroes })
    }

    /// Counts the contents that hashes of so many bits tell apart.
    fn distinct(&self, bits: u32) -> u64 {
        let mask = if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        let mut hashes: Vec<u128> = self.contents.iter().map(|content| content.to_u128() & mask).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.len() as u64
    }

    /// Returns the bits of its fingerprints.
    fn bits(&self) -> u32 {
        if self.contents.iter().any(|content| content.to_u128() >> 64 != 0) { 128 } else { 64 }
    }

    fn percent(&self, pages: u64) -> f64 {
        100.0 * pages as f64 / self.contents.len().max(1) as f64
    }
}

/// Runs Figure 1.
pub(super) fn fig1(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let (mut duplicates, mut zeroes) = (Vec::new(), Vec::new());
    for at in 0..titles.len() {
        let disk = DiskContents::of(lab, at)?;
        duplicates.push(Some(disk.percent(disk.contents.len() as u64 - disk.distinct(128))));
        zeroes.push(Some(disk.percent(disk.zeroes.saturating_sub(1))));
    }
    let mut table = Table::new("Redundant data", "Pages of 4 KiB (%)", "DiskContents", &titles);
    table.push("Duplicate pages", duplicates.iter().copied());
    table.push("of these zeroes", zeroes);
    let comparisons = vec![compared(
        "Duplicate pages, over all disks (%)",
        Span::of(7.9, 85.9),
        Span::over(duplicates.into_iter().flatten()),
    )];
    let of_all =
        ["The paper looks at 15 disks of servers, kernel developers and offices, and prints the least and the \
         greatest share. Ours are shares of the disk, image or folder that `--path` names, or of the pages that a \
         trace leaves on its disk. Trimmed pages are not there. A page is a duplicate if an equal one was counted \
         before. Each file of a folder begins a page, and its last page is filled with zeroes."];
    let of_generated =
        ["The generated disk says nothing about disks: its share of duplicates is what was asked of it."];
    let charts = vec![table.bars("CAFTL: redundant data", "Pages of 4 KiB", Scale::Linear)];
    Ok(PaperReport { tables: vec![table], comparisons, words: lab.words(&of_all, &of_generated), charts })
}

/// Runs Figure 7.
pub(super) fn fig7(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let mut rates = Table::new("Condense rate", "Pages taken for duplicates (%)", "Hash bits", BITS);
    let mut wrong = Table::new("Contents that share their hash", "Contents", "Hash bits", BITS);
    for (at, title) in titles.iter().enumerate() {
        let disk = DiskContents::of(lab, at)?;
        let bits_max = disk.bits();
        let all = disk.distinct(bits_max);
        let told = BITS.map(|bits| (bits <= bits_max).then(|| disk.distinct(bits)));
        let pages = disk.contents.len() as u64;
        rates.push(title, told.map(|told| told.map(|told| disk.percent(pages - told))));
        wrong.push(title, told.map(|told| told.map(|told| (all - told) as f64)));
    }
    let of_all = [
        "The paper draws one curve and prints that 32 bits come to nearly the rate of 160. It does not define the \
         rate. Here it is the share of pages that a hash of so many bits takes for duplicates, so that too few bits \
         make it too great. The second table has its error: distinct contents, less the hashes that they have.",
        "The fingerprints of a recorded trace have 64 bits; what `--path` gives is hashed here, with XXH3 of 128. Fewer bits are \
         the lowest of these, and more than there are have no figure.",
    ];
    let of_generated = ["The fingerprints of generated contents are random numbers of 128 bits."];
    let crc = format!("{CRC_BITS} are those of CRC32");
    let charts = vec![rates.lines("CAFTL: condense rate by hash bits", crc, Scale::Linear, Scale::Linear)];
    Ok(PaperReport {
        tables: vec![rates, wrong],
        comparisons: Vec::new(),
        words: lab.words(&of_all, &of_generated),
        charts,
    })
}

/// Returns the share of writes whose content was written before, and of those with zeroes, in
/// percent.
pub(super) fn duplicate_writes(stream: &PageStream) -> (f64, f64) {
    let mut seen = HashSet::new();
    let (mut duplicates, mut zeroes) = (0u64, 0u64);
    for content in stream.contents().iter().flatten() {
        if !seen.insert(content.0) {
            duplicates += 1;
            zeroes += u64::from(content.0 == [0; 16]);
        }
    }
    let percent = |writes: u64| 100.0 * writes as f64 / stream.pages_written().max(1) as f64;
    (percent(duplicates), percent(zeroes))
}

/// Runs Figure 2.
pub(super) fn fig2(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let (mut duplicates, mut zeroes) = (Vec::new(), Vec::new());
    for at in 0..titles.len() {
        let (all, zero) = duplicate_writes(&PageStream::of(lab, at)?);
        duplicates.push(Some(all));
        zeroes.push(Some(zero));
    }
    let mut table = Table::new("Duplicate writes", "Pages written (%)", WORKLOAD, &titles);
    table.push("Duplicates", duplicates.iter().copied());
    table.push("of these zeroes", zeroes);
    publish(&mut table, lab, "Duplicates", &[("t1", 5.8), ("h6", 28.1)]);
    let ours = Span::over(duplicates.into_iter().flatten());
    let comparisons = vec![compared("Duplicate writes, over all workloads (%)", Span::of(5.8, 28.1), ours)];
    let of_all = ["A write is a duplicate if the same content was written before in the trace, wherever that was."];
    let words = lab.words(&of_all, &[OF_GENERATED]);
    let subtitle = format!("{} in the paper", WORKLOADS.len());
    let charts = vec![table.bars("CAFTL: duplicate writes by workload", subtitle, Scale::Linear)];
    Ok(PaperReport { tables: vec![table], comparisons, words, charts })
}
