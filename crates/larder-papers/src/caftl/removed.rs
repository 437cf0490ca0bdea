//! Figures 8, 9 and 12: duplicates removed, pages saved, and fingerprints compared for that.
//!
//! Figures 8 and 9 are of a processor of 934 MHz and a buffer of 16 MB (§4.2). Figure 12 is of 256
//! segments with room for the fingerprints of each workload (§4.3.3).
//!
//! It does not take time.

use super::{
    content::duplicate_writes,
    runs::{DriveCase, RunOutcome, run, searched},
    setting::{OF_DRIVES, OF_GENERATED, OF_SAMPLES, WORKLOAD, compared, publish, span, titles},
    stream::PageStream,
};
use crate::{Lab, PaperReport, Span, Table};
use larder_sim::report::plot::Scale;
use larder_ssd::caftl::{
    entry::{Order, StoreOptions},
    options::CaftlOptions,
    store::StoreCounts,
};

/// The paper's buffer (§4.2).
const BUFFER_MIB: u64 = 16;
/// Buckets of a store that has room for all: 10 million fingerprints.
const BUCKETS: u32 = 1 << 16;

const NO_SAMPLING: &str = "no sampling";
const SAMPLED: &str = "128 KB";
const IN_LINE: [&str; 2] = ["no sampling, in line alone", "128 KB, in line alone"];
const FORGETFUL: [&str; 2] = ["no sampling, store of 1 MB", "no sampling, deleted pages forgotten"];

fn sampled(unit_kib: u32) -> CaftlOptions {
    CaftlOptions { sampling_unit_bytes: Some(unit_kib << 10), ..CaftlOptions::default() }
}

fn in_line_alone(options: CaftlOptions) -> CaftlOptions {
    CaftlOptions { out_of_line: false, fingerprints_collected: false, ..options }
}

/// Returns the options without sampling and with, then both in line alone.
fn ways() -> [CaftlOptions; 4] {
    let plain = CaftlOptions::default();
    [plain, sampled(128), in_line_alone(plain), in_line_alone(sampled(128))]
}

/// Returns unsampled options: a store of one bucket a segment, which forgets deleted pages.
fn forgetful() -> [CaftlOptions; 2] {
    let plain = CaftlOptions::default();
    let store = StoreOptions { buckets_max: StoreOptions::default().segments, ..StoreOptions::default() };
    [CaftlOptions { store, ..plain }, CaftlOptions { keeps_deleted: false, ..plain }]
}

/// Runs the baseline, then all of these.
fn outcomes(lab: &Lab<'_>, at: usize, all: &[CaftlOptions]) -> Result<Vec<RunOutcome>, String> {
    let cases: Vec<DriveCase> = std::iter::once(DriveCase::baseline(BUFFER_MIB))
        .chain(all.iter().map(|options| DriveCase::caftl(*options, BUFFER_MIB)))
        .collect();
    run(lab, at, &cases)
}

/// Runs Figure 8.
pub(super) fn fig8(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let mut lines: [Vec<Option<f64>>; 9] = Default::default();
    let mut shares: [Vec<Option<f64>>; 2] = Default::default();
    for at in 0..titles.len() {
        let (offline, _) = duplicate_writes(&PageStream::of(lab, at)?);
        let all = [ways().as_slice(), forgetful().as_slice()].concat();
        let outcomes = outcomes(lab, at, &all)?;
        let Some((baseline, caftl)) = outcomes.split_first() else { continue };
        let absorbed = std::iter::once(baseline).chain(caftl.first()).map(RunOutcome::absorbed_percent);
        let figures = std::iter::once(offline).chain(caftl.iter().map(RunOutcome::removed_percent)).chain(absorbed);
        lines.iter_mut().zip(figures).for_each(|(line, figure)| line.push(Some(figure)));
        for (share, caftl) in shares.iter_mut().zip(caftl) {
            share.push((offline > 0.0).then(|| 100.0 * caftl.removed_percent() / offline));
        }
    }
    let mut table = Table::new("Duplicate writes removed", "Pages written (%)", WORKLOAD, &titles);
    let mut others = Table::new("Removed in other ways", "Pages written (%)", WORKLOAD, &titles);
    let names = ["offline", NO_SAMPLING, SAMPLED];
    let absorbed = ["absorbed by the buffer, baseline", "absorbed by the buffer, no sampling"];
    let other_names = [IN_LINE, FORGETFUL, absorbed].concat();
    for (at, (name, line)) in names.into_iter().chain(other_names).zip(lines).enumerate() {
        let table = if at < names.len() { &mut table } else { &mut others };
        table.push(name, line);
    }
    publish(&mut table, lab, "offline", &[("t1", 5.8), ("h6", 28.1)]);
    publish(&mut table, lab, NO_SAMPLING, &[("t1", 4.6), ("h2", 16.6), ("h5", 15.0), ("h6", 24.2), ("h7", 18.0)]);
    publish(&mut table, lab, SAMPLED, &[("t1", 1.3), ("h7", 15.4)]);
    let mut share = Table::new("Of those that offline finds", "Duplicates removed (%)", WORKLOAD, &titles);
    [NO_SAMPLING, SAMPLED].iter().zip(shares).for_each(|(name, line)| share.push(*name, line));
    publish(&mut share, lab, NO_SAMPLING, &[("t1", 79.3), ("h6", 86.1)]);
    let comparisons = vec![
        compared("Removed without sampling (%)", Span::of(4.6, 24.2), span(&table, NO_SAMPLING)),
        compared("Of what offline finds, without sampling, up to (%)", Span::at(86.2), span(&share, NO_SAMPLING)),
    ];
    let of_all = [
        OF_DRIVES,
        OF_SAMPLES,
        "A write is removed if its content is there when it comes to the layer: the paper's (n - m) / n. Writes that \
         the buffer absorbs stand by themselves, for no layer ever sees them. That 79.3% and 86.1% are t1's and h6's \
         follows from the two rates that the text prints of each. Offline knows contents that were overwritten \
         since; CAFTL knows those only until their block is erased. The paper does not name the size of its store. \
         Ours has 16 MB, room for 667,584 fingerprints; with 1 MB it has a bucket a segment, 41,728.",
    ];
    let words = lab.words(&of_all, &[OF_GENERATED]);
    let charts = vec![table.bars("CAFTL: duplicate writes removed", "Buffer of 16 MB, 934 MHz", Scale::Linear)];
    Ok(PaperReport { tables: vec![table, share, others], comparisons, words, charts })
}

/// Runs Figure 9.
pub(super) fn fig9(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let titles = titles(lab)?;
    let mut blocks: [Vec<Option<f64>>; 4] = Default::default();
    let mut valid: [Vec<Option<f64>>; 4] = Default::default();
    let mut occupied = Vec::new();
    for at in 0..titles.len() {
        let outcomes = outcomes(lab, at, &ways())?;
        let Some((baseline, caftl)) = outcomes.split_first() else { continue };
        let saved = |ours: f64, theirs: f64| (theirs > 0.0).then(|| 100.0 * (theirs - ours) / theirs);
        for (outcome, (blocks, valid)) in caftl.iter().zip(blocks.iter_mut().zip(&mut valid)) {
            blocks.push(saved(outcome.blocks.into(), baseline.blocks.into()));
            valid.push(saved(outcome.valid as f64, baseline.valid as f64));
        }
        occupied.push(Some(f64::from(baseline.blocks)));
    }
    let [mut saved, mut alone] = ["Flash blocks saved", "Flash blocks saved in line alone"]
        .map(|title| Table::new(title, "Erase blocks in use, less (%)", WORKLOAD, &titles));
    let names = [NO_SAMPLING, SAMPLED, IN_LINE[0], IN_LINE[1]];
    for (at, (name, line)) in names.into_iter().zip(blocks).enumerate() {
        let table = if at < 2 { &mut saved } else { &mut alone };
        table.push(name, line);
    }
    publish(&mut saved, lab, NO_SAMPLING, &[("h1", 31.2), ("h2", 0.0), ("h5", 0.0)]);
    let mut pages = Table::new("Valid pages saved", "Valid pages, less (%)", WORKLOAD, &titles);
    names.iter().zip(valid).take(2).for_each(|(name, line)| pages.push(*name, line));
    let mut baseline = Table::new("Without CAFTL", "Erase blocks in use", WORKLOAD, &titles);
    baseline.push("baseline", occupied);
    publish(&mut baseline, lab, "baseline", &[("h2", 176.0), ("h5", 176.0)]);
    let comparisons =
        vec![compared("Blocks saved without sampling, up to (%)", Span::at(31.2), span(&saved, NO_SAMPLING))];
    let of_all = [
        OF_DRIVES,
        OF_SAMPLES,
        "A block is in use from its first page until it is erased. Ours has blocks of its own for journal, tables \
         and metadata, one open in each of 80 planes at least. These are taken from the savings. Without a \
         collection, blocks in use hold overwritten pages, too, and their savings are hardly more than the writes \
         that were removed. The second table is of pages that something refers to, the layer's own among them.",
    ];
    let words = lab.words(&of_all, &[OF_GENERATED]);
    let charts = vec![
        saved.bars("CAFTL: flash space saved", "Erase blocks in use", Scale::Linear),
        pages.bars("CAFTL: valid pages saved", "Valid pages", Scale::Linear),
    ];
    Ok(PaperReport { tables: vec![saved, pages, baseline, alone], comparisons, words, charts })
}

/// Runs Figure 12.
pub(super) fn fig12(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let store =
        |order, range_check| StoreOptions { buckets_max: BUCKETS, order, range_check, ..StoreOptions::default() };
    let names = ["Range check", "Range check and hotness", "Bucket-level binary search"];
    let stores = [
        store(Order::Allocated, false),
        store(Order::Allocated, true),
        store(Order::Hotness, true),
        store(Order::Fingerprint, true),
    ];
    let titles = titles(lab)?;
    let mut lines: [Vec<Option<f64>>; 3] = Default::default();
    let mut each: [Vec<Option<f64>>; 4] = Default::default();
    for at in 0..titles.len() {
        let counts = searched(lab, at, &stores)?;
        let a_lookup = |counts: &StoreCounts| counts.comparisons as f64 / counts.lookups.max(1) as f64;
        each.iter_mut().zip(&counts).for_each(|(line, counts)| line.push(Some(a_lookup(counts))));
        let Some((plain, others)) = counts.split_first() else { continue };
        for (line, counts) in lines.iter_mut().zip(others) {
            let (less, more) = (a_lookup(counts), a_lookup(plain));
            line.push((more > 0.0).then(|| 100.0 * (more - less) / more));
        }
    }
    let mut table = Table::new("Comparisons saved", "Comparisons of fingerprints, less (%)", WORKLOAD, &titles);
    names.iter().zip(lines).for_each(|(name, line)| table.push(*name, line));
    publish(&mut table, lab, names[0], &[("t2", 23.7)]);
    publish(&mut table, lab, names[2], &[("d2", 85.5)]);
    let mut counted = Table::new("A lookup", "Comparisons of fingerprints", WORKLOAD, &titles);
    let all = std::iter::once("One bucket after the other").chain(names);
    all.zip(each).for_each(|(name, line)| counted.push(name, line));
    // The paper's figure is d2's: if there is a d2, so is ours.
    let of_d2 = titles.iter().position(|title| *title == lab.title_of("d2"));
    let (searched, ours) = match of_d2 {
        Some(at) => {
            ("Bucket-level binary search in d2 (%)", table.ours(names[2]).and_then(|line| *line.get(at)?).map(Span::at))
        }
        None => ("Bucket-level binary search, up to (%)", span(&table, names[2])),
    };
    let comparisons = vec![
        compared("Range check, up to (%)", Span::at(23.7), span(&table, names[0])),
        compared(searched, Span::at(85.5), ours),
    ];
    let of_all = [
        "The baseline searches the buckets of a segment one after the other, each by halves. All have 256 segments, and \
         buckets for all fingerprints; there is no time and no buffer, and nothing is done out of line. A range check costs one \
         comparison or two, each probe of a search one. The drive is empty when the trace begins.",
        "The savings follow the number of buckets in a segment. A trace of one bucket a segment, of 163 \
         fingerprints, has nothing to skip: that is 42,000 distinct contents in all.",
    ];
    let words = lab.words(&of_all, &[OF_GENERATED]);
    let charts = vec![table.bars("CAFTL: comparisons saved", "Fingerprint store of 256 segments", Scale::Linear)];
    Ok(PaperReport { tables: vec![table, counted], comparisons, words, charts })
}
