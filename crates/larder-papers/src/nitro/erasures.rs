//! Erasures inside the SSD: Figure 6 (§6.1), and §6.3's reduction of writes as erasures.
//!
//! The drive is the paper's: 7% over-provisioning, and 10% of its blocks for the log of the hybrid
//! mapping (§5.4). It is cut to the size of the cache, with pages of 4 KiB. The modified drives
//! reserve no space (§5.4), and so are no larger than the cache. The cache's metadata is not on
//! the drive, for Nitro keeps its indices in RAM.
//!
//! Caches of Figure 6 are in write-through: then a drive that drops data by itself may drop all of
//! the cache. All of a trace is counted, from an empty drive on.
//!
//! It does not take time.

use super::variants::{
    EXTENT, EXTENT_BYTES, EXTENT_D, OF_FILE_SYSTEM, Variant, WEU, WEU_C, WEU_D, WEU_DC, cache_extents, how,
};
use crate::{Comparison, Lab, PaperReport, Replayed, Span, Table};
use larder_sim::{
    cache::WritePolicy,
    report::plot::Scale,
    setup::{FlashAmount, Options, Setup, drive::DriveSetup},
};
use larder_ssd::{kinds::FtlKind, profile::DriveProfile};

/// The drive.
const PROFILE: &str = "nitro-mlc";

/// Pages as small as the sectors of the cache's writes, so that a segment fills its pages.
///
/// Blocks are of 2 MiB as in the profile. They are smaller in two cases. If one plane of a small
/// cache's drive had too few
/// ([`BLOCKS_PER_PLANE_MIN`](larder_sim::setup::drive::BLOCKS_PER_PLANE_MIN)), they are halved
/// until it has enough. On `weu` a WEU must be whole blocks. Then all drives beside it have such
/// blocks, since erasures are compared.
const PAGE_BYTES: f64 = 4096.0;
const PAGES_PER_BLOCK: f64 = 512.0;

/// Extents of the smallest flash that is divided into WEUs, 16 MiB.
const EXTENTS_MIN: u64 = 2048;

/// A cache and the translation layer beneath.
struct Pair {
    name: &'static str,
    variant: &'static Variant,
    ftl: &'static str,
}

const fn pair(name: &'static str, variant: &'static Variant, ftl: &'static str) -> Pair {
    Pair { name, variant, ftl }
}

const WEU_LRU: &str = "WEU-LRU";
const WEU_TRIM: &str = "WEU-LRU-TRIM";
const WEU_MOD: &str = "WEU-LRU-mod";
const EXTENT_TRIM: &str = "extent-LRU-TRIM";
const EXTENT_MOD: &str = "extent-LRU-mod";
const EXTENT_NAIVE: &str = "extent, unmodified";

/// The seven: Figure 6's, as far as the text names them, with two more.
///
/// These are FlashTier before Nitro's authors extended it, and the one "not shown".
const PAIRS: [Pair; 7] = [
    pair(WEU_LRU, &WEU_D, "hybrid"),
    pair(WEU_TRIM, &WEU_D, "hybrid-trim"),
    pair(WEU_MOD, &WEU_D, "weu"),
    pair(EXTENT_TRIM, &EXTENT_D, "hybrid-trim"),
    pair(EXTENT_MOD, &EXTENT_D, "flashtier-lru"),
    pair("extent, FlashTier SE-Util", &EXTENT_D, "flashtier"),
    pair(EXTENT_NAIVE, &EXTENT_D, "hybrid"),
];
/// The same on layers of today's drives, which the paper does not have.
const TODAY: [Pair; 4] = [
    pair("WEU-LRU, page-mapped", &WEU_D, "page"),
    pair("WEU-LRU-TRIM, page-mapped", &WEU_D, "page-trim"),
    pair("extent-LRU-TRIM, page-mapped", &EXTENT_D, "page-trim"),
    pair("extent, page-mapped", &EXTENT_D, "page"),
];

/// Puts a cache of so many extents, in bytes, on a drive of its size.
fn setup(variant: &Variant, ftl: &str, extents: u64, policy: WritePolicy) -> Result<Setup, String> {
    let profile = DriveProfile::named(PROFILE).ok_or("no such drive")?;
    let ftl = FtlKind::named(ftl).ok_or("no such layer")?;
    let drive =
        DriveSetup::new(profile, ftl).with("page_bytes", PAGE_BYTES)?.with("pages_per_block", PAGES_PER_BLOCK)?;
    let drive = DriveSetup { only_data: true, ..drive };
    let setup = variant.setup(extents, extents)?;
    // In bytes, a unit is as large as the drive's blocks are, tables and all.
    let flash = FlashAmount::Bytes(extents * u64::from(EXTENT_BYTES));
    let options = Options { drive: Some(drive), lba_entries: None, ..setup.options };
    Ok(Setup { flash, policy, options, ..setup })
}

fn erasures(replayed: &Replayed) -> f64 {
    replayed.measures.drive.as_ref().map_or(0.0, |drive| drive.counts.blocks_erased() as f64)
}

/// Runs Figure 6.
pub(super) fn fig6(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let pairs: Vec<&Pair> = PAIRS.iter().chain(&TODAY).collect();
    let mut names = Vec::new();
    let (mut erased, mut hits) = (vec![Vec::new(); pairs.len()], vec![Vec::new(); pairs.len()]);
    for at in 0..lab.workload_count() {
        names.push(lab.workload(at)?.title().to_owned());
        let extents = cache_extents(lab, at, 2.0)?.max(EXTENTS_MIN);
        let of = |pair: &&Pair| setup(pair.variant, pair.ftl, extents, WritePolicy::Through);
        let setups: Vec<Setup> = pairs.iter().map(of).collect::<Result<_, _>>()?;
        let replayed = lab.replay(at, &how(EXTENT_BYTES), 0, &setups)?;
        let base = replayed.first().map_or(0.0, erasures).max(1.0);
        for ((erased, hits), replayed) in erased.iter_mut().zip(&mut hits).zip(&replayed) {
            erased.push(Some(erasures(replayed) / base));
            hits.push(Some(100.0 * replayed.measures.tally.read_hit_ratio()));
        }
    }
    let mut table = Table::new("Erasures, those of WEU-LRU being 1", "Erasures (WEU-LRU: 1)", "Trace", &names);
    let mut reads = Table::new("Read hit ratio of the same caches", "Read hit ratio (%)", "Trace", &names);
    for ((pair, erased), hits) in pairs.iter().zip(erased).zip(hits) {
        table.push(pair.name, erased);
        reads.push(pair.name, hits);
    }
    names.iter().for_each(|name| table.publish(WEU_LRU, name, 1.0));
    let comparisons = comparisons(&table, &reads);
    let subtitle = "Cache of 2% of the file system, deduplicated, on a drive of its size";
    let charts = vec![table.bars("Nitro: erasures inside the SSD", subtitle, Scale::Log)];
    let of_all = [
        OF_FILE_SYSTEM,
        "The paper's text gives factors and no figure of a bar. It names five of the seven pairs; FlashTier before \
         its extension and \"naive\" extents are the other two here. Below the seven are the same caches on \
         page-mapped drives.",
        "In which order its cache writes the slots that a drive dropped, the paper does not say. Here it is the order in which \
         they were dropped, so that drives which drop data by themselves have nothing to merge.",
    ];
    let words = lab.words(&of_all, &[]);
    Ok(PaperReport { tables: vec![table, reads], comparisons, words, charts })
}

/// Returns the figures of one line over those of others, trace by trace.
fn factors(table: &Table, of: &str, over: &[&str]) -> Option<Span> {
    let ratios = over.iter().flat_map(|over| {
        let lines = table.ours(of).zip(table.ours(over));
        let cells = lines.into_iter().flat_map(|(of, over)| of.iter().zip(over));
        cells.filter_map(|(of, over)| (*of).zip(*over)).filter(|(_, over)| *over > 0.0).map(|(of, over)| of / over)
    });
    Span::over(ratios.collect::<Vec<_>>())
}

fn comparisons(table: &Table, reads: &Table) -> Vec<Comparison> {
    let of = |what: &str, published, ours| Comparison { what: what.to_owned(), published, ours };
    let weus = [WEU_MOD, WEU_TRIM];
    let more = || {
        let ratios = factors(reads, WEU_MOD, &[WEU_LRU])?;
        Some(Span { low: 100.0 * (ratios.low - 1.0), high: 100.0 * (ratios.high - 1.0) })
    };
    vec![
        of("extent-LRU-TRIM over both WEU versions (times)", Span::of(2.0, 4.0), factors(table, EXTENT_TRIM, &weus)),
        of("extent-LRU-mod over both WEU versions (times)", Span::of(2.0, 4.0), factors(table, EXTENT_MOD, &weus)),
        of("WEU-LRU-TRIM over WEU-LRU-mod, \"similar\" (times)", Span::at(1.0), factors(table, WEU_TRIM, &[WEU_MOD])),
        of(
            "modified and TRIM alternatives over WEU-LRU (times)",
            Span::of(0.91, 1.2),
            Span::over(
                weus.iter().filter_map(|weu| factors(table, weu, &[WEU_LRU])).flat_map(|span| [span.low, span.high]),
            ),
        ),
        of(
            "unmodified extents over WEU-LRU, \"several orders of magnitude\", at least (times)",
            Span::at(100.0),
            factors(table, EXTENT_NAIVE, &[WEU_LRU]),
        ),
        of("read hits of WEU-LRU-mod over WEU-LRU's, in as large a cache (%)", Span::of(5.0, 8.0), more()),
    ]
}

const VARIANTS: [&Variant; 6] = [&EXTENT, &EXTENT_D, &WEU, &WEU_C, &WEU_D, &WEU_DC];
const LAYERS: [&str; 4] = ["hybrid", "hybrid-trim", "page", "page-trim"];

/// Runs §6.3 in erasures: the savings of deduplication and compression, on each layer.
pub(super) fn saved(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let (mut tables, mut charts) = (Vec::new(), Vec::new());
    for at in 0..lab.workload_count() {
        let title = lab.workload(at)?.title().to_owned();
        let extents = cache_extents(lab, at, 2.0)?.max(EXTENTS_MIN);
        let mut setups = Vec::new();
        for variant in VARIANTS {
            for ftl in LAYERS {
                setups.push(setup(variant, ftl, extents, WritePolicy::Back)?);
            }
        }
        let replayed = lab.replay(at, &how(EXTENT_BYTES), 0, &setups)?;
        let all: Vec<f64> = replayed.iter().map(erasures).collect();
        let mut erased = Table::new(title.clone(), "Blocks erased", "Translation layer", LAYERS);
        let mut saved = Table::new(
            format!("{title}: saved of the erasures of {} on the same layer", EXTENT.name),
            "Erasures saved (%)",
            "Translation layer",
            LAYERS,
        );
        let base: Vec<f64> = all.iter().take(LAYERS.len()).copied().collect();
        for (variant, line) in VARIANTS.iter().zip(all.chunks(LAYERS.len())) {
            erased.push(variant.name, line.iter().copied().map(Some));
            let shares = line.iter().zip(&base).map(|(own, base)| (*base > 0.0).then(|| 100.0 * (1.0 - own / base)));
            saved.push(variant.name, shares);
        }
        let subtitle = format!("{title}: cache of 2% of the file system, on a drive of its size");
        charts.push(erased.bars("Nitro: blocks erased", subtitle, Scale::Log));
        tables.extend([erased, saved]);
    }
    let of_all = [
        OF_FILE_SYSTEM,
        "§6.3 gives the reduction of writes, which nitro-writes has: at least 22% of WebVM and Mail by deduplication alone and by \
         compression alone, 39% and 53% of Homes. It gives no erasures; ours say what becomes of those writes inside the drive.",
    ];
    let words = lab.words(&of_all, &[]);
    Ok(PaperReport { tables, comparisons: Vec::new(), words, charts })
}
