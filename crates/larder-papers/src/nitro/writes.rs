//! Writes to the SSD (§6.3, "Reducing writes to SSD").
//!
//! "An SSD cache without Nitro" is taken for Extent (ND, NC), the baseline of Table 2. Data counts,
//! padding included. The metadata of WEUs on their extents is in no figure of the paper.
//!
//! It does not count the SSD's own writes.

use super::variants::{EXTENT, EXTENT_BYTES, OF_FILE_SYSTEM, Variant, WEU, WEU_C, WEU_D, WEU_DC, cache_extents, how};
use crate::{Comparison, Lab, PaperReport, Span, Table};
use larder_sim::{report::plot::Scale, setup::Setup};

const VARIANTS: [&Variant; 4] = [&WEU, &WEU_D, &WEU_C, &WEU_DC];

/// Runs the comparison of writes.
pub(super) fn run(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let mut lines: Vec<Vec<Option<f64>>> = vec![Vec::new(); VARIANTS.len()];
    let mut names = Vec::new();
    for at in 0..lab.workload_count() {
        names.push(lab.workload(at)?.title().to_owned());
        for (line, saved) in lines.iter_mut().zip(saved(lab, at)?) {
            line.push(Some(saved));
        }
    }
    let mut table = Table::new("Saved of the writes of Extent (ND, NC)", "Data not written (%)", "Trace", &names);
    for (variant, line) in VARIANTS.iter().zip(lines) {
        table.push(variant.name, line);
    }
    let homes = lab.title_of("Homes");
    table.publish(WEU_D.name, homes, 39.0);
    table.publish(WEU_DC.name, homes, 53.0);
    let comparisons = comparisons(lab, &table, &names);
    let subtitle = "Against extents without either; cache of 2% of the file system";
    let charts = vec![table.bars("Nitro: writes to the SSD saved", subtitle, Scale::Linear)];
    let of_all = [
        OF_FILE_SYSTEM,
        "The paper prints no other figures. \"At least 22%\" is of WebVM and Mail, with deduplication only and \
         with compression only. That the 53% are of Homes follows from their place in the text.",
    ];
    let of_profiles =
        ["Made-up extents compress to a half in the mean, as the paper's do, and compression saves about that here. \
         In the paper's Homes it saves less: of the 61% that deduplication leaves, 47 remain, which is a quarter \
         less and not a half. The text does not say why. Deduplication saves the share of the writes whose content \
         the cache still holds. A profile repeats contents of any age. The paper's words for Homes, \"shorter \
         fingerprint reuse distance\", are of the recording's order, which no table tells."];
    let words = lab.words(&of_all, &of_profiles);
    Ok(PaperReport { tables: vec![table], comparisons, words, charts })
}

/// Returns by how many percent the data written is less than in the baseline, for each variant.
fn saved(lab: &mut Lab<'_>, at: usize) -> Result<Vec<f64>, String> {
    let working_set = lab.survey(at, &how(EXTENT_BYTES))?.working_set_chunks;
    let extents = cache_extents(lab, at, 2.0)?;
    let all = std::iter::once(&&EXTENT).chain(&VARIANTS);
    let setups: Vec<Setup> = all.map(|variant| variant.setup(extents, working_set)).collect::<Result<_, _>>()?;
    let replayed = lab.replay(at, &how(EXTENT_BYTES), 0, &setups)?;
    let written: Vec<f64> =
        replayed.iter().map(|replayed| replayed.measures.traffic.flash_data_bytes_written as f64).collect();
    let Some((base, others)) = written.split_first() else { return Ok(Vec::new()) };
    Ok(others.iter().map(|bytes| 100.0 * (1.0 - bytes / base.max(1.0))).collect())
}

fn comparisons(lab: &Lab<'_>, table: &Table, names: &[String]) -> Vec<Comparison> {
    let of = |variant: &Variant| {
        let cells = table.ours(variant.name).into_iter().flatten().zip(names);
        let known = ["WebVM", "Mail"].map(|trace| lab.title_of(trace));
        Span::over(cells.filter(|(_, title)| known.contains(&title.as_str())).filter_map(|(cell, _)| *cell))
    };
    let least = |what: &str, ours| Comparison { what: what.to_owned(), published: Span::at(22.0), ours };
    vec![
        least("WebVM and Mail, deduplication only, at least (%)", of(&WEU_D)),
        least("WebVM and Mail, compression only, at least (%)", of(&WEU_C)),
    ]
}
