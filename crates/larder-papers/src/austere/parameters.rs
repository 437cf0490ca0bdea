//! The effects of chunk size, subchunk size and size of the LBA index: Figures 9 and 10 (§5.4).
//!
//! Ours, since the text is silent: the chunk sizes; AC-DC in Figure 10; subchunks of 16 KiB beside
//! the text's 8 and 4 KiB.
//!
//! It does not vary the size of the cache.

use larder_trace::Unknown;

use super::schemes::{
    AC_DC, CD_ARC_DC, CHUNK_BYTES, LBA_ENTRIES_PER_CHUNK, MIB, Scheme, cache_chunks, how, over, percent_less,
    percent_more, ram_mib, read_hit_percent, write_reduction_percent,
};
use crate::{Comparison, How, Lab, PaperReport, Replayed, Span, Table};
use larder_sim::{
    report::plot::Scale,
    setup::{Options, Setup},
};

const SCHEMES: [&Scheme; 2] = [&CD_ARC_DC, &AC_DC];
const CHUNK_KIB: [u32; 4] = [8, 16, 32, 64];
const SUBCHUNK_KIB: [u32; 3] = [4, 8, 16];
/// The cache of Figure 9, in percent of the working set.
const FIG9_PERCENT: f64 = 25.0;
/// The same of Figure 10.
const FIG10_PERCENT: f64 = 12.5;
/// LBA indices of Figure 10, in entries for each chunk that the flash holds.
const LBA_TIMES: [u64; 4] = [1, 2, 4, 8];
/// Working set of Homes in chunks of 32 KiB (Table 2: 19.19 GiB).
const HOMES_CHUNKS: u64 = 628_818;

/// A row of Figure 9.
#[derive(Clone, Copy)]
struct Shown {
    label: &'static str,
    title: &'static str,
    of: fn(&Replayed) -> f64,
}

const SHOWN: [Shown; 3] = [
    Shown { label: "Index RAM (MiB)", title: "index RAM", of: ram_mib },
    Shown { label: "Read hit ratio (%)", title: "read hit ratio", of: read_hit_percent },
    Shown { label: "Write reduction ratio (%)", title: "write reduction", of: write_reduction_percent },
];

fn with_subchunk(setup: Setup, kib: u32) -> Setup {
    Setup { options: Options { subchunk_bytes: Some(kib << 10), ..setup.options }, ..setup }
}

/// Replays CD-ARC-DC and AC-DC, a pair for each chunk size.
fn by_chunk(lab: &mut Lab<'_>) -> Result<Vec<Vec<Replayed>>, String> {
    let mut pairs = Vec::new();
    for kib in CHUNK_KIB {
        let how = How::new(kib << 10, Unknown::Zero);
        let chunks = cache_chunks(lab.survey(0, &how)?.working_set_chunks, FIG9_PERCENT, how.chunk_bytes);
        let setups = SCHEMES.iter().map(|scheme| scheme.setup(chunks, how.chunk_bytes));
        pairs.push(lab.replay(0, &how, 0, &setups.collect::<Result<Vec<Setup>, String>>()?)?);
    }
    Ok(pairs)
}

/// Replays them for each subchunk size; CD-ARC-DC has none, and is the same in all.
fn by_subchunk(lab: &mut Lab<'_>) -> Result<Vec<Vec<Replayed>>, String> {
    let chunks = cache_chunks(lab.survey(0, &how())?.working_set_chunks, FIG9_PERCENT, CHUNK_BYTES);
    let austere = AC_DC.setup(chunks, CHUNK_BYTES)?;
    let setups = std::iter::once(CD_ARC_DC.setup(chunks, CHUNK_BYTES)?);
    let setups: Vec<Setup> = setups.chain(SUBCHUNK_KIB.map(|kib| with_subchunk(austere, kib))).collect();
    let replayed = lab.replay(0, &how(), 0, &setups)?;
    let Some((cd_arc, austere)) = replayed.split_first() else { return Ok(Vec::new()) };
    Ok(austere.iter().map(|austere| vec![cd_arc.clone(), austere.clone()]).collect())
}

fn tables(title: &str, kib: &[u32], pairs: &[Vec<Replayed>]) -> Vec<Table> {
    let table = |shown: Shown| {
        let mut table = Table::new(title, shown.label, format!("{title} (KiB)"), kib);
        for (at, scheme) in SCHEMES.iter().enumerate() {
            table.push(scheme.name, pairs.iter().map(|pair| pair.get(at).map(shown.of)));
        }
        table
    };
    SHOWN.map(table).to_vec()
}

/// Returns the index RAM of AC-DC at the paper's own size of Homes and this size of subchunks, in
/// MiB.
fn published_size_mib(subchunk_kib: u32) -> Result<f64, String> {
    let setup = AC_DC.setup(cache_chunks(HOMES_CHUNKS, FIG9_PERCENT, CHUNK_BYTES), CHUNK_BYTES)?;
    let built = with_subchunk(setup, subchunk_kib).by_its_paper().build(HOMES_CHUNKS)?;
    Ok(built.cache.figures().index_ram_bytes as f64 / MIB)
}

/// Words below Figure 9, of any trace.
const FIG9_OF_ALL: [&str; 2] = [
    "RAM at the paper's size is that of a cache of 25% of 19.19 GiB (Table 2) as it is made; nothing is replayed for it. \
     The paper's process has more resident than its indices, so it is larger and grows by a smaller share.",
    "The chunk sizes are ours: the text names none. Chunks are put together of 4 KiB blocks by the two passes of the \
     paper, and what was never read is zeroes.",
];
/// Words below Figure 9, of generated traces.
const FIG9_OF_PROFILES: [&str; 2] = [
    "A generated trace touches 32 KiB at a time side by side and lies anywhere beyond that, so chunks of 64 KiB are as \
     many as chunks of 32.",
    "A write of one block makes a whole chunk new, and a generated trace repeats single blocks. So hardly a chunk is \
     a duplicate, at any size, and nearly all savings are by compression. Padding weighs more in these than beside \
     savings by duplicates, so AC-DC is farther below CD-ARC-DC than in the paper. Smaller subchunks help as they do \
     there.",
];

/// Makes Figure 9.
pub(super) fn fig9(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    if lab.workload_count() > 1 {
        return Err("austere-fig9 is of one trace: give one --trace".to_owned());
    }
    let by_chunk = tables("Chunk size", &CHUNK_KIB, &by_chunk(lab)?);
    let by_subchunk = tables("Subchunk size", &SUBCHUNK_KIB, &by_subchunk(lab)?);
    let names = [AC_DC.name, CD_ARC_DC.name];
    let compared = |what: &str, tables: &[Table], at: usize, of, low, high| Comparison {
        what: format!("AC-DC's {what} (%)"),
        published: Span::of(low, high),
        ours: tables.get(at..=at).and_then(|table| over(table, &[], names, of)),
    };
    let reductions = by_subchunk.get(2);
    let at_4_kib = reductions.and_then(|table| {
        let first = |name| table.ours(name)?.first().copied().flatten();
        Some(Span::at(percent_less(first(AC_DC.name)?, first(CD_ARC_DC.name)?)))
    });
    let of_size = |kib: u32, published: f64| {
        Ok::<Comparison, String>(Comparison {
            what: format!("AC-DC's RAM at the paper's size, {kib} KiB subchunks (MiB)"),
            published: Span::at(published),
            ours: Some(Span::at(published_size_mib(kib)?)),
        })
    };
    let comparisons = vec![
        compared("RAM less than CD-ARC-DC's, by chunk size", &by_chunk, 0, percent_less, 92.8, 95.3),
        compared("RAM less than CD-ARC-DC's, by subchunk size", &by_subchunk, 0, percent_less, 93.1, 95.1),
        compared("read hit ratio over CD-ARC-DC's, by chunk size", &by_chunk, 1, percent_more, 5.0, 12.3),
        compared("read hit ratio over CD-ARC-DC's, by subchunk size", &by_subchunk, 1, percent_more, 7.9, 10.4),
        compared("write reduction less than CD-ARC-DC's, by chunk size", &by_chunk, 2, percent_less, 10.0, 14.8),
        Comparison {
            what: "AC-DC's write reduction less than CD-ARC-DC's, 4 KiB subchunks (%)".to_owned(),
            published: Span::at(6.2),
            ours: at_4_kib,
        },
        of_size(8, 14.5)?,
        of_size(4, 17.3)?,
        Comparison {
            what: "AC-DC's RAM more with 4 KiB subchunks than with 8, at that size (%)".to_owned(),
            published: Span::at(18.8),
            ours: Some(Span::at(percent_more(published_size_mib(4)?, published_size_mib(8)?))),
        },
    ];
    let about = format!("{}: a cache of {FIG9_PERCENT}% of the working set", lab.workload(0)?.title());
    let charts = by_chunk.iter().chain(&by_subchunk).zip(SHOWN.iter().cycle());
    let charts = charts.map(|(table, shown)| {
        let title = format!("{} by {}", shown.title, table.title().to_lowercase());
        let scale = if shown.title == "index RAM" { Scale::Log } else { Scale::Linear };
        table.lines(first_upper(&title), about.clone(), Scale::Log, scale)
    });
    let charts = charts.collect();
    let words = lab.words(&FIG9_OF_ALL, &FIG9_OF_PROFILES);
    let tables = by_chunk.into_iter().chain(by_subchunk).collect();
    Ok(PaperReport { tables, comparisons, words, charts })
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Makes Figure 10.
pub(super) fn fig10(lab: &mut Lab<'_>) -> Result<PaperReport, String> {
    let columns = LBA_TIMES.map(|times| format!("{times}x"));
    let x_label = "LBA index (times the FP index)";
    let mut ram = Table::new("Memory", "Index RAM (MiB)", x_label, &columns);
    let mut hits = Table::new("Read hits", "Read hit ratio (%)", x_label, &columns);
    for at in 0..lab.workload_count() {
        let chunks = cache_chunks(lab.survey(at, &how())?.working_set_chunks, FIG10_PERCENT, CHUNK_BYTES);
        let four = AC_DC.setup(chunks, CHUNK_BYTES)?;
        let with = |times: u64| {
            let lba_entries = four.options.lba_entries.map(|entries| entries / LBA_ENTRIES_PER_CHUNK * times);
            Setup { options: Options { lba_entries, ..four.options }, ..four }
        };
        let replayed = lab.replay(at, &how(), 0, &LBA_TIMES.map(with))?;
        let name = lab.workload(at)?.title();
        ram.push(name, replayed.iter().map(|one| Some(ram_mib(one))));
        hits.push(name, replayed.iter().map(|one| Some(read_hit_percent(one))));
    }
    hits.publish(lab.title_of("WebVM"), "1x", 36.7);
    hits.publish(lab.title_of("WebVM"), "8x", 70.4);
    let grows = |table: &Table, what: &str, trace: &str, published: f64| Comparison {
        what: format!("{trace}: {what}, 8x over 1x (%)"),
        published: Span::at(published),
        ours: table.ours(lab.title_of(trace)).and_then(|ours| {
            let (first, last) = ((*ours.first()?)?, (*ours.last()?)?);
            Some(Span::at(percent_more(last, first)))
        }),
    };
    let comparisons = vec![
        grows(&ram, "memory", "WebVM", 17.6),
        grows(&ram, "memory", "Homes", 111.5),
        grows(&ram, "memory", "Mail", 160.9),
        grows(&hits, "read hit ratio", "Homes", 4.3),
        grows(&hits, "read hit ratio", "Mail", 5.3),
    ];
    let about = format!("AC-DC, a cache of {FIG10_PERCENT}% of the working set");
    let charts = vec![
        ram.lines("Index RAM by size of the LBA index", about.as_str(), Scale::Log, Scale::Log),
        hits.lines("Read hit ratio by size of the LBA index", about.as_str(), Scale::Log, Scale::Linear),
    ];
    let of_all = [
        "Each entry of the LBA index counts as a reference. So a larger index does two things. More of the cached \
         chunks can be hit, and contents of addresses that are not wanted any more stay for longer. If the second \
         weighs more, hits fall with the index.",
        "The text does not say whether it is of AC-D or AC-DC; ours is AC-DC. For Homes and Mail it gives by how much the hit \
         ratio grows, not whether in points or of what there was; ours is a share of what there was.",
        "Our RAM is that of the indices alone. LBA index and sketch grow with the size of the LBA index and are most \
         of it. So it grows by more than the paper's, whose processes have more in RAM that does not grow.",
    ];
    let of_profiles =
        ["The hit ratios of generated traces rise up to an LBA index of twice or four times, about as the text has \
         it. They fall by a point or two beyond that. The recording of WebVM rises far more, from 36.7%. There, as \
         the text says, references to cached chunks grow with the index, while a generated trace spreads its \
         duplicates over all contents."];
    let words = lab.words(&of_all, &of_profiles);
    Ok(PaperReport { tables: vec![ram, hits], comparisons, words, charts })
}
