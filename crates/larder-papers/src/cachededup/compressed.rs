//! Figure 9: CD-ARC and Nitro, if all chunks compress to a half, or to a quarter (§5.6).
//!
//! Both have WEUs of 2 MiB for as much data, and the same number of addresses and fingerprints.
//! That is twice the chunks that fit compressed, as in D-ARC, and 2% of the data's bytes more of
//! them.
//!
//! Ours, since the paper is silent: the sizes, which are those of Figure 3.
//!
//! Departure: the paper's Nitro also remembers fingerprints of addresses whose data is gone. Ours
//! is Nitro's own.
//!
//! It does not prefetch fingerprints; nor does the paper's.

use larder_core::{cd_arc::CdArc, nitro::Nitro};
use larder_trace::Compressibility;

use super::setting::{CHUNK_BYTES, SIZE_LABEL, how, percent_less};
use crate::{
    Comparison, How, Lab, PaperReport, Span, Table,
    weus::{self, WeuRoom},
};
use larder_sim::{measure::Measures, report::plot::Scale};

/// Bytes of a metadata entry of CacheDedup's designs.
const ENTRY_BYTES: u64 = 24;
/// Cache sizes in percent of the working set.
const PERCENTS: [f64; 4] = [20.0, 40.0, 60.0, 80.0];
/// Raw over compressed bytes, of all chunks.
const RATIOS: [u32; 2] = [2, 4];
const NAMES: [&str; 2] = ["Nitro", "CD-ARC"];

/// A figure of a replay: its label, and its computation.
type CompressedFigure = (&'static str, fn(&Measures) -> f64);

fn room(is_cd_arc: bool, data_chunks: u64, ratio: u32) -> WeuRoom {
    let entries = 2 * data_chunks * u64::from(ratio) + data_chunks * u64::from(CHUNK_BYTES) * 2 / 100 / ENTRY_BYTES;
    WeuRoom {
        design: match is_cd_arc {
            true => |config| Box::new(CdArc::new(config)),
            false => |config| Box::new(Nitro::new(config)),
        },
        data_chunks,
        addresses: entries,
        fingerprints: entries,
        compress: true,
    }
}

/// Measures Nitro at all sizes, then CD-ARC.
fn measures(lab: &mut Lab<'_>, at: usize, ratio: u32) -> Result<Vec<Measures>, String> {
    let compress = Compressibility { mean: f64::from(ratio), variance: 0.0, ..Compressibility::default() };
    let how = How { compress, makes_all_sizes: true, ..how() };
    let working_set = lab.survey(at, &how)?.working_set_chunks as f64;
    let sizes = PERCENTS.map(|percent| (working_set * percent / 100.0) as u64);
    let rooms: Vec<WeuRoom> =
        [false, true].into_iter().flat_map(|is_cd_arc| sizes.map(|size| room(is_cd_arc, size, ratio))).collect();
    weus::replay(lab, at, &how, 0, &rooms)
}

/// Runs Figure 9.
pub(super) fn fig9(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let figures: [CompressedFigure; 3] = [
        ("Read miss ratio (%)", |measures| 100.0 * measures.tally.read_miss_ratio()),
        ("Read hit ratio (% of reads)", |measures| 100.0 * measures.tally.read_hit_ratio()),
        ("Cached data that no address has (%)", |measures| 100.0 * measures.stale_ratio()),
    ];
    let (mut all, mut comparisons) = (Vec::new(), Vec::new());
    for at in 0..lab.workload_count() {
        let name = lab.workload(at)?.title().to_owned();
        let mut hits: Vec<Table> = Vec::new();
        let mut stale = None;
        for ratio in RATIOS {
            let found = measures(lab, at, ratio)?;
            let title = format!("{name}, compressed {ratio} to 1");
            let mut tables = figures.map(|(label, _)| Table::new(title.as_str(), label, SIZE_LABEL, PERCENTS));
            for ((_, of), table) in figures.iter().zip(&mut tables) {
                for (name, line) in NAMES.iter().zip(found.chunks(PERCENTS.len())) {
                    table.push(*name, line.iter().map(|measures| Some(of(measures))));
                }
            }
            let [_, hit, garbage] = &tables;
            stale = stale.or(cell(garbage, "CD-ARC", 0));
            hits.push(hit.clone());
            all.extend(tables);
        }
        comparisons.extend(compared(&name, &hits, stale));
    }
    let charts = all
        .iter()
        .step_by(figures.len())
        .map(|table| {
            table.lines(
                format!("{}: read misses", table.title()),
                "WEUs of 2 MiB, write-back",
                Scale::Linear,
                Scale::Linear,
            )
        })
        .collect();
    Ok(PaperReport { tables: all, comparisons, words: words(lab), charts })
}

fn cell(table: &Table, name: &str, at: usize) -> Option<f64> {
    table.ours(name)?.get(at).copied()?
}

fn compared(trace: &str, hits: &[Table], stale: Option<f64>) -> Vec<Comparison> {
    let pair = |table: &Table, at| cell(table, "CD-ARC", at).zip(cell(table, "Nitro", at));
    let pairs = || hits.iter().flat_map(|table| (0..PERCENTS.len()).filter_map(|at| pair(table, at)));
    let most = |span: Option<Span>| span.map(|span| Span::at(span.high));
    let first = hits.first().and_then(|table| pair(table, 0));
    let more = |(cd_arc, nitro): (f64, f64)| -percent_less(cd_arc, nitro);
    let of = |what: &str, published, ours| Comparison {
        what: format!("{trace}: {what}"),
        published: Span::at(published),
        ours,
    };
    vec![
        of("read hits, CD-ARC over Nitro, up to (points)", 12.56, most(Span::over(pairs().map(|(a, b)| a - b)))),
        of("read hits, CD-ARC over Nitro, up to (%)", 12.56, most(Span::over(pairs().map(more)))),
        of("the same at 20%, compressed 2 to 1 (points)", 8.0, first.map(|(a, b)| Span::at(a - b))),
        of("the same at 20%, compressed 2 to 1 (%)", 8.0, first.map(|pair| Span::at(more(pair)))),
        of("invalid data in CD-ARC there, in average (%)", 46.0, stale.map(Span::at)),
    ]
}

fn words(lab: &Lab<'_>) -> Vec<String> {
    let of_all = [
        "The paper draws the read miss ratios and prints the differences above; whether in points or in percent it \
         does not say. Its share of invalid data is an average over time, and ours is that at the end.",
        "All chunks compress alike, as the paper has it, also those whose size was recorded. Its Nitro was given a \
         memory of fingerprints, which ours has not: that would make the lead smaller.",
        "The paper lays CD-ARC's lead to \"scan-resistant and adaptive properties inherited from ARC\", so where ARC is \
         not ahead of LRU there is little to inherit.",
    ];
    let of_profiles = [
        "A profile has no scans, and without deduplication ARC has no more read hits in it than LRU (cachededup-fig3).",
        "In both, overwritten chunks stay in their WEUs: a profile brings 23.4 GB of unique data over 2.1 GB of \
         addresses, as the recording did.",
    ];
    lab.words(&of_all, &of_profiles)
}
