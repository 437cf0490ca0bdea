//! The finds of deduplication: Figures 1 (§2), by cache size, and 5 (§6.1), by fingerprints kept.
//!
//! Figure 1's ratio is that of all requests to those whose content was not in the cache. That is
//! its data over the rest after deduplication (§5.1), in a cache of contents in LRU order.
//!
//! Figure 5's share is one of a full index, which has a fingerprint for each extent that the cache
//! holds.
//!
//! It leaves out Figure 1's own cache sizes, which are in the drawing only.

use larder_core::nitro::Nitro;

use super::variants::{EXTENT_BYTES, OF_FILE_SYSTEM, accessed_percent, cache_extents, how, warmup};
use crate::{
    Comparison, Lab, PaperReport, Span, Table,
    weus::{self, WeuRoom},
};
use larder_sim::{
    cache::WritePolicy,
    measure::Measures,
    report::plot::Scale,
    setup::{FlashAmount, Options, ReplayDesign, Setup},
};

/// Bytes of a block of Figure 1.
const BLOCK_BYTES: u32 = 4096;
/// Cache sizes of Figure 1, in percent of the working set.
const SIZES: [f64; 9] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0];
/// Fingerprints kept, in percent of the extents that the cache holds (Table 1).
const KEPT: [u64; 5] = [100, 75, 50, 25, 0];

/// Makes Figure 1.
pub(super) fn fig1(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let (label, x) = ("Deduplication ratio", "Cache size (% of the working set)");
    let mut table = Table::new("Requests for each that had to be stored", label, x, SIZES);
    let mut blocks = Table::new("The cache", "Blocks of 4 KiB", x, SIZES);
    for at in 0..lab.workload_count() {
        let working_set = lab.survey(at, &how(BLOCK_BYTES))?.working_set_chunks;
        let sizes = SIZES.map(|percent| ((working_set as f64 * percent / 100.0) as u64).max(1));
        let setups = sizes.map(|chunks| {
            Ok(Setup {
                design: ReplayDesign::named("d-lru")?,
                chunk_bytes: BLOCK_BYTES,
                flash: FlashAmount::DataChunks(chunks),
                policy: WritePolicy::Back,
                options: Options::default(),
            })
        });
        let setups: Vec<Setup> = setups.into_iter().collect::<Result<_, String>>()?;
        let replayed = lab.replay(at, &how(BLOCK_BYTES), 0, &setups)?;
        let ratio = |measures: &Measures| {
            let stored = measures.traffic.chunks_stored.max(1);
            measures.tally.requests() as f64 / stored as f64
        };
        let name = lab.workload(at)?.title();
        table.push(name, replayed.iter().map(|replayed| Some(ratio(&replayed.measures))));
        blocks.push(name, sizes.map(|chunks| Some(chunks as f64)));
    }
    let last = |name: &str| table.ours(lab.title_of(name)).and_then(|line| line.last().copied().flatten());
    let ample = Span::over(["WebVM", "Homes", "Mail"].into_iter().filter_map(last));
    let what = "ratio where all content fits, about".to_owned();
    let comparisons = vec![Comparison { what, published: Span::at(2.0), ours: ample }];
    let subtitle = "Blocks of 4 KiB, contents in LRU order";
    let charts = vec![table.lines("Nitro: deduplication by cache size", subtitle, Scale::Log, Scale::Linear)];
    let of_all =
        ["The paper draws the curves and prints no other figure of them than the last, \"~2.0X\". By its caption \
         \"tens of thousands of blocks\" find most of the duplicates. With the working sets of §5.2, 10,000 blocks \
         are 1.0% of WebVM's, 0.14% of Homes' and 0.07% of Mail's."];
    let of_profiles =
        ["The last column is how the profiles were calibrated, and shows no more than that. Before it, the profiles \
         take more cache than the caption has: they repeat contents of any age, the k-th recent or the k-th oldest \
         in proportion to 1/k. By the caption the traces repeat young ones more than that; as no table tells how \
         young, no profile does."];
    let words = lab.words(&of_all, &of_profiles);
    Ok(PaperReport { tables: vec![table, blocks], comparisons, words, charts })
}

/// Makes Figure 5, a and b.
pub(super) fn fig5(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let labels = ["Read hit ratio (%)", "Deduplication ratio", "Index RAM (MiB)"];
    let titles = ["(a) Read hits", "(b) Deduplication", "RAM of the index"];
    let mut tables: Vec<Table> = titles
        .iter()
        .zip(labels)
        .map(|(title, label)| Table::new(*title, label, "Fingerprint index ratio (%)", KEPT))
        .collect();
    let figures: [fn(&Measures) -> f64; 3] = [
        |measures| 100.0 * measures.tally.read_hit_ratio(),
        Measures::dedup_ratio,
        |measures| measures.figures.index_ram_bytes as f64 / f64::from(1 << 20),
    ];
    for at in 0..lab.workload_count() {
        let measures = by_index(lab, at)?;
        let name = lab.workload(at)?.title().to_owned();
        for (table, figure) in tables.iter_mut().zip(figures) {
            table.push(name.as_str(), measures.iter().map(|measures| Some(figure(measures))));
        }
    }
    let charts = tables
        .iter()
        .take(2)
        .map(|table| {
            let title = format!("Nitro: {}", table.title());
            table.lines(title, "WEU (D, NC), cache of 2% of the file system", Scale::Linear, Scale::Linear)
        })
        .collect();
    let comparisons = index_comparisons(lab, &tables);
    Ok(PaperReport { tables, comparisons, words: index_words(lab), charts })
}

/// Measures WEU (D, NC) of 2% of the file system, with each share of the fingerprints.
fn by_index(lab: &mut Lab<'_>, at: usize) -> Result<Vec<Measures>, String> {
    let survey = lab.survey(at, &how(EXTENT_BYTES))?;
    let extents = cache_extents(lab, at, 2.0)?;
    let rooms = KEPT.map(|percent| WeuRoom {
        design: |config| Box::new(Nitro::new(config)),
        data_chunks: extents,
        addresses: survey.working_set_chunks,
        fingerprints: extents * percent / 100,
        compress: false,
    });
    weus::replay(lab, at, &how(EXTENT_BYTES), warmup(survey.requests), &rooms)
}

fn index_comparisons(lab: &Lab<'_>, tables: &[Table]) -> Vec<Comparison> {
    let [hits, dedup, ram] = tables else { return Vec::new() };
    let traces = ["WebVM", "Homes", "Mail"];
    // From a full index to 75% and to 50%.
    let drops = |table: &Table, drop: fn(f64, f64) -> f64| {
        let lines = traces.iter().filter_map(|name| table.ours(lab.title_of(name))).collect::<Vec<_>>();
        let pairs = lines.into_iter().flat_map(|line| match line {
            [Some(full), Some(most), Some(half), ..] => vec![drop(*full, *most), drop(*full, *half)],
            _ => Vec::new(),
        });
        Span::over(pairs)
    };
    let percent = |full: f64, less: f64| if full > 0.0 { 100.0 * (full - less) / full } else { 0.0 };
    let full = |name: &str| dedup.ours(lab.title_of(name)).and_then(|line| line.first().copied().flatten());
    let of = |what: &str, published, ours| Comparison { what: what.to_owned(), published, ours };
    vec![
        of("read hits lost from 100% to 75 and 50% (points)", Span::of(5.0, 11.0), drops(hits, |a, b| a - b)),
        of("read hits lost from 100% to 75 and 50% (%)", Span::of(5.0, 11.0), drops(hits, percent)),
        of("RAM saved from 100% to 75 and 50% (%)", Span::of(16.0, 22.0), drops(ram, percent)),
        of(
            "deduplication ratio of Homes and Mail at 100%, at least",
            Span::at(1.5),
            Span::over(["Homes", "Mail"].into_iter().filter_map(full)),
        ),
    ]
}

fn index_words(lab: &Lab<'_>) -> Vec<String> {
    let shares = ["WebVM", "Homes", "Mail"].map(|trace| format!("{:.0}%", 200.0 / accessed_percent(trace)));
    let sizes = format!(
        "A cache of 2% of the file system has room for {} of what WebVM touches, {} of Homes' and {} of Mail's.",
        shares[0], shares[1], shares[2]
    );
    let of_all = [
        OF_FILE_SYSTEM,
        &sizes,
        "The paper draws the curves and prints the figures above. It does not say if the loss of read hits is in \
         points.",
        "Deduplication ratios are of the cache's content at the end: addresses that hit for each extent stored. \
         Those of the paper may be of another moment. Its 29 bytes an entry are compared in no figure. The count \
         here is of all bytes that the index allocated, in tables that double in size, so that RAM falls in steps or \
         not at all.",
    ];
    let of_profiles =
        ["Less is lost with the index here, since there is less to lose. In the profiles deduplication brings some 4 \
         to 5 points in all (the last column against the first, and Figure 4), in the paper 8 to 19%. Half of an \
         index in LRU order still has the fingerprints that were used last, and the profiles repeat those most."];
    lab.words(&of_all, &of_profiles)
}
